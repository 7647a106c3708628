"""Requires-Dist lines (PEP 508) against what is installed: what `pip check` does, without pip."""

from __future__ import annotations

import os
import platform
import re
import sys
from dataclasses import dataclass
from importlib import metadata
from typing import Dict, FrozenSet, List, Optional, Tuple

from .specifiers import NotEvaluated, contains

_REQUIREMENT = re.compile(
    r"\s*(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[(?P<extras>[^\]]*)\])?\s*"
    r"(?:@\s*(?P<url>\S+)|\(?(?P<specifier>[^;()]*)\)?)\s*(?:;\s*(?P<marker>.*))?"
)
_TOKEN = re.compile(r"\s*(\(|\)|===|==|!=|~=|<=|>=|<|>|\"[^\"]*\"|'[^']*'|[A-Za-z_][A-Za-z0-9_.]*)")


@dataclass(frozen=True)
class Requirement:
    """One Requires-Dist line in parts; `name` is normalised."""

    name: str
    extras: Tuple[str, ...]
    specifier: str
    marker: str


def normalise(name: str) -> str:
    """Give a package name in its normalised form."""
    return re.sub(r"[-_.]+", "-", name).lower()


def parse(line: str) -> Requirement:
    """Parse one line; raises NotEvaluated for what is not of PEP 508."""
    found = _REQUIREMENT.fullmatch(line)
    if not found:
        raise NotEvaluated("`{}` is not a requirement".format(line))
    return Requirement(
        name=normalise(found.group("name")),
        extras=tuple(normalise(e.strip()) for e in (found.group("extras") or "").split(",") if e.strip()),
        specifier=(found.group("specifier") or "").strip(),
        marker=(found.group("marker") or "").strip(),
    )


def environment() -> Dict[str, str]:
    """Give the values of the marker variables for this Python."""
    implementation = sys.implementation.version
    full = "{}.{}.{}".format(*implementation[:3])
    if implementation.releaselevel != "final":
        full += implementation.releaselevel[0] + str(implementation.serial)
    return {
        "implementation_name": sys.implementation.name,
        "implementation_version": full,
        "os_name": os.name,
        "platform_machine": platform.machine(),
        "platform_python_implementation": platform.python_implementation(),
        "platform_release": platform.release(),
        "platform_system": platform.system(),
        "platform_version": platform.version(),
        "python_full_version": platform.python_version().rstrip("+"),
        "python_version": "{}.{}".format(*sys.version_info[:2]),
        "sys_platform": sys.platform,
    }


_VERSIONS = ("python_version", "python_full_version", "implementation_version", "platform_release")


class _Marker:
    """A marker being read from left to right; `or` binds weaker than `and`."""

    def __init__(self, text: str, values: Dict[str, str]) -> None:
        self.tokens: List[str] = []
        self.values = values
        position = 0
        while text[position:].strip():
            found = _TOKEN.match(text, position)
            if not found:
                raise NotEvaluated("marker `{}`".format(text))
            self.tokens.append(found.group(1))
            position = found.end()
        self.text = text

    def take(self) -> str:
        if not self.tokens:
            raise NotEvaluated("marker `{}` ends too early".format(self.text))
        return self.tokens.pop(0)

    def either(self) -> bool:
        value = self.both()
        while self.tokens[:1] == ["or"]:
            self.take()
            value = self.both() or value
        return value

    def both(self) -> bool:
        value = self.one()
        while self.tokens[:1] == ["and"]:
            self.take()
            value = self.one() and value
        return value

    def one(self) -> bool:
        if self.tokens[:1] == ["("]:
            self.take()
            value = self.either()
            if self.take() != ")":
                raise NotEvaluated("marker `{}` lacks a bracket".format(self.text))
            return value
        left, operator, right = self.take(), self.take(), self.take()
        if operator == "not":
            operator, right = "not in", self.take()
        return _compare(left, operator, right, self.values)


def _compare(left: str, operator: str, right: str, values: Dict[str, str]) -> bool:
    texts = []
    for side in (left, right):
        if side[0] in "\"'":
            texts.append(side[1:-1])
        elif side.replace(".", "_") in values:
            texts.append(values[side.replace(".", "_")])
        else:
            raise NotEvaluated("marker variable `{}`".format(side))
    if "extra" in (left, right):
        texts = [normalise(text) for text in texts]
    if operator in ("in", "not in"):
        return (texts[0] in texts[1]) == (operator == "in")
    if left in _VERSIONS:
        return contains(operator + texts[1], texts[0])
    if right in _VERSIONS:
        flipped = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}.get(operator, operator)
        return contains(flipped + texts[0], texts[1])
    if operator in ("==", "!="):
        return (texts[0] == texts[1]) == (operator == "==")
    raise NotEvaluated("`{}` between texts".format(operator))


def applies(marker: str, extra: str = "", values: Optional[Dict[str, str]] = None) -> bool:
    """Say whether a marker holds here, with one extra asked for; raises NotEvaluated when unsure."""
    if not marker:
        return True
    reader = _Marker(marker, {**(values or environment()), "extra": extra})
    value = reader.either()
    if reader.tokens:
        raise NotEvaluated("marker `{}`".format(marker))
    return value


@dataclass(frozen=True)
class Verdict:
    """What is wrong among the installed packages, and which lines could not be judged."""

    problems: Tuple[str, ...]
    not_evaluated: Tuple[str, ...]
    judged: int


def installed() -> Dict[str, "metadata.Distribution"]:
    """Give the installed distributions by normalised name; of two, the one that import finds."""
    found: Dict[str, metadata.Distribution] = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]  # None for the remains of a half-removed package
        if name:
            found.setdefault(normalise(name), distribution)
    return found


def check(distributions: Dict[str, "metadata.Distribution"]) -> Verdict:
    """Check every requirement of every distribution, extras that others ask for included."""
    values = environment()
    problems, unsure, judged = [], [], 0
    queue: List[Tuple[str, str]] = [(name, "") for name in sorted(distributions)]
    seen: FrozenSet[Tuple[str, str]] = frozenset()
    while queue:
        name, extra = queue.pop()
        if (name, extra) in seen:
            continue
        seen |= {(name, extra)}
        for line in distributions[name].requires or ():
            try:
                wanted = parse(line)
                if not applies(wanted.marker, extra, values) or (
                    extra and applies(wanted.marker, "", values)
                ):
                    continue
                judged += 1
                problem = _unmet(wanted, distributions)
            except NotEvaluated as reason:
                unsure.append("{}: {} ({})".format(name, line, reason))
                continue
            if problem:
                problems.append("{} {} {}".format(name, distributions[name].version, problem))
            elif wanted.name in distributions:
                queue += [(wanted.name, asked) for asked in wanted.extras]
    return Verdict(tuple(problems), tuple(unsure), judged)


def _unmet(wanted: Requirement, distributions: Dict[str, "metadata.Distribution"]) -> Optional[str]:
    found = distributions.get(wanted.name)
    if found is None:
        return "requires {}{}, which is not installed".format(wanted.name, wanted.specifier)
    if wanted.specifier and not contains(wanted.specifier, found.version):
        return "requires {}{}, but {} is installed".format(wanted.name, wanted.specifier, found.version)
    return None
