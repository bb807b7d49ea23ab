"""Takes people's answers to the questions that runs wait with.

An answer is written into the run's journal and nothing else happens: the run finds it there when it is
resumed. While another task or process writes the run, the answer is kept beside it instead. Everything that an answer
must satisfy is in the question's own record, so neither the flow nor its project is needed to give one.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import time
from typing import Any, Final, NamedTuple, cast

from flowengine.core import (
    ACCEPT,
    Answered,
    ApprovalRequested,
    Notified,
    Post,
    check_arguments,
    describe_value,
    event_of_this_loop,
    find_label,
    node_of_question,
    question_path,
    thaw,
    tool_key,
)
from flowengine.engine import Event, History, JournalStore, NodeRecorded, RunFinished
from flowengine.errors import ApprovalError, JournalError, RunBusyError, did_you_mean
from flowengine.journal.blob_owners import forget_beside
from flowengine.journal.stores import commit_events
from flowengine.journal.value_types import only_looking

# --- Answers kept for another writer

ANSWER: Final = "answer"
"""Under which kind answers are kept beside the runs."""

_bells: Final[dict[str, list[Mail]]] = {}
"""Run → those of this process that wait for its answers."""
_lock: Final = threading.Lock()


def times_asked(events: Sequence[Event]) -> Mapping[str, float]:
    """Path of a question → when it was last asked."""
    return {
        question_path(event.node, event.record): event.at
        for event in events
        if isinstance(event, NodeRecorded) and type(event.record) is ApprovalRequested
    }


def told_last(events: Sequence[Event]) -> Sequence[Notified]:
    """Returns the last delivery attempt for each open question."""
    waiting, last = open_questions(events), dict[tuple[str, str, str], Notified]()
    for event in events:
        if isinstance(event, NodeRecorded) and type(event.record) is Notified:
            path = question_path(event.node, event.record)
            last[path, event.record.channel, event.record.to] = event.record
    return [record for (path, _, _), record in last.items() if path in waiting]


def keep_answer(store: JournalStore, run_id: str, path: str, asked_at: float, answer: Answered) -> None:
    """Keep an answer for the run's owner; `ApprovalError` where there is one already."""

    def change(stored: Any) -> Any:
        answers: dict[str, Any] = {} if stored is None else thaw(stored)
        earlier = answers.get(path)
        if earlier is not None and earlier["asked"] == asked_at:
            who = f" by {earlier['by']}" if earlier["by"] else ""
            raise ApprovalError(f"node '{path}' of run {run_id} was answered already: '{earlier['choice']}'{who}")
        return {**answers, path: {"asked": asked_at, **answer._asdict()}}

    store.revise(ANSWER, run_id, change)


def answers_left(store: JournalStore, run_id: str, events: Sequence[Event]) -> Mapping[str, Answered]:
    """Path of a question → the answer that is kept for it and that the journal does not have yet."""
    if not times_asked(events):
        return {}
    answers: Mapping[str, Any] = store.recall(ANSWER, run_id) or {}
    return _find_unanswered(answers, events)


def ring_owner(run_id: str) -> None:
    """Wake the run's owner where it is in this process, in whichever thread."""
    with _lock:
        listening = list(_bells.get(run_id, ()))
    for mail in listening:
        mail.ring()


@dataclass(slots=True, eq=False)
class Mail:
    """The messages that people leave for one run's owner. One event loop uses it.

    It is listened for from the first look into it on, until `close`; most runs never look.
    """

    store: JournalStore
    run_id: str
    keys: set[tuple[str, float]] = field(default_factory=set[tuple[str, float]])
    """Path and moment of the question, of all that was ever collected."""
    post: Post | None = None
    """The way into the owner's loop; None without a listener."""
    _rung: Any = None

    def _listen(self) -> None:
        """From now on each answer that is kept in this process rings."""
        if self.post is None:
            self.post, self._rung = event_of_this_loop()
            with _lock:
                _bells.setdefault(self.run_id, []).append(self)

    def close(self) -> None:
        """Listen no more."""
        with _lock:
            _bells[self.run_id].remove(self)
            if not _bells[self.run_id]:
                del _bells[self.run_id]

    def collect(self, read: Callable[[], Sequence[Event]], /) -> Mapping[str, Answered]:
        self._listen()  # First: what is kept after the look is told by a ring.
        answers: Mapping[str, Any] = self.store.recall(ANSWER, self.run_id) or {}
        fresh = {path: each for path, each in answers.items() if (path, each["asked"]) not in self.keys}
        if not fresh:
            return {}
        self.keys.update((path, each["asked"]) for path, each in fresh.items())
        return _find_unanswered(fresh, read())

    async def wait(self) -> None:
        self._listen()
        await self._rung.wait()
        self._rung = event_of_this_loop()[1]

    def forget(self) -> None:
        """The run needs no answer any more."""
        forget_beside(self.store, ANSWER, self.run_id)

    def ring(self) -> None:
        """From any thread; a loop that has ended needs no answer."""
        if self.post is not None:
            with suppress(RuntimeError):
                self.post(self._set)

    def _set(self) -> None:
        self._rung.set()


