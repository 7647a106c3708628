"""The group `amp` for TensorFlow: Keras' mixed-precision policies train, and stay near FP32."""

from __future__ import annotations

import statistics
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from .amp import assert_falling, assert_near, assert_types
from .reference import relative_error
from .result import Context, Failed, Outcome, Skipped
from .tensorflow_common import devices, facts, load

_STEPS = 10
# What a loss is multiplied by before the gradient in FP16; LossScaleOptimizer does it in training.
_SCALE = 4096.0


class Mode(NamedTuple):
    """One precision: its name, the policy of Keras, the type that layers compute in, the loss scale."""

    name: str
    policy: str
    dtype: str
    scale: float


class Job(NamedTuple):
    """A model, one batch and its labels."""

    model: Any
    inputs: Any
    labels: Any


def fp16(context: Context) -> Outcome:
    """Train under the policy mixed_float16, which scales the loss."""
    return _precision(load(context), context, Mode("fp16", "mixed_float16", "float16", _SCALE))


def bf16(context: Context) -> Outcome:
    """Train under mixed_bfloat16 where the hardware has BF16; emulation is named, not counted."""
    tf = load(context)
    _need_ampere(tf, context, "BF16", "use mixed_float16 on this GPU")
    return _precision(tf, context, Mode("bf16", "mixed_bfloat16", "bfloat16", 1.0))


def tf32(context: Context) -> Outcome:
    """TF32 switched on changes products as it should, switched off leaves FP32, and trains."""
    if context.device == "cpu":
        raise Skipped("TF32 exists on GPUs only")
    tf = load(context)
    _need_ampere(tf, context, "TF32", None)
    errors = {switch: _product_error(tf, context, switch) for switch in (False, True)}
    evidence: Dict[str, Any] = {"product_error": {"off": errors[False], "on": errors[True]}}
    if errors[False] > 1e-5 or errors[True] > 5e-3:
        text = "products are off by {:.1e} (TF32 off: {:.1e})".format(errors[True], errors[False])
        raise Failed(text, evidence=evidence)
    tf.config.experimental.enable_tensor_float_32_execution(True)
    outcome = _precision(tf, context, Mode("tf32", "float32", "float32", 1.0))
    return Outcome(outcome.summary, {**evidence, **outcome.evidence})


def _need_ampere(tf: Any, context: Context, what: str, instead: Optional[str]) -> None:
    for gpu in facts(tf) if context.device == "cuda" else []:
        if gpu["capability"] < 8:
            raise Skipped(
                "{} ({}) has no {}".format(gpu["name"], gpu["capability"], what),
                diagnosis="{} begins with compute capability 8.0".format(what),
                next_step=instead,
                evidence={**gpu, "emulated": True},
            )


def _product_error(tf: Any, context: Context, switch: bool) -> float:
    import numpy as np

    tf.config.experimental.enable_tensor_float_32_execution(switch)
    random = np.random.default_rng(1)
    a, b = (random.standard_normal((512, 512)).astype(np.float32) for _ in range(2))
    with tf.device(devices(tf, context)[0]):
        found = tf.matmul(a, b).numpy()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    return relative_error(found, a.astype(np.float64) @ b.astype(np.float64))


