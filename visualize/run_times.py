"""Divides the time of a run and of each of its nodes into parts: worked, waited, queued, retried, loading, stopped.

Pure: events in, bars out. Every moment between the start and the end belongs to one part, so the parts add up to the
whole. Where several nodes are at something at once, the run (or a container) is at what comes first in `PARTS`.

    worked     a model, a tool or a function was at work on what counts
    loading    what a first call needs was loaded
    retried    attempts that failed and were made again, the waits behind them, and the vendor's own (429)
    queued     for a slot, a thread, a turn among a vendor's limits, a process that goes on
    waited     a person was asked
    stopped    the run had broken off or was paused, and no person was asked
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import inf
from typing import Any, Final, Literal, NamedTuple

from flowengine.core import (
    Answered,
    ApprovalRequested,
    MapBegan,
    ModelCall,
    Retry,
    RoundEnded,
    Waited,
    question_path,
    seconds_text,
)
from flowengine.engine import (
    Event,
    NodeCancelled,
    NodeFailed,
    NodeFinished,
    NodeRecorded,
    NodeSkipped,
    NodeStarted,
    RunFinished,
    RunResumed,
    RunStarted,
)
from visualize.record_text import steps_of
from visualize.skeleton import Skeleton, Spot

Part = Literal["worked", "loading", "retried", "queued", "waited", "stopped"]
PARTS: Final[tuple[Part, ...]] = ("worked", "loading", "retried", "queued", "waited", "stopped")
_IDLE: Final[frozenset[Part]] = frozenset({"queued", "waited", "stopped"})

_LEAST_QUEUE: Final = 0.05
"""Seconds between a node's being ready and its start that are worth telling."""
_LEAST_BREAK: Final = 2.0
"""Seconds in which nothing ran that may be a break."""


class Stretch(NamedTuple):
    """A stretch of time that belongs to one part."""

    part: Part
    start: float
    end: float
    note: str = ""
    """The remark on it: `429: slow down`, `asked`, `attempt 1`."""


class Bar(NamedTuple):
    """One attempt of a node; its spans fill it without gaps."""

    status: str
    """How it ended: that of a node, `queued` (not begun yet), `interrupted` (the run broke off), or `failed` where
    another attempt followed."""
    spans: tuple[Stretch, ...]
    note: str = ""

    @property
    def start(self) -> float:
        return self.spans[0].start

    @property
    def end(self) -> float:
        return self.spans[-1].end

    @property
    def parts(self) -> Mapping[Part, float]:
        return _add_up(self.spans)


@dataclass(frozen=True)
class RunTimes:
    """The division of a run's time."""

    spans: Sequence[Stretch]
    """The run's own, from its start to its end, without gaps."""
    rows: Mapping[str, Sequence[Bar]]
    """Path → attempts and resumptions, in order; nodes that did not run are left out."""
    resumed: Sequence[float] = ()
    """The moments when the run was resumed."""

    @property
    def parts(self) -> Mapping[Part, float]:
        return _add_up(self.spans)

    def parts_of(self, path: str) -> Mapping[Part, float]:
        """Part → seconds of one node, from the moment that it could begin to its end."""
        return _add_up(self.spans_of(path))

    def spans_of(self, path: str) -> Sequence[Stretch]:
        """The spans of one node with what lies between its bars, without gaps."""
        spans: list[Stretch] = []
        for bar in self.rows.get(path, ()):
            if spans and spans[-1].end < bar.start:
                spans += _fill_gap(spans[-1].end, bar.start, self.resumed)
            spans += bar.spans
        return spans

    @property
    def breaks(self) -> Sequence[Stretch]:
        """Stretches in which nothing ran for long, against the time in which something did; by their longest part."""
        parts = self.parts
        least = max(_LEAST_BREAK, sum(seconds for part, seconds in parts.items() if part not in _IDLE) / 2)
        breaks: list[Stretch] = []
        for is_idle, spans in groupby(self.spans, lambda span: span.part in _IDLE):
            idle = list(spans)
            start, end = idle[0].start, idle[-1].end
            if is_idle and end - start >= least:
                longest = max(idle, key=lambda span: span.end - span.start)
                breaks.append(Stretch(longest.part, start, end, longest.note))
        return breaks

    def to_plain(self) -> dict[str, Any]:
        """Data for our script: moments in seconds after the start; nodes of one plain bar are left out."""
        begin = self.spans[0].start if self.spans else 0.0

        def tell(span: Stretch) -> list[Any]:
            row = [PARTS.index(span.part), round(span.start - begin, 3), round(span.end - begin, 3)]
            return [*row, span.note] if span.note else row

        rows = {
            path: [[bar.status, [tell(span) for span in bar.spans], bar.note] for bar in bars]
            for path, bars in self.rows.items()
            if [span.part for bar in bars for span in bar.spans] != ["worked"]
        }
        return {
            "begun": begin,
            "end": self.spans[-1].end if self.spans else begin,
            "parts": {part: round(seconds, 3) for part, seconds in self.parts.items()},
            "breaks": [tell(each) for each in self.breaks],
            "rows": rows,
        }


