"""The stack manifest of the image, stack.json: what the image promises to hold."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple

DEFAULT_PATH = "/opt/imgbuild/stack.json"


@dataclass(frozen=True)
class Manifest:
    """The values of stack.json that checks compare with; versions are text as the file has them."""

    identifier: str
    framework: str
    framework_version: str
    cuda: Optional[str] = None
    cudnn: Optional[str] = None
    nccl: Optional[str] = None
    python: Optional[str] = None
    arch: Optional[str] = None
    driver_min: Optional[str] = None
    compute_capabilities: Tuple[str, ...] = ()
    extras: Tuple[str, ...] = ()
    packages: Dict[str, str] = field(default_factory=dict)
    fallbacks: Tuple[Dict[str, Any], ...] = ()


class ManifestError(ValueError):
    """The manifest is there but cannot be read as one."""


def read(path: str) -> Optional[Manifest]:
    """Read stack.json; None when there is no such file. Raises ManifestError for a broken one."""
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ManifestError("{} cannot be read: {}".format(path, error)) from error
    try:
        return from_dict(document)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ManifestError("{} is not a stack manifest: {!r}".format(path, error)) from error


def from_dict(document: Dict[str, Any]) -> Manifest:
    """Give the typed form of the document; keys that checks do not use are passed over."""
    texts = {key: document.get(key) for key in ("cuda", "cudnn", "nccl", "python", "arch", "driver_min")}
    for key, value in texts.items():
        if value is not None and not isinstance(value, str):
            raise ValueError("`{}` is not text".format(key))
    return Manifest(
        identifier=str(document.get("identifier") or "unnamed"),
        framework=str(document["framework"]["name"]),
        framework_version=str(document["framework"]["version"]),
        compute_capabilities=tuple(str(value) for value in document.get("compute_capabilities") or ()),
        extras=tuple(str(value) for value in document.get("extras") or ()),
        packages={str(name): str(version) for name, version in (document.get("packages") or {}).items()},
        fallbacks=tuple(dict(other) for other in document.get("fallbacks") or ()),
        **texts,
    )


def numbers(version: str) -> Tuple[int, ...]:
    """Give the leading dotted numbers of a version, to compare drivers: `525.60.13` -> (525, 60, 13)."""
    found: List[int] = []
    for part in version.strip().split("."):
        if not part.isdigit():
            break
        found.append(int(part))
    return tuple(found)
