"""kill -9 of a run at every event of every sample flow: it is resumed to the same end and pays for nothing twice.

A process kills itself at the moment that is asked for: right after its n-th event was `appended` (the event is
lost with the process), or right after the commit that made it durable (`committed`). Models are the offline
stand-in; the processes write down what they ask it, and that is compared with what the record held at the kill.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import anyio

from flowengine.core.records import ModelCall
from flowengine.engine.events import Event, NodeFinished, NodeRecorded, NodeStarted, RunFinished
from flowengine.flow import Flow
from flowengine.journal.approvals import answer, open_questions
from flowengine.journal.sqlite.store import SQLiteJournal, SQLiteStore
from flowengine.journal.sqlite.writer import SqliteWriter
from flowengine.journal.value_types import only_looking
from flowengine.models.messages import as_dict
from flowengine.models.model import Reply, Request
from flowengine.models.offline.model import OfflineModel
from flowengine.runtime.run import Run
from tests.faults.process_nursery import ROOT, Nursery, command

__all__ = [
    "MOMENTS",
    "PATTERNS",
    "SAMPLES",
    "UNREACHED",
    "check_commands",
    "check_position",
    "check_relay",
    "die",
    "load_all",
    "rows",
    "whole",
]

MOMENTS: Final = ("appended", "committed")

UNREACHED: Final = {"order_status", "compute_totals", "check_invoice", "first_answer", "team_memory"}
"""Flows that ask a service which is not there, those that run code, for which not every machine has a sandbox, and
races, whose calls are not the same each time. `team_memory` has a test of its own that resumes it."""

SAMPLES: Final[Mapping[str, Mapping[str, Any]]] = {
    "call_tools": {"order": "A-17", "reason": "broken"},
    "channel_reply": {"text": "Bot, when is the release?", "at": "2025-03-01T09:00:00+00:00"},
    "content_route": {"topic": "Markets, sales and the strategy of a shop"},
    "draft_evaluate_improve": {"facts": "The shop moves on 3 May. Parking is free. Old vouchers stay valid."},
    "draft_until_good": {"topic": "Bees make honey. They fly. They dance."},
    "handoff": {"message": "My teapot from order A-17 came broken."},
    "hello": {"name": "Ada"},
    "multilingual_triage": {"message": "先月の料金が二重に請求されています。返金してください。"},
    "parallel_research": {"question": "How do message queues keep their order?"},
    "parallel_review": {"text": "Tea is the oldest drink. Everybody likes it. Nobody knows why."},
    "quality_gate": {"brief": "Tea is a drink. It is made from leaves. Water is poured over them."},
    "refund_desk": {"message": "My teapot from order A-17 came broken."},
    "release_approval": {"version": "1.4", "changes": "Faster start"},
    "support_triage": {"message": "I was charged twice for one invoice"},
    "tool_agent": {"message": "My teapot from order A-17 came broken."},
    "wider_search": {"question": "How do message queues keep their order?"},
}
"""Flow → its inputs."""

PATTERNS: Final[Mapping[str, Mapping[str, Any]]] = {
    "answer_with_citations": {"question": "When are refunds paid?"},
    "map_reduce": {"text": "Tea is a drink.\n\nIt is made from leaves.\n\nWater is poured over them."},
    "judge_panel": {"text": "Tea is the oldest drink. Everybody likes it."},
    "best_of_three": {"task": "Say how tea is brewed."},
    "rules_before_models": {"text": "I was charged twice for one invoice"},
    "extract_fields": {"message": "A table for four on 1 March, Ann"},
    "graceful_failure": {"number": "Z-1"},
    "plan_and_execute": {"task": "Move the shop to another street"},
    "debate": {"question": "Should the shop open on Sundays?"},
    "back_translation": {"text": "We open at nine."},
    "rolling_summary": {"text": "Tea is a drink.\n\nIt is made from leaves.\n\nWater is poured over them."},
    "screened_reply": {"message": "Which tea is mild?"},
    "report_with_failures": {},
    "repair_desk": {"message": "My kettle K2 hums and switches off early."},
}
"""Further ones, of the same kinds of nodes: they are killed in the long tests, and where all is killed."""

_INPUTS: Final = {**SAMPLES, **PATTERNS}
FORM: Final = {"ticket": "REL-7", "when": "now"}


class Whole(NamedTuple):
    """A run that nobody disturbed."""

    outputs: Mapping[str, Any]
    statuses: Mapping[str, str]
    asked: Counter[str]
    events: int


# --- in the processes ---------------------------------------------------------------------------


@cache
def flow_of(name: str) -> Flow:
    return Flow.from_yaml(ROOT / "flows" / f"{name}.yaml")


def load_all() -> None:
    """What the processes have before they begin: the flows, and whatever the first run of each imports."""
    os.environ["CHANNEL_MEMORY"] = ":memory:"
    for name, inputs in _INPUTS.items():
        flow_of(name).run_sync(inputs)


def go_on(name: str, moment: str = "", at: int = 0) -> Any:
    """Begin the run in this folder, or go on with it, to its end; a person answers what it asks."""
    listen()
    if at:
        die(moment, at)
    store = SQLiteStore("runs.db")
    try:
        run = anyio.run(_to_the_end, flow_of(name), _INPUTS[name], store)
        return {"outputs": run.outputs, "status": run.status, "error": run.error, "statuses": statuses(run)}
    finally:
        store.close()


async def _to_the_end(flow: Flow, inputs: Mapping[str, Any], store: SQLiteStore) -> Run:
    has_begun = any(each.run_id == "r1" for each in store.list())
    run = await (flow.resume("r1", store=store) if has_begun else flow.run(inputs, store=store, run_id="r1"))
    if run.status == "waiting":
        await answer(store, "r1", None, "ship", by="Ann", form=FORM, comment="fine")
        run = await flow.resume("r1", store=store)
    return run


def statuses(run: Run) -> Mapping[str, str]:
    return {name: node.status for name, node in run.nodes.items()}


def by_command(argv: list[str], moment: str = "", at: int = 0) -> None:
    """The command line, killed at the moment."""
    listen()
    if at:
        die(moment, at)
    command(argv)


def listen() -> None:
    """Write down what the model is asked, as it answers; what a sample remembers is kept in this folder too."""
    os.environ["CHANNEL_MEMORY"] = "channel.db"
    complete = OfflineModel.complete

    async def told(self: OfflineModel, request: Request) -> Reply:
        reply = await complete(self, request)
        with open("asked", "a") as file:  # noqa: ASYNC230 -- what is written must be there when the process dies
            file.write(f"{key_of([as_dict(each) for each in request.messages])}\n")
        return reply

    OfflineModel.complete = told  # type: ignore[method-assign]  # this process does nothing else


def key_of(messages: Sequence[Mapping[str, Any]]) -> str:
    """What a question is known by; a request's own key also counts settings that a limit of the run adds."""
    return hashlib.sha256(json.dumps(messages).encode()).hexdigest()[:16]


