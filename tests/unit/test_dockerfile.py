"""The reading of Dockerfiles and of the shell text in them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imagebuilder.lint.dockerfile import expand, parse, unquote
from imagebuilder.lint.shell import commands


def test_continuations_comments_and_empty_lines_are_joined() -> None:
    """A continued instruction goes on behind comments and empty lines, and starts at its first line."""
    parsed = parse("# c\nFROM a\nRUN x \\\n  # inside\n\n  y \\  \n  z\nENV A=1")
    assert [(i.line, i.keyword, i.text) for i in parsed.instructions] == [
        (2, "FROM", "a"),
        (3, "RUN", "x   y   z"),
        (8, "ENV", "A=1"),
    ]


def test_an_escaped_backslash_does_not_continue() -> None:
    """Two backslashes at the end of a line are a backslash, not a continuation."""
    assert [i.keyword for i in parse("FROM a\nRUN x \\\\\nUSER 1").instructions] == ["FROM", "RUN", "USER"]


def test_the_escape_directive_changes_continuations() -> None:
    """With `# escape=` another character continues lines; directives end at the first other line."""
    parsed = parse("# escape=`\n# check=skip=all\n# a comment\n# syntax=x\nFROM a\nRUN x `\n y \\\nUSER 1")
    assert [(name, value) for _, name, value in parsed.directives] == [("escape", "`"), ("check", "skip=all")]
    assert [i.text for i in parsed.instructions] == ["a", "x  y \\", "1"]


@pytest.mark.parametrize(
    ("text", "bodies", "after"),
    [
        ("RUN <<EOF\na\nUSER 0\nEOF\nUSER 1", ("a\nUSER 0",), "1"),
        ("RUN <<-'EOF' cat\n\ta\n\tEOF\nUSER 1", ("\ta",), "1"),
        ('COPY <<A <<"B" /x/\na\nA\nb\nB\nUSER 1', ("a", "b"), "1"),
        ("RUN cat <<<word\nUSER 1", (), "1"),
        ("RUN x <<NEVER\nUSER 1", (), "1"),
        ("LABEL a=<<EOF\nUSER 1", (), "1"),
    ],
)
def test_heredocs_belong_to_their_instruction(text: str, bodies: tuple[str, ...], after: str) -> None:
    """The lines of a heredoc are its body; what only looks like one takes no line away."""
    instructions = parse(f"FROM a\n{text}").stages[0].instructions
    assert instructions[1].bodies == bodies
    assert instructions[-1].text == after


def test_variables_are_scoped_as_buildkit_scopes_them() -> None:
    """ARGs of the head count in FROM and behind ARG NAME; ENV stays for later stages, ARG does not."""
    parsed = parse(
        "ARG TAG=1\nFROM a:${TAG} AS One\nRUN $TAG\nARG TAG\nRUN $TAG\nARG X=x\nENV E=$X\n"
        "FROM one\nRUN $X $E\nENV E=2\nARG E=3\nRUN $E"
    )
    assert parsed.stages[0].image == "a:1"
    assert [i.text for i in parsed.instructions if i.keyword == "RUN"] == ["$TAG", "1", "$X x", "2"]
    assert parsed.stages[1].parent == 0
    assert [stage.name for stage in parsed.final] == ["one", ""]


def test_flags_are_apart_from_the_arguments() -> None:
    """Flags at the start are flags, those of the command are its own."""
    run = parse(
        "FROM --platform=$P a\nRUN --mount=type=cache,target=/x --network=none pip --version"
    ).instructions
    assert [i.flags for i in run] == [("--platform=$P",), ("--mount=type=cache,target=/x", "--network=none")]


def test_pairs_are_read_with_their_quotes() -> None:
    """ENV knows quotes, escapes, several pairs and the old form with spaces."""
    parsed = parse("FROM a\nENV A=\"b c\" D='e $A' F=g\\ h\nENV I j k=l\nENV M=${N:-o}${A:+p}")
    pairs = [i.pairs for i in parsed.instructions]
    assert pairs[1:] == [(("A", "b c"), ("D", "e $A"), ("F", "g h")), (("I", "j k=l"),), (("M", "op"),)]


def test_the_trigger_of_onbuild_is_an_instruction() -> None:
    """What ONBUILD leaves for later is read like any other instruction."""
    assert [i.keyword for i in parse("FROM a\nONBUILD RUN x").instructions] == ["FROM", "RUN"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$A", "1"),
        ("${A}", "1"),
        ("$B", "$B"),
        ("${B:-x}", "x"),
        ("${A:-x}", "1"),
        ("${A:+x}", "x"),
        ("${E-x}", ""),
        ("${E:-x}", "x"),
    ],
)
def test_expansion(text: str, value: str) -> None:
    """Known variables are put in with their defaults, unknown ones stay."""
    assert expand(text, {"A": "1", "E": ""}) == value


@given(st.text(max_size=60), st.text(max_size=60))
def test_reading_ends_for_any_text(head: str, tail: str) -> None:
    """No text raises, and every instruction has a line of the file."""
    text = f"{head}\nFROM a\n{tail}"
    lines = text.count("\n") + 1
    assert all(1 <= instruction.line <= lines for instruction in parse(text).instructions)
    unquote(text, {})


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("a b && c || d; e | f & g", ["a", "c", "d", "e", "f", "g"]),
        ("if ! test -f x; then /usr/bin/pip3 install y; fi", ["test", "pip3", "fi"]),
        ("X=1 Y='a b' sudo env Z=2 make", ["make"]),
        ("sh -ec 'a && b' && bash -c \"c\"", ["a", "b", "c"]),
        ("echo $(curl -k x) > out 2>&1", ["echo", "curl"]),
        ("python3.11 -m pip install x", ["pip"]),
        ("echo 'a && b; c'", ["echo"]),
        ("# a\nb \\\n  c\nd", ["b", "d"]),
        ("echo 'never ends\nb", ["echo", "b"]),
        ("", []),
    ],
)
def test_commands(script: str, found: list[str]) -> None:
    """The programs that a script runs are found behind operators, assignments and other shells."""
    assert [command.program for command in commands(script) if command.program not in ("$", "")] == found


def test_a_command_knows_what_follows_it() -> None:
    """Whether a failure is caught can be read from the operator behind a command."""
    assert [(c.program, c.then) for c in commands("a || b && c; d")] == [
        ("a", "||"),
        ("b", "&&"),
        ("c", ";"),
        ("d", ";"),
    ]


def test_exports_are_assignments() -> None:
    """`export A=1` sets what `A=1 command` sets."""
    assert commands("export A=1 B")[0].assignments == ("A=1",)
