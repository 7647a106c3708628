"""`imgbuild render`: write the Dockerfile and its build context."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from imagebuilder.cli.options import (
    format_option,
    lock_options,
    many_options,
    matrix_option,
    request_options,
    templates_option,
    user_option,
)

if TYPE_CHECKING:
    from imagebuilder.request import Request


@click.command()
@request_options
@lock_options
@many_options
@user_option
@templates_option
@matrix_option
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The folder to write; default: <identifier>-context, or `bake` for many.",
)
@format_option
def command(
    request: Request | None,
    lock: Path | None,
    base: str,
    every: bool,
    requests: Path | None,
    user: str,
    templates: tuple[Path, ...],
    matrices: tuple[Path, ...],
    output: Path | None,
    output_format: str,
) -> None:
    """Write a build context: a Dockerfile as a person would write it, and the files it uses.

    \b
    imgbuild render --lock pytorch-2.4.1-cuda12.1-cudnn9-py3.11-debian12.lock -o context
    docker buildx build context
    imgbuild render --requests images.toml -o bake && cd bake && docker buildx bake
    """
    from imagebuilder.build import refuse_taken, write_context
    from imagebuilder.cli.output import emit_json, say, visible
    from imagebuilder.cli.pipeline import base_tar, locked, read_input, rendered

    if every or requests is not None:
        from imagebuilder.cli import many
        from imagebuilder.cli.pipeline import How

        many.check(request, requests, lock)
        how = How(matrices, templates, base, user)
        names = many.render(request, requests, how, output or Path("bake"))
        if output_format == "json":
            emit_json({"folder": str(output or "bake"), "targets": names})
        return
    matrix, overlaid = read_input(request, matrices, lock, templates)
    if output is not None:
        refuse_taken(output)
    made = locked(request, matrices, lock, base)
    context = rendered(made, matrix, overlaid, user)
    folder = output or Path(f"{made.stack.identifier}-context")
    write_context(context, folder, base_tar(made, matrix))
    if output_format == "json":
        emit_json(
            {
                "identifier": made.stack.identifier,
                "context": str(folder),
                "build_key": context.key,
                "layers": [
                    {
                        "name": layer.name,
                        "size": layer.size,
                        "wheels": [wheel.filename for wheel in layer.wheels],
                    }
                    for layer in context.layers
                ],
            }
        )
    else:
        say(f"wrote {visible(str(folder))}: {len(context.layers)} wheel layers, build key {context.key}")
