"""Requests of nodes over TLS: the connection goes to the judged address, and the certificate is that of the name."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowengine import Flow
from flowengine.nodes.http_call import HttpNode
from flowengine.nodes.http_sender import HttpSender
from flowengine.runtime.run import Run
from tests.support.odd_server import OddServer
from tests.support.require import require

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a server called api.example, beside its key."""
    openssl = require("openssl")
    folder = tmp_path_factory.mktemp("tls")
    names = ["-subj", "/CN=api.example", "-addext", "subjectAltName=DNS:api.example"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem")]
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names, *files]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "certificate.pem"


@pytest.fixture
def server(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OddServer]:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    with OddServer(context) as running:
        yield running


async def run_of(server: OddServer, host: str) -> Run:
    async def resolve(name: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    beginning = f"https://{host}:{server.port}/"
    sender = HttpSender([f"{beginning} 127.0.0.0/8"], resolve=resolve)
    return await Flow("f", {"a": HttpNode(sender, {"url": lambda _: f"{beginning}x"})}).run()


async def test_a_name_is_asked_at_its_address_and_known_by_its_certificate(server: OddServer):
    run = (await run_of(server, "api.example")).raise_for_status()
    assert run.outputs["a"]["body"]["path"] == "/x"
    assert server.seen[0].headers["host"] == f"api.example:{server.port}"


async def test_the_certificate_of_another_name_is_refused_before_anything_is_sent(server: OddServer):
    run = await run_of(server, "other.example")
    assert run.error is not None
    assert "no connection to other.example: its certificate is not trusted" in run.error.message
    assert server.seen == []
