"""Models behind TLS: whose certificate is trusted, and the tunnel of a proxy."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from flowengine.errors import PermanentModelError
from flowengine.models.http.native_model import NativeModel
from flowengine.models.messages import Message
from flowengine.models.model import Request
from flowengine.models.outbound import VARIABLE
from tests.support.require import require

BODY = b'{"choices": [{"message": {"content": "over tls"}}]}'
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(BODY), BODY)
BUNDLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
REQUEST = Request("m", (Message("user", "hi"),), timeout=20)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a server at localhost, beside its key."""
    openssl = require("openssl")
    folder = tmp_path_factory.mktemp("tls")
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,DNS:models.example"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem")]
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names, *files]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "certificate.pem"


def serve(answer: Callable[[socket.socket], None]) -> tuple[socket.socket, int]:
    """A listener whose connections are each answered in a thread, and its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=guarded, args=(listener.accept()[0],), daemon=True).start()

    def guarded(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            answer(connection)

    threading.Thread(target=accept, daemon=True).start()
    return listener, listener.getsockname()[1]


@pytest.fixture
def secured(certificate: Path) -> Iterator[int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))

    def answer(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as tunnel:
            while tunnel.recv(65536):
                tunnel.sendall(ANSWER)

    listener, port = serve(answer)
    yield port
    listener.close()


def model_at(port: int, host: str = "localhost") -> NativeModel:
    return NativeModel("m", "hosted_vllm", settings={"api_base": f"https://{host}:{port}/v1", "api_key": "k"})


async def test_a_certificate_that_nobody_vouches_for_is_refused(secured: int) -> None:
    with pytest.raises(PermanentModelError, match=r"no connection to https://localhost:\d+/v1: its certificate is not"):
        await model_at(secured).complete(REQUEST)


@pytest.mark.parametrize("variable", BUNDLES)
async def test_a_bundle_of_the_environment_holds(
    secured: int, certificate: Path, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in BUNDLES:
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv(variable, str(certificate))
    assert [(await model_at(secured).complete(REQUEST)).content for _ in range(2)] == ["over tls"] * 2


async def test_a_proxy_carries_the_bytes_and_sees_none_of_them(
    secured: int, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bytes] = []

    def carry(connection: socket.socket) -> None:
        seen.append(connection.recv(65536))
        with socket.create_connection(("127.0.0.1", secured)) as onward:
            connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=pump, args=(onward, connection), daemon=True)
            back.start()
            pump(connection, onward)
            onward.shutdown(socket.SHUT_WR)
            back.join(20)

    def pump(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                seen.append(data)
                target.sendall(data)

    listener, port = serve(carry)
    with listener:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        monkeypatch.setenv("https_proxy", f"http://me:word@127.0.0.1:{port}")
        monkeypatch.setenv("no_proxy", "")
        monkeypatch.setenv(VARIABLE, "1")
        assert (await model_at(secured, "models.example").complete(REQUEST)).content == "over tls"
    assert seen[0].startswith(b"CONNECT models.example:%d HTTP/1.1\r\n" % secured)
    assert b"Basic bWU6d29yZA==" in seen[0]
    assert not any(b"over tls" in each or b"Bearer" in each for each in seen)


async def test_a_bundle_that_is_not_there_is_named(secured: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/no/such/bundle.pem")
    with pytest.raises(
        PermanentModelError, match=r"no certificates can be read from /no/such/bundle\.pem: No such file"
    ):
        await model_at(secured).complete(REQUEST)
