"""Makes the parts of a node's panel that its records fill, by their words (`record_text`) or in a form of their own.

It knows records and HTML, and nothing of rows or pages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from flowengine.core import ContextGathered, ModelCall, Receipt, Reused, Round, ToolCall, cost_text
from visualize.plain import format_value
from visualize.record_text import describe, explain_waits
from visualize.viewer.html import Child, Markup, element, run_url
from visualize.viewer.parts import facts, fold, note, section, table, took, value


def record_section(record: Any, seq: int) -> Markup | None:
    """The part of the panel that a record makes; None for one that is told elsewhere."""
    return _SECTIONS.get(type(record).__name__, _make_described)(record, seq)


def rounds_section(rounds: Sequence[tuple[int, Round]]) -> Markup | None:
    """The rounds of evaluate → improve, side by side."""
    if not rounds:
        return None
    best = max(rounds, key=lambda each: (each[1].score or 0.0, each[1].number))[1].number
    return section(
        "Rounds", element("div", [_make_round(seq, judged, best) for seq, judged in rounds], class_="side-by-side")
    )


def _make_round(seq: int, judged: Round, best: int) -> Markup:
    verdict = "✓ passed" if judged.passed else "✗ did not pass"
    return element(
        "article",
        element("h4", f"Round {judged.number}", " ★" if judged.number == best else None),
        meter(judged.score),
        element("p", verdict, class_="verdict"),
        value(judged.content),
        element("p", judged.feedback, class_="feedback") if judged.feedback else None,
        data_seq=seq,
        class_="best" if judged.number == best else None,
    )


def meter(score: float | None) -> Markup | None:
    """A share from 0 to 1, as a bar and in figures."""
    if score is None:
        return None
    bar = element("meter", min=0, max=1, value=f"{score:.3f}")
    return element("span", bar, f" {score:.2f}", class_="score")


def _make_model_call(call: ModelCall, seq: int) -> Markup:
    rows: list[tuple[str, Child]] = [
        ("Model", f"{call.model} ({call.provider})" if call.provider else call.model),
        ("Took", took(call.seconds)),
        ("Tokens", _format_tokens(call)),
        ("Cost", "unknown" if call.cost_usd is None else cost_text(call.cost_usd)),
        ("Requests", str(call.attempts) if call.attempts > 1 else None),
        ("Ended by", call.finish_reason or None),
        ("Vectors", str(len(call.vectors)) if call.vectors else None),
    ]
    waits = [element("li", each) for each in explain_waits(call)]
    is_text = call.content or not (call.tool_calls or call.vectors)
    answer = [value(call.content)] if is_text else []
    requests = [
        fold(f"Asks for {_name_of(each)}", value(_arguments_of(each)), is_open=True) for each in call.tool_calls
    ]
    return section(
        f"Model call: {call.purpose}",
        facts(rows),
        element("ul", waits, class_="waits") if waits else None,
        note(call.error, kind="bad") if call.error else None,
        fold(f"Prompt, {len(call.messages)} parts", [_make_message(each) for each in call.messages]),
        None if call.error or call.vectors else fold("Answer", answer, requests, is_open=True),
        fold("Request", value(call.request)) if call.request else None,
        seq=seq,
        class_="call",
    )


def _format_tokens(call: ModelCall) -> str:
    if call.prompt_tokens is None and call.completion_tokens is None:
        return "unknown"
    cached = f"{call.cached_tokens:,} cached" if call.cached_tokens else ""
    cache_writes = f"{call.cache_write_tokens:,} written to the cache" if call.cache_write_tokens else ""
    of_prompt = ", ".join(filter(None, (cached, cache_writes)))
    of_answer = f"{call.reasoning_tokens:,} reasoning" if call.reasoning_tokens else ""
    remarks = [f" ({each})" if each else "" for each in (of_prompt, of_answer)]
    return f"{call.prompt_tokens or 0:,} in{remarks[0]}, {call.completion_tokens or 0:,} out{remarks[1]}"


def _make_message(message: Mapping[str, Any]) -> Markup:
    """One part of a prompt: its role, and its text or the calls that it asks for."""
    content = message.get("content")
    calls = message.get("tool_calls")
    return element(
        "div",
        element("h4", str(message.get("role", "?")), class_="role"),
        value(content) if content or not calls else None,
        _list_requests(calls) if calls else None,
        class_="message",
    )


def _name_of(call: Mapping[str, Any]) -> str:
    function = call.get("function")
    name = function.get("name") if isinstance(function, Mapping) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType] - a model's text
    return str(name or call.get("name") or "a tool")  # pyright: ignore[reportUnknownArgumentType] - as above


def _list_requests(requests: Any) -> Child:
    """The calls that a message asks for, each with its arguments."""
    calls = cast("Sequence[Any]", requests) if isinstance(requests, list | tuple) else ()
    if not calls or not all(isinstance(each, Mapping) for each in calls):
        return value(requests)
    return [fold(f"Asks for {_name_of(each)}", value(_arguments_of(each)), is_open=True) for each in calls]


def _arguments_of(call: Mapping[str, Any]) -> Any:
    """The arguments as the tool would get them; as text where they are no JSON."""
    function = call.get("function")
    arguments = cast("Mapping[str, Any]", function).get("arguments") if isinstance(function, Mapping) else None
    return call.get("arguments", call) if arguments is None else parse_text(arguments)


def parse_text(text: Any) -> Any:
    """Parses JSON in a text; returns other text unchanged.

    >>> parse_text('{"a": 1}'), parse_text("{a")
    ({'a': 1}, '{a')
    """
    if not isinstance(text, str) or text[:1] not in ("{", "["):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


_COLUMNS: Final = ("source", "label", "tokens", "state", "why")
"""Columns of a receipt that stand first."""


def _make_receipt(receipt: Receipt, seq: int) -> Markup:
    """Makes the table of the prompt's contents: one row per fragment."""
    columns = dict.fromkeys(key for row in receipt.fragments for key in row if key != "estimated")
    names = [each for each in _COLUMNS if each in columns] + [each for each in columns if each not in _COLUMNS]
    about = {"tokens": "~"}
    rows = [
        [(about.get(name, "") if row.get("estimated") else "") + _make_cell(row.get(name)) for name in names]
        for row in receipt.fragments
    ]
    numbers = [names.index("tokens")] if "tokens" in names else []
    budget = "" if receipt.budget is None else f" within {receipt.budget:,} tokens"
    return section(f"Context receipt{budget}", table(names, rows, numbers=numbers), seq=seq)