def times_of(events: Iterable[Event], now: float | None = None) -> RunTimes:
    """Computes where a run's time went. `now`: the end for a run that still runs or waits."""
    fold = _Fold()
    for event in events:
        fold.apply(event)
    return fold.finish(now)


def _add_up(spans: Iterable[Stretch]) -> Mapping[Part, float]:
    seconds: dict[Part, float] = dict.fromkeys(PARTS, 0.0)
    for span in spans:
        seconds[span.part] += span.end - span.start
    return seconds


def _fill_gap(start: float, end: float, resumed: Sequence[float]) -> Iterator[Stretch]:
    """Yields what lies between two bars of a node: the run had stopped, until it was resumed."""
    again = next((each for each in resumed if start <= each <= end), start)
    yield from (Stretch("stopped", start, again), Stretch("queued", again, end))


# --- The fold


@dataclass(slots=True)
class _Attempt:
    """A bar that is not finished: where it began, and what is to be painted over it, later things over earlier ones."""

    start: float
    base: Part = "worked"
    status: str = "running"
    note: str = ""
    end: float | None = None
    calls: list[tuple[float, ModelCall]] = field(default_factory=list[tuple[float, ModelCall]])
    paints: list[Stretch] = field(default_factory=list[Stretch])
    has_waited: bool = False


@dataclass(slots=True)
class _Row:
    spot: Spot
    attempts: list[_Attempt] = field(default_factory=list[_Attempt])
    settled: float | None = None
    """The moment when it last ended in any way, also without having run."""
    ready: float | None = None
    """The moment when a container's items, or its next round, could begin."""
    questions: set[str] = field(default_factory=set[str])
    asked_at: float = 0.0

    @property
    def open(self) -> _Attempt | None:
        return self.attempts[-1] if self.attempts and self.attempts[-1].end is None else None


_ENDINGS: Final = {
    "NodeFinished": "succeeded",
    "NodeFailed": "failed",
    "NodeSkipped": "skipped",
    "NodeCancelled": "cancelled",
}


