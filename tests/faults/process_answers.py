"""A process dies by kill -9 while answers of models come in: none that was delivered is bought again.

The process is a new one, so that the first calls of its life are those that count. Eight nodes ask at once; some get
their answer, the others wait. A tenth of a second after the last of these answers has left the server the process is
killed: ten times what an answer may take until it is on record.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import anyio

from flowengine.flow import Flow
from tests.support.model_answers import Answer, Completion, Hang
from tests.support.model_server import ModelServer

__all__ = ["DELIVERED", "NODES", "check_killed", "flow_at", "rows"]

NODES: Final = 8
DELIVERED: Final = (1, 3, 5, 7)
"""Answers that were delivered when the process dies."""

_DELAY: Final = 0.5
"""Seconds until the server answers, in which all nodes have asked."""
_GRACE: Final = 0.1
"""Seconds from the last answer's last byte to the end of the process."""

_NODE = 'n{number}: {{instructions: Say one word., prompt: "Question number {number}.", model: openai/gpt-4o-mini}}'

_PROGRAM = """
import asyncio, sys
from flowengine import Flow
asyncio.run(Flow.from_yaml("parallel.yaml").run(store="sqlite:///runs.db", run_id="the-run"))
"""


def flow_at(folder: Path) -> Path:
    """A flow of agents that wait for nobody."""
    file = folder / "parallel.yaml"
    nodes = "".join(f"  {_NODE.format(number=number)}\n" for number in range(NODES))
    file.write_text(f"flowengine: v1\nname: parallel\nnodes:\n{nodes}")
    return file


def check_killed(folder: Path, delivered: int, *, busy: bool = False) -> str:
    """Kill the process after so many answers, resume its run, and count what was asked for twice."""
    file = flow_at(folder)
    asked: list[int] = []

    def some(body: Mapping[str, Any]) -> Answer:
        asked.append(number_of(body))
        return Completion("fine", latency=_DELAY) if len(asked) <= delivered else Hang()

    with ModelServer(some) as server, spinning(busy):
        environ = environment(server.url)
        with subprocess.Popen([sys.executable, "-c", _PROGRAM], cwd=folder, env=environ) as process:
            _wait(lambda: sum(each.answered is not None for each in list(server.requests)) >= delivered)
            _wait(lambda: len(server.requests) == NODES)
            time.sleep(_GRACE)
            os.kill(process.pid, signal.SIGKILL)
        bought = Counter(number_of(each.body) for each in server.requests if each.answered is not None)
        assert len(bought) == delivered
        server.requests.clear()
        server.respond_with(lambda _: "fine")
        run = anyio.run(_resume, file, server.url)
        again = [number_of(each.body) for each in server.requests]
    assert run.status == "succeeded", run.error
    assert sorted(again) == sorted(set(range(NODES)) - set(bought)), f"bought again: {sorted(set(again) & set(bought))}"
    return f"{delivered} of {NODES} answers delivered, none bought again"


async def _resume(file: Path, url: str) -> Any:
    environ = {"OPENAI_API_KEY": "local", "OPENAI_BASE_URL": url}
    flow = Flow.from_yaml(file, environ=environ)
    return await flow.resume("the-run", store=f"sqlite:///{file.parent / 'runs.db'}")


def number_of(body: Mapping[str, Any]) -> int:
    """Which node asks."""
    found = re.search(r"Question number (\d)\.", body["messages"][-1]["content"])
    assert found is not None, body
    return int(found[1])


def environment(url: str) -> dict[str, str]:
    """That of a process which asks the server."""
    own = {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_BASE_URL"))}
    path = os.pathsep.join([str(Path(__file__).parents[2]), own.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return {**own, "PYTHONPATH": path, "OPENAI_API_KEY": "local", "OPENAI_BASE_URL": url}


@contextmanager
def spinning(busy: bool) -> Generator[None]:
    """Another process that takes all the time it gets, where asked for."""
    if not busy:
        yield
        return
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            yield
        finally:
            process.kill()


def _wait(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until, "the process did not come to it"
        time.sleep(0.002)


def rows() -> Iterator[tuple[str, Callable[[Path], str]]]:
    """Each number of answers, alone and beside a busy process."""
    for busy in (False, True):
        beside = ", beside a busy process" if busy else ""
        for delivered in DELIVERED:

            def check(folder: Path, delivered: int = delivered, busy: bool = busy) -> str:
                return check_killed(folder, delivered, busy=busy)

            yield f"kill -9 after {delivered} of {NODES} parallel answers were delivered{beside}", check
