"""`flowengine runs show` prints what happened in a run, or in one of its nodes. It changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from time import time
from typing import Any, Final

import click

from flowengine.cli.commands.runs_list import format_notes, notes_to_object
from flowengine.cli.ending import INTERRUPTED
from flowengine.cli.execute import exit_code_of
from flowengine.cli.format_parts import (
    calls_to_object,
    format_calls,
    format_inputs,
    format_state,
    format_times,
    format_writes,
    times_to_object,
)
from flowengine.cli.format_run import format_run, format_usage, indent_lines, shorten, to_node_object, to_run_object
from flowengine.cli.options import Reporting, open_journal, store_option
from flowengine.cli.run_access import ReadingCommand, format_command, node_events, read, records_of
from flowengine.cli.terminal import Results, format_clock, format_dollars, format_span, format_table, format_tokens
from flowengine.cli.watch import follow, format_run_standing
from flowengine.core import (
    CAUSE_TEXTS,
    ContextGathered,
    Decided,
    ModelCall,
    Receipt,
    Round,
    ToolCall,
    dumps,
    format_value,
)
from flowengine.engine import Event, NodeRecorded
from flowengine.journal import event_line, notes_of, session_of
from flowengine.runtime import RunLister
from flowengine.runtime.queue import standing_of
from visualize.definition_lines import find_definition
from visualize.edge_states import in_order
from visualize.progress import NodeRow, Progress, fold_events
from visualize.record_text import describe, explain_waits
from visualize.viewer import Reading, list_inputs
from visualize.why import explain_decision, explain_edges, explain_node, format_words

_MOST_EMBEDDED: Final = 3
"""Texts of a call for vectors that are printed: an index asks for those of hundreds of documents at once."""

# --- One node in lines of text


def format_node(run: Reading, row: NodeRow, records: Sequence[Any]) -> Iterator[str]:
    """The lines of `runs show --node`."""
    facts = [["node", row.id], ["kind", row.kind], ["status", row.status]]
    if row.cause is not None:
        facts.append(["because", CAUSE_TEXTS[row.cause]])
    if row.started is not None:
        facts += [["started", format_clock(row.started)], ["took", format_span(row.seconds())]]
    if row.question is not None and row.sum_waiting() is not None:
        facts.append(["waited", format_span(row.sum_waiting())])
    if row.usage.calls:
        facts.append(["models", format_usage(row.usage)])
    yield from format_table(facts)
    yield from format_inputs(run, row.id)
    for record in records:
        yield ""
        yield from _format_record(record)
    yield from _format_end(row)
    yield from format_writes(run, row.id)


def _format_record(record: Any) -> Iterator[str]:
    yield from _FORMATTERS.get(type(record).__name__, _format_described)(record)


def _format_end(row: NodeRow) -> Iterator[str]:
    for error in row.earlier_errors:
        yield ""
        yield f"failed before the run was resumed: {error.type}"
        yield from indent_lines(shorten(error.message))
    if row.error is not None:
        yield ""
        yield f"error: {row.error.type}"
        yield from indent_lines(shorten(row.error.message))
        yield from indent_lines(row.error.detail, "    ")
    if row.result is None:
        return
    if row.result.route is not None:
        yield ""
        yield f"route: {row.result.route}"
    if row.result.output is not None:
        yield ""
        yield "output"
        yield from indent_lines(shorten(format_value(row.result.output)))


def _format_model_call(call: ModelCall) -> Iterator[str]:
    tokens = [] if call.prompt_tokens is None and call.completion_tokens is None else [
        format_tokens((call.prompt_tokens or 0) + (call.completion_tokens or 0))
    ]  # fmt: skip
    requests = f"{call.attempts} requests" if call.attempts > 1 else ""
    facts = [
        call.model,
        call.provider,
        *tokens,
        format_dollars(call.cost_usd),
        format_span(call.seconds),
        requests,
        call.finish_reason,
    ]
    yield f"model call for {call.purpose}: {', '.join(each for each in facts if each)}"
    yield from (f"  {shorten(each)}" for each in explain_waits(call))
    shown_first = _MOST_EMBEDDED if call.vectors else len(call.messages)
    for message in call.messages[:shown_first]:
        yield f"  {message.get('role', '?')}:"
        yield from indent_lines(
            shorten(format_value(message.get("content") or message.get("tool_calls") or "")), "    "
        )
    if len(call.messages) > shown_first:
        yield f"  and {len(call.messages) - shown_first:,} more texts; --json has them all"
    if call.error is not None:
        yield f"  failed: {shorten(call.error)}"
    if call.vectors:
        yield f"  answer: {len(call.vectors)} vectors"
    elif call.content or not call.tool_calls:
        yield "  answer:"
        yield from indent_lines(shorten(call.content), "    ")
    for request in call.tool_calls:
        yield f"  asks for: {shorten(format_value(request))}"


def _format_round(judged: Round) -> Iterator[str]:
    score = "" if judged.score is None else f" with {judged.score:g}"
    yield f"round {judged.number} {'passed' if judged.passed else 'did not pass'}{score}"
    yield from indent_lines(shorten(judged.feedback))


def _format_receipt(receipt: Receipt) -> Iterator[str]:
    budget = "" if receipt.budget is None else f", of at most {format_tokens(receipt.budget)}"
    yield f"context receipt{budget}"
    rows = [
        [
            str(row.get("state", "")),
            f"about {format_tokens(row.get('tokens'))}" if row.get("estimated") else format_tokens(row.get("tokens")),
            str(row.get("source", "")),
            shorten(str(row.get("label", ""))),
            shorten(_explain_fragment(row)),
        ]
        for row in receipt.fragments
    ]
    yield from (f"  {line}" for line in format_table(rows, right=(1,)))


def _explain_fragment(row: Mapping[str, Any]) -> str:
    """Explains why a fragment was shortened or dropped, with its original length."""
    was = f"of {row['was']:,}" if isinstance(row.get("was"), int) else ""
    return ": ".join(each for each in (was, str(row.get("why", ""))) if each)


def _format_context(context: ContextGathered) -> Iterator[str]:
    sources = dict.fromkeys(str(row.get("source", "")) for row in context.fragments)
    number = len(context.fragments)
    yield f"context brought by {', '.join(sources)}: {number} fragment{'s' * (number != 1)}"


def _format_decided(decided: Decided) -> Iterator[str]:
    for words in explain_decision(decided):
        yield from indent_lines(shorten(format_words(words)), "")


def _format_described(record: Any) -> Iterator[str]:
    text = describe(record)
    yield shorten(text.title[:1].lower() + text.title[1:])
    yield from (f"  {name.lower()}: {shorten(fact)}" for name, fact in text.facts if fact)
    for title, body in text.bodies:
        if title:
            yield f"  {title.lower()}:"
        yield from indent_lines(shorten(format_value(body)), "    " if title else "  ")


_FORMATTERS: Final[dict[str, Callable[[Any], Iterator[str]]]] = {
    "ModelCall": _format_model_call,
    "Decided": _format_decided,
    "Round": _format_round,
    "Receipt": _format_receipt,
    "ContextGathered": _format_context,
}


@click.command("show", cls=ReadingCommand)
@click.argument("reference", metavar="RUN")
@click.option(
    "--node", metavar="NODE", help="One node: what it was given, its model calls, retries, output and errors."
)
@click.option("--why", is_flag=True, help="Why each node ran or did not, and which ways were taken, with the values.")
@click.option("--time", "by_time", is_flag=True, help="Where the time went: worked, waited, queued, retried, loading.")
@click.option("--calls", is_flag=True, help="Its calls of models, one a line.")
@click.option("--call", type=click.IntRange(0), metavar="N", help="One call, by its number in --calls or --events.")
@click.option("--state", is_flag=True, help="Its shared state.")
@click.option("--all", "is_whole", is_flag=True, help="Every item of a map and every round of a loop.")
@click.option("--at", type=click.IntRange(0), metavar="N", help="As the run stood after event N, counted from 0.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; nothing is cut.")
@click.option("--events", is_flag=True, help="Print each event as a line of JSON; nothing is cut.")
@click.option("--watch", is_flag=True, help="Follow the run until it ends, whichever process it runs in.")
@store_option
def show(
    reference: str,
    node: str | None,
    why: bool,
    by_time: bool,
    calls: bool,
    call: int | None,
    state: bool,
    is_whole: bool,
    at: int | None,
    as_json: bool,
    events: bool,
    watch: bool,
    store: str | None,
) -> int:
    """Show what happened in RUN: an id, the start of one, or @last.

    With --watch the exit code is that of the run, as `flowengine run` has it. On a terminal, a run that waits for a
    person is watched on until Ctrl-C; elsewhere that is its end.
    """
    code = 0
    if as_json and events:
        raise click.UsageError("--json and --events exclude each other")
    switches = {"--why": why, "--time": by_time, "--calls": calls, "--call": call is not None, "--state": state}
    views = [name for name, is_given in switches.items() if is_given]
    for view in views:
        if events or watch:
            raise click.UsageError(f"{view} goes with --node and --json only")
        if node is not None and view in ("--call", "--state"):
            raise click.UsageError(f"{view} and --node exclude each other: --node tells what it saw, wrote and asked")
    if is_whole and (views or events or as_json or node is not None):
        raise click.UsageError("--all goes with the list of all nodes only; the other forms leave out nothing")
    if len(views) > 1:
        raise click.UsageError(f"{views[0]} and {views[1]} exclude each other")
    if watch:
        if node is not None or as_json or at is not None:
            raise click.UsageError("--watch goes with --events only: the whole run is followed")
        with open_journal(store) as journal:
            followed = follow(journal, journal.find(reference), Reporting(events=events), Results()).finished
        code = INTERRUPTED if followed is None else exit_code_of(followed.status, followed.error)
        if events:
            return code
    with open_journal(store) as journal:
        run_id = journal.find(reference)
        everything = _until(read(journal, run_id), at)
        standing = list(format_run_standing(journal, run_id)) if at is None else []
        is_left = at is None and run_id in journal.abandoned()
        if is_left and standing_of(journal, run_id) is None:
            standing.append(f"  to go on: {format_command('resume', run_id, store)}")
        notes = notes_of(journal, run_id)
        is_summed = not (as_json or events or views) and node is None
        led_to = RunLister(journal).come_from(run_id) if is_summed or as_json else ()
    shown_events = everything if node is None else node_events(everything, node)
    # A run that was left is not worked on: what it was at ended with its last event.
    now = None if is_left or at is not None else time()
    results = Results()
    if events:
        for event in shown_events:
            results.json(event_line(event))
    elif views:
        viewed = _view(views[0], everything, node, now, call, as_json)
        if as_json:
            results.value(viewed)
        else:
            results.line("\n".join(viewed))
    elif as_json:
        about = {**notes_to_object(notes), "led_to": list(led_to)} if node is None else {}
        results.json(_to_json(everything, shown_events, node, about))
    elif node is not None:
        run = Reading(everything)
        lines = format_node(run, run.progress.nodes[node], records_of(shown_events))
        results.line("\n".join([*lines, *_format_definition(run.progress, node)]))
    else:
        status = "interrupted" if is_left else ""
        results.line("\n".join(format_run(fold_events(everything), status, now, is_whole=is_whole)))
        for lines in (standing, [f"forked, or reused by: {', '.join(led_to)}"] if led_to else [], format_notes(notes)):
            if lines:
                results.line("\n" + "\n".join(lines))
    return code


def _until(events: Sequence[Event], at: int | None) -> Sequence[Event]:
    """The events up to the one at a position."""
    if at is not None and at >= len(events):
        raise click.UsageError(f"--at {at}: the run has {len(events):,} events, the last one is {len(events) - 1}")
    return events if at is None else events[: at + 1]


def _view(
    option: str, events: Sequence[Event], node: str | None, now: float | None, call: int | None, as_json: bool
) -> Any:
    """Returns the view that one of `--why` to `--state` asks for, as an object of JSON or as lines."""
    match option:
        case "--why":
            return _why_to_objects(events, node) if as_json else _format_why(fold_events(events), node)
        case "--time":
            return times_to_object(events, node, now) if as_json else format_times(events, node, now)
        case "--calls":
            return calls_to_object(events, node) if as_json else format_calls(events, node)
        case "--state":
            state = Reading(events).states.so_far()
            return state if as_json else format_state(state)
        case _:
            at, record = _find_call(events, call or 0)
            data = {"call": call, "node": at, **record._asdict()}
            return data if as_json else [f"node {at}, event {call}", *_format_record(record)]


def _find_call(events: Sequence[Event], number: int) -> tuple[str, ModelCall | ToolCall]:
    """A call of a model or a tool by its position, and whose it is."""
    event = events[number] if number < len(events) else None
    if not isinstance(event, NodeRecorded) or not isinstance(event.record, ModelCall | ToolCall):
        raise click.UsageError(f"event {number} is no call of a model or a tool: --calls lists those of models")
    return event.node, event.record


def _format_definition(progress: Progress, node: str) -> Iterator[str]:
    """The node's lines of the flow file as the run had it."""
    started = progress.started
    source = None if started is None else started.source
    definition = find_definition(source, progress.nodes[node].spot.site.split(".")) if source else None
    if definition is not None and started is not None:
        yield ""
        yield f"defined at {started.path or started.flow}:{definition[0]}"
        yield from indent_lines(shorten("\n".join(definition[1])))