class _Fold:
    def __init__(self) -> None:
        self._skeleton = Skeleton({})
        self._rows: dict[str, _Row] = {}
        self._begin: float | None = None
        self._last = 0.0
        self._stopped: float | None = None
        self._is_over = False
        self._breaks: list[tuple[float, float]] = []
        self._first: float | None = None
        """The moment of the first event of a node."""

    def apply(self, event: Event) -> None:
        before, at = self._last, max(event.at, self._last)  # Whatever a clock did, time does not run backwards.
        self._last = at
        if isinstance(event, RunStarted):
            self._begin = at
            self._skeleton = Skeleton(event.graph)
        elif isinstance(event, RunFinished):
            self._stopped, self._is_over = at, event.status not in ("waiting", "running")
        elif isinstance(event, RunResumed):
            self._resume(before if self._stopped is None else self._stopped, at)
        else:
            self._first = at if self._first is None else self._first
            self._apply_node(event, at)

    def _resume(self, stopped: float, at: float) -> None:
        self._stopped, self._is_over = None, False
        self._breaks.append((stopped, at))
        for row in self._rows.values():
            attempt = row.open
            if attempt is not None and not attempt.has_waited:
                attempt.end, attempt.status = max(attempt.start, stopped), "interrupted"
                attempt.note = "the run broke off"

    def _row(self, path: str) -> _Row:
        row = self._rows.get(path)
        if row is None:
            row = self._rows[path] = _Row(self._skeleton.spot(path))
        return row

    def _apply_node(
        self, event: NodeStarted | NodeRecorded | NodeFinished | NodeFailed | NodeSkipped | NodeCancelled, at: float
    ) -> None:
        row = self._row(event.node)
        if isinstance(event, NodeStarted):
            self._start(event.node, row, at)
        elif isinstance(event, NodeRecorded):
            self._record(event.node, row, event.record, at)
        else:
            row.settled = at
            attempt = row.open
            if attempt is None:
                return
            attempt.end, attempt.status = at, _ENDINGS[type(event).__name__]
            if isinstance(event, NodeFailed):
                attempt.note = event.error.message[:200]
            self._close_question(row, at, attempt)

    def _start(self, path: str, row: _Row, at: float) -> None:
        row.ready = at
        attempt = row.open
        if attempt is not None and attempt.has_waited:
            return  # It waits on for the same answer.
        if attempt is not None:
            attempt.end, attempt.status = at, "interrupted"
        ready = self._ready_at(path, row)
        if not row.attempts and at - ready >= _LEAST_QUEUE:
            row.attempts.append(_Attempt(ready, "queued", "queued", end=at))
        row.attempts.append(_Attempt(at))

    def _ready_at(self, path: str, row: _Row) -> float:
        """Returns when all predecessors of a node had ended."""
        unit, container = row.spot.unit, row.spot.container
        around = None if container is None else self._rows.get(container)
        ready = [self._begin or 0.0 if around is None else around.ready or 0.0]
        ready += [to for _, to in self._breaks[-1:]]
        for parent in self._skeleton.level_of(row.spot.site).parents.get(path[len(unit) :], ()):
            before = self._rows.get(unit + parent)
            ready += [] if before is None or before.settled is None else [before.settled]
        return max(ready)

    def _record(self, path: str, row: _Row, record: Any, at: float) -> None:
        attempt = row.open
        if isinstance(record, (MapBegan, RoundEnded)):
            row.ready = at
        if attempt is None:
            return
        if isinstance(record, ModelCall):
            attempt.calls.append((at, record))
        elif isinstance(record, Waited):
            attempt.paints.append(Stretch("queued", at - record.seconds, at, "for a thread"))
        elif isinstance(record, Retry):
            attempt.end, attempt.status, attempt.base = at, "failed", "retried"
            attempt.note = f"attempt {record.attempt}: {record.error}"[:200]
            self._close_question(row, at, attempt)
            delay = record.delay if 0 <= record.delay < inf else 0.0
            row.attempts.append(_Attempt(at, "worked", "running"))
            row.attempts[-1].paints.append(Stretch("retried", at, at + delay, f"backoff {seconds_text(delay)}"))
        elif isinstance(record, ApprovalRequested):
            if not row.questions:
                row.asked_at = at
            row.questions.add(question_path(path, record))
            attempt.has_waited = True
            for each in self._around(row):
                each.has_waited = True
        elif isinstance(record, Answered):
            row.questions.discard(question_path(path, record))
            if not row.questions:
                self._close_question(row, at, attempt)

    def _around(self, row: _Row) -> Iterator[_Attempt]:
        while row.spot.container is not None:
            row = self._row(row.spot.container)
            if row.open is not None:
                yield row.open

    def _close_question(self, row: _Row, at: float, attempt: _Attempt) -> None:
        if row.asked_at:
            attempt.paints.append(Stretch("waited", row.asked_at, at, "asked"))
        row.questions.clear()
        row.asked_at = 0.0

    # --- What came of it

    def finish(self, now: float | None) -> RunTimes:
        if self._begin is None:
            return RunTimes((), {})
        end = self._last if now is None or self._is_over else max(now, self._last)
        if self._stopped is not None and end > self._stopped:
            self._breaks.append((self._stopped, end))
        self._close_open(end)
        leaves: dict[str, list[Bar]] = {}
        inside: dict[str, list[Stretch]] = defaultdict(list)
        resumed = [to for _, to in self._breaks]
        for path in sorted(self._rows, key=self._depth, reverse=True):  # Bodies before their containers.
            row = self._rows[path]
            bars = [self._paint(attempt, inside.get(path)) for attempt in row.attempts]
            if not bars:
                continue
            leaves[path] = bars
            around = row.spot.container
            spans = RunTimes((), {path: bars}, resumed).spans_of(path)
            inside[around if around is not None else ""] += spans
        whole = _unite(inside.get("", ()), self._begin, end, "worked", self._own_spans(end))
        return RunTimes(whole, {path: leaves[path] for path in self._rows if path in leaves}, resumed)

    def _depth(self, path: str) -> int:
        depth, container = 0, self._rows[path].spot.container
        while container is not None:
            depth, container = depth + 1, self._skeleton.spot(container).container
        return depth

    def _close_open(self, end: float) -> None:
        for row in self._rows.values():
            attempt = row.open
            if attempt is None:
                continue
            ended = self._end_around(row)
            attempt.end = max(attempt.start, end if ended is None else ended)
            status = "waiting" if row.questions else "running"
            attempt.status = "cancelled" if ended is not None else "interrupted" if self._is_over else status
            self._close_question(row, attempt.end, attempt)

    def _end_around(self, row: _Row) -> float | None:
        """Returns the end of the nearest ended container, which also ends what is open inside it."""
        container = row.spot.container
        while container is not None and (around := self._rows.get(container)) is not None:
            row, container = around, around.spot.container
            if row.attempts and row.settled is not None and row.open is None:
                return row.settled
        return None

    def _own_spans(self, end: float) -> Iterator[Stretch]:
        """Yields the spans of the run itself, when none of its nodes is active."""
        assert self._begin is not None
        first = end if self._first is None else self._first
        if first - self._begin >= _LEAST_QUEUE:
            yield Stretch("queued", self._begin, first, "until it began")
        yield from self._stops()

    def _paint(self, attempt: _Attempt, inside: Sequence[Stretch] | None) -> Bar:
        start, end = attempt.start, max(attempt.start, attempt.end or attempt.start)
        if inside is not None:
            spans = _unite(inside, start, end, attempt.base, self._stops())
            return Bar(attempt.status, tuple(spans), attempt.note)
        spans = [Stretch(attempt.base, start, end, attempt.note if attempt.base == "retried" else "")]
        waits = [each for each in attempt.paints if each.part == "waited"]
        others = [each for each in attempt.paints if each.part != "waited"]
        for paint in (*_call_spans(attempt), *others, *self._stops(), *waits, *self._find_late(waits)):
            spans = _lay(spans, paint)
        return Bar(attempt.status, tuple(spans), attempt.note)

    def _stops(self) -> Iterator[Stretch]:
        yield from (Stretch("stopped", *each) for each in self._breaks)

    def _find_late(self, waits: Iterable[Stretch]) -> Iterator[Stretch]:
        """Yields the time from an answer until the run was resumed: it waited for a process that goes on with it."""
        for span in waits:
            for start, end in self._breaks:
                if start < span.end < end:
                    yield Stretch("queued", span.end, end, "answered, until the run went on")


