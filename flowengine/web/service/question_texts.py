"""Says a run's questions in plain words, and reads an answer out of what a person writes. Pure.

An answer is taken only where the choice is clear: the message is a choice, or begins with one that a mark (`,` `.` `:`
`;` `!` a dash or a new line) sets off from the rest, which is then the comment. With several questions the name of the
one that is meant goes first, as in `sign_off: approve`. A question with a form takes a JSON object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from flowengine.core import dumps, find_label, is_map
from flowengine.errors import InputError
from flowengine.journal import fields_of
from flowengine.runs import Question

_SET_OFF: Final = re.compile(r"\s*(?:[,.:;!\n]|[-–—](?=\s))\s*")
_MOST_ANSWER: Final = 100_000
"""Characters of a message that is looked at."""
_MOST_SPACE: Final = 100
"""Characters beyond those of the longest choice in which a mark has to set a choice off."""


class PersonsAnswer(NamedTuple):
    """A person's decision."""

    question: str
    """Path of the question."""
    choice: str
    comment: str = ""
    values: Any = None
    """The values of the question's form."""


def read_given_answer(place: str, value: Any, form: str) -> tuple[str, PersonsAnswer]:
    """The run and the answer of a client: `place` is RUN/QUESTION, and what is given for it an object with `choice`,
    `comment` and `form`, or the choice. `InputError` for anything else, where `form` says how it is written.
    """
    run_id, _, question = place.partition("/")
    answer: Mapping[str, Any] = value if is_map(value) else {"choice": value}
    choice, comment = answer.get("choice"), answer.get("comment") or ""
    if not question or not isinstance(choice, str) or not isinstance(comment, str):
        raise InputError(form)
    return run_id, PersonsAnswer(question, choice, comment, answer.get("form"))


def format_questions(run_id: str, questions: Sequence[Question], *, unclear: bool = False) -> str:
    """Formats the run's questions, and how to answer, for a chat. `unclear`: the last message was not a clear
    answer.
    """
    parts = ["That was no clear answer, so nothing has been decided."] if unclear else []
    parts += [_format_question(each, with_path=len(questions) > 1) for each in questions]
    return "\n\n".join([*parts, f"(Run {run_id} waits for the answer.)"])


def _format_question(question: Question, *, with_path: bool) -> str:
    asks_form = question.form is not None and not question.tool
    prefix = f"{question.node}: " if with_path and not asks_form else ""
    choices = " or ".join(f"`{prefix}{each}`" for each in question.choices)
    lines = [question.message.strip(), ""]
    if asks_form and question.form is not None:
        example = dumps(
            {**({"question": question.node} if with_path else {}), "choice": question.choices[0], "form": {}}
        )
        lines.append(f"Answer in this conversation with a JSON object such as {example}, with `form` filled in:")
        lines.append(
            f"{fields_of(question.form)}. The choices are {' or '.join(f'`{each}`' for each in question.choices)}."
        )
    else:
        lines.append(f"Answer in this conversation with {choices}; after a comma you can say why.")
    return "\n".join(lines)


def read_answer(questions: Sequence[Question], message: str) -> PersonsAnswer | None:
    """The answer that a message is; None where it is not clear."""
    text = message.strip()
    if len(text) > _MOST_ANSWER:
        return None
    if text.startswith("{"):
        return _read_object(questions, text)
    if len(questions) > 1:
        matches = [each for each in questions if text.startswith(f"{each.node}:")]
        if len(matches) != 1:
            return None
        questions, text = matches, text[len(matches[0].node) + 1 :].strip()
    return _read_words(questions[0], text) if questions else None


def _read_words(question: Question, text: str) -> PersonsAnswer | None:
    whole = find_label(text, question.choices, in_any_case=True)
    if whole is not None:
        return PersonsAnswer(question.node, whole)
    longest = max(map(len, question.choices), default=0) + _MOST_SPACE
    for mark in _SET_OFF.finditer(text, 0, longest):
        choice = find_label(text[: mark.start()], question.choices, in_any_case=True)
        if choice is not None:
            return PersonsAnswer(question.node, choice, text[mark.end() :].strip())
    return None


def _read_object(questions: Sequence[Question], text: str) -> PersonsAnswer | None:
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    fields = cast("Mapping[str, Any]", data)
    path, choice, comment = fields.get("question"), fields.get("choice"), fields.get("comment", "")
    matches = [each for each in questions if path in (None, each.node)]
    if len(matches) != 1 or not isinstance(choice, str) or not isinstance(comment, str):
        return None
    label = find_label(choice, matches[0].choices)
    return None if label is None else PersonsAnswer(matches[0].node, label, comment, fields.get("form"))
