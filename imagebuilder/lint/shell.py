"""Shell text -> simple commands, as far as a lint needs them: words and what follows each command. Pure."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_OPERATORS = "();<>|&\n"
# Words before the program that a command runs.
_BEFORE = frozenset(
    {"!", "{", "do", "else", "env", "exec", "if", "nice", "sudo", "then", "time", "until", "while"}
)
_SHELLS = frozenset({"ash", "bash", "dash", "sh", "zsh"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One simple command: the program without its folder, its arguments, the operator `then` behind it."""

    program: str
    arguments: tuple[str, ...]
    assignments: tuple[str, ...] = ()
    then: str = ""

    def runs(self, *programs: str) -> bool:
        """Whether it runs one of the programs, in any version: `pip` also means `pip3.11`."""
        return re.sub(r"[\d.]+$", "", self.program) in programs


@lru_cache(maxsize=512)
def commands(script: str) -> tuple[Command, ...]:
    """Give the simple commands of a script, those inside `sh -c '...'` and `$(...)` too."""
    text = re.sub(r"(?m)^\s*#.*$", "", script).replace("\\\n", " ")
    return tuple(_commands(_tokens(text)))


def _tokens(text: str) -> list[str]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    try:
        return list(lexer)
    except ValueError:  # a quote that never ends: read the rest without quotes
        return re.findall(rf"[{re.escape(_OPERATORS)}]+|[^\s{re.escape(_OPERATORS)}]+", text)


def _commands(tokens: list[str]) -> Iterator[Command]:
    words: list[str] = []
    skip = False
    for token in [*tokens, "\n"]:
        if token and all(character in _OPERATORS for character in token):
            skip = bool(set(token) & set("<>")) and "(" not in token
            if skip and words and words[-1].isdigit():
                words.pop()  # the 2 of `2>`
            elif not skip:
                yield from _command(words, _operator(token))
                words = []
        elif skip:
            skip = False  # the file of a redirection
        else:
            words.append(token)


def _operator(token: str) -> str:
    return next((operator for operator in ("||", "&&", "|") if operator in token), ";")


def _command(words: list[str], then: str) -> Iterator[Command]:
    assignments: list[str] = []
    while words and (words[0] in _BEFORE or re.match(r"[A-Za-z_]\w*=", words[0])):
        assignments += [words[0]] if "=" in words[0] else []
        words = words[1:]
    if words and words[0] == "export":
        assignments, words = [*assignments, *(word for word in words[1:] if "=" in word)], []
    if not words:
        if assignments:
            yield Command(program="", arguments=(), assignments=tuple(assignments), then=then)
        return
    program = PurePosixPath(words[0]).name
    arguments = words[1:]
    if re.fullmatch(r"python[\d.]*", program) and arguments[:1] == ["-m"] and len(arguments) > 1:
        program, arguments = arguments[1], arguments[2:]  # `python -m pip` is `pip`
    flags = [index for index, word in enumerate(arguments) if re.fullmatch(r"-[a-z]*c", word)]
    if program in _SHELLS and flags and len(arguments) > flags[0] + 1:
        inner = commands(arguments[flags[0] + 1])
        yield from inner
        return
    yield Command(program=program, arguments=tuple(arguments), assignments=tuple(assignments), then=then)
