"""One node's part in a run, told in lines of text: what it was asked, what it answered, what went wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from flowengine.cli.plain import shown
from flowengine.cli.sheet import cut, indented, usage_text
from flowengine.cli.table import table
from flowengine.cli.units import clock, dollars, span, tokens
from flowengine.records import (
    Brought,
    EffectDecided,
    ModelCall,
    Notice,
    ProviderFailed,
    Receipt,
    Retry,
    Round,
    SkillLoad,
    ToolCall,
)
from visualize.progress import NodeRow

__all__ = ["node_sheet"]


def node_sheet(row: NodeRow, records: Sequence[Any]) -> Iterator[str]:
    """The lines of `runs show --node`."""
    facts = [["node", row.id], ["kind", row.kind], ["status", row.status]]
    if row.cause is not None:
        facts.append(["because", row.cause.replace("_", " ")])
    if row.started is not None:
        facts += [["started", clock(row.started)], ["took", span(row.seconds())]]
    if row.asked is not None and row.waited() is not None:
        facts.append(["waited", span(row.waited())])
    if row.usage.calls:
        facts.append(["models", usage_text(row.usage)])
    yield from table(facts)
    for record in records:
        yield ""
        yield from _SHEETS.get(type(record).__name__, _other)(record)
    yield from _end(row)


def _end(row: NodeRow) -> Iterator[str]:
    for error in row.earlier_errors:
        yield ""
        yield f"failed before the run was resumed: {error.type}"
        yield from indented(cut(error.message))
    if row.error is not None:
        yield ""
        yield f"error: {row.error.type}"
        yield from indented(cut(row.error.message))
        yield from indented(row.error.detail, "    ")
    if row.result is None:
        return
    if row.result.route is not None:
        yield ""
        yield f"route: {row.result.route}"
    for title, value in (("output", row.result.output), ("state", row.result.state)):
        if value is not None:
            yield ""
            yield title
            yield from indented(cut(shown(value)))


def _model_call(call: ModelCall) -> Iterator[str]:
    known = [] if call.prompt_tokens is None and call.completion_tokens is None else [
        tokens((call.prompt_tokens or 0) + (call.completion_tokens or 0))
    ]  # fmt: skip
    sent = f"{call.attempts} requests" if call.attempts > 1 else ""
    facts = [call.model, call.provider, *known, dollars(call.cost_usd), span(call.seconds), sent, call.finish_reason]
    yield f"model call for {call.purpose}: {', '.join(each for each in facts if each)}"
    for message in call.messages:
        yield f"  {message.get('role', '?')}:"
        yield from indented(cut(shown(message.get("content") or message.get("tool_calls") or "")), "    ")
    if call.error is not None:
        yield f"  failed: {cut(call.error)}"
    if call.vectors:
        yield f"  answer: {len(call.vectors)} vectors"
    elif call.content or not call.tool_calls:
        yield "  answer:"
        yield from indented(cut(call.content), "    ")
    for asked in call.tool_calls:
        yield f"  asks for: {cut(shown(asked))}"


def _tool_call(call: ToolCall) -> Iterator[str]:
    verb = "begins" if call.started else "failed" if call.is_error else "done"
    yield f"tool {call.name} {verb} ({span(call.seconds)})"
    yield f"  arguments: {cut(shown(call.arguments))}"
    if not call.started:
        yield "  result:"
        yield from indented(cut(shown(call.result)), "    ")


def _decided(decided: EffectDecided) -> Iterator[str]:
    verb = "is run again" if decided.decision == "retry" else "is taken as done"
    yield f"a person decided: the interrupted call of tool {decided.name} {verb}"
    yield f"  arguments: {cut(shown(decided.arguments))}"


def _retry(retry: Retry) -> Iterator[str]:
    yield f"attempt {retry.attempt} failed, the next one after {span(retry.delay)}"
    yield from indented(cut(retry.error))


def _round(judged: Round) -> Iterator[str]:
    score = "" if judged.score is None else f" with {judged.score:g}"
    yield f"round {judged.number} {'passed' if judged.passed else 'did not pass'}{score}"
    yield from indented(cut(judged.feedback))


def _notice(notice: Notice) -> Iterator[str]:
    yield f"notice: {cut(notice.text)}"


def _receipt(receipt: Receipt) -> Iterator[str]:
    budget = "" if receipt.budget is None else f", of at most {tokens(receipt.budget)}"
    yield f"context receipt{budget}"
    rows = [
        [
            str(row.get("state", "")),
            tokens(row.get("tokens")),
            str(row.get("source", "")),
            cut(str(row.get("label", ""))),
            cut(_why(row)),
        ]
        for row in receipt.fragments
    ]
    yield from (f"  {line}" for line in table(rows, right=(1,)))


def _why(row: Mapping[str, Any]) -> str:
    """Why a fragment was shortened or dropped, and how long it was."""
    was = f"of {row['was']:,}" if isinstance(row.get("was"), int) else ""
    return ": ".join(each for each in (was, str(row.get("why", ""))) if each)


def _brought(brought: Brought) -> Iterator[str]:
    sources = dict.fromkeys(str(row.get("source", "")) for row in brought.fragments)
    number = len(brought.fragments)
    yield f"context brought by {', '.join(sources)}: {number} fragment{'s' * (number != 1)}"


def _skill(load: SkillLoad) -> Iterator[str]:
    yield f"skill {load.skill}, level {load.level}: {tokens(load.tokens)} ({span(load.seconds)})"


def _provider(failed: ProviderFailed) -> Iterator[str]:
    yield f"context provider {failed.provider} failed: {cut(failed.error)}"


def _other(record: Any) -> Iterator[str]:
    yield f"{type(record).__name__}: {cut(shown(record))}"


_SHEETS: Final[dict[str, Callable[[Any], Iterator[str]]]] = {
    "ModelCall": _model_call,
    "ToolCall": _tool_call,
    "EffectDecided": _decided,
    "Retry": _retry,
    "Round": _round,
    "Notice": _notice,
    "Receipt": _receipt,
    "Brought": _brought,
    "SkillLoad": _skill,
    "ProviderFailed": _provider,
}