def die(moment: str, at: int) -> None:
    """kill -9 this process once so many events are appended, or are committed."""
    append, write, begin = SQLiteJournal.append, SqliteWriter.write, SqliteWriter.begin
    appended = 0

    def kill() -> None:
        if appended >= at:
            os.kill(os.getpid(), signal.SIGKILL)

    def appending(self: SQLiteJournal, event: Event, /) -> None:
        nonlocal appended
        append(self, event)
        appended += 1
        if moment == "appended":
            kill()

    def writing(self: SqliteWriter) -> None:
        write(self)
        kill()

    def beginning(self: SqliteWriter, *given: Any) -> Any:
        nonlocal appended
        held = begin(self, *given)
        appended += 1
        kill()
        appended -= 1
        return held

    SQLiteJournal.append = appending  # type: ignore[method-assign]
    if moment == "committed":
        SqliteWriter.write, SqliteWriter.begin = writing, beginning  # type: ignore[method-assign]


# --- round them ---------------------------------------------------------------------------------


def whole(nursery: Nursery, folder: Path, name: str) -> Whole:
    """The run without a fault."""
    folder.mkdir()
    ended = nursery.run(go_on, folder, name=name)
    assert ended.status == 0, ended.err
    assert ended.value["status"] == "succeeded", ended.value
    return Whole(ended.value["outputs"], ended.value["statuses"], asked(folder), len(events_of(folder)))


def check_position(nursery: Nursery, folder: Path, name: str, undisturbed: Whole, moment: str, at: int) -> None:
    """Kill a run at one moment, and resume it."""
    folder.mkdir()
    killed = nursery.run(go_on, folder, name=name, moment=moment, at=at)
    assert killed.status == -signal.SIGKILL, (name, moment, at, killed)
    kept = events_of(folder)
    assert len(kept) >= at if moment == "committed" else len(kept) <= at, (name, moment, at)
    before = asked(folder)
    ended = nursery.run(go_on, folder, name=name)
    place = f"{name}, killed after event {at} was {moment}"
    assert ended.status == 0, f"{place}: {ended.err}"
    assert ended.value["error"] is None, f"{place}: {ended.value}"
    check_end(folder, undisturbed, ended.value["outputs"], ended.value["statuses"], place)
    assert asked(folder) - before == undisturbed.asked - stored(kept), f"{place}: it asked for more than what was lost"
    shutil.rmtree(folder)


def check_relay(nursery: Nursery, folder: Path, name: str, undisturbed: Whole, seed: int) -> int:
    """Kill each process that goes on with the run soon after its start, until one comes to the end; how many died."""
    folder.mkdir()
    draw = random.Random(f"{name} {seed}")
    paid: Counter[str] = Counter()
    for died in range(200):
        before = asked(folder)
        ended = nursery.run(go_on, folder, name=name, moment=draw.choice(MOMENTS), at=draw.randint(3, 9))
        again = asked(folder) - before
        assert paid + again <= undisturbed.asked, f"{name}: what was on record was asked for again"
        paid = stored(events_of(folder))
        if ended.status == 0:
            check_end(folder, undisturbed, ended.value["outputs"], ended.value["statuses"], f"{name}, a relay")
            return died
        assert ended.status == -signal.SIGKILL, ended
    raise AssertionError(f"{name}: the run does not come forward")


