"""Tells what a fork takes over of the run that it is made from, so that it goes on as that run itself would. Pure.

1. A node that finished keeps its result, with the calls that led to it (`Reused`): nothing of it is asked, paid or
   counted again. Of a container this holds for all that is inside it.
2. A node that did not finish keeps what resuming the run would keep: what it was answered, what it did outside, and
   what of its inside had settled; failures inside stay failures, which can be repeated.
3. A question is asked anew in each run. A consent goes over with the deed that was done by it, and with no other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from flowengine.core import Answered, ApprovalRequested, MapStopped, ModelCall, Notified, Reused, ToolCall, tool_key
from flowengine.engine import Event, History, NodeFailed, NodeFinished, NodeRecorded, NodeSkipped, NodeStarted
from flowengine.nodes import Past


class _Standing(NamedTuple):
    """How a node stands in the end, with the places of that in the record."""

    started: int | None = None
    ended: int | None = None


def shared_events(events: Sequence[Event], shared: Collection[str], run_id: str, at: float) -> Iterator[Event]:
    """Yields what the nodes `shared`, of the flow's own level, came to in the run `run_id`; it all happens at `at`."""
    history, past = History(events), Past(events)
    places = {id(event): place for place, event in enumerate(events)}
    standings = {node: each for node, each in _find_standings(history, places).items() if _top_of(node) in shared}
    copies: list[tuple[int, Event]] = []
    for node, (started, ended) in standings.items():
        ending = None if ended is None else events[ended]
        if isinstance(ending, NodeSkipped) and ending.cause != "condition_false" and "." not in node:
            continue  # It is decided anew, as the run itself would.
        place = started if started is not None else ended or 0
        if started is not None:
            copies.append((place, NodeStarted(node, at)))
        if isinstance(ending, NodeFinished):
            result = past.results.get(node)
            calls = () if result is None else result.calls
            copies.append((ended or 0, NodeRecorded(node, at, Reused(run_id, node, calls))))
        if ending is not None:
            copies.append((ended or 0, ending._replace(at=at)))
    copies += _find_stops(events, standings, at)
    for node in history.attempts:
        if _top_of(node) in shared:
            records = history.attempts.of(node)
            place = standings.get(node, _Standing()).started or 0
            copies += [(place, NodeRecorded(node, at, each)) for each in _unfinished(records, run_id, node)]
    yield from (event for _, event in sorted(copies, key=lambda each: each[0]))


def _find_standings(history: History, places: Mapping[int, int]) -> dict[str, _Standing]:
    standings: dict[str, _Standing] = {}
    for prefix in history.prefixes():
        for event in history.of(prefix):
            match event:
                case NodeStarted(node=node):
                    standings[node] = _Standing(places[id(event)])
                case NodeFinished(node=node) | NodeFailed(node=node):
                    standings[node] = standings.get(node, _Standing())._replace(ended=places[id(event)])
                case NodeSkipped(node=node, cause=cause):
                    standing = standings.get(node, _Standing())
                    if cause == "condition_false" or standing.ended is None:  # Called off is not undone.
                        standings[node] = standing._replace(ended=places[id(event)])
                case _:
                    pass
    return standings


def _find_stops(events: Sequence[Event], standings: Mapping[str, _Standing], at: float) -> Iterator[tuple[int, Event]]:
    """Yields what says of a map that finished that it had enough: its failed items need not be repeated."""
    for place, event in enumerate(events):
        if isinstance(event, NodeRecorded) and type(event.record) is MapStopped and event.node in standings:
            ended = standings[event.node].ended
            if ended is not None and isinstance(events[ended], NodeFinished):
                yield place, event._replace(at=at)


def _top_of(node: str) -> str:
    return node.partition(".")[0].partition("[")[0]


def _unfinished(records: Sequence[Any], run_id: str, node: str) -> Iterator[Any]:
    """Yields what a node that did not finish keeps: its calls as the other run's, which paid for them."""
    calls: list[Any] = []
    for each in records:
        if type(each) is Reused:
            calls = [*each.calls]
        elif type(each) is ModelCall and each.error is None:
            calls.append(each)
    if calls:
        yield Reused(run_id, node, calls)
    questions = _settled_questions(records)
    for each in records:
        is_open = type(each) in (ApprovalRequested, Answered) and each.name not in questions
        if not is_open and type(each) not in (Reused, ModelCall, Notified):
            yield each


def _settled_questions(records: Sequence[Any]) -> Collection[str]:
    """The names of questions whose answers go over: what was said, and consents by which something was done."""
    answers = {each.name: each for each in records if type(each) is Answered}
    done = {each.key for each in records if type(each) is ToolCall}
    names: set[str] = set()
    for each in records:
        if type(each) is ApprovalRequested and (answer := answers.get(each.name)) is not None:
            arguments = each.arguments if answer.form is None else answer.form
            if not each.tool or tool_key(each.tool, arguments or {}) in done:
                names.add(each.name)
    return names
