"""`imgbuild doctor` on this machine, and its questions against real sockets: TLS, proxy, silence."""

import json
import os
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socket import create_server
from threading import Thread
from typing import Any

import pytest

from imagebuilder.host.reach import ask_index, probe
from imagebuilder.index import Index, default_index


def doctor(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a process of its own."""
    program = [sys.executable, "-c", "from imagebuilder.cli import main; main()"]
    return subprocess.run(
        [*program, "doctor", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )


def findings(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    """Give the findings of the one JSON document by id."""
    return {one["id"]: one for one in json.loads(done.stdout)["findings"]}


@contextmanager
def server(handler: type[BaseHTTPRequestHandler], context: ssl.SSLContext | None = None) -> Iterator[int]:
    """Serve on a free port of this machine and give the port."""
    service = HTTPServer(("127.0.0.1", 0), handler)
    if context is not None:
        service.socket = context.wrap_socket(service.socket, server_side=True)
    thread = Thread(target=service.serve_forever, daemon=True)
    thread.start()
    try:
        yield service.server_port
    finally:
        service.shutdown()
        service.server_close()
        thread.join()


class Recorder(BaseHTTPRequestHandler):
    """Answers every HEAD with 200 and keeps what was asked."""

    seen: list[tuple[str, str | None]]

    def do_HEAD(self) -> None:
        """Answer."""
        self.seen.append((self.path, self.headers["Authorization"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's name)
        """Stay silent."""


def own_authority(folder: Path) -> ssl.SSLContext:
    """Make a certificate for this machine that signs itself, as certificate.pem in the folder."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here to make a certificate with")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -keyout key.pem -out certificate.pem"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*command.split(), *names], cwd=folder, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    return context


@pytest.fixture
def recorder() -> type[Recorder]:
    """Give a handler with a record of its own."""
    return type("Recording", (Recorder,), {"seen": []})


def test_this_machine_is_judged_in_one_json_document() -> None:
    """The engine that answers is found well, and the exit code agrees with the document."""
    done = doctor("--format", "json")
    found = findings(done)
    assert found["engine"]["status"] == "ok"
    assert found["store"]["status"] == "ok"
    assert found["buildx"]["status"] == "ok"
    assert {"disk", "memory", "index", "registry", "gpu", "driver", "toolkit"} <= set(found)
    assert done.returncode == (0 if json.loads(done.stdout)["ready_to_build"] else 4)
    assert done.stderr == ""


def test_the_report_for_people_holds_the_same_findings() -> None:
    """The table names each finding under what it is needed for; plain text when it is piped."""
    done = doctor()
    assert "To build images" in done.stdout
    assert "To run them on GPUs" in done.stdout
    assert "\x1b" not in done.stdout
    for one in findings(doctor("--format", "json")):
        assert one in done.stdout


def test_no_engine_is_exit_code_4(tmp_path: Path) -> None:
    """An engine that is not there fails with what to do, in words and as JSON."""
    address = f"unix://{tmp_path}/none.sock"
    done = doctor("--format", "json", DOCKER_HOST=address)
    assert done.returncode == 4
    assert findings(done)["engine"]["status"] == "fail"
    assert findings(done)["engine"]["fix"]
    assert "Traceback" not in done.stderr


def test_everything_silent_takes_less_than_ten_seconds() -> None:
    """An engine and a proxy that accept and never answer cost a bounded time."""
    with create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        proxy = dict.fromkeys(
            ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"), f"http://127.0.0.1:{port}"
        )
        started = time.monotonic()
        done = doctor(
            "--format", "json", DOCKER_HOST=f"tcp://127.0.0.1:{port}", NO_PROXY="", no_proxy="", **proxy
        )
        assert time.monotonic() - started < 10
    assert done.returncode == 4
    assert findings(done)["engine"]["status"] == "fail"


def test_a_certificate_that_is_not_trusted_is_recognised(
    tmp_path: Path, recorder: type[Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate of a private authority is a TLS trouble until SSL_CERT_FILE holds it."""
    monkeypatch.setenv("no_proxy", "*")
    context = own_authority(tmp_path)
    with server(recorder, context) as port:
        assert probe(f"https://127.0.0.1:{port}/simple/").trouble == "tls"
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
        assert probe(f"https://127.0.0.1:{port}/simple/").reached


def test_the_configured_proxy_is_used_and_named(
    recorder: type[Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An address is asked through the proxy of the environment; its credentials are not shown."""
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with server(recorder) as port:
        monkeypatch.setenv("http_proxy", f"http://user:secret@127.0.0.1:{port}")
        answer = probe("http://index.invalid/simple/")
    assert answer.reached
    assert answer.proxy == f"http://127.0.0.1:{port}"
    assert recorder.seen[0][0] == "http://index.invalid/simple/"


def test_the_index_is_asked_by_uv_and_its_words_are_understood(
    tmp_path: Path, recorder: type[Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default index answers here; a name, a port and a certificate that are wrong are told apart."""
    assert ask_index(default_index(), seconds=30).reached
    monkeypatch.setenv("no_proxy", "*")

    def trouble(address: str) -> str | None:
        return ask_index(Index(name="pypi", address=address)).trouble

    assert trouble("https://user:secret@no-such-host.invalid/simple/") == "name"
    with create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert (
            ask_index(Index(name="pypi", address=f"http://127.0.0.1:{port}/"), seconds=1).trouble == "timeout"
        )
    assert trouble(f"http://127.0.0.1:{port}/simple/") == "connection"
    with server(recorder, own_authority(tmp_path)) as port:
        assert trouble(f"https://127.0.0.1:{port}/simple/") == "tls"


def test_credentials_of_an_index_stay_out_of_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """What uv says of an address is shown without user and password."""
    monkeypatch.setenv("no_proxy", "*")
    answer = ask_index(Index(name="pypi", address="https://user:secret@no-such-host.invalid/simple/"))
    assert "secret" not in repr(answer)


def test_credentials_of_an_address_are_sent_as_a_header(
    recorder: type[Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A private index is asked with its user and password, which stay out of the answer."""
    monkeypatch.setenv("no_proxy", "*")
    with server(recorder) as port:
        answer = probe(f"http://user:pass%20word@127.0.0.1:{port}/simple/")
    assert answer.reached
    assert "pass" not in repr(answer)
    assert recorder.seen == [("/simple/", "Basic dXNlcjpwYXNzIHdvcmQ=")]
