"""One request that stands for many: each framework that it leaves open, each CUDA that has a stack."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from imagebuilder.matrix.words import Cuda
from imagebuilder.request import EVERY
from imagebuilder.resolve import resolve
from imagebuilder.resolve.candidates import Space

if TYPE_CHECKING:
    from collections.abc import Sequence

    from packaging.requirements import Requirement

    from imagebuilder.matrix.facts import Matrix
    from imagebuilder.request import Request


def spread(request: Request, matrix: Matrix, requirements: Sequence[Requirement] = ()) -> tuple[Request, ...]:
    """Give one request for each framework and CUDA minor that `request` leaves open and that has a stack.

    By framework, then from the newest CUDA on. Raises as `resolve` does where there is none at all.
    """
    names = sorted(matrix.frameworks) if request.framework == EVERY else [request.framework]
    newest_first = sorted(map(Cuda.parse, matrix.toolkits), reverse=True)
    all_of_it = [
        replace(request, framework=name, cuda=cuda)
        for name in names
        for cuda in ([request.cuda] if request.cuda else newest_first)
    ]
    found = tuple(one for one in all_of_it if _is_met(one, matrix, requirements))
    if not found:
        resolve(replace(request, framework=names[0]), matrix, requirements)
    return found


def _is_met(request: Request, matrix: Matrix, requirements: Sequence[Requirement]) -> bool:
    space = Space(request, matrix, requirements)
    return bool(space.meeting(space.constraints))
