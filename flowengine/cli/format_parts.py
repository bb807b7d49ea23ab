"""Formats parts of a run that its page has places for: its calls of models, shared state, what a node was given, and
where the time went. It reads no store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any, Final

from flowengine.cli.format_run import indent_lines, shorten
from flowengine.cli.terminal import format_dollars, format_span, format_table
from flowengine.core import ModelCall, format_value
from flowengine.engine import Event, NodeRecorded
from visualize.edge_states import critical_path, in_order
from visualize.progress import Progress, fold_events
from visualize.run_times import PARTS, Part, RunTimes, times_of
from visualize.viewer import Reading, list_inputs
from visualize.word_diff import diff_words, shorten_pieces


def _list_calls(events: Sequence[Event], node: str | None) -> Iterator[tuple[int, str, ModelCall]]:
    """The calls of models, or of one node's, each with its place among the events and its node."""
    for seq, event in enumerate(events):
        if isinstance(event, NodeRecorded) and isinstance(event.record, ModelCall) and node in (None, event.node):
            yield seq, event.node, event.record


def format_calls(events: Sequence[Event], node: str | None = None) -> Iterator[str]:
    """The lines of `runs show --calls`: a call each, in the order in which they were answered."""
    rows = [["CALL", "NODE", "FOR", "MODEL", "TOOK", "IN", "OUT", "COST", "ERROR"]]
    for seq, path, call in _list_calls(events, node):
        tokens = ["" if each is None else f"{each:,}" for each in (call.prompt_tokens, call.completion_tokens)]
        took, cost = format_span(call.seconds), format_dollars(call.cost_usd)
        rows.append([str(seq), path, call.purpose, call.model, took, *tokens, cost, shorten(call.error or "")])
    yield from format_table(rows, right=(0, 4, 5, 6, 7)) if rows[1:] else ["no model was called"]


def calls_to_object(events: Sequence[Event], node: str | None = None) -> list[dict[str, Any]]:
    """The calls, whole."""
    return [{"call": seq, "node": path, **call._asdict()} for seq, path, call in _list_calls(events, node)]


def format_state(state: Mapping[str, Any]) -> Iterator[str]:
    """The lines of `runs show --state`."""
    for key, value in state.items():
        yield key
        yield from indent_lines(shorten(format_value(value)))
    if not state:
        yield "the run has no shared state"


def format_inputs(run: Reading, path: str) -> Iterator[str]:
    """Formats a node's inputs, except arguments, which are among its records."""
    for part in list_inputs(run, run.progress.nodes[path]):
        if part.title != "Handed to it":
            yield ""
            yield f"{part.title[:1].lower()}{part.title[1:]}{part.node}"
            yield from () if part.value is None else indent_lines(shorten(format_value(part.value)))


def format_writes(run: Reading, path: str) -> Iterator[str]:
    """Formats a node's writes to shared state, with the values before and after."""
    for change in run.states.changes(path):
        yield ""
        rule = f" ({change.rule})" if change.rule not in ("", "error") else ""
        yield f"wrote {change.key}{rule}"
        yield from indent_lines("\n".join(mark_words(change.before if change.had else None, change.after)))


def mark_words(before: Any, after: Any) -> Sequence[str]:
    """Both values as one text: `[-only the first-]` and `{+only the second+}`."""
    texts = ["" if each is None else format_value(each) for each in (before, after)]
    marks = {"removed": "[-{}-]", "added": "{{+{}+}}"}
    pieces = shorten_pieces(diff_words(*texts), lines=1, most=2_000)
    return "".join(marks.get(each.kind, "{}").format(each.text) for each in pieces).splitlines()


# --- Where the time went

_LEAST_TOLD: Final = 0.0005
"""Seconds of a part that are told."""
_MAX_PATH: Final = 30
"""Nodes of a critical path that are told in one line."""


def format_times(events: Sequence[Event], node: str | None = None, now: float | None = None) -> Iterator[str]:
    """The lines of `runs show --time`. `now`: until when a run is told of that still goes on or waits."""
    progress, times = fold_events(events), times_of(events, now)
    parts = times.parts if node is None else times.parts_of(node)
    columns: list[Part] = [part for part in PARTS if parts[part] >= _LEAST_TOLD or part == "worked"]
    facts = [["took", format_span(sum(parts.values()))]]
    facts.append(["of this", ", ".join(f"{part} {format_span(parts[part])}" for part in columns)])
    if node is None:
        facts.append(["critical path", _format_path(progress, times)])
    yield from format_table(facts)
    yield ""
    yield from format_table(_list_rows(progress, times, columns, node), right=range(2, 3 + len(columns)))
    if node is not None and times.rows.get(node):
        yield ""
        yield from format_table(_list_spans(times, node), right=(0, 2))


def _format_path(progress: Progress, times: RunTimes) -> str:
    """The nodes of the critical path that hold no others, in the order in which they began to work.

    The time of each counts from the end of the one before, so an item that was queued meanwhile does not count twice.
    """
    critical = critical_path(progress).rows
    around = {progress.nodes[path].spot.container for path in critical}
    leaves = [(path, times.spans_of(path)) for path in critical if path in times.rows and path not in around]
    leaves.sort(key=lambda leaf: (next((span.start for span in leaf[1] if span.part != "queued"), inf), leaf[0]))
    words, reached = list[str](), 0.0
    for path, spans in leaves[:_MAX_PATH]:
        words.append(f"{path} {format_span(sum(max(span.end - max(span.start, reached), 0.0) for span in spans))}")
        reached = max(reached, spans[-1].end)
    more = [f"{len(leaves) - _MAX_PATH:,} more"] if len(leaves) > _MAX_PATH else []
    return " → ".join([*words, *more])


def _list_rows(progress: Progress, times: RunTimes, columns: Sequence[Part], node: str | None) -> list[list[str]]:
    rows = [["node", "status", "took", *columns, ""]]
    for row in in_order(progress) if node is None else [progress.nodes[node]]:
        bars = times.rows.get(row.id, ())
        if bars:
            rows.append([row.id, row.status, *_format_parts(times.parts_of(row.id), columns), ""])
        if len(bars) > 1:
            rows += [[f"  {bar.status}", "", *_format_parts(bar.parts, columns), shorten(bar.note)] for bar in bars]
    return rows


def _format_parts(parts: Mapping[Part, float], columns: Sequence[Part]) -> list[str]:
    spans = [format_span(parts[part]) if parts[part] >= _LEAST_TOLD else "" for part in columns]
    return [format_span(sum(parts.values())), *spans]


def _list_spans(times: RunTimes, node: str) -> list[list[str]]:
    start = times.spans[0].start
    return [
        [f"+{format_span(span.start - start)}", span.part, format_span(span.end - span.start), shorten(span.note)]
        for span in times.spans_of(node)
    ]


def times_to_object(events: Sequence[Event], node: str | None = None, now: float | None = None) -> dict[str, Any]:
    """The same as values of JSON: moments are Unix seconds."""
    progress, times = fold_events(events), times_of(events, now)
    rows = {
        path: {
            "parts": dict(times.parts_of(path)),
            "bars": [
                {"status": bar.status, "note": bar.note, "spans": [each._asdict() for each in bar.spans]}
                for bar in bars
            ],
        }
        for path, bars in times.rows.items()
        if node is None or path == node
    }
    if node is not None:
        return rows.get(node, {"parts": {}, "bars": []})
    critical = critical_path(progress).rows
    return {
        "parts": dict(times.parts),
        "breaks": [each._asdict() for each in times.breaks],
        "critical_path": [row.id for row in in_order(progress) if row.id in critical],
        "nodes": rows,
    }