def _find_unanswered(answers: Mapping[str, Any], events: Sequence[Event]) -> Mapping[str, Answered]:
    times: dict[str, float] = {}
    for event in events:
        if isinstance(event, NodeRecorded) and type(event.record) is ApprovalRequested:
            times[question_path(event.node, event.record)] = event.at
        elif isinstance(event, NodeRecorded) and type(event.record) is Answered:
            times.pop(question_path(event.node, event.record), None)
    return {
        path: Answered(**{name: value for name, value in each.items() if name in Answered._fields})
        for path, each in answers.items()
        if times.get(path) == each["asked"]
    }


def open_questions(events: Sequence[Event]) -> Mapping[str, ApprovalRequested]:
    """Path of a question → the question that the run waits with.

    The path is that of the node, and for a call of a tool also says which one: `help:refund`, `help:refund:2`.
    """
    attempts = History(events).attempts
    questions: dict[str, ApprovalRequested] = {}
    for node in attempts:
        records = attempts.of(node)
        names = {each.name for each in records if type(each) is Answered}
        open_requests = [each for each in records if type(each) is ApprovalRequested and each.name not in names]
        questions |= {question_path(node, each): each for each in open_requests}
    return questions


class Given(NamedTuple):
    """An answer that was taken."""

    node: str
    """Path of the question."""
    writer: str | None = None
    """Who writes the run, and takes the answer in; None where the journal has it, and the run is to be resumed."""


async def answer(
    store: JournalStore,
    run_id: str,
    node: str | None,
    choice: str,
    *,
    comment: str = "",
    by: str = "",
    form: Any = None,
    asked: float | None = None,
    now: float | None = None,
) -> Given:
    """Write a person's answer down. The run is to be resumed after it, unless somebody writes the run now.

    `node` is the path of the question; it may be left out where the run waits with one. `by` is who answers, as the
    caller knows it (from a link, a key, the user of the machine). `form`: what the question asks to be filled in; with
    the acceptance of a tool's call the arguments that it is to be made with instead. `asked`: the answer is to the
    question of that moment and to no later one. Raises `ApprovalError` where there is no such question, where it was
    answered or has expired, where the run was cancelled, where `by` is none of its approvers, and where choice or form
    do not fit; then nothing is written. An answer to a run that is at work is kept beside it until its owner takes it
    in.
    """
    texts = {"node": node, "choice": choice, "comment": comment, "by": by}
    check_arguments(answer, texts, ApprovalError)  # Else the journal has what its readers take for damage.
    at = time() if now is None else now
    with only_looking():
        events = store.events(run_id)
    path, reply = _check_answer(run_id, events, node, Answered(choice, comment, by, form), at, asked)
    keep_answer(store, run_id, path, times_asked(events)[path], reply)  # Of several processes one can: it has answered.
    ring_owner(run_id)
    writer = None
    try:
        if path in await _record_kept(store, run_id, at):
            return Given(path)
    except RunBusyError as error:
        writer = error.writer
    except JournalError:
        with suppress(JournalError):
            _drop_kept(store, run_id, [path])
        raise
    _refuse_late(store, run_id, path, reply)
    return Given(path, writer)


async def _record_kept(store: JournalStore, run_id: str, at: float) -> Collection[str]:
    """Journal the answers to a run that has no writer; the paths of their questions."""
    journal = store.open(run_id)
    try:
        with only_looking():
            rest = answers_left(store, run_id, journal.read())
            answer_events = [NodeRecorded(node_of_question(path, reply), at, reply) for path, reply in rest.items()]
            await commit_events(journal, *answer_events)
            if rest:  # Before others can go on with the run, and its next question is answered.
                _drop_kept(store, run_id, rest)
    finally:
        await journal.close()
    return rest


def _refuse_late(store: JournalStore, run_id: str, path: str, reply: Answered) -> None:
    """Raise `ApprovalError` where another answer was journaled before this one was kept."""
    with only_looking():
        events = store.events(run_id)
    if path in open_questions(events) or any(_is_answer(each, path, reply) for each in events):
        return
    _drop_kept(store, run_id, [path])
    _find_question(run_id, events, path)  # It is open no more, which this says.


def _is_answer(event: Event, path: str, reply: Answered) -> bool:
    """Whether it is this answer, read back: `nan`, and objects of some classes, differ from their own copies."""
    if not isinstance(event, NodeRecorded) or event.node != node_of_question(path, reply):
        return False
    from flowengine.journal.codec import encode_value  # For answers that two processes gave at once.

    record = event.record
    return record == reply or (
        type(record) is Answered and encode_value(record._asdict()) == encode_value(reply._asdict())
    )


def _drop_kept(store: JournalStore, run_id: str, paths: Collection[str]) -> None:
    """Forget answers that the journal has, or that are not to count."""

    def change(stored: Any) -> Any:
        answers: dict[str, Any] = {} if stored is None else thaw(stored)
        return {key: each for key, each in answers.items() if key not in paths} or None

    store.revise(ANSWER, run_id, change)


