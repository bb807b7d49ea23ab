"""Makes the page on which one recorded call of a model is changed and asked again, beside the recorded answer.

It knows records, and asks no model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from flowengine.core import ModelCall, cost_text
from visualize.plain import format_value
from visualize.viewer.actions import command_line
from visualize.viewer.forms import Acting, form, make_label
from visualize.viewer.html import Child, Markup, element, play_url, run_url
from visualize.viewer.page import page
from visualize.viewer.panel_records import meter
from visualize.viewer.parts import difference, facts, fold, note, section, table, took, value
from visualize.word_diff import count_words, diff_words


class EditedCall(NamedTuple):
    """The values of the form."""

    texts: Sequence[str]
    """The texts of the messages, in their order."""
    model: str = ""
    """Empty: that of the node."""
    options: Mapping[str, str] = {}
    """Option → its text; what is empty is left as the node has it."""
    cost: str = ""
    """The most that it may cost."""
    sample: int = 1
    """Which answer to the same question is meant."""


class Tried(NamedTuple):
    """An answer to a changed call, which is a run of its own."""

    run_id: str
    call: ModelCall | None
    """None: it was not answered."""
    score: float | None = None
    error: str = ""
    is_chosen: bool = False


class PlaygroundPage(NamedTuple):
    """The contents of the page."""

    run_id: str
    node: str
    seq: int
    call: ModelCall
    edited: EditedCall
    score: float | None = None
    """The score of the recorded answer."""
    tries: Sequence[Tried] = ()
    asking: str = ""
    """The command line that asks the same."""
    command: str = ""
    """The command line that does the same for the whole run."""
    refusal: str = ""
    """Why no fork can be made with this change."""
    problem: str = ""
    """Why it was not asked as it was posted."""


FORK_NOTE: Final = (
    "A fork shares what the run has done before, and asks the node as it is changed. What is behind it runs where the "
    "answer differs; external effects and questions are suppressed."
)
OPTION_LABELS: Final[Mapping[str, str]] = {
    "temperature": "Temperature",
    "max_tokens": "Most tokens of the answer",
    "reasoning_effort": "Reasoning effort",
    "other": "Further options, as a JSON object",
}


def playground_page(shown_page: PlaygroundPage, acting: Acting, once: str) -> str:
    """The page; its form posts to its own address, with `do` = `ask` or `keep`."""
    it = shown_page
    attempt = next((each for each in it.tries if each.is_chosen), None)
    head = element("p", element("a", f"{it.node} of run {it.run_id}", href=run_url(it.run_id, it.node)), class_="note")
    main = element(
        "main",
        element("h1", "Playground"),
        head,
        note(it.problem, kind="bad") if it.problem else None,
        _make_answers(it, attempt) if attempt is not None else None,
        element("div", _make_recorded(it, is_answered=attempt is not None), _make_form(it, acting, once), class_="two"),
        _list_tries(it) if it.tries else None,
        class_="wide playground",
    )
    return page(f"Playground: {it.node}", main)


def answer_text(call: ModelCall) -> str:
    """Formats a model's answer, and the tools that it called."""
    calls = [format_value(each) for each in call.tool_calls]
    return "\n".join([*([call.content] if call.content or not calls else []), *calls])


def _call_facts(call: ModelCall, score: float | None) -> Markup:
    has_tokens = call.prompt_tokens is not None or call.completion_tokens is not None
    rows: list[tuple[str, Child]] = [
        ("Model", call.model),
        ("Took", took(call.seconds)),
        ("Tokens", f"{call.prompt_tokens or 0:,} in, {call.completion_tokens or 0:,} out" if has_tokens else "unknown"),
        ("Cost", "unknown" if call.cost_usd is None else cost_text(call.cost_usd)),
        ("Score", meter(score)),
    ]
    return facts(rows)


