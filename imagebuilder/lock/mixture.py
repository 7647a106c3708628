"""What must not lie side by side in one image: judged on the wheels that a solve chose."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from packaging.version import Version

from imagebuilder.errors import UnmetError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from imagebuilder.lock import Wheel
    from imagebuilder.lock.clash import Known
    from imagebuilder.lock.requirements import UserRequirement

CUDA_SUFFIX = re.compile(r"-cu(1\d)$")
# Wheels of OpenCV that load the desktop's libGL, which no base of ours has; `-headless` ones do not.
# https://github.com/open-mmlab/mmocr/issues/90, https://github.com/conda-forge/opencv-feedstock/issues/321
NEEDS_DESKTOP = ("opencv-python", "opencv-contrib-python")


def check_pins(known: Known, wheels: Sequence[Wheel], index: str) -> None:
    """See that every pin of the stack is among the wheels in just its version. Raises UnmetError.

    `==2.4.1` also admits 2.4.1+cpu, which a mirror of several indexes may hold.
    """
    found = {wheel.name: wheel for wheel in wheels}
    for name, pin in known.stack.packages.items():
        wheel = found.get(name)
        if name in known.soft or (wheel and wheel.version == Version(pin)):
            continue
        got = f"it serves {wheel.version}" if wheel else "nothing of the stack asks for it on this platform"
        raise UnmetError(
            f"the index does not serve `{name}=={pin}` of {known.stack.identifier} as it is",
            conflicts=({"constraint": f"{name}=={pin}", "fact": got, "source": index},),
            hint="use a mirror of one index alone, not of several merged: imgbuild doctor",
        )


def check_hashes(requirements: Sequence[UserRequirement], wheels: Sequence[Wheel]) -> None:
    """See that a wheel is one of those that the user gave the hashes of. Raises UnmetError."""
    found = {wheel.name: wheel for wheel in wheels}
    for one in requirements:
        wheel = found.get(one.name)
        if not one.hashes or wheel is None or wheel.sha256 in one.hashes:
            continue
        raise UnmetError(
            f"`{one.text}` ({one.place}) gives other hashes than the index",
            conflicts=(
                {"constraint": one.text, "fact": f"{len(one.hashes)} hashes", "source": one.place},
                {"constraint": wheel.filename, "fact": f"sha256:{wheel.sha256}", "source": wheel.url},
            ),
            hint=f"python -m pip hash FILE of a {wheel.filename} that you trust, or remove the hashes",
        )


def refuse_mixtures(known: Known, wheels: Sequence[Wheel], requirements: Sequence[UserRequirement]) -> None:
    """Refuse two providers of one library: a second CUDA set, a second NCCL, a CPU and a GPU build.

    Raises UnmetError naming both wheels and the lines that ask for one by name.
    """
    if not requirements:
        return
    names = {wheel.name: wheel for wheel in wheels}
    for extra, there, why in (*_second_set(known, names), *_twins(names)):
        lines = [line for line in requirements if line.name in (extra.name, there)]
        guilty = ", ".join(f"`{line.text}` ({line.place})" for line in lines) or "the requirements"
        present = f"{there}=={names[there].version}" if there in names else there
        raise UnmetError(
            f"{guilty} would bring `{extra.name}` beside `{present}`",
            conflicts=(
                *(line.conflict for line in lines),
                {"constraint": f"{extra.name}=={extra.version}", "fact": why, "source": extra.filename},
                {"constraint": present, "fact": f"chosen with {known.shown}", "source": None},
            ),
            hint=f"leave `{extra.name}` out; take packages that are made for CUDA {known.stack.cuda.major}",
        )


def _second_set(known: Known, names: Mapping[str, Wheel]) -> Iterator[tuple[Wheel, str, str]]:
    """Give each CUDA library that the stack has already, or that is of another CUDA major."""
    major = known.stack.cuda.major
    providers: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        if name.startswith("nvidia-"):
            providers[CUDA_SUFFIX.sub("", name)].append(name)
    for group in providers.values():
        ours = [name for name in group if name in known.stack.packages] or [
            name for name in group if name.endswith(f"-cu{major}")
        ]
        for name in group:
            found = CUDA_SUFFIX.search(name)
            foreign = found is not None and int(found[1]) != major
            if name not in known.stack.packages and (foreign or (ours and name not in ours)):
                why = "one process loads whichever copy of a library it finds first"
                yield names[name], ours[0] if ours else f"--cuda {known.stack.cuda}", why


def _twins(names: Mapping[str, Wheel]) -> Iterator[tuple[Wheel, str, str]]:
    """Give each CPU build of a package whose GPU build is there too: they own the same import name."""
    for name in sorted(names):
        if name.endswith("-gpu"):
            for twin in (name.removesuffix("-gpu"), name.removesuffix("-gpu") + "-cpu"):
                if twin in names:
                    why = (
                        "it overwrites the files of the GPU build, and the GPU is not used, without an error"
                    )
                    yield names[twin], name, why


def remarks(known: Known, wheels: Sequence[Wheel]) -> Iterator[str]:
    """Say what a user should know of the chosen wheels."""
    for wheel in wheels:
        pin = known.stack.packages.get(wheel.name)
        if wheel.name in known.soft and pin is not None and wheel.version != Version(pin):
            yield f"{wheel.name} is {wheel.version} instead of {pin}: your requirements ask for it"
        if wheel.name in NEEDS_DESKTOP:
            yield (
                f"{wheel.name} needs the desktop's libGL.so.1 and libgthread, which the image does not have; "
                f"take {wheel.name}-headless"
            )
