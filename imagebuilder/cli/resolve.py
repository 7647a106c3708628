"""`imgbuild resolve`: choose one exact stack for a request and say why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from imagebuilder.cli.options import format_option, matrix_option, request_options
from imagebuilder.errors import UsageError

if TYPE_CHECKING:
    from imagebuilder.request import Request
    from imagebuilder.resolve import Stack


@click.command()
@request_options
@click.option("--explain", is_flag=True, help="Say for each choice why it was made, with its source.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the stack to this file.")
@matrix_option
@format_option
def command(
    request: Request | None,
    explain: bool,
    output: Path | None,
    matrices: tuple[Path, ...],
    output_format: str,
) -> None:
    """Choose one exact stack for a request and say why.

    \b
    imgbuild resolve --framework pytorch --cuda 12.1
    imgbuild resolve --framework 'pytorch>=2.4' --gpu V100 --gpu A100 --driver 535.104.05 --explain
    """
    from imagebuilder.cli.output import emit_json, say, visible, write_whole
    from imagebuilder.lock.requirements import read_requirements, requirements_of
    from imagebuilder.matrix import load
    from imagebuilder.resolve import resolve, stack_to_dict

    if request is None:
        raise UsageError("`--framework` is missing", hint="imgbuild resolve --framework pytorch --cuda 12.1")
    lines = requirements_of(read_requirements(request.requirements))
    stack = resolve(request, load(matrices), lines)
    document = stack_to_dict(stack)
    if output:
        write_whole(output, json.dumps(document, indent=2, ensure_ascii=False) + "\n")
        say(f"wrote {visible(str(output))}")
    if output_format == "json":
        emit_json(document)
    else:
        click.echo(_text(stack, explain))


def _text(stack: Stack, explain: bool) -> str:
    """Write a stack for people: its identifier, its values, what is worth knowing."""
    from imagebuilder.cli.output import table

    values = [
        (stack.framework, f"{stack.version} from {stack.source}"),
        ("cuda", f"{stack.cuda}, driver {stack.driver_min} or newer"),
        ("cudnn", str(stack.cudnn or "unknown")),
        ("nccl", str(stack.nccl or "unknown")),
        ("python", f"{stack.python} of {stack.os}, {stack.arch}"),
        ("gpus", "compute capability " + (", ".join(map(str, stack.compute_capabilities)) or "unknown")),
    ]
    pinned = [(name, version) for name, version in stack.packages.items()]
    parts = [stack.identifier, table([(f"  {name}", value) for name, value in [*values, *pinned]])]
    if explain:
        parts += ["why:", *(_reason(reason) for reason in stack.reasons)]
    parts += [f"note: {note}" for note in stack.notes]
    return "\n".join(parts)


def _reason(reason: Any) -> str:
    source = f"\n      [{reason.source}]" if reason.source else ""
    return f"  {reason.fact} {reason.value}: {reason.because}{source}"
