"""Matrix files laid over each other: whole rows by key, never field by field."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from imagebuilder.matrix.read import Reader, Where

Place = tuple[Path, int]


class Layers:
    """The document that several read files make together, and the file and line of everything in it."""

    def __init__(self) -> None:
        self.plain: dict[str, Any] = {}
        self.places: dict[Where, Place] = {}

    def lay(self, reader: Reader) -> None:
        """Add the rows of a file, replacing rows of the same key.

        Rows of most sections are keyed by name, those of `packages` by package and version; `clashes` have
        no key and are appended. A framework with nothing but `releases` adds to the framework of that name,
        release by release; any other replaces it as a whole.
        """
        lines = dict(reader.lines)
        for section, rows in reader.plain.items():
            if section == "clashes":
                self._append(reader, rows, lines)
            elif not isinstance(rows, dict):
                self._replace((section,), rows)
            else:
                for name, row in rows.items():
                    self._row((section, name), row)
        self.places.update((where, (reader.path, line)) for where, line in lines.items())

    def place(self, where: Where) -> Place:
        """Give the file and line of the nearest thing on the way to this place."""
        while where not in self.places and where:
            where = where[:-1]
        return self.places.get(where, (Path(), 1))

    def _row(self, where: Where, row: Any) -> None:
        held = self._at(where)
        nested = where[0] == "packages"
        if where[0] == "frameworks" and set(row) == {"releases"} and held is not None:
            where, row, nested = (*where, "releases"), row["releases"], True
            held = held["releases"]
        if nested and held is not None:
            for name, one in row.items():
                self._replace((*where, name), one)
        else:
            self._replace(where, row)

    def _at(self, where: Where) -> Any:
        here: Any = self.plain
        for name in where:
            here = here.get(name) if isinstance(here, dict) else None
        return here

    def _replace(self, where: Where, row: Any) -> None:
        if self._at(where) is not None:
            self.places = {place: at for place, at in self.places.items() if place[: len(where)] != where}
        here = self.plain
        for name in where[:-1]:
            here = here.setdefault(str(name), {})
        here[str(where[-1])] = row

    def _append(self, reader: Reader, rows: list[Any], lines: dict[Where, int]) -> None:
        held = self.plain.setdefault("clashes", [])
        for where in [one for one in lines if one[:1] == ("clashes",) and len(one) > 1]:
            line = lines.pop(where)
            moved: Where = ("clashes", int(where[1]) + len(held), *where[2:])
            self.places[moved] = (reader.path, line)
        held.extend(rows)
