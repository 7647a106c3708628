"""The libraries that a process with torch has really loaded."""

from __future__ import annotations

from typing import Any, Dict

from . import libraries
from . import loaded as loaded_libraries
from .result import Context, Outcome


def loaded(context: Context) -> Outcome:
    """Check that each loaded CUDA library is the pinned wheel's file and answers the pinned version."""
    import torch

    _work(torch, context.device)
    if torch.version.cuda is None:
        foreign = [path for path in loaded_libraries.mapped() if libraries.family(path)]
        return Outcome(
            "a build without CUDA; {} CUDA libraries loaded".format(len(foreign)), {"loaded": foreign}
        )
    return loaded_libraries.judge(context, _torch_says(torch))


def _work(torch: Any, device: str) -> None:
    """Do a product and a convolution, so that what is opened late is open."""
    a = torch.randn(8, 8, device=device)
    torch.nn.functional.conv2d(
        (a @ a).reshape(1, 1, 8, 8), torch.randn(1, 1, 3, 3, device=device)
    ).sum().item()


def _torch_says(torch: Any) -> Dict[str, Any]:
    """Give the versions that torch was compiled with and sees."""
    says: Dict[str, Any] = {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    try:
        says["nccl"] = ".".join(str(number) for number in torch.cuda.nccl.version())
    except (AttributeError, RuntimeError, TypeError):
        says["nccl"] = None
    return says
