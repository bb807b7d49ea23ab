"""Vectors as text that can be written down: their numbers as 32-bit floats, in base64."""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence

__all__ = ["texts_of", "vectors_of"]


def texts_of(vectors: Iterable[Sequence[float]]) -> tuple[str, ...]:
    """
    >>> texts_of([[1.0, 0.5]])
    ('AACAPwAAAD8=',)
    """
    return tuple(b64encode(struct.pack(f"<{len(each)}f", *each)).decode() for each in vectors)


def vectors_of(texts: Iterable[str]) -> list[list[float]]:
    """
    >>> vectors_of(["AACAPwAAAD8="])
    [[1.0, 0.5]]
    """
    found = map(b64decode, texts)
    return [list(struct.unpack(f"<{len(each) // 4}f", each)) for each in found]
