"""A request is parsed once, at the edge: good text gives typed values, any other text a usage error."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

from imagebuilder import request as asked
from imagebuilder.errors import UsageError
from imagebuilder.request import command, parse_request

PARSERS = (
    asked.parse_framework,
    asked.parse_cuda,
    asked.parse_cudnn,
    asked.parse_python,
    asked.parse_os,
    asked.parse_arch,
    asked.parse_variant,
    asked.parse_gpu,
    asked.parse_driver,
    asked.parse_source,
    asked.parse_requirements,
)

WRONG = [
    ("parse_framework", "pytorch=2.3", "pytorch==2.3"),
    ("parse_framework", "pytorch 2.3.1", "pytorch==2.3.1"),
    ("parse_framework", "pytorch==2.4;rm -rf /", "pytorch==2.4"),
    ("parse_framework", "pytorch==2.4$(id)", "pytorch==2.4"),
    ("parse_framework", "pytorch==2.4`id`", None),
    ("parse_framework", "pytorch==2.4\nRUN id", None),
    ("parse_framework", "pytorch[cuda]", None),
    ("parse_framework", "==2.4", None),
    ("parse_framework", "", None),
    ("parse_framework", "../torch", None),
    ("parse_framework", "pytorch" + "9" * 300, None),
    ("parse_framework", "pytorch==x.y", None),
    ("parse_framework", "pytorch>=2,,<3=", None),
    ("parse_cuda", "12", "--cuda 12.1"),
    ("parse_cuda", "cu121", "--cuda 12.1"),
    ("parse_cuda", "12.4.1", "--cuda 12.4"),
    ("parse_cuda", "twelve", "--cuda"),
    ("parse_cuda", "12.1;", "--cuda"),
    ("parse_cuda", "12.1\u202e", None),
    ("parse_python", "3.11.4", "--python 3.11"),
    ("parse_python", "cp312", "--python 3.12"),
    ("parse_python", "2.7", "--python"),
    ("parse_python", "3", "--python"),
    ("parse_python", "3.\u0661\u0661", None),
    ("parse_driver", "abc", "--driver"),
    ("parse_driver", "525.60.13.1", "--driver"),
    ("parse_driver", "-525", "--driver"),
    ("parse_cudnn", "nine", "--cudnn"),
    ("parse_cudnn", "9;", "--cudnn"),
    ("parse_os", "Debian 12", "--os debian-12"),
    ("parse_os", "debian-12 && id", "--os"),
    ("parse_arch", "x86_64", "--arch amd64"),
    ("parse_arch", "linux/arm64", "--arch arm64"),
    ("parse_arch", "riscv", "--arch amd64"),
    ("parse_variant", "devel", "--variant runtime"),
    ("parse_gpu", 'V100"\nRUN id', None),
    ("parse_gpu", "$(id)", "--gpu"),
    ("parse_gpu", "A" * 65, None),
    ("parse_source", "https://example.org/simple", "--source pypi"),
    ("parse_source", "PyPI", "--source pypi"),
    ("parse_requirements", "", None),
    ("parse_requirements", "a\x00b", None),
    ("parse_requirements", "x" * 5000, None),
]


@pytest.mark.parametrize(("parser", "text", "hint"), WRONG)
def test_wrong_text_is_a_usage_error(parser: str, text: str, hint: str | None) -> None:
    """Text outside a field's grammar is refused with exit code 2 and a value that would do."""
    with pytest.raises(UsageError) as caught:
        getattr(asked, parser)(text)
    assert caught.value.exit_code == 2
    assert hint is None or hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("text", "name", "spec"),
    [
        ("pytorch", "pytorch", ""),
        ("PyTorch==2.3.1", "pytorch", "==2.3.1"),
        (" pytorch >= 2.1 , < 2.4 ", "pytorch", ">=2.1,<2.4"),
        ("torch~=2.1", "torch", "~=2.1"),
        ("pytorch==2.5.1+cu121", "pytorch", "==2.5.1+cu121"),
        ("pytorch!=2.2.0", "pytorch", "!=2.2.0"),
    ],
)
def test_framework_is_name_and_specifier(text: str, name: str, spec: str) -> None:
    """NAME[SPEC] gives the lower-case name and the PEP 440 specifier."""
    assert asked.parse_framework(text) == (name, SpecifierSet(spec))


@pytest.mark.parametrize(
    ("text", "spec"),
    [("9", "==9.*"), ("9.1", "==9.1.*"), ("9.1.0.70", "==9.1.0.70"), (">=9.1,<10", ">=9.1,<10")],
)
def test_bare_cudnn_version_means_all_beneath_it(text: str, spec: str) -> None:
    """A bare cuDNN version stands for every release beneath it, a full one for itself."""
    assert asked.parse_cudnn(text) == SpecifierSet(spec)


def test_repeated_options_count_once() -> None:
    """A GPU or source that is named twice is one constraint; sources keep their order."""
    request = parse_request(
        framework="pytorch", gpus=("V100", "V100"), sources=("pytorch", "pypi", "pytorch")
    )
    assert request.gpus == ("V100",)
    assert request.sources == ("pytorch", "pypi")


def test_command_reads_back_as_the_same_request() -> None:
    """The command of a request, read by a shell and parsed again, is that request."""
    request = parse_request(
        framework="pytorch>=2.1,<2.4", cuda="12.1", cudnn=">=8,<9", python="3.10", os="ubuntu-22.04",
        arch="arm64",
        gpus=("RTX 5090", "sm_90"), driver="525.60.13", sources=("pytorch",), requirements=("my reqs.txt",),
    )  # fmt: skip
    assert _parse_command(command(request)) == request


@pytest.mark.parametrize("parser", PARSERS)
@given(text=st.text(max_size=60))
@example(text="\ud800")
@example(text="3.\u0661\u0661")
def test_no_text_breaks_a_parser(parser: object, text: str) -> None:
    """Whatever is typed, a parser gives a value or a usage error; no shell or Dockerfile syntax passes."""
    try:
        value = parser(text)  # type: ignore[operator]
    except UsageError:
        return
    shown = "".join(map(str, value)) if isinstance(value, tuple) else str(value)
    assert shown.isprintable()
    if parser is not asked.parse_requirements:
        assert not set(shown) & set("\n\r\0`$;&|\"'\\#")


def _parse_command(text: str) -> asked.Request:
    """Parse the text of a `resolve` command as the command line does."""
    names = {"--gpu": "gpus", "--source": "sources", "-r": "requirements"}
    words = shlex.split(text)
    assert words[:2] == ["imgbuild", "resolve"]
    options: dict[str, object] = {}
    for option, value in zip(words[2::2], words[3::2], strict=True):
        if option in names:
            options.setdefault(names[option], []).append(value)  # type: ignore[attr-defined]
        else:
            options[option.removeprefix("--")] = value
    return parse_request(**options)  # type: ignore[arg-type]
