"""kill -9 of a run whose tool calls wait for a person: at every event, and by each process that goes on with it.

The agent wants three payments in one turn and one in the next. A person accepts, changes, refuses, and accepts. A
process kills itself right after an event was appended, or committed; who finds a payment begun and not ended looks into
the book of payments, as a person would. Each payment is made once, each completion asked for once, but for what the
kill itself took.
"""

from __future__ import annotations

import json
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import anyio

from flowengine import Agent, Flow, tool
from flowengine.core.records import ApprovalRequested, ModelCall
from flowengine.engine.events import Event, NodeRecorded
from flowengine.errors import EffectPendingError
from flowengine.journal.approvals import answer, open_questions
from flowengine.journal.sqlite.store import SQLiteStore
from flowengine.models.messages import ToolRequest
from flowengine.models.model import Reply, Request
from flowengine.models.scripted import ScriptedModel
from flowengine.nodes.agent import AgentNode
from flowengine.runtime.run import Run
from tests.faults.process_killed import MOMENTS, die, events_of
from tests.faults.process_nursery import Nursery

__all__ = ["ANSWERS", "check_calls", "go_on", "length_of", "load_calls", "rows"]

ANSWERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "help:refund": {"choice": "accept"},
    "help:refund:2": {"choice": "accept", "form": {"order": "B-2", "euros": 20}},
    "help:refund:3": {"choice": "refuse", "comment": "Too old."},
    "help:refund:4": {"choice": "accept"},
}
PAID: Final = Counter(["A-1 1", "B-2 20", "D-4 4"])
WISHES: Final = ((("A-1", 1), ("B-2", 2), ("C-3", 3)), (("D-4", 4),))


@tool(effect="external", approve=True)
def refund(order: str, euros: int) -> str:
    """Pay an order back."""
    write("paid", f"{order} {euros}")
    return "paid"


def write(name: str, line: str) -> None:
    """Into a file of this folder; it is there when the process dies."""
    with open(name, "a") as file:
        file.write(f"{line}\n")


def read(folder: Path, name: str) -> list[str]:
    file = folder / name
    return file.read_text().splitlines() if file.exists() else []


def reply(request: Request) -> Reply:
    turn = sum(each.role == "assistant" for each in request.messages)
    write("asked", str(turn))
    if turn >= len(WISHES):
        return Reply("Done.")
    wanted = [json.dumps({"order": order, "euros": euros}) for order, euros in WISHES[turn]]
    return Reply("", tool_calls=tuple(ToolRequest(f"c{n}", "refund", each) for n, each in enumerate(wanted)))


def load_calls() -> Flow:
    agent = Agent("help", "Help.", model=ScriptedModel(reply), tools=[refund])
    return Flow("desk", {"help": AgentNode(agent, prompt=lambda context: "Pay me back.")})


# --- in the processes ---------------------------------------------------------------------------


def go_on(moment: str = "", at: int = 0) -> Any:
    """Begin the run in this folder, or go on with it; a person answers, and decides about what is unsure."""
    if at:
        die(moment, at)
    store = SQLiteStore("runs.db")
    try:
        run = anyio.run(_to_the_end, load_calls(), store)
        return {"outputs": {name: str(each) for name, each in run.outputs.items()}, "error": run.error}
    finally:
        store.close()


async def _to_the_end(flow: Flow, store: SQLiteStore) -> Run:
    has_begun = any(each.run_id == "r1" for each in store.list())
    run = await (_resume(flow, store) if has_begun else flow.run(store=store, run_id="r1"))
    while run.status == "waiting":
        path = min(open_questions(run.events))
        await answer(store, "r1", path, by="Ann", **ANSWERS[path])
        run = await _resume(flow, store)
    return run


async def _resume(flow: Flow, store: SQLiteStore) -> Run:
    try:
        return await flow.resume("r1", store=store)
    except EffectPendingError as error:
        [(_, _, given)] = error.calls
        is_done = f"{given['order']} {given['euros']}" in read(Path(), "paid")
        return await flow.resume("r1", store=store, **{"assume_done" if is_done else "retry_effects": ["help"]})


# --- round them ---------------------------------------------------------------------------------


def length_of(nursery: Nursery, folder: Path) -> int:
    """Events of the run without a fault."""
    folder.mkdir()
    _check_end(nursery, folder, "undisturbed")
    assert read(folder, "asked") == ["0", "1", "2"]
    return len(events_of(folder))


def check_calls(nursery: Nursery, folder: Path, moment: str, at: int) -> None:
    """Kill a run at one moment, and go on with it."""
    folder.mkdir()
    place = f"killed after event {at} was {moment}"
    killed = nursery.run(go_on, folder, moment=moment, at=at)
    assert killed.status == -signal.SIGKILL, (place, killed)
    before, kept = Counter(read(folder, "asked")), paid_for(events_of(folder))
    _check_end(nursery, folder, place)
    again = Counter(read(folder, "asked")) - before
    assert sum(again.values()) == 3 - kept, f"{place}: it asked for more than what was lost"
    shutil.rmtree(folder)


def _check_end(nursery: Nursery, folder: Path, place: str) -> None:
    ended = nursery.run(go_on, folder)
    assert ended.status == 0, f"{place}: {ended.err}"
    assert ended.value == {"outputs": {"help": "Done."}, "error": None}, place
    assert Counter(read(folder, "paid")) == PAID, f"{place}: {read(folder, 'paid')}"
    events = events_of(folder)
    asked = [
        each.record.name for each in events if isinstance(each, NodeRecorded) and type(each.record) is ApprovalRequested
    ]
    assert sorted(asked) == ["refund", "refund:2", "refund:3", "refund:4"], f"{place}: {asked}"
    assert paid_for(events) == 3, place


def paid_for(events: list[Event]) -> int:
    return sum(isinstance(each, NodeRecorded) and type(each.record) is ModelCall for each in events)


def rows() -> Iterator[tuple[str, Callable[[Path], str]]]:
    """Each row's name, and what tries it in a folder and says what was seen."""
    yield "kill -9 at every event of a run whose tool calls wait for a person", every_event


def every_event(folder: Path) -> str:
    with Nursery(load_calls) as nursery:
        length = length_of(nursery, folder / "whole")
        for moment in MOMENTS:
            for at in range(1, length + 1):
                check_calls(nursery, folder / f"{moment}-{at}", moment, at)
    return f"{len(MOMENTS) * length} positions"