_STEPS: Final[Mapping[str, tuple[Part, str]]] = {
    "loading": ("loading", "loading"),
    "queued": ("queued", "for a turn among the vendor's limits"),
    "attempt": ("retried", "attempt of the call"),
    "backoff": ("retried", "backoff"),
    "rate_limit": ("retried", "429"),
}


def _call_spans(attempt: _Attempt) -> Iterator[Stretch]:
    """Yields the waiting times of calls; while another call is answered, the node counts as working."""
    for at, call in attempt.calls:
        for step in steps_of(call):
            if step.what in _STEPS:
                part, words = _STEPS[step.what]
                note = f"{words}: {step.error}" if step.error else words
                yield Stretch(part, at - step.ago, at - step.ago + step.seconds, note[:200])
    for at, call in attempt.calls:
        if call.error is None and call.seconds > 0:
            yield Stretch(attempt.base, at - call.seconds, at, attempt.note if attempt.base == "retried" else "")


def _lay(spans: Sequence[Stretch], over: Stretch) -> list[Stretch]:
    """Spans without gaps, with another one over them."""
    start, end = max(over.start, spans[0].start), min(over.end, spans[-1].end)
    if not start < end:
        return list(spans)
    pieces = [span._replace(end=min(span.end, start)) for span in spans if span.start < start]
    pieces.append(over._replace(start=start, end=end))
    pieces += [span._replace(start=max(span.start, end)) for span in spans if span.end > end]
    return _join(pieces)


def _join(spans: Iterable[Stretch]) -> list[Stretch]:
    """Spans of the same kind that follow each other as one."""
    joined: list[Stretch] = []
    for span in spans:
        if joined and joined[-1].part == span.part and joined[-1].note == span.note:
            joined[-1] = joined[-1]._replace(end=span.end)
        else:
            joined.append(span)
    return joined


_RANK: Final[Mapping[str, int]] = {part: number for number, part in enumerate(PARTS)}


def _unite(
    spans: Iterable[Stretch], start: float, end: float, rest: Part, own: Iterable[Stretch] = ()
) -> list[Stretch]:
    """Merges spans by the order of `PARTS`; uncovered times take `own`, else `rest`."""
    count, own_rank = len(PARTS), list(own)
    edges: list[tuple[float, int, int, str]] = []
    for low, each in [*((0, span) for span in spans), *((count, span) for span in own_rank)]:
        begin, stop = max(each.start, start), min(each.end, end)
        if begin < stop:
            rank = low + _RANK[each.part]
            edges += [(begin, 1, rank, each.note), (stop, -1, rank, each.note)]
    edges.sort(key=lambda edge: edge[:2])
    open_counts = [0] * (2 * count)
    notes: list[dict[str, int]] = [defaultdict(int) for _ in range(2 * count)]
    stretches: list[Stretch] = []
    at = start

    def emit(until: float) -> None:
        if until <= at:
            return
        rank = next((number for number, spans in enumerate(open_counts) if spans), None)
        if rank is None:
            stretches.append(Stretch(rest, at, until))
        else:
            part = PARTS[rank % count]
            stretches.append(Stretch(part, at, until, "" if part == "worked" else next(iter(notes[rank]), "")))

    for moment, sign, rank, note in edges:
        emit(moment)
        at = max(at, moment)
        open_counts[rank] += sign
        notes[rank][note] += sign
        if not notes[rank][note]:
            del notes[rank][note]
    emit(end)
    return _join(stretches) or [Stretch(rest, start, end)]
