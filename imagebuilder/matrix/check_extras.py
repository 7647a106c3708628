"""What the rows of `extras` must hold: names that exist, requirements that are plain, packages of apt."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement

from imagebuilder.matrix.findings import Finding, dangling

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagebuilder.matrix.facts import Matrix

# The key that stands for every framework.
ANY = "any"
_NAME = re.compile(r"[a-z][a-z0-9-]*")
# The names of packages, as Debian policy has them.
_DEB = re.compile(r"[a-z0-9][a-z0-9+.-]+")


def check_extras(matrix: Matrix) -> Iterator[Finding]:
    """Find what is wrong with the extras."""
    for name, extra in matrix.extras.items():
        if not _NAME.fullmatch(name):
            yield Finding(("extras", name), f"`{name}` is not a name of lower-case words")
        if not extra.requires and not extra.debs:
            yield Finding(("extras", name), "it adds nothing: `requires` or `debs` is missing")
        for framework, lines in extra.requires.items():
            where = ("extras", name, "requires", framework)
            known = (ANY, *matrix.frameworks)
            yield from dangling(where, "framework", framework, known, ("frameworks",))
            for number, line in enumerate(lines):
                if not _is_plain(line):
                    yield Finding((*where, number), f"`{line}` is not a requirement by name and version")
        for number, deb in enumerate(extra.debs):
            if not _DEB.fullmatch(deb):
                yield Finding(("extras", name, "debs", number), f"`{deb}` is not the name of a package")


def _is_plain(line: str) -> bool:
    try:
        requirement = Requirement(line)
    except InvalidRequirement:
        return False
    return requirement.url is None and requirement.marker is None
