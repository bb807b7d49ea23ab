"""Rows of models that are asked over HTTP: a whole process, fifty runs at once, and how soon an answer is on record.

The server is that of the tests, in a process of its own, and takes 100 ms for an answer.
"""

from __future__ import annotations

import asyncio
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from time import perf_counter, process_time
from typing import Any
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

from flowengine.flow import Flow
from flowengine.models.messages import Message
from flowengine.models.model import Request
from flowengine.models.open import get_llm
from tests.bench.agents import model_server, with_server
from tests.bench.measure import Row
from tests.bench.processes import ROOT, cpu_of

__all__ = ["ROWS"]

TRIAGE = """
flowengine: v1
name: triage
inputs:
  message: {type: string}
nodes:
  triage:
    type: routing
    model: openai/gpt-4o-mini
    instruction: "Choose the team for this message: {{ inputs.message }}"
    routes:
      billing: {to: settle, description: Invoices and refunds}
      technical: {to: solve, description: Something does not work}
  settle:
    model: openai/gpt-4o-mini
    instructions: You settle invoices and refunds.
    prompt: "{{ inputs.message }}"
  solve:
    model: openai/gpt-4o-mini
    instructions: You solve technical problems.
    prompt: "{{ inputs.message }}"
  reply:
    needs: [settle, solve]
    model: openai/gpt-4o-mini
    instructions: Write the customer a short reply.
    prompt: "{{ inputs.message }} {{ nodes.settle.output or nodes.solve.output }}"
outputs:
  reply: "{{ nodes.reply.output }}"
"""
"""Three calls: which team, what it says, and the reply."""

MESSAGE = "I was charged twice"


def _apart(measure: str, *more: str, latency: float = 0.1) -> Any:
    """What a process of its own prints that runs a function of this module beside the server."""
    with model_server(latency) as url, tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tests.bench.native", measure, folder, *more]
        finished = subprocess.run(command, cwd=ROOT, env=with_server(url), capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout.splitlines()[-1])


def _file_in(folder: str, text: str = TRIAGE) -> Path:
    path = Path(folder, "flow.yaml")
    path.write_text(text)
    return path


# --- a process from its start to its end


PEAK = """
import sys
from flowengine.cli.main import main
try:
    code = main(sys.argv[1:])
except SystemExit as ended:
    code = ended.code
assert not code and "litellm" not in sys.modules, code
print([line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")][0])
"""


def _command(folder: str) -> list[str]:
    store = f"sqlite:///{folder}/runs.db"
    return ["run", str(_file_in(folder)), "-i", f"message={MESSAGE}", "--store", store, "--quiet"]


def native_cold_cpu() -> Row:
    """The least of five, with compiled bytecode: what others do on the machine only ever adds."""
    with model_server(0.1) as url, tempfile.TemporaryDirectory() as folder:
        _, low, high = cpu_of(sys.executable, "-m", "flowengine", *_command(folder), environ=with_server(url))
    return Row("flowengine run, three calls, cold", low, 0.7, "s CPU", (low, high))


