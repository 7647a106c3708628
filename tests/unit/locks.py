"""A lock made by hand: small, complete, and the same every time."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import Any

from packaging.version import Version

from imagebuilder.base import Deb, LockedBase
from imagebuilder.lock import Lock, Wheel
from imagebuilder.matrix.words import Capability, Cuda, Driver, Python
from imagebuilder.render import BuildContext, render
from imagebuilder.render.templating import Templates, load_templates
from imagebuilder.resolve.stack import Stack
from imagebuilder.resources import templates_path

MIB = 2**20
CHECKS = {"gate.py": b"# the gate\n", "__main__.py": b"# the checks\n"}


def make_wheel(
    name: str, version: str, size: int = MIB, uploaded: str | None = None, *, source: str = "pypi"
) -> Wheel:
    """Give a wheel whose hash is a function of its name and version."""
    filename = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    return Wheel(
        name=name,
        version=Version(version),
        filename=filename,
        url=f"https://example.org/{filename}",
        size=size,
        sha256=sha256(filename.encode()).hexdigest(),
        uploaded=uploaded,
        source=source,
    )


def make_deb(name: str, version: str, arch: str = "amd64") -> Deb:
    """Give a package whose hash is a function of its name and version."""
    filename = f"{name}_{version.replace(':', '%3a')}_{arch}.deb"
    return Deb(
        name=name,
        version=version,
        arch=arch,
        filename=filename,
        size=1000,
        sha256=sha256(filename.encode()).hexdigest(),
    )


def make_stack(**changes: Any) -> Stack:
    """Give a stack of PyTorch 2.4.1 with CUDA 12.1."""
    stack = Stack(
        framework="pytorch",
        package="torch",
        version=Version("2.4.1"),
        cuda=Cuda.parse("12.1"),
        cudnn=Version("9.1.0.70"),
        nccl=Version("2.20.5"),
        python=Python.parse("3.11"),
        os="debian-12",
        arch="amd64",
        variant="runtime",
        source="pypi",
        driver_min=Driver.parse("525.60.13"),
        driver_packaged=Driver.parse("530.30.02"),
        compute_capabilities=tuple(map(Capability.parse, ["5.0", "8.0", "9.0"])),
        packages={"torch": "2.4.1", "nvidia-cudnn-cu12": "9.1.0.70"},
        matrix="sha256:" + "0" * 64,
    )
    return replace(stack, **changes)


def make_base(**changes: Any) -> LockedBase:
    """Give a bootstrapped base with two packages on top."""
    base = LockedBase(
        name="debian-12",
        origin="bootstrap",
        digest="sha256:" + "b" * 64,
        debs=(make_deb("python3", "3.11.2-1+b1"), make_deb("g++", "4:12.2.0-3")),
    )
    return replace(base, **changes)


def make_lock(**changes: Any) -> Lock:
    """Give a lock of the stack with a large and two small CUDA wheels, triton, torch and a dependency."""
    lock = Lock(
        stack=make_stack(),
        base=make_base(),
        wheels=(
            make_wheel("nvidia-cudnn-cu12", "9.1.0.70", 600 * MIB, "2024-04-01T00:00:00+00:00"),
            make_wheel("nvidia-nvtx-cu12", "12.1.105", MIB // 4),
            make_wheel("nvidia-cufile-cu12", "1.11.1.6", MIB // 4),
            make_wheel("triton", "3.0.0", 200 * MIB),
            make_wheel("torch", "2.4.1", 800 * MIB, "2024-09-04T19:00:00+00:00"),
            make_wheel("sympy", "1.14.0", 6 * MIB),
        ),
        installer=make_wheel("uv", "0.9.0"),
        tool="0.1.0",
    )
    return replace(lock, **changes)


# What a stack of the other frameworks names beside CUDA wheels.
OTHERS = {
    "tensorflow": ("2.20.0", "tensorflow", {"tensorflow": 590}),
    "jax": ("0.7.2", "jax", {"jax": 3, "jaxlib": 75, "jax-cuda12-plugin": 5, "jax-cuda12-pjrt": 120}),
    "paddlepaddle": ("3.0.0", "paddlepaddle-gpu", {"paddlepaddle-gpu": 700}),
}


def example_of(framework: str) -> Lock:
    """Give a small lock of a framework; all of them have the same cuDNN."""
    if framework == "pytorch":
        return make_lock()
    version, package, own = OTHERS[framework]
    wheels = [
        make_wheel(name, version, size * MIB, "2025-08-13T00:00:00+00:00") for name, size in own.items()
    ]
    stack = make_stack(
        framework=framework,
        package=package,
        version=Version(version),
        packages={**dict.fromkeys(own, version), "nvidia-cudnn-cu12": "9.1.0.70"},
    )
    return make_lock(
        stack=stack, wheels=(make_lock().wheels[0], *wheels, make_wheel("numpy", "2.4.6", 16 * MIB))
    )


def packaged() -> Templates:
    """Give the packaged templates."""
    return load_templates(templates_path(), [])


def rendered(lock: Lock | None = None, templates: Templates | None = None, **options: Any) -> BuildContext:
    """Render a lock with the packaged templates."""
    return render(lock or make_lock(), templates or packaged(), CHECKS, **options)