def _format_why(progress: Progress, node: str | None) -> Iterator[str]:
    """The lines of `--why`: each node with its reasons, and the ways on from it."""
    for row in in_order(progress) if node is None else [progress.nodes[node]]:
        yield f"{row.id}: {row.status}"
        for words in (*explain_node(progress, row), *explain_edges(progress, row)):
            yield from indent_lines(shorten(format_words(words)))


def _why_to_objects(everything: Sequence[Event], node: str | None) -> list[dict[str, Any]]:
    progress = fold_events(everything)
    return [
        {
            "node": row.id,
            "status": row.status,
            "why": [format_words(each) for each in explain_node(progress, row)],
            "ways": [format_words(each) for each in explain_edges(progress, row)],
            "decided": [each._asdict() for each in row.decided],
        }
        for row in (in_order(progress) if node is None else [progress.nodes[node]])
    ]


def _to_json(
    everything: Sequence[Event], shown_events: Sequence[Event], node: str | None, about: Mapping[str, Any]
) -> str:
    run = Reading(everything)
    progress, started = run.progress, run.progress.started
    if node is None:
        about_run = to_run_object(progress, None if progress.finished is None else progress.finished.outputs)
        inputs = None if started is None else started.inputs
        return dumps(
            {**about_run, "inputs": inputs, "session": session_of(started) if started else "", **about}, indent=2
        )
    row = progress.nodes[node]
    inputs_of_node = [{"what": f"{each.title}{each.node}", "value": each.value} for each in list_inputs(run, row)]
    wrote = [each._asdict() for each in run.states.changes(node)]
    detail = {"id": row.id, **to_node_object(row), "given": inputs_of_node, "result": row.result, "wrote": wrote}
    return dumps({**detail, "records": records_of(shown_events)}, indent=2)
