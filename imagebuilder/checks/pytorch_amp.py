"""The group `amp`: mixed precision trains, computes in the type it promises, and stays near FP32."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from .amp import assert_falling, assert_near, assert_types
from .pytorch_models import Job, cnn, gradients, joined, relative_error, seconds_a_step, transformer
from .result import Context, Failed, Outcome, Skipped

_STEPS = 10
# GradScaler starts with 65536 and takes steps to back off; the small models here are fine with less.
_SCALE = 4096.0


class Mode(NamedTuple):
    """One precision: its name, the autocast type (None for TF32), and whether gradients are scaled."""

    name: str
    dtype: Any
    scaled: bool


def fp16(context: Context) -> Outcome:
    """FP16 autocast with gradient scaling."""
    import torch

    if context.device == "cpu" and not _cpu_fp16(torch):
        raise Skipped("this torch has no FP16 autocast with gradient scaling on the CPU")
    return _precision(torch, context, Mode("fp16", torch.float16, True))


def _cpu_fp16(torch: Any) -> bool:
    """Whether autocast on the CPU takes FP16: GradScaler for every device came with it, in torch 2.3."""
    return hasattr(getattr(torch, "amp", None), "GradScaler")


def bf16(context: Context) -> Outcome:
    """BF16 autocast, where the hardware has BF16; emulation is named, not counted."""
    import torch

    for index, capability in enumerate(_capabilities(torch, context)):
        if capability < (8, 0):
            name = torch.cuda.get_device_name(index)
            raise Skipped(
                "{} ({}.{}) only emulates BF16".format(name, *capability),
                diagnosis="BF16 begins with compute capability 8.0; `torch.cuda.is_bf16_supported()` says "
                "True of an emulation that is slower than FP32",
                next_step="use FP16 with gradient scaling on this GPU",
                evidence={"capability": "{}.{}".format(*capability), "emulated": True},
            )
    return _precision(torch, context, Mode("bf16", torch.bfloat16, False))


def tf32(context: Context) -> Outcome:
    """TF32 switched on changes products as it should, switched off leaves FP32, and trains either way."""
    import torch

    if context.device == "cpu":
        raise Skipped("TF32 exists on GPUs only")
    for capability in _capabilities(torch, context):
        if capability < (8, 0):
            raise Skipped("TF32 begins with compute capability 8.0, this GPU has {}.{}".format(*capability))
    errors = {switch: _product_error(torch, context.device, switch) for switch in (False, True)}
    evidence: Dict[str, Any] = {"product_error": {"off": errors[False], "on": errors[True]}}
    if errors[False] > 1e-5 or errors[True] > 5e-3:
        raise Failed(
            "products are off by {:.1e} (TF32 off: {:.1e})".format(errors[True], errors[False]),
            evidence=evidence,
        )
    evidence["engaged"] = errors[True] > 4 * errors[False]
    outcome = _precision(torch, context, Mode("tf32", None, False))
    evidence.update(outcome.evidence)
    state = outcome.summary if evidence["engaged"] else "TF32 is held off, NVIDIA_TF32_OVERRIDE=0 perhaps"
    return Outcome(state, evidence)


def _capabilities(torch: Any, context: Context) -> List[Tuple[int, int]]:
    if context.device == "cpu":
        return []
    return [tuple(torch.cuda.get_device_capability(index)) for index in range(torch.cuda.device_count())]


def _product_error(torch: Any, device: str, switch: bool) -> float:
    set_tf32(torch, switch)
    torch.manual_seed(1)
    a, b = torch.randn(512, 512), torch.randn(512, 512)
    error = relative_error(a.to(device) @ b.to(device), a.double() @ b.double())
    set_tf32(torch, False)
    return error


def set_tf32(torch: Any, switch: bool) -> None:
    """Switch TF32 for products and convolutions; torch 2.9 gave the switches new names."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    if _has_precision(matmul):
        matmul.fp32_precision = "tf32" if switch else "ieee"
        cudnn.conv.fp32_precision = "tf32" if switch else "ieee"
    else:
        matmul.allow_tf32 = switch
        cudnn.allow_tf32 = switch


def _has_precision(module: Any) -> bool:
    try:
        return hasattr(module, "fp32_precision")
    except AssertionError:  # how torch before 2.1 says no
        return False


def device_name(torch: Any, device: str) -> str:
    """Give the GPU's name, or `CPU`."""
    return str(torch.cuda.get_device_name(device)) if device.startswith("cuda") else "CPU"


def autocast(torch: Any, device: str, mode: Optional[Mode]) -> Any:
    """Give the context in which a step runs; nothing for FP32 and TF32."""
    if mode is None or mode.dtype is None:
        return contextlib.nullcontext()
    return torch.autocast(device_type=device.split(":")[0], dtype=mode.dtype)


def scaler(torch: Any, device: str, mode: Optional[Mode]) -> Any:
    """Give a gradient scaler, one that does nothing where the mode needs none."""
    enabled = mode is not None and mode.scaled
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler(device.split(":")[0], init_scale=_SCALE, enabled=enabled)
    return torch.cuda.amp.GradScaler(init_scale=_SCALE, enabled=enabled)


