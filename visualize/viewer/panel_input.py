"""Makes the parts of a node's panel that say what went into it and how it is defined, as the run had it.

What a node was handed, its item and its round's variables are on record; what the nodes before it gave is theirs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from flowengine.core import MapBegan, Received, RoundEnded
from flowengine.engine import NodeRecorded
from visualize.definition_lines import find_definition
from visualize.progress import NodeRow
from visualize.viewer.html import Markup, element, flow_url, place
from visualize.viewer.parts import fold, note, section, value
from visualize.viewer.reading import Reading
from visualize.why import rows_before

_MAX_BEFORE: Final = 12
"""Nodes before one whose outputs are shown with it."""


class InputPart(NamedTuple):
    """Something that a node was given."""

    title: str
    value: Any
    seq: int | None = None
    """The event that brought it."""
    node: str = ""
    """The node before it whose output it is."""


def list_inputs(run: Reading, row: NodeRow) -> Iterator[InputPart]:
    """Lists a node's inputs: arguments, item or round, predecessors' results, and state."""
    for seq, event in run.part(row.id):
        if isinstance(event, NodeRecorded) and isinstance(event.record, Received):
            values = {name: parse_excerpt(text) for name, text in event.record.values.items()}
            yield InputPart(_HANDED, values, seq)
    yield from _list_unit(run, row)
    before = rows_before(run.progress, row)
    for each in before[:_MAX_BEFORE]:
        if each.result is not None and each.result.output is not None:
            yield InputPart("From ", each.result.output, run.end_position(each.id), each.id)
    if len(before) > _MAX_BEFORE:
        yield InputPart(f"And from {len(before) - _MAX_BEFORE:,} more nodes", None)
    started = run.progress.started
    if not before and row.spot.container is None and started is not None and started.inputs:
        yield InputPart("Inputs of the run", started.inputs)
    state = run.states.read_seen(row.id)
    if state:
        yield InputPart(_SEEN, state)


_HANDED: Final = "Handed to it"
_SEEN: Final = "Shared state that it saw"


def _list_unit(run: Reading, row: NodeRow) -> Iterator[InputPart]:
    """The item or the variables of the round that the node ran in."""
    container = None if row.spot.container is None else run.row(row.spot.container)
    if container is None or row.spot.number is None:
        return
    for seq, event in run.part(container.id):
        record = event.record if isinstance(event, NodeRecorded) else None
        if isinstance(record, MapBegan) and row.spot.number < len(record.items):
            yield InputPart(f"Item {row.spot.number}", parse_excerpt(record.items[row.spot.number]), seq)
        elif isinstance(record, RoundEnded) and record.number == row.spot.number and record.variables:
            yield InputPart(f"Variables of round {record.number}", record.variables, seq)


def input_sections(run: Reading, row: NodeRow) -> Iterator[Markup]:
    """Makes the panel's sections with the node's inputs."""
    for part in list_inputs(run, row):
        if part.value is None:
            yield note(f"{part.title}.")
        elif part.title == _SEEN:
            yield section(part.title, fold(", ".join(part.value), value(part.value)))
        else:
            name = part.node.removeprefix(row.spot.unit)
            link = element("a", name, href=place(part.node)) if part.node else None
            yield section([part.title, link] if link else part.title, value(part.value), seq=part.seq)


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
    definition = find_definition(started.source, row_site.split("."))
    if definition is None:
        return None
    first, lines = definition
    file = f"{started.path or started.flow}:{first}"
    source = element("a", file, href=f"{flow_url(started.flow)}#L{first}") if links else element("code", file)
    return section("Definition", note("As the run had it, from ", source), value("\n".join(lines), is_source=True))
