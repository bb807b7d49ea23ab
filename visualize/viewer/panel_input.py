"""Makes the parts of a node's panel that say what went into it and how it is defined, as the run had it.

What a node was handed, its item and its round's variables are on record; what the nodes before it gave is theirs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from flowengine.core.records import MapBegan, Received, RoundEnded
from flowengine.engine.events import NodeRecorded
from visualize.definition_lines import find_definition
from visualize.progress import NodeRow
from visualize.viewer.html import Markup, element, flow_url, place
from visualize.viewer.parts import fold, note, section, value
from visualize.viewer.reading import Reading
from visualize.why import rows_before

__all__ = ["definition_section", "input_sections"]

_MAX_BEFORE: Final = 12
"""Nodes before one whose outputs are shown with it."""


def input_sections(run: Reading, row: NodeRow) -> Iterator[Markup]:
    """What the node was given, its item or round, what came from before, and the state that it saw."""
    part = run.part(row.id)
    for seq, event in part:
        if isinstance(event, NodeRecorded) and isinstance(event.record, Received):
            given = {name: parse_excerpt(text) for name, text in event.record.values.items()}
            yield section("Handed to it", value(given), seq=seq)
    yield from _unit_sections(run, row)
    before = rows_before(run.progress, row)
    for each in before[:_MAX_BEFORE]:
        if each.result is not None and each.result.output is not None:
            title = ["From ", element("a", each.id[len(each.spot.unit) :], href=place(each.id))]
            yield section(title, value(each.result.output), seq=run.end_position(each.id))
    if len(before) > _MAX_BEFORE:
        yield note(f"And from {len(before) - _MAX_BEFORE:,} more nodes.")
    started = run.progress.started
    if not before and row.spot.container is None and started is not None and started.inputs:
        yield section("Inputs of the run", value(started.inputs))
    seen = run.states.seen(row.id)
    if seen:
        yield section("Shared state that it saw", fold(", ".join(seen), value(seen)))


def _unit_sections(run: Reading, row: NodeRow) -> Iterator[Markup]:
    """The item or the variables of the round that the node ran in."""
    container = None if row.spot.container is None else run.row(row.spot.container)
    if container is None or row.spot.number is None:
        return
    for seq, event in run.part(container.id):
        record = event.record if isinstance(event, NodeRecorded) else None
        if isinstance(record, MapBegan) and row.spot.number < len(record.items):
            yield section(f"Item {row.spot.number}", value(parse_excerpt(record.items[row.spot.number])), seq=seq)
        elif isinstance(record, RoundEnded) and record.number == row.spot.number and record.variables:
            yield section(f"Variables of round {record.number}", value(record.variables), seq=seq)


def parse_excerpt(text: str) -> Any:
    """The value behind its JSON; where that was cut short, what is left of it as text.

    >>> parse_excerpt('[1, 2]'), parse_excerpt('[1, 2…'), parse_excerpt('"a…')
    ([1, 2], '[1, 2…', 'a…')
    """
    for whole in (text, f'{text}"'):
        try:
            return json.loads(whole)
        except (ValueError, RecursionError):
            continue
    return text


# --- How the node is defined


def definition_section(run: Reading, row_site: str, *, links: bool) -> Markup | None:
    """The node's lines of the flow file as the run had it; None where they are not found."""
    started = run.progress.started
    if started is None or not started.source:
        return None
    found = find_definition(started.source, row_site.split("."))
    if found is None:
        return None
    first, lines = found
    file = f"{started.path or started.flow}:{first}"
    told = element("a", file, href=f"{flow_url(started.flow)}#L{first}") if links else element("code", file)
    return section("Definition", note("As the run had it, from ", told), value("\n".join(lines)))