def check_end(
    folder: Path, undisturbed: Whole, outputs: Mapping[str, Any], states: Mapping[str, str], place: str
) -> None:
    assert outputs == undisturbed.outputs, place
    assert states == undisturbed.statuses, place
    events = events_of(folder)
    done: set[str] = set()
    for event in events:
        if isinstance(event, NodeStarted | NodeFinished):
            assert event.node not in done, f"{place}: node '{event.node}' had finished already"
        if isinstance(event, NodeFinished):
            done.add(event.node)
    assert stored(events) == undisturbed.asked, f"{place}: calls are on record twice, or not at all"


def events_of(folder: Path) -> list[Event]:
    store = SQLiteStore(folder / "runs.db")
    try:
        with only_looking():
            return list(store.events("r1")) if store.list() else []
    finally:
        store.close()


def stored(events: list[Event]) -> Counter[str]:
    """Keys of the completions on record."""
    told = [event.record for event in events if isinstance(event, NodeRecorded)]
    return Counter(key_of(list(record.messages)) for record in told if isinstance(record, ModelCall))


def asked(folder: Path) -> Counter[str]:
    """Keys of the requests that the model has answered."""
    file = folder / "asked"
    return Counter(file.read_text().split() if file.exists() else ())


# --- the table ----------------------------------------------------------------------------------


def rows() -> Iterator[tuple[str, Callable[[Path], str]]]:
    """Each row's name, and what tries it in a folder and says what was seen."""
    yield "kill -9 after every event, and after every commit, of every sample flow", every_event
    yield "kill -9 of one process after the other, ten times each sample flow", relays
    yield "kill -9 of `flowengine run`, `resume` and `approve` at every event of every sample flow", every_command


def every_event(folder: Path) -> str:
    positions = 0
    with Nursery(load_all) as nursery:
        for name in _INPUTS:
            undisturbed = whole(nursery, folder / name, name)
            for moment in MOMENTS:
                for at in range(1, undisturbed.events + 1):
                    check_position(nursery, folder / f"{name}-{moment}-{at}", name, undisturbed, moment, at)
                    positions += 1
    return f"{positions} positions"


def relays(folder: Path) -> str:
    died = 0
    with Nursery(load_all) as nursery:
        for name in _INPUTS:
            undisturbed = whole(nursery, folder / name, name)
            for seed in range(10):
                died += check_relay(nursery, folder / f"{name}-{seed}", name, undisturbed, seed)
    return f"{died} processes killed"


def every_command(folder: Path) -> str:
    positions = 0
    with Nursery(load_all) as ready, Nursery() as bare:
        for name in _INPUTS:
            undisturbed = whole(ready, folder / name, name)
            for at in range(1, undisturbed.events + 1):
                place = folder / f"{name}-{at}"
                check_commands(bare, place, name, undisturbed, MOMENTS[at % 2], at)
                positions += 1
    return f"{positions} positions"


def check_commands(nursery: Nursery, folder: Path, name: str, undisturbed: Whole, moment: str, at: int) -> None:
    """Kill the command that is at work at one moment; whoever types the next ones comes to the same end."""
    folder.mkdir()
    folder.joinpath("form.json").write_text(json.dumps(FORM))
    killed = False
    for _ in range(6):
        left = 0 if killed else at - len(events_of(folder))
        ended = nursery.run(by_command, folder, argv=next_words(folder, name), moment=moment, at=left)
        killed = killed or ended.status == -signal.SIGKILL
        assert ended.status in (-signal.SIGKILL, 0, 3), f"{name}, killed after event {at} was {moment}: {ended}"
        if ended.status == 0:
            break
    assert killed
    told = json.loads(ended.out)
    states = {node: told["nodes"][node]["status"] for node in undisturbed.statuses}  # it has those inside, too
    check_end(folder, undisturbed, told["outputs"], states, f"{name}, killed after event {at} was {moment}")
    shutil.rmtree(folder)


def next_words(folder: Path, name: str) -> list[str]:
    """What a person types who sees the run as it is."""
    options = ["--store", "runs.db", "--json"]
    events = events_of(folder)
    if not events:
        given = [word for key, value in _INPUTS[name].items() for word in ("-i", f"{key}={value}")]
        return ["run", str(ROOT / "flows" / f"{name}.yaml"), "--run-id", "r1", *given, *options]
    if isinstance(events[-1], RunFinished) and open_questions(events):
        answer = ["--choice", "ship", "--form", "form.json", "--by", "Ann", "--comment", "fine"]
        return ["approve", "r1", *answer, *options]
    return ["resume", "r1", *options]
