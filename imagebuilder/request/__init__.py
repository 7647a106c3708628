"""What a user may ask for: parsed once, typed, independent of any matrix.

Every `parse_*` takes the text of one option and gives its typed value, or raises `UsageError` that names
the option, the text and a value that would do. What exists (frameworks, GPUs) is `resolve`'s to say.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from imagebuilder.errors import UsageError
from imagebuilder.matrix.words import Cuda, Driver, Python

if TYPE_CHECKING:
    from collections.abc import Iterable

# The name that stands for every framework of the matrix, where a command makes or ranks many images.
EVERY = "all"
Arch = Literal["amd64", "arm64"]
Variant = Literal["runtime"]
_Word = TypeVar("_Word", Cuda, Driver, Python)

_NAME_AND_SPEC = re.compile(r"([A-Za-z][A-Za-z0-9_-]*)(.*)")
_SPEC = re.compile(r"[A-Za-z0-9.,<>=!~*+ _-]*")
_VERSION = re.compile(r"\d+(\.\d+)*")
_GPU = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._/()+-]*")
_OS = re.compile(r"[a-z][a-z0-9./:_-]*")
_SOURCE = re.compile(r"[a-z][a-z0-9-]*")
_ARCH_NAMES = {"x86_64": "amd64", "x86-64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
_CUDNN_PARTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request. `None` and empty tuples mean the user does not mind.

    `gpus` are names or targets as the user wrote them (`V100`, `sm_90`), matched against the matrix by
    `resolve`. `requirements` are files, read by `lock`.
    """

    framework: str
    spec: SpecifierSet
    cuda: Cuda | None = None
    cudnn: SpecifierSet | None = None
    python: Python | None = None
    os: str | None = None
    arch: Arch = "amd64"
    variant: Variant = "runtime"
    gpus: tuple[str, ...] = ()
    driver: Driver | None = None
    sources: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    requirements: tuple[Path, ...] = ()


def parse_request(
    *,
    framework: str,
    cuda: str | None = None,
    cudnn: str | None = None,
    python: str | None = None,
    os: str | None = None,
    arch: str = "amd64",
    variant: str = "runtime",
    gpus: Iterable[str] = (),
    driver: str | None = None,
    sources: Iterable[str] = (),
    extras: Iterable[str] = (),
    requirements: Iterable[str | Path] = (),
) -> Request:
    """Take the text of every option, give the request; raises UsageError at the first text that is wrong."""
    name, spec = parse_framework(framework)
    return Request(
        framework=name,
        spec=spec,
        cuda=None if cuda is None else parse_cuda(cuda),
        cudnn=None if cudnn is None else parse_cudnn(cudnn),
        python=None if python is None else parse_python(python),
        os=None if os is None else parse_os(os),
        arch=parse_arch(arch),
        variant=parse_variant(variant),
        gpus=tuple(dict.fromkeys(parse_gpu(gpu) for gpu in gpus)),
        driver=None if driver is None else parse_driver(driver),
        sources=tuple(dict.fromkeys(parse_source(source) for source in sources)),
        extras=tuple(sorted({parse_extra(extra) for extra in extras})),
        requirements=tuple(parse_requirements(path) for path in requirements),
    )


def parse_framework(text: str) -> tuple[str, SpecifierSet]:
    """Read `pytorch`, `pytorch==2.3.1` or `pytorch>=2.1,<2.4`: lower-case name and PEP 440 specifier."""
    text = _clean("--framework", text, 200)
    found = _NAME_AND_SPEC.fullmatch(text)
    if not found:
        raise UsageError(
            f"`--framework {text}` does not begin with a framework's name",
            why="the form is NAME[SPEC], SPEC as in PEP 440",
            hint="imgbuild resolve --framework 'pytorch>=2.1,<2.4'",
        )
    name, spec = found[1].lower(), found[2].strip()
    return name, _specifier("--framework", name, spec)


def parse_cudnn(text: str) -> SpecifierSet:
    """Read a PEP 440 specifier, or a bare version that stands for all beneath it (`9` is `==9.*`)."""
    text = _clean("--cudnn", text, 100)
    if _VERSION.fullmatch(text):
        text = f"=={text}" if text.count(".") + 1 >= _CUDNN_PARTS else f"=={text}.*"
    spec = _specifier("--cudnn", "", text)
    if not len(spec):
        raise UsageError("`--cudnn` is empty", hint=_try("--cudnn '>=9,<10'"))
    return spec


def parse_cuda(text: str) -> Cuda:
    """Read a CUDA minor such as `12.1`."""
    text = _clean("--cuda", text, 20)
    short = re.fullmatch(r"(?:cu|cuda)?(\d\d)[._-]?(\d)", text, re.IGNORECASE) or re.match(
        r"(\d\d)\.(\d{1,2})\.\d+$", text
    )
    return _word("--cuda", Cuda, text, f"{short[1]}.{short[2]}" if short else "12.1")


def parse_python(text: str) -> Python:
    """Read a Python minor such as `3.11`."""
    text = _clean("--python", text, 20)
    short = re.fullmatch(r"(?:cp|py|python)?-?3\.?(\d{1,2})(?:\.\d+)?", text, re.IGNORECASE)
    return _word("--python", Python, text, f"3.{short[1]}" if short else "3.11")


