"""The group `amp` for JAX: explicit types with loss scaling train, and stay near FP32."""

from __future__ import annotations

import statistics
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Set

from .amp import assert_falling, assert_near, assert_types
from .jax_common import capability, devices, load, named
from .jax_models import Job, Parameters, cnn, transformer
from .reference import relative_error
from .result import Context, Failed, Outcome, Skipped

_STEPS = 10
_RATE = 0.1
# What losses are multiplied by before the gradient in FP16, so that small gradients stay above its smallest
# number; gradients are divided by it in FP32.
_SCALE = 4096.0


class Mode(NamedTuple):
    """One precision: its name, the type that models compute in, the loss scale, the precision of products."""

    name: str
    dtype: str
    scale: float
    products: str


def fp16(context: Context) -> Outcome:
    """FP16 with loss scaling."""
    return _precision(load(context), context, Mode("fp16", "float16", _SCALE, "highest"))


def bf16(context: Context) -> Outcome:
    """BF16, where the hardware has it; emulation is named, not counted."""
    jax = load(context)
    _need_ampere(jax, context, "BF16", "use FP16 with loss scaling on this GPU")
    return _precision(jax, context, Mode("bf16", "bfloat16", 1.0, "highest"))


def tf32(context: Context) -> Outcome:
    """Products in TF32 differ from FP32 as they should, in `highest` they do not, and models train in it."""
    if context.device == "cpu":
        raise Skipped("TF32 exists on GPUs only")
    jax = load(context)
    _need_ampere(jax, context, "TF32", None)
    errors = {name: _product_error(jax, context, name) for name in ("highest", "tensorfloat32")}
    evidence: Dict[str, Any] = {"product_error": errors}
    if errors["highest"] > 1e-5 or errors["tensorfloat32"] > 5e-3:
        raise Failed(
            "products are off by {tensorfloat32:.1e} (highest: {highest:.1e})".format(**errors),
            evidence=evidence,
        )
    outcome = _precision(jax, context, Mode("tf32", "float32", 1.0, "tensorfloat32"))
    return Outcome(outcome.summary, {**evidence, **outcome.evidence})


def _need_ampere(jax: Any, context: Context, what: str, instead: Optional[str]) -> None:
    for device in devices(jax, context) if context.device == "cuda" else []:
        if capability(device) < 8:
            raise Skipped(
                "{} ({:g}) has no {}".format(device.device_kind, capability(device), what),
                diagnosis="{} begins with compute capability 8.0".format(what),
                next_step=instead,
                evidence={"capability": capability(device), "emulated": True},
            )


def _product_error(jax: Any, context: Context, precision: str) -> float:
    import numpy as np

    random = np.random.default_rng(1)
    a, b = (random.standard_normal((512, 512)).astype(np.float32) for _ in range(2))
    with jax.default_matmul_precision(precision), jax.default_device(devices(jax, context)[0]):
        return relative_error(jax.numpy.matmul(a, b), a.astype(np.float64) @ b.astype(np.float64))


def _precision(jax: Any, context: Context, mode: Mode) -> Outcome:
    """Put both models through one mode: types, nearness to FP32, falling loss, speed."""
    device = devices(jax, context)[0]
    evidence: Dict[str, Any] = {"mode": mode.name, "device": named(device)}
    ratios = {}
    for build in (transformer, cnn):
        job = build(jax, device)
        evidence[job.name] = _check_job(jax, mode, job)
        ratios[job.name] = _speed(jax, context, mode, _sized(context, job.name, jax, device))
    evidence["speed_ratio_to_fp32"] = ratios
    words = ", ".join("{} {:.2f} x".format(name, ratio) for name, ratio in ratios.items())
    # How fast a CPU is in these types says nothing about the image.
    speed = "" if context.device == "cpu" else "; speed to FP32: {}".format(words)
    return Outcome("transformer and CNN train in {}{}".format(mode.name.upper(), speed), evidence)


def _step(jax: Any, mode: Mode, job: Job) -> Callable[[Parameters], Any]:
    """Give the compiled step: loss and unscaled FP32 gradients."""

    def scaled(parameters: Parameters) -> Any:
        return job.loss(parameters, mode.dtype) * mode.scale

    def step(parameters: Parameters) -> Any:
        with jax.default_matmul_precision(mode.products):
            loss, gradients = jax.value_and_grad(scaled)(parameters)
        return loss / mode.scale, {name: one / mode.scale for name, one in gradients.items()}

    return jax.jit(step)  # type: ignore[no-any-return]


def _check_job(jax: Any, mode: Mode, job: Job) -> Dict[str, Any]:
    exact_loss, exact = _step(jax, Mode("fp32", "float32", 1.0, "highest"), job)(job.parameters)
    step = _step(jax, mode, job)
    loss, found = step(job.parameters)
    facts: Dict[str, Any] = {
        "types": _types(jax.make_jaxpr(step)(job.parameters).jaxpr),
        "loss_error": abs(float(loss) - float(exact_loss)) / max(abs(float(exact_loss)), 1e-30),
        "gradient_error": max(relative_error(found[name], exact[name]) for name in exact),
        "losses": _train(step, job.parameters),
    }
    assert_types(mode.dtype, job.name, facts)
    assert_near(mode.name, job.name, facts)
    assert_falling(mode.name, job.name, facts)
    return facts


def _types(jaxpr: Any) -> List[str]:
    """Give the types that the products and convolutions put out, in all nested programs."""
    seen: Set[str] = set()
    for equation in jaxpr.eqns:
        if equation.primitive.name in ("dot_general", "conv_general_dilated"):
            seen.update(str(variable.aval.dtype) for variable in equation.outvars)
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                seen.update(_types(inner))
    return sorted(seen)


def _train(step: Callable[[Parameters], Any], parameters: Parameters) -> List[float]:
    """Train on the one batch and give the loss of every step."""
    losses = []
    for _ in range(_STEPS):
        loss, gradients = step(parameters)
        losses.append(round(float(loss), 5))
        parameters = {name: value - _RATE * gradients[name] for name, value in parameters.items()}
    return losses


def _sized(context: Context, name: str, jax: Any, device: Any) -> Job:
    """Give a model in the size at which speed says something."""
    if context.device == "cpu":
        return transformer(jax, device) if name == "transformer" else cnn(jax, device)
    if name == "cnn":
        return cnn(jax, device, 128, 32, 112)
    return transformer(jax, device, 2048 if context.full else 1024, 16, 512)


def _speed(jax: Any, context: Context, mode: Mode, job: Job) -> float:
    """Give how many times faster a step is than in FP32 without TF32."""
    repeats = 1 if context.device == "cpu" else (30 if context.full else 10)
    medians = []
    for used in (Mode("fp32", "float32", 1.0, "highest"), mode):
        step = _step(jax, used, job)
        step(job.parameters)[0].block_until_ready()
        seconds = []
        for _ in range(repeats):
            started = time.perf_counter()
            step(job.parameters)[0].block_until_ready()
            seconds.append(time.perf_counter() - started)
        medians.append(statistics.median(seconds))
    return round(medians[0] / max(medians[1], 1e-9), 3)
