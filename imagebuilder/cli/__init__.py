"""The command line: one file a command. Parse, call a stage, print; no logic of its own.

This package is the only code that prints, exits, and reads the clock or the environment. Commands are
imported when they are asked for, so that `imgbuild --help` stays fast.
"""

from __future__ import annotations

import errno
import io
import itertools
import os
import sys
from importlib import import_module
from typing import TextIO

import click

from imagebuilder import __version__
from imagebuilder.errors import ImgbuildError, OutsideError, UsageError

COMMANDS = {
    "resolve": "Choose one exact stack for a request and say why.",
    "recommend": "Rank the images that run on some GPUs.",
    "lock": "Name every byte of a stack by hash.",
    "render": "Write the Dockerfile and its build context.",
    "build": "Resolve, lock, render, build and test an image.",
    "test": "Run the smoke checks inside an image.",
    "doctor": "Look at this host and say what to fix.",
    "matrix": "Show, validate and update the compatibility facts.",
}


# How stdout fails: its reader is gone, or what it is written to takes no more.
UNWRITTEN = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


class Commands(click.Group):
    """A group that knows its commands by name and imports a command only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Give the commands in the order of the stages."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of one command; None for a name that is none."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"imagebuilder.cli.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the nearest command on a typo."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, n=1)
            ctx.fail(f"no such command `{args[0]}`" + (f"; did you mean `{near[0]}`?" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print the table of commands without importing one."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="imgbuild")
@click.option("--debug", is_flag=True, help="Show the traceback of an internal fault.")
def cli(debug: bool) -> None:
    """Build reproducible GPU environment images for training: explained, locked and tested.

    \b
    imgbuild build --framework pytorch --cuda 12.1
    imgbuild resolve --framework pytorch --gpu V100 --gpu A100 --explain
    """


def main() -> None:
    """Run the command line; every failure becomes a sentence and an exit code (design: Exit codes)."""
    _open_streams()
    try:
        code = _run()
        sys.stdout.flush()
    except OSError as error:  # only the output is left to fail
        code = _unwritten(error)
    sys.exit(code)


def _run() -> int:
    try:
        code = cli.main(prog_name="imgbuild", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except ImgbuildError as error:
        return _report(error)
    except click.ClickException as error:
        return _report_usage(error)
    except (KeyboardInterrupt, click.Abort):
        sys.stderr.write("imgbuild: interrupted; nothing was left half-written\n")
        return 130
    except Exception as error:
        if "--debug" in sys.argv or (isinstance(error, OSError) and error.errno in UNWRITTEN):
            raise
        if isinstance(error, OSError) and error.filename is not None:
            return _report(OutsideError(f"`{error.filename}` cannot be used", why=error.strerror))
        from imagebuilder.cli.output import visible

        sys.stderr.write(
            f"imgbuild: internal fault: {visible(f'{type(error).__name__}: {error}')}\n"
            "  next: run it again as `imgbuild --debug ...` and report the traceback\n"
        )
        return 1


def _open_streams() -> None:
    """Have streams that take every text: a name need not be UTF-8, and a caller may close a stream."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, _nowhere())
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123 (open until the process ends)


def _unwritten(error: OSError) -> int:
    """End where stdout takes no more: a reader that went away is no failure, a full disk is one."""
    # what is still buffered must not fail once more when Python ends
    sys.stdout = _nowhere()
    if isinstance(error, BrokenPipeError):
        return 0
    from imagebuilder.cli.output import report_error

    report_error(OutsideError("the output cannot be written", why=error.strerror, hint="df -h"))
    return OutsideError.exit_code


def _wants_json() -> bool:
    """Tell whether the caller asked for one JSON document on stdout, even where parsing failed."""
    arguments = sys.argv[1:]
    return "--format=json" in arguments or any(
        one == "--format" and two == "json" for one, two in itertools.pairwise(arguments)
    )


def _report(error: ImgbuildError) -> int:
    from imagebuilder.cli.output import emit_json, report_error

    error.hint = error.hint or _next_step(error)
    report_error(error)
    if _wants_json():
        emit_json(error.to_dict())
    return error.exit_code


def _next_step(error: ImgbuildError) -> str | None:
    """Give the step that is there when a stage knows no better one."""
    if error.exit_code == OutsideError.exit_code:
        return "imgbuild doctor"
    if error.exit_code == UsageError.exit_code:
        command = next((word for word in sys.argv[1:] if word in COMMANDS), "")
        return " ".join(filter(None, ("imgbuild", command, "--help")))
    return None


def _report_usage(error: click.ClickException) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "imgbuild"
    # what click says where nothing is asked for is the whole help
    said = error.format_message().rstrip(".")
    what = "a command is missing" if said.startswith("Usage:") else said
    return _report(UsageError(what, hint=f"{path} --help"))
