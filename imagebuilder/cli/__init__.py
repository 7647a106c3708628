"""The command line: one file a command. Parse, call a stage, print; no logic of its own.

This package is the only code that prints, exits, and reads the clock or the environment. Commands are
imported when they are asked for, so that `imgbuild --help` stays fast.
"""

from __future__ import annotations

import itertools
import sys
from importlib import import_module

import click

from imagebuilder import __version__
from imagebuilder.errors import ImgbuildError

COMMANDS = {
    "resolve": "Choose one exact stack for a request and say why.",
    "lock": "Name every byte of a stack by hash.",
    "render": "Write the Dockerfile and its build context.",
    "build": "Resolve, lock, render, build and test an image.",
    "test": "Run the smoke checks inside an image.",
    "doctor": "Look at this host and say what to fix.",
    "matrix": "Show and validate the compatibility facts.",
}


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
    r"""Build reproducible GPU environment images for training: explained, locked and tested.

    \b
    imgbuild build --framework pytorch --cuda 12.1
    imgbuild resolve --framework pytorch --gpu V100 --gpu A100 --explain
    """


def main() -> None:
    """Run the command line; every failure becomes a sentence and an exit code (design: Exit codes)."""
    try:
        code = cli.main(prog_name="imgbuild", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except ImgbuildError as error:
        sys.exit(_report(error))
    except click.ClickException as error:
        sys.exit(_report_usage(error))
    except (KeyboardInterrupt, click.Abort):
        sys.stderr.write("imgbuild: interrupted; nothing was left half-written\n")
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        sys.stderr.write(
            f"imgbuild: internal fault: {type(error).__name__}: {error}\n"
            "  next: run it again as `imgbuild --debug ...` and report the traceback\n"
        )
        sys.exit(1)


def _wants_json() -> bool:
    """Tell whether the caller asked for one JSON document on stdout, even where parsing failed."""
    arguments = sys.argv[1:]
    return "--format=json" in arguments or any(
        one == "--format" and two == "json" for one, two in itertools.pairwise(arguments)
    )


def _report(error: ImgbuildError) -> int:
    from imagebuilder.cli.output import emit_json, report_error

    report_error(error)
    if _wants_json():
        emit_json(error.to_dict())
    return error.exit_code


def _report_usage(error: click.ClickException) -> int:
    from imagebuilder.errors import UsageError

    context = getattr(error, "ctx", None)
    path = context.command_path if context else "imgbuild"
    return _report(UsageError(error.format_message().rstrip("."), hint=f"{path} --help"))
