"""Questions that runs wait with, and people's answers to them.

An answer is written into the run's journal and nothing else happens: whoever resumes the run finds it
there. Everything that an answer must satisfy is in the question's own record, so neither the flow nor
its project is needed to give one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from time import time
from typing import Any

from flowengine.engine.events import Event, NodeRecorded
from flowengine.engine.ports import JournalStore
from flowengine.engine.restoring import History
from flowengine.errors import ApprovalError, did_you_mean
from flowengine.journal.classes import only_looking
from flowengine.json_check import misfits
from flowengine.records import Answered, Asked

__all__ = ["answer", "fields_of", "open_questions"]


def open_questions(events: Sequence[Event]) -> Mapping[str, Asked]:
    """Node path → the question that it waits with."""
    attempts = History(events).attempts
    found: dict[str, Asked] = {}
    for node in attempts:
        records = attempts.of(node)
        asked = next((each for each in records if type(each) is Asked), None)
        if asked is not None and not any(type(each) is Answered for each in records):
            found[node] = asked
    return found


async def answer(
    store: JournalStore,
    run_id: str,
    node: str | None,
    choice: str,
    *,
    comment: str = "",
    by: str = "",
    form: Any = None,
    now: float | None = None,
) -> str:
    """Write a person's answer down; the path of the node that it is for. The run is to be resumed after it.

    `node` may be left out where the run waits with one question. Raises `ApprovalError` where there is no
    such question, where it was answered or has expired, and where choice or form do not fit; then
    nothing is written.
    """
    at = time() if now is None else now
    journal = store.open(run_id)
    try:
        with only_looking():
            events = journal.read()
        path, asked = _question(run_id, events, node)
        _check(path, asked, choice, form, at)
        journal.append(NodeRecorded(path, at, Answered(choice, comment, by, form)))
        waiting = journal.commit(True)
        if waiting is not None:
            await waiting
    finally:
        await journal.close()
    return path


def _question(run_id: str, events: Sequence[Event], node: str | None) -> tuple[str, Asked]:
    waiting = open_questions(events)
    if node is None:
        if len(waiting) == 1:
            return next(iter(waiting.items()))
        several = f"waits with several questions: name one of {', '.join(waiting)}"
        raise ApprovalError(f"run {run_id} {several if waiting else 'waits for nobody'}")
    if node in waiting:
        return node, waiting[node]
    given = [each.record for each in events if isinstance(each, NodeRecorded) and each.node == node]
    told = next((each for each in reversed(given) if type(each) is Answered), None)
    if told is not None:
        who = f" by {told.by}" if told.by else ""
        raise ApprovalError(f"node '{node}' of run {run_id} was answered already: '{told.choice}'{who}")
    others = f"; it waits with: {', '.join(waiting)}" if waiting else ""
    raise ApprovalError(f"node '{node}' of run {run_id} waits for nobody{did_you_mean(node, waiting) or others}")


def _check(node: str, asked: Asked, choice: str, form: Any, at: float) -> None:
    if asked.expires is not None and asked.expires <= at:
        raise ApprovalError(
            f"node '{node}' waits no longer: its time was up {_ago(at - asked.expires)} ago, and '{asked.on_expire}' "
            f"is taken when the run is resumed"
        )
    if choice not in asked.choices:
        allowed = ", ".join(asked.choices)
        raise ApprovalError(
            f"node '{node}' has no choice '{choice}'; choose from: {allowed}{did_you_mean(choice, asked.choices)}"
        )
    if asked.form is None:
        if form is not None:
            raise ApprovalError(f"node '{node}' asks for no form")
        return
    _check_form(node, asked.form, form)


def fields_of(schema: Mapping[str, Any]) -> str:
    """What a form asks for, in a few words."""
    return ", ".join(schema.get("properties", {})) or json.dumps(dict(schema))


def _check_form(node: str, schema: Mapping[str, Any], form: Any) -> None:
    if form is None:
        raise ApprovalError(f"node '{node}' asks for a form with: {fields_of(schema)}")
    problems = [f"  {each.path}: {each.message}" for each in misfits(schema, form)]
    if problems:
        told = "\n".join(sorted(problems))
        raise ApprovalError(f"the form for node '{node}' does not fit:\n{told}")


def _ago(seconds: float) -> str:
    for unit, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"