def parse_driver(text: str) -> Driver:
    """Read a driver version such as `535.104.05`, or a branch alone (`580`, its lowest version)."""
    return _word("--driver", Driver, _clean("--driver", text, 20), "535.104.05")


def parse_os(text: str) -> str:
    """Read the name of a base such as `debian-12`; whether it exists is the matrix's to say."""
    text = _clean("--os", text, 100)
    if _OS.fullmatch(text):
        return text
    raise UsageError(
        f"`--os {text}` is not the name of a base",
        why="a base is named by its distribution and release, joined by a hyphen",
        hint=_try("--os debian-12"),
    )


def parse_arch(text: str) -> Arch:
    """Read `amd64` or `arm64`."""
    text = _clean("--arch", text, 40)
    if text == "amd64":
        return "amd64"
    if text == "arm64":
        return "arm64"
    near = _ARCH_NAMES.get(text.lower().rpartition("/")[2], "amd64")
    raise UsageError(f"`--arch {text}` is not one of `amd64`, `arm64`", hint=_try(f"--arch {near}"))


def parse_variant(text: str) -> Variant:
    """Read the kind of image: `runtime` is the one there is."""
    text = _clean("--variant", text, 40)
    if text == "runtime":
        return "runtime"
    raise UsageError(
        f"`--variant {text}` cannot be built",
        why="images hold what running and torch.compile need (variant `runtime`), not the CUDA compiler",
        hint=_try("--variant runtime"),
    )


def parse_gpu(text: str) -> str:
    """Read a GPU's name (`RTX 5090`) or a target (`sm_90`), as the user wrote it."""
    text = _clean("--gpu", text, 64)
    if not _GPU.fullmatch(text):
        raise UsageError(f"`--gpu {text}` is not the name of a GPU", hint=_try("--gpu 'RTX 4090'"))
    return text


def parse_source(text: str) -> str:
    """Read the name of a package index such as `pypi`."""
    text = _clean("--source", text, 40)
    if not _SOURCE.fullmatch(text):
        raise UsageError(
            f"`--source {text}` is not the name of an index",
            why="a source is a name that the matrix knows, not an address",
            hint=_try("--source pypi"),
        )
    return text


def parse_extra(text: str) -> str:
    """Read the name of an extra such as `jupyter`; whether it exists is the matrix's to say."""
    text = _clean("--with", text, 40)
    if not _SOURCE.fullmatch(text):
        raise UsageError(f"`--with {text}` is not the name of an extra", hint=_try("--with jupyter"))
    return text


def parse_requirements(text: str | Path) -> Path:
    """Read the path of a requirements file; whether it exists is `lock`'s to say."""
    return Path(_clean("-r", str(text), 4096))


def command(request: Request) -> str:
    """Give the `imgbuild resolve` command of a request, quoted for a shell."""
    options: list[tuple[str, object]] = [("--framework", f"{request.framework}{request.spec}")]
    options += [("--cuda", request.cuda), ("--cudnn", request.cudnn), ("--python", request.python)]
    options += [("--os", request.os), ("--arch", request.arch if request.arch != "amd64" else None)]
    options += [("--gpu", gpu) for gpu in request.gpus]
    options += [("--driver", request.driver)]
    options += [("--source", source) for source in request.sources]
    options += [("--with", extra) for extra in request.extras]
    options += [("-r", path) for path in request.requirements]
    words = [f"{option} {shlex.quote(str(value))}" for option, value in options if value is not None]
    return " ".join(["imgbuild resolve", *words])


def _try(option: str) -> str:
    """Give a command that works with this option in it."""
    return f"imgbuild resolve --framework pytorch {option}"


def _clean(option: str, text: str, limit: int) -> str:
    """Give the text without surrounding blanks; refuse what is empty, too long or not printable."""
    shown = text.strip()
    if not shown:
        raise UsageError(f"`{option}` is empty")
    if len(shown) > limit:
        raise UsageError(f"`{option}` has {len(shown)} characters, {limit} are the most it takes")
    if not shown.isprintable() or not (shown.isascii() or option == "-r"):
        raise UsageError(f"`{option}` holds a character that has no place there: {shown!a}")
    return shown


def _word(option: str, kind: type[_Word], text: str, hint: str) -> _Word:
    try:
        return kind.parse(text)
    except ValueError as wrong:
        raise UsageError(f"`{option} {text}`: {wrong}", hint=_try(f"{option} {hint}")) from None


def _specifier(option: str, name: str, text: str) -> SpecifierSet:
    """Read a specifier; `name` goes before it in the hint."""
    try:
        if not _SPEC.fullmatch(text):
            raise InvalidSpecifier(text)
        return SpecifierSet(text)
    except InvalidSpecifier:
        version = re.search(r"\d+(\.\d+)*", text)
        number = version[0] if version else "2.3.1"
        raise UsageError(
            f"`{option} {name}{text}`: `{text}` is not a version specifier",
            why="SPEC is as in PEP 440: `==`, `!=`, `<`, `<=`, `>`, `>=`, `~=`, joined by commas",
            hint=(
                f"imgbuild resolve --framework '{name}=={number}'" if name else _try(f"{option} '=={number}'")
            ),
        ) from None
