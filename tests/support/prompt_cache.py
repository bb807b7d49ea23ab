"""What a vendor's cache of prompts could serve of the requests that a model server received.

Anthropic keeps prefixes that end at a mark, and finds them again at the mark or up to twenty blocks before it; OpenAI
keeps what requests with one key begin with, in steps of 128 tokens. A prefix can be served once the answer that wrote
it has begun. A token is four characters here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final, NamedTuple

from tests.support.model_server import Received

__all__ = ["Served", "served_of"]

_LETTERS: Final = 4
_LOOK_BACK: Final = 20


class Served(NamedTuple):
    """Tokens of one prompt."""

    all: int
    read: int
    written: int


def served_of(requests: Sequence[Received], minimum: int = 1024) -> list[Served]:
    """Of each request, in the order in which they came."""
    ordered = sorted(requests, key=lambda each: each.arrived)
    return [_served(each, [one for one in ordered if _has_begun(one, each)], minimum) for each in ordered]


def _has_begun(earlier: Received, request: Received) -> bool:
    return earlier is not request and earlier.began is not None and earlier.began <= request.arrived


def _served(request: Received, earlier: Sequence[Received], minimum: int) -> Served:
    if request.path.endswith("/messages"):
        return _by_marks(request.body, [each.body for each in earlier], minimum)
    key = request.body.get("prompt_cache_key")
    alike = [_text(each.body) for each in earlier if each.body.get("prompt_cache_key") == key]
    text = _text(request.body)
    longest = max((_common_length(text, each) for each in alike), default=0) // _LETTERS
    return Served(len(text) // _LETTERS, longest // 128 * 128 if longest >= minimum else 0, 0)


def _common_length(one: str, other: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _text(body: Mapping[str, Any]) -> str:
    return json.dumps([body.get("tools"), body["messages"]], ensure_ascii=False)


def _by_marks(body: Mapping[str, Any], earlier: Sequence[Mapping[str, Any]], minimum: int) -> Served:
    kept = {prefix for each in earlier for prefix, is_marked in _prefixes(each) if is_marked}
    prefixes = list(_prefixes(body))
    marked = [number for number, (_, is_marked) in enumerate(prefixes) if is_marked]
    assert len(marked) <= 4, "the API refuses more marks"
    looked = {at for number in marked for at in range(max(0, number - _LOOK_BACK), number + 1)}
    read = max((len(prefixes[at][0]) for at in looked if prefixes[at][0] in kept), default=0) // _LETTERS
    whole = max((len(prefixes[at][0]) for at in marked), default=0) // _LETTERS
    read, whole = (each if each >= minimum else 0 for each in (read, whole))
    return Served(len(prefixes[-1][0]) // _LETTERS, read, max(0, whole - read))


def _prefixes(body: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """(the prompt up to the end of a block, whether the block is marked)."""
    text = ""
    blocks = [*body.get("tools", ()), *body.get("system", ())]
    blocks += [block for message in body["messages"] for block in message["content"]]
    for block in blocks:
        text += json.dumps(
            {name: value for name, value in block.items() if name != "cache_control"}, ensure_ascii=False
        )
        yield text, "cache_control" in block
