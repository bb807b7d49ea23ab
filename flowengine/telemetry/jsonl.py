"""Writes spans as lines of JSON: an exporter that needs no SDK and no collector."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from flowengine.telemetry.spans import Span

__all__ = ["lines_of"]


def lines_of(spans: Sequence[Span]) -> Iterator[str]:
    """One object a span, parents first, with the ids that collectors get too."""
    for span in spans:
        row: dict[str, Any] = {
            "trace_id": span.trace_id,
            "span_id": span.id,
            "parent_id": None if span.parent is None else span.parent.id,
            "name": span.name,
            "start": span.start,
            "end": span.end,
            "status": "error" if span.error is not None else "ok",
            "attributes": span.attributes,
        }
        if span.error is not None:
            row["error"] = span.error
        if span.marks:
            row["events"] = [{"name": mark.name, "at": mark.at, "attributes": mark.attributes} for mark in span.marks]
        if span.link is not None:
            row["links"] = [span.link.id]
        yield json.dumps(row, ensure_ascii=False, default=str)
