"""The form in which a person answers an approval, and what it says when it comes back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from flowengine.records import Asked
from visualize.viewer.forms import Acting, fields_for, form, labelled, said_in
from visualize.viewer.html import Markup, element
from visualize.viewer.parts import clock, note, section
from visualize.viewer.urls import approve_url

__all__ = ["Answer", "answer_of", "approval_form"]


class Answer(NamedTuple):
    """What a person said."""

    choice: str
    comment: str = ""
    form: Any = None


def approval_form(run_id: str, node: str, asked: Asked, acting: Acting) -> Markup:
    """The form, which posts to the run's approve address: a button for each choice."""
    buttons = [element("button", choice, type="submit", name="choice", value=choice) for choice in asked.choices]
    return section(
        "Your answer is waited for",
        element("p", asked.message, class_="message"),
        note("Nobody is waited for from ", clock(asked.expires), " on.") if asked.expires is not None else None,
        form(
            approve_url(run_id, node),
            acting,
            fields_for(asked.form, "Answer, as JSON") if asked.form else None,
            labelled("Comment", element("textarea", name="comment", rows=2)),
            element("div", buttons, class_="choices"),
            class_="asks",
        ),
        class_="approval",
    )


def answer_of(asked: Asked, fields: Mapping[str, str]) -> Answer:
    """The answer in the form's fields as they were posted; `ValueError` says what is wrong with them.

    >>> asked = Asked("Pay?", ["yes", "no"], {"type": "object", "properties": {"amount": {"type": "number"}}})
    >>> answer_of(asked, {"choice": "yes", "form.amount": "12.5"})
    Answer(choice='yes', comment='', form={'amount': 12.5})
    """
    choice = fields.get("choice", "")
    if choice not in asked.choices:
        raise ValueError(f"choose one of {', '.join(asked.choices)}")
    comment = fields.get("comment", "").strip()
    return Answer(choice, comment, said_in(asked.form, fields) if asked.form else None)
