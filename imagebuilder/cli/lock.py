"""`imgbuild lock`: name every byte of a stack by hash."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from imagebuilder.cli.options import base_option, format_option, matrix_option, request_options
from imagebuilder.errors import UsageError

if TYPE_CHECKING:
    from imagebuilder.request import Request


@click.command()
@request_options
@click.option("--stack", "stack_file", type=click.Path(path_type=Path), help="A stack.json to lock instead of a request.")
@base_option
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The folder to write; default: <identifier>.lock.")
@matrix_option
@format_option
def command(
    request: Request | None,
    stack_file: Path | None,
    base: str,
    output: Path | None,
    matrices: tuple[Path, ...],
    output_format: str,
) -> None:
    r"""Name every byte of a stack by hash: wheels, the base, the distribution's packages.

    \b
    imgbuild lock --framework pytorch --cuda 12.1 -r requirements.txt
    imgbuild lock --stack stack.json -o image.lock
    """
    from imagebuilder.cli.output import emit_json, say
    from imagebuilder.cli.pipeline import make_lock, read_stack, resolved
    from imagebuilder.matrix import load

    matrix = load(matrices)
    if (request is None) == (stack_file is None):
        raise UsageError("give either `--framework` or `--stack`", hint="imgbuild lock --framework pytorch --cuda 12.1")
    if request is not None:
        stack, requirements = resolved(request, matrix), request.requirements
    else:
        assert stack_file is not None
        stack, requirements = read_stack(stack_file, matrix), ()
    folder = output or Path(f"{stack.identifier}.lock")
    made = make_lock(stack, matrix, requirements, base, folder, before=None)
    if output_format == "json":
        emit_json(
            {
                "identifier": stack.identifier,
                "lock": str(folder),
                "base": {"name": made.base.name, "origin": made.base.origin, "digest": made.base.digest},
                "packages": {wheel.name: str(wheel.version) for wheel in made.wheels},
                "user_packages": {wheel.name: str(wheel.version) for wheel in made.user_wheels},
                "debs": len(made.base.debs),
                "bytes": made.size,
            }
        )
    else:
        say(f"wrote {folder}")
