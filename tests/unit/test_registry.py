"""References, mirrors and the distribution protocol, against a registry that refuses in every way they do."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imagebuilder.errors import OutsideError, UsageError
from imagebuilder.registry import (
    INDEXES,
    MANIFESTS,
    Reference,
    RemoteImage,
    build_contexts,
    digest_of,
    find_image,
    place_of,
)

DIGEST = "sha256:" + "0123456789abcdef" * 4
CONFIG = json.dumps(
    {
        "os": "linux",
        "architecture": "amd64",
        "config": {"Env": ["PATH=/bin", "LD_LIBRARY_PATH=/usr/local/cuda/lib64"]},
    }
).encode()
MANIFEST = json.dumps(
    {
        "schemaVersion": 2,
        "mediaType": MANIFESTS[0],
        "config": {"digest": digest_of(CONFIG), "size": len(CONFIG)},
        "layers": [{"digest": DIGEST, "size": 70}, {"digest": DIGEST, "size": 7}],
    }
).encode()
INDEX = json.dumps(
    {
        "schemaVersion": 2,
        "mediaType": INDEXES[0],
        "manifests": [
            {"digest": DIGEST, "platform": {"os": "linux", "architecture": "s390x"}},
            {"digest": digest_of(MANIFEST), "platform": {"os": "linux", "architecture": "amd64"}},
            {"digest": DIGEST, "platform": {"os": "unknown", "architecture": "unknown"}},
        ],
    }
).encode()


class Registry:
    """A registry on the loopback address: answers by path, scripted refusals first, everything noted."""

    def __init__(self) -> None:
        """Serve one small image as `base:12`."""
        self.files = {
            "/v2/base/manifests/12": INDEX,
            f"/v2/base/manifests/{digest_of(MANIFEST)}": MANIFEST,
            f"/v2/base/blobs/{digest_of(CONFIG)}": CONFIG,
        }
        self.refusals: list[tuple[int, dict[str, str], bytes]] = []
        self.token: str | None = None
        self.login: str | None = None
        self.redirect: str | None = None
        self.stall = 0.0
        self.seen: list[tuple[str, str | None]] = []
        self.host = ""

    def answer(self, path: str, authorization: str | None) -> tuple[int, dict[str, str], bytes]:
        """Give status, headers and body."""
        time.sleep(self.stall)
        self.seen.append((path, authorization))
        if self.refusals:
            return self.refusals.pop(0)
        if path.startswith("/token"):
            if self.login and authorization != self.login:
                return 401, {}, b"{}"
            return 200, {}, json.dumps({"token": self.token}).encode()
        if self.token and authorization != f"Bearer {self.token}":
            realm = f'Bearer realm="http://{self.host}/token",service="here"'
            return 401, {"WWW-Authenticate": realm}, b"{}"
        if self.redirect and "/blobs/" in path:
            return 307, {"Location": f"{self.redirect}{path}"}, b""
        if path not in self.files:
            errors = {"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}
            return 404, {}, json.dumps(errors).encode()
        return 200, {"Content-Type": "application/json"}, self.files[path]


@contextmanager
def served(registry: Registry) -> Iterator[Registry]:
    """Serve a registry on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = registry.answer(self.path, self.headers.get("Authorization"))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.host = f"127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[Registry]:
    """Give a registry that has `base:12`, asked by somebody without logins."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.delenv("IMGBUILD_REGISTRY_MIRROR", raising=False)
    with served(Registry()) as running:
        yield running


def find(
    registry: Registry, reference: str = "base:12", arch: str = "amd64", seconds: float = 5
) -> RemoteImage:
    """Find an image of the registry."""
    return find_image(f"{registry.host}/{reference}", arch, seconds=seconds)


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("debian", "docker.io/library/debian:latest"),
        ("debian:12", "docker.io/library/debian:12"),
        ("docker.io/library/debian:bookworm-slim", "docker.io/library/debian:bookworm-slim"),
        ("nvidia/cuda:12.1.1-devel-ubuntu22.04", "docker.io/nvidia/cuda:12.1.1-devel-ubuntu22.04"),
        ("localhost:5000/a/b", "localhost:5000/a/b:latest"),
        ("localhost/a", "localhost/a:latest"),
        ("r.example.org/a_b/c--d:1", "r.example.org/a_b/c--d:1"),
        (f"127.0.0.1:5000/a:1@{DIGEST}", "127.0.0.1:5000/a:1"),
    ],
)
def test_references_are_read_as_docker_reads_them(text: str, whole: str) -> None:
    """A missing host is Docker Hub, a bare name is in its library, a missing tag is `latest`."""
    assert str(Reference.parse(text)) == whole
    assert str(Reference.parse(whole)) == whole


def test_a_digest_is_asked_for_before_the_tag() -> None:
    """A reference with both names the content by digest."""
    assert Reference.parse(f"debian:12@{DIGEST}").wanted == DIGEST
    assert Reference.parse("debian:12").wanted == "12"


@pytest.mark.parametrize(
    "text", ["", "Debian", "a b", "a:b:c", "a@sha256:12", "-a", "a//b", "a\nRUN x", "$(x)", "../a"]
)
def test_what_is_no_reference_is_refused(text: str) -> None:
    """Malformed references are usage errors, those that try to inject among them."""
    with pytest.raises(UsageError, match="is not the reference of an image"):
        Reference.parse(text)


@given(st.text(max_size=80))
def test_any_text_is_a_reference_or_a_usage_error(text: str) -> None:
    """No text gives a traceback, and what is accepted holds nothing a shell or a Dockerfile would read."""
    try:
        reference = Reference.parse(text)
    except UsageError:
        return
    assert not set(str(reference)) & set(" \t\n\"'`$\\;&|<>(){}")
    assert Reference.parse(str(reference)).name == reference.name


@pytest.mark.parametrize(
    ("mirror", "address", "name"),
    [
        ("mirror.example.org", "https://mirror.example.org", "library/debian"),
        ("mirror.example.org:8443/hub/", "https://mirror.example.org:8443", "hub/library/debian"),
        ("http://10.0.0.1:5000", "http://10.0.0.1:5000", "library/debian"),
        ("localhost:5000/a/b", "http://localhost:5000", "a/b/library/debian"),
        ("127.0.0.1:5000", "http://127.0.0.1:5000", "library/debian"),
    ],
)
def test_a_mirror_stands_in_for_docker_hub_alone(
    mirror: str, address: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hub images are asked of the mirror, over TLS but on this host or where configured so."""
    monkeypatch.setenv("IMGBUILD_REGISTRY_MIRROR", mirror)
    place = place_of(Reference.parse("debian:12"))
    assert (place.address, place.name) == (address, name)
    other = place_of(Reference.parse("r.example.org/debian:12"))
    assert (other.address, other.name) == ("https://r.example.org", "debian")


