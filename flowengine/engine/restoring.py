"""Tells from a journal what had settled for good, for a run that goes on. Pure: events in, facts out.

A journal is read level by level: the nodes of the flow are one, each round of a loop and each item of
a map is another (`polish.round[2].`), named by the prefix of its nodes' paths.

What had settled before a resumption stays settled for good, unless something that comes before it in the graph began
anew since: then it begins anew as well, with everything inside.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import fsum
from typing import Any, Final, NamedTuple

from flowengine.core import (
    ACCEPT,
    Answered,
    ApprovalRequested,
    EffectDecided,
    MapStopped,
    ModelCall,
    Notified,
    Retry,
    RoundEnded,
    SkipCause,
    Spending,
    ToolCall,
    tool_key,
    usage_of,
)
from flowengine.engine.events import (
    ErrorInfo,
    Event,
    NodeFailed,
    NodeFinished,
    NodeRecorded,
    NodeSkipped,
    NodeStarted,
    RunFinished,
    RunResumed,
)
from flowengine.engine.graph import Graph, OnError

# --- Records of unfinished nodes


class Attempts:
    """Node path → records, oldest first.

    >>> from flowengine.core.records import Notice
    >>> attempts = Attempts()
    >>> attempts.add("draft", Notice("first try"))
    >>> attempts.add("draft", Retry(1, "no JSON", 1.0))
    >>> attempts.of("draft")
    [Retry(attempt=1, error='no JSON', delay=1.0)]
    """

    def __init__(self) -> None:
        self._records: dict[str, list[Any]] = {}
        self._asking: set[str] = set()
        """Nodes that asked people."""

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def of(self, node: str) -> Sequence[Any]:
        return self._records.get(node, ())

    def add(self, node: str, record: Any) -> None:
        records = self._records.setdefault(node, [])
        if type(record) is Retry:
            deeds = _select_deeds(records)
            records[:] = [each for each in records if type(each) is Retry or any(each is deed for deed in deeds)]
        records.append(record)
        if type(record) is ApprovalRequested:
            self._asking.add(node)

    def replace(self, node: str, records: Sequence[Any]) -> None:
        """These are all that counts of a node that is entered again."""
        self._records[node] = list(records)

    def fail(self, node: str, error: ErrorInfo) -> None:
        """The node failed for good: it goes on later as one that was interrupted, but what failed is asked anew."""
        self._keep(node, _select_sound(self.of(node), error))

    def begin_anew(self, node: str) -> None:
        """Something before the node began anew, so that what it was asked is another question."""
        self._keep(node, _select_deeds(self.of(node)))

    def _keep(self, node: str, records: Sequence[Any]) -> None:
        self._records.pop(node, None)
        if records:
            self._records[node] = list(records)

    def forget_rounds(self, loop: str, first: int) -> None:
        """Discards what a loop recorded of a round and of those after it."""
        if loop in self._records:
            remaining = [each for each in self._records[loop] if type(each) is not RoundEnded or each.number < first]
            self._records[loop] = remaining

    def finish(self, node: str) -> None:
        self._records.pop(node, None)

    def finish_inside(self, container: str) -> None:
        """The container is settled for good."""
        for node in _inside(container, self._records):
            self.finish(node)

    def close_questions_inside(self, container: str) -> None:
        """The container has ended, and what it called off inside asks nobody any more. What failed there may still be
        repeated, and keeps what it was given."""
        for node in _inside(container, self._asking):
            self._asking.discard(node)
            records = self.of(node)
            answer_names = {each.name for each in records if type(each) is Answered}
            self._keep(node, [each for each in records if type(each) not in _QUESTIONS or each.name in answer_names])


def _inside(container: str, nodes: Iterable[str]) -> list[str]:
    return [each for each in nodes if each.startswith((f"{container}.", f"{container}["))]


_OF_AN_ANSWER: Final = frozenset(("OutputError", "UnusableAnswerError", "RouteError", "GuardrailError"))
"""Errors of an answer that was given, and cannot be used."""


def _select_sound(records: Sequence[Any], error: ErrorInfo) -> list[Any]:
    """Selects the records that a failed attempt leaves to the next: all but the answer that it failed by, questions
    that are still open or were refused, and what the node itself decided or counted."""
    calls = [each for each in records if type(each) is ModelCall and each.error is None]
    is_unfit = bool(calls) and (error.type in _OF_AN_ANSWER or calls[-1].finish_reason == "content_filter")
    unfit = calls[-1] if is_unfit else None
    is_refused = error.type == "CallRefusedError"
    answer_names = {
        each.name for each in records if type(each) is Answered and not (is_refused and each.choice != ACCEPT)
    }
    return [
        each
        for each in records
        if type(each) not in (Retry, RoundEnded, MapStopped)
        and each is not unfit
        and not (type(each) in _QUESTIONS and each.name not in answer_names)
    ]


_QUESTIONS: Final = (ApprovalRequested, Answered, Notified)


def _select_deeds(records: Sequence[Any]) -> list[Any]:
    """External effects, with the consents that they were done by: what is done is not asked about again."""
    done = {each.key for each in records if _is_external_effect(each)}
    if not done:
        return []
    accepted = {each.name: each for each in records if type(each) is Answered and each.choice == ACCEPT}
    consents: set[str] = set()
    for each in records:
        if type(each) is ApprovalRequested and each.tool and (answer := accepted.get(each.name)) is not None:
            arguments = each.arguments if answer.form is None else answer.form
            consents.update([each.name] if tool_key(each.tool, arguments or {}) in done else ())
    return [each for each in records if _is_external_effect(each) or _is_about(each, consents)]


def _is_about(record: Any, names: Collection[str]) -> bool:
    return type(record) in (ApprovalRequested, Answered) and record.name in names


def _is_external_effect(record: Any) -> bool:
    return type(record) is EffectDecided or (type(record) is ToolCall and record.effect == "external")


Settling = NodeFinished | NodeFailed | NodeSkipped

TOP: Final = ""
"""The prefix of the flow's own level."""
_UNIT: Final = re.compile(r"(?:\.round)?\[\d+\]$")
_ROUND: Final = re.compile(r"\.round\[(\d+)\]\.")
_ID: Final = re.compile(r"[^.\[]*")


