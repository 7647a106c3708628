"""The documents are true: their commands parse, their help is the program's, what they link to is there."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from imagebuilder.cli import cli

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*.md")])
HELP = ROOT / "docs" / "cli.md"
WIDTH = 100

# What stands in a document for a value of the reader's.
PLACEHOLDERS = {
    "REF": "a/b:1",
    "IMAGE": "a/b:1",
    "FILE": "a.yaml",
    "DIR": "folder",
    "NAME": "name",
    "VERSION": "550.54.14",
}


def commands_of(text: str) -> Iterator[tuple[int, str, bool]]:
    """Give each command of a document: its line, its text, and whether it is meant to be pasted as it is."""
    fenced = False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            stripped = line.strip().removeprefix("$ ")
            if re.match(r"imgbuild [a-z-]", stripped):
                yield number, stripped, True
        else:
            for span in re.findall(r"`([^`]+)`", line):
                if re.match(r"imgbuild [a-z-]", span):
                    yield number, span, False


def _words(text: str) -> list[str]:
    words = shlex.split(text.replace("\\|", "|"), comments=True)[1:]
    return [PLACEHOLDERS.get(word, word) for word in words if word not in ("...", "…")]


def parse(words: list[str], group: click.Group = cli, path: str = "imgbuild") -> None:
    """Parse a command line as the program would, and run nothing; raises ClickException."""
    context = group.make_context(path, list(words), resilient_parsing=False)
    with context:
        name, command, rest = group.resolve_command(context, [*context._protected_args, *context.args])
        assert command is not None
        if isinstance(command, click.Group):
            parse(rest, command, f"{path} {name}")
        else:
            command.make_context(name, rest, parent=context).close()


COMMANDS = [
    pytest.param(text, pasted, id=f"{path.relative_to(ROOT)}:{number}")
    for path in DOCUMENTS
    if path != HELP
    for number, text, pasted in commands_of(path.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize(("text", "pasted"), COMMANDS)
def test_commands_of_the_documents_parse(
    text: str, pasted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command and option that a document names exists and takes such a value."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "requirements.txt").touch()
    words = _words(text)
    for choice in words[0].split("|"):  # `imgbuild resolve|lock` speaks of several
        try:
            parse([choice, *words[1:]])
        except click.MissingParameter:
            assert not pasted, f"`{text}` lacks something"
        except click.BadOptionUsage as error:
            # `--lock` in a sentence stands for `--lock PATH`
            assert not pasted, error.format_message()
            assert "requires an argument" in error.format_message(), error.format_message()


def test_there_are_commands_to_look_at() -> None:
    """README and the pages hold commands that are found; a wrong one is noticed."""
    assert len(COMMANDS) > 20
    for wrong in ("reslove", "build --frame-work pytorch", "matrix shwo", "build --progress loud"):
        with pytest.raises(click.ClickException):
            parse(wrong.split())


def test_options_named_in_sentences_exist() -> None:
    """An option in backticks behind no other program's name is an option of some command of ours."""
    known = {"--help", "--version"} | {
        name
        for _, command in every_command()
        for parameter in command.params
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    foreign = {
        # of docker, buildx, pip, uv, apt and conda
        "--gpus", "--shm-size", "--ipc", "--ulimit", "--link", "--device", "--index-url", "--checksum",
        "--from", "--find-links", "--require-hashes", "--break-system-packages", "--only-upgrade",
        "--metadata-file", "--set", "--prune",
        "--extra-index-url", "--cap-add",
        # of imgbuild-check, which docs/checks.md lists
        "--only", "--skip", "--timeout", "--manifest", "--list",
    }  # fmt: skip
    unknown = {
        f"{path.relative_to(ROOT)}: {option}"
        for path in DOCUMENTS
        for span in re.findall(r"`(--[^`]+)`", path.read_text(encoding="utf-8"))
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", span)
        if option not in known | foreign
    }
    assert unknown == set()


def every_command() -> Iterator[tuple[str, click.Command]]:
    """Give the program and all its commands, with their full names, in the order of the help."""
    todo: list[tuple[str, click.Command]] = [("imgbuild", cli)]
    while todo:
        name, command = todo.pop(0)
        yield name, command
        if isinstance(command, click.Group):
            context = click.Context(command)
            inner = [
                (f"{name} {one}", command.get_command(context, one)) for one in command.list_commands(context)
            ]
            todo = [(full, one) for full, one in inner if one is not None] + todo


def help_pages() -> str:
    """Give docs/cli.md: the help of every command as the program prints it, at a fixed width."""
    pages = [
        "# Command line",
        "",
        "What `--help` prints; written by `IMGBUILD_GOLDEN=write pytest tests/unit/test_docs.py`.",
    ]
    for name, command in every_command():
        # click keeps the option of the first context that asked, which may be another test's
        if hasattr(command, "_help_option"):
            command._help_option = None
        context = click.Context(
            command,
            info_name=name,
            terminal_width=WIDTH,
            help_option_names=cli.context_settings["help_option_names"],
        )
        text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
        pages += ["", f"## {name}", "", "```text", text, "```"]
    return "\n".join(pages) + "\n"


def test_help_keeps_its_examples_apart() -> None:
    """An example is a line of its own that can be pasted; the mark that says so is not printed."""
    pages = help_pages()
    assert "\\b" not in pages
    assert "\n  imgbuild build --framework pytorch --cuda 12.1\n" in pages


def test_the_help_in_the_documents_is_the_programs() -> None:
    """docs/cli.md is generated, and fails when it is stale."""
    if os.environ.get("IMGBUILD_GOLDEN") == "write":
        HELP.write_text(help_pages(), encoding="utf-8")
    assert HELP.read_text(encoding="utf-8") == help_pages()


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    """A link to a file of the repository leads to one."""
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text(encoding="utf-8"))
    lost = [one for one in targets if "://" not in one and not (path.parent / one).exists()]
    assert lost == []
