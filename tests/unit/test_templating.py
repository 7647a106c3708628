"""Templates: how they are found, and that no unchecked value and no broken template gets through."""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imagebuilder.errors import UsageError
from imagebuilder.lint.dockerfile import unquote
from imagebuilder.render.templating import (
    MOST_TEMPLATES,
    Templates,
    load_templates,
    quoted,
    render_text,
    used_by,
)

if TYPE_CHECKING:
    from pathlib import Path


def _render(text: str, /, **values: object) -> str:
    return render_text(Templates(files={"t.j2": text.encode()}), "t.j2", values)


def _refusal(text: str, /, **values: object) -> UsageError:
    with pytest.raises(UsageError) as caught:
        _render(text, **values)
    return caught.value


@pytest.mark.parametrize(
    "character", [*"\n\r\t\"'$`#\\;&|<>{}*?!%^[]", "\0", "\x1b", "\x7f", "\x85", "é", "\u2028"]
)
def test_refuses_a_value_with_a_character_that_means_something(character: str) -> None:
    """A printed value holds no character that the shell or the Dockerfile parser would act on."""
    error = _refusal("FROM x\n# {{ value }}\n", value=f"a{character}b")
    assert error.what.startswith("template `t.j2`, line 2: the value ")
    assert "must not enter a Dockerfile" in error.what


@pytest.mark.parametrize("value", ["${HOME}", "$(id)", "a\nRUN id", "x # y", "{{ 7 * 7 }}", "<<EOF"])
def test_refuses_a_value_that_would_be_code(value: str) -> None:
    """Expansions, new lines, comments and heredocs are refused."""
    _refusal("{{ value }}", value=value)


@given(st.text())
def test_a_printed_value_is_plain_or_refused(value: str) -> None:
    """Whatever the value, what comes out is the value and plain, or nothing comes out."""
    try:
        out = _render("{{ value }}", value=value)
    except UsageError:
        return
    assert out == value
    assert re.fullmatch(r"[A-Za-z0-9 .,_+:/@=()~-]*", out)


@given(st.text())
def test_a_quoted_value_reads_back_as_itself(value: str) -> None:
    """What `quoted` gives is one word that BuildKit reads as the value; control characters are refused."""
    try:
        out = _render("{{ value | quoted }}", value=value)
    except UsageError as error:
        assert re.search(r"[\x00-\x1f\x7f]", value), error.what
        return
    assert "\n" not in out
    assert unquote(out, {"HOME": "/root"}) == value


def test_what_is_done_to_quoted_text_is_checked_again() -> None:
    """Text that a filter or `~` made of quoted text is no longer trusted."""
    assert quoted("a b") == '"a b"'
    _refusal("{{ (value | quoted) ~ value }}", value="$x")
    _refusal("{{ value | quoted | upper }}", value="$x")
    _refusal("{{ value | safe }}", value="$x")


def test_blocks_and_macros_may_be_printed() -> None:
    """`super()`, macros and block assignments give several lines; the values in them were checked."""
    files = {
        "base": b"{% block a %}\nRUN x && y\n{% endblock %}",
        "t.j2": b'{% extends "base" %}{% macro m(v) %}RUN "{{ v }}"\n{% endmacro %}'
        b"{% block a %}{{ super() }}{{ m(value) }}{% endblock %}",
    }
    assert render_text(Templates(files=files), "t.j2", {"value": "ok"}) == 'RUN x && y\nRUN "ok"\n'
    with pytest.raises(UsageError, match="must not enter"):
        render_text(Templates(files=files), "t.j2", {"value": "$x"})


def test_an_undefined_name_is_an_error_with_its_line() -> None:
    """A name that does not exist is never printed as nothing."""
    error = _refusal("FROM x\n\n{{ lock.stak }}", lock=object())
    assert error.what == "template `t.j2`, line 3, cannot be rendered"
    assert "has no attribute 'stak'" in str(error.why)


def test_the_line_is_that_of_the_template_with_the_fault() -> None:
    """In a template that extends another, the error names the one that is wrong."""
    files = {
        "base": b"a\n{% block x %}{% endblock %}",
        "t.j2": b'{% extends "base" %}\n{% block x %}\n{{ no }}{% endblock %}',
    }
    with pytest.raises(UsageError, match=r"template `t\.j2`, line 3"):
        render_text(Templates(files=files), "t.j2", {})


