"""Rows of `flowengine serve`: what a request costs beyond its run, many at once, many followers, and a repeated call.

A process of its own serves, as it is started from the command line; this one asks. What the run itself costs is
measured here, on a store of the same kind.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter, process_time
from typing import NamedTuple

import anyio

from flowengine import Flow
from flowengine.journal.stores import open_store
from tests.bench.measure import Row

__all__ = ["ROWS"]

STEPS = """
import asyncio
from pathlib import Path

def shout(text):
    return text.upper()

async def wait(file):
    for _ in range(3_000):
        if Path(file).exists():
            return "through"
        await asyncio.sleep(0.02)
"""
THREE = """flowengine: v1
name: three
inputs: {text: {type: string}}
nodes:
  a: {type: function, call: "steps:shout", with: {text: "{{ inputs.text }}"}}
  b: {prompt: "Say {{ nodes.a.output }} again.", model: offline}
  c: {type: function, call: "steps:shout", with: {text: "{{ nodes.b.output }}"}}
outputs: {said: "{{ nodes.c.output }}"}
"""
GATE = """flowengine: v1
name: gate
inputs: {file: {type: string}}
nodes:
  wait: {type: function, call: "steps:wait", with: {file: "{{ inputs.file }}"}}
  after: {type: function, call: "steps:shout", with: {text: "{{ nodes.wait.output }}"}}
"""
_REQUESTS = 400
_AT_ONCE = 500
_FOLLOWERS = 1_000


class Server(NamedTuple):
    """A server of the two flows, and the folder in which it is."""

    folder: Path
    port: int
    pid: int
    key: str

    @property
    def cpu(self) -> float:
        """CPU seconds that it has taken."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def memory(self) -> float:
        """The most that it has had in memory, in MB."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) / 1024

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    def message(self, method: str, path: str, body: object = None, **headers: str) -> bytes:
        content = b"" if body is None else json.dumps(body).encode()
        said: Mapping[str, str] = {
            "host": f"127.0.0.1:{self.port}",
            "authorization": f"Bearer {self.key}",
            "content-type": "application/json",
            "content-length": str(len(content)),
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in said.items())
        return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + content


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(re.findall(rb"content-length: (\d+)", head)[0])
    return int(head.split()[1]), await reader.readexactly(length)


@asynccontextmanager
async def serving() -> AsyncGenerator[Server]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 8_192)), hard))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "steps.py").write_text(STEPS)
        (folder / "three.yaml").write_text(THREE)
        (folder / "gate.yaml").write_text(GATE)
        command = [sys.executable, "-m", "flowengine"]
        store = ["--store", "runs.db"]
        environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        adding = [*command, "keys", "add", "bench", *store]
        made = await anyio.run_process(adding, cwd=folder, env=environ)
        key = made.stdout.split()[-1].decode()
        process = await asyncio.create_subprocess_exec(
            *command,
            "serve",
            ".",
            "--port",
            "0",
            "-q",
            *store,
            cwd=folder,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=None,
        )
        assert process.stdout is not None
        try:
            address = (await process.stdout.readline()).decode().strip()
            yield Server(folder, int(address.rpartition(":")[2]), process.pid, key)
        finally:
            process.terminate()
            await process.wait()


async def ask(server: Server, count: int, **headers: str) -> list[float]:
    """Calls of `three`, one after the other over one connection; their seconds."""
    reader, writer = await server.connect()
    took: list[float] = []
    for number in range(count):
        text = "again" if headers else f"text {number}"
        begun = perf_counter()
        writer.write(server.message("POST", "/flows/three", {"text": text}, **headers))
        status, content = await read_answer(reader)
        took.append(perf_counter() - begun)
        assert status == 200, content
        assert text.upper() in json.loads(content)["said"]
    writer.close()
    return took


async def a_request_beyond_its_run() -> Row:
    async with serving() as server:
        await ask(server, 50)
        before = server.cpu
        await ask(server, _REQUESTS)
        request = (server.cpu - before) / _REQUESTS
        flow = Flow.from_yaml(server.folder / "three.yaml")
        store = open_store(f"sqlite:///{server.folder / 'beside.db'}", "full")
        for _ in range(50):
            await flow.run({"text": "warm"}, store=store)
        begun = process_time()
        for number in range(_REQUESTS):
            run = await flow.run({"text": f"text {number}"}, store=store)
            assert run.status == "succeeded"
        alone = (process_time() - begun) / _REQUESTS
        store.close()
    return Row("serve: CPU of a request beyond its run", (request - alone) * 1_000, 1.5, "ms")


async def five_hundred_at_once() -> Row:
    async with serving() as server:
        await ask(server, 50)
        connections = [await server.connect() for _ in range(_AT_ONCE)]

        async def call(number: int) -> float:
            reader, writer = connections[number]
            begun = perf_counter()
            writer.write(server.message("POST", "/flows/three", {"text": f"call {number}"}))
            status, content = await read_answer(reader)
            assert status == 200, content
            assert f"CALL {number}" in json.loads(content)["said"]
            writer.close()
            return perf_counter() - begun

        took = sorted(await asyncio.gather(*(call(number) for number in range(_AT_ONCE))))
    last = took[int(0.99 * _AT_ONCE)]
    return Row("serve: 500 at once, p99 to p50", last / statistics.median(took), 3.0)


async def a_thousand_followers() -> Row:
    async with serving() as server:
        gate = server.folder / "open"
        reader, writer = await server.connect()
        writer.write(server.message("POST", "/flows/gate", {"file": str(gate)}, prefer="respond-async"))
        status, content = await read_answer(reader)
        assert status == 202, content
        path = f"{json.loads(content)['links']['self']}/events"
        connections = [await server.connect() for _ in range(_FOLLOWERS)]
        for _, each in connections:
            each.write(server.message("GET", path))
        for each, _ in connections:
            await each.readuntil(b"event: run")
        gate.touch()
        ends = await asyncio.gather(*(each.readuntil(b"event: result") for each, _ in connections))
        assert all(b'"node":"after","state":"succeeded"' in each for each in ends)
        for _, each in connections:
            each.close()
        return Row("serve: memory with 1,000 followers of a run", server.memory, 300, "MB")


async def a_repeated_call() -> Row:
    async with serving() as server:
        await ask(server, 20, idempotency_key="repeated")
        took = await ask(server, 300, idempotency_key="repeated")
    return Row("serve: a repeated call of a finished run", statistics.median(took) * 1_000, 3.0, "ms")


ROWS = (
    a_request_beyond_its_run,
    five_hundred_at_once,
    a_thousand_followers,
    a_repeated_call,
)
for _row in ROWS:
    _row.__name__ = f"serve_{_row.__name__}"
