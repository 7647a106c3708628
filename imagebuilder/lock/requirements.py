"""The user's requirement files: hostile input, read line by line into typed requirements."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from imagebuilder.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

LARGEST_FILE = 2**20
LONGEST_LINE = 4096
DEEPEST = 8
# Lines of all files together: an include that is repeated in an include grows without bound.
MOST_LINES = 10_000
# Options of a requirements file that would let it choose where packages come from, or run code on this host.
REFUSED = (
    (
        re.compile(
            r"(-i|--index-url|--extra-index-url|--find-links|-f|--no-index|--trusted-host)(?=[\s=]|$)"
        ),
        "each package comes from exactly one index, which is configuration and not part of a file",
        "remove the line; IMGBUILD_INDEX_PYPI=ADDRESS names your index, `--source` a framework's own",
    ),
    (
        re.compile(r"(-e|--editable)(?=[\s=]|$)"),
        "an editable install points at this host, which the image does not have",
        "python -m pip wheel --no-deps PATH makes a wheel; publish it to your index and write NAME==VERSION",
    ),
    (
        re.compile(r"--pre(?=\s|$)"),
        "a pre-release is taken only where a line names one",
        "remove the line and write NAME>=1.0rc1",
    ),
    (
        re.compile(r"-"),
        "an image takes plain requirements by name, and the options `-r`, `-c` and `--hash`",
        "remove the line",
    ),
)
NOT_PRINTABLE = re.compile(r"[^\x20-\x7e]")
INCLUDE = re.compile(r"(-r|--requirement|-c|--constraint)(?:\s+|=|(?<=-[rc]))(\S.*)")
HASH = re.compile(r"\s--hash[=\s]\s*(\S+)")
SHA256 = re.compile(r"sha256:([0-9a-f]{64})")
BY_ADDRESS = re.compile(
    r"([a-z+]+:)?//|[./~]|[a-z]+\+[a-z]+:|\S+@\s*(file|https?|git)\b|\S+\.(whl|zip|gz|bz2)$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRequirement:
    """One requirement of the user; a `constraint` installs nothing by itself.

    `path` is the file that it stands in, on the lines `first` to `last`, counted from 1; `root` is the file
    that the user named, which includes it or is it.
    `extra` names the extra that brought it; it stands in no file then.
    `hashes` are the SHA-256 sums of files that the user accepts; none accepts every file.
    """

    requirement: Requirement
    path: Path
    root: Path
    first: int
    last: int
    constraint: bool = False
    hashes: tuple[str, ...] = ()
    extra: str | None = None

    @property
    def name(self) -> str:
        """The normalised name of the package."""
        return str(canonicalize_name(self.requirement.name))

    @property
    def place(self) -> str:
        """Where it stands: file and line, or the option that brought it."""
        if self.extra is not None:
            return f"--with {self.extra}"
        return f"{self.path}:{self.first}"

    @property
    def text(self) -> str:
        """The requirement as one line in normal form, without its hashes."""
        return str(self.requirement)

    @property
    def conflict(self) -> dict[str, str | None]:
        """The line as one side of a clash, in the form that `UnmetError` takes."""
        fact = "a line of your requirements" if self.extra is None else "what the extra brings"
        return {"constraint": self.text, "fact": fact, "source": self.place}


def read_requirements(paths: Sequence[Path]) -> tuple[UserRequirement, ...]:
    """Read requirement files and the files that they include.

    Raises UsageError with file and line for anything that is not a plain requirement by name.
    """
    reader = _Reader()
    found: list[UserRequirement] = []
    for path in paths:
        reader.root = path
        found += reader.read(path, constraint=False, above=())
    return tuple(found)


def of_extras(lines: Mapping[str, Sequence[str]]) -> tuple[UserRequirement, ...]:
    """Give what extras require, by the extra's name, in the form of a user's requirements."""
    return tuple(
        UserRequirement(requirement=Requirement(line), path=Path(), root=Path(), first=1, last=1, extra=extra)
        for extra, required in lines.items()
        for line in required
    )


def requirements_of(lines: Sequence[UserRequirement]) -> list[Requirement]:
    """Give what the lines ask to install, for `resolve`; constraints ask for nothing."""
    return [one.requirement for one in lines if not one.constraint]


class _Reader:
    """Reads files that include others, and counts their lines together."""

    def __init__(self) -> None:
        self.lines = 0
        self.root = Path()

    def read(self, path: Path, *, constraint: bool, above: tuple[Path, ...]) -> Iterator[UserRequirement]:
        content, real = _content(path)
        if real in above:
            raise UsageError(f"`{path}` includes itself", why=" -> ".join(map(str, (*above, real))))
        if len(above) >= DEEPEST:
            raise UsageError(f"`{path}` is included more than {DEEPEST} files deep")
        for first, last, line in _lines(path, content):
            self.lines += 1
            place = f"{path}:{first}"
            if self.lines > MOST_LINES:
                raise UsageError(f"{place}: the requirement files have more than {MOST_LINES} lines together")
            include = INCLUDE.fullmatch(line)
            if include:
                below = constraint or include[1] in ("-c", "--constraint")
                inner = _included(path, include[2], place)
                yield from self.read(inner, constraint=below, above=(*above, real))
                continue
            hashes = tuple(_hash(found, place) for found in HASH.findall(line))
            yield UserRequirement(
                requirement=_parse(HASH.sub("", line).strip(), place),
                path=path,
                root=self.root,
                first=first,
                last=last,
                constraint=constraint,
                hashes=hashes,
            )


def _included(path: Path, name: str, place: str) -> Path:
    if "://" in name or Path(name).is_absolute():
        raise UsageError(
            f"{place}: `{_shown(name)}` cannot be included",
            why="a file is included by its path from the file that includes it",
            hint="copy it beside your requirements and write `-r NAME`",
        )
    return path.parent / name


def _content(path: Path) -> tuple[str, Path]:
    """Give what a file holds, and its path without links."""
    try:
        real = path.resolve()
        if not path.is_file():
            there = "it is a folder" if path.is_dir() else "there is no such file"
            raise UsageError(f"no requirements file `{path}`", why=there)
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise UsageError(f"`{path}` is larger than {LARGEST_FILE} bytes")
        return content.decode("utf-8-sig"), real
    except OSError as error:
        raise UsageError(f"cannot read `{path}`", why=error.strerror) from None
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path}:{line}: not UTF-8 text", why=f"byte {error.start} has no meaning") from None
    except (RuntimeError, ValueError) as error:  # a loop of links, a name that no file can have
        raise UsageError(f"cannot read `{path}`", why=str(error)) from None


def _lines(path: Path, content: str) -> Iterator[tuple[int, int, str]]:
    """Give the lines that say something, first and last number before; continuations are joined."""
    pending, first = "", 0
    for number, raw in enumerate(content.split("\n"), start=1):
        line = raw.removesuffix("\r").replace("\t", " ")
        first = first if pending else number
        if len(pending) + len(line) > LONGEST_LINE:
            raise UsageError(f"{path}:{first}: the line is longer than {LONGEST_LINE} characters")
        if "\0" in line or NOT_PRINTABLE.search(line.partition("#")[0]):
            raise UsageError(f"{path}:{number}: a character that no requirement has", why=ascii(line[:80]))
        if line.endswith("\\") and "#" not in line:
            pending += line[:-1] + " "
            continue
        whole = re.sub(r"(^|\s)#.*$", "", pending + line).strip()
        pending = ""
        if whole:
            yield first, number, whole
    if pending.strip():
        raise UsageError(f"{path}:{first}: the last line ends in a backslash")


def _hash(text: str, place: str) -> str:
    found = SHA256.fullmatch(text)
    if not found:
        raise UsageError(
            f"{place}: `--hash={_shown(text)}` is not taken",
            why="hashes are compared as `sha256:` and 64 hexadecimal digits in lower case",
            hint="python -m pip hash FILE",
        )
    return found[1]


def _parse(line: str, place: str) -> Requirement:
    for form, why, hint in REFUSED:
        if form.match(line):
            raise UsageError(f"{place}: `{_shown(line)}` cannot be part of an image", why=why, hint=hint)
    try:
        requirement = Requirement(line)
    except InvalidRequirement as error:
        if BY_ADDRESS.match(line):
            raise _by_address(line, place) from None
        raise _not_one(line, place, str(error).splitlines()[0]) from None
    if requirement.url or requirement.name.endswith((".whl", ".tar.gz", ".zip")):
        raise _by_address(line, place)
    if any(one.operator == "===" for one in requirement.specifier):
        raise _not_one(line, place, "`===` compares versions as texts; write `==`")
    return requirement


def _not_one(line: str, place: str, why: str) -> UsageError:
    why = "variables are not expanded" if "${" in line else why
    return UsageError(
        f"{place}: `{_shown(line)}` is not a requirement",
        why=why,
        hint="write NAME or NAME==VERSION, as in PEP 508",
    )


def _by_address(line: str, place: str) -> UsageError:
    return UsageError(
        f"{place}: `{_shown(line)}` names a file or an address",
        why="an image is locked by name, version and hash from an index",
        hint="python -m pip wheel --no-deps ADDRESS makes a wheel; publish it and write NAME==VERSION",
    )


def _shown(line: str) -> str:
    """Give the beginning of a line without credentials that an address in it may have."""
    return re.sub(r"//[^/@\s]*@", "//", line)[:80]
