"""A model server that is down, slow, busy or broken: runs end, clearly if not well, and do not storm it.

The server is a real one on loopback, which keeps when each request came; the client of the product is between. Waits
are those of the product, made shorter by one factor where a test of the default run has no time for them.
"""

from __future__ import annotations

import socket
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import anyio

from flowengine.agents.agent import Agent
from flowengine.core.records import ModelCall
from flowengine.engine.events import NodeRecorded
from flowengine.flow import Flow
from flowengine.models.http.native_model import NativeModel
from flowengine.models.model import Model
from flowengine.models.vendors import RateLimits
from flowengine.models.wrappers.rate import RateLimitedModel, RateLimiter
from flowengine.models.wrappers.retrying import RetryingModel
from flowengine.nodes.agent import AgentNode
from flowengine.runtime.run import Run
from tests.support.model_answers import Answer, Failure, Hang, Raw, Truncated
from tests.support.model_server import ModelServer, Received

__all__ = [
    "BROKEN",
    "FINAL",
    "check_broken",
    "check_busy",
    "check_down",
    "check_final",
    "check_half_broken",
    "check_limited",
    "rows",
]

MODEL: Final = "openai/gpt-4o-mini"

BROKEN: Final[Mapping[str, Answer]] = {
    "half a JSON": Raw(b'{"id": "x", "object": "chat.completion", "choices": [{"index": 0, "mess'),
    "no JSON": Raw(b"hello", "text/plain"),
    "no text": Raw(b'{"id": "\xff\xfe'),
    "nothing": Raw(b""),
    "no choices": Raw(b'{"id": "x", "object": "chat.completion", "model": "m", "choices": []}'),
    "no message": Raw(b'{"id": "x", "object": "chat.completion", "model": "m", "choices": [{"message": null}]}'),
    "another shape": Raw(b'{"choices": [{"message": "x"}]}'),
    "a page with 502": Raw(b"<html><body>Bad Gateway</body></html>", "text/html", 502),
    "a 500": Failure(500, "out of order"),
    "an overload": Failure(529, "overloaded"),
    "a broken connection": Truncated(),
}
"""What is no answer, and may be one when it is asked for again."""

FINAL: Final[Mapping[str, Answer]] = {
    "null": Raw(b"null"),
    "a list": Raw(b"[]"),
    "an empty object": Raw(b"{}"),
    "a page with 200": Raw(b"<html><body>Welcome</body></html>", "text/html"),
}
"""What is no answer, and would be none when it is asked for again: each try could be billed."""


def parallel(url: str, nodes: int, *, retries: int = 3, first_wait: float = 1.0, limiter: Any = None) -> Flow:
    """A flow of agents that wait for nobody."""
    model: Model = NativeModel("gpt-4o-mini", "openai", settings={"api_key": "local", "api_base": url})
    if limiter is not None:
        model = RateLimitedModel(model, limiter)
    agent = Agent("asker", "Say one word.", model=RetryingModel(model, retries, first_wait=first_wait))

    def prompt(number: int) -> Callable[[Any], str]:
        return lambda _: f"Word number {number}."

    return Flow("parallel", {f"n{number}": AgentNode(agent, prompt=prompt(number)) for number in range(nodes)})


def run_of(flow: Flow) -> Run:
    async def work() -> Run:
        return await flow.run()

    return anyio.run(work)


def by_node(requests: Sequence[Received]) -> Mapping[str, list[Received]]:
    """The requests of each node, in order."""
    found: dict[str, list[Received]] = defaultdict(list)
    for each in requests:
        found[str(each.body["messages"][-1]["content"])].append(each)
    return found


def gaps(requests: Sequence[Received]) -> list[float]:
    """Seconds from each answer to the next request of the same node."""
    return [after.arrived - (before.answered or before.arrived) for before, after in pairwise(requests)]


def check_broken(kind: str) -> None:
    """Nothing but broken answers: the run fails, and says whose answer it was and where."""
    with ModelServer(lambda _: BROKEN[kind]) as server:
        run = run_of(parallel(server.url, 1, retries=1, first_wait=0.01))
        assert len(server.requests) == 2, f"{kind}: it was asked {len(server.requests)} times"
    assert run.status == "failed"
    assert run.failed_node == "n0"
    assert run.error is not None
    assert run.error.type == "TransientModelError", run.error
    assert MODEL in run.error.message, run.error.message
    assert "gave up after 2 attempts" in run.error.message, run.error.message
    assert "Traceback" not in run.error.message, run.error.message


def check_final(kind: str) -> None:
    """An answer that no repetition mends is asked for once, and the run says whose it was."""
    with ModelServer(lambda _: FINAL[kind]) as server:
        run = run_of(parallel(server.url, 1, retries=1, first_wait=0.01))
        assert len(server.requests) == 1, f"{kind}: it was asked {len(server.requests)} times"
    assert run.status == "failed"
    assert run.error is not None
    assert MODEL in run.error.message, run.error.message
    assert "Traceback" not in run.error.message, run.error.message