@pytest.mark.parametrize("mirror", ["a b", "ftp://x", "http://", "host/$(x)", "user:pw@host"])
def test_a_broken_mirror_is_a_usage_error(mirror: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mirror that is no address is refused before anything is asked."""
    monkeypatch.setenv("IMGBUILD_REGISTRY_MIRROR", mirror)
    with pytest.raises(UsageError, match="IMGBUILD_REGISTRY_MIRROR"):
        find_image("debian:12", "amd64")


def test_builds_take_the_base_from_the_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Dockerfile names Docker Hub; the mirror comes in as a build context of that name."""
    image = "docker.io/library/debian:12"
    monkeypatch.setenv("IMGBUILD_REGISTRY_MIRROR", "localhost:5000/hub")
    assert build_contexts(image, DIGEST) == {
        f"{image}@{DIGEST}": f"docker-image://localhost:5000/hub/library/debian@{DIGEST}"
    }
    monkeypatch.delenv("IMGBUILD_REGISTRY_MIRROR")
    assert build_contexts(image, DIGEST) == {}


def test_an_image_is_found_with_its_environment(registry: Registry) -> None:
    """A tag gives the platform's manifest digest, the index's, and the environment; no layer is read."""
    found = find(registry)
    assert found == RemoteImage(
        reference=f"{registry.host}/base:12",
        source=f"{registry.host}/base@{digest_of(MANIFEST)}",
        digest=digest_of(MANIFEST),
        index=digest_of(INDEX),
        platform="linux/amd64",
        environment={"PATH": "/bin", "LD_LIBRARY_PATH": "/usr/local/cuda/lib64"},
        size=77,
    )
    assert len(registry.seen) == 3


def test_an_image_without_an_index_is_found(registry: Registry) -> None:
    """A tag may name a manifest at once; its platform is in the configuration."""
    registry.files["/v2/base/manifests/12"] = MANIFEST
    assert find(registry).index is None
    with pytest.raises(OutsideError, match="has no image for linux/arm64") as caught:
        find(registry, arch="arm64")
    assert caught.value.why == "it has linux/amd64"


def test_a_missing_platform_names_those_there_are(registry: Registry) -> None:
    """An index without the platform is an error that lists its platforms, attestations left out."""
    with pytest.raises(OutsideError, match="has no image for linux/arm64") as caught:
        find(registry, arch="arm64")
    assert caught.value.why == "it has linux/amd64, linux/s390x"


def test_a_token_is_fetched_and_used(registry: Registry) -> None:
    """An anonymous token of the service in the challenge opens a public image."""
    registry.token = "t0ken"
    assert find(registry).digest == digest_of(MANIFEST)
    assert ("/token?scope=repository%3Abase%3Apull&service=here", None) in registry.seen


def test_a_stored_login_is_sent_to_the_token_service(registry: Registry, tmp_path: Any) -> None:
    """The login of `docker login` opens a private image; a wrong one says which command mends it."""
    registry.token, registry.login = "t0ken", "Basic dTpw"
    with pytest.raises(OutsideError, match="does not show `base` to us") as caught:
        find(registry)
    assert (caught.value.why, caught.value.hint) == ("it wants a login", f"docker login {registry.host}")
    (tmp_path / "config.json").write_text(json.dumps({"auths": {registry.host: {"auth": "dTpw"}}}))
    assert find(registry).digest == digest_of(MANIFEST)
    (tmp_path / "config.json").write_text(json.dumps({"auths": {registry.host: {"auth": "dTp4"}}}))
    with pytest.raises(OutsideError) as caught:
        find(registry)
    assert caught.value.why == "it does not take the stored login"


def test_a_basic_challenge_takes_the_stored_login(registry: Registry, tmp_path: Any) -> None:
    """A registry with a password of its own gets it."""
    (tmp_path / "config.json").write_text(json.dumps({"auths": {registry.host: {"auth": "dTpw"}}}))
    registry.refusals = [(401, {"WWW-Authenticate": 'Basic realm="x"'}, b"")]
    find(registry)
    assert registry.seen[1] == ("/v2/base/manifests/12", "Basic dTpw")


def test_a_redirect_to_another_host_gets_no_token(registry: Registry) -> None:
    """Blobs often lie in another store: it is asked without the registry's token."""
    registry.token = "t0ken"
    with served(Registry()) as store:
        registry.redirect = f"http://{store.host}"
        assert find(registry).digest == digest_of(MANIFEST)
        assert store.seen == [(f"/v2/base/blobs/{digest_of(CONFIG)}", None)]


def test_an_unknown_tag_says_why_tags_vanish(registry: Registry) -> None:
    """`manifest unknown` is told with the registry's words and the usual reason (failure mode H1)."""
    with pytest.raises(OutsideError, match=f"the registry has no `{registry.host}/base:10.2`") as caught:
        find(registry, "base:10.2")
    assert str(caught.value.why).startswith("MANIFEST_UNKNOWN: manifest unknown; publishers delete tags")


def test_too_many_requests_are_told_at_once(registry: Registry) -> None:
    """A limit that lasts is not waited for; login and mirror are named (failure mode J4)."""
    registry.refusals = [(429, {"Retry-After": "3600"}, b"")]
    with pytest.raises(OutsideError, match="toomanyrequests") as caught:
        find(registry)
    assert "docker login, or export IMGBUILD_REGISTRY_MIRROR" in str(caught.value.hint)
    assert len(registry.seen) == 1


def test_an_overloaded_registry_is_asked_again(registry: Registry) -> None:
    """Two failures in a row are waited for, a third is told."""
    registry.refusals = [(503, {}, b""), (429, {"Retry-After": "0"}, b"")]
    assert find(registry).digest == digest_of(MANIFEST)
    registry.refusals = [(502, {}, b"<html>")] * 3
    with pytest.raises(OutsideError, match="answered 502") as caught:
        find(registry)
    assert caught.value.why == "HTTP status 502"


def test_a_forbidden_image_names_the_login(registry: Registry) -> None:
    """403 is a matter of rights, not of the name."""
    registry.refusals = [(403, {}, json.dumps({"errors": [{"code": "DENIED", "message": "no"}]}).encode())]
    with pytest.raises(OutsideError, match="does not show `base` to us") as caught:
        find(registry)
    assert (caught.value.why, caught.value.hint) == ("DENIED: no", f"docker login {registry.host}")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"<html>sign in to the network</html>", "is not JSON"),
        (b"[]", "is not JSON"),
        (b'{"mediaType": "application/vnd.oci.artifact"}', "not a container image"),
        (json.dumps({"mediaType": MANIFESTS[0]}).encode(), "cannot be read"),
        (json.dumps({"mediaType": INDEXES[0], "manifests": 7}).encode(), "cannot be read"),
        (json.dumps({"mediaType": INDEXES[0], "manifests": [{"platform": "x"}]}).encode(), "cannot be read"),
        (b" " * (4 * 2**20 + 1), "more than a manifest can hold"),
    ],
)
def test_nonsense_of_a_registry_is_an_error_with_words(registry: Registry, body: bytes, words: str) -> None:
    """Whatever answers in a registry's place, a person is told what came."""
    registry.files["/v2/base/manifests/12"] = body
    with pytest.raises(OutsideError, match=words):
        find(registry)


def test_content_that_is_not_what_was_asked_for_is_refused(registry: Registry) -> None:
    """A manifest or configuration by digest must have that digest."""
    registry.files[f"/v2/base/blobs/{digest_of(CONFIG)}"] = CONFIG + b" "
    with pytest.raises(OutsideError, match="sent something else"):
        find(registry)


def test_a_silent_registry_costs_no_more_than_the_limit(registry: Registry) -> None:
    """A registry that takes the connection and says nothing is given up within the limit."""
    registry.stall = 3
    started = time.monotonic()
    with pytest.raises(OutsideError, match="cannot be reached"):
        find(registry, seconds=0.5)
    assert time.monotonic() - started < 2


def test_a_registry_that_is_not_there_names_the_mirror(registry: Registry) -> None:
    """A refused connection says so, and how to name a registry that answers."""
    with pytest.raises(OutsideError, match="cannot be reached") as caught:
        find_image("127.0.0.1:1/base:12", "amd64")
    assert "Connection refused" in str(caught.value.why)
    assert "IMGBUILD_REGISTRY_MIRROR" in str(caught.value.hint)
