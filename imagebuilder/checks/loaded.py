"""The libraries that this process has really loaded: from where, and of which version."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from . import cuda_versions, libraries
from .result import Context, Failed, Outcome, raise_all

if TYPE_CHECKING:
    from .libraries import Part


def judge(context: Context, says: Dict[str, Any]) -> Outcome:
    """Check that each loaded CUDA library is the pinned wheel's file and answers the pinned version.

    `says` is what the framework says of its own versions. The work that loads what is loaded late must be
    done before.
    """
    owners = {os.path.realpath(part.path): part for part in libraries.parts()}
    seen = mapped()
    evidence: Dict[str, Any] = {"libraries": {}, "framework": says}
    brought = {libraries.family(part.path) for part in owners.values()}
    problems: List[Failed] = []
    for path in seen:
        kind = libraries.family(path)
        if kind is not None:
            facts, found = _judge(path, kind, owners.get(os.path.realpath(path)), kind in brought)
            evidence["libraries"][os.path.basename(path)] = facts
            problems += found
    problems += _copies(seen) + _against_manifest(context, evidence["libraries"])
    raise_all(problems, evidence)
    return Outcome(_summary(evidence["libraries"]), evidence)


def mapped() -> List[str]:
    """Give the shared objects of this process, each once."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        paths = [line.rstrip("\n").split(" ", 5)[-1].strip() for line in maps]
    return [path for path in dict.fromkeys(paths) if path.startswith("/") and ".so" in os.path.basename(path)]


def _judge(path: str, kind: str, owner: Optional[Part], brought: bool) -> Tuple[Dict[str, Any], List[Failed]]:
    """Look at one library: whose file it is, and whether it says what its distribution says."""
    facts: Dict[str, Any] = {"file": path}
    name = os.path.basename(path)
    if owner is not None:
        facts["package"] = "{} {}".format(owner.package, owner.version)
    elif brought:
        return facts, [
            Failed(
                "{} is loaded, which no wheel brought".format(path),
                diagnosis="a second copy of {} is found before the wheel's".format(kind),
                next_step="take {} off LD_LIBRARY_PATH and ld.so.conf".format(os.path.dirname(path)),
            )
        ]
    plain = name.startswith(kind + ".so")  # only the main library answers, not libcudnn_ops
    answer = cuda_versions.ask(kind, path) if plain else None
    if answer is None:
        return facts, []
    facts["answers"] = ".".join(str(number) for number in answer)
    # A framework's own distribution also carries libraries; its version says nothing of theirs.
    pinned = owner is not None and owner.package.startswith("nvidia-")
    if owner is None or not pinned or cuda_versions.agrees(answer, owner.version):
        return facts, []
    return facts, [
        Failed(
            "{} answers version {}, {} {} is installed".format(
                name, facts["answers"], owner.package, owner.version
            ),
            diagnosis="the file of {} was replaced by another version".format(owner.package),
            next_step="pip install --force-reinstall --no-deps {}=={}".format(owner.package, owner.version),
        )
    ]


def _copies(seen: List[str]) -> List[Failed]:
    """Find a library that is loaded from two files at once."""
    files: Dict[str, List[str]] = {}
    for path in seen:
        if libraries.family(path):
            files.setdefault(os.path.basename(path).split(".so")[0], []).append(path)
    return [
        Failed(
            "{} is loaded twice".format(name),
            diagnosis="two copies are in one process: {}".format(" and ".join(paths)),
            next_step="keep the wheel's copy alone",
        )
        for name, paths in files.items()
        if len({os.path.realpath(path) for path in paths}) > 1
    ]


def _against_manifest(context: Context, found: Dict[str, Any]) -> List[Failed]:
    """Compare what cuDNN, NCCL and the runtime answer with the stack."""
    manifest = context.manifest
    if manifest is None:
        return []
    problems = []
    for prefix, promised in (
        ("libcudnn.so", manifest.cudnn),
        ("libnccl.so", manifest.nccl),
        ("libcudart", manifest.cuda),
    ):
        for name, facts in found.items():
            answer = facts.get("answers")
            if not promised or not answer or not name.startswith(prefix):
                continue
            if not cuda_versions.agrees(tuple(int(part) for part in answer.split(".")), promised):
                problems.append(
                    Failed(
                        "{} answers version {}, the manifest says {}".format(name, answer, promised),
                        diagnosis="another version of {} is loaded than the image was built with".format(
                            name
                        ),
                        next_step="see `env.packages` for the package that was replaced",
                    )
                )
    return problems


def _summary(found: Dict[str, Any]) -> str:
    words = []
    for prefix, title in (
        ("libcudart", "CUDA runtime"),
        ("libcudnn.so", "cuDNN"),
        ("libcublas.so", "cuBLAS"),
        ("libnccl.so", "NCCL"),
    ):
        answers = [
            facts["answers"]
            for name, facts in found.items()
            if name.startswith(prefix) and "answers" in facts
        ]
        words += ["{} {}".format(title, answers[0])] if answers else []
    if not found:
        return "no CUDA library is loaded"
    return "{}: {} libraries, all from the pinned wheels".format(", ".join(words), len(found))
