"""Dockerfile text -> instructions and stages, read as BuildKit reads them. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# What BuildKit's Dockerfile frontend knows.
KEYWORDS = frozenset(
    {
        "ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL",
        "MAINTAINER", "ONBUILD", "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR",
    }
)  # fmt: skip

_DIRECTIVE = re.compile(r"(?:#|//)\s*([A-Za-z][A-Za-z0-9]*)\s*=\s*(\S.*?)\s*")
_HEREDOC = re.compile(r"(?<![<\w])\d*<<(-?)(['\"]?)([A-Za-z_][A-Za-z0-9_.-]*)\2")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?:(:?[-+])([^{}]*))?\})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One instruction: `line` is where it starts (from 1), `text` its arguments without the flags.

    In `text` and `pairs` (the NAME=VALUE of ENV, ARG and LABEL) known variables are replaced, unknown ones
    stay as written. `bodies` are its heredocs, `comment` what stands directly above it.
    """

    line: int
    keyword: str
    text: str
    flags: tuple[str, ...] = ()
    bodies: tuple[str, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()
    comment: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...] | None:
        """The words of the JSON form, such as `["python", "-c", ""]`; None for the shell form."""
        try:
            value = json.loads(self.text)
        except ValueError:
            return None
        return tuple(map(str, value)) if isinstance(value, list) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One FROM and what follows; `parent` is the index of the stage it stands on, None for an outside image.

    `variables` are the ARGs and ENVs at its end, `environment` is what stays in the image.
    """

    line: int
    name: str
    image: str
    parent: int | None
    instructions: tuple[Instruction, ...]
    variables: Mapping[str, str]
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dockerfile:
    """A whole file: parser directives as (line, name, value), ARGs before the first FROM, and stages."""

    directives: tuple[tuple[int, str, str], ...]
    head: tuple[Instruction, ...]
    stages: tuple[Stage, ...]

    @property
    def instructions(self) -> Iterator[Instruction]:
        """Every instruction in the order of the file."""
        yield from self.head
        for stage in self.stages:
            yield from stage.instructions

    @property
    def final(self) -> tuple[Stage, ...]:
        """The stages that the image itself consists of, from its outside image on."""
        chain: list[Stage] = []
        index = len(self.stages) - 1 if self.stages else None
        while index is not None:
            chain.append(self.stages[index])
            index = self.stages[index].parent
        return tuple(reversed(chain))


def parse(text: str) -> Dockerfile:
    """Read a Dockerfile; what is wrong with it stays visible as instructions that BuildKit does not know."""
    lines = text.removeprefix("\ufeff").split("\n")
    directives = tuple(_directives(lines))
    escape = next((value for _, name, value in directives if name == "escape"), "\\")
    head: list[Instruction] = []
    stages: list[_OpenStage] = []
    variables: dict[str, str] = {}
    for raw in _instructions(lines, escape):
        if raw.keyword == "FROM":
            stages.append(_open(raw, stages, variables, escape))
        elif stages:
            stages[-1].add(raw, variables, escape)
        else:
            instruction = _expanded(raw, variables, escape)
            variables.update(instruction.pairs)
            head.append(instruction)
    return Dockerfile(
        directives=directives, head=tuple(head), stages=tuple(stage.close() for stage in stages)
    )


@dataclass(slots=True, kw_only=True)
class _OpenStage:
    """A stage while it is read."""

    line: int
    name: str
    image: str
    parent: int | None
    variables: dict[str, str]
    environment: dict[str, str]
    instructions: list[Instruction] = field(default_factory=list)

    def add(self, raw: Instruction, outer: Mapping[str, str], escape: str) -> None:
        instruction = _expanded(raw, self.variables, escape)
        self.instructions.append(instruction)
        if instruction.keyword == "ENV":
            self.variables.update(instruction.pairs)
            self.environment.update(instruction.pairs)
        elif instruction.keyword == "ARG":
            for name, value in instruction.pairs:
                # an ENV of the same name wins, as it does in BuildKit
                self.variables.setdefault(name, value)
            for name in re.findall(r"[^\s=]+(?=\s|$)", raw.text):
                if name in outer:
                    self.variables.setdefault(name, outer[name])

    def close(self) -> Stage:
        return Stage(
            line=self.line,
            name=self.name,
            image=self.image,
            parent=self.parent,
            instructions=tuple(self.instructions),
            variables=dict(self.variables),
            environment=dict(self.environment),
        )


def _open(
    raw: Instruction, stages: list[_OpenStage], variables: Mapping[str, str], escape: str
) -> _OpenStage:
    words = [unquote(word, variables, escape) for word in split_words(raw.text, escape)] or [""]
    name = words[2].lower() if len(words) > 2 and words[1].lower() == "as" else ""
    parents = [index for index, stage in enumerate(stages) if stage.name and stage.name == words[0].lower()]
    parent = parents[-1] if parents else None
    inherited = {} if parent is None else stages[parent].environment
    stage = _OpenStage(
        line=raw.line,
        name=name,
        image=words[0],
        parent=parent,
        variables=dict(inherited),
        environment=dict(inherited),
    )
    stage.instructions.append(_expanded(raw, variables, escape))
    return stage


def _expanded(raw: Instruction, variables: Mapping[str, str], escape: str) -> Instruction:
    pairs = tuple(_pairs(raw, variables, escape)) if raw.keyword in ("ENV", "ARG", "LABEL") else ()
    return Instruction(
        line=raw.line,
        keyword=raw.keyword,
        text=expand(raw.text, variables),
        flags=tuple(expand(flag, variables) for flag in raw.flags),
        bodies=raw.bodies,
        pairs=pairs,
        comment=raw.comment,
    )


def _pairs(raw: Instruction, variables: Mapping[str, str], escape: str) -> Iterator[tuple[str, str]]:
    words = split_words(raw.text, escape)
    if words and "=" not in words[0] and raw.keyword != "ARG":
        name, _, value = raw.text.partition(" ")  # the old form, ENV NAME VALUE WITH SPACES
        yield name, unquote(value.strip(), variables, escape)
        return
    for word in words:
        name, equals, value = word.partition("=")
        if equals:
            yield unquote(name, {}, escape), unquote(value, variables, escape)


def _directives(lines: list[str]) -> Iterator[tuple[int, str, str]]:
    for number, line in enumerate(lines, 1):
        match = _DIRECTIVE.fullmatch(line.strip())
        if number == 1 and line.startswith("#!"):
            continue
        if not match:
            return
        yield number, match[1].lower(), match[2]


def _instructions(lines: list[str], escape: str) -> Iterator[Instruction]:
    """Join continued lines, leave comments and empty lines out, take heredocs along."""
    ends = re.compile(rf"(?:(?<!{re.escape(escape)})|^){re.escape(escape)}[ \t\r]*$")
    comment: list[str] = []
    parts: list[str] = []
    first = index = 0
    while index < len(lines):
        line = lines[index].rstrip("\r")
        index += 1
        if not line.strip() or line.lstrip().startswith("#"):
            if not parts:
                comment = [*comment, line.strip()] if line.strip() else []
            continue
        first = first if parts else index
        parts.append(ends.sub("", line))
        if ends.search(line) and index < len(lines):
            continue
        text = "".join(parts).strip()
        parts = []
        if text:
            bodies, index = _heredocs(text, lines, index)
            yield _instruction(first, text, bodies, tuple(comment))
        comment = []


def _heredocs(text: str, lines: list[str], index: int) -> tuple[tuple[str, ...], int]:
    bodies: list[str] = []
    if text.split(maxsplit=1)[0].upper() not in ("RUN", "COPY", "ADD"):
        return (), index
    for match in _HEREDOC.finditer(text):
        ends = [
            number
            for number in range(index, len(lines))
            if (lines[number].lstrip("\t") if match[1] else lines[number]).rstrip("\r") == match[3]
        ]
        if ends:
            bodies.append("\n".join(lines[index : ends[0]]))
            index = ends[0] + 1
    return tuple(bodies), index


def _instruction(line: int, text: str, bodies: tuple[str, ...], comment: tuple[str, ...]) -> Instruction:
    keyword, _, rest = text.replace("\t", " ").partition(" ")
    rest = rest.strip()
    if keyword.upper() == "ONBUILD" and rest:
        return _instruction(line, rest, bodies, comment)
    flags = []
    while match := re.match(r"(--[a-z][a-z0-9.-]*(?:=\S*)?)(?:\s+|$)", rest):
        flags.append(match[1])
        rest = rest[match.end() :]
    return Instruction(
        line=line, keyword=keyword.upper(), text=rest, flags=tuple(flags), bodies=bodies, comment=comment
    )


def split_words(text: str, escape: str = "\\") -> list[str]:
    """Split at spaces outside quotes; quotes and escapes stay in the words."""
    pattern = rf"""(?:{re.escape(escape)}.|'[^']*'|"(?:{re.escape(escape)}.|[^"])*"|[^\s])+"""
    return re.findall(pattern, text)


