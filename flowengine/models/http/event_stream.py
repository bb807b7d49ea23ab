"""Cuts the bytes of a stream of server-sent events into events, as they come.

Lines end as the format says (LF, CR, CRLF), and nowhere else: what a text may hold besides (U+2028, U+0085) is left in
it. An event is handed out once its blank line has come. An event has a bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from flowengine.models.http.chat_protocol import IncompleteAnswerError, StreamedEvent

__all__ = ["EventReader"]

_LONGEST: Final = 16 * 1024 * 1024
"""Bytes of one event."""
_MARK: Final = b"\xef\xbb\xbf"
"""May stand before the first event, and is no part of it."""


class EventReader:
    """One stream.

    >>> reader = EventReader()
    >>> list(reader.feed(b"event: x\\r\\ndata: a\\r\\ndata: b\\r\\n\\r\\n: a comment\\n\\ndata: c"))
    [StreamedEvent(data='a\\nb', kind='x')]
    >>> list(reader.feed(b"\\n\\n"))
    [StreamedEvent(data='c', kind='message')]
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._kind = b""
        self._size = 0
        self._is_first = True

    def feed(self, chunk: bytes) -> Iterator[StreamedEvent]:
        """The events that end in this chunk."""
        text = self._rest + chunk
        if self._is_first:
            if len(text) < len(_MARK) and _MARK.startswith(text):
                self._rest = text
                return
            text, self._is_first = text.removeprefix(_MARK), False
        if b"\r" in text:
            # A CR at the end may be half of a CRLF: it waits for what follows.
            held = b"\r" if text.endswith(b"\r") else b""
            text = text.removesuffix(held).replace(b"\r\n", b"\n").replace(b"\r", b"\n") + held
        *lines, self._rest = text.split(b"\n")
        if self._size + len(self._rest) > _LONGEST:
            raise IncompleteAnswerError(f"a piece of the server's answer has more than {_LONGEST:,} bytes")
        for line in lines:
            if not line:
                if (event := self._take()) is not None:
                    yield event
            else:
                self._add(line)

    def close(self) -> Iterator[StreamedEvent]:
        """The event that the end of the stream cut from its blank line; some servers leave that out."""
        rest, self._rest = self._rest.removesuffix(b"\r"), b""
        if rest:
            self._add(rest)
        if (event := self._take()) is not None:
            yield event

    def _add(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._size += len(value)
        elif name == b"event":
            self._kind = value

    def _take(self) -> StreamedEvent | None:
        data, kind = self._data, self._kind
        self._data, self._kind, self._size = [], b"", 0
        if not data:
            return None
        return StreamedEvent(b"\n".join(data).decode("utf-8", "replace"), kind.decode("utf-8", "replace") or "message")
