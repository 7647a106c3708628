"""`imgbuild recommend`: which images run on these GPUs, best first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from imagebuilder.cli.options import format_option, matrix_option, open_request_options
from imagebuilder.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from imagebuilder.request import Request
    from imagebuilder.resolve.recommend import Fit, Recommendation

CODE = {"cubin": "machine code", "ptx": "PTX"}


@click.command()
@open_request_options
@matrix_option
@format_option
def command(request: Request | None, matrices: tuple[Path, ...], output_format: str) -> None:
    """Rank the images that run on some GPUs, with their mixed-precision modes and what older ones lack.

    Without `--framework`, of every framework; `--this-host` takes GPUs and driver of the machine it runs on.

    \b
    imgbuild recommend --gpu T4
    imgbuild recommend --gpu V100 --gpu A100 --driver 535.104.05
    imgbuild recommend --this-host --framework pytorch
    """
    from imagebuilder.cli.output import emit_json
    from imagebuilder.lock.requirements import read_requirements, requirements_of
    from imagebuilder.matrix import load
    from imagebuilder.resolve.recommend import recommend

    if request is None or not request.gpus:
        raise UsageError("no GPU is named", hint="imgbuild recommend --gpu T4, or --this-host")
    matrix = load(matrices)
    rows = recommend(request, matrix, requirements_of(read_requirements(request.requirements)))
    if output_format == "json":
        emit_json({"images": [_document(row) for row in rows]})
        return
    click.echo(_text(rows))


def _text(rows: tuple[Recommendation, ...]) -> str:
    """Write the table, then for each GPU what its tensor cores do, then the command of the first."""
    from imagebuilder.cli.output import table
    from imagebuilder.request import command as command_of

    header = ("image", "index", "driver", "code", "beside the best")
    lines = [
        (
            f"{row.stack.framework}:{row.stack.tag}",
            row.stack.source,
            str(row.stack.driver_min),
            ", ".join(sorted({CODE[fit.runs] for fit in row.fits})),
            "; ".join(row.lost) or "-",
        )
        for row in rows
    ]
    gpus = [(f"{fit.gpu}:", _modes(fit)) for fit in rows[0].fits]
    first = command_of(rows[0].request).replace("imgbuild resolve", "imgbuild build")
    return "\n".join([table(lines, header), "", table(gpus), f"next: {first}"])


def _modes(fit: Fit) -> str:
    cores = ", ".join(mode.upper() for mode in fit.modes)
    return (f"{cores} on tensor cores" if cores else "no tensor cores") + f"; mixed precision: {fit.amp}"


def _document(row: Recommendation) -> dict[str, Any]:
    from imagebuilder.request import command as command_of

    stack = row.stack
    return {
        "image": f"{stack.framework}:{stack.tag}",
        "framework": {"name": stack.framework, "version": str(stack.version)},
        "cuda": str(stack.cuda),
        "source": stack.source,
        "driver_min": str(stack.driver_min),
        "gpus": [
            {"name": fit.gpu, "runs": fit.runs, "modes": list(fit.modes), "amp": fit.amp} for fit in row.fits
        ],
        "lost": list(row.lost),
        "command": command_of(row.request),
    }