def unquote(word: str, variables: Mapping[str, str], escape: str = "\\") -> str:
    """Take quotes and escapes off and put known variables in, as BuildKit does for ENV, ARG and LABEL."""
    pieces = re.findall(rf"'[^']*'|{re.escape(escape)}.|\$\{{[^}}]*\}}|\$\w+|.", word, re.DOTALL)
    result, doubled = [], False
    for piece in pieces:
        if piece == '"':
            doubled = not doubled
        elif piece.startswith("'") and len(piece) > 1:
            result.append(expand(piece, variables) if doubled else piece[1:-1])
        elif piece.startswith(escape) and len(piece) == 2:
            result.append(piece[1] if not doubled or piece[1] in f'"${escape}' else piece)
        else:
            result.append(expand(piece, variables))
    return "".join(result)


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Put known variables in; `${NAME:-other}` and `${NAME:+other}` are understood, unknown names stay."""

    def value(match: re.Match[str]) -> str:
        name, form, other = match[1] or match[2], match[3] or "", match[4] or ""
        known = name in variables and (bool(variables[name]) or ":" not in form)
        if form.endswith("-"):
            return variables[name] if known else expand(other, variables)
        if form.endswith("+"):
            return expand(other, variables) if known else ""
        return variables.get(name, match[0])

    return _VARIABLE.sub(value, text)