def check_half_broken(nodes: int, first_wait: float) -> None:
    """Every other answer is broken, each time otherwise: all nodes finish, at the second attempt."""
    kinds = list(BROKEN.values())
    seen: Counter[str] = Counter()

    def answer(body: dict[str, Any]) -> Answer:
        asked = str(body["messages"][-1]["content"])
        seen[asked] += 1
        return kinds[len(seen) % len(kinds)] if seen[asked] % 2 else f"The answer to {asked}"

    with ModelServer(answer) as server:
        run = run_of(parallel(server.url, nodes, first_wait=first_wait))
        assert len(server.requests) == 2 * nodes
    assert run.status == "succeeded", run.error
    assert len(run.outputs) == nodes
    assert all(f"Word number {name[1:]}." in said for name, said in run.outputs.items()), run.outputs
    assert [call.attempts for call in calls_of(run)] == [2] * nodes


def calls_of(run: Run) -> list[ModelCall]:
    records = [event.record for event in run.events if isinstance(event, NodeRecorded)]
    return [record for record in records if isinstance(record, ModelCall) and record.error is None]


def check_busy(nodes: int, first_wait: float, retry_after: float | None = None, retries: int = 3) -> str:
    """Nothing but 429: each node asks so many times and no more, ever later, and never before it was told to."""
    with ModelServer(lambda _: Failure(429, "too many requests", retry_after)) as server:
        run = run_of(parallel(server.url, nodes, retries=retries, first_wait=first_wait))
        requests = list(server.requests)
    assert run.status == "failed"
    assert run.error is not None
    assert f"{MODEL}: too many requests" in run.error.message
    assert f"gave up after {retries + 1} attempts" in run.error.message
    waits = [gaps(each) for each in by_node(requests).values()]
    assert len(waits) == nodes
    assert all(len(each) == retries for each in waits), "a retry too many, or too few"
    for number in range(retries):
        taken = [each[number] for each in waits]
        assert min(taken) >= (retry_after or 0.0), f"asked again after {min(taken)} s"
        spread = first_wait * 2**number
        assert max(taken) - min(taken) >= 0.5 * spread, "they all come back at once"
    return f"{len(requests)} requests of {nodes} nodes in {requests[-1].arrived - requests[0].arrived:.1f} s"


def check_limited(nodes: int, most: int, minute: float) -> str:
    """A vendor that allows so many requests a minute gets no more in any, retries included."""
    limiter = RateLimiter(RateLimits(requests_per_minute=most), minute=minute)
    with ModelServer(lambda _: Failure(429, "too many requests")) as server:
        run_of(parallel(server.url, nodes, retries=1, first_wait=minute / 20, limiter=limiter))
        times = sorted(each.arrived for each in server.requests)
    assert len(times) == 2 * nodes
    # From the limiter to the server a request takes a moment, and not always the same.
    windows = [sum(begin <= at < begin + 0.8 * minute for at in times) for begin in times]
    assert max(windows) <= most, f"{max(windows)} requests in a minute"
    return f"at most {max(windows)} of {len(times)} requests in a minute that allows {most}"


def check_down(first_wait: float, retries: int = 2) -> None:
    """Nobody listens there."""
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        begun = time.monotonic()
        run = run_of(parallel(url, 3, retries=retries, first_wait=first_wait))
    assert run.status == "failed"
    assert run.error is not None
    assert f"{MODEL}: no connection to " in run.error.message, run.error.message
    assert f"gave up after {retries + 1} attempts" in run.error.message
    assert time.monotonic() - begun < 60


# --- the table ----------------------------------------------------------------------------------


def rows() -> Iterator[tuple[str, Callable[[Path], str]]]:
    """Each row's name, and what tries it in a folder and says what was seen."""
    yield "model server: every kind of broken answer, all of them and every other one", lambda _: broken()
    yield "model server: 429 to 50 agents at once, without and with Retry-After, real waits", lambda _: storms()
    yield "model server: down, back after a while, and silent", lambda _: down()


def broken() -> str:
    for kind in BROKEN:
        check_broken(kind)
    check_half_broken(50, 1.0)
    return f"{len(BROKEN)} kinds; 50 nodes finished with every other answer broken"


def storms() -> str:
    told = [check_busy(50, 1.0), check_busy(50, 1.0, 2.0), check_busy(50, 1.0, retries=5), check_limited(50, 20, 6.0)]
    return "; ".join(told)


def down() -> str:
    check_down(1.0)
    begun = time.monotonic()
    with ModelServer(lambda _: "there" if time.monotonic() - begun > 5 else Failure(503, "starting")) as server:
        run = run_of(parallel(server.url, 50, retries=6))
        requests = len(server.requests)
    assert run.status == "succeeded", run.error
    with ModelServer(lambda _: Hang()) as server:
        run = run_of(Flow("patient", impatient(server.url)))
    assert run.status == "failed"
    assert run.error is not None
    assert MODEL in run.error.message
    return f"50 nodes outlived 5 s of 503 with {requests} requests; silence is told as: {run.error.message}"


def impatient(url: str) -> Mapping[str, AgentNode]:
    """Agents that wait two seconds for an answer, and no longer."""
    model = NativeModel("gpt-4o-mini", "openai", settings={"api_key": "local", "api_base": url})
    agent = Agent("asker", "Say one word.", model=RetryingModel(model, 1), timeout=2.0)
    return {f"n{number}": AgentNode(agent, prompt=lambda _: "Go.") for number in range(5)}
