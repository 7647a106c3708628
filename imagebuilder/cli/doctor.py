"""`imgbuild doctor`: look at this host and say what to fix."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from imagebuilder.cli.options import format_option, matrix_option

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imagebuilder.doctor import Finding
    from imagebuilder.host.reach import Answer
    from imagebuilder.matrix import Matrix

# What one cold build of a PyTorch image fills at its peak: 23 GB measured (benchmarks/README.md), rounded up.
BUILD_NEEDS = 24 * 10**9
SECONDS = 6.0
# a registry that wants a login is there
REGISTRY_ANSWERS = (200, 401, 403)
STYLES = {"ok": "green", "warn": "yellow", "fail": "red", "skip": "dim"}
HEADINGS = {"build": "To build images", "gpu": "To run them on GPUs"}


@click.command(name="doctor")
@matrix_option
@format_option
def command(matrices: tuple[Path, ...], output_format: str) -> None:
    """Look at this host and say what to fix.

    Driver, GPUs, container toolkit, engine, buildx, image store, disk, index and registry: what was found,
    why it matters, and a command that mends it. Takes less than 10 seconds whatever does not answer.

    Exit code 4 when something fails that every build needs; problems of GPUs alone give 0, since images
    are built without one.
    """
    from datetime import UTC, datetime

    from imagebuilder.cli.output import emit_json
    from imagebuilder.cli.pipeline import cache_folder
    from imagebuilder.doctor import examine, gather, stops_a_build
    from imagebuilder.matrix import load

    matrix = load(matrices)
    facts = gather(now=datetime.now(UTC), cache=cache_folder(), asked=questions(matrix))
    findings = examine(facts, matrix, need_bytes=BUILD_NEEDS)
    stopped = stops_a_build(findings)
    if output_format == "json":
        emit_json({"ready_to_build": not stopped, "findings": [one.to_dict() for one in findings]})
    else:
        sys.stdout.write(report(findings) + "\n")
    if stopped:
        sys.exit(4)


def questions(matrix: Matrix) -> dict[str, Callable[[], Answer]]:
    """Give what is asked of the network: the configured index, and the registry of the default base."""
    from imagebuilder.host.reach import ask_index, probe
    from imagebuilder.index import default_index
    from imagebuilder.registry import Reference, place_of

    base = next(base for base in matrix.bases.values() if base.default)
    index, registry = default_index(), place_of(Reference.parse(base.image)).address
    return {
        "index": lambda: ask_index(index, seconds=SECONDS),
        "registry": lambda: probe(f"{registry}/v2/", seconds=SECONDS, wanted=REGISTRY_ANSWERS),
    }


def report(findings: tuple[Finding, ...]) -> str:
    """Give the table of findings, and below it what to do, the failures first."""
    from imagebuilder.cli.output import styled, table

    parts = []
    for needed_for, heading in HEADINGS.items():
        rows = [(one.status, one.id, one.what) for one in findings if one.needed_for == needed_for]
        lines = table(rows).splitlines()
        coloured = (
            styled(line[:4], STYLES[row[0]], sys.stdout) + line[4:]
            for line, row in zip(lines, rows, strict=True)
        )
        parts.append("\n".join([heading, *(f"  {line}" for line in coloured)]))
    for status in ("fail", "warn"):
        parts += [_advice(one) for one in findings if one.status == status]
    return "\n\n".join(parts)


def _advice(finding: Finding) -> str:
    lines = [f"{finding.id}: {finding.what}"]
    if finding.why:
        lines.append(f"  why: {finding.why}")
    lines += [
        f"  $ {line}" if not line.startswith("#") else f"  {line}"
        for line in (finding.fix or "").splitlines()
    ]
    return "\n".join(lines)
