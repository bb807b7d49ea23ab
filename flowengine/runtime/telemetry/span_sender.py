"""Sends the spans of runs to a collector while the runs go on.

A run only puts its events into a queue. A thread folds them, and sends what has ended in batches. A collector that is
lost is told of once; meanwhile the newest spans are kept, and the runs go on.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

from flowengine.core.masking import Masker
from flowengine.engine import Event, Journal, JournalStore, RunFinished
from flowengine.errors import DefinitionError
from flowengine.journal import TeeJournal
from flowengine.models.http import show_address
from flowengine.runtime.telemetry.otel import emit_spans, measure
from flowengine.runtime.telemetry.spans import Span, SpanFold
from flowengine.version import install_hint

if TYPE_CHECKING:
    from flowengine.runtime.telemetry.collector import Collector

_PAUSE: Final = 1.0
"""Seconds from one batch to the next."""
_RETRY_PAUSE: Final = 15.0
"""Seconds until a lost collector is asked again."""
_MOST_SPANS: Final = 50_000
"""Spans that wait for a collector; of more, the oldest are dropped."""
_MOST_RUNS: Final = 1_000
"""Runs whose metrics wait for a collector; of more, those of the oldest are dropped."""
_FAREWELL: Final = 5.0
"""Seconds that the last spans have at the end of the process."""


@contextmanager
def sending_spans(
    store: JournalStore, endpoint: str | None, tell: Callable[[str], None], *, content: bool = False
) -> Generator[JournalStore]:
    """While the block lasts, the spans of all runs that the store's journals write go to the collector.

    `endpoint`: its address; None: nothing is sent. `tell`: is told once when spans stop to arrive, and once when they
    arrive again. Raises `DefinitionError` where the extra `otel` is missing.
    """
    if endpoint is None:
        yield store
        return
    telemetry = LiveTelemetry(endpoint, tell, content=content)
    watch_store(store, telemetry)
    try:
        yield store
    finally:
        telemetry.close()


def watch_store(store: JournalStore, telemetry: LiveTelemetry) -> None:
    """Have every journal that the store hands out from now on tell its events, also one that goes on with a run."""
    create, reopen = store.create, store.open

    def create_told(run_id: str, /) -> Journal:
        return TeeJournal(create(run_id), telemetry.follow())

    def open_told(run_id: str, /) -> Journal:
        journal = reopen(run_id)
        return TeeJournal(journal, telemetry.follow(store.events(run_id)))

    # On the object, not round it: a queue asks for its own kind of store.
    store.create = create_told
    store.open = open_told


class _FollowedRun:
    """One run: what its events fold into, and which of its spans have been handed on."""

    def __init__(self, fold: SpanFold) -> None:
        self.fold = fold
        self.waiting = [span for span in fold.spans if span.end is None]
        """Spans that have not ended, and so were not sent."""
        self._read_count = len(fold.spans)

    def take(self, event: Event) -> list[Span]:
        """The spans that have ended by now and were not handed on before."""
        self.fold.take(event)
        self.waiting += self.fold.spans[self._read_count :]
        self._read_count = len(self.fold.spans)
        ended = [span for span in self.waiting if span.end is not None]
        self.waiting = [span for span in self.waiting if span.end is None]
        return ended


class LiveTelemetry:
    """The spans of any number of runs on their way to one collector."""

    def __init__(self, endpoint: str, tell: Callable[[str], None], *, content: bool = False) -> None:
        if find_spec("opentelemetry") is None or find_spec("requests") is None:
            raise DefinitionError(f"OTLP needs the extra `otel`: {install_hint('otel')}")
        self._endpoint = endpoint
        self._tell = tell
        self._content = content
        self._masker = Masker()
        self._events: SimpleQueue[tuple[_FollowedRun, Event]] = SimpleQueue()
        self._ended: deque[Span] = deque(maxlen=_MOST_SPANS)
        self._unmeasured: deque[SpanFold] = deque(maxlen=_MOST_RUNS)
        """Runs that have ended, and whose metrics were not sent."""
        self._problem = ""
        """Why the collector takes nothing; empty while it does."""
        self._has_told_rejection = False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="flowengine-telemetry", daemon=True)
        self._thread.start()

    def follow(self, past: Iterable[Event] = ()) -> Callable[[Event], None]:
        """The listener of one run's events. `past`: those that it has already, whose spans are not sent again."""
        fold = SpanFold(self._content, self._masker)
        for event in past:
            fold.take(event)
        run = _FollowedRun(fold)
        return lambda event: self._events.put((run, event))

    def close(self) -> None:
        """Send what is left, for a few seconds at most."""
        self._closing.set()
        self._thread.join(_FAREWELL)
        if self._ended and not self._problem:
            self._tell(f"telemetry: {len(self._ended)} spans were not sent to {show_address(self._endpoint)} in time")

    def _work(self) -> None:
        from flowengine.runtime.telemetry.collector import Collector  # Takes 0.2 s, which no run waits for.

        with Collector(self._endpoint) as collector:
            while not self._closing.wait(_RETRY_PAUSE if self._problem else _PAUSE):
                self._take_events()
                self._send(collector)
            self._take_events()
            self._send(collector)

    def _take_events(self) -> None:
        """Fold what has happened since."""
        with suppress(Empty):
            while True:
                run, event = self._events.get_nowait()
                self._ended += run.take(event)
                if isinstance(event, RunFinished):
                    self._unmeasured.append(run.fold)

    def _send(self, collector: Collector) -> None:
        batch = list(self._ended)
        if not batch:
            return
        with collector.run("") as (tracers, _):
            emit_spans(batch, tracers)
        collector.problem, collector.is_lost = "", False
        collector.send_spans()
        self._note(collector.problem if collector.is_lost else "")
        if collector.is_lost:
            return
        if collector.problem and not self._has_told_rejection:  # OTLP has it that what was rejected is not sent again.
            self._has_told_rejection = True
            self._tell(f"telemetry: {show_address(self._endpoint)}: {collector.problem}")
        for _ in batch:
            self._ended.popleft()
        while self._unmeasured:
            fold = self._unmeasured.popleft()
            with collector.run(fold.spans[0].trace_id) as (_, meters):
                measure(fold.spans, meters)
            collector.send_metrics()

    def _note(self, problem: str) -> None:
        """Say once that the collector is lost, and once that it is back."""
        address = show_address(self._endpoint)
        if problem and not self._problem:
            self._tell(f"telemetry: no spans arrive at {address}: {problem}; runs go on, and the newest spans are kept")
        elif self._problem and not problem:
            self._tell(f"telemetry: spans arrive at {address} again")
        self._problem = problem
