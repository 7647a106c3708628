"""Malformed requests: the words of a command line, and what the refusal must say."""

from __future__ import annotations

from typing import NamedTuple

USAGE, UNMET, OUTSIDE = 2, 3, 4


class Bad(NamedTuple):
    """One malformed command line; `says` must all stand in the message."""

    words: tuple[str, ...]
    code: int
    says: tuple[str, ...] = ()


def request(*words: str) -> tuple[str, ...]:
    """Give the words of a `resolve` that is sound but for `words`."""
    return ("resolve", "--framework", "pytorch", *words)


# Text that means something to a shell, a Dockerfile, a template, a terminal or a file system.
HOSTILE = {
    "empty": "",
    "blank": " ",
    "newline": "\n",
    "long": "9" * 5000,
    "substitution": "$(touch pwned)",
    "backticks": "`touch pwned`",
    "semicolon": "12.1; touch pwned",
    "instruction": "12.1\nRUN touch pwned",
    "quote": "'",
    "double-quote": '"',
    "backslash": "\\",
    "variable": "${HOME}",
    "path": "../../pwned",
    "template": "{{ 7 * 7 }}",
    "escape": "\x1b[31m",
    "bell": "12.1\x07",
    "bidi": "\u202e1.21",
    "zero-width": "12.1\u200b",
    "fullwidth": "\uff11\uff12.\uff11",
    "arabic": "\u0663.\u0661\u0661",
    "surrogate": "\udcff",
    "format": "%s%n",
    "option": "--cuda",
    "huge": "99999999999999999999.1",
    "comma": "12,1",
    "list": "[12.1]",
    "nan": "NaN",
}
VERSION_OPTIONS = ("--cuda", "--cudnn", "--python", "--driver", "--os", "--gpu", "--source")
CHOICES = ("--arch", "--variant", "--format")

