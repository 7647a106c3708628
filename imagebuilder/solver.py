"""uv: one solve for a target platform, from exactly one index a package."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from imagebuilder.errors import ImgbuildError, OutsideError
from imagebuilder.index import Index, environment, without_credentials
from imagebuilder.matrix.words import Glibc, Python

if TYPE_CHECKING:
    from collections.abc import Collection

# Seconds for a whole solve.
SOLVE_TIMEOUT = 240
# The newest glibc that uv has a name for; wheels for it also run on newer ones.
NEWEST_GLIBC = Glibc.parse("2.40")
PROJECT = "imgbuild-image"
LONGEST_DETAIL = 400


class UnsatisfiableError(Exception):
    """No set of versions meets the requirements; the text is uv's own explanation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is to be solved: PEP 508 `requirements` and `constraints` for one target.

    `own` is the framework's own index: the packages of `from_own` come from it and from nowhere else, other
    packages only where the default index has none of that name. `before` is an earlier pylock.toml: what
    still fits keeps its version.
    """

    requirements: tuple[str, ...]
    constraints: tuple[str, ...] = ()
    python: Python
    machine: str
    glibc: Glibc
    default: Index
    own: Index | None = None
    from_own: tuple[str, ...] = ()
    before: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """The text of a pylock.toml as uv writes it, and the names of the packages that the own index serves."""

    pylock: str
    from_own: frozenset[str] = frozenset()


def solve(question: Question) -> Solution:
    """Solve for the target.

    Raises UnsatisfiableError with uv's explanation, OutsideError where an index cannot be reached or uv is
    missing.
    """
    with tempfile.TemporaryDirectory(prefix="imgbuild-solve-") as name:
        folder = Path(name)
        if question.before:
            (folder / "pylock.toml").write_text(question.before)
        text = _pylock(question, folder)
        own = question.own
        if own is None:
            return Solution(pylock=text)
        # uv takes an index for a package only from a direct requirement: what others brought is made one.
        brought = names_in(text) & set(question.from_own) - set(map(_name, question.requirements))
        if brought:
            question = replace(question, requirements=(*question.requirements, *sorted(brought)))
            text = _pylock(question, folder)
        return Solution(pylock=text, from_own=_served_by(own, question, folder))


def names_in(pylock: str) -> set[str]:
    """Give the names of the packages in a pylock.toml that uv wrote."""
    return set(re.findall(r'^name = "([^"]+)"$', pylock, re.MULTILINE))


def _name(requirement: str) -> str:
    return str(canonicalize_name(Requirement(requirement).name))


def _pylock(question: Question, folder: Path) -> str:
    _run(question, folder, ["--format", "pylock.toml", "--output-file", "pylock.toml"])
    return (folder / "pylock.toml").read_text()


def _served_by(own: Index, question: Question, folder: Path) -> frozenset[str]:
    """Ask which index each package came from, which uv says only in its other format."""
    text = _run(question, folder, ["--emit-index-annotation", "--no-annotate"])
    address = without_credentials(own.address or "").rstrip("/")
    found = re.findall(r"^(\S+?)==\S+\n\s+# from (\S+)", text, re.MULTILINE)
    return frozenset(name for name, index in found if _clean(index).rstrip("/") == address)


def _run(question: Question, folder: Path, options: list[str]) -> str:
    """Run one solve in a folder and give what uv prints."""
    (folder / "pyproject.toml").write_text(_project(question))
    (folder / "constraints.txt").write_text("\n".join(question.constraints) + "\n")
    settings = {**environment(), **_indexes(question)}
    try:
        done = subprocess.run(
            [_program(), *_command(question), *options],
            cwd=folder,
            env=settings,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SOLVE_TIMEOUT,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise OutsideError(
            f"the package index gave no answer within {SOLVE_TIMEOUT} s",
            why=_shown(question),
            hint=f"imgbuild doctor; a mirror is set with {question.default.variable}",
        ) from None
    if done.returncode:
        raise _failure(question, done.stderr)
    return done.stdout


def _program() -> str:
    from uv import find_uv_bin

    try:
        return find_uv_bin()
    except FileNotFoundError as error:
        raise OutsideError(
            "uv is missing beside imgbuild", why=str(error), hint="python -m pip install --force-reinstall uv"
        ) from None


def _command(question: Question) -> list[str]:
    glibc = min(question.glibc, NEWEST_GLIBC)
    return [
        "pip", "compile", "pyproject.toml", "--constraints", "constraints.txt", "--quiet", "--no-header",
        "--no-config", "--no-python-downloads", "--only-binary", ":all:", "--no-progress", "--color", "never",
        "--python-version", str(question.python),
        "--python-platform", f"{question.machine}-manylinux_{glibc.numbers[0]}_{glibc.numbers[1]}",
    ]  # fmt: skip


def _indexes(question: Question) -> dict[str, str]:
    """Give the addresses as variables: a command line with credentials could be read by everyone."""
    default, own = question.default, question.own
    for index in filter(None, (default, own)):
        if index.address and index.address.startswith("file:"):
            _check_folder(index)
    if own is None:
        return {"UV_DEFAULT_INDEX": default.address} if default.address else {}
    # In this order, since uv looks for a package on the first index that has it.
    address = default.address or uv_default()
    return {"UV_DEFAULT_INDEX": address, "UV_INDEX": f"{default.name}={address} {own.name}={own.address}"}


def _check_folder(index: Index) -> None:
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    if not Path(url2pathname(urlsplit(index.address or "").path)).is_dir():
        raise OutsideError(
            "the package index is not there", why=f"no folder {index.shown}", hint=f"unset {index.variable}"
        )


def uv_default() -> str:
    """Ask uv for the address of its default index; needs no network."""
    done = subprocess.run(
        [_program(), "pip", "compile", "-", "--emit-index-url", "--no-config", "--offline", "--quiet"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=SOLVE_TIMEOUT,
        stdin=subprocess.DEVNULL,
    )
    found = re.search(r"--index-url (\S+)", done.stdout)
    if not found:
        raise OutsideError(
            "uv does not name its default index",
            why=done.stderr.strip()[:LONGEST_DETAIL] or None,
            hint="set IMGBUILD_INDEX_PYPI",
        )
    return found[1]


def _project(question: Question) -> str:
    """Write the question as a project: the only form in which uv takes one index for one package."""
    lines = [
        "[project]",
        f'name = "{PROJECT}"',
        'version = "0"',
        f'requires-python = "=={question.python}.*"',
        f"dependencies = {json.dumps(list(question.requirements))}",
    ]
    if question.own:
        lines.append("[tool.uv.sources]")
        lines += [f"{name} = {{ index = {json.dumps(question.own.name)} }}" for name in question.from_own]
    return "\n".join(lines) + "\n"


def _shown(question: Question) -> str:
    return "; ".join(f"{index.name}: {index.shown}" for index in (question.default, question.own) if index)


# What uv says when an index, not the requirements, is at fault, and the meaning of it.
OUTSIDE = (
    ("certificate", "the certificate of the package index is not trusted",
     "export SSL_CERT_FILE=PATH of a CA bundle that holds your network's authority"),
    ("401 Unauthorized", "the package index wants credentials",
     "put them into {variable}=https://USER:PASSWORD@HOST/..., or into ~/.netrc"),
    ("403 Forbidden", "the package index refuses access",
     "check the credentials in {variable}, or in ~/.netrc"),
    ("407 Proxy", "the proxy wants credentials", "put them into HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT"),
    ("429 Too Many", "the package index limits requests",
     "try again later, or set a mirror with {variable}"),
    ("dns error", "the package index cannot be found",
     "imgbuild doctor; a mirror is set with {variable}"),
    ("error sending request", "the package index cannot be reached",
     "imgbuild doctor; a mirror is set with {variable}"),
    ("Failed to fetch", "the package index cannot be read",
     "imgbuild doctor; a mirror is set with {variable}"),
    ("Request failed after", "the package index cannot be read",
     "imgbuild doctor; a mirror is set with {variable}"),
)  # fmt: skip


def _failure(question: Question, text: str) -> ImgbuildError | UnsatisfiableError:
    """Tell a fault of an index from requirements that cannot be met, by what uv wrote."""
    clean = _clean(text)
    index = _at_fault(question, clean)
    for sign, meaning, hint in OUTSIDE:
        if sign in clean:
            detail = " ".join(line.strip() for line in clean.splitlines() if line.strip())
            return OutsideError(
                f"{meaning}: `{index.name}`",
                why=f"{index.shown}: {detail[:LONGEST_DETAIL]}",
                hint=hint.format(variable=index.variable),
            )
    if "No solution found" in clean:
        return UnsatisfiableError(explanation(clean))
    return OutsideError(
        "uv could not solve the requirements",
        why=" ".join(clean.split())[:LONGEST_DETAIL],
        hint="imgbuild doctor",
    )


def _clean(text: str) -> str:
    """Leave out user and password of every address."""
    return re.sub(r"(https?://)[^/@\s`]*@", r"\1", text)


def _at_fault(question: Question, text: str) -> Index:
    own = question.own
    return own if own and own.shown.rstrip("/") in text else question.default


# The hints of uv that say something of wheels; its others are about its own options.
TELLING: Collection[str] = ("Wheels are required", "Wheels are available", "You require")


def explanation(text: str) -> str:
    """Give uv's reasons for finding no solution as one line, without its own name for the question."""
    kept = []
    for paragraph in re.split(r"\n\s*\n", text):
        line = " ".join(paragraph.split())
        if line.startswith("hint: "):
            if line.removeprefix("hint: ").startswith(tuple(TELLING)):
                kept.append(line.removeprefix("hint: "))
            continue
        line = line.removeprefix("error: No solution found when resolving dependencies").strip()
        kept.append(line.removeprefix("cause: "))
    return " ".join(kept).replace(f"{PROJECT} depends on", "the image asks for").strip()