@pytest.mark.parametrize(
    ("text", "line"),
    [("{% for x in y %}", 1), ("a\n{{ 1 + }}", 2), ("a\n\n{% nonsense %}", 3), ("{{ x | nofilter }}", 1)],
)
def test_a_syntax_error_names_template_and_line(text: str, line: int) -> None:
    """A template that Jinja cannot read is a usage error, not a traceback."""
    assert _refusal(text).what == f"template `t.j2` is broken at line {line}"


@pytest.mark.parametrize(
    "text",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ lock.__init__.__globals__ }}",
        "{{ '{0.__class__.__mro__}'.format(1) }}",
        "{{ self._TemplateReference__context.environment.loader }}",
        "{{ self.__init__.__globals__.__builtins__.open('/etc/passwd').read() }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{% set x = lock.__class__.__bases__ %}{{ x }}",
        "{{ lock.items.append(1) }}",
        "{% include '/etc/passwd' %}",
        "{% import '../../etc/passwd' as x %}",
    ],
)
def test_the_sandbox_holds(text: str) -> None:
    """A template reaches neither Python's internals nor files beside the templates, and changes no value."""

    class Value:
        items = [1]  # noqa: RUF012

    _refusal(text, lock=Value())
    assert Value.items == [1]


@pytest.mark.parametrize(
    "text",
    [
        "{% for i in range(10**9) %}x{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% set r = range(9999) %}{% for i in r %}{% for j in r %}{% endfor %}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
        "{% include 't.j2' %}",
        "{{ 'a' * 10**9 }}",
        "{{ 'a' | center(10**7) }}",
        "{% for i in range(99) %}{% for j in range(999) %}{{ 'a' | center(99) }}{% endfor %}{% endfor %}",
        "{% extends 't.j2' %}",
        "{{ 10 ** 10 ** 10 }}",
    ],
)
def test_a_rendering_ends(text: str) -> None:
    """Endless recursion, huge ranges and huge texts are refused within seconds."""
    start = time.monotonic()
    _refusal(text)
    assert time.monotonic() - start < 10


@pytest.mark.parametrize("text", ["{{ lipsum() }}", "{{ [1, 2, 3] | random }}"])
def test_nothing_is_left_to_chance(text: str) -> None:
    """What Jinja offers of randomness is not there."""
    _refusal(text)


def test_a_missing_template_lists_those_found() -> None:
    """A wrong name is answered with the names there are, without the packaged duplicates."""
    with pytest.raises(UsageError, match="no template `x`") as caught:
        Templates(files={"a.j2": b"", "builtin/a.j2": b""}).read("x")
    assert caught.value.why == "templates found: a.j2"


def test_an_extended_template_that_is_missing_is_named() -> None:
    """A typo behind `extends` is told with the line."""
    error = _refusal('{% extends "builtin/nothing.j2" %}')
    assert "builtin/nothing.j2" in str(error.why)
    assert "line 1" in error.what


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Give a folder of packaged templates and an empty one of the user."""
    packaged, own = tmp_path / "packaged", tmp_path / "own"
    packaged.mkdir()
    own.mkdir()
    (packaged / "a.j2").write_text("packaged a")
    (packaged / "b.j2").write_text("packaged b")
    return packaged, own


def test_a_users_template_replaces_one_and_leaves_the_rest(folders: tuple[Path, Path]) -> None:
    """One file in the user's folder replaces that one; `builtin/` still gives the packaged one."""
    (folders[1] / "a.j2").write_text("own a")
    templates = load_templates(folders[0], [folders[1]])
    assert templates.read("a.j2") == b"own a"
    assert templates.read("b.j2") == b"packaged b"
    assert templates.read("builtin/a.j2") == b"packaged a"


def test_the_first_folder_wins(folders: tuple[Path, Path], tmp_path: Path) -> None:
    """With several folders, the first that has a template gives it."""
    other = tmp_path / "other"
    other.mkdir()
    for folder in (folders[1], other):
        (folder / "a.j2").write_text(folder.name)
    assert load_templates(folders[0], [folders[1], other]).read("a.j2") == b"own"