def _make_context(context: ContextGathered, seq: int) -> Markup:
    """The fragments as the providers gave them, before anything was shortened."""
    parts = [
        fold(" · ".join(str(row[name]) for name in ("source", "label") if row.get(name)), value(row.get("text", row)))
        for row in context.fragments
    ]
    return section(f"Brought by context providers: {len(parts)}", parts, seq=seq)


def _make_cell(content: Any) -> str:
    return "" if content is None else f"{content:,}" if isinstance(content, int) else format_value(content)


def _make_reuse(reused: Reused, seq: int) -> Markup:
    link = element("a", f"run {reused.run_id}", href=run_url(reused.run_id, reused.node))
    return element("p", "Not run: the result is that of ", link, ".", data_seq=seq, class_="note")


def _make_nothing(record: Any, seq: int) -> None:
    """Rounds stand side by side, and decisions under "Why"; inputs have a pane of their own."""


def _make_described(record: Any, seq: int) -> Markup:
    text = describe(record)
    if not (text.facts or text.bodies):
        return element("p", text.title, data_seq=seq, class_="note")
    bodies = [
        fold(title, value(parse_text(body)), is_open=True) if title else value(body) for title, body in text.bodies
    ]
    rows = facts(text.facts) if text.facts else None
    classes = ["call"] * isinstance(record, ToolCall) + ["bad"] * text.is_bad
    return section(text.title, rows, bodies, seq=seq, class_=" ".join(classes))


_SECTIONS: Final[Mapping[str, Callable[[Any, int], Markup | None]]] = {
    "ModelCall": _make_model_call,
    "Decided": _make_nothing,
    "Receipt": _make_receipt,
    "Received": _make_nothing,
    "ContextGathered": _make_context,
    "Round": _make_nothing,
    "Reused": _make_reuse,
}
