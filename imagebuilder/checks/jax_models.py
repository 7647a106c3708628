"""Two small models in plain JAX that stand for what people train; parameters are a dictionary of arrays."""

from __future__ import annotations

from typing import Any, Callable, Dict, NamedTuple

Parameters = Dict[str, Any]


class Job(NamedTuple):
    """A model: its parameters, and the loss that they give on one fixed batch when computed in a type."""

    name: str
    parameters: Parameters
    loss: Callable[[Parameters, Any], Any]


def transformer(jax: Any, device: Any, size: int = 64, batch: int = 4, length: int = 16) -> Job:
    """Give one transformer block that labels the tokens of one fixed batch."""
    import numpy as np

    jnp, random = jax.numpy, np.random.default_rng(7)
    shapes = {"embed": (50, size), "qkv": (size, 3 * size), "out": (size, size), "up": (size, 2 * size)}
    shapes.update(down=(2 * size, size), head=(size, 50))
    parameters = _parameters(jax, device, random, shapes)
    tokens, labels = (jax.device_put(random.integers(0, 50, (batch, length)), device) for _ in range(2))

    def norm(x: Any) -> Any:
        wide = x.astype(jnp.float32)
        wide = (wide - wide.mean(-1, keepdims=True)) / jnp.sqrt(wide.var(-1, keepdims=True) + 1e-5)
        return wide.astype(x.dtype)

    def loss(weights: Parameters, dtype: Any) -> Any:
        w = {name: value.astype(dtype) for name, value in weights.items()}
        x = w["embed"][tokens]
        q, k, v = jnp.split(norm(x) @ w["qkv"], 3, axis=-1)
        scores = jnp.einsum("bqd,bkd->bqk", q, k).astype(jnp.float32) / size**0.5
        x = x + jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(scores).astype(dtype), v) @ w["out"]
        x = x + jax.nn.gelu(norm(x) @ w["up"]) @ w["down"]
        return _cross_entropy(jax, norm(x) @ w["head"], labels)

    return Job("transformer", parameters, loss)


def cnn(jax: Any, device: Any, size: int = 8, batch: int = 4, pixels: int = 16) -> Job:
    """Give a small convolutional network that labels one fixed batch of images."""
    import numpy as np

    jnp, random = jax.numpy, np.random.default_rng(7)
    shapes = {"one": (size, 8, 3, 3), "two": (2 * size, size, 3, 3), "head": (2 * size, 16)}
    parameters = _parameters(jax, device, random, shapes)
    images = jax.device_put(random.standard_normal((batch, 8, pixels, pixels)).astype(np.float32), device)
    labels = jax.device_put(random.integers(0, 16, (batch,)), device)

    def convolve(x: Any, w: Any, stride: int) -> Any:
        layout = ("NCHW", "OIHW", "NCHW")
        return jax.lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=layout)

    def loss(weights: Parameters, dtype: Any) -> Any:
        w = {name: value.astype(dtype) for name, value in weights.items()}
        x = jax.nn.relu(convolve(images.astype(dtype), w["one"], 1))
        x = jax.nn.relu(convolve(x, w["two"], 2)).mean((2, 3), dtype=jnp.float32).astype(dtype)
        return _cross_entropy(jax, x @ w["head"], labels)

    return Job("cnn", parameters, loss)


def _parameters(jax: Any, device: Any, random: Any, shapes: Dict[str, Any]) -> Parameters:
    """Give normal parameters, each scaled by what it sums over."""
    found = {}
    for name, shape in shapes.items():
        summed = shape[0] if len(shape) == 2 else shape[1] * 9
        values = random.standard_normal(shape) / (1 if name == "embed" else summed**0.5)
        found[name] = jax.device_put(values.astype("float32"), device)
    return found


def _cross_entropy(jax: Any, logits: Any, labels: Any) -> Any:
    logarithms = jax.nn.log_softmax(logits.astype("float32"))
    return -jax.numpy.take_along_axis(logarithms, labels[..., None], axis=-1).mean()
