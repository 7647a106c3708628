"""`imgbuild matrix`: show, validate and update the compatibility facts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from imagebuilder.cli.matrix_update import update
from imagebuilder.cli.options import format_option, matrix_option

if TYPE_CHECKING:
    from imagebuilder.matrix import Matrix
    from imagebuilder.matrix.show import Conditions, Offered

HEADER = (
    "framework",
    "release",
    "cuda",
    "cudnn",
    "nccl",
    "python",
    "source",
    "driver",
    "capabilities",
    "grade",
)


@click.group()
def command() -> None:
    """Show, validate and update the compatibility facts."""


command.add_command(update)


@command.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@matrix_option
@format_option
def validate(file: Path | None, matrices: tuple[Path, ...], output_format: str) -> None:
    """Check a complete matrix FILE (the packaged one without FILE), with `--matrix` files laid over it.

    \b
    imgbuild matrix validate
    imgbuild matrix validate matrix.yaml
    imgbuild matrix validate --matrix ours.yaml
    """
    from imagebuilder.cli.output import emit_json
    from imagebuilder.matrix.validate import validate as validated
    from imagebuilder.resources import matrix_path

    path = matrix_path() if file is None else file
    counts = validated(path, matrices)
    if output_format == "json":
        emit_json({"files": [str(one) for one in (path, *matrices)], "problems": [], "counts": counts})
    else:
        shown = ", ".join(f"{number} {name}" for name, number in counts.items())
        click.echo(" + ".join(str(one) for one in (path, *matrices)) + f": no problems in {shown}")


@command.command()
@click.option("--framework", "-f", metavar="NAME[SPEC]", help="For example pytorch or 'pytorch>=2.4'.")
@click.option("--cuda", metavar="X.Y", help="Builds for this CUDA.")
@click.option("--python", metavar="X.Y", help="Builds with a wheel for this Python.")
@click.option("--os", metavar="NAME", help="Builds for the Python and the glibc of this base.")
@click.option(
    "--gpu", "gpus", metavar="NAME|sm_XY", multiple=True, help="Builds with code for it; repeatable."
)
@click.option("--driver", metavar="VERSION", help="Builds that run on a host with this driver.")
@click.option("--arch", type=click.Choice(["amd64", "arm64"]), default="amd64", show_default=True)
@matrix_option
@format_option
def show(matrices: tuple[Path, ...], output_format: str, **asked: Any) -> None:
    """Say what there is for a CUDA, a Python, a GPU, a driver.

    \b
    imgbuild matrix show --cuda 12.1
    imgbuild matrix show --python 3.12 --gpu T4 --driver 525.60.13
    """
    from imagebuilder.cli.output import emit_json, say
    from imagebuilder.matrix import load
    from imagebuilder.matrix.show import offered

    matrix = load(matrices)
    rows = offered(matrix, _conditions(matrix, **asked))
    if output_format == "json":
        emit_json({"matrix": matrix.digest, "rows": [_document(row) for row in rows]})
    elif rows:
        click.echo(_table(rows))
        say("grade: A read from the artefact, B official text, C third party, D inferred")
    else:
        say("the matrix has no build that meets all of this")


def _conditions(
    matrix: Matrix,
    *,
    framework: str | None,
    cuda: str | None,
    python: str | None,
    os: str | None,
    gpus: tuple[str, ...],
    driver: str | None,
    arch: str,
) -> Conditions:
    """Turn the text of the options into typed conditions."""
    from imagebuilder import request
    from imagebuilder.matrix.fit import MACHINES
    from imagebuilder.matrix.gpus import find_gpu
    from imagebuilder.matrix.show import Conditions
    from imagebuilder.resolve.names import check_base, find_framework

    name, spec = (None, None) if framework is None else request.parse_framework(framework)
    base = None if os is None else request.parse_os(os)
    check_base(matrix, base)
    return Conditions(
        machine=MACHINES[arch],
        framework=find_framework(matrix, name)[0] if name is not None else None,
        spec=spec,
        cuda=None if cuda is None else request.parse_cuda(cuda),
        python=None if python is None else request.parse_python(python),
        gpus=tuple(find_gpu(matrix, request.parse_gpu(gpu))[1] for gpu in gpus),
        driver=None if driver is None else request.parse_driver(driver),
        base=None if base is None else matrix.bases[base],
    )


def _table(rows: list[Offered]) -> str:
    from imagebuilder.cli.output import table

    return table((_line(row) for row in rows), HEADER)


def _line(row: Offered) -> list[str]:
    return [
        row.framework,
        str(row.release),
        str(row.cuda),
        str(row.cudnn or "?"),
        str(row.nccl or "?"),
        f"{row.pythons[0]}-{row.pythons[-1]}" if len(row.pythons) > 1 else "".join(map(str, row.pythons)),
        ",".join(row.sources),
        f">={row.driver_min}",
        " ".join(map(str, row.capabilities)) or "?",
        row.grade,
    ]


def _document(row: Offered) -> dict[str, Any]:
    return {
        "framework": row.framework,
        "release": str(row.release),
        "variant": row.variant,
        "cuda": str(row.cuda),
        "cudnn": str(row.cudnn) if row.cudnn else None,
        "nccl": str(row.nccl) if row.nccl else None,
        "python": [str(one) for one in row.pythons],
        "sources": list(row.sources),
        "driver_min": str(row.driver_min),
        "compute_capabilities": [str(one) for one in row.capabilities],
        "grade": row.grade,
        "note": row.note,
    }