def native_cold_memory() -> Row:
    with model_server(0.1) as url, tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", PEAK, *_command(folder)]
        finished = subprocess.run(command, cwd=ROOT, env=with_server(url), capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    return Row("flowengine run, three calls, memory", float(finished.stdout.split()[-1]) / 1024, 58, "MB")


# --- fifty runs at once

RUNS = 50
ROUNDS = 5


async def measure_fifty(folder: str, shown: str = "") -> tuple[list[float], list[float]]:
    """CPU milliseconds a run, and wall seconds of all; a list each, one for a round. `shown`: to other processes."""
    flow, store = Flow.from_yaml(_file_in(folder)), f"sqlite:///{folder}/runs.db"

    async def one(number: int) -> None:
        run = await flow.run({"message": f"{MESSAGE}, {number}"}, store=store, live=shown == "shown")
        assert run.status == "succeeded", run.error

    await one(0)
    cpu, wall = [], []
    for _ in range(ROUNDS):
        begun, began = process_time(), perf_counter()
        await asyncio.gather(*map(one, range(RUNS)))
        cpu.append((process_time() - begun) / RUNS * 1000)
        wall.append(perf_counter() - began)
    return cpu, wall


def native_fifty_cpu() -> Row:
    cpu, _ = _apart("measure_fifty")
    return Row("50 runs at once, journal on disk, a run", min(cpu), 7, "ms CPU", (min(cpu), max(cpu)))


def native_fifty_shown() -> Row:
    """What agents write is shown to other processes, whether or not one looks."""
    cpu, _ = _apart("measure_fifty", "shown")
    return Row("50 runs at once, shown while they run, a run", min(cpu), 10, "ms CPU", (min(cpu), max(cpu)))


def native_fifty_wall() -> Row:
    """Three calls after each other take 0.3 s."""
    _, wall = _apart("measure_fifty")
    return Row("50 runs at once, journal on disk, wall", min(wall), 0.6, "s", (min(wall), max(wall)))


# --- from an answer's last byte to its record

EIGHT = "flowengine: v1\nname: eight\nnodes:\n" + "".join(
    f'  n{number}: {{instructions: Say one word., prompt: "Question {number}.", model: openai/gpt-4o-mini}}\n'
    for number in range(8)
)


async def measure_record(folder: str) -> dict[str, float]:
    """Node → the time when its answer was written and flushed; these are the first calls of the process."""
    from flowengine.journal.sqlite.writer import SqliteWriter

    add, write = SqliteWriter.add, SqliteWriter.write
    waiting: list[str] = []
    on_record: dict[str, float] = {}

    def adding(self: SqliteWriter, position: int, body: str) -> None:
        add(self, position, body)
        waiting.append(body)

    def writing(self: SqliteWriter) -> None:
        write(self)
        now = time.time()
        for body in waiting:
            if "Answer to:" in body and (found := re.search(r"Question (\d)\.", body)):
                on_record.setdefault(found[1], now)
        waiting.clear()

    SqliteWriter.add, SqliteWriter.write = adding, writing  # type: ignore[method-assign]
    run = await Flow.from_yaml(_file_in(folder, EIGHT)).run(store=f"sqlite:///{folder}/runs.db")
    assert run.status == "succeeded", run.error
    return on_record


def native_on_record() -> Row:
    """The 99th percentile of eight first calls at once: a round is the slowest of a process, and of seven processes,
    each a new one, the median counts."""
    worst: list[float] = []
    for _ in range(7):
        with model_server(0.1) as url, tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "tests.bench.native", "measure_record", folder]
            finished = subprocess.run(command, cwd=ROOT, env=with_server(url), capture_output=True, text=True)
            assert finished.returncode == 0, finished.stderr
            on_record = json.loads(finished.stdout.splitlines()[-1])
            waits = [(on_record[each] - answered) * 1000 for each, answered in _answered(url)]
        worst.append(max(waits))
    value = statistics.median(worst)
    return Row("an answer's last byte to its record, p99", value, 10, "ms", (min(worst), max(worst)))


def _answered(url: str) -> list[tuple[str, float]]:
    with urlopen(HttpRequest(url.replace("/v1", "/requests"))) as response:
        requests = json.load(response)
    return [(re.findall(r"Question (\d)\.", json.dumps(each["body"]))[-1], each["answered"]) for each in requests]


# --- to the first token


async def measure_first_token(folder: str, url: str) -> tuple[float, float, float]:
    """Milliseconds to the first piece of a stream beyond those of a bare reader: median, least and most."""
    model = get_llm("openai/gpt-4o-mini", api_base=url, max_retries=0)
    request = Request("gpt-4o-mini", (Message("user", "Say one word."),))

    async def ours() -> float:
        begun = perf_counter()
        async with model.stream(request) as pieces:
            async for _ in pieces:
                taken = perf_counter() - begun
                break
        return taken

    async def bare() -> float:
        """Sends the same bytes over a socket and waits for the first piece."""
        host, port = url.removeprefix("http://").removesuffix("/v1").split(":")
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Say one word."}], "stream": True})
        begun = perf_counter()
        reader, writer = await asyncio.open_connection(host, int(port))
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write((head + body).encode())
        await reader.readuntil(b'"content": "Answer')
        taken = perf_counter() - begun
        writer.close()
        return taken

    await ours()
    await bare()
    over = [(await ours() - await bare()) * 1000 for _ in range(101)]
    return statistics.median(over), min(over), max(over)


def native_first_token() -> Row:
    """From the request to the first piece of a stream, beyond what a bare socket takes."""
    with model_server() as url:
        command = [sys.executable, "-m", "tests.bench.native", "measure_first_token", "", url]
        finished = subprocess.run(command, cwd=ROOT, env=with_server(url), capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    median, low, high = json.loads(finished.stdout.splitlines()[-1])
    return Row("first piece of a stream, beyond a bare socket", median, 2, "ms", (low, high))


ROWS = (
    native_cold_cpu,
    native_cold_memory,
    native_fifty_cpu,
    native_fifty_shown,
    native_fifty_wall,
    native_on_record,
    native_first_token,
)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(globals()[sys.argv[1]](*sys.argv[2:]))))
