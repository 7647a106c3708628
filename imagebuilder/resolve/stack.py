"""The value that `resolve` gives, one exact combination of versions, and its file form `stack.json`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from imagebuilder.errors import UsageError
from imagebuilder.matrix.words import Capability, Cuda, Driver, Python
from imagebuilder.request import Arch, Variant

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_T = TypeVar("_T")
_MOST_TEXT = 4000
_KEYS = (
    "identifier", "framework", "cuda", "cudnn", "nccl", "python", "os", "arch", "variant", "extras", "source",
    "driver_min", "driver_packaged", "compute_capabilities", "packages", "constraints", "fallbacks",
    "reasons", "notes", "matrix",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why one value of a stack is what it is."""

    fact: str
    value: str
    because: str
    source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """Another stack of the same framework, for hosts that this one does not fit."""

    stack: str
    driver_min: Driver
    compute_capabilities: tuple[Capability, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """One exact combination.

    `packages` are the exact pins of the stack (normalised names), `constraints` what the release says of
    packages that it does not pin (PEP 440 specifiers, with extras in brackets before them), together
    with the known ceilings. `driver_min` is the minor-version-compatibility floor, `driver_packaged` the
    driver that the toolkit comes with, whose compiler knows all of its PTX. `matrix` is the digest
    of the facts that it was chosen from.
    """

    framework: str
    package: str
    version: Version
    cuda: Cuda
    cudnn: Version | None
    nccl: Version | None
    python: Python
    os: str
    arch: Arch
    variant: Variant
    extras: tuple[str, ...] = ()
    source: str
    driver_min: Driver
    driver_packaged: Driver | None = None
    compute_capabilities: tuple[Capability, ...]
    packages: Mapping[str, str]
    constraints: Mapping[str, str] = field(default_factory=dict)
    fallbacks: tuple[Fallback, ...] = ()
    reasons: tuple[Reason, ...] = ()
    notes: tuple[str, ...] = ()
    matrix: str

    @property
    def tag(self) -> str:
        """The part of the identifier behind the framework's name: 2.4.1-cuda12.1-cudnn9-py3.11-debian12."""
        plain = tag(self.version, self.cuda, self.cudnn, self.python, self.os, self.arch)
        return "-".join((plain, *self.extras))

    @property
    def identifier(self) -> str:
        """The one printable name, used in files, reports and as an argument of commands."""
        return f"{self.framework}-{self.tag}"


def tag(version: Version, cuda: Cuda, cudnn: Version | None, python: Python, os: str, arch: Arch) -> str:
    """Give the printable name of a combination without its framework."""
    cudnn_part = f"-cudnn{cudnn.major}" if cudnn else ""
    arch_part = "" if arch == "amd64" else f"-{arch}"
    return f"{version.public}-cuda{cuda}{cudnn_part}-py{python}-{os.replace('-', '')}{arch_part}"


def stack_to_dict(stack: Stack) -> dict[str, Any]:
    """Give the stack as the document of `stack.json`; `stack_from_dict` gives an equal stack back."""
    return {
        "identifier": stack.identifier,
        "framework": {"name": stack.framework, "version": str(stack.version), "package": stack.package},
        "cuda": str(stack.cuda),
        "cudnn": None if stack.cudnn is None else str(stack.cudnn),
        "nccl": None if stack.nccl is None else str(stack.nccl),
        "python": str(stack.python),
        "os": stack.os,
        "arch": stack.arch,
        "variant": stack.variant,
        "extras": list(stack.extras),
        "source": stack.source,
        "driver_min": str(stack.driver_min),
        "driver_packaged": None if stack.driver_packaged is None else str(stack.driver_packaged),
        "compute_capabilities": [str(capability) for capability in stack.compute_capabilities],
        "packages": dict(stack.packages),
        "constraints": dict(stack.constraints),
        "fallbacks": [
            {
                "stack": other.stack,
                "driver_min": str(other.driver_min),
                "compute_capabilities": [str(capability) for capability in other.compute_capabilities],
            }
            for other in stack.fallbacks
        ],
        "reasons": [
            {"fact": r.fact, "value": r.value, "because": r.because, "source": r.source}
            for r in stack.reasons
        ],
        "notes": list(stack.notes),
        "matrix": stack.matrix,
    }


def stack_from_dict(doc: object, where: str = "stack.json") -> Stack:
    """Read the document of `stack.json`; raises UsageError naming `where` and the path of the bad value."""
    top = _Node(doc, where, _KEYS)
    framework = _Node(top.value("framework"), f"{where}: framework", ("name", "version", "package"))
    stack = Stack(
        framework=framework.read("name", _matching(r"[a-z][a-z0-9_-]*", "the name of a framework")),
        package=framework.read("package", _package_name),
        version=framework.read("version", _version),
        cuda=top.read("cuda", Cuda.parse),
        cudnn=top.maybe("cudnn", _version),
        nccl=top.maybe("nccl", _version),
        python=top.read("python", Python.parse),
        os=top.read("os", _matching(r"[a-z]+-[a-z0-9.]+", "the name of a base")),
        arch=top.read("arch", _one_of(get_args(Arch))),
        variant=top.read("variant", _one_of(get_args(Variant))),
        extras=top.each("extras", _matching(r"[a-z][a-z0-9-]*", "the name of an extra")),
        source=top.read("source", _matching(r"[a-z][a-z0-9-]*", "the name of an index")),
        driver_min=top.read("driver_min", Driver.parse),
        driver_packaged=top.maybe("driver_packaged", Driver.parse),
        compute_capabilities=top.each("compute_capabilities", Capability.parse),
        packages=top.table("packages", lambda text: str(_version(text))),
        constraints=top.table("constraints", _constraint),
        fallbacks=tuple(
            _fallback(node)
            for node in top.nodes("fallbacks", ("stack", "driver_min", "compute_capabilities"))
        ),
        reasons=tuple(_reason(node) for node in top.nodes("reasons", ("fact", "value", "because", "source"))),
        notes=top.each("notes", str),
        matrix=top.read("matrix", _matching(r"([a-z0-9]+:)?[0-9a-f]*", "a digest")),
    )
    if top.value("identifier") != stack.identifier:
        raise top.wrong("identifier", f"it must be `{stack.identifier}`, which its other values say")
    if stack.package not in stack.packages:
        raise top.wrong("packages", f"it does not hold `{stack.package}`")
    return stack


def _fallback(node: _Node) -> Fallback:
    return Fallback(
        stack=node.read("stack", _matching(r"[a-z][a-z0-9._-]*", "an identifier of a stack")),
        driver_min=node.read("driver_min", Driver.parse),
        compute_capabilities=node.each("compute_capabilities", Capability.parse),
    )


def _reason(node: _Node) -> Reason:
    return Reason(
        fact=node.read("fact", str),
        value=node.read("value", str),
        because=node.read("because", str),
        source=node.maybe("source", str),
    )


class _Node:
    """One object of the document with the path it stands at; every reading error carries that path."""

    def __init__(self, doc: object, path: str, keys: tuple[str, ...]) -> None:
        if not isinstance(doc, dict):
            raise UsageError(f"{path} is not an object", hint=_AGAIN)
        self.doc, self.path = doc, path
        for key in keys:
            self.value(key)
        for key in doc:
            if key not in keys:
                raise self.wrong(str(key), "there is no such key")

    def wrong(self, key: str, why: str) -> UsageError:
        return UsageError(f"{self.path}: `{key}` is not valid", why=why, hint=_AGAIN)

    def value(self, key: str) -> Any:
        if key not in self.doc:
            raise UsageError(f"{self.path} lacks `{key}`", hint=_AGAIN)
        return self.doc[key]

    def text(self, key: str, value: object, parse: Callable[[str], _T]) -> _T:
        if not isinstance(value, str):
            raise self.wrong(key, f"a string belongs there, not {type(value).__name__}")
        if len(value) > _MOST_TEXT or not value.isprintable():
            raise self.wrong(key, f"it is too long or not printable: {value[:40]!a}")
        try:
            return parse(value)
        except ValueError as wrong:
            raise self.wrong(key, str(wrong)) from None

    def read(self, key: str, parse: Callable[[str], _T]) -> _T:
        return self.text(key, self.value(key), parse)

    def maybe(self, key: str, parse: Callable[[str], _T]) -> _T | None:
        return None if self.value(key) is None else self.read(key, parse)

    def array(self, key: str) -> list[object]:
        value = self.value(key)
        if not isinstance(value, list):
            raise self.wrong(key, f"an array belongs there, not {type(value).__name__}")
        return value

    def each(self, key: str, parse: Callable[[str], _T]) -> tuple[_T, ...]:
        return tuple(self.text(f"{key}[{i}]", value, parse) for i, value in enumerate(self.array(key)))

    def nodes(self, key: str, keys: tuple[str, ...]) -> list[_Node]:
        return [_Node(value, f"{self.path}: {key}[{i}]", keys) for i, value in enumerate(self.array(key))]

    def table(self, key: str, parse: Callable[[str], str]) -> dict[str, str]:
        value = self.value(key)
        if not isinstance(value, dict):
            raise self.wrong(key, f"an object belongs there, not {type(value).__name__}")
        return {
            self.text(key, name, _package_name): self.text(f"{key}.{name}", text, parse)
            for name, text in value.items()
        }


_AGAIN = "write it anew with `imgbuild resolve --framework NAME -o PATH`"


def _matching(form: str, wanted: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if not re.fullmatch(form, text):
            raise ValueError(f"`{text}` is not {wanted}")
        return text

    return parse


def _one_of(values: tuple[_T, ...]) -> Callable[[str], _T]:
    def parse(text: str) -> _T:
        for value in values:
            if value == text:
                return value
        raise ValueError(f"`{text}` is not one of {', '.join(f'`{value}`' for value in values)}")

    return parse


def _version(text: str) -> Version:
    if len(text) > 100:
        raise ValueError("a version has 100 characters at most")
    version = Version(text)
    if str(version) != text:
        raise ValueError(f"`{text}` is not in normal form: `{version}`")
    return version


def _package_name(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", text):
        raise ValueError(f"`{text}` is not a normalised package name")
    return text


def _constraint(text: str) -> str:
    found = re.fullmatch(r"(\[[a-z0-9-]+(,[a-z0-9-]+)*\])?([^\[\]]*)", text)
    if not found:
        raise ValueError(f"`{text}` is not a specifier, with extras in brackets before it or without")
    SpecifierSet(found[3])
    return text
