"""Which lines of the user's requirements the index cannot serve together with a stack, and what would fit."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from imagebuilder.errors import ImgbuildError, OutsideError, UnmetError
from imagebuilder.lock.clash import why_bound
from imagebuilder.lock.remedies import Remedy, mended, other_release
from imagebuilder.solver import Question, Solution, UnsatisfiableError, solve

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from imagebuilder.lock.clash import Known
    from imagebuilder.lock.requirements import UserRequirement

# How many solves may be spent on finding the lines that clash; beyond it all of them are named.
MOST_TRIED = 40
LONGEST_REASON = 600
NO_WHEEL = re.compile(r"\b(\S+?)(?:==\S+)? ha(?:s|ve) no (?:usable )?wheels\b")


def solve_together(known: Known, question: Question, requirements: Sequence[UserRequirement]) -> Solution:
    """Solve the stack and the requirements as one.

    Packages beside the framework (numpy) keep the stack's version where the requirements allow it. Raises
    UnmetError naming the lines that clash, OutsideError where the index does not serve the stack at all.
    """
    try:
        return solve(with_user(question, requirements))
    except UnsatisfiableError as error:
        if not requirements:
            raise _unserved(known, question, str(error)) from None
    try:
        alone = solve(question)
    except UnsatisfiableError as error:
        raise _unserved(known, question, str(error)) from None
    freed = replace(_without_soft(question, known.soft), before=alone.pylock)
    try:
        return solve(with_user(freed, requirements))
    except UnsatisfiableError as error:
        raise _explain(known, freed, requirements, str(error)) from None


def with_user(question: Question, requirements: Sequence[UserRequirement]) -> Question:
    """Add the user's requirements and constraints to a question."""
    bounds = (f"{one.name}{one.requirement.specifier}" for one in requirements if one.constraint)
    return replace(
        question,
        requirements=(*question.requirements, *(one.text for one in requirements if not one.constraint)),
        constraints=(*question.constraints, *bounds),
    )


def _without_soft(question: Question, soft: frozenset[str]) -> Question:
    """Free the versions of the packages beside the framework; what is known to break stays a constraint."""
    names = (line.partition("==")[0] for line in question.requirements)
    freed = (name if name in soft else line for name, line in zip(names, question.requirements, strict=True))
    return replace(question, requirements=tuple(freed))


def _unserved(known: Known, question: Question, text: str) -> ImgbuildError:
    """Give the error for an index that does not serve the stack by itself."""
    index = question.own or question.default
    hint = f"imgbuild doctor; a mirror must hold every version that the stack names ({index.variable})"
    missing = re.search(r"(\S+) was not found in the package registry", text)
    if missing and missing[1] in known.stack.packages:
        return OutsideError(
            f"the index `{index.name}` has no package `{missing[1]}`",
            why=f"{index.shown}: it is not a package index, or a mirror that lacks it",
            hint=hint,
        )
    return UnmetError(
        f"the index `{index.name}` cannot serve {known.stack.identifier}",
        conflicts=({"constraint": known.shown, "fact": _short(text), "source": index.shown},),
        hint=hint,
    )


def _explain(
    known: Known, question: Question, requirements: Sequence[UserRequirement], text: str
) -> UnmetError:
    guilty, text = _smallest_clash(question, requirements, text)
    what, against, hint = _verdict(known, guilty, text)
    return UnmetError(
        what,
        conflicts=(
            *(one.conflict for one in guilty),
            *_bounds(known, guilty),
            {"constraint": against, "fact": _short(text), "source": f"uv, from {question.default.shown}"},
        ),
        alternatives=tuple(_remedies(known, question, requirements, guilty, text)),
        hint=hint,
    )


