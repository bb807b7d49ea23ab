"""The runs of a store, read from Python: which there are, what became of one, what they wait for.

It never writes to a run's record: what people say of a run is kept beside it. Neither a run's flow nor its project is
needed. Values of classes that this process has
not loaded come as what they held.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from flowengine.core import EMPTY, RunStatus, check_arguments
from flowengine.engine import ErrorInfo, Event, RunInfo, RunStarted
from flowengine.errors import DefinitionError, StoreCorruptError, did_you_mean
from flowengine.journal import (
    STATUS_WORDS,
    AnyStore,
    RunNote,
    RunNotes,
    RunQuery,
    add_note,
    answers_left,
    as_store,
    check_labels,
    labels_of,
    notes_of,
    only_looking,
    open_questions,
    set_mark,
    set_score,
    times_asked,
)
from flowengine.nodes import check_least
from flowengine.runtime import NodeRun, RunLister
from visualize.drawable import Drawable
from visualize.progress import NodeRow, Progress, UsageTotals, fold_events

if TYPE_CHECKING:
    from visualize.picture import Picture

__all__ = ["Question", "RunRecord", "Runs"]

_UNSETTLED: Final[frozenset[RunStatus]] = frozenset({"running", "waiting", "paused"})
"""Statuses of runs that an answer may still help."""


class Question(NamedTuple):
    """A run's question to a person, and the conditions for an answer."""

    run_id: str
    flow: str
    node: str
    """Path of the question: that of the node, and of a call of a tool also which one (`help:refund`)."""
    message: str
    choices: Sequence[str]
    form: Mapping[str, Any] | None
    """JSON Schema of what is filled in beside the choice; of a call, of the arguments that it may get instead."""
    asked: float
    """Unix seconds."""
    expires: float | None
    """Unix seconds from which on the answer is `on_expire`."""
    on_expire: str | None
    labels: Mapping[str, str]
    tool: str = ""
    """The tool that is to be called; empty where no call is asked about."""
    arguments: Mapping[str, Any] | None = None
    """What it is to be called with."""
    approvers: Sequence[str] = ()
    """Who may answer; empty: anybody who may answer at all."""


@dataclass(frozen=True)
class RunRecord(Drawable):
    """One run as its journal has it."""

    events: Sequence[Event]

    @cached_property
    def _progress(self) -> Progress:
        return fold_events(self.events)

    @cached_property
    def _start_event(self) -> RunStarted:
        first = self.events[0] if self.events else None
        if not isinstance(first, RunStarted):
            raise StoreCorruptError("the run's record does not begin with its start")
        return first

    def picture(self) -> Picture:
        """The data of the run's picture, that the functions of `visualize` draw."""
        from visualize.picture import picture_of_progress

        return picture_of_progress(self._progress)

    @property
    def run_id(self) -> str:
        """Its id in the store."""
        return self._start_event.run_id

    @property
    def flow(self) -> str:
        """The flow's name."""
        return self._start_event.flow

    @property
    def path(self) -> str | None:
        """The flow file, as it was given; None for a flow built in Python."""
        return self._start_event.path

    @property
    def labels(self) -> Mapping[str, str]:
        """Label → value, as they were given."""
        return labels_of(self._start_event)

    @property
    def status(self) -> RunStatus:
        """How far it has come, or how it ended."""
        return self._progress.status

    @property
    def started(self) -> float:
        """Unix seconds."""
        return self._start_event.at

    @property
    def finished(self) -> float | None:
        """Unix seconds; None while it runs."""
        finished = self._progress.finished
        return None if finished is None else finished.at

    @property
    def inputs(self) -> Mapping[str, Any]:
        """Input → value, with the defaults of what was not given."""
        return self._start_event.inputs

    @property
    def outputs(self) -> Mapping[str, Any]:
        """Empty unless it ended with outputs."""
        finished = self._progress.finished
        return EMPTY if finished is None or finished.outputs is None else finished.outputs

    @property
    def error(self) -> ErrorInfo | None:
        """What ended it; None unless it failed."""
        finished = self._progress.finished
        return None if finished is None else finished.error

    @property
    def failed_node(self) -> str | None:
        """The node whose failure ended it; None unless one did."""
        finished = self._progress.finished
        return None if finished is None else finished.node

    @property
    def usage(self) -> UsageTotals:
        """Model calls, tokens and cost of the whole run."""
        return self._progress.usage

    @cached_property
    def nodes(self) -> Mapping[str, NodeRun]:
        """Every node by its path, those inside loops, maps and subflows too."""
        return {path: _node_run(row) for path, row in self._progress.nodes.items()}

    @property
    def questions(self) -> Sequence[Question]:
        """The questions that it waits for."""
        return list(_questions(self)) if self.status in _UNSETTLED else []

    def __repr__(self) -> str:
        return f"<RunRecord {self.run_id} {self.status}>"


