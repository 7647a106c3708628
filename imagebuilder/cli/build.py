"""`imgbuild build`: resolve, lock, render, build, test, and only then tag."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from imagebuilder.cli.options import (
    format_option,
    lock_options,
    matrix_option,
    request_options,
    templates_option,
    user_option,
)
from imagebuilder.errors import UsageError

if TYPE_CHECKING:
    from imagebuilder.build import Image
    from imagebuilder.buildx import Listener
    from imagebuilder.engine import Engine
    from imagebuilder.network import Network
    from imagebuilder.render import BuildContext
    from imagebuilder.request import Request
    from imagebuilder.smoke import SmokeReport

# A reference with a tag, in the grammar of the OCI distribution specification.
REFERENCE = re.compile(
    r"(?:[A-Za-z0-9.-]+(?::\d{1,5})?/)?[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*"
    r":[A-Za-z0-9_][A-Za-z0-9._-]{0,127}"
)


def parse_tags(
    _context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """Take references that an engine and a registry accept."""
    for value in values:
        if not REFERENCE.fullmatch(value):
            raise click.BadParameter(
                f"`{value}` is not a reference such as `registry.example.com/team/image:tag`"
            )
    return values


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
    user: str,
    builder: str | None,
    no_cache: bool,
    progress: str,
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

    \b
    imgbuild build --framework pytorch --cuda 12.1
    imgbuild build --lock pytorch-2.4.1-cuda12.1-cudnn9-py3.11-debian12.lock --tag registry.example.com/gpu:1
    """
    from imagebuilder.build import check_archive
    from imagebuilder.cli.output import emit_json
    from imagebuilder.cli.pipeline import base_tar, locked, read_input, rendered, tell
    from imagebuilder.cli.termination import clean_up_on_termination
    from imagebuilder.engine import Engine
    from imagebuilder.index import default_index
    from imagebuilder.network import network

    _check(output, tags, no_test, require_gpu or report is not None)
    if output[1] is not None:
        check_archive(output[1])
    clean_up_on_termination()
    matrix, overlaid = read_input(request, matrices, lock, templates)
    engine = Engine.connect()
    made = locked(request, matrices, lock, base)
    names = tags or (f"{made.stack.framework}:{made.tag}",)
    context = rendered(made, matrix, overlaid, user)
    tar = base_tar(made, matrix)
    place = matrix.bases[made.base.name]
    with network(place, made.base.image, made.base.digest, default_index().address) as reach:
        work = Work(context, tar, reach, builder, no_cache, progress)
        image = work.build(engine)
        smoke = None if no_test else _tested(engine, image, suite, require_gpu, report)
        image = tag(engine, image, names)
        exported = {}
        if output[1] is not None:
            exported = {"oci": str(output[1]), "oci_digest": work.export(output[1])}
    pushed = {name: engine.push(name) for name in names} if output[0] == "registry" else {}
    tell("image", f"{', '.join(names)}  {image.digest}  {image.size / 2**30:.2f} GiB compressed")
    if output_format == "json":
        emit_json({**_document(image, context.key, smoke), "pushed": pushed, **exported})


def _document(image: Image, key: str, smoke: SmokeReport | None) -> dict[str, Any]:
    """Give what `--format json` says of an image."""
    return {
        "identifier": image.identifier,
        "digest": image.digest,
        "tags": list(image.tags),
        "size": image.size,
        "reused": image.reused,
        "build_key": key,
        "verdict": smoke.verdict if smoke else None,
    }


@dataclass(frozen=True, slots=True)
class Work:
    """One context and how it is built; both the image and its archive come from it."""

    context: BuildContext
    base_tar: Path | None
    network: Network
    builder: str | None
    no_cache: bool
    progress: str

    def build(self, engine: Engine) -> Image:
        """Build into the engine and tell what came out."""
        from imagebuilder.build import build
        from imagebuilder.cli.pipeline import tell

        image = build(
            self.context,
            engine,
            base_tar=self.base_tar,
            network=self.network,
            listener=self._listener(),
            builder=self.builder,
            no_cache=self.no_cache,
        )
        tell(
            "build",
            f"{image.digest}, "
            + ("there already, nothing changed" if image.reused else "built and read back"),
        )
        return image

    def export(self, path: Path) -> str:
        """Write the OCI archive and give its digest."""
        from imagebuilder.build import export_oci

        return export_oci(
            self.context,
            path,
            base_tar=self.base_tar,
            network=self.network,
            listener=self._listener(),
            builder=self.builder,
        )

    def _listener(self) -> Listener:
        from imagebuilder.cli.progress import listener

        return listener(
            "json" if self.progress == "json" else "plain" if self.progress == "plain" else "auto"
        )


def _check(output: tuple[str, Path | None], tags: tuple[str, ...], no_test: bool, wants_test: bool) -> None:
    if output[0] == "registry" and not tags:
        raise UsageError(
            "`--output registry` needs `--tag` with the registry's name",
            hint="--tag registry.example.com/team/image:tag",
        )
    if no_test and wants_test:
        raise UsageError("`--no-test` excludes `--require-gpu` and `--report`", hint="leave `--no-test` out")


def tag(engine: Engine, image: Image, names: tuple[str, ...]) -> Image:
    """Give the image its names."""
    from imagebuilder.build import tag as give

    return give(engine, image, names)


def _tested(engine: Engine, image: Image, suite: str, require_gpu: bool, report: Path | None) -> SmokeReport:
    """Run the checks, or take the report of the last run where the image and the question are the same."""
    from imagebuilder.cli.pipeline import cache_folder
    from imagebuilder.cli.reporting import finish, kept_report, run_smoke, show, write_report

    folder = cache_folder() / "reports" / image.digest.removeprefix("sha256:") / suite
    known = kept_report(folder) if image.reused else None
    if known is None or (require_gpu and known.verdict != "passed"):
        result = run_smoke(engine, image.reference, suite=suite, gpus="auto", require_gpu=require_gpu)
        if result.verdict != "failed":
            write_report(result, folder)
    else:
        result = known
        show(result)
    if report is not None:
        write_report(result, report)
    finish(result, require_gpu)
    return result
