"""`imgbuild test`: the smoke checks inside an image, ours or not."""

from __future__ import annotations

from pathlib import Path

import click

from imagebuilder.cli.options import format_option


def parse_gpus(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    """Take `auto`, `all`, `none` or a number of GPUs."""
    if value in ("auto", "all", "none") or (value.isdecimal() and 0 < int(value) < 1000):
        return value
    raise click.BadParameter(f"`{value}` is not `auto`, `all`, `none` or a number of GPUs")


@click.command()
@click.argument("image")
@click.option(
    "--gpus",
    default="auto",
    show_default=True,
    metavar="all|none|N",
    callback=parse_gpus,
    help="GPUs to give the container; auto takes all where this host has some.",
)
@click.option(
    "--suite",
    type=click.Choice(["quick", "full"]),
    default="quick",
    show_default=True,
    help="How much to run.",
)
@click.option("--require-gpu", is_flag=True, help="Fail without GPU evidence.")
@click.option("--user", metavar="UID[:GID]", help="Run as this user instead of the image's own.")
@click.option(
    "--report", type=click.Path(path_type=Path, file_okay=False), help="Write report.json and junit.xml here."
)
@format_option
def command(
    image: str,
    gpus: str,
    suite: str,
    require_gpu: bool,
    user: str | None,
    report: Path | None,
    output_format: str,
) -> None:
    """Run the smoke checks inside IMAGE: libraries, GPUs, mixed precision, compilation, collectives.

    Without a GPU the GPU checks are skipped, the others run on the CPU, and the verdict says so. Exit 6
    when a check failed.
    """
    from imagebuilder.cli.output import emit_json
    from imagebuilder.cli.reporting import finish, run_smoke, write_report
    from imagebuilder.cli.termination import clean_up_on_termination
    from imagebuilder.engine import Engine
    from imagebuilder.smoke import report_to_dict

    clean_up_on_termination()
    result = run_smoke(Engine.connect(), image, suite=suite, gpus=gpus, require_gpu=require_gpu, user=user)
    if report is not None:
        write_report(result, report)
    finish(result, require_gpu)
    if output_format == "json":
        emit_json(report_to_dict(result))