def _precision(torch: Any, context: Context, mode: Mode) -> Outcome:
    """Put both models through one mode: types, nearness to FP32, falling loss, speed."""
    evidence: Dict[str, Any] = {"mode": mode.name, "device_name": device_name(torch, context.device)}
    for build in (transformer, cnn):
        facts = _check_job(torch, context, mode, build)
        evidence[facts.pop("name")] = facts
    ratios = {name: _speed(torch, context, mode, build) for name, build in _sized(context).items()}
    evidence["speed_ratio_to_fp32"] = ratios
    words = ", ".join("{} {:.2f} x".format(name, ratio) for name, ratio in ratios.items())
    # How fast a CPU is in these types says nothing about the image.
    speed = "" if context.device == "cpu" else "; speed to FP32: {}".format(words)
    return Outcome("transformer and CNN train in {}{}".format(mode.name.upper(), speed), evidence)


def _check_job(torch: Any, context: Context, mode: Mode, build: Callable[..., Job]) -> Dict[str, Any]:
    set_tf32(torch, False)
    reference = build(torch, context.device)
    exact_loss, exact = _one_step(torch, context.device, None, reference)
    set_tf32(torch, mode.name == "tf32")
    job = build(torch, context.device)
    types = _output_types(torch, context.device, mode, job)
    loss, found = _one_step(torch, context.device, mode, job)
    facts: Dict[str, Any] = {
        "name": job.name,
        "types": types,
        "loss_error": abs(loss - exact_loss) / max(abs(exact_loss), 1e-30),
        "gradient_error": relative_error(joined(torch, found), joined(torch, exact)),
        "losses": _train(torch, context.device, mode, build(torch, context.device)),
    }
    set_tf32(torch, False)
    assert_types("torch.float32" if mode.dtype is None else str(mode.dtype), job.name, facts)
    assert_near(mode.name, job.name, facts)
    assert_falling(mode.name, job.name, facts)
    return facts


def _output_types(torch: Any, device: str, mode: Mode, job: Job) -> List[str]:
    """Give the types that the products and convolutions put out inside autocast."""
    seen: List[str] = []
    kinds = (torch.nn.Linear, torch.nn.Conv2d)
    # A transformer layer may hand its attention's Linear to one fused call, which fires no hook.
    hooks = [
        module.register_forward_hook(lambda _m, _i, out: seen.append(str(out.dtype)))
        for module in job.model.modules()
        if isinstance(module, kinds)
    ]
    with autocast(torch, device, mode):
        job.model(job.inputs)
    for hook in hooks:
        hook.remove()
    return sorted(set(seen))


def _one_step(torch: Any, device: str, mode: Optional[Mode], job: Job) -> Tuple[float, List[Any]]:
    """Give loss and unscaled gradients of one step, before any parameter changes."""
    job.model.zero_grad(set_to_none=True)
    scaling = scaler(torch, device, mode)
    optimizer = torch.optim.SGD(job.model.parameters(), lr=0.0)
    with autocast(torch, device, mode):
        loss = job.loss(job.model(job.inputs))
    scaling.scale(loss).backward()
    scaling.unscale_(optimizer)
    return float(loss.detach()), gradients(job.model)


def _train(torch: Any, device: str, mode: Mode, job: Job) -> List[float]:
    """Train on the one batch and give the loss of every step."""
    optimizer = torch.optim.Adam(job.model.parameters(), lr=3e-3)
    step = _step(torch, device, mode, job, optimizer)
    return [round(float(step()), 5) for _ in range(_STEPS)]


def _step(torch: Any, device: str, mode: Optional[Mode], job: Job, optimizer: Any) -> Callable[[], Any]:
    scaling = scaler(torch, device, mode)

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        with autocast(torch, device, mode):
            loss = job.loss(job.model(job.inputs))
        scaling.scale(loss).backward()
        scaling.step(optimizer)
        scaling.update()
        return loss.detach()

    return step


def _sized(context: Context) -> Dict[str, Callable[..., Job]]:
    """Give the models in the size at which speed says something."""
    if context.device == "cpu":
        return {"transformer": transformer, "cnn": cnn}
    width = 2048 if context.full else 1024
    return {
        "transformer": lambda torch, device: transformer(torch, device, width, 16, 512),
        "cnn": lambda torch, device: cnn(torch, device, 128, 32, 112),
    }


def _speed(torch: Any, context: Context, mode: Mode, build: Callable[..., Job]) -> float:
    """Give how many times faster a step is than in FP32 without TF32."""
    repeats = 1 if context.device == "cpu" else (30 if context.full else 10)
    medians = []
    for used in (None, mode):
        set_tf32(torch, used is not None and used.name == "tf32")
        job = build(torch, context.device)
        optimizer = torch.optim.SGD(job.model.parameters(), lr=1e-4)
        step = _step(torch, context.device, used, job, optimizer)
        medians.append(seconds_a_step(torch, context.device, step, repeats)[0])
    set_tf32(torch, False)
    return round(medians[0] / medians[1], 3)