def _digest(folders: tuple[Path, Path]) -> str:
    templates = load_templates(folders[0], [folders[1]])
    return templates.digest(templates.files)


def test_the_digest_follows_the_files(folders: tuple[Path, Path]) -> None:
    """The digest changes with a name or a content, and with nothing else; hidden files do not count."""
    before = _digest(folders)
    (folders[1] / ".git").mkdir()
    (folders[1] / ".git" / "index").write_bytes(b"\xff")
    os.utime(folders[0] / "a.j2", (0, 0))
    assert _digest(folders) == before
    (folders[1] / "a.j2").write_text("own a")
    assert _digest(folders) != before


def test_used_are_a_template_and_all_that_it_names() -> None:
    """What it extends, includes and imports, at any depth; a computed name may be any of them."""
    files = {
        "a": b'{% extends "b" %}{% block x %}{% include "c" %}{% include "e" ignore missing %}{% endblock %}',
        "b": b'{% import "d" as d %}{% block x %}{% endblock %}',
        "c": b"",
        "d": b"",
        "other": b"",
    }
    templates = Templates(files=files)
    assert used_by(templates, "a") == {"a", "b", "c", "d"}
    assert used_by(templates, "c") == {"c"}
    any_of_them = Templates(files={**files, "c": b"{% include name %}"})
    assert used_by(any_of_them, "a") == set(files)
    with pytest.raises(UsageError, match="template `c` is broken at line 1"):
        used_by(Templates(files={**files, "c": b"{% if %}"}), "a")


def _not_utf8(folder: Path) -> None:
    (folder / "a.j2").write_bytes(b"FROM caf\xe9")


def _too_large(folder: Path) -> None:
    (folder / "a.j2").write_bytes(b"#" * (2**20 + 1))


def _link_loop(folder: Path) -> None:
    (folder / "a.j2").symlink_to("b.j2")
    (folder / "b.j2").symlink_to("a.j2")


def _folder_loop(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "up").symlink_to("..")


def _dangling(folder: Path) -> None:
    (folder / "a.j2").symlink_to("nowhere")


def _pipe(folder: Path) -> None:
    os.mkfifo(folder / "a.j2")


def _builtin(folder: Path) -> None:
    (folder / "builtin").mkdir()
    (folder / "builtin" / "a.j2").write_text("")


def _too_many(folder: Path) -> None:
    for number in range(MOST_TEMPLATES + 1):
        (folder / f"{number}.j2").touch()


def _odd_name(folder: Path) -> None:
    (folder / "a\nb.j2").touch()


def _name_not_utf8(folder: Path) -> None:
    (folder / os.fsdecode(b"caf\xe9.j2")).touch()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_not_utf8, "is not UTF-8 text"),
        (_too_large, "is larger than"),
        (_link_loop, "is neither a file nor a folder"),
        (_folder_loop, "is neither a file nor a folder"),
        (_dangling, "is neither a file nor a folder"),
        (_pipe, "is neither a file nor a folder"),
        (_builtin, "lies in a folder `builtin`"),
        (_too_many, "more than 1000 files"),
        (_odd_name, "is no name of a template"),
        (_name_not_utf8, "is no name of a template"),
    ],
)
def test_a_folder_that_cannot_be_used_is_refused(
    folders: tuple[Path, Path], make: object, words: str
) -> None:
    """Files that are no small UTF-8 texts, loops of links and pipes are told, not skipped or hung on."""
    make(folders[1])  # type: ignore[operator]
    with pytest.raises(UsageError, match=words):
        load_templates(folders[0], [folders[1]])


@pytest.mark.parametrize("name", ["nothing", "packaged/a.j2", "x" * 5000])
def test_a_missing_folder_is_refused(tmp_path: Path, folders: tuple[Path, Path], name: str) -> None:
    """A folder that is not there, a file in its place and an impossible name are usage errors."""
    with pytest.raises(UsageError):
        load_templates(folders[0], [tmp_path / name])
