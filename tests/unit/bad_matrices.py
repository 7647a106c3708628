"""Broken matrix files for `--matrix`: what each holds, and what the refusal must say."""

from __future__ import annotations

from small_matrix import SMALL

DEEP = 3000


def row(text: str) -> bytes:
    """Give a file that adds one GPU with this text among its facts."""
    return (
        "schema: 1\ngpus:\n  Mine:\n    capability: '7.0'\n    arch: Volta\n    kind: datacenter\n"
        "    tensor_cores: [fp16]\n    amp: fp16\n    cuda_first: '9.0'\n    forward_compat: 'yes'\n"
        f"    {text}\n"
    ).encode()


def changed(old: str, new: str) -> bytes:
    """Give the small matrix, which is sound and complete, with one thing changed."""
    assert old in SMALL
    return SMALL.replace(old, new, 1).encode()


def bomb() -> bytes:
    """Give a small file that is huge once its aliases are written out."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    return "\n".join(lines).encode()


# Laid over the packaged matrix.
MATRICES: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "no schema": (b"gpus: {}\n", ("ours.yaml:1: lacks `schema`", "has a problem")),
    "empty": (b"", ("is empty",)),
    "blank": (b"  \n\n", ("is empty",)),
    "comment": (b"# nothing\n", ("is empty",)),
    "null": (b"null\n", ("wants a mapping",)),
    "a text": (b"hello\n", ("wants a mapping",)),
    "a number": (b"42\n", ("wants a mapping",)),
    "a list": (b"- a\n- b\n", ("wants a mapping",)),
    "json of another thing": (b'{"a": 1}', ("knows no `a`",)),
    "two documents": (b"gpus: {}\n---\ngpus: {}\n", ("is not YAML",)),
    "nul bytes": (b"gpus:\0\n", ("is not YAML",)),
    "control characters": (b"gpus: {a\x01b: {}}\n", ("is not YAML",)),
    "utf-16": ("gpus: {}".encode("utf-16"), ("is not UTF-8",)),
    "latin-1": (b"gpus: {caf\xe9: {}}\n", ("is not UTF-8",)),
    "an executable": (b"\x7fELF\x02\x01\x01" + bytes(range(256)) * 20, ("is not UTF-8",)),
    "a compressed file": (b"\x1f\x8b\x08\x00\x00\x00\x00\x00", ("is not UTF-8",)),
    "open bracket": (b"gpus: [\n", ("is not YAML",)),
    "open quote": (b"gpus: 'abc\n", ("is not YAML",)),
    "tabs": (b"gpus:\n\tV100: {}\n", ("is not YAML",)),
    "bad indentation": (b"gpus:\n  a: {}\n b: {}\n", ("is not YAML",)),
    "deep list": (b"gpus: " + b"[" * DEEP, ()),
    "deep mapping": (b"{a: " * DEEP, ()),
    "deep and closed": (b"gpus: " + b"[" * DEEP + b"]" * DEEP, ()),
    "alias bomb": (bomb(), ()),
    "alias": (b"gpus: {a: &x {arch: y}, b: *x}\n", ("aliases are not allowed",)),
    "alias to itself": (b"gpus: &a\n  b: *a\n", ()),
    "alias unknown": (b"gpus: *nobody\n", ("is not YAML",)),
    "merge key": (b"gpus: {a: {<<: {arch: x}}}\n", ()),
    "python object": (b"gpus: !!python/object/apply:os.system ['touch pwned']\n", ()),
    "python name": (b"gpus: !!python/name:os.system\n", ()),
    "binary tag": (row("note: !!binary aGVsbG8="), ("note",)),
    "own tag": (row("note: !mine hello"), ("note",)),
    "set": (b"gpus: !!set {a, b}\n", ()),
    "timestamp": (row("note: 2026-01-01"), ("quote it",)),
    "unknown section": (b"gpu: {}\n", ("knows no `gpu`", "did you mean `gpus`")),
    "section of a list": (b"gpus: []\n", ("wants a mapping, not a list",)),
    "section of a text": (b"gpus: V100\n", ("wants a mapping",)),
    "section twice": (b"gpus: {}\ngpus: {}\n", ("is there twice",)),
    "row twice": (b"gpus:\n  a: {}\n  a: {}\n", ("is there twice",)),
    "number as a key": (b"toolkits: {12.1: {}}\n", ("quote it: '12.1'",)),
    "null as a key": (b"gpus: {null: {}}\n", ("texts as keys",)),
    "list as a key": (b"? [a, b]\n: c\n", ("texts as keys",)),
    "empty key": (b"gpus: {'': {}}\n", ("printable",)),
    "key of an escape": (b'gpus: {"\\e[31m": {}}\n', ("printable",)),
    "row of nothing": (b"schema: 1\ngpus: {V100: }\n", ("gpus.V100",)),
    "row without facts": (b"gpus: {V100: {}}\n", ("lacks `capability`",)),
    "row with an unknown fact": (row("memroy: 16 GB"), ("did you mean `memory`",)),
    "fact of a list": (row("note: [a]"), ("wants a text, not a list",)),
    "fact of a mapping": (row("note: {a: b}"), ("wants a text, not a mapping",)),
    "fact of nothing": (row("note:"), ("is empty",)),
    "fact of blanks": (row("note: ' '"), ("note",)),
    "fact of a line break": (row('note: "a\\nRUN touch pwned"'), ("note",)),
    "fact with an escape": (row('note: "\\e[31m"'), ("note",)),
    "fact of a number": (row("note: 42"), ("quote it",)),
    "number of a text": (row("driver_branch_first: many"), ("whole number",)),
    "number negative": (row("driver_branch_first: -1"), ("above 0",)),
    "number huge": (row("driver_branch_first: 99999999999999999999"), ("driver_branch_first",)),
    "number of many digits": (row("driver_branch_first: " + "9" * 5000), ("driver_branch_first",)),
    "number octal": (row("driver_branch_first: 0o17"), ("driver_branch_first",)),
    "number infinite": (row("driver_branch_first: .inf"), ("driver_branch_first",)),
    "driver of a text": (row("driver_min: newest"), ("a driver version",)),
    "driver of a float": (row("driver_min: 525.60"), ("quote it",)),
    "alias of a number": (row("aliases: [100]"), ("quote it",)),
    "source unknown": (row("src: {capability: nowhere}"), ("nowhere",)),
    "source of another fact": (row("src: {colour: A}"), ("colour",)),
    "source of shell": (row("src: {capability: $(touch pwned)}"), ("capability",)),
    "base with shell": (
        b"schema: 1\nbases:\n  debian-99:\n    distribution: debian\n    suite: $(touch pwned)\n"
        b"    bootstrap: true\n"
        b"    image: 'a;b'\n    glibc: '2.36'\n    python: '3.11'\n    gcc: 12\n    machines: [x86_64]\n",
        ("suite", "image"),
    ),
    "base of a path": (
        b"schema: 1\nbases:\n  debian-9/../..:\n    distribution: debian\n    suite: bookworm\n"
        b"    bootstrap: true\n"
        b"    image: 'docker.io/library/debian:12'\n    glibc: '2.36'\n    python: '3.11'\n    gcc: 12\n"
        b"    machines: [x86_64]\n",
        ("debian-9/../..",),
    ),
    "a second default base": (
        b"schema: 1\nbases:\n  debian-99:\n    distribution: debian\n    suite: forky\n    bootstrap: true\n"
        b"    image: 'docker.io/library/debian:forky'\n    glibc: '2.36'\n    python: '3.11'\n    gcc: 12\n"
        b"    machines: [x86_64]\n    default: true\n",
        ("default",),
    ),
}

# Complete ones.
WHOLE: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "framework of a path": (changed("  pytorch:\n    package", "  ../pwned:\n    package"), ("../pwned",)),
    "package with shell": (changed("package: torch", "package: torch;id"), ("package",)),
    "index of another scheme": (changed("https://example.org/whl/", "ftp://example.org/"), ("indexes",)),
    "index with shell": (changed("https://example.org/whl/", "https://e.org/$(id)"), ("indexes",)),
    "index with an option": (changed("'https://example.org/whl/", "'--index-url="), ("indexes",)),
    "pin with shell": (changed("nvidia-nccl-cu12: '2.18.1'", "nvidia-nccl-cu12: '2;id'"), ("pins",)),
    "pin of a name with shell": (changed("      nvidia-nccl-cu12:", "      'a$(id)':"), ("a$(id)",)),
    "version with shell": (changed("version: '2.1.0'", "version: '2.1.0$(id)'"), ("version",)),
    "dangling toolkit": (changed("cuda: '12.1'", "cuda: '12.9'"), ("unknown toolkit `12.9`",)),
    "dangling index": (changed("source: own", "source: other"), ("other",)),
    "dangling cudnn": (
        changed("cudnn: '8.9.2.26'\n            nccl", "cudnn: '8.9.9'\n            nccl"),
        (),
    ),
    "schema of the future": (changed("schema: 1", "schema: 2"), ("schema",)),
    "schema of a text": (changed("schema: 1", "schema: one"), ("schema",)),
}
