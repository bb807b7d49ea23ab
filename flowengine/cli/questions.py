"""Tells what a run asks people, and asks the person at the terminal.

What is shown comes from models and flow files, so its control characters are written out. An answer is written into the
run's journal, as `flowengine approve` does it; nothing here goes on with the run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from shlex import quote
from typing import Any, Final, cast

import anyio
import click

from flowengine.agents.tools import cut
from flowengine.cli.environment import find_account, find_user
from flowengine.cli.terminal import complain, escape_controls, has_live_stderr
from flowengine.core import ACCEPT, ApprovalRequested, parse_value
from flowengine.engine import Event, JournalStore
from flowengine.errors import ApprovalError
from flowengine.journal import Given, answer, may_answer, open_questions

_MOST: Final = 2_000
"""Characters of an argument that are shown; all of them are in the record of the run."""
_LATER: Final = "later"
"""The word that leaves a question unanswered, in brackets where it is one of its choices."""
_CHANGE: Final = "change"


def describe_question(path: str, question: ApprovalRequested) -> Iterator[str]:
    """The lines of a question, with all arguments of a call."""
    yield f"'{path}' asks: {question.message}"
    if question.tool and len(question.arguments or {}) > 1:
        yield from (f"  {name}: {cut(_to_json(value), _MOST)}" for name, value in (question.arguments or {}).items())
    if question.approvers:
        yield f"  to be answered by {' or '.join(question.approvers)}"


def format_choices(question: ApprovalRequested) -> str:
    """The options of `flowengine approve` that answer it."""
    choices = f"--choice {'|'.join(map(quote, question.choices))}"  # They are copied to a shell.
    if question.tool:
        return f"{choices} [--form OTHER_ARGUMENTS] [--comment WHY]"
    return f"{choices} --form FILE|JSON" if question.form is not None else choices


def can_ask_person() -> bool:
    """Whether somebody sits at the terminal who can be asked."""
    return sys.stdin.isatty() and has_live_stderr()


def ask_person(store: JournalStore, run_id: str, events: Sequence[Event], only: str | None = None) -> list[Given]:
    """Ask each open question of the run, or only one of them; the answers that were given.

    The answer `later`, Ctrl-C and the end of the input leave what is left unanswered.
    """
    replies: list[Given] = []
    try:
        for path, question in open_questions(events).items():
            if only in (None, path):
                reply = _ask(store, run_id, events, path, question)
                replies += [] if reply is None else [reply]
    except click.Abort:
        complain("")
    return replies


def _ask(
    store: JournalStore, run_id: str, events: Sequence[Event], path: str, question: ApprovalRequested
) -> Given | None:
    who = name_person(events, path, None)
    for line in describe_question(path, question):
        complain(line)
    if not may_answer(who, question.approvers):
        complain(f"  you are '{who}', who is none of them")
        return None
    later = _LATER
    while later in map(str.casefold, question.choices):
        later = f"({later})"
    while True:
        choice = _prompt_choice(
            [*question.choices[:1], *([_CHANGE] if question.tool else []), *question.choices[1:], later]
        )
        if choice == later:
            return None
        form = _prompt_form(question, choice)
        is_refusal = question.tool and choice not in (ACCEPT, _CHANGE)
        comment = _prompt("why (the model reads it)") if is_refusal else "" if question.tool else _prompt("comment")
        sent_choice = ACCEPT if question.tool and choice == _CHANGE else choice
        try:
            return anyio.run(partial(answer, store, run_id, path, sent_choice, comment=comment, by=who, form=form))
        except ApprovalError as error:
            complain(f"  {error}")


def _prompt_choice(choices: Sequence[str]) -> str:
    """One of the choices, or the beginning of one; nothing is the last of them."""
    while True:
        text = _prompt(" / ".join(choices)).casefold() or choices[-1]
        exact = [each for each in choices if each.casefold() == text]
        matches = exact or [each for each in choices if each.casefold().startswith(text)]
        if len(matches) == 1:
            return matches[0]
        complain(f"  choose one of: {', '.join(matches or choices)}")


def _prompt_form(question: ApprovalRequested, choice: str) -> Any:
    """Asks for the form beside the choice: field by field, as text or as JSON."""
    is_left_out = bool(question.form_for) and choice not in question.form_for
    if question.form is None or is_left_out or (question.tool and choice != _CHANGE):
        return None
    properties = question.form.get("properties")
    fields: Mapping[str, Any] = cast("Mapping[str, Any]", properties) if isinstance(properties, Mapping) else {}
    before: Mapping[str, Any] = question.arguments or {}
    if not fields:
        return _read_value(_prompt("as JSON", before or None), {}, before)
    values = {name: _prompt_field(name, each, before) for name, each in fields.items()}
    return {name: value for name, value in values.items() if value is not _LEFT_OUT}


_LEFT_OUT: Final = object()


def _prompt_field(name: str, schema: Any, before: Mapping[str, Any]) -> Any:
    current = before.get(name, _LEFT_OUT)
    return _read_value(_prompt(name, None if current is _LEFT_OUT else current), schema, current)


def _read_value(text: str, schema: Any, before: Any) -> Any:
    """The value that a line says: text where the schema wants text, else JSON; an empty line changes nothing."""
    if not text:
        return before
    if isinstance(schema, Mapping) and cast("Mapping[str, Any]", schema).get("type") == "string":
        return text
    return parse_value(text)


def _prompt(text: str, before: Any = None) -> str:
    """One line of the terminal; `before` is what an empty one leaves as it is."""
    default = "" if before is None else f" [{_to_json(before)}]"
    line: str = click.prompt(f"  {escape_controls(text + default)}", default="", show_default=False, err=True)
    return line.strip()


def _to_json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def name_person(events: Sequence[Event], node: str | None, by: str | None) -> str:
    """Who answers: where the question names its approvers, a name of one's own choice is refused."""
    waiting = open_questions(events)
    question = waiting.get(node) if node is not None else next(iter(waiting.values()), None)
    if question is None or not question.approvers:
        return find_user() if by is None else by
    if by is not None:
        problem = (
            f"the question names its approvers ({', '.join(question.approvers)}), so who answers is known by the user"
        )
        raise click.UsageError(
            f"{problem} of this machine, not by --by; others answer by the link that was sent to them"
        )
    return find_account()
