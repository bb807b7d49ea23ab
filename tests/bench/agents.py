"""The rows of agents: through litellm against litellm alone, on one local server, and many runs at once.

Each row is measured in a process of its own, the server runs in another one. Both sides send the same
request over connections that are kept, with litellm's background logging off as our adapter has it:
with it on, which is what litellm does by itself, litellm alone is dearer.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import anyio

from flowengine import Agent, Flow
from flowengine.models.litellm.loading import litellm_loaded, mute_background_logging
from flowengine.models.messages import as_dict
from flowengine.models.scripted import ScriptedModel
from flowengine.nodes.agent import AgentNode
from tests.bench.measure import Row, ratio
from tests.bench.processes import ROOT, environment

__all__ = ["ROWS"]

MODEL = "openai/gpt-4o-mini"
QUESTION = "What is green tea, and how is it made?"


# --- the measured sides -------------------------------------------------------------------------


def agents(count: int, *, chained: bool) -> Flow:
    """A flow of agent nodes that all ask the same, one after the other or all at once."""
    agent = Agent("writer", "Answer in one sentence.", model=MODEL)
    return Flow(
        "bench",
        {
            f"n{i}": AgentNode(agent, prompt=lambda context: QUESTION, needs=[f"n{i - 1}"] if chained and i else [])
            for i in range(count)
        },
    )


async def done(flow: Flow) -> None:
    run = await flow.run()
    assert run.status == "succeeded", run.error


@asynccontextmanager
async def bare() -> AsyncGenerator[Callable[[], Awaitable[Any]]]:
    """One call of litellm alone, with the arguments that our adapter gives it."""
    litellm = await litellm_loaded()
    messages = Agent("writer", "Answer in one sentence.", model=MODEL).messages(QUESTION)
    arguments = {
        "model": MODEL,
        "messages": [as_dict(each) for each in messages],
        "temperature": 0.7,
        "timeout": 120.0,
        "max_retries": 0,
        "num_retries": 0,
        "api_key": os.environ["OPENAI_API_KEY"],
        "api_base": os.environ["OPENAI_BASE_URL"],
    }
    mute_background_logging(litellm)  # For this task and those that it starts.
    await litellm.acompletion(**arguments)  # Loads more of itself.
    gc.collect()
    gc.freeze()  # To look through what its import left behind would be most of the noise.
    yield lambda: litellm.acompletion(**arguments)
    await litellm.close_litellm_async_clients()


async def one_by_one(count: int, call: Callable[[], Awaitable[Any]]) -> None:
    for _ in range(count):
        await call()


async def at_once(count: int, call: Callable[[], Awaitable[Any]]) -> None:
    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(call)


# --- measured in a process of its own -------------------------------------------------------------


async def measure_sequential() -> Row:
    flow = agents(20, chained=True)
    async with bare() as call:
        name = "agent nodes in turn, against litellm"
        return await ratio(name, 1.1, lambda: done(flow), lambda: one_by_one(20, call), rounds=101)


async def measure_parallel() -> Row:
    flow = agents(100, chained=False)
    async with bare() as call:
        name = "100 agent nodes at once, against litellm"
        return await ratio(name, 1.1, lambda: done(flow), lambda: at_once(100, call), rounds=51)


async def measure_waiting() -> Row:
    flow = agents(200, chained=False)
    async with bare() as call:
        name = "200 agent nodes of 100 ms, wall"
        return await ratio(name, 1.5, lambda: done(flow), lambda: at_once(200, call), wall=True, rounds=7)


async def measure_memory() -> Row:
    """Resident memory while all runs wait for their model, and before."""
    model, runs = ScriptedModel(lambda request: "An answer.", latency=3600), 1000
    flow = Flow("bench", {"write": AgentNode(Agent("writer", "Answer in one sentence.", model=model))})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(flow.run, {"question": QUESTION})
        await _until(lambda: len(model.requests) == 1)  # Whatever the first one loads is there.
        gc.collect()
        before = resident()
        for _ in range(runs):
            tasks.start_soon(flow.run, {"question": QUESTION})
        await _until(lambda: len(model.requests) == runs + 1)
        grown = resident() - before
        tasks.cancel_scope.cancel()
    return Row("1,000 runs of an agent at once, each", grown / runs, 60, "KB")


async def _until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110  # The model tells nobody when it is asked.
        await anyio.sleep(0.01)


def resident() -> int:
    """Kilobytes of memory that this process holds now."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


# --- the rows ---------------------------------------------------------------------------------------


@contextmanager
def model_server(latency: float = 0.0) -> Generator[str]:
    """A model server in a process of its own; its base URL."""
    command = [sys.executable, str(ROOT / "tests/support/model_server.py"), "--latency", str(latency)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        process.terminate()


def apart(measure: str, latency: float = 0.0) -> Row:
    with model_server(latency) as url:
        command = [sys.executable, "-m", "tests.bench.agents", measure]
        finished = subprocess.run(command, cwd=ROOT, env=with_server(url), capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    return Row(*json.loads(finished.stdout))


def with_server(url: str) -> dict[str, str]:
    return {**environment(), "OPENAI_API_KEY": "local", "OPENAI_BASE_URL": url, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}


def agents_sequential() -> Row:
    return apart("measure_sequential")


def agents_parallel() -> Row:
    return apart("measure_parallel")


def agents_waiting() -> Row:
    return apart("measure_waiting", 0.1)


def agents_memory() -> Row:
    return apart("measure_memory")


BARE = f"""
import asyncio, litellm
messages = [
    {{"role": "system", "content": "Answer in one sentence."}},
    {{"role": "user", "content": "User input: {QUESTION}"}},
]
asyncio.run(litellm.acompletion(model="{MODEL}", messages=messages, temperature=0.7, max_retries=0))
"""

FLOW = f"""
flowengine: v1
name: first
nodes:
  write: {{instructions: Answer in one sentence., prompt: "{QUESTION}", model: {MODEL}}}
"""


def agents_first_call() -> Row:
    """From the start of the process to the first request at the server."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "first.yaml")
        path.write_text(FLOW)
        ours = f"from flowengine import Flow; Flow.from_yaml({str(path)!r}).run_sync().raise_for_status()"
        pairs = [(until_first_call(ours), until_first_call(BARE)) for _ in range(6)][1:]
    ratios = [mine / bare for mine, bare in pairs]
    return Row("first call after the start, wall", statistics.median(ratios), 1.15, "×", (min(ratios), max(ratios)))


def until_first_call(code: str) -> float:
    with model_server() as url:
        begun = time.time()
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=with_server(url), capture_output=True, check=True)
        with urlopen(url.replace("/v1", "/requests")) as response:
            return json.load(response)[0]["arrived"] - begun


ROWS = (agents_sequential, agents_parallel, agents_waiting, agents_memory, agents_first_call)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(globals()[sys.argv[1]]())))
