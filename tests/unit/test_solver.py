"""What is asked of uv, and what its answers mean."""

import tomllib

import pytest

from imagebuilder.errors import OutsideError
from imagebuilder.index import Index
from imagebuilder.matrix.words import Glibc, Python
from imagebuilder.solver import (
    Question,
    UnsatisfiableError,
    _command,
    _failure,
    _indexes,
    _project,
    explanation,
)


def question(**changes: object) -> Question:
    """Ask for torch on a Debian 12."""
    facts: dict[str, object] = {
        "requirements": ("torch==2.4.1", 'tomli; python_version < "3.11"'),
        "python": Python.parse("3.11"),
        "machine": "x86_64",
        "glibc": Glibc.parse("2.36"),
        "default": Index(name="pypi", address="https://user:pass@example.org/simple"),
    }
    return Question(**{**facts, **changes})  # type: ignore[arg-type]


OWN = Index(name="pytorch", address="https://example.org/whl/cu121")


def test_the_target_decides_and_not_the_host() -> None:
    """Python, machine and glibc of the image go into the command."""
    command = " ".join(_command(question(machine="aarch64", python=Python.parse("3.13"))))
    assert "--python-version 3.13 --python-platform aarch64-manylinux_2_36" in command
    assert "--only-binary :all:" in command
    assert "--no-config" in command


def test_a_glibc_newer_than_uv_knows_is_asked_for_as_the_newest_it_knows() -> None:
    """Wheels for an older glibc run on a newer one."""
    assert "x86_64-manylinux_2_40" in _command(question(glibc=Glibc.parse("2.41")))


def test_credentials_are_not_on_the_command_line() -> None:
    """Every user of the host can read command lines; addresses go through the environment."""
    assert "pass" not in " ".join(_command(question(own=OWN, from_own=("torch",))))
    assert _indexes(question())["UV_DEFAULT_INDEX"] == "https://user:pass@example.org/simple"


def test_the_framework_is_bound_to_its_own_index() -> None:
    """One index for the framework and its companions; for others it comes after the default one."""
    asked = question(own=OWN, from_own=("torch", "torchvision"))
    document = tomllib.loads(_project(asked))
    assert document["tool"]["uv"]["sources"] == {
        "torch": {"index": "pytorch"},
        "torchvision": {"index": "pytorch"},
    }
    assert document["project"]["dependencies"] == list(asked.requirements)
    assert [one.partition("=")[0] for one in _indexes(asked)["UV_INDEX"].split()] == ["pypi", "pytorch"]


def test_a_folder_that_is_gone_is_named(tmp_path: object) -> None:
    """A missing folder is an error, where uv takes it for an empty index."""
    with pytest.raises(OutsideError, match="not there"):
        _indexes(question(default=Index(name="pypi", address="file:///nonexistent/simple")))


@pytest.mark.parametrize(
    ("text", "meaning", "hint"),
    [
        ("error: Failed to fetch: https://example.org/a/\n  cause: invalid peer certificate: UnknownIssuer",
         "certificate", "SSL_CERT_FILE"),
        ("error: Failed to fetch\n  cause: dns error", "cannot be found", "IMGBUILD_INDEX_PYPI"),
        ("error: Failed to fetch\n  cause: error sending request\n cause: Connection refused",
         "cannot be reached", "imgbuild doctor"),
        ("error: Request failed after 3 retries in 4.6s\n  cause: HTTP status server error (500)",
         "cannot be read", "imgbuild doctor"),
        ("error: No solution found\n\nhint: An index URL (https://u:p@example.org) could not be queried, a "
         "lack of valid authentication credentials (401 Unauthorized)",
         "wants credentials", "IMGBUILD_INDEX_PYPI"),
        ("error: No solution found\n\nhint: An index returned a 403 Forbidden error.",
         "refuses", "credentials"),
        ("error: something new", "could not solve", "doctor"),
        ("", "could not solve", "doctor"),
    ],
)  # fmt: skip
def test_a_fault_of_the_index_is_not_the_users(text: str, meaning: str, hint: str) -> None:
    """Each fault outside has its own words and a next step, and shows no credentials."""
    error = _failure(question(), text)
    assert isinstance(error, OutsideError)
    assert meaning in error.what
    assert hint in str(error.hint)
    assert "u:p" not in f"{error.what}{error.why}{error.hint}"
    assert "user:pass" not in f"{error.what}{error.why}{error.hint}"


def test_the_index_at_fault_is_named() -> None:
    """Of two indexes the one whose address uv complains of is named, with its own variable."""
    text = "error: Failed to fetch: https://example.org/whl/cu121/torch/\n  cause: dns error"
    error = _failure(question(own=OWN, from_own=("torch",)), text)
    assert isinstance(error, OutsideError)
    assert "`pytorch`" in error.what
    assert "IMGBUILD_INDEX_PYTORCH" in str(error.hint)


def test_an_explanation_is_one_line_without_options_of_uv() -> None:
    """The reasons of uv are kept, its name for the question and its advice on its own options are not."""
    text = (
        "error: No solution found when resolving dependencies\n"
        "  cause: Because a==1 depends on torch==2.5.1 and imgbuild-image depends on torch==2.4.1,\n"
        "         we can conclude that your requirements are unsatisfiable.\n\n"
        "hint: use `--index-strategy unsafe-best-match`\n\n"
        "hint: Wheels are available for `a` on the following platform: `win_amd64`\n"
    )
    error = _failure(question(), text)
    assert isinstance(error, UnsatisfiableError)
    assert str(error) == explanation(text)
    assert "the image asks for torch==2.4.1" in str(error)
    assert "win_amd64" in str(error)
    assert "unsafe-best-match" not in str(error)
    assert "\n" not in str(error)
