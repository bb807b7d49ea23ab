"""Formats where the time of a run went: its parts, its critical path, each node with its attempts. Reads no store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any, Final

from flowengine.cli.format_run import shorten
from flowengine.cli.terminal import format_span, format_table
from flowengine.engine.events import Event
from visualize.edge_states import critical_path, in_order
from visualize.progress import Progress, folded
from visualize.run_times import PARTS, Part, RunTimes, Stretch, times_of

__all__ = ["format_times", "times_to_object"]

_LEAST_TOLD: Final = 0.0005
"""Seconds of a part that are told."""
_MAX_PATH: Final = 30
"""Nodes of a critical path that are told in one line."""


def format_times(events: Sequence[Event], node: str | None = None, now: float | None = None) -> Iterator[str]:
    """The lines of `runs show --time`. `now`: until when a run is told of that still goes on or waits."""
    progress, times = folded(events), times_of(events, now)
    parts = times.parts if node is None else times.parts_of(node)
    told: list[Part] = [part for part in PARTS if parts[part] >= _LEAST_TOLD or part == "worked"]
    facts = [["took", format_span(sum(parts.values()))]]
    facts.append(["of this", ", ".join(f"{part} {format_span(parts[part])}" for part in told)])
    if node is None:
        facts.append(["critical path", _format_path(progress, times)])
    yield from format_table(facts)
    yield ""
    yield from format_table(_list_rows(progress, times, told, node), right=range(2, 3 + len(told)))
    if node is not None and times.rows.get(node):
        yield ""
        yield from format_table(_list_spans(times, node), right=(0, 2))


def _format_path(progress: Progress, times: RunTimes) -> str:
    """The nodes of the critical path that hold no others, in the order in which they began to work.

    The time of each counts from the end of the one before, so an item that was queued meanwhile does not count twice.
    """
    found = critical_path(progress)
    around = {progress.nodes[path].spot.container for path in found}
    leaves = [(path, times.spans_of(path)) for path in found if path in times.rows and path not in around]
    leaves.sort(key=lambda leaf: (next((span.start for span in leaf[1] if span.part != "queued"), inf), leaf[0]))
    words: list[str] = []
    reached = 0.0
    for path, spans in leaves[:_MAX_PATH]:
        words.append(f"{path} {format_span(sum(max(span.end - max(span.start, reached), 0.0) for span in spans))}")
        reached = max(reached, spans[-1].end)
    more = [f"{len(leaves) - _MAX_PATH:,} more"] if len(leaves) > _MAX_PATH else []
    return " → ".join([*words, *more])


def _list_rows(progress: Progress, times: RunTimes, told: Sequence[Part], node: str | None) -> list[list[str]]:
    rows = [["node", "status", "took", *told, ""]]
    for row in in_order(progress) if node is None else [progress.nodes[node]]:
        bars = times.rows.get(row.id, ())
        if bars:
            rows.append([row.id, row.status, *_format_parts(times.parts_of(row.id), told), ""])
        if len(bars) > 1:
            rows += [[f"  {bar.status}", "", *_format_parts(bar.parts, told), shorten(bar.note)] for bar in bars]
    return rows


def _format_parts(parts: Mapping[Part, float], told: Sequence[Part]) -> list[str]:
    spans = [format_span(parts[part]) if parts[part] >= _LEAST_TOLD else "" for part in told]
    return [format_span(sum(parts.values())), *spans]


def _list_spans(times: RunTimes, node: str) -> list[list[str]]:
    begun = times.spans[0].start
    return [
        [f"+{format_span(span.start - begun)}", span.part, format_span(span.end - span.start), shorten(span.note)]
        for span in times.spans_of(node)
    ]


def times_to_object(events: Sequence[Event], node: str | None = None, now: float | None = None) -> dict[str, Any]:
    """The same as values of JSON: moments are Unix seconds."""
    progress, times = folded(events), times_of(events, now)
    rows = {
        path: {
            "parts": dict(times.parts_of(path)),
            "bars": [
                {"status": bar.status, "note": bar.note, "spans": list(map(_to_object, bar.spans))} for bar in bars
            ],
        }
        for path, bars in times.rows.items()
        if node is None or path == node
    }
    if node is not None:
        return rows.get(node, {"parts": {}, "bars": []})
    critical = critical_path(progress)
    return {
        "parts": dict(times.parts),
        "breaks": [_to_object(each) for each in times.breaks],
        "critical_path": [row.id for row in in_order(progress) if row.id in critical],
        "nodes": rows,
    }


def _to_object(span: Stretch) -> dict[str, Any]:
    return span._asdict()