REQUESTS: dict[str, Bad] = {
    "nothing": Bad((), USAGE, ("a command is missing", "imgbuild --help")),
    "unknown command": Bad(("biuld",), USAGE, ("`biuld`", "did you mean `build`")),
    "command of control characters": Bad(("\x1b[2J",), USAGE, (r"\x1b[2J",)),
    "unknown option": Bad(("--zzz",), USAGE, ("--zzz",)),
    "unknown option of a command": Bad(request("--cuad", "12.1"), USAGE, ("--cuad", "--cuda")),
    "option without value": Bad(request("--cuda"), USAGE, ("--cuda", "requires an argument")),
    "extra word": Bad(request("12.1"), USAGE, ("unexpected extra argument",)),
    "option behind the dashes": Bad(request("--", "--cuda", "12.1"), USAGE, ("--cuda",)),
    "no framework": Bad(("resolve", "--cuda", "12.1"), USAGE, ("`--framework` is missing",)),
    "framework by version alone": Bad(("resolve", "-f", "==2.4"), USAGE, ("does not begin with",)),
    "unknown framework": Bad(("resolve", "-f", "pytroch"), USAGE, ("pytroch", "pytorch")),
    "broken specifier": Bad(("resolve", "-f", "pytorch=>2.1"), USAGE, ("PEP 440",)),
    "specifier of an address": Bad(("resolve", "-f", "torch @ https://example.org/x.whl"), USAGE),
    "specifier with extras": Bad(("resolve", "-f", "pytorch[cuda]==2.4"), USAGE, ("version specifier",)),
    "specifier with a marker": Bad(("resolve", "-f", "pytorch==2.4; os_name=='x'"), USAGE),
    "specifier with shell": Bad(("resolve", "-f", "pytorch==2.4$(touch pwned)"), USAGE),
    "specifier of many parts": Bad(("resolve", "-f", "pytorch" + "==1," * 90), USAGE, ("200",)),
    "no such release": Bad(("resolve", "-f", "pytorch==99.1"), UNMET, ("99.1",)),
    "empty range": Bad(("resolve", "-f", "pytorch>3,<2"), UNMET),
    "cuda of a patch": Bad(request("--cuda", "12.1.1"), USAGE, ("--cuda 12.1",)),
    "cuda of a major": Bad(request("--cuda", "12"), USAGE),
    "cuda by tag": Bad(request("--cuda", "cu121"), USAGE, ("--cuda 12.1",)),
    "cuda negative": Bad(request("--cuda", "-12.1"), USAGE),
    "cuda zero": Bad(request("--cuda", "0.0"), USAGE),
    "cuda not in the matrix": Bad(request("--cuda", "12.7"), UNMET),
    "cudnn not in the matrix": Bad(request("--cudnn", "9999999999999999999"), UNMET),
    "python 2": Bad(request("--python", "2.7"), USAGE),
    "python by tag": Bad(request("--python", "cp311"), USAGE, ("--python 3.11",)),
    "python patch": Bad(request("--python", "3.11.7"), USAGE, ("--python 3.11",)),
    "python without wheels": Bad(request("--python", "3.99"), UNMET),
    "driver of a name": Bad(request("--driver", "latest"), USAGE),
    "driver too old for all": Bad(request("--driver", "100.1"), UNMET),
    "driver with text": Bad(request("--driver", "535.104.05-open"), USAGE),
    "os unknown": Bad(request("--os", "alpine-3"), USAGE, ("debian-12",)),
    "os as an image": Bad(request("--os", "nvidia/cuda:latest"), UNMET, ("is gone",)),
    "gpu unknown": Bad(request("--gpu", "RTX 9999"), USAGE, ("RTX 9999",)),
    "gpu capability zero": Bad(request("--gpu", "0.0"), USAGE, ("0.0",)),
    "gpu target zero": Bad(request("--gpu", "sm_00"), USAGE, ("sm_00",)),
    "gpu target that is none": Bad(request("--gpu", "sm_999"), USAGE, ("99.9",)),
    "gpu list": Bad(request("--gpu", "V100,A100"), USAGE),
    "second gpu wrong": Bad(request("--gpu", "A100", "--gpu", "$(id)"), USAGE, ("$(id)",)),
    "source as an address": Bad(request("--source", "https://example.org/simple"), USAGE),
    "source unknown": Bad(request("--source", "conda"), USAGE, ("conda",)),
    "arch of another name": Bad(request("--arch", "x86_64"), USAGE, ("amd64",)),
    "variant of the compiler": Bad(request("--variant", "devel"), USAGE, ("runtime",)),
    "format unknown": Bad(request("--format", "yaml"), USAGE, ("json",)),
    "given twice, the last one wrong": Bad(request("--cuda", "12.1", "--cuda", "x"), USAGE, ("`x`",)),
    "flag with a value": Bad(request("--explain=yes"), USAGE, ("--explain",)),
    "output into nothing": Bad(request("-o", "missing/stack.json"), OUTSIDE, ("missing/stack.json",)),
    "output onto a folder": Bad(request("-o", "folder"), OUTSIDE, ("`folder`",)),
    "output below a file": Bad(request("-o", "file/stack.json"), OUTSIDE, ("file/stack.json",)),
    "output without a name": Bad(request("-o", ""), OUTSIDE),
    "output of a long name": Bad(request("-o", "x" * 300), OUTSIDE),
    "show: empty framework": Bad(("matrix", "show", "-f", ""), USAGE, ("is empty",)),
    "show: empty cuda": Bad(("matrix", "show", "--cuda", ""), USAGE, ("is empty",)),
    "show: empty python": Bad(("matrix", "show", "--python", ""), USAGE, ("is empty",)),
    "show: empty driver": Bad(("matrix", "show", "--driver", ""), USAGE, ("is empty",)),
    "show: empty os": Bad(("matrix", "show", "--os", ""), USAGE, ("is empty",)),
    "show: os with an escape": Bad(("matrix", "show", "--os", "\x1b[31m"), USAGE, (r"\x1b[31m",)),
    "show: gpu zero": Bad(("matrix", "show", "--gpu", "0.0"), USAGE),
    "show: unknown framework": Bad(("matrix", "show", "-f", "tensorflwo"), USAGE),
    "matrix alone": Bad(("matrix",), USAGE, ("a command is missing",)),
    "matrix unknown": Bad(("matrix", "udpate"), USAGE),
    "validate a missing file": Bad(("matrix", "validate", "no.yaml"), USAGE, ("no.yaml",)),
    "validate a folder": Bad(("matrix", "validate", "folder"), USAGE, ("is a folder",)),
    "lock nothing": Bad(("lock",), USAGE, ("neither",)),
    "lock both": Bad(("lock", "--stack", "s.json", "-f", "pytorch"), USAGE, ("exclude",)),
    "lock a stack and a cuda": Bad(("lock", "--stack", "s.json", "--cuda", "12.1"), USAGE, ("--cuda",)),
    "lock an odd stack name and a cuda": Bad(
        ("lock", "--stack", "$(id)", "--cuda", "12.1"), USAGE, ("--stack '$(id)'",)
    ),
    "lock a missing stack": Bad(("lock", "--stack", "s.json"), USAGE, ("s.json",)),
    "lock a folder as a stack": Bad(("lock", "--stack", "folder"), USAGE, ("folder",)),
    "lock from a base unknown": Bad(("lock", "-f", "pytorch", "--base", "scratch"), USAGE, ("bootstrap",)),
    "render nothing": Bad(("render",), USAGE, ("`--framework` is missing",)),
    "render both": Bad(("render", "--lock", "x.lock", "-f", "pytorch"), USAGE, ("exclude",)),
    "render a missing lock": Bad(("render", "--lock", "x.lock"), USAGE, ("x.lock",)),
    "render a file as a lock": Bad(("render", "--lock", "file"), USAGE, ("file",)),
    "render an empty folder as a lock": Bad(("render", "--lock", "folder"), USAGE, ("image.json",)),
    "render a lock of a long name": Bad(("render", "--lock", "x" * 5000), USAGE),
    "render for an unknown user": Bad(("render", "-f", "pytorch", "--user", "0:0"), USAGE, ("trainer",)),
    "build nothing": Bad(("build",), USAGE, ("`--framework` is missing",)),
    "build both": Bad(("build", "--lock", "a;b", "-f", "pytorch"), USAGE, ("--lock 'a;b'",)),
    "build without an engine": Bad(("build", "-f", "pytorch"), OUTSIDE, ("engine",)),
    "build a clash without an engine": Bad(("build", "-f", "pytorch", "--cuda", "12.7"), UNMET),
    "build a missing lock without an engine": Bad(("build", "--lock", "x.lock"), USAGE, ("x.lock",)),
    "tag without a tag": Bad(("build", "-f", "pytorch", "--tag", "image"), USAGE, ("reference",)),
    "tag in capitals": Bad(("build", "-f", "pytorch", "--tag", "Team/Image:1"), USAGE, ("reference",)),
    "tag by digest": Bad(("build", "-f", "pytorch", "--tag", "a@sha256:" + "0" * 64), USAGE),
    "tag with a comma": Bad(("build", "-f", "pytorch", "--tag", "a:1,push=true"), USAGE),
    "tag with a blank": Bad(("build", "-f", "pytorch", "--tag", "a b:1"), USAGE),
    "tag of an address": Bad(("build", "-f", "pytorch", "--tag", "https://example.org/a:1"), USAGE),
    "tag with shell": Bad(("build", "-f", "pytorch", "--tag", "a:$(id)"), USAGE),
    "tag too long": Bad(("build", "-f", "pytorch", "--tag", "a:" + "1" * 200), USAGE),
    "tag with a line": Bad(("build", "-f", "pytorch", "--tag", "a:1\n"), USAGE),
    "one tag of two": Bad(("build", "-f", "pytorch", "--tag", "a:1", "--tag", "B:1"), USAGE, ("`B:1`",)),
    "output nowhere": Bad(("build", "-f", "pytorch", "--output", ""), USAGE, ("oci:PATH",)),
    "output oci without a path": Bad(("build", "-f", "pytorch", "--output", "oci:"), USAGE),
    "output with more options": Bad(("build", "-f", "pytorch", "--output", "oci:a,type=local"), USAGE),
    "output of buildx": Bad(("build", "-f", "pytorch", "--output", "type=local,dest=/"), USAGE),
    "output registry untagged": Bad(("build", "-f", "pytorch", "--output", "registry"), USAGE, ("--tag",)),
    "all of nothing": Bad(("build", "--all"), USAGE, ("--framework",)),
    "all and a file": Bad(("build", "--all", "-f", "pytorch", "--requests", "file"), USAGE, ("--requests",)),
    "all of a lock": Bad(("build", "--all", "--lock", "file"), USAGE, ("a lock of its own",)),
    "all that cannot be": Bad(("render", "--all", "-f", "pytorch==2.4.1", "--gpu", "B200"), UNMET),
    "every framework without all": Bad(("build", "-f", "all"), USAGE, ("all",)),
    "one tag for many": Bad(("build", "--requests", "file", "--tag", "a:1"), USAGE, ("--tag",)),
    "requests missing": Bad(("build", "--requests", "no.toml"), USAGE, ("no.toml",)),
    "requests in a folder": Bad(("render", "--requests", "folder"), USAGE, ("folder",)),
    "requests not in TOML": Bad(("render", "--requests", "file"), USAGE, ("TOML",)),
    "progress unknown": Bad(("build", "-f", "pytorch", "--progress", "tty"), USAGE),
    "suite unknown": Bad(("build", "-f", "pytorch", "--suite", "all"), USAGE),
    "no test, gpu required": Bad(("build", "-f", "pytorch", "--no-test", "--require-gpu"), USAGE),
    "no test, reported": Bad(("build", "-f", "pytorch", "--no-test", "--report", "r"), USAGE),
    "report onto a file": Bad(("build", "-f", "pytorch", "--report", "file"), USAGE, ("file",)),
    "test nothing": Bad(("test",), USAGE, ("IMAGE",)),
    "test without an engine": Bad(("test", "image:1"), OUTSIDE, ("engine",)),
    "test two images": Bad(("test", "a:1", "b:1"), USAGE),
    "gpus negative": Bad(("test", "a:1", "--gpus", "-1"), USAGE, ("--gpus",)),
    "gpus zero": Bad(("test", "a:1", "--gpus", "0"), USAGE),
    "gpus many": Bad(("test", "a:1", "--gpus", "9999"), USAGE),
    "gpus by device": Bad(("test", "a:1", "--gpus", "device=0"), USAGE),
    "gpus in other digits": Bad(("test", "a:1", "--gpus", "²"), USAGE),
    "test suite unknown": Bad(("test", "a:1", "--suite", ""), USAGE),
    "test report onto a file": Bad(("test", "a:1", "--report", "file"), USAGE),
    "doctor of an image": Bad(("doctor", "image:1"), USAGE),
    "doctor with a broken matrix": Bad(("doctor", "--matrix", "file"), USAGE, ("file:2",)),
    "templates missing": Bad(("render", "-f", "pytorch", "--templates", "no"), USAGE, ("`no`",)),
    "templates of a file": Bad(("render", "-f", "pytorch", "--templates", "file"), USAGE, ("`file`",)),
    "build with templates missing": Bad(("build", "-f", "pytorch", "--templates", "no"), USAGE, ("`no`",)),
    "requirements missing": Bad(("build", "-f", "pytorch", "-r", "no.txt"), USAGE, ("no.txt",)),
    "requirements of a folder": Bad(("lock", "-f", "pytorch", "-r", "folder"), USAGE, ("folder",)),
    "requirements of an address": Bad(("lock", "-f", "pytorch", "-r", "https://example.org/r"), USAGE),
}

REQUESTS |= {
    f"{option} {name}": Bad(request(option, text), USAGE)
    for option in (*VERSION_OPTIONS, *CHOICES)
    for name, text in HOSTILE.items()
    if (option, name) != ("--cudnn", "huge")  # well formed, see above
}
REQUESTS |= {
    f"--framework {name}": Bad(("resolve", "--framework", text), USAGE) for name, text in HOSTILE.items()
}
REQUESTS |= {
    f"{option} {name} of a build": Bad(("build", "-f", "pytorch", option, text), USAGE)
    for option in ("--tag", "--output", "--matrix", "--templates", "--lock", "-r")
    for name, text in HOSTILE.items()
    if (option, text) != ("--templates", "")  # the current folder
}
REQUESTS |= {
    f"--{option} {name} of a build": Bad(("build", "-f", "pytorch", f"--{option}", text), USAGE)
    for option in ("progress", "suite", "user", "base")
    for name, text in list(HOSTILE.items())[:8]
}