def _transformer(tf: Any, size: int = 64, batch: int = 4, length: int = 16) -> Job:
    """Give one transformer block that labels the tokens of one fixed batch."""
    import numpy as np

    layers, random = tf.keras.layers, np.random.default_rng(7)
    tokens = tf.keras.Input((length,), dtype="int32")
    x = layers.Embedding(50, size)(tokens)
    x = layers.Add()([x, layers.MultiHeadAttention(4, size // 4)(x, x)])
    x = layers.LayerNormalization()(x)
    x = layers.Add()([x, layers.Dense(size)(layers.Dense(2 * size, activation="gelu")(x))])
    model = tf.keras.Model(tokens, layers.Dense(50, dtype="float32", name="head")(x))
    return Job(model, random.integers(0, 50, (batch, length)), random.integers(0, 50, (batch, length)))


def _cnn(tf: Any, size: int = 8, batch: int = 4, pixels: int = 16) -> Job:
    """Give a small convolutional network that labels one fixed batch of images."""
    import numpy as np

    layers, random = tf.keras.layers, np.random.default_rng(7)
    images = tf.keras.Input((pixels, pixels, 8))
    x = layers.Conv2D(size, 3, padding="same", activation="relu")(images)
    x = layers.Conv2D(2 * size, 3, strides=2, padding="same", activation="relu")(x)
    x = layers.Dense(4 * size, activation="relu")(layers.GlobalAveragePooling2D()(x))
    model = tf.keras.Model(images, layers.Dense(16, dtype="float32", name="head")(x))
    inputs = random.standard_normal((batch, pixels, pixels, 8)).astype(np.float32)
    return Job(model, inputs, random.integers(0, 16, (batch,)))


def _built(tf: Any, policy: str, build: Callable[..., Job], *sizes: int) -> Job:
    """Build a model under a policy, with the weights that it has under every policy."""
    tf.keras.mixed_precision.set_global_policy(policy)
    tf.keras.utils.set_random_seed(7)
    job = build(tf, *sizes)
    tf.keras.mixed_precision.set_global_policy("float32")
    return job


def _precision(tf: Any, context: Context, mode: Mode) -> Outcome:
    """Put both models through one mode: types, nearness to FP32, falling loss, speed."""
    device = devices(tf, context)[0]
    evidence: Dict[str, Any] = {"mode": mode.name, "gpus": facts(tf) if context.device == "cuda" else []}
    ratios = {}
    with tf.device(device):
        for name, build in (("transformer", _transformer), ("cnn", _cnn)):
            evidence[name] = _check_job(tf, mode, name, build)
            ratios[name] = _speed(tf, context, mode, name, build)
    evidence["speed_ratio_to_fp32"] = ratios
    words = ", ".join("{} {:.2f} x".format(name, ratio) for name, ratio in ratios.items())
    # How fast a CPU is in these types says nothing about the image.
    speed = "" if context.device == "cpu" else "; speed to FP32: {}".format(words)
    return Outcome("transformer and CNN train in {}{}".format(mode.name.upper(), speed), evidence)


def _check_job(tf: Any, mode: Mode, name: str, build: Callable[..., Job]) -> Dict[str, Any]:
    exact_job, job = _built(tf, "float32", build), _built(tf, mode.policy, build)
    job.model.set_weights(exact_job.model.get_weights())
    exact_loss, exact = _one_step(tf, exact_job, 1.0)
    loss, found = _one_step(tf, job, mode.scale)
    errors = [relative_error(a, b) for a, b in zip(found, exact) if abs(b).max() > 1e-6]  # noqa: B905 - Python 3.8 has no strict
    evidence: Dict[str, Any] = {
        "types": _types(tf, job),
        "loss_error": abs(loss - exact_loss) / max(abs(exact_loss), 1e-30),
        "gradient_error": statistics.median(errors),
        "losses": _train(tf, job),
    }
    assert_types(mode.dtype, name, evidence)
    assert_near(mode.name, name, evidence)
    assert_falling(mode.name, name, evidence)
    return evidence


def _types(tf: Any, job: Job) -> List[str]:
    """Give the types that products and convolutions put out; the head gives FP32, as Keras advises."""
    kinds = (tf.keras.layers.Dense, tf.keras.layers.Conv2D, tf.keras.layers.MultiHeadAttention)
    inner = [layer for layer in job.model.layers if isinstance(layer, kinds) and layer.name != "head"]
    outputs = tf.keras.Model(job.model.input, [layer.output for layer in inner])(job.inputs)
    return sorted({tf.as_dtype(one.dtype).name for one in tf.nest.flatten(outputs)})


def _loss(tf: Any) -> Any:
    return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def _one_step(tf: Any, job: Job, scale: float) -> Tuple[float, List[Any]]:
    """Give loss and unscaled gradients of one step, before any weight changes."""
    with tf.GradientTape() as tape:
        loss = _loss(tf)(job.labels, job.model(job.inputs, training=True))
        scaled = loss * scale
    gradients = tape.gradient(scaled, job.model.trainable_variables)
    return float(loss), [tf.convert_to_tensor(one).numpy() / scale for one in gradients]


def _train(tf: Any, job: Job) -> List[float]:
    """Train on the one batch with Keras' own loop, which scales the loss where the policy asks for it."""
    job.model.compile(optimizer=tf.keras.optimizers.Adam(1e-2), loss=_loss(tf))
    options = {"batch_size": len(job.inputs), "epochs": _STEPS, "shuffle": False, "verbose": 0}
    history = job.model.fit(job.inputs, job.labels, **options)
    return [round(float(loss), 5) for loss in history.history["loss"]]


def _speed(tf: Any, context: Context, mode: Mode, name: str, build: Callable[..., Job]) -> float:
    """Give how many times faster a step is than in FP32 without TF32."""
    sizes: Tuple[int, ...] = ()
    if context.device == "cuda":
        sizes = (128, 32, 112) if name == "cnn" else (2048 if context.full else 1024, 16, 512)
    repeats = 1 if context.device == "cpu" else (30 if context.full else 10)
    medians = []
    for policy, switch in (("float32", False), (mode.policy, mode.name == "tf32")):
        tf.config.experimental.enable_tensor_float_32_execution(switch)
        job = _built(tf, policy, build, *sizes)
        job.model.compile(optimizer="sgd", loss=_loss(tf))
        job.model.train_on_batch(job.inputs, job.labels)
        seconds = []
        for _ in range(repeats):
            started = time.perf_counter()
            job.model.train_on_batch(job.inputs, job.labels)
            seconds.append(time.perf_counter() - started)
        medians.append(statistics.median(seconds))
    return round(medians[0] / max(medians[1], 1e-9), 3)
