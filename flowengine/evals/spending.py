"""Sums up what the runs of a store have spent, by flow, node, model, label and more. It reads journals alone.

A call is counted in the run that paid for it: results that were taken from another run cost nothing again. Tokens that
a vendor served from its cache stand apart from those that it read anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

from flowengine.core import ModelCall, Reused
from flowengine.engine import (
    Attempts,
    Event,
    JournalStore,
    NodeFailed,
    NodeFinished,
    NodeRecorded,
    NodeStarted,
    RunInfo,
)
from flowengine.errors import (
    InputError,
    JournalError,
    RunNotFoundError,
    StoreCorruptError,
    StoreVersionError,
    did_you_mean,
)
from flowengine.journal import only_looking
from flowengine.nodes import file_path

_OF_ONE_ROW: Final = frozenset({"row", "set", "sample"})
"""Labels that tell rows of data apart, and would leave nothing to sum up."""


class _Call(NamedTuple):
    run: RunInfo
    node: str
    call: ModelCall


def _day_of(moment: float) -> str:
    try:
        return datetime.fromtimestamp(moment).astimezone().strftime("%Y-%m-%d")
    except (OverflowError, ValueError, OSError):  # A clock that was never right.
        return ""


def _all_labels(each: _Call) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(each.run.labels.items()) if name not in _OF_ONE_ROW)


DIMENSIONS: Final[Mapping[str, Callable[[_Call], str]]] = {
    "flow": lambda each: each.run.flow,
    "node": lambda each: file_path(each.node),
    "model": lambda each: each.call.model,
    "label": _all_labels,
    "provider": lambda each: each.call.provider,
    "purpose": lambda each: each.call.purpose,
    "day": lambda each: _day_of(each.run.started),
    "run": lambda each: each.run.run_id,
}
"""Keys that calls can be grouped by; beside these `label:NAME`, the value of one label."""


@dataclass(slots=True)
class SpendingRow:
    """The spending of one group."""

    group: Sequence[str]
    runs: set[str] = field(default_factory=set[str])
    calls: int = 0
    failed: int = 0
    """Calls, of `calls`, that came to nothing, and whose cost is unknown."""
    unpriced: int = 0
    """Answered calls, of `calls`, whose price is not known."""
    tokens_in: int = 0
    """Tokens of prompts, without those that came from a cache."""
    tokens_cached: int = 0
    tokens_out: int = 0
    cost_usd: float = 0.0
    """Cost of the calls with a known price."""
    unanswered: int = 0
    """Attempts that were sent and neither answered nor refused."""
    may_be_billed_usd: float = 0.0
    """At most so much for those, beside `cost_usd`."""

    def add(self, run_id: str, call: ModelCall) -> None:
        """Count one call."""
        self.runs.add(run_id)
        self.calls += 1
        cached = call.cached_tokens or 0
        self.tokens_in += max(0, (call.prompt_tokens or 0) - cached)
        self.tokens_cached += cached
        self.tokens_out += call.completion_tokens or 0
        if call.cost_usd is not None:
            self.cost_usd += call.cost_usd
        elif call.error is None:
            self.unpriced += 1
        self.failed += call.error is not None
        self.unanswered += call.unanswered
        self.may_be_billed_usd += call.may_be_billed_usd or 0.0


def parse_dimensions(text: str) -> Sequence[str]:
    """Read a list such as `flow,node,label:team`; `InputError` names the nearest known one.

    >>> parse_dimensions("flow, label:team")
    ['flow', 'label:team']
    >>> parse_dimensions("nodes")
    Traceback (most recent call last):
    flowengine.errors.InputError: --by: nothing is called 'nodes'; did you mean 'node'? (flow, node, model, label, ...)
    """
    names = [each.strip() for each in text.split(",") if each.strip()]
    for name in names:
        if name not in DIMENSIONS and not re.match("label:.", name):
            choices = ", ".join([*DIMENSIONS, "label:NAME"])
            raise InputError(f"--by: nothing is called '{name}'{did_you_mean(name, DIMENSIONS)} ({choices})")
    if not names or len(set(names)) < len(names):
        raise InputError("--by: name what to sum up by, each once")
    return names


def spending_of(
    store: JournalStore, runs: Iterable[RunInfo], by: Sequence[str], damaged: Callable[[str, JournalError], object]
) -> tuple[list[SpendingRow], SpendingRow]:
    """The groups, the dearest first, and the sum of all. `damaged` is told each run whose record cannot be read, and
    why: it is left out. A run that was removed meanwhile is none."""
    read = [_reader(name) for name in by]
    groups: dict[tuple[str, ...], SpendingRow] = {}
    whole = SpendingRow(("all", *[""] * (len(by) - 1)))
    for run in runs:
        try:
            with only_looking():
                events = store.events(run.run_id)
        except RunNotFoundError:
            continue
        except (StoreCorruptError, StoreVersionError) as error:
            damaged(run.run_id, error)
            continue
        for each in _calls(run, events):
            group = tuple(reader(each) for reader in read)
            row = groups.get(group)
            if row is None:
                row = groups[group] = SpendingRow(group)
            row.add(run.run_id, each.call)
            whole.add(run.run_id, each.call)
    return sorted(groups.values(), key=lambda row: (-row.cost_usd, -row.calls, row.group)), whole


def _reader(name: str) -> Callable[[_Call], str]:
    if name.startswith("label:"):
        label = name.removeprefix("label:")
        return lambda each: each.run.labels.get(label, "")
    return DIMENSIONS[name]


def _calls(run: RunInfo, events: Sequence[Event]) -> Iterator[_Call]:
    for event in events:
        if isinstance(event, NodeRecorded) and type(event.record) is ModelCall:
            yield _Call(run, event.node, event.record)


# --- What one run's answers took, whenever they were paid


class Effort(NamedTuple):
    """The usage of calls."""

    calls: int = 0
    cost_usd: float = 0.0
    """Cost of the calls with a known price."""
    seconds: float = 0.0
    unpriced: int = 0
    """Calls, of `calls`, without a known price."""

    def plus(self, other: Effort) -> Effort:
        """Both together."""
        return Effort(
            self.calls + other.calls,
            self.cost_usd + other.cost_usd,
            self.seconds + other.seconds,
            self.unpriced + other.unpriced,
        )


def effort_of_calls(calls: Iterable[ModelCall]) -> Effort:
    """Sums up the usage of model calls."""
    all_calls = list(calls)
    costs = [each.cost_usd for each in all_calls]
    cost = sum(each or 0.0 for each in costs)
    return Effort(len(all_calls), cost, sum(each.seconds for each in all_calls), costs.count(None))


def paid_calls(events: Iterable[Event]) -> Sequence[ModelCall]:
    """The answered calls that a run made itself."""
    records = (event.record for event in events if isinstance(event, NodeRecorded))
    return [each for each in records if type(each) is ModelCall and each.error is None]


class NeededCalls:
    """Finds the calls that the values of runs are made of, in whichever run they were paid.

    A run that took everything from others needs the same calls as the one that paid for them: each is looked up in the
    run that made it, as far as that is still there.
    """

    def __init__(self, store: JournalStore, *, whole: bool = False) -> None:
        """`whole`: with their messages, which a run that took them does not have."""
        self._store, self._whole = store, whole
        self._records: dict[str, Mapping[str, Sequence[Any]]] = {}
        self._visits: set[tuple[str, str]] = set()

    def of_run(self, events: Iterable[Event]) -> Sequence[ModelCall]:
        """All of a run."""
        return [call for calls in self.by_node(events).values() for call in calls]

    def by_node(self, events: Iterable[Event]) -> Mapping[str, Sequence[ModelCall]]:
        """Node → the calls of what it gave, also of nodes inside of containers."""
        self._visits.clear()
        return self._sum_up(_last_records(events))

    def _sum_up(self, records: Mapping[str, Sequence[Any]], within: str = "") -> Mapping[str, Sequence[ModelCall]]:
        inside = (f"{within}.", f"{within}[")
        nodes = [node for node in records if not within or node == within or node.startswith(inside)]
        return {path: calls for node in nodes for path, calls in self._calls_of(node, records).items()}

    def _calls_of(self, node: str, records: Mapping[str, Sequence[Any]]) -> Mapping[str, Sequence[ModelCall]]:
        calls: dict[str, Sequence[ModelCall]] = {}
        for each in records[node]:
            if type(each) is Reused:
                is_told_inside = any(other.startswith((f"{node}.", f"{node}[")) for other in records)
                calls_by_path: Mapping[str, Sequence[ModelCall]] = {} if is_told_inside else self._reused(each)
                calls = {
                    f"{node}{path.removeprefix(each.node)}": calls_there for path, calls_there in calls_by_path.items()
                }
            elif type(each) is ModelCall and each.error is None:
                calls[node] = [*calls.get(node, ()), each]
        return calls

    def _reused(self, reused: Reused) -> Mapping[str, Sequence[ModelCall]]:
        own = [each for each in reused.calls if type(each) is ModelCall]
        own_calls = {reused.node: own} if own else {}
        if own and not self._whole and all(each.prompt_tokens is not None for each in own):
            return own_calls
        place = reused.run_id, reused.node  # A container, or calls that only the text tells the size of.
        if place in self._visits:
            return own_calls
        self._visits.add(place)
        return self._sum_up(self._records_of(reused.run_id), reused.node) or own_calls

    def _records_of(self, run_id: str) -> Mapping[str, Sequence[Any]]:
        if run_id not in self._records:
            try:
                self._records[run_id] = _last_records(self._store.events(run_id))
            except JournalError:  # Removed meanwhile.
                self._records[run_id] = {}
        return self._records[run_id]


def _last_records(events: Iterable[Event]) -> Mapping[str, Sequence[Any]]:
    """Node → what it recorded on the way to its end; attempts that were repeated are left out."""
    attempts, records = Attempts(), dict[str, Sequence[Any]]()
    for event in events:
        if isinstance(event, NodeStarted):
            records.pop(event.node, None)
        elif isinstance(event, NodeRecorded):
            attempts.add(event.node, event.record)
        elif isinstance(event, NodeFinished | NodeFailed):
            records[event.node] = list(attempts.of(event.node))
            attempts.finish(event.node)
    return records | {node: attempts.of(node) for node in attempts if node not in records}
