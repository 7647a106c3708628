"""The libraries that a process with torch has really loaded: from where, and of which version."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from . import cuda_versions, libraries
from .result import Context, Failed, Outcome, raise_all

if TYPE_CHECKING:
    from .libraries import Part


def loaded(context: Context) -> Outcome:
    """Check that each loaded CUDA library is the pinned wheel's file and answers the pinned version."""
    import torch

    _work(torch, context.device)
    owners = {os.path.realpath(part.path): part for part in libraries.parts()}
    seen = mapped()
    if torch.version.cuda is None:
        foreign = [path for path in seen if libraries.family(path)]
        return Outcome(
            "a build without CUDA; {} CUDA libraries loaded".format(len(foreign)), {"loaded": foreign}
        )
    evidence: Dict[str, Any] = {"libraries": {}}
    brought = {libraries.family(part.path) for part in owners.values()}
    problems: List[Failed] = []
    for path in seen:
        kind = libraries.family(path)
        if kind is not None:
            facts, found = _judge(path, kind, owners.get(os.path.realpath(path)), kind in brought)
            evidence["libraries"][os.path.basename(path)] = facts
            problems += found
    problems += _copies(seen) + _against_manifest(context, evidence["libraries"])
    evidence["torch"] = _torch_says(torch)
    raise_all(problems, evidence)
    return Outcome(_summary(evidence["libraries"]), evidence)


def _work(torch: Any, device: str) -> None:
    """Do a product and a convolution, so that what is opened late is open."""
    a = torch.randn(8, 8, device=device)
    torch.nn.functional.conv2d(
        (a @ a).reshape(1, 1, 8, 8), torch.randn(1, 1, 3, 3, device=device)
    ).sum().item()


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
    # torch's own distribution also carries libraries; its version says nothing of theirs.
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


def _torch_says(torch: Any) -> Dict[str, Any]:
    """Give the versions that torch was compiled with and sees."""
    says: Dict[str, Any] = {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    try:
        says["nccl"] = ".".join(str(number) for number in torch.cuda.nccl.version())
    except (AttributeError, RuntimeError, TypeError):
        says["nccl"] = None
    return says


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
    return "{}: {} libraries, all from the pinned wheels".format(", ".join(words), len(found))
