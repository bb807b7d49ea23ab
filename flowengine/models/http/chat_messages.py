"""Writes messages as OpenAI's protocol has them, and keeps what a vendor wants back with its own.

Which fields of an answer go back to which vendor is data (`VendorTraits.kept_fields`): no vendor is sent another one's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, Final, cast

from flowengine.models.attachments import openai_parts
from flowengine.models.http.chat_protocol import OF_CALL
from flowengine.models.http.vendor_traits import VendorTraits
from flowengine.models.messages import Message, as_dict


def to_chat_message(message: Message, traits: VendorTraits) -> dict[str, Any]:
    """The message as the vendor reads it."""
    if traits.call_id_length and (message.tool_calls or message.tool_call_id):
        message = _with_short_ids(message, traits.call_id_length)
    if not message.vendor_parts and not message.attachments and not message.is_error:
        return as_dict(message)
    shape = as_dict(message._replace(vendor_parts=(), attachments=(), is_error=False))
    if message.attachments:
        shape["content"] = openai_parts(message)
    for part in message.vendor_parts:
        if OF_CALL not in part:
            shape.update({name: value for name, value in part.items() if name in traits.kept_fields})
            continue
        for call in shape.get("tool_calls", ()):
            if call["id"] == part[OF_CALL]:
                call.update({name: value for name, value in part.items() if name in traits.kept_of_calls})
    return shape


def _with_short_ids(message: Message, length: int) -> Message:
    """The message with ids that the vendor takes, for those that another one gave: the same ones for the same."""

    def shorten(id: str) -> str:
        if len(id) == length and id.isascii() and id.isalnum():
            return id
        return blake2b(id.encode("utf-8", "replace"), digest_size=length).hexdigest()[:length]

    calls = tuple(each._replace(id=shorten(each.id)) for each in message.tool_calls)
    short_id = message.tool_call_id and shorten(message.tool_call_id)
    return message._replace(tool_calls=calls, tool_call_id=short_id)


def vendor_parts_of(
    message: Mapping[str, Any], calls: Iterable[tuple[str, Mapping[str, Any]]], traits: VendorTraits
) -> tuple[Mapping[str, Any], ...]:
    """Returns the parts of a message and its tool calls that the vendor needs back: (id, raw call)."""
    message_part = {name: message[name] for name in traits.kept_fields if message.get(name)}
    of_calls = (
        {OF_CALL: id, **{name: call[name] for name in traits.kept_of_calls if call.get(name)}} for id, call in calls
    )
    return (*([message_part] if message_part else []), *(each for each in of_calls if len(each) > 1))


class KeptFields:
    """Puts those fields together while a message comes in pieces."""

    def __init__(self, traits: VendorTraits) -> None:
        self._traits = traits
        self._texts: dict[str, list[str]] = {}
        self._lists: dict[str, Any] = {}
        self._of_calls: dict[int, dict[str, Any]] = {}

    def add(self, delta: Mapping[str, Any]) -> None:
        """Take a piece of the message."""
        for name in self._traits.kept_fields:
            piece = delta.get(name)
            if not piece:
                continue
            if isinstance(piece, str):
                self._texts.setdefault(name, []).append(piece)
            else:
                self._lists[name] = _join_pieces(self._lists.get(name), piece)

    def add_call(self, index: int, call: Mapping[str, Any]) -> None:
        """Take a piece of a tool call."""
        for name in self._traits.kept_of_calls:
            if piece := call.get(name):
                self._of_calls.setdefault(index, {})[name] = piece

    def parts(self, ids: Mapping[int, str]) -> tuple[Mapping[str, Any], ...]:
        """Returns the parts that the vendor needs back. `ids`: those of the tool calls."""
        calls = ((ids[index], fields) for index, fields in self._of_calls.items() if index in ids)
        texts = {name: "".join(pieces) for name, pieces in self._texts.items()}
        return vendor_parts_of(self._lists | texts, calls, self._traits)


def _join_pieces(before: Any, piece: Any) -> Any:
    """A list whose entries of one index go on."""
    if not isinstance(piece, list):
        return piece
    entries: list[Any] = list(cast("list[Any]", before)) if isinstance(before, list) else []
    for each in cast("list[Any]", piece):
        last: Any = entries[-1] if entries else None
        if (
            isinstance(each, dict)
            and isinstance(last, dict)
            and _is_same(cast("dict[str, Any]", last), cast("dict[str, Any]", each))
        ):
            entries[-1] = _merge_entries(cast("dict[str, Any]", last), cast("dict[str, Any]", each))
        else:
            entries.append(each)
    return entries


def _is_same(last: Any, each: Any) -> bool:
    return "index" in last and (last["index"], last.get("type")) == (each.get("index"), each.get("type"))


_GROWING: Final = ("text", "summary", "data")


def _merge_entries(last: Any, each: Any) -> dict[str, Any]:
    merged = {**last, **{name: value for name, value in each.items() if value is not None}}
    for name in _GROWING:
        if isinstance(last.get(name), str) and isinstance(each.get(name), str):
            merged[name] = last[name] + each[name]
    return merged
