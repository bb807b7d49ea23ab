"""`flowengine runs show`: what happened in a run, or in one of its nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import click

from flowengine.cli.format_run import cut, indented, run_sheet, usage_text
from flowengine.cli.interrupt import INTERRUPTED
from flowengine.cli.outcome import code_of, node_object, run_object
from flowengine.cli.run_access import (
    ReadingCommand,
    chosen_store,
    folded,
    journals,
    node_events,
    read,
    records_of,
    store_option,
)
from flowengine.cli.table import table
from flowengine.cli.terminal import Results, clock, dollars, span, tokens
from flowengine.cli.watch import Reporting, follow, lines_of
from flowengine.core.records import (
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
from flowengine.engine.events import Event
from flowengine.journal.run_export import dumps, event_line, shown
from visualize.progress import NodeRow

__all__ = ["node_sheet", "show"]

# --- One node's part in a run, told in lines of text


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


@click.command("show", cls=ReadingCommand)
@click.argument("reference", metavar="RUN")
@click.option("--node", metavar="NODE", help="One node: its prompts, model calls, retries, output and errors.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; nothing is cut.")
@click.option("--events", is_flag=True, help="Print each event as a line of JSON; nothing is cut.")
@click.option("--watch", is_flag=True, help="Follow the run until it ends, whichever process it runs in.")
@store_option
def show(reference: str, node: str | None, as_json: bool, events: bool, watch: bool, store: str | None) -> int:
    """What happened in RUN: an id, the start of one, or @last.

    With --watch the exit code is that of the run, as `flowengine run` has it.
    """
    code = 0
    if as_json and events:
        raise click.UsageError("--json and --events exclude each other")
    if watch:
        if node is not None or as_json:
            raise click.UsageError("--watch goes with --events only: the whole run is followed")
        with journals(chosen_store(store)) as kept:
            followed = follow(kept, kept.find(reference), Reporting(events=events), Results()).finished
        code = INTERRUPTED if followed is None else code_of(followed.status, followed.error)
        if events:
            return code
    with journals(chosen_store(store)) as kept:
        run_id = kept.find(reference)
        everything = read(kept, run_id)
        standing = list(lines_of(kept, run_id))
        is_left = run_id in kept.abandoned()
    chosen = everything if node is None else node_events(everything, node)
    results = Results()
    if events:
        for event in chosen:
            results.json(event_line(event))
    elif as_json:
        results.json(_object(everything, chosen, node))
    else:
        progress = folded(everything)
        lines = (
            run_sheet(progress, "interrupted" if is_left else "")
            if node is None
            else node_sheet(progress.nodes[node], records_of(chosen))
        )
        results.line("\n".join(lines))
        if node is None and standing:
            results.line("\n" + "\n".join(standing))
    return code


def _object(everything: Sequence[Event], chosen: Sequence[Event], node: str | None) -> str:
    progress = folded(everything)
    if node is None:
        return run_object(progress, None if progress.finished is None else progress.finished.outputs)
    row = progress.nodes[node]
    detail = {"id": row.id, **node_object(row), "result": row.result, "records": records_of(chosen)}
    return dumps(detail, indent=2)
