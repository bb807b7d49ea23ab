"""Makes a PNG that browsers draw, of one colour."""

from __future__ import annotations

import struct
import zlib

__all__ = ["small_png"]


def small_png(width: int = 8, height: int = 8) -> bytes:
    """
    >>> small_png()[:4]
    b'\\x89PNG'
    """

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\x00" + b"\x20\x80\xc0" * width for _ in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
