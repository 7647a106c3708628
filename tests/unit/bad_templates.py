"""Broken and hostile template folders: the files of each, and what the refusal must say."""

from __future__ import annotations

NAME = "pytorch.Dockerfile.j2"
BASE = '{% extends "builtin/pytorch.Dockerfile.j2" %}\n'


def block(text: str) -> str:
    """Give a template that extends the packaged one with this text in a block."""
    return f"{BASE}{{% block environment %}}\n{text}\n{{% endblock %}}\n"


TEMPLATES: dict[str, tuple[str | bytes, tuple[str, ...]]] = {
    "open tag": ("{% if", ("line 1",)),
    "open expression": ("FROM {{ lock", ("line 1",)),
    "unknown tag": ("{% frob %}", ("frob",)),
    "end without begin": ("{% endif %}", ("endif",)),
    "loop without end": (block("{% for x in layers %}"), (NAME,)),
    "undefined name": (block("{{ nothing }}"), ("nothing", "line 3")),
    "undefined attribute": (block("{{ lock.nothing }}"), ("nothing",)),
    "undefined in a condition": (block("{% if nothing %}x{% endif %}"), ("nothing",)),
    "unknown filter": (block("{{ lock.tool | frob }}"), ("frob",)),
    "unknown test": (block("{{ lock is frob }}"), ("frob",)),
    "division by zero": (block("{{ 1 // 0 }}"), ("ZeroDivision",)),
    "text and number": (block("{{ 'a' + 1 }}"), ("TypeError",)),
    "call of a text": (block("{{ lock.tool() }}"), (NAME,)),
    "extends itself": (f'{{% extends "{NAME}" %}}', (NAME,)),
    "includes itself": (f'{{% include "{NAME}" %}}', (NAME,)),
    "extends what is missing": ('{% extends "builtin/none.j2" %}', ("builtin/none.j2",)),
    "extends a path": ('{% extends "../../etc/passwd" %}', ("etc/passwd",)),
    "includes an absolute path": (block('{% include "/etc/passwd" %}'), ("/etc/passwd",)),
    "includes a dot path": (block('{% include "builtin/../builtin/base.Dockerfile.j2" %}'), (NAME,)),
    "imports what is missing": ('{% import "none.j2" as x %}', ("none.j2",)),
    "unknown block of self": (block("{{ self.frob() }}"), ("frob",)),
    "long loop": (
        block("{% for x in range(99999) %}{% for y in range(99999) %}{% endfor %}{% endfor %}"),
        (),
    ),
    "huge range": (block("{{ range(999999999) | list }}"), ()),
    "macro without end": ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", (NAME,)),
    "huge product": (block("{{ 'x' * 999999999 }}"), ("too long",)),
    "huge list": (block("{{ ([1] * 999999999) | length }}"), ("too long",)),
    "huge power": (block("{{ 9 ** 99999999 }}"), ("too large",)),
    "huge format": (block("{{ '%999999999d' | format(1) }}"), ()),
    "huge padding": (block("{{ 'x' | center(999999999) }}"), ()),
    "huge indent": (block("{{ 'x' | indent(999999999, true) }}"), ()),
    "huge replacement": (
        block("{% set x = 'a' * 9999 %}{{ x.replace('a', x).replace('a', x) | length }}"),
        (),
    ),
    "huge join": (block("{% set x = 'a' * 999999 %}{{ x.join(x) | length }}"), ()),
    "doubling": (
        block("{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}"),
        (),
    ),
    "doubling by a sum": (
        block("{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}"),
        (),
    ),
    "huge number as text": (block("{{ (2 ** 900) ** 900 }}"), ()),
    "class of a value": (block("{{ ''.__class__.__mro__ }}"), (NAME,)),
    "globals of a function": (block("{{ lock.stack.__init__.__globals__ }}"), (NAME,)),
    "builtins of a cycler": (block("{{ cycler.__init__.__globals__.os.popen('touch pwned').read() }}"), ()),
    "attribute by a filter": (block("{{ lock | attr('__class__') }}"), (NAME,)),
    "format of an attribute": (block("{{ '{0.__class__.__init__.__globals__}'.format(lock) }}"), (NAME,)),
    "a way to the file system": (block("{{ lock.base.read_text() }}"), (NAME,)),
    "change of a value": (block("{% do layers.append(1) %}"), ("do",)),
    "change of a list": (block("{% set x = [] %}{{ x.append(1) }}"), (NAME,)),
    "random": (block("{{ [1, 2] | random }}"), ("random",)),
    "a line break in a value": (block("ENV X={{ 'a\\nRUN touch pwned' }}"), ("must not enter a Dockerfile",)),
    "a substitution in a value": (block("ENV X={{ '$(touch pwned)' }}"), ("must not enter a Dockerfile",)),
    "backticks in a value": (block("RUN echo {{ '`touch pwned`' }}"), ("must not enter a Dockerfile",)),
    "a quote in a value": (block("RUN echo {{ '\"' }}"), ("must not enter a Dockerfile",)),
    "a semicolon in a value": (block("RUN echo {{ '; touch pwned' }}"), ("must not enter a Dockerfile",)),
    "a marked value": (block("RUN echo {{ '; touch pwned' | safe }}"), ("must not enter a Dockerfile",)),
    "a joined value": (block("RUN echo {{ ['; ', 'touch pwned'] | join }}"), ("must not enter",)),
    "a replaced value": (block("RUN echo {{ 'aXb' | replace('X', '$(id)') }}"), ("must not enter",)),
    "a control character quoted": (block("LABEL a={{ 'a\\nb' | quoted }}"), ("control character",)),
    "a long value": (block("ENV X={{ 'a' * 20000 }}"), ("must not enter a Dockerfile",)),
    "latin-1": (b"# caf\xe9\n", ("UTF-8",)),
    "binary": (b"\x00\xff\xfe", ("UTF-8",)),
    "giant": (b"#" * (2**20 + 1), ("larger than",)),
    "no dockerfile": ("hello\n", ()),
    "nothing": ("", ()),
    "an instruction that is none": ("FROM scratch\nFROB x\n", ()),
    "an open continuation": ("FROM scratch\nRUN echo \\\n", ()),
    "nul": ("FROM scratch\0\n", ()),
}
