"""Versions and version specifiers (PEP 440), as far as installed packages' metadata uses them."""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, Tuple

_VERSION = re.compile(
    r"""\s*v?(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)
    (?:[-_.]?(?P<pre>alpha|beta|preview|pre|a|b|c|rc)[-_.]?(?P<pre_n>\d*))?
    (?:-(?P<post_i>\d+)|[-_.]?(?P<post>post|rev|r)[-_.]?(?P<post_n>\d*))?
    (?:[-_.]?(?P<dev>dev)[-_.]?(?P<dev_n>\d*))?
    (?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?\s*""",
    re.VERBOSE | re.IGNORECASE,
)
_PRE = {"alpha": "a", "a": "a", "beta": "b", "b": "b", "c": "rc", "rc": "rc", "pre": "rc", "preview": "rc"}
_LOW, _HIGH = (-1,), (1,)

Key = Tuple[Any, ...]


class NotEvaluated(ValueError):  # noqa: N818 - an answer, not a fault
    """A version, specifier or marker that this code does not understand: said so, never guessed."""


class Version:
    """One version: `public` orders it without its local part, `local` is the part behind the plus sign."""

    def __init__(self, text: str) -> None:
        found = _VERSION.fullmatch(text)
        if not found:
            raise NotEvaluated("`{}` is not a version".format(text))
        part = found.groupdict()
        self.text = text.strip()
        self.epoch = int(part["epoch"] or 0)
        self.release = tuple(int(number) for number in part["release"].split("."))
        self.pre = (_PRE[part["pre"].lower()], int(part["pre_n"] or 0)) if part["pre"] else None
        self.post = int(part["post_i"] or part["post_n"] or 0) if part["post"] or part["post_i"] else None
        self.dev = int(part["dev_n"] or 0) if part["dev"] else None
        self.local = re.sub(r"[-_]", ".", part["local"].lower()) if part["local"] else None
        self.public = self._key()

    def _key(self) -> Key:
        pre: Key = _HIGH
        if self.pre:
            pre = (0, *self.pre)
        elif self.post is None and self.dev is not None:
            pre = _LOW
        post: Key = _LOW if self.post is None else (0, self.post)
        dev: Key = _HIGH if self.dev is None else (0, self.dev)
        return (self.epoch, _trimmed(self.release), pre, post, dev)

    @property
    def key(self) -> Key:
        """Order with the local part: none, then text, then numbers."""
        parts: Key = ()
        if self.local is not None:
            parts = tuple((1, int(p), "") if p.isdigit() else (0, 0, p) for p in self.local.split("."))
        return (*self.public, self.local is not None, parts)

    @property
    def is_prerelease(self) -> bool:
        """Whether it is a pre-release or a development release."""
        return self.pre is not None or self.dev is not None


def _trimmed(release: Tuple[int, ...]) -> Tuple[int, ...]:
    """Drop trailing zeros: 2.4.0 and 2.4 are equal."""
    end = len(release)
    while end > 1 and release[end - 1] == 0:
        end -= 1
    return release[:end]


def _starts_with(version: Version, prefix: str) -> bool:
    """Whether a version lies in `prefix.*`."""
    wanted = Version(prefix)
    if wanted.pre or wanted.post is not None or wanted.dev is not None or wanted.local:
        raise NotEvaluated("`{}.*` is not a prefix of releases".format(prefix))
    length = len(wanted.release)
    padded = version.release + (0,) * length
    return version.epoch == wanted.epoch and padded[:length] == wanted.release


def _equal(version: Version, text: str) -> bool:
    if text.endswith(".*"):
        return _starts_with(version, text[:-2])
    wanted = Version(text)
    # A specifier without a local part accepts any local part: ==2.4.1 takes 2.4.1+cu121.
    return version.key == wanted.key if wanted.local else version.public == wanted.public


def _compatible(version: Version, text: str) -> bool:
    wanted = Version(text)
    if len(wanted.release) < 2:
        raise NotEvaluated("`~={}` needs two numbers".format(text))
    prefix = "{}!{}".format(wanted.epoch, ".".join(str(number) for number in wanted.release[:-1]))
    return version.public >= wanted.public and _starts_with(version, prefix)


def _less(version: Version, text: str) -> bool:
    wanted = Version(text)
    if not version.public < wanted.public:
        return False
    # <2.0 does not take 2.0rc1, although it comes before 2.0.
    return not (version.is_prerelease and _is_plain(wanted) and _same_release(version, wanted))


def _greater(version: Version, text: str) -> bool:
    wanted = Version(text)
    if not version.public > wanted.public:
        return False
    # >2.0 does not take 2.0.post1, although it comes after 2.0.
    return not (version.post is not None and _is_plain(wanted) and _same_release(version, wanted))


def _is_plain(version: Version) -> bool:
    """Whether it is a final release, neither before nor after it."""
    return not version.is_prerelease and version.post is None


def _same_release(one: Version, other: Version) -> bool:
    return one.epoch == other.epoch and _trimmed(one.release) == _trimmed(other.release)


_OPERATORS: Dict[str, Callable[[Version, str], bool]] = {
    "===": lambda version, text: version.text.lower() == text.lower(),
    "==": _equal,
    "!=": lambda version, text: not _equal(version, text),
    "~=": _compatible,
    "<=": lambda version, text: version.public <= Version(text).public,
    ">=": lambda version, text: version.public >= Version(text).public,
    "<": _less,
    ">": _greater,
}


def contains(specifier: str, version: str) -> bool:
    """Say whether a version fits a comma-separated specifier; pre-releases count, as for what is installed.

    Raises NotEvaluated for what is not of PEP 440.
    """
    found = Version(version)
    for clause in specifier.split(","):
        if not clause.strip():
            continue
        match = re.fullmatch(r"\s*(===|==|!=|~=|<=|>=|<|>)\s*(\S+)\s*", clause)
        if not match:
            raise NotEvaluated("`{}` is not a version specifier".format(clause.strip()))
        if not _OPERATORS[match.group(1)](found, match.group(2)):
            return False
    return True
