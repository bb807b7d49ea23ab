"""Formats parts of a run that its page has places for: its calls of models, shared state, what a node was given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flowengine.cli.format_run import indent_lines, shorten
from flowengine.cli.terminal import format_dollars, format_span, format_table
from flowengine.core.records import ModelCall
from flowengine.engine.events import Event, NodeRecorded
from flowengine.journal.run_export import shown
from visualize.viewer.panel_input import list_inputs
from visualize.viewer.reading import Reading
from visualize.word_diff import diff_words, shorten_pieces

__all__ = ["calls_to_object", "format_calls", "format_inputs", "format_state", "format_writes", "mark_words"]


def _list_calls(events: Sequence[Event]) -> Iterator[tuple[int, str, ModelCall]]:
    """The calls of models, each with its place among the events and its node."""
    for seq, event in enumerate(events):
        if isinstance(event, NodeRecorded) and isinstance(event.record, ModelCall):
            yield seq, event.node, event.record


def format_calls(events: Sequence[Event], node: str | None = None) -> Iterator[str]:
    """The lines of `runs show --calls`: a call each, in the order in which they were answered."""
    rows = [["CALL", "NODE", "FOR", "MODEL", "TOOK", "IN", "OUT", "COST", "ERROR"]]
    for seq, path, call in _list_calls(events):
        if node in (None, path):
            tokens = ["" if each is None else f"{each:,}" for each in (call.prompt_tokens, call.completion_tokens)]
            took, cost = format_span(call.seconds), format_dollars(call.cost_usd)
            rows.append([str(seq), path, call.purpose, call.model, took, *tokens, cost, shorten(call.error or "")])
    yield from format_table(rows, right=(0, 4, 5, 6, 7)) if rows[1:] else ["no model was called"]


def calls_to_object(events: Sequence[Event], node: str | None = None) -> list[dict[str, Any]]:
    """The calls, whole."""
    return [
        {"call": seq, "node": path, **call._asdict()} for seq, path, call in _list_calls(events) if node in (None, path)
    ]


def format_state(state: Mapping[str, Any]) -> Iterator[str]:
    """The lines of `runs show --state`."""
    for key, value in state.items():
        yield key
        yield from indent_lines(shorten(shown(value)))
    if not state:
        yield "the run has no shared state"


def format_inputs(run: Reading, path: str) -> Iterator[str]:
    """Formats a node's inputs, except arguments, which are among its records."""
    for part in list_inputs(run, run.progress.nodes[path]):
        if part.title != "Handed to it":
            yield ""
            yield f"{part.title[:1].lower()}{part.title[1:]}{part.node}"
            yield from () if part.value is None else indent_lines(shorten(shown(part.value)))


def format_writes(run: Reading, path: str) -> Iterator[str]:
    """Formats a node's writes to shared state, with the values before and after."""
    for change in run.states.changes(path):
        yield ""
        rule = f" ({change.rule})" if change.rule not in ("", "error") else ""
        yield f"wrote {change.key}{rule}"
        yield from indent_lines("\n".join(mark_words(change.before if change.had else None, change.after)))


def mark_words(before: Any, after: Any) -> Sequence[str]:
    """Both values as one text: `[-only the first-]` and `{+only the second+}`."""
    texts = ["" if each is None else shown(each) for each in (before, after)]
    marks = {"removed": "[-{}-]", "added": "{{+{}+}}"}
    pieces = shorten_pieces(diff_words(*texts), lines=1, most=2_000)
    return "".join(marks.get(each.kind, "{}").format(each.text) for each in pieces).splitlines()
