"""kill -9 of a server with 20 requests in flight, at positions of its journal: every caller that asks again with its
key gets its one result, and no completion that is on record is paid for again.

The model is a server of its own on loopback, which counts what it is asked.
"""

from __future__ import annotations

import os
import random
import re
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import httpx

from flowengine.core.records import ModelCall
from flowengine.engine.events import NodeRecorded, RunStarted
from flowengine.journal.sqlite.store import SQLiteStore
from tests.faults.process_killed import MOMENTS, die
from tests.faults.process_nursery import ROOT, Child, Nursery, command, shared
from tests.support.model_server import ModelServer

__all__ = ["check_kill", "check_undisturbed", "load_server", "served"]

CALLERS: Final = 20
FLOW: Final = """flowengine: v1
name: twice
inputs: {who: {type: string}}
nodes:
  first: {prompt: "First word for {{ inputs.who }}.", model: openai/gpt-4o-mini}
  second: {prompt: "Second word for {{ inputs.who }}.", model: openai/gpt-4o-mini, needs: [first]}
outputs: {said: "{{ nodes.first.output }} and {{ nodes.second.output }}"}
"""
_ARGUMENTS: Final = ("serve", "twice.yaml", "--no-keys", "--port", "0", "--store", "runs.db", "--durability", "process")
_PATIENCE: Final = 60.0


def load_server() -> None:
    """What the processes have before they begin: a server has been there, and has imported what it needs."""
    import flowengine.cli.commands.serve  # noqa: F401 -- so that no child has to
    from flowengine.web.serving_app import make_serving_app

    async def live() -> None:
        app = make_serving_app("memory:", [ROOT / "flows" / "hello.yaml"], needs_key=False)
        async with app.router.lifespan_context(app):
            service = app.state.serving.service
            await service.wait((await service.start("hello", {})).run_id)

    anyio.run(live)


def serve(environ: Mapping[str, str], moment: str = "", at: int = 0) -> None:
    """A server, which kills itself at the moment."""
    if at:
        die(moment, at)
    command(_ARGUMENTS, environ)


def served(times: int, seed: int) -> str:
    """A server with 20 requests in flight is killed at every position of its journal: one result for each key, and
    nothing that is on record is paid for again."""
    nursery = shared(load_server)
    with tempfile.TemporaryDirectory() as name:
        events = check_undisturbed(nursery, Path(name))
    places = [(moment, at) for at in range(1, events + 1) for moment in MOMENTS]
    if times:
        places = random.Random(seed).sample(places, times)
    asked_again = 0
    for moment, at in places:
        with tempfile.TemporaryDirectory() as name:
            asked_again += check_kill(nursery, Path(name), moment, at)
    return f"{len(places)} kills, {CALLERS} callers each; {asked_again} completions were in flight, 0 paid twice"


def check_undisturbed(nursery: Nursery, folder: Path) -> int:
    """How many events 20 requests make."""
    with ModelServer(_answer) as model:
        with _serving(nursery, folder, model) as server:
            results = anyio.run(_call_all, folder, server)
            os.kill(server.pid, signal.SIGTERM)
            assert server.ended().status == 0
        assert None not in results
        assert len(model.requests) == 2 * CALLERS
    with closing(SQLiteStore(folder / "runs.db")) as store:
        return sum(len(store.events(each.run_id)) for each in store.list())


def check_kill(nursery: Nursery, folder: Path, moment: str, at: int) -> int:
    """Kill at a position, start again, and let every caller ask again; how many completions were asked for again."""
    with ModelServer(_answer) as model:
        with _serving(nursery, folder, model, moment, at) as server:
            before = anyio.run(_call_all, folder, server)
            ended = server.ended()
        assert ended.status == -signal.SIGKILL, (ended.status, ended.err)
        recorded = _recorded(folder)
        with _serving(nursery, folder, model) as server:
            after = anyio.run(_call_all, folder, server)
            again = anyio.run(_call_all, folder, server)
            os.kill(server.pid, signal.SIGTERM)
            assert server.ended().status == 0
    for number in range(CALLERS):
        assert after[number] == again[number] == f"first {number} and second {number}", (moment, at, number, after)
        assert before[number] in (None, after[number])
    with closing(SQLiteStore(folder / "runs.db")) as store:
        infos = store.list()
    assert [each.status for each in infos] == ["succeeded"] * CALLERS, (moment, at)
    asked = Counter(_prompt_of(each.body) for each in model.requests)
    paid_twice = [prompt for prompt in recorded if asked[prompt] > 1]
    assert not paid_twice, (moment, at, paid_twice)
    assert all(asked[f"{word} word for {number}."] for word in ("First", "Second") for number in range(CALLERS))
    return sum(count - 1 for count in asked.values())


@contextmanager
def _serving(nursery: Nursery, folder: Path, model: ModelServer, moment: str = "", at: int = 0) -> Generator[Child]:
    """A server in the folder, which listens before the block begins, and is gone after it."""
    (folder / "twice.yaml").write_text(FLOW)
    environ = {"OPENAI_API_KEY": "local", "OPENAI_BASE_URL": model.url}
    child = nursery.start(serve, folder, environ=environ, moment=moment, at=at)
    try:
        _address(folder, child)
        yield child
    finally:
        if child.is_running():
            os.kill(child.pid, signal.SIGKILL)
            child.ended()


def _address(folder: Path, child: Child) -> str:
    """What the server has told; it is the newest of the folder."""
    said = folder / f"{child.name}.out"
    until = time.monotonic() + _PATIENCE
    while not (said.exists() and said.read_text().endswith("\n")):
        assert child.is_running(), child.ended().err
        assert time.monotonic() < until, "the server does not listen"
        time.sleep(0.01)
    return said.read_text().split()[0]


async def _call_all(folder: Path, server: Child) -> Sequence[str | None]:
    """All callers at once, each with its key: what each got; None where the server died before."""
    found: list[str | None] = [None] * CALLERS
    async with httpx.AsyncClient(base_url=_address(folder, server), timeout=_PATIENCE, trust_env=False) as client:

        async def call(number: int) -> None:
            try:
                answer = await client.post(
                    "/flows/twice", json={"who": str(number)}, headers={"Idempotency-Key": f"caller-{number}"}
                )
            except httpx.TransportError:
                return
            assert answer.status_code == 200, answer.text
            found[number] = answer.json()["said"]

        async with anyio.create_task_group() as tasks:
            for number in range(CALLERS):
                tasks.start_soon(call, number)
    return found


def _recorded(folder: Path) -> set[str]:
    """The prompts whose completions are on record, in runs that are."""
    with closing(SQLiteStore(folder / "runs.db")) as store:
        found: set[str] = set()
        for info in store.list():
            events = store.events(info.run_id)
            assert isinstance(events[0], RunStarted)
            who = events[0].inputs["who"]
            for event in events:
                if isinstance(event, NodeRecorded) and type(event.record) is ModelCall:
                    found.add(f"{event.node.capitalize()} word for {who}.")
    return found


def _prompt_of(body: Mapping[str, Any]) -> str:
    """Which of the prompts it was, without what stands round it."""
    found = re.search(r"(First|Second) word for \d+\.", body["messages"][-1]["content"])
    assert found is not None, body
    return found[0]


def _answer(body: dict[str, Any]) -> str:
    word, _, _, number = _prompt_of(body).rstrip(".").split()
    return f"{word.lower()} {number}"