def _make_answers(it: PlaygroundPage, attempt: Tried) -> Markup:
    """The two answers beside each other, and what is different in them."""
    before = answer_text(it.call)
    if attempt.call is None:
        reason = attempt.error or "It has no answer."
        return section("Not answered", note(reason, kind="bad"), class_="bad")
    after = answer_text(attempt.call)
    removed, added = count_words(diff_words(before, after))
    title = "The answer is the same" if before == after else f"{removed:,} words removed, {added:,} added"
    sides = element(
        "div",
        section("Recorded answer", _call_facts(it.call, it.score), value(before)),
        section("New answer", _call_facts(attempt.call, attempt.score), value(after)),
        class_="two",
    )
    error = note(attempt.error, kind="bad") if attempt.error else None
    return section("Answers", error, sides, fold(title, difference(before, after), is_open=before != after))


def _make_recorded(it: PlaygroundPage, *, is_answered: bool) -> Markup:
    messages = [
        element(
            "div",
            element("h4", str(each.get("role", "?")), class_="role"),
            value(each.get("content")),
            class_="message",
        )
        for each in it.call.messages
    ]
    settings = fold("Request", value(it.call.request)) if it.call.request else None
    answer_box = note(it.call.error, kind="bad") if it.call.error else value(answer_text(it.call))
    answer = [element("h4", "Answer", class_="role"), _call_facts(it.call, it.score), answer_box]
    return section("As it was asked", messages, None if is_answered else answer, settings)


def _make_form(it: PlaygroundPage, acting: Acting, once: str) -> Markup:
    edited = it.edited
    hidden = [
        element("input", type="hidden", name="once", value=once),
        element("input", type="hidden", name="sample", value=edited.sample),
    ]
    texts = [
        make_label(str(message.get("role", "?")), _make_area(f"text.{number}", text))
        for number, (message, text) in enumerate(zip(it.call.messages, edited.texts, strict=False))
    ]
    options = [
        _make_line(label, f"option.{name}", edited.options.get(name, "")) for name, label in OPTION_LABELS.items()
    ]
    is_asked = any(each.is_chosen for each in it.tries)
    changes = [
        fold(f"What is changed in the {message.get('role', '?')}'s message", difference(old, text), is_open=True)
        for message, text in zip(it.call.messages, edited.texts, strict=False)
        if (old := str(message.get("content") or "")) != text
    ]
    keep = element("button", "Keep: fork the run with it", type="submit", name="do", value="keep")
    return section(
        "Changed",
        form(
            play_url(it.run_id, it.seq),
            acting,
            hidden,
            texts,
            element("div", _make_line("Model", "model", edited.model, it.call.model), options, class_="options"),
            _make_line("Most that it may cost, in dollars", "cost_usd", edited.cost),
            changes,
            element(
                "div",
                element("button", "Ask", type="submit", name="do", value="ask", class_="primary"),
                element("button", "Ask once more", type="submit", name="do", value="again") if is_asked else None,
                keep,
                class_="sends",
            ),
            _make_command("ask", "Asking on the command line", it.asking),
            element("p", it.refusal or FORK_NOTE, class_="note", data_said=True),
            _make_command("fork", "The fork on the command line", it.command),
            class_="asks play",
        ),
    )  # fmt: skip


def _make_command(name: str, title: str, command: str) -> Markup:
    return element("div", element("h4", title), command_line(command), data_made=name, hidden=not command)


def _make_line(label: str, name: str, text: str, hint: str | None = None) -> Markup:
    return make_label(label, element("input", type="text", name=name, value=text, placeholder=hint))


def _make_area(name: str, text: str) -> Markup:
    rows = min(max(text.count("\n") + 1, len(text) // 70 + 1, 2), 20)
    # The first line end behind the tag is none of the text.
    return element("textarea", "\n", text, name=name, rows=rows)


def _list_tries(it: PlaygroundPage) -> Markup:
    rows: list[list[Any]] = [
        [
            element("a", each.run_id, href=play_url(it.run_id, it.seq, each.run_id)),
            each.call.model if each.call is not None else "",
            meter(each.score),
            "" if each.call is None or each.call.cost_usd is None else cost_text(each.call.cost_usd),
            took(each.call.seconds) if each.call is not None else each.error,
        ]
        for each in it.tries
    ]
    return section("Asked before", table(["Asked", "Model", "Score", "Cost", "Took"], rows, numbers=(3, 4)))