class History:
    """The past of a run by level, left behind by earlier owners.

    >>> history = History([NodeStarted("loop", 0.0), NodeFinished("loop.round[0].a", 1.0, None)])
    >>> [event.node for event in history.of("loop.round[0].")]
    ['loop.round[0].a']
    """

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.attempts = Attempts()
        """Records of nodes that have not finished."""
        self.unrecorded_usd = 0.0
        """Dollars of calls whose answers are not on record."""
        self._spent: dict[str, Spending] = {}
        self._levels: dict[str, list[Event]] = {TOP: []}
        self._done: set[str] = set()
        self._containers: set[str] = set()
        """Maps, loops and subflows that were entered."""
        for event in events:
            self._take(event)

    def of(self, prefix: str) -> Sequence[Event]:
        """The events of one level, oldest first; what was settled before a resumption is told apart by it."""
        return self._levels.get(prefix, ())

    def sum_spending(self, part: str = TOP) -> Spending:
        """Returns the usage of a node's model calls, including nodes inside it; by default, of the whole run."""
        inside = (f"{part}.", f"{part}[")
        return add_up_spending(
            [used for node, used in self._spent.items() if not part or node == part or node.startswith(inside)]
        )

    def renew(self, events: Iterable[Event], part: str) -> None:
        """Take in what has happened since, for a node that parked and is entered again, and all inside it.

        What other nodes recorded stays as they found it: they are at work.
        """
        now, inside = History(events), (f"{part}.", f"{part}[")
        self._levels, self._spent, self._done = now._levels, now._spent, now._done
        for node in now.attempts:
            if node == part or node.startswith(inside):
                self.attempts.replace(node, now.attempts.of(node))

    def _take(self, event: Event) -> None:
        match event:
            case RunResumed(repeats=repeats):
                for level in self._levels.values():
                    level.append(event)
                for path in repeats:
                    self._reopen(path)
                return
            case RunFinished(unrecorded_usd=unrecorded):
                self.unrecorded_usd = max(self.unrecorded_usd, unrecorded)
                return
            case NodeStarted(node=node):
                if node in self._done:
                    self.forget(node)
            case NodeFinished(node=node) | NodeSkipped(node=node):
                # A node that was interrupted and then called off (skipped) keeps what it recorded.
                self._done.add(node)
                if isinstance(event, NodeFinished):
                    self.attempts.finish(node)
                    if node in self._containers:
                        self.attempts.close_questions_inside(node)
            case NodeFailed(node=node, error=error):
                self.attempts.fail(node, error)
            case NodeRecorded(node=node, record=record):
                self.attempts.add(node, record)
                if isinstance(record, ModelCall):
                    self._spent[node] = add_up_spending([self._spent.get(node, Spending()), usage_of(record)])
                return
            case _:
                return
        prefix = node[: node.rfind(".") + 1]
        if prefix not in self._levels:
            self._levels[prefix] = []
            self._containers.update(enclosing_containers(prefix))
        self._levels[prefix].append(event)

    def prefixes(self) -> Collection[str]:
        """Returns the prefixes of all levels that were entered."""
        return self._levels.keys()

    def forget(self, node: str) -> None:
        """A node begins anew, and its body does too, where it has one. What it did outside is not forgotten."""
        self._done.discard(node)
        self.attempts.begin_anew(node)
        self._forget_levels((f"{node}.", f"{node}["))

    def _forget_levels(self, beginnings: tuple[str, ...]) -> None:
        for prefix in [each for each in self._levels if each.startswith(beginnings)]:
            for event in self._levels.pop(prefix):
                if not isinstance(event, RunResumed):
                    self.attempts.finish(getattr(event, "node", ""))

    def _reopen(self, path: str) -> None:
        """A container that had ended is entered again, and with it those round it; later rounds begin anew."""
        for container in (path, *enclosing_containers(path)):
            self._done.discard(container)
        for match in _ROUND.finditer(path):
            loop, number = path[: match.start()], int(match[1])
            later = {int(each[1]) for prefix in self._levels if (each := _ROUND.match(prefix, match.start()))}
            self._forget_levels(tuple(f"{loop}.round[{each}]." for each in later if each > number))
            self.attempts.forget_rounds(loop, number)


