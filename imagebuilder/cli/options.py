"""Options that several commands share; each turns text into a typed value or a usage error."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def format_option(command: F) -> F:
    """Add `--format text|json`, passed on as `output_format`."""
    return click.option(
        "--format",
        "output_format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="json prints exactly one document on stdout.",
    )(command)


def matrix_option(command: F) -> F:
    """Add `--matrix FILE` (repeatable), passed on as `matrices`."""
    return click.option(
        "--matrix",
        "matrices",
        type=click.Path(path_type=Path),
        multiple=True,
        envvar="IMGBUILD_MATRIX",
        help="Facts that add to the packaged matrix or replace whole rows of it; repeatable.",
    )(command)


def templates_option(command: F) -> F:
    """Add `--templates DIR` (repeatable), passed on as `templates`."""
    return click.option(
        "--templates",
        type=click.Path(path_type=Path),
        multiple=True,
        envvar="IMGBUILD_TEMPLATES",
        help="A folder of templates looked up before the packaged ones; repeatable.",
    )(command)


def base_option(command: F) -> F:
    """Add `--base auto|registry|bootstrap`."""
    return click.option(
        "--base",
        type=click.Choice(["auto", "registry", "bootstrap"]),
        default="auto",
        show_default=True,
        help="Where a new lock takes the base from; auto tries the registry first.",
    )(command)


def lock_options(command: F) -> F:
    """Add `--lock PATH` and `--base ORIGIN`, passed on as `lock` and `base`."""
    return click.option(
        "--lock",
        type=click.Path(path_type=Path),
        help="A lock to build from, without asking any index for versions.",
    )(base_option(command))


def many_options(command: F) -> F:
    """Add `--all` and `--requests FILE`, passed on as `every` and `requests`."""
    every = click.option(
        "--all",
        "every",
        is_flag=True,
        help="One image for each framework (`--framework all`) and CUDA that the request leaves open.",
    )
    requests = click.option(
        "--requests",
        type=click.Path(path_type=Path),
        help="A TOML file of requests: `[[image]]`, or `[tool.imgbuild]` of a pyproject.toml (docs/many.md).",
    )
    return every(requests(command))


def user_option(command: F) -> F:
    """Add `--user trainer|root`."""
    return click.option(
        "--user",
        type=click.Choice(["trainer", "root"]),
        default="trainer",
        show_default=True,
        help="The user that the image runs as.",
    )(command)


REQUEST_OPTIONS = (
    click.option(
        "--framework",
        "-f",
        metavar="NAME[SPEC]",
        help="For example pytorch, 'pytorch==2.3.1', 'pytorch>=2.1,<2.4'.",
    ),
    click.option(
        "--cuda", metavar="X.Y", help="The CUDA version of the framework's build, for example 12.1."
    ),
    click.option("--cudnn", metavar="SPEC", help="A cuDNN version or range, for example '>=9.1,<9.6'."),
    click.option("--python", metavar="X.Y", help="The Python inside the image; chooses the base."),
    click.option("--os", metavar="NAME", help="The base: debian-12, debian-13, ubuntu-22.04, ubuntu-24.04."),
    click.option(
        "--arch", type=click.Choice(["amd64", "arm64"]), default="amd64", show_default=True, help="Platform."
    ),
    click.option(
        "--variant",
        type=click.Choice(["runtime"]),
        default="runtime",
        show_default=True,
        help="Kind of image.",
    ),
    click.option(
        "--gpu", "gpus", metavar="NAME|sm_XY", multiple=True, help="A GPU it must run on; repeatable."
    ),
    click.option("--driver", metavar="VERSION", help="The oldest host driver it must run on."),
    click.option(
        "--this-host", is_flag=True, help="Take the GPUs and the driver of this machine, as if named."
    ),
    click.option(
        "--with",
        "extras",
        metavar="EXTRA",
        multiple=True,
        help="Something to add, for example jupyter or ssh (docs/extras.md); repeatable.",
    ),
    click.option(
        "-r",
        "--requirement",
        "requirements",
        type=click.Path(path_type=Path),
        multiple=True,
        help="A requirements file of yours, solved together with the stack; repeatable.",
    ),
    click.option(
        "--source",
        "sources",
        metavar="NAME",
        multiple=True,
        help="A package index by name (pypi, pytorch), in order of preference; repeatable.",
    ),
)


TEXTS = (
    "framework",
    "cuda",
    "cudnn",
    "python",
    "os",
    "arch",
    "variant",
    "gpus",
    "driver",
    "extras",
    "requirements",
    "sources",
)


def request_options(command: F) -> F:
    """Add the options of a request, passed on as one `request` (None without `--framework`)."""
    return _with_request(command, None)


def open_request_options(command: F) -> F:
    """Add the options of a request that leaves the framework open where none is named."""
    from imagebuilder.request import EVERY

    return _with_request(command, EVERY)


def _with_request(command: F, framework: str | None) -> F:
    @wraps(command)
    def parsed(*, this_host: bool, **options: Any) -> Any:
        texts = {name: options.pop(name) for name in TEXTS}
        texts["framework"] = texts["framework"] or framework
        if this_host:
            _add_host(texts, options["matrices"])
        request = None
        if texts["framework"] is not None:
            from imagebuilder.request import parse_request

            request = parse_request(**texts)
        return command(request=request, **options)

    wrapped: Any = parsed
    for option in reversed(REQUEST_OPTIONS):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[no-any-return]


def _add_host(texts: dict[str, Any], matrices: tuple[Path, ...]) -> None:
    from imagebuilder.cli.this_host import gpus_and_driver
    from imagebuilder.errors import UsageError

    if texts["driver"] is not None:
        raise UsageError("`--this-host` and `--driver` exclude each other", hint="leave one of them out")
    gpus, texts["driver"] = gpus_and_driver(matrices)
    texts["gpus"] = (*texts["gpus"], *gpus)
