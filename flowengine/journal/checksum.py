"""Checksums of what a SQLite file keeps: they say whether a row is read as it was written. Pure.

CRC-32, because damage by disks and memory is what it is made for (any flipped bit, and any damage within 32 bits,
is found; of other damage one in 4 * 10**9 is not), and because it takes half the time of blake2b (measured: 1.1 and 1.9
µs on a busy machine, beside 12 of the row). It is no protection from people: who writes the file writes checksums too.

Positions go into it, so that a row in another place, or of another run, does not fit.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

__all__ = ["checksum_of_event", "checksum_of_texts"]


def checksum_of_event(position: int, body: bytes) -> int:
    """The checksum of a row of events, whose position names its run too."""
    return crc32(body, crc32(position.to_bytes(8, "big", signed=True)))


def checksum_of_texts(*values: Any) -> int:
    """The checksum of some texts and numbers that stand together; None is as an empty text.

    >>> checksum_of_texts("r1", 1.5, None) == checksum_of_texts("r1", 1.5, "") != checksum_of_texts("r2", 1.5, "")
    True
    """
    return crc32("\0".join("" if value is None else str(value) for value in values).encode())