class Runs:
    """The runs of a store: a URL, a path, or an open store.

    >>> from flowengine import Flow, FunctionNode
    >>> from flowengine.journal.memory import MemoryStore
    >>> store = MemoryStore()
    >>> flow = Flow("count", {"one": FunctionNode(lambda context: 1)})
    >>> run = flow.run_sync(store=store, run_id="a1", labels={"team": "billing"})
    >>> runs = Runs(store)
    >>> [(each.run_id, each.status) for each in runs.list(labels={"team": "billing"})]
    [('a1', 'succeeded')]
    >>> runs.get("a1").nodes["one"].output
    1
    """

    def __init__(self, store: AnyStore) -> None:
        self._store = as_store(store)
        self._mine = self._store is not store
        """Whether the store was opened here, and is to be closed here."""

    def list(
        self,
        *,
        flow: str = "",
        status: str = "",
        labels: Mapping[str, str] = EMPTY,
        since: datetime | float | None = None,
        before: datetime | float | None = None,
        limit: int | None = None,
        text: str = "",
        mark: str = "",
        ended_since: datetime | float | None = None,
        session: str = "",
    ) -> list[RunInfo]:
        """The runs that are asked for, the newest first; what is left out asks for nothing.

        `status`: one of a record, or `queued` (no worker has it) or `interrupted` (no process works on it any more).
        `since`, `before`: when they started, as Unix seconds or a datetime. `text`: words in their inputs, outputs,
        errors, ids, flows, files or labels. `mark`: somebody has marked them so. `ended_since`: when they stopped;
        those that go on have not. `session`: they belong to it.
        """
        check_arguments(Runs.list, {name: value for name, value in locals().items() if name != "labels"})
        check_least("limit", limit, 0, whole=True)
        if status and status not in STATUS_WORDS:
            raise DefinitionError(f"a run has no status '{status}'{did_you_mean(status, STATUS_WORDS)}")
        began, before_at, ended = _seconds(since), _seconds(before), _seconds(ended_since)
        query = RunQuery(
            flow, status, check_labels(labels), began, before_at, text, mark, ended_from=ended, session=session
        )
        return [line.info for line in RunLister(self._store).page(query, limit, patience=inf).lines]

    def notes(self, reference: str) -> RunNotes:
        """Returns the notes, marks and scores of a run, with author and time."""
        return notes_of(self._store, self._store.find(reference))

    def note(self, reference: str, text: str, *, by: str = "") -> RunNote:
        """Keep a remark on a run, beside its record."""
        check_arguments(Runs.note, locals())
        return add_note(self._store, self._store.find(reference), text, by)

    def mark(self, reference: str, name: str, *, by: str = "", on: bool = True) -> None:
        """Mark a run with a word, as `golden`, or take the mark away."""
        check_arguments(Runs.mark, locals())
        set_mark(self._store, self._store.find(reference), name, by, on=on)

    def score(self, reference: str, name: str, value: float | None, *, by: str = "") -> None:
        """Say how good a run is in some respect; None takes it back."""
        check_arguments(Runs.score, locals())
        set_score(self._store, self._store.find(reference), name, value, by)

    def get(self, reference: str) -> RunRecord:
        """One run: an id, the start of one, or `@last`. `RunNotFoundError` says which there are."""
        return RunRecord(self.events(reference))

    def events(self, reference: str, after: int = 0) -> Sequence[Event]:
        """The events of a run from position `after` on, counted from 0; `event.as_dict()` is one in JSON's types."""
        check_arguments(Runs.events, {"after": after})
        check_least("after", after, 0, whole=True)
        run_id = self._store.find(reference)
        with only_looking():
            return self._store.events(run_id, after)

    def waiting(self, *, flow: str = "", labels: Mapping[str, str] = EMPTY) -> Sequence[Question]:
        """Returns the open questions of all runs, the oldest first; `Flow.approve` answers one."""
        query = RunQuery(flow, labels=check_labels(labels))
        infos = [each for each in query.select(self._store.list()) if each.status in _UNSETTLED]
        questions = [question for info in infos for question in self._open(info.run_id)]
        return sorted(questions, key=lambda question: question.asked)

    def _open(self, run_id: str) -> Iterator[Question]:
        """Yields a run's unanswered questions; an answer that waits for the run's owner counts as none."""
        events = self.events(run_id)
        answers = answers_left(self._store, run_id, events)
        return (question for question in _questions(RunRecord(events)) if question.node not in answers)

    def close(self) -> None:
        """Let go of a store that was opened here."""
        if self._mine:
            self._store.close()

    def __enter__(self) -> Runs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _seconds(moment: datetime | float | None) -> float | None:
    return moment.timestamp() if isinstance(moment, datetime) else moment


def _questions(record: RunRecord) -> Iterator[Question]:
    times = times_asked(record.events)
    for node, question in open_questions(record.events).items():
        yield Question(
            record.run_id,
            record.flow,
            node,
            question.message,
            question.choices,
            question.form,
            times[node],
            question.expires,
            question.on_expire,
            record.labels,
            question.tool,
            question.arguments,
            question.approvers,
        )


def _node_run(row: NodeRow) -> NodeRun:
    result = row.result
    handed_on = None if result is None else result.output if result.result is None else result.result
    return NodeRun(
        row.status,
        None if result is None else result.output,
        handed_on,
        None if row.error is None else row.error.message,
        row.cause,
    )
