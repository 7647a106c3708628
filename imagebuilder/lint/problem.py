"""What a lint is told, what a rule is, and what it finds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from imagebuilder.lint.dockerfile import Dockerfile
    from imagebuilder.matrix.facts import Gone
    from imagebuilder.matrix.words import Cuda

Level = Literal["error", "warning"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LintFacts:
    """What a Dockerfile alone does not tell.

    `gone` are the image tags of the matrix that must not be used. `library_paths` says which releases of
    nvidia/cuda put which directory on LD_LIBRARY_PATH ("12.8.1" -> "/usr/local/cuda/lib64").
    `base_environment` is what the locked base, whose digest is `base_digest`, sets. `cuda` is the CUDA that
    the wheels bring, None where no wheel brings one. `floor` is the lowest CUDA that the image's own gate may
    ask for, the X.0 of its major. `root` tells that the image is meant to run as root.
    """

    gone: Mapping[str, Gone] = field(default_factory=dict)
    library_paths: Mapping[str, str] = field(default_factory=dict)
    base_digest: str | None = None
    base_environment: Mapping[str, str] = field(default_factory=dict)
    cuda: Cuda | None = None
    floor: Cuda | None = None
    root: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One finding at a line of the rendered Dockerfile: what is wrong, why that hurts, what to do instead."""

    line: int
    rule: str
    what: str
    why: str
    fix: str
    level: Level = "error"

    def __str__(self) -> str:
        """Give it as one line."""
        return f"Dockerfile:{self.line}: {self.rule}: {self.what}; {self.why}; {self.fix}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a rule found; `why`, `fix` and `level` where they differ from the rule's own."""

    line: int
    what: str
    why: str | None = None
    fix: str | None = None
    level: Level | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule: `why` names the failure that it prevents and where people met it, `find` looks for it."""

    name: str
    why: str
    fix: str
    find: Callable[[Dockerfile, LintFacts], Iterator[Found]]
    level: Level = "error"

    def problems(self, dockerfile: Dockerfile, facts: LintFacts) -> Iterator[Problem]:
        """Give the findings of this rule."""
        for found in self.find(dockerfile, facts):
            yield Problem(
                line=found.line,
                rule=self.name,
                what=found.what,
                why=found.why or self.why,
                fix=found.fix or self.fix,
                level=found.level or self.level,
            )
