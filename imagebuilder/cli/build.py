"""`imgbuild build`: resolve, lock, render, build, test, and only then tag."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from imagebuilder.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imagebuilder.cli.pipeline import How
    from imagebuilder.cli.progress import Mode
    from imagebuilder.request import Request


def parse_tags(
    _context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """Take references that an engine and a registry accept."""
    if not values:
        return values
    from imagebuilder.request.reference import parse_reference

    return tuple(map(parse_reference, values))


def parse_output(_context: click.Context, _parameter: click.Parameter, value: str) -> tuple[str, Path | None]:
    """Take `docker`, `oci:PATH` or `registry`."""
    kind, _, path = value.partition(":")
    if value in ("docker", "registry"):
        return value, None
    if kind == "oci" and path and "," not in path and path.isprintable():
        if Path(path).exists() and not Path(path).is_file():
            raise click.BadParameter(f"`{path}` is there already and is not a file")
        return kind, Path(path)
    raise click.BadParameter(f"`{value}` is not `docker`, `oci:PATH` or `registry`")


@click.command()
@request_options
@lock_options
@click.option(
    "--tag",
    "tags",
    metavar="REF",
    multiple=True,
    callback=parse_tags,
    help="A name for the image; repeatable.",
)
@click.option(
    "--output",
    default="docker",
    show_default=True,
    metavar="docker|oci:PATH|registry",
    callback=parse_output,
    help="Where the image goes besides the engine: an OCI archive, or the registry that its tags name.",
)
@many_options
@user_option
@click.option("--builder", metavar="NAME", help="A buildx builder that exports to this engine.")
@click.option("--no-cache", is_flag=True, help="Build every step again.")
@click.option(
    "--progress",
    type=click.Choice(["auto", "plain", "json"]),
    default="auto",
    show_default=True,
    help="On stderr.",
)
@click.option("--no-test", is_flag=True, help="Tag the image without running the smoke checks.")
@click.option(
    "--suite",
    type=click.Choice(["quick", "full"]),
    default="quick",
    show_default=True,
    help="How much to test.",
)
@click.option("--require-gpu", is_flag=True, help="Fail without GPU evidence.")
@click.option(
    "--report", type=click.Path(path_type=Path, file_okay=False), help="Write report.json and junit.xml here."
)
@templates_option
@matrix_option
@format_option
def command(
    request: Request | None,
    lock: Path | None,
    base: str,
    tags: tuple[str, ...],
    output: tuple[str, Path | None],
    every: bool,
    requests: Path | None,
    user: str,
    builder: str | None,
    no_cache: bool,
    progress: Mode,
    no_test: bool,
    suite: str,
    require_gpu: bool,
    report: Path | None,
    templates: tuple[Path, ...],
    matrices: tuple[Path, ...],
    output_format: str,
) -> None:
    """Resolve, lock, render, build and test an image; it is tagged when its checks passed.

    The lock is written to <identifier>.lock in the current folder and taken from there the next time.
    Of many images, what they share is built once, and one that fails does not stop the others.

    \b
    imgbuild build --framework pytorch --cuda 12.1
    imgbuild build --lock pytorch-2.4.1-cuda12.1-cudnn9-py3.11-debian12.lock --tag registry.example.com/gpu:1
    imgbuild build --all --framework 'pytorch>=2.6' --gpu V100
    imgbuild build --requests images.toml
    """
    from imagebuilder.cli.output import emit_json
    from imagebuilder.cli.pipeline import How
    from imagebuilder.cli.reporting import Tests
    from imagebuilder.cli.termination import clean_up_on_termination

    if no_test and (require_gpu or report is not None):
        raise UsageError("`--no-test` excludes `--require-gpu` and `--report`", hint="leave `--no-test` out")
    clean_up_on_termination()
    tests = None if no_test else Tests(suite, require_gpu, report)
    how = How(matrices, templates, base, user, builder, no_cache, progress, tests)
    if every or requests is not None:
        from imagebuilder.cli import many

        if tags or output[0] != "docker":
            raise UsageError(
                "many images exclude `--tag` and `--output`",
                why="each has a tag of its own",
                hint="imgbuild build --requests images.toml",
            )
        many.check(request, requests, lock)
        found = many.finish(many.build(request, requests, how))
    else:
        found = _build_one(request, lock, how, tags, output)
    if output_format == "json":
        emit_json(found)


def _build_one(
    request: Request | None,
    path: Path | None,
    how: How,
    tags: Sequence[str],
    output: tuple[str, Path | None],
) -> dict[str, Any]:
    """Make one image, give it its names, and say of it what `--format json` prints."""
    from imagebuilder.build import build, check_archive, export_oci, tag
    from imagebuilder.cli.pipeline import locked, read_input, target, tell
    from imagebuilder.cli.progress import listener
    from imagebuilder.engine import Engine

    _check_output(output, tags)
    if output[1] is not None:
        check_archive(output[1])
    matrix, overlaid = read_input(request, how.matrices, path, how.templates)
    engine = Engine.connect()
    made = locked(request, how.matrices, path, how.base)
    names = tuple(tags) or (f"{made.stack.framework}:{made.tag}",)
    found: dict[str, Any] = {}
    with target(made, matrix, overlaid, how.user, names[0]) as one:
        image = build(
            one, engine, listener=listener(how.progress), builder=how.builder, no_cache=how.no_cache
        )
        tell("build", f"{image.digest}, {image.origin}")
        smoke = how.tests.run(engine, image) if how.tests else None
        image = tag(engine, image, names)
        if output[1] is not None:
            watch = listener(how.progress)
            digest = export_oci(one, output[1], listener=watch, builder=how.builder)
            found = {"oci": str(output[1]), "oci_digest": digest}
    pushed = {name: engine.push(name) for name in names} if output[0] == "registry" else {}
    tell("image", f"{', '.join(names)}  {image.digest}  {image.size / 2**30:.2f} GiB compressed")
    return {
        "identifier": image.identifier,
        "digest": image.digest,
        "tags": list(image.tags),
        "size": image.size,
        "reused": image.reused,
        "build_key": one.context.key,
        "verdict": smoke.verdict if smoke else None,
        "pushed": pushed,
        **found,
    }


def _check_output(output: tuple[str, Path | None], tags: Sequence[str]) -> None:
    if output[0] == "registry" and not tags:
        raise UsageError(
            "`--output registry` needs `--tag` with the registry's name",
            hint="--tag registry.example.com/team/image:tag",
        )
