"""Tells a page of a run: one small JSON object an event. This is the whole protocol between us and our script.

A page begins with a list of such lines; while the run goes on, the server sends the rest as server-sent events,
each one line as its `data`, with `seq` as its `id` so that a browser which lost the connection says from where
to go on. Every line has `kind` and `at` (Unix seconds), every event of the journal `seq` (its position, from 0),
every event of a node `node` (its path). What else there is, where it is known:

    begin       run, flow               the run started
    resume                              it goes on after a break
    end         status, node, error     it ended: succeeded, failed, waiting, paused, partial, cancelled
    start                               the node starts
    finish      output, route, state    it finished: the beginning of its output, and its writes to shared state
    fail        error
    skip        cause, why                          why in words, with values
    cancel
    call        purpose, model, seconds, tokens, cost, error      a model answered
    tool        name, seconds, failed, begins                     a tool answered, or an external one begins
    retry       attempt, error, delay
    judged      number, score, passed                             a round of an agent's improvement
    map         total                                             a map knows its items
    map_stopped done, cancelled, left                             a map has enough results
    round       number, stopped, best                             a loop's round is over
    asked       message, choices, expires                         an approval waits for a person
    answered    choice, by
    reused      run                                               the result is that of another run
    told        text                                              any other record
    token       text, begins, model     a piece of what an agent is writing, or the model that it asks now (then
                                        without text); not in the journal, so without `seq`

Texts and values are cut short: what is whole is in the node's panel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from flowengine.core import ApprovalRequested, Decided, ModelCall, Receipt, RoundEnded, ToolCall, seconds_text
from flowengine.engine import (
    ErrorInfo,
    Event,
    NodeFailed,
    NodeFinished,
    NodeRecorded,
    NodeSkipped,
    RunFinished,
    RunStarted,
    TokenStreamed,
)
from visualize.plain import brief, compact, format_value
from visualize.viewer.html import whole
from visualize.why import explain_decision, format_words

_MAX_TEXT: Final = 160
"""Characters of a text."""
_MAX_VALUE: Final = 300
"""Characters, items or entries of each part of a value of shared state."""

Line = dict[str, Any]

_KINDS: Final[Mapping[str, str]] = {
    "RunStarted": "begin",
    "RunResumed": "resume",
    "RunFinished": "end",
    "NodeStarted": "start",
    "NodeFinished": "finish",
    "NodeFailed": "fail",
    "NodeSkipped": "skip",
    "NodeCancelled": "cancel",
    "TokenStreamed": "token",
}


def feed(event: Event | TokenStreamed, seq: int | None = None) -> Line:
    """The line of one event; `seq` is its position in the journal, None for what no journal has.

    >>> from flowengine.engine.events import NodeStarted
    >>> feed(NodeStarted("draft", 1.5), 3)
    {'seq': 3, 'kind': 'start', 'at': 1.5, 'node': 'draft'}
    """
    line: Line = {} if seq is None else {"seq": seq}
    if isinstance(event, NodeRecorded):
        kind, more = _describe_record(event.record)
        return {**line, "kind": kind, "at": event.at, "node": event.node, **_drop_unknown(more)}
    line |= {"kind": _KINDS[type(event).__name__], "at": event.at}
    node = getattr(event, "node", None)
    return {**line, **({} if node is None else {"node": node}), **_drop_unknown(_describe_event(event))}


def feed_line(event: Event | TokenStreamed, seq: int | None = None) -> str:
    """The same as JSON, on one line that can be encoded."""
    return whole(compact(feed(event, seq)))


def preview(value: Any) -> str:
    """The beginning of a value, on one line."""
    text = value[: 2 * _MAX_TEXT] if isinstance(value, str) else format_value(brief(value, _MAX_TEXT))
    clean = " ".join(text.split())
    return clean if len(clean) <= _MAX_TEXT else clean[: _MAX_TEXT - 1] + "…"


def _drop_unknown(more: Line) -> Line:
    return {name: value for name, value in more.items() if value is not None}


def _describe_event(event: Event | TokenStreamed) -> Line:
    if isinstance(event, NodeFinished):
        result = event.result
        state = {key: brief(value, _MAX_VALUE) for key, value in result.state.items()} if result.state else None
        output = None if result.output is None else preview(result.output)
        return {"output": output, "route": result.route, "state": state}
    if isinstance(event, NodeFailed):
        return {"error": _shorten_error(event.error), "skipped": event.skipped or None}
    if isinstance(event, NodeSkipped):
        why = "" if event.why is None else _format_decision(event.why)
        return {"cause": event.cause, "why": why or None}
    if isinstance(event, RunStarted):
        return {"run": event.run_id, "flow": event.flow}
    if isinstance(event, RunFinished):
        return {"status": event.status, "error": None if event.error is None else _shorten_error(event.error)}
    if isinstance(event, TokenStreamed):
        return {"text": event.text, "begins": event.begins or None, "model": event.model or None}
    return {}


def _shorten_error(error: ErrorInfo) -> str:
    return preview(error.message or error.type)


def _describe_record(record: Any) -> tuple[str, Line]:
    name = type(record).__name__
    if name in _RECORDS:
        kind, read = _RECORDS[name]
        return kind, read(record)
    return "told", {"text": preview(_TEXTS[name](record)) if name in _TEXTS else name}


def _describe_model_call(call: ModelCall) -> Line:
    counted = call.prompt_tokens is not None or call.completion_tokens is not None
    return {
        "purpose": call.purpose,
        "model": call.model,
        "seconds": call.seconds,
        "tokens": (call.prompt_tokens or 0) + (call.completion_tokens or 0) if counted else None,
        "cost": call.cost_usd,
        "error": None if call.error is None else preview(call.error),
    }


def _describe_tool_call(call: ToolCall) -> Line:
    flags = {"failed": call.is_error or None, "begins": call.started or None}
    return {"name": call.name, "seconds": call.seconds, **flags}


def _describe_loop_round(ended: RoundEnded) -> Line:
    best = None if ended.best is None else preview(ended.best)
    return {"number": ended.number, "stopped": ended.stopped, "best": best}


def _describe_question(question: ApprovalRequested) -> Line:
    line: Line = {"message": preview(question.message), "choices": list(question.choices), "expires": question.expires}
    return {**line, "tool": question.tool, "arguments": preview(question.arguments)} if question.tool else line


def _describe_receipt(receipt: Receipt) -> str:
    counts = Counter(str(row.get("state", "")) for row in receipt.fragments)
    text = ", ".join(f"{count} {state}".strip() for state, count in counts.items())
    return f"what entered the prompt: {text or 'nothing'}"


def _format_decision(decided: Decided) -> str:
    return preview("; ".join(format_words(each) for each in explain_decision(decided)))


_RECORDS: Final[Mapping[str, tuple[str, Callable[[Any], Line]]]] = {
    "ModelCall": ("call", _describe_model_call),
    "ToolCall": ("tool", _describe_tool_call),
    "Retry": ("retry", lambda it: {"attempt": it.attempt, "error": preview(it.error), "delay": it.delay}),
    "Round": ("judged", lambda it: {"number": it.number, "score": it.score, "passed": it.passed}),
    "RoundEnded": ("round", _describe_loop_round),
    "MapBegan": ("map", lambda it: {"total": it.total}),
    "MapStopped": (
        "map_stopped",
        lambda it: {"done": len(it.done), "cancelled": len(it.cancelled), "left": it.left},
    ),
    "ApprovalRequested": ("asked", _describe_question),
    "Answered": ("answered", lambda it: {"choice": it.choice, "by": it.by or None}),
    "Reused": ("reused", lambda it: {"run": it.run_id}),
}
"""Record → its kind, and what is told of it."""
_TEXTS: Final[Mapping[str, Callable[[Any], str]]] = {
    "Notified": lambda it: (
        f"{it.to} {'was told' if it.error is None else f'could not be told: {it.error}'} ({it.channel})"
    ),
    "Notice": lambda it: it.text,
    "Waited": lambda it: f"waited {seconds_text(it.seconds)} for a thread",
    "ProviderFailed": lambda it: f"context provider {it.provider} failed: {it.error}",
    "SkillLoad": lambda it: f"skill {it.skill}, level {it.level}, {it.tokens} tokens",
    "Receipt": _describe_receipt,
    "ContextGathered": lambda it: f"context providers brought {len(it.fragments)} fragments",
    "Decided": _format_decision,
    "Received": lambda it: ", ".join(f"{name} = {text}" for name, text in it.values.items()),
}
"""Record of which a text is told → that text."""
