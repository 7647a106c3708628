"""The name of an image: a repository and a tag, in the grammar of the OCI distribution specification."""

from __future__ import annotations

import re

from imagebuilder.errors import UsageError

REFERENCE = re.compile(
    r"(?:[A-Za-z0-9.-]+(?::[0-9]{1,5})?/)?[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*"
    r":[A-Za-z0-9_][A-Za-z0-9._-]{0,127}"
)


def parse_reference(text: str) -> str:
    """Read a reference that an engine and a registry accept; raises UsageError."""
    if REFERENCE.fullmatch(text):
        return text
    raise UsageError(
        f"`{text}` is not a reference such as `registry.example.com/team/image:tag`",
        hint="imgbuild build --framework pytorch --tag team/image:1",
    )
