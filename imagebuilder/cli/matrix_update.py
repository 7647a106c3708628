"""`imgbuild matrix update`: new releases and their facts, read of a package index."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from imagebuilder.cli.options import format_option

if TYPE_CHECKING:
    from imagebuilder.remote.client import Traffic
    from imagebuilder.update import Update, Wanted

# How many differences an error names; the report has them all.
NAMED = 40


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option(
    "--framework",
    "-f",
    metavar="NAME[SPEC]",
    default="pytorch",
    show_default=True,
    help="What to look for; without SPEC from the oldest release in FILE on.",
)
@click.option("--release", "releases", metavar="VERSION", multiple=True, help="This one only; repeatable.")
@click.option("--check", is_flag=True, help="Write nothing; any difference ends with exit code 7.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write there instead of into FILE.")
@format_option
def update(
    file: Path | None,
    framework: str,
    releases: tuple[str, ...],
    check: bool,
    output: Path | None,
    output_format: str,
) -> None:
    """Derive facts from the package index and add to FILE (the packaged matrix) what it lacks.

    A fact that the index contradicts is reported and stays (exit code 7), and so does what no index can tell.

    \b
    imgbuild matrix update --check
    imgbuild matrix update matrix.yaml --framework 'pytorch>=2.15'
    imgbuild matrix update matrix.yaml --release 2.9.1 -o new.yaml
    """
    from imagebuilder.cli.output import emit_json, say, write_whole
    from imagebuilder.matrix.edit import canonical, read_document
    from imagebuilder.resources import matrix_path

    path = matrix_path() if file is None else file
    text, plain = read_document(path)
    found, traffic = _update(plain, _wanted(plain, framework, releases))
    new = canonical(found.plain, text)
    target = None if check or (new == text and output is None) else output or path
    if target is not None:
        write_whole(target, new)
    report = _report(found, traffic, target)
    if output_format == "text":
        click.echo(_diff(text, new, path), nl=False)
    say(_summary(found, traffic, target))
    _refuse(found, report, check)
    if output_format == "json":
        emit_json(report)


def _wanted(plain: dict[str, Any], framework: str, releases: tuple[str, ...]) -> Wanted:
    from packaging.version import InvalidVersion, Version

    from imagebuilder.errors import UsageError
    from imagebuilder.matrix.loading import typed
    from imagebuilder.request import parse_framework
    from imagebuilder.resolve.names import find_framework
    from imagebuilder.update import Wanted

    name, spec = parse_framework(framework)
    key, _ = find_framework(typed(plain), name)
    try:
        versions = tuple(map(Version, releases))
    except InvalidVersion as error:
        raise UsageError(f"`--release`: {error}", hint="imgbuild matrix update --release 2.9.1") from None
    return Wanted(framework=key, spec=spec if len(spec) else None, releases=versions)


def _update(plain: dict[str, Any], wanted: Wanted) -> tuple[Update, Traffic]:
    from dataclasses import replace

    from imagebuilder.cli.output import say
    from imagebuilder.cli.pipeline import cache_folder
    from imagebuilder.index import default_index
    from imagebuilder.remote.client import Client
    from imagebuilder.solver import uv_default
    from imagebuilder.update import update as updated

    index = default_index()
    if index.address is None:
        index = replace(index, address=uv_default())
    client = Client(index, cache_folder() / "index")
    return updated(plain, wanted, client, lambda text: say(f"reading {text}")), client.traffic


def _report(found: Update, traffic: Traffic, written: Path | None) -> dict[str, Any]:
    return {
        "releases": found.releases,
        "equal": found.equal,
        "new": [fact.to_dict() for fact in found.new],
        "contradictions": [fact.to_dict() for fact in found.contradictions],
        "blocked": {version: list(reasons) for version, reasons in found.blocked.items()},
        "requests": traffic.requests,
        "bytes": traffic.bytes,
        "kept_answers": traffic.kept,
        "written": None if written is None else str(written),
    }


def _summary(found: Update, traffic: Traffic, written: Path | None) -> str:
    facts = f"{found.equal} facts equal, {len(found.new)} new, {len(found.contradictions)} contradicted"
    asked = (
        f"{traffic.requests} requests, {traffic.bytes / 1e6:.1f} MB, {traffic.kept} answers kept from before"
    )
    done = "nothing written" if written is None else f"written: {written}"
    return f"{found.releases} releases: {facts}; {asked}; {done}"


def _diff(old: str, new: str, path: Path) -> str:
    from difflib import unified_diff

    pieces = unified_diff(old.splitlines(True), new.splitlines(True), str(path), f"{path} and the index")
    return "".join(pieces)


def _refuse(found: Update, report: dict[str, Any], check: bool) -> None:
    """End with exit code 7 where a person has to look; the report goes along."""
    from imagebuilder.errors import DifferenceError

    blocked = [
        f"release {version} cannot be added: {reason}"
        for version, reasons in found.blocked.items()
        for reason in reasons
    ]
    facts = [*found.contradictions, *(found.new if check else ())]
    lines = [*map(str, facts), *blocked]
    if not lines:
        return
    more = [f"and {len(lines) - NAMED} more"] if len(lines) > NAMED else []
    count = f"{len(lines)} differences" if len(lines) > 1 else "a difference"
    raise DifferenceError(
        f"the index and the matrix have {count}",
        report=report,
        why="\n".join([*lines[:NAMED], *more]),
        hint="look each fact up and mend the file by hand, then: imgbuild matrix validate"
        if found.contradictions or blocked
        else "imgbuild matrix update",
    )
