"""Where matrix.yaml and templates/ lie: inside an installed wheel, or at the top of a checkout."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_DATA = _PACKAGE / "_data"


def matrix_path() -> Path:
    """Give the packaged matrix.yaml."""
    return _find("matrix.yaml")


def templates_path() -> Path:
    """Give the folder of the packaged templates."""
    return _find("templates")


def checks_path() -> Path:
    """Give the folder of the smoke checks that are copied into images."""
    return _PACKAGE / "checks"


def _find(name: str) -> Path:
    packaged = _DATA / name
    return packaged if packaged.exists() else _PACKAGE.parent / name
