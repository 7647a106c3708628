"""Which index is asked, and that nothing else of the environment has a say."""

from pathlib import Path

import pytest

from imagebuilder.errors import OutsideError, UsageError
from imagebuilder.index import (
    AMBIENT,
    DEFAULT_INDEX_VARIABLES,
    Index,
    default_index,
    environment,
    own_index,
    size_of,
    without_credentials,
)

TEMPLATES = {"pytorch": "https://example.org/whl/{variant}"}


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*DEFAULT_INDEX_VARIABLES, "IMGBUILD_INDEX_PYTORCH", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)


def test_without_configuration_uv_decides() -> None:
    """No variable: the index is uv's own default, whose address we do not know."""
    assert default_index() == Index(name="pypi", address=None)


@pytest.mark.parametrize("position", range(len(DEFAULT_INDEX_VARIABLES)))
def test_the_first_variable_that_is_set_wins(position: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours goes before uv's, uv's before pip's."""
    for place, name in enumerate(DEFAULT_INDEX_VARIABLES[position:]):
        monkeypatch.setenv(name, f"https://example.org/{place}")
    assert default_index().address == "https://example.org/0"


def test_extra_indexes_are_never_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Extra indexes, find-links and further settings of pip and uv do not reach the solve."""
    ambient = ["PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "UV_INDEX", "UV_FIND_LINKS", "UV_EXTRA_INDEX_URL",
               "UV_INDEX_STRATEGY", "UV_PRERELEASE", "UV_EXCLUDE_NEWER", "UV_CONSTRAINT", "UV_OFFLINE",
               "UV_CONFIG_FILE", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX"]  # fmt: skip
    for name in ambient:
        monkeypatch.setenv(name, "https://example.org/other")
    monkeypatch.setenv("UV_CACHE_DIR", "/cache")
    settings = environment()
    assert default_index().address is None
    assert not {name for name in settings if name in ambient}
    kept = {name for name in settings if name.startswith(AMBIENT)}
    assert kept <= {"UV_CACHE_DIR", "UV_HTTP_TIMEOUT", "UV_HTTP_RETRIES"}


def test_a_private_authority_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever names the CA bundle, uv gets it under the one name that it knows."""
    monkeypatch.delenv("CURL_CA_BUNDLE", raising=False)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/ca.pem")
    assert environment()["SSL_CERT_FILE"] == "/ca.pem"
    monkeypatch.setenv("SSL_CERT_FILE", "/other.pem")
    assert environment()["SSL_CERT_FILE"] == "/other.pem"


def test_the_own_index_is_a_fact_that_configuration_replaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address comes from the matrix, or from the index's variable; both may hold the variant."""
    assert own_index("pytorch", TEMPLATES, "cu121").address == "https://example.org/whl/cu121"
    monkeypatch.setenv("IMGBUILD_INDEX_PYTORCH", "http://mirror/{variant}/simple")
    assert own_index("pytorch", TEMPLATES, "cu121").address == "http://mirror/cu121/simple"
    with pytest.raises(UsageError):
        own_index("other", TEMPLATES, "cu121")


@pytest.mark.parametrize(
    "address",
    ["example.org", "ftp://example.org", "https://a b", "https://a\nb", "https://$(id)", "`id`", "-h"],
)
def test_what_is_no_address_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken variable is named, its value is not shown: it may hold a password."""
    monkeypatch.setenv("PIP_INDEX_URL", address)
    with pytest.raises(UsageError, match="PIP_INDEX_URL") as caught:
        default_index()
    assert address not in caught.value.what


def test_credentials_are_not_shown() -> None:
    """An address is shown without user and password."""
    index = Index(name="pypi", address="https://user:p%40ss@example.org:8443/simple")
    assert index.shown == without_credentials(str(index.address)) == "https://example.org:8443/simple"


def test_the_size_of_a_file_on_this_host(tmp_path: Path) -> None:
    """A file index gives no sizes: they are read from the files; a file that is gone is named."""
    path = tmp_path / "a b.whl"
    path.write_bytes(b"12345")
    index = Index(name="pypi", address=tmp_path.as_uri())
    assert size_of(path.as_uri(), index) == 5
    with pytest.raises(OutsideError, match=r"gone\.whl"):
        size_of((tmp_path / "gone.whl").as_uri(), index)
