"""Makes the page that a signed link opens: a question, its form, what it is about, and one button.

The link opens this page and nothing else. The question is text, whatever it says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from flowengine.core import REFUSE, ApprovalRequested
from visualize.viewer.forms import answer_fields
from visualize.viewer.html import element
from visualize.viewer.page import bare_page
from visualize.viewer.parts import clock, facts, note, value

_PAGE: Final = "A question"


class AskedFor(NamedTuple):
    """The parts of the page beside the question."""

    flow: str
    run_id: str
    path: str
    """The path of the question."""
    asked: float
    choice: str
    """The choice of the link."""
    by: str
    """Whom the link was sent to."""


def answer_page(question: ApprovalRequested, about: AskedFor, action: str, style: str, problem: str = "") -> str:
    """The page; its form posts to `action`. `problem`: what was wrong with the answer that was posted."""
    rows = [
        ("Flow", about.flow),
        ("Node", about.path),
        ("Run", about.run_id),
        ("Asked", clock(about.asked)),
        ("Until", None if question.expires is None else clock(question.expires)),
        ("Then counts", question.on_expire),
        ("You answer as", about.by),
    ]
    return bare_page(
        _PAGE,
        style,
        element(
            "main",
            element("h1", f"{about.flow} asks"),
            element("p", question.message, class_="message"),
            _describe_call(question.tool, question.arguments) if question.tool else None,
            note(problem, kind="bad") if problem else None,
            element(
                "form",
                answer_fields(question, has_arguments=about.choice != REFUSE, choice=about.choice),
                element("div", element("button", f"Answer: {about.choice}", type="submit"), class_="choices"),
                method="post",
                action=action,
                class_="asks",
            ),
            note("Nothing is decided before you press the button. Each other answer has a link of its own."),
            facts(rows),
            class_="narrow approval",
        ),
    )


def told_page(title: str, text: str, style: str) -> str:
    """A page that says one thing."""
    return bare_page(title, style, element("main", element("h1", title), note(text), class_="narrow"))


def _describe_call(tool: str, arguments: Mapping[str, Any] | None) -> Any:
    return [element("h2", f"Call of the tool {tool}"), value(arguments)]
