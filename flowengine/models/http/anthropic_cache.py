"""Marks how far Anthropic's cache may keep a prompt: at the ends of tools, system and what stays of the question.

A prompt is a prefix of tools, system and messages, in this order. What is shorter than the model's minimum is not kept
whatever is marked; a text has at most as many tokens as bytes, so that nothing is counted here.
Source: https://platform.claude.com/docs/en/build-with-claude/prompt-caching
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

__all__ = ["MARK", "mark_prefixes", "split_text"]

MARK: Final = {"type": "ephemeral"}
"""Kept for five minutes from the last use on."""

_MARK_KEY: Final = "cache_control"


def split_text(text: str, stable: int) -> list[dict[str, Any]]:
    """The blocks of a text whose first characters are the same for other questions; these are marked.

    >>> [(each["text"], "cache_control" in each) for each in split_text("Context: long\\n\\nWhy?", 13)]
    [('Context: long', True), ('\\n\\nWhy?', False)]
    """
    if not 0 < stable < len(text) or not text[:stable].strip() or not text[stable:].strip():
        return [{"type": "text", "text": text}]
    return [{"type": "text", "text": text[:stable], _MARK_KEY: MARK}, {"type": "text", "text": text[stable:]}]


def mark_prefixes(body: dict[str, Any], minimum: int) -> None:
    """Mark the prompt of a body whose messages have the marks of `split_text`; those that keep nothing go.

    Where tools have answered, the whole chat is marked too: the next round begins with it. The API takes four marks.
    """
    size = 0
    for part in ("tools", "system"):
        blocks: list[dict[str, Any]] = body.get(part) or []
        size += sum(map(_size_of, blocks))
        if blocks and size >= minimum:
            blocks[-1][_MARK_KEY] = MARK
    marked: list[dict[str, Any]] = []
    for block in _blocks_of(body):
        size += _size_of(block)
        if block.pop(_MARK_KEY, None) is not None and size >= minimum:
            marked.append(block)
    last: dict[str, Any] = body["messages"][-1]["content"][-1]
    has_answers = any(each.get("type") == "tool_result" for each in _blocks_of(body))
    if has_answers and size >= minimum and _can_be_marked(last):
        last[_MARK_KEY] = MARK
    for block in marked[-1:]:
        block[_MARK_KEY] = MARK


def _blocks_of(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for message in body["messages"]:
        yield from message["content"]


def _size_of(block: dict[str, Any]) -> int:
    """Bytes: of a text its own, of all else as JSON."""
    text = block.get("text")
    return len((text if isinstance(text, str) else json.dumps(block, ensure_ascii=False)).encode("utf-8", "replace"))


def _can_be_marked(block: dict[str, Any]) -> bool:
    return block.get("type") not in ("thinking", "redacted_thinking") and block.get("text") != ""