def add_up_spending(usages: Sequence[Spending]) -> Spending:
    """The sum, to the last digit of the dollars."""
    if not usages:
        return Spending()
    calls, tokens, costs, unpriced = zip(*usages, strict=True)
    return Spending(sum(calls), sum(tokens), fsum(costs), sum(unpriced))


def enclosing_containers(path: str) -> Iterator[str]:
    """The paths of the containers that a node ran in, from the nearest on.

    >>> list(enclosing_containers("polish.round[2].each[1].ask"))
    ['polish.round[2].each', 'polish']
    """
    while "." in path:
        path = _UNIT.sub("", path.rpartition(".")[0])
        yield path


class RestoredPast(NamedTuple):
    """The past of one level, left behind by earlier owners."""

    settled: Mapping[int, Settling]
    """Node → the event that settled it for good: successes, handled failures, conditions that were false."""
    skips: frozenset[tuple[int, SkipCause]]
    """Skips that are journaled since the run was last resumed."""
    unfinished: Collection[int] = ()
    """Nodes that began and did not settle for good."""
    stale: Collection[int] = ()
    """Nodes that had begun before something that is before them in the graph began anew; they are not settled."""


_NOTHING: Final = RestoredPast({}, frozenset())


def past_of(graph: Graph, events: Iterable[Event], prefix: str = TOP) -> RestoredPast:
    """Fold the events of a level; nodes that the graph does not have are left out."""
    if not events:
        return _NOTHING
    index, skip = graph.index, len(prefix)
    last_events: dict[int, Settling] = {}
    starts: dict[int, int] = {}
    skips: set[tuple[int, SkipCause]] = set()
    has_resumed = False
    for at, event in enumerate(events):
        match event:
            case NodeStarted(node=node):
                if node[skip:] in index:
                    last_events.pop(index[node[skip:]], None)
                    starts[index[node[skip:]]] = at
            case NodeFinished(node=node) | NodeFailed(node=node):
                if node[skip:] in index:
                    last_events[index[node[skip:]]] = event
            case NodeSkipped(node=node, cause=cause):
                if node[skip:] in index:
                    number = index[node[skip:]]
                    skips.add((number, cause))
                    if cause == "condition_false" or number not in last_events:  # Called off is not undone.
                        last_events[number] = event
            case RunResumed(repeats=repeats):
                has_resumed = True
                skips.clear()
                for path in repeats:
                    entered = _ID.match(path, skip) if path.startswith(prefix) else None
                    last_events.pop(index.get(entered[0], -1) if entered is not None else -1, None)
            case _:
                pass
    stale = _find_overtaken(graph, starts) if has_resumed else frozenset[int]()
    settled = {
        number: event for number, event in last_events.items() if number not in stale and _stays(graph, number, event)
    }
    return RestoredPast(settled, frozenset(skips), (starts.keys() | last_events.keys()) - settled.keys(), stale)


def _find_overtaken(graph: Graph, starts: Mapping[int, int]) -> frozenset[int]:
    """The nodes that began before a node began anew that comes before them in the graph. `starts`: when, by node."""
    latest = [-1] * len(graph)
    numbers: list[int] = []
    for number, parents in enumerate(graph.parents):
        before = max((latest[each] for each in parents), default=-1)
        own = starts.get(number, -1)
        if -1 < own < before:
            numbers.append(number)
        latest[number] = max(before, own)
    return frozenset(numbers)


def answer_to(graph: Graph, number: int, path: str, error: ErrorInfo) -> OnError:
    """Returns what a failure of a node leads to: its `on_error`, but for the limit of a larger part, which only that
    part may handle."""
    if error.part is not None and error.part != path:
        return "fail"
    return graph.vertices[number].on_error


def _stays(graph: Graph, number: int, event: Settling) -> bool:
    if isinstance(event, NodeFailed):
        return answer_to(graph, number, event.node, event.error) != "fail"
    return isinstance(event, NodeFinished) or event.cause == "condition_false"
