"""Encodes events as text and decodes them: one line of JSON an event.

    [1,"NodeFinished","draft",1700000000.5,{"$NodeResult":["the text"]}]

First the version of the alphabet, then the event's name and its fields by position; fields at the end that
have their default are left out. `flowengine.journal.encode_values` says how values are written. Nothing here knows
where the text is kept.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic_core import PydanticSerializationError, from_json, to_json

from flowengine.core import RECORDS, FrozenDict, describe_value, unprefixed_text
from flowengine.engine import EVENTS, SCHEMA_VERSION, Event, NodeFinished, NodeRecorded, NodeStarted, RunStarted
from flowengine.errors import JournalError, NotJournalableError, StoreCorruptError, StoreVersionError
from flowengine.journal.decode_values import unpack
from flowengine.journal.encode_values import UnpackableError, locate, pack, pack_fields, protect
from flowengine.journal.value_types import check_fields, check_graph

_MAX_LENGTH: Final = 200_000_000
"""Characters; SQLite holds no value of more than 1,000,000,000 bytes."""

_RECORDS: Final = frozenset(RECORDS.values())
_GRAPH: Final = RunStarted._fields.index("graph")
_GRAPHS: Final = 16
_graphs: Final[dict[int, tuple[FrozenDict, str]]] = {}
"""By the graph's `id`, which is its own while it is kept here: the graph and its text."""


def encode(event: Event) -> str:
    """The event as one line of JSON; `NotJournalableError` says which part of it cannot be written.

    >>> from flowengine.engine.events import NodeStarted
    >>> encode(NodeStarted("draft", 1.5))
    '[1,"NodeStarted","draft",1.5]'
    """
    try:
        text = _encode_event(event)
    except PydanticSerializationError:
        try:
            text = _dump_protected([SCHEMA_VERSION, type(event).__name__, *pack_fields(event, 1)])
        except ValueError:
            raise _refuse_value(event, "", "is nested too deep for the broken text in it") from None
    except UnpackableError as error:
        value = event.result if isinstance(event, NodeFinished) else event
        raise _refuse_value(event, *locate(value, error)) from None
    except RecursionError:
        raise _refuse_value(event, "", "is nested too deep for what is left of the stack") from None
    if len(text) > _MAX_LENGTH:
        raise _refuse_value(event, "", f"takes {len(text):,} characters of JSON (at most {_MAX_LENGTH:,})")
    return text


def decode(text: str | bytes) -> Event:
    """The event that `encode` wrote. Whatever else the text is, a `JournalError` says so.

    >>> decode('[1,"NodeStarted","draft",1.5]')
    NodeStarted(node='draft', at=1.5)
    """
    try:
        version, name, *fields = from_json(text)
        if version != SCHEMA_VERSION:
            raise _unknown_version(version)
        event = EVENTS[name](*[each if type(each) is str else unpack(each) for each in fields])
        check_fields(EVENTS[name], event)
        if type(event) is NodeRecorded and type(event.record) not in _RECORDS:
            raise TypeError(f"{name} cannot hold {event.record!r:.80}")
        if type(event) is RunStarted:
            check_graph(event.graph)
    except JournalError:
        raise
    except Exception as error:  # hostile text reaches many constructors, which fail in as many ways
        raise StoreCorruptError(f"not an event: {text[:80]!r} ({type(error).__name__}: {error})") from error
    return event


def encode_value(value: Any) -> str:
    """Any value that a journal may hold, as one line of JSON."""
    try:
        tree = [SCHEMA_VERSION, pack(value, 1)]
        try:
            return _dump_tree(tree)
        except PydanticSerializationError:
            return _dump_protected(tree)
    except (ValueError, UnpackableError, RecursionError) as error:
        message = unprefixed_text(f"the value cannot be written down and read back ({error})")
        raise NotJournalableError(message) from error


def decode_value(text: str | bytes) -> Any:
    """The value that `encode_value` wrote.

    >>> decode_value(encode_value({"a": [1, 2.5]}))
    {'a': [1, 2.5]}
    """
    try:
        version, tree = from_json(text)
    except (ValueError, TypeError) as error:
        raise StoreCorruptError(f"not a value: {text[:80]!r}") from error
    if version != SCHEMA_VERSION:
        raise _unknown_version(version)
    try:
        return unpack(tree)
    except JournalError:
        raise
    except Exception as error:  # as in `decode`
        raise StoreCorruptError(f"not a value: {text[:80]!r} ({type(error).__name__}: {error})") from error


def _encode_event(event: Event) -> str:
    # The two events of every node, of which the names and the times stay as they are.
    if type(event) is NodeStarted:
        return _dump_tree([SCHEMA_VERSION, "NodeStarted", *event])
    if type(event) is NodeFinished:
        return _dump_tree([SCHEMA_VERSION, "NodeFinished", event.node, event.at, pack(event.result, 2)])
    if type(event) is RunStarted and type(event.graph) is FrozenDict:
        start = _dump_tree([SCHEMA_VERSION, "RunStarted", *[pack(each, 2) for each in event[:_GRAPH]]])
        rest = [_dump_tree(pack(each, 2)) for each in event[_GRAPH + 1 :]] if event.kept or event.code else []
        return f"{','.join([start[:-1], _text_of_graph(event.graph), *rest])}]"
    if type(event) is NodeRecorded and type(event.record) not in _RECORDS:
        raise UnpackableError(f"is no record that a node can note: {describe_value(event.record)}")
    return _dump_tree([SCHEMA_VERSION, type(event).__name__, *pack_fields(event, 1)])


def _text_of_graph(graph: FrozenDict) -> str:
    """A flow gives all its runs the same frozen graph: packing one of 100 nodes takes 150 of a start's 170 µs."""
    entry = _graphs.get(id(graph))
    if entry is not None:
        return entry[1]
    if len(_graphs) >= _GRAPHS:
        _graphs.clear()
    text = _dump_tree(pack(graph, 2))
    _graphs[id(graph)] = graph, text
    return text


def _dump_tree(tree: Any) -> str:
    return to_json(tree, inf_nan_mode="constants").decode()


def _dump_protected(tree: list[Any]) -> str:
    """For text that no encoding can carry. `ValueError` where what it adds to the depth is too much for a reader."""
    text = _dump_tree(protect(tree))
    from_json(text)
    return text


def _refuse_value(event: Event, path: str, problem: str) -> NotJournalableError:
    # The caller that fails a node because of this names the node.
    owner = "" if hasattr(event, "node") else f"{type(event).__name__}: "
    message = unprefixed_text(f"{owner}{path or 'the value'} {problem}")
    return NotJournalableError(
        f"{message}; it cannot be written down and read back: use text, numbers, lists, dicts, dates, dataclasses or "
        f"pydantic models"
    )


def _unknown_version(version: object) -> JournalError:
    if isinstance(version, int) and version > SCHEMA_VERSION:
        return StoreVersionError(
            f"the run was written by a newer FlowEngine (events of version {version}; this one reads up to "
            f"{SCHEMA_VERSION}): upgrade FlowEngine to read it"
        )
    return StoreCorruptError(f"not an event: its version is {version!r:.80}")
