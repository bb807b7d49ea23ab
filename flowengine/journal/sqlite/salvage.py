"""Reads rows out of a SQLite file one page at a time, so that damage to one costs nothing of the others.

The trees above the leaves are not followed: which row belongs to which table is for the caller to see, and so is
whether a row is as it was written. Free pages are left out, as far as their list can be read: what was removed
stays removed. The file format: https://www.sqlite.org/fileformat2.html. Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from mmap import mmap
from typing import Any, Final, NamedTuple

_USUAL_SIZE: Final = 4096
_FIRST: Final = 100
"""Bytes of the file's header, which stand before the first page's own."""
_INDEX_INNER, _INDEX_LEAF, _TABLE_LEAF = 2, 10, 13
_INTEGERS: Final = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
"""Serial type → bytes."""


class SavedRow(NamedTuple):
    """A row of a table with its key, or of a table without row ids or an index, where `key` is None."""

    key: int | None
    values: Sequence[Any]
    """Texts are bytes: whether they are UTF-8 is not looked at."""


def read_rows(data: bytes | mmap) -> Iterator[SavedRow]:
    """All rows that can be read, page by page; what cannot is left out."""
    pages = _Pages(data)
    free = pages.find_free()
    for number in range(1, pages.count + 1):
        if number not in free:
            yield from pages.read(number)


class _Pages:
    def __init__(self, data: bytes | mmap) -> None:
        self._data = data
        (size,) = struct.unpack(">H", data[16:18]) if len(data) >= _FIRST else (0,)
        size = 65_536 if size == 1 else size
        self._size = size if 512 <= size <= 65_536 and size & (size - 1) == 0 else _USUAL_SIZE
        self.count = -(-len(data) // self._size)

    def find_free(self) -> set[int]:
        """Numbers of the pages that hold nothing any more."""
        free = set[int]()
        trunk = _number(self._data[32:36])
        while 0 < trunk <= self.count and trunk not in free:
            free.add(trunk)
            page = self._page(trunk)
            count = min(_number(page[4:8]), self._size // 4 - 2)
            free.update(_number(page[at : at + 4]) for at in range(8, 8 + 4 * count, 4))
            trunk = _number(page[:4])
        return free

    def read(self, number: int) -> Iterator[SavedRow]:
        page = self._page(number)
        begin = _FIRST if number == 1 else 0
        kind = page[begin] if len(page) > begin else 0
        if kind not in (_INDEX_INNER, _INDEX_LEAF, _TABLE_LEAF):
            return
        pointers = begin + (12 if kind == _INDEX_INNER else 8)
        cells = min(_number(page[begin + 3 : begin + 5]), self._size // 4)
        for at in range(pointers, pointers + 2 * cells, 2):
            try:
                yield self._cell(page, _number(page[at : at + 2]), kind)
            except (IndexError, ValueError, struct.error):  # Damage may lead anywhere.
                continue

    def _page(self, number: int) -> bytes:
        return self._data[(number - 1) * self._size : number * self._size]

    def _cell(self, page: bytes, at: int, kind: int) -> SavedRow:
        length, at = _varint(page, at + (4 if kind == _INDEX_INNER else 0))
        key = None
        if kind == _TABLE_LEAF:
            key, at = _varint(page, at)
            key -= (key >> 63) << 64
        return SavedRow(key, _values(self._payload(page, at, length, kind == _TABLE_LEAF)))

    def _payload(self, page: bytes, at: int, length: int, in_table: bool) -> bytes:
        """The bytes of a row; those that do not fit into its page are in a chain of others."""
        if length > len(self._data):
            raise ValueError("longer than the file")
        size = self._size
        most = size - 35 if in_table else (size - 12) * 64 // 255 - 23
        if length <= most:
            return page[at : at + length]
        least = (size - 12) * 32 // 255 - 23
        here = least + (length - least) % (size - 4)
        here = here if here <= most else least
        parts, rest = [page[at : at + here]], length - here
        following = _number(page[at + here : at + here + 4])
        while rest > 0:
            if not 0 < following <= self.count:
                raise ValueError("the chain ends")
            more = self._page(following)
            parts.append(more[4 : 4 + rest])
            rest -= size - 4
            following = _number(more[:4])
        return b"".join(parts)


def _values(record: bytes) -> Sequence[Any]:
    header, at = _varint(record, 0)
    kinds: list[int] = []
    while at < header:
        kind, at = _varint(record, at)
        kinds.append(kind)
    values: list[Any] = []
    for kind in kinds:
        size = (kind - 12) // 2 if kind >= 12 else _INTEGERS.get(kind, 8 if kind == 7 else 0)
        content = record[at : at + size]
        if len(content) != size:
            raise ValueError("the row ends")
        values.append(_value(kind, content))
        at += size
    return values


def _value(kind: int, content: bytes) -> Any:
    if kind >= 12:
        return content
    if kind == 7:
        return struct.unpack(">d", content)[0]
    return int.from_bytes(content, "big", signed=True) if kind in _INTEGERS else {8: 0, 9: 1}.get(kind)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of one to nine bytes, and where it ends."""
    value = 0
    for index in range(8):
        byte = data[at + index]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + index + 1
    return value << 8 | data[at + 8], at + 9


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big")