def _verdict(known: Known, guilty: Sequence[UserRequirement], text: str) -> tuple[str, str, str | None]:
    """Give what is wrong, what the lines stand against, and the next step where no command can be given."""
    stack = known.stack
    shown = " and ".join(f"`{one.text}` ({one.place})" for one in guilty)
    if len(guilty) > 1:
        return f"{shown} cannot be met together with {known.shown}", known.shown, None
    name = guilty[0].name
    if f"{name} was not found" in text:
        hint = (
            f"check the name `{name}` in {guilty[0].place}; a private index is set with IMGBUILD_INDEX_PYPI"
        )
        return f"{shown} is not on the index", "the index", hint
    found = NO_WHEEL.search(text)
    if found:
        hint = (
            f"choose a version with a wheel, or make one with `python -m pip wheel --no-deps {found[1]}`, "
            "publish it to your index and set IMGBUILD_INDEX_PYPI"
        )
        where = f"Python {stack.python} and {stack.arch}"
        return f"{shown} needs a wheel of `{found[1]}` for {where}", "only wheels are taken", hint
    return f"{shown} does not fit {known.shown}", known.shown, None


def _bounds(known: Known, guilty: Sequence[UserRequirement]) -> Iterator[dict[str, str | None]]:
    """Give the bounds that the stack has on the packages of these lines, each with its reason."""
    for one in guilty:
        bound = known.stack.constraints.get(one.name, "").rpartition("]")[2]
        if bound:
            why, source = why_bound(known, one.name, one.requirement.specifier)
            yield {"constraint": f"{one.name}{bound}", "fact": why, "source": source}


def _smallest_clash(
    question: Question, requirements: Sequence[UserRequirement], text: str
) -> tuple[tuple[UserRequirement, ...], str]:
    """Give lines none of which can be left out without ending the clash, and uv's words on just them.

    Lines that uv names come first, since they are the likely ones.
    """
    tries = MOST_TRIED
    left = sorted(requirements, key=lambda one: not re.search(rf"\b{re.escape(one.name)}\b", text))
    named = [one for one in left if re.search(rf"\b{re.escape(one.name)}\b", text)]
    for some in [named] if 0 < len(named) < len(left) else []:
        words = _reason(question, some)
        tries -= 1
        left, text = (some, words) if words else (left, text)
    for one in reversed(left[:]):
        rest = [other for other in left if other is not one]
        if not rest or not tries:
            continue
        tries -= 1
        words = _reason(question, rest)
        left, text = (rest, words) if words else (left, text)
    return tuple(left), text


def _reason(question: Question, requirements: Sequence[UserRequirement]) -> str | None:
    """Give uv's words on why there is no solution, None where there is one."""
    try:
        solve(with_user(question, requirements))
    except UnsatisfiableError as error:
        return str(error)
    return None


def _remedies(
    known: Known,
    question: Question,
    requirements: Sequence[UserRequirement],
    guilty: Sequence[UserRequirement],
    text: str,
) -> Iterator[Remedy]:
    """Give the version that the index has for this stack, then the release that the line was made for."""
    for one in guilty[:2]:
        fitting = _fitting(question, guilty, one)
        if fitting and not one.requirement.specifier.contains(fitting, prereleases=True):
            yield mended(known.stack, requirements, one, f"=={fitting}")
    wants = re.search(rf"depends? on {re.escape(known.stack.package)}((?:[<>=!~]=?[^\s,]+,?)+)", text)
    if wants:
        remedy = other_release(known.stack, known.matrix, requirements, wants[1].rstrip(","))
        if remedy:
            yield remedy


def _fitting(question: Question, guilty: Sequence[UserRequirement], one: UserRequirement) -> str | None:
    """Ask the index which version of a package fits the stack and the other lines; None where none does."""
    others = [other for other in guilty if other is not one]
    asked = with_user(question, others)
    try:
        found = solve(replace(asked, requirements=(*asked.requirements, one.name)))
    except UnsatisfiableError:
        return None
    version = re.search(rf'^name = "{re.escape(one.name)}"\nversion = "([^"]+)"', found.pylock, re.MULTILINE)
    return version[1] if version else None


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_REASON else text[:LONGEST_REASON] + " ..."
