"""The list of checks: one row a check, in the order in which they run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence, Tuple

GROUPS = ("env", "libs", "gpu", "amp", "compile", "nccl", "extras")


@dataclass(frozen=True)
class Framework:
    """How to find a framework: its import name, and the libraries that its import loads first (patterns)."""

    module: str
    roots: Tuple[str, ...]


# By the name that manifests call it.
FRAMEWORKS: Dict[str, Framework] = {
    "pytorch": Framework("torch", ("_C*.so", "lib/libtorch_python.so")),
    "tensorflow": Framework("tensorflow", ("libtensorflow_cc.so*", "libtensorflow_framework.so*")),
    "jax": Framework("jaxlib", ("_jax*.so", "xla_extension*.so", "libjax_common.so")),
}


@dataclass(frozen=True)
class Check:
    """One check.

    `function` is `module:name` in this package. `device` says where it runs: `host` needs no framework
    device, `gpu` a real GPU (skipped without), `any` takes the GPU or, as CPU evidence, the CPU.
    `framework` is None for checks that hold for every framework, `extra` names the extra that a check is
    about. `limit` is in seconds.
    """

    id: str
    function: str
    device: str
    title: str
    framework: Optional[str] = None
    limit: float = 120.0
    extra: Optional[str] = None

    @property
    def group(self) -> str:
        """The first part of the id."""
        return self.id.split(".", 1)[0]


_TORCH, _JAX, _TF = "pytorch", "jax", "tensorflow"
# What each extra must do.
_EXTRAS = {
    "jupyter": "JupyterLab answers and starts a kernel",
    "monitoring": "what is logged comes back",
    "object-storage": "an object goes to S3 and comes back",
    "distributed": "accelerate takes a right step",
    "compression": "a pruned model runs",
    "ssh": "a login with a key runs a command",
    "dev": "git, make and an editor work",
}

CHECKS: Tuple[Check, ...] = (
    Check("env.python", "environment:python", "host", "Python is the promised one", limit=30),
    Check("env.user", "environment:user", "host", "an ordinary user with a home to write in", limit=30),
    Check("env.packages", "environment:packages", "host", "every package of the manifest, exactly", limit=60),
    Check(
        "env.requirements",
        "environment:requirements_met",
        "host",
        "no package lacks or refuses another",
        limit=60,
    ),
    Check(
        "env.framework", "pytorch_env:framework", "host", "torch imports and is the promised build", _TORCH
    ),
    Check("env.numpy", "pytorch_env:numpy", "host", "torch and NumPy share memory", _TORCH),
    Check("libs.files", "libraries:files", "host", "every library of the wheels is there", limit=180),
    Check(
        "libs.resolve", "libraries:resolve", "host", "every library that a library needs is found", limit=180
    ),
    Check("libs.shadow", "libraries:shadow", "host", "no second copy of CUDA is found first", limit=60),
    Check("libs.driver", "libraries:driver", "host", "no driver library is part of the image", limit=60),
    Check("libs.loaded", "pytorch_libs:loaded", "any", "the loaded libraries are the pinned ones", _TORCH),
    Check("gpu.driver", "gpu:driver", "gpu", "the driver is new enough and answers", limit=60),
    Check("gpu.devices", "pytorch_gpu:devices", "gpu", "torch sees every GPU that the driver shows", _TORCH),
    Check("gpu.targets", "pytorch_gpu:targets", "gpu", "the wheel has code for each GPU", _TORCH),
    Check("gpu.matmul", "pytorch_gpu:matmul", "gpu", "matrix products equal a float64 reference", _TORCH),
    Check(
        "gpu.convolution", "pytorch_gpu:convolution", "gpu", "convolutions equal a float64 reference", _TORCH
    ),
    Check("gpu.memory", "pytorch_gpu:memory", "gpu", "memory gives back what was written", _TORCH),
    Check("amp.fp16", "pytorch_amp:fp16", "any", "FP16 with gradient scaling trains", _TORCH, 180),
    Check("amp.bf16", "pytorch_amp:bf16", "any", "BF16 trains", _TORCH, 180),
    Check("amp.tf32", "pytorch_amp:tf32", "any", "TF32 can be switched and trains", _TORCH, 180),
    Check(
        "compile.toolchain", "toolchain:toolchain", "host", "what Triton needs at run time is there", limit=60
    ),
    Check(
        "compile.model", "pytorch_compile:model", "any", "torch.compile gives the eager result", _TORCH, 240
    ),
    Check("nccl.shm", "shm:shm", "host", "shared memory is large enough for the GPUs", limit=30),
    Check(
        "nccl.collectives",
        "pytorch_nccl:collectives",
        "any",
        "collectives are right over all GPUs",
        _TORCH,
        240,
    ),
    Check("nccl.ddp", "pytorch_nccl:ddp", "any", "a data-parallel step equals a single one", _TORCH, 180),
    Check(
        "nccl.tensor-parallel",
        "pytorch_nccl:tensor_parallel",
        "any",
        "a model-parallel step is right",
        _TORCH,
        180,
    ),
    Check("env.framework", "jax_env:framework", "host", "jax and all its parts are of one version", _JAX),
    Check("libs.loaded", "jax_libs:loaded", "any", "the loaded libraries are the pinned ones", _JAX),
    Check("gpu.devices", "jax_gpu:devices", "gpu", "JAX sees every GPU that the driver shows", _JAX),
    Check("gpu.matmul", "jax_gpu:matmul", "gpu", "matrix products equal a float64 reference", _JAX, 300),
    Check("gpu.convolution", "jax_gpu:convolution", "gpu", "convolutions equal a reference", _JAX, 300),
    Check("gpu.memory", "jax_gpu:memory", "gpu", "memory gives back what was written", _JAX),
    Check("amp.fp16", "jax_amp:fp16", "any", "FP16 with loss scaling trains", _JAX, 300),
    Check("amp.bf16", "jax_amp:bf16", "any", "BF16 trains", _JAX, 300),
    Check("amp.tf32", "jax_amp:tf32", "any", "TF32 can be asked for and trains", _JAX, 300),
    Check("compile.model", "jax_compile:model", "any", "XLA gives the uncompiled result", _JAX, 240),
    Check("nccl.collectives", "jax_nccl:collectives", "any", "collectives are right", _JAX, 240),
    Check("nccl.ddp", "jax_nccl:data_parallel", "any", "a data-parallel step equals a single one", _JAX, 180),
    Check("env.framework", "tensorflow_env:framework", "host", "TensorFlow is the promised build", _TF),
    Check("libs.loaded", "tensorflow_libs:loaded", "any", "the loaded libraries are the pinned ones", _TF),
    Check("gpu.devices", "tensorflow_gpu:devices", "gpu", "TensorFlow sees every GPU of the driver", _TF),
    # TensorFlow before 2.16 compiles PTX for up to half an hour at its first start on Hopper
    Check("gpu.matmul", "tensorflow_gpu:matmul", "gpu", "matrix products equal a reference", _TF, 2400),
    Check(
        "gpu.convolution", "tensorflow_gpu:convolution", "gpu", "convolutions equal a reference", _TF, 2400
    ),
    Check("gpu.memory", "tensorflow_gpu:memory", "gpu", "memory gives back what was written", _TF),
    Check("amp.fp16", "tensorflow_amp:fp16", "any", "mixed_float16 trains", _TF, 300),
    Check("amp.bf16", "tensorflow_amp:bf16", "any", "mixed_bfloat16 trains", _TF, 300),
    Check("amp.tf32", "tensorflow_amp:tf32", "any", "TF32 can be switched and trains", _TF, 300),
    Check("compile.model", "tensorflow_compile:model", "any", "XLA gives the eager result", _TF, 240),
    Check("nccl.collectives", "tensorflow_nccl:collectives", "any", "collectives are right", _TF, 240),
    Check(
        "nccl.ddp", "tensorflow_nccl:data_parallel", "any", "a replicated step equals a single one", _TF, 180
    ),
    *(
        Check("extras." + name, "extras:" + name.replace("-", "_"), "host", title, extra=name)
        for name, title in _EXTRAS.items()
    ),
)


class UnknownCheckError(ValueError):
    """A name that is neither a check nor a group."""


def for_framework(framework: Optional[str], extras: Sequence[str] = ()) -> List[Check]:
    """Give the checks that hold for a framework and extras, in order; None gives those that need none."""
    found = [
        check
        for check in CHECKS
        if check.framework in (None, framework) and (check.extra is None or check.extra in extras)
    ]
    return sorted(found, key=lambda check: GROUPS.index(check.group))


def select(checks: Sequence[Check], only: Sequence[str], skip: Sequence[str]) -> List[Check]:
    """Keep the checks named by id or group in `only` (all, when empty) and not in `skip`."""
    known = {check.id for check in CHECKS} | set(GROUPS)
    for name in [*only, *skip]:
        if name not in known:
            raise UnknownCheckError(
                "there is no check or group `{}`; groups: {}; `--list` shows the checks".format(
                    name, ", ".join(GROUPS)
                )
            )
    wanted = set(only)
    return [
        check
        for check in checks
        if (not wanted or wanted & {check.id, check.group}) and not set(skip) & {check.id, check.group}
    ]
