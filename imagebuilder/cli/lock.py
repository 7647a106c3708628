"""`imgbuild lock`: name every byte of a stack by hash."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from imagebuilder.cli.options import base_option, format_option, matrix_option, request_options
from imagebuilder.errors import UsageError

if TYPE_CHECKING:
    from imagebuilder.lock import Lock
    from imagebuilder.request import Request

# What a stack.json already says; only `-r` still has a meaning beside it.
SETTLED = ("framework", "cuda", "cudnn", "python", "os", "arch", "variant", "gpus", "driver", "sources")


@click.command()
@request_options
@click.option(
    "--stack",
    "stack_file",
    type=click.Path(path_type=Path),
    help="A stack.json to lock instead of a request.",
)
@base_option
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="The folder to write; default: <identifier>.lock."
)
@matrix_option
@format_option
@click.pass_context
def command(
    context: click.Context,
    request: Request | None,
    stack_file: Path | None,
    base: str,
    output: Path | None,
    matrices: tuple[Path, ...],
    output_format: str,
) -> None:
    """Name every byte of a stack by hash: wheels, the base, the distribution's packages.

    \b
    imgbuild lock --framework pytorch --cuda 12.1 -r requirements.txt
    imgbuild lock --stack stack.json -o image.lock
    """
    from imagebuilder.cli.output import emit_json
    from imagebuilder.cli.pipeline import lock_folder, make_lock, read_stack, resolved
    from imagebuilder.lock.files import refuse_taken
    from imagebuilder.matrix import load

    _check_options(context, stack_file)
    matrix = load(matrices)
    if request is not None:
        stack, requirements = resolved(request, matrix), request.requirements
    elif stack_file is not None:
        stack, requirements = read_stack(stack_file, matrix), context.params["requirements"]
    else:
        raise UsageError(
            "neither `--framework` nor `--stack` is given",
            hint="imgbuild lock --framework pytorch --cuda 12.1",
        )
    folder = output or lock_folder(stack, requirements)
    refuse_taken(folder)
    made = make_lock(stack, matrix, requirements, base, folder, before=None)
    if output_format == "json":
        emit_json(document(made, folder))


def _check_options(context: click.Context, stack_file: Path | None) -> None:
    """Refuse options of a request beside `--stack`: they would be ignored."""
    given = [
        name
        for name in SETTLED
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE and stack_file is not None
    ]
    if given:
        names = {"gpus": "gpu", "sources": "source"}
        shown = ", ".join(f"`--{names.get(name, name)}`" for name in given)
        raise UsageError(
            f"{shown} and `--stack` exclude each other",
            why="a stack.json already says what is locked",
            hint=f"imgbuild lock --stack {shlex.quote(str(stack_file))}",
        )


def document(lock: Lock, folder: Path) -> dict[str, Any]:
    """Give what `--format json` prints: sizes in bytes, `bytes` is the whole download of a build."""
    base, wheels = lock.base, lock.all_wheels
    return {
        "identifier": lock.stack.identifier,
        "lock": str(folder),
        "base": {"name": base.name, "origin": base.origin, "image": base.image, "digest": base.digest},
        "packages": {wheel.name: str(wheel.version) for wheel in lock.wheels},
        "extra_packages": {wheel.name: str(wheel.version) for wheel in lock.extra_wheels},
        "user_packages": {wheel.name: str(wheel.version) for wheel in lock.user_wheels},
        "counts": {
            "wheels": len(lock.wheels),
            "user_wheels": len(lock.user_wheels),
            "debs": len(base.debs),
        },
        "sizes": {
            "wheels": sum(wheel.size for wheel in wheels),
            "debs": sum(deb.size for deb in base.debs),
        },
        "bytes": lock.size,
        "sources": dict(lock.sources),
        "notes": list(lock.notes),
    }
