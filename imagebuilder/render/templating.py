"""Templates: where they are looked up, and a renderer that lets no unchecked value into a Dockerfile."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Any

from imagebuilder.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from jinja2 import TemplateSyntaxError

    from imagebuilder.render.sandbox import Rendered, Sandbox

# What a value may consist of when it enters a Dockerfile unquoted: no quotes, `$`, backslash, backquote,
# `#`, `;`, `&`, `|`, `<`, line breaks or anything else that means something to the shell or the Dockerfile.
PLAIN = re.compile(r"[A-Za-z0-9 .,_+:/@=()~-]*")
QUOTABLE = re.compile(r"[^\x00-\x1f\x7f]*")
LONGEST_TEMPLATE = 2**20
LONGEST_VALUE = 10_000
MOST_TEMPLATES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Templates:
    """The text of every template by name; packaged ones also under `builtin/`, which nothing overrides."""

    files: Mapping[str, bytes] = field(default_factory=dict)

    def digest(self, names: Collection[str]) -> str:
        """Give one digest over these names and their contents."""
        total = sha256()
        for name in sorted(names):
            content = self.read(name)
            total.update(f"{name}\0{len(content)}\0".encode())
            total.update(content)
        return f"sha256:{total.hexdigest()}"

    def read(self, name: str) -> bytes:
        """Give one file; raises UsageError with the names there are."""
        if name not in self.files:
            known = ", ".join(sorted(key for key in self.files if not key.startswith("builtin/")))
            raise UsageError(f"no template `{name}`", why=f"templates found: {known}")
        return self.files[name]


def load_templates(packaged: Path, overrides: Sequence[Path]) -> Templates:
    """Read the packaged templates and the user's folders, the first of which wins.

    Raises UsageError for a folder that cannot be read or a file that is not a small UTF-8 text.
    """
    files: dict[str, bytes] = {}
    for name, content in _read_folder(packaged).items():
        files[name] = files[f"builtin/{name}"] = content
    for folder in reversed(overrides):
        files.update(_read_folder(folder))
    return Templates(files=files)


def _read_folder(folder: Path) -> dict[str, bytes]:
    try:
        if not folder.is_dir():
            raise UsageError(f"no folder of templates at `{folder}`", hint="imgbuild render --help")
        paths = list(islice(_walk(folder), MOST_TEMPLATES + 1))
    except OSError as error:
        raise UsageError(f"cannot read the templates in `{folder}`", why=error.strerror) from error
    if len(paths) > MOST_TEMPLATES:
        raise UsageError(
            f"more than {MOST_TEMPLATES} files in `{folder}`", why="it is no folder of templates"
        )
    files = {}
    for path in paths:
        name = path.relative_to(folder).as_posix()
        if name.startswith("builtin/"):
            raise UsageError(
                f"`{path}` lies in a folder `builtin`", why="`builtin/` names the packaged templates"
            )
        if not name.isprintable():  # also what is not UTF-8 in it
            raise UsageError(f"{name!r} in `{folder}` is no name of a template")
        files[name] = _read_text(path)
    return files


def _walk(folder: Path) -> Iterator[Path]:
    """Give the files of a folder, hidden ones left out; a link must lead to a file, so there are no loops."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name == "__pycache__":
            continue
        if path.is_file():
            yield path
        elif path.is_dir() and not path.is_symlink():
            yield from _walk(path)
        else:
            raise UsageError(f"`{path}` is neither a file nor a folder")


def _read_text(path: Path) -> bytes:
    try:
        if path.stat().st_size > LONGEST_TEMPLATE:
            raise UsageError(f"template `{path}` is larger than {LONGEST_TEMPLATE} bytes")
        content = path.read_bytes()
        content.decode()
    except OSError as error:
        raise UsageError(f"cannot read template `{path}`", why=error.strerror) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"template `{path}` is not UTF-8 text", why=str(error)) from error
    return content


def quoted(value: object) -> Rendered:
    """Quote a value for a Dockerfile instruction; raises UsageError for control characters."""
    from imagebuilder.render.sandbox import Rendered

    text = str(value)
    if not QUOTABLE.fullmatch(text):
        raise UsageError(f"a control character in {_shown(text)} must not enter a Dockerfile")
    for special in ("\\", '"', "$"):
        text = text.replace(special, f"\\{special}")
    return Rendered(f'"{text}"')


def _checked(value: object) -> object:
    """Refuse a value that could mean something to the shell or to the Dockerfile parser."""
    from imagebuilder.render.sandbox import Rendered

    if isinstance(value, Rendered):
        return value
    text = str(value)
    if len(text) > LONGEST_VALUE or not PLAIN.fullmatch(text):
        raise UsageError(
            f"the value {_shown(text)} must not enter a Dockerfile",
            why=f"at most {LONGEST_VALUE} letters, digits and ` .,_+:/@=()~-` may;"
            " a template can quote it with `| quoted`",
        )
    return text


def _shown(text: str) -> str:
    """Give the beginning of a text for a message."""
    return repr(text if len(text) <= 100 else f"{text[:100]}...")


def render_text(templates: Templates, name: str, values: Mapping[str, Any]) -> str:
    """Render one template; raises UsageError with the template's name and line where it is broken."""
    from jinja2 import TemplateError, TemplateSyntaxError

    from imagebuilder.render.sandbox import bounded

    templates.read(name)
    try:
        template = _sandbox(templates).get_template(name)
        with bounded(templates.files):
            return str(template.render(values))
    except TemplateSyntaxError as error:
        raise _broken(error, name) from error
    except UsageError as error:
        raise UsageError(f"{_place(error, templates, name)}: {error.what}", why=error.why) from error
    except (
        TemplateError,
        ArithmeticError,
        AttributeError,
        LookupError,
        MemoryError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        why = f"{type(error).__name__}: {error}"
        raise UsageError(f"{_place(error, templates, name)} cannot be rendered", why=why) from error


def used_by(templates: Templates, name: str) -> frozenset[str]:
    """Give the names of the templates that one is made of: itself, what it extends, includes and imports.

    A template that computes such a name may use any. Raises UsageError where one is broken or missing.
    """
    from jinja2 import TemplateSyntaxError, meta

    sandbox = _sandbox(templates)
    found: set[str] = set()
    pending = [name]
    while pending:
        one = pending.pop()
        found.add(one)
        try:
            named = set(meta.find_referenced_templates(sandbox.parse(templates.read(one).decode(), one)))
        except TemplateSyntaxError as error:
            raise _broken(error, one) from error
        if None in named:
            return frozenset(templates.files)
        pending += [other for other in templates.files if other in named and other not in found]
    return frozenset(found)


def _sandbox(templates: Templates) -> Sandbox:
    from imagebuilder.render.sandbox import Sandbox

    return Sandbox(
        lambda key: templates.files[key].decode() if key in templates.files else None, _checked, quoted
    )


def _broken(error: TemplateSyntaxError, name: str) -> UsageError:
    return UsageError(f"template `{error.name or name}` is broken at line {error.lineno}", why=error.message)


def _place(error: Exception, templates: Templates, name: str) -> str:
    """Say in which template and line something went wrong: the innermost one of the traceback."""
    place = f"template `{name}`"
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename in templates.files:
            place = f"template `{trace.tb_frame.f_code.co_filename}`, line {trace.tb_lineno},"
        trace = trace.tb_next
    return place.removesuffix(",") if isinstance(error, UsageError) else place
