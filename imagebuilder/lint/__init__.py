"""Rendered Dockerfile -> problems: the gate behind `render`, since templates may be anyone's. Pure.

A rule reads the Dockerfile alone. What a script does that a RUN mounts or copies is not seen.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from imagebuilder.errors import UsageError
from imagebuilder.lint import base, environment, packages, pip, steps
from imagebuilder.lint.dockerfile import Dockerfile, parse
from imagebuilder.lint.problem import LintFacts, Problem, Rule
from imagebuilder.matrix.words import Cuda

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from imagebuilder.lock import Lock
    from imagebuilder.matrix.facts import Gone

__all__ = ["RULES", "LintFacts", "Problem", "check", "lint", "lint_facts"]

RULES: Mapping[str, Rule] = {
    rule.name: rule for rule in (*base.RULES, *environment.RULES, *packages.RULES, *pip.RULES, *steps.RULES)
}

_IGNORE = re.compile(r"#\s*imgbuild\s+ignore=([a-z,-]+)\s*:\s*(\S.*)")


def lint_facts(
    lock: Lock, *, root: bool, gone: Mapping[str, Gone], library_paths: Mapping[str, str]
) -> LintFacts:
    """Give what the lint must know of a lock; `gone` and `library_paths` come from the matrix."""
    brings_cuda = any(wheel.name.startswith(("nvidia-", "cuda-")) for wheel in lock.wheels)
    return LintFacts(
        gone=gone,
        library_paths=library_paths,
        base_digest=lock.base.digest,
        base_environment=lock.base.environment,
        cuda=lock.stack.cuda if brings_cuda else None,
        floor=Cuda.parse(f"{lock.stack.cuda.major}.0"),
        root=root,
    )


def lint(dockerfile: str, facts: LintFacts) -> tuple[Problem, ...]:
    """Give every problem of a rendered Dockerfile, in the order of its lines.

    A comment `# imgbuild ignore=RULE: the reason` directly above an instruction takes the findings of that
    rule at that instruction away.
    """
    parsed = parse(dockerfile)
    ignored = _ignored(parsed)
    problems = [problem for rule in RULES.values() for problem in rule.problems(parsed, facts)]
    kept = {problem for problem in problems if problem.rule not in ignored.get(problem.line, ())}
    return tuple(sorted({*kept, *_bad_ignores(parsed)}, key=lambda p: (p.line, p.rule, p.what)))


def check(dockerfile: str, facts: LintFacts) -> tuple[Problem, ...]:
    """Raise UsageError that lists every error with its line; give the warnings where there is no error."""
    problems = lint(dockerfile, facts)
    errors = [problem for problem in problems if problem.level == "error"]
    if errors:
        count = "a problem" if len(errors) == 1 else f"{len(errors)} problems"
        raise UsageError(
            f"the rendered Dockerfile has {count}",
            why="\n".join(map(str, errors)),
            hint="imgbuild render --help; without --templates it writes the packaged form, which has none",
        )
    return problems


def _ignored(dockerfile: Dockerfile) -> Mapping[int, set[str]]:
    ignored: dict[int, set[str]] = {}
    for instruction in dockerfile.instructions:
        for comment in instruction.comment:
            if match := _IGNORE.fullmatch(comment):
                ignored.setdefault(instruction.line, set()).update(match[1].split(","))
    return ignored


def _bad_ignores(dockerfile: Dockerfile) -> Iterator[Problem]:
    for instruction in dockerfile.instructions:
        for comment in instruction.comment:
            match = _IGNORE.fullmatch(comment)
            unknown = sorted(set(match[1].split(",")) - RULES.keys()) if match else []
            looks = re.match(r"#\s*imgbuild\s+ignore\b", comment)
            if unknown or (looks and not match):
                what = (
                    f"there is no rule `{unknown[0]}`" if unknown else f"`{comment}` gives no rule and reason"
                )
                yield Problem(
                    line=instruction.line,
                    rule="ignore",
                    what=what,
                    why="an exception without a rule and a reason hides other faults too",
                    fix="# imgbuild ignore=RULE: the reason",
                )
