"""Two small models that stand for what people train, and ways to compare and to time them."""

from __future__ import annotations

import statistics
import time
from typing import Any, Callable, List, NamedTuple, Tuple


class Job(NamedTuple):
    """A model, one batch, and the loss of its output; `name` is `transformer` or `cnn`."""

    name: str
    model: Any
    inputs: Any
    loss: Callable[[Any], Any]


def transformer(torch: Any, device: str, size: int = 64, batch: int = 4, length: int = 16) -> Job:
    """Give a two-layer transformer that labels the tokens of one fixed batch."""
    torch.manual_seed(7)
    layer = torch.nn.TransformerEncoderLayer(size, 4, 2 * size, dropout=0.0, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    model = torch.nn.Sequential(torch.nn.Embedding(50, size), encoder, torch.nn.Linear(size, 50))
    tokens = torch.randint(0, 50, (batch, length)).to(device)
    labels = torch.randint(0, 50, (batch * length,)).to(device)
    return Job(
        "transformer",
        model.to(device).train(),
        tokens,
        lambda out: torch.nn.functional.cross_entropy(out.float().reshape(-1, 50), labels),
    )


def cnn(torch: Any, device: str, size: int = 8, batch: int = 4, pixels: int = 16) -> Job:
    """Give a small convolutional network that labels one fixed batch of images."""
    torch.manual_seed(7)
    nn = torch.nn
    model = nn.Sequential(
        nn.Conv2d(8, size, 3, padding=1),
        nn.BatchNorm2d(size),
        nn.ReLU(),
        nn.Conv2d(size, 2 * size, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(32 * size, 16),
    )
    images = torch.randn(batch, 8, pixels, pixels).to(device)
    labels = torch.randint(0, 16, (batch,)).to(device)
    return Job(
        "cnn",
        model.to(device).train(),
        images,
        lambda out: torch.nn.functional.cross_entropy(out.float(), labels),
    )


def relative_error(found: Any, reference: Any) -> float:
    """Give the norm of the difference over the norm of the reference, in float64 on the CPU."""
    found, reference = found.detach().double().cpu(), reference.detach().double().cpu()
    return float((found - reference).norm() / reference.norm().clamp_min(1e-30))


def gradients(model: Any) -> List[Any]:
    """Give copies of the gradients of all parameters."""
    return [parameter.grad.detach().clone() for parameter in model.parameters() if parameter.grad is not None]


def joined(torch: Any, tensors: List[Any]) -> Any:
    """Give tensors as one long vector in float64 on the CPU."""
    return torch.cat([tensor.detach().double().cpu().reshape(-1) for tensor in tensors])


def seconds_a_step(
    torch: Any, device: str, step: Callable[[], Any], repeats: int
) -> Tuple[float, List[float]]:
    """Give the median seconds of a step after a warm-up, and every single one."""
    for _ in range(min(repeats, 3)):
        step()
    times = []
    for _ in range(repeats):
        synchronize(torch, device)
        started = time.perf_counter()
        step()
        synchronize(torch, device)
        times.append(time.perf_counter() - started)
    return statistics.median(times), times


def synchronize(torch: Any, device: str) -> None:
    """Wait for the GPU; the CPU needs no waiting."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()