def _find_question(run_id: str, events: Sequence[Event], node: str | None) -> tuple[str, ApprovalRequested]:
    if isinstance(events[-1], RunFinished) and events[-1].status == "cancelled":
        raise ApprovalError(f"run {run_id} was cancelled: `flowengine resume` takes it up again first")
    waiting = open_questions(events)
    if node is None:
        if len(waiting) == 1:
            return next(iter(waiting.items()))
        several = f"waits with several questions: name one of {', '.join(waiting)}"
        raise ApprovalError(f"run {run_id} {several if waiting else 'waits for no answer'}")
    if node in waiting:
        return node, waiting[node]
    answer_events = [each for each in events if isinstance(each, NodeRecorded) and type(each.record) is Answered]
    last_answer = next(
        (each.record for each in reversed(answer_events) if question_path(each.node, each.record) == node), None
    )
    if last_answer is not None:
        who = f" by {last_answer.by}" if last_answer.by else ""
        raise ApprovalError(f"node '{node}' of run {run_id} was answered already: '{last_answer.choice}'{who}")
    others = f"; it waits with: {', '.join(waiting)}" if waiting else ""
    raise ApprovalError(f"node '{node}' of run {run_id} waits for no answer{did_you_mean(node, waiting) or others}")


def _check_answer(
    run_id: str, events: Sequence[Event], node: str | None, reply: Answered, at: float, asked_at: float | None = None
) -> tuple[str, Answered]:
    """The path of the question, and the answer with the choice as the question has it."""
    path, question = _find_question(run_id, events, node)
    if asked_at is not None and times_asked(events)[path] != asked_at:
        raise ApprovalError(f"node '{path}' of run {run_id} has asked anew since")
    if not may_answer(reply.by, question.approvers):
        who = f"this is '{reply.by}'" if reply.by else "it is not known who answers here"
        raise ApprovalError(f"node '{path}' is to be answered by {' or '.join(question.approvers)}, and {who}")
    if question.expires is not None and question.expires <= at:
        raise ApprovalError(
            f"node '{path}' waits no longer: its time was up {_format_age(at - question.expires)} ago, and "
            f"'{question.on_expire}' is taken when the run is resumed"
        )
    label = find_label(reply.choice, question.choices)
    if label is None:
        allowed = ", ".join(question.choices)
        raise ApprovalError(
            f"node '{path}' has no choice '{reply.choice}'; choose from: {allowed}"
            f"{did_you_mean(reply.choice, question.choices)}"
        )
    if question.tool:
        reply = reply._replace(form=_check_arguments(path, question, label, reply.form))
    elif question.form is not None and question.form_for and label not in question.form_for:
        reply = reply._replace(form=None)  # It goes with other choices.
    elif question.form is not None:
        _check_form(path, question.form, reply.form)
    elif reply.form is not None:
        raise ApprovalError(f"node '{path}' asks for no form")
    return path, reply._replace(choice=label, name=question.name)


def _check_arguments(path: str, question: ApprovalRequested, choice: str, form: Any) -> Any:
    """The arguments that a person gives a call; None where they are the model's."""
    if form is None:
        return None
    if choice != ACCEPT:
        raise ApprovalError(f"the call of '{path}' is not made, so it takes no arguments: say why in the comment")
    if not isinstance(form, Mapping):
        raise ApprovalError(
            f"'{path}' takes the arguments of '{question.tool}' as an object, not {describe_value(form)}"
        )
    from flowengine.agents.tools import ArgumentCheck  # Slow to load, and few answers change a call.

    arguments = cast("Mapping[str, Any]", form)
    check = ArgumentCheck(question.form or {})
    if problems := check.problems(arguments):
        raise ApprovalError(check.explain(question.tool, problems))
    return None if tool_key(question.tool, arguments) == question.key else arguments


def may_answer(by: str, approvers: Sequence[str]) -> bool:
    """Tells whether somebody is among those who may answer; mail addresses are compared without regard to case.

    >>> may_answer("CFO@example.com", ["cfo@example.com"]), may_answer("Finance", ["finance"]), may_answer("", [])
    (True, False, True)
    """
    return not approvers or any(
        by == each or ("@" in each and by.casefold() == each.casefold()) for each in approvers if by
    )


def fields_of(schema: Mapping[str, Any]) -> str:
    """Describes the fields of a form in a few words."""
    return ", ".join(schema.get("properties", {})) or json.dumps(dict(schema))


def _check_form(node: str, schema: Mapping[str, Any], form: Any) -> None:
    if form is None:
        raise ApprovalError(f"node '{node}' asks for a form with: {fields_of(schema)}")
    from flowengine.core import find_misfits  # The library is slow to load, and few forms have a schema.

    problems = [f"  {each.path}: {each.message}" for each in find_misfits(schema, form)]
    if problems:
        message = "\n".join(sorted(problems))
        raise ApprovalError(f"the form for node '{node}' does not fit:\n{message}")


def _format_age(seconds: float) -> str:
    for unit, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"
