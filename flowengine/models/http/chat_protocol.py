"""Defines what a vendor's protocol is: how a request becomes a body, and an answer a `Reply`.

Answers that are streamed come as server-sent events, which are cut here.
A protocol waits for nothing and sends nothing: `native_model` does. It knows no price, and takes no key out of texts.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, cast

from flowengine.errors import TransientModelError
from flowengine.models.http.vendor_traits import VendorTraits
from flowengine.models.messages import ToolRequest, texts_of
from flowengine.models.model import Reply, Request, read_token_count

# --- JSON of servers, which may be anything


def as_object(value: Any) -> dict[str, Any]:
    """The JSON object; an empty one where it is none."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else ""


_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def join_surrogates(text: str) -> str:
    """The text, with characters that came as two halves put together.

    >>> join_surrogates("a \\ud83d\\ude00") == "a \U0001f600"
    True
    """
    if text.isascii():
        return text
    return _PAIR.sub(lambda match: match[0].encode("utf-16", "surrogatepass").decode("utf-16"), text)


def ends_in_half(text: str) -> bool:
    """Tells whether the other half of a text's last character is still to come."""
    return "\ud800" <= text[-1:] <= "\udbff"


def list_of_objects(value: Any) -> list[Mapping[str, Any]]:
    """The JSON objects in a list; nothing where it is none."""
    entries = cast("Sequence[Any]", value) if isinstance(value, list) else ()
    return [cast("Mapping[str, Any]", each) for each in entries if isinstance(each, dict)]


def with_own_ids(calls: Iterable[ToolRequest]) -> tuple[ToolRequest, ...]:
    """Tool calls of one answer, each with an id of its own: vendors refuse a chat in which two have one.

    >>> [each.id for each in with_own_ids([ToolRequest("a", "f", ""), ToolRequest("a", "g", "")])]
    ['a', 'a_2']
    """
    by_id: dict[str, ToolRequest] = {}
    counts = Counter[str]()
    for call in calls:
        id = call.id
        while id in by_id:
            counts[call.id] += 1
            id = f"{call.id}_{counts[call.id] + 1}"
        by_id[id] = call._replace(id=id)
    return tuple(by_id.values())


_LARGEST_NUMBER: Final = 3.4e38
"""In 32 bits."""


def read_vectors(data: Any, count: int, model: str) -> tuple[str, ...]:
    """The vectors that a server gave for so many texts, as texts; a `TransientModelError` where they are none."""
    entries = sorted(list_of_objects(data), key=lambda each: read_token_count(each.get("index")) or 0)
    vectors: list[Any] = [each.get("embedding") for each in entries]
    if len(vectors) != count:
        raise TransientModelError(f"{model} gave {len(vectors)} vectors for {count} texts")
    if not all(map(_is_vector, vectors)):
        raise TransientModelError(f"{model} gave a vector that is no list of numbers")
    return texts_of(vectors)


def _is_vector(value: Any) -> bool:
    numbers = cast("list[Any]", value) if isinstance(value, list) else [None]
    return all(isinstance(each, int | float) and -_LARGEST_NUMBER <= each <= _LARGEST_NUMBER for each in numbers)


# --- What a protocol is

OF_CALL: Final = "of_tool_call"
"""The key of a message's part that belongs to a tool call: its id."""


def bearer_header(settings: Mapping[str, Any]) -> dict[str, str]:
    """The key of a connection as OpenAI's protocols have it."""
    key = settings.get("api_key")
    return {"authorization": f"Bearer {key}"} if key else {}


def api_key_header(settings: Mapping[str, Any]) -> dict[str, str]:
    """The same as Azure has it."""
    key = settings.get("api_key")
    return {"api-key": str(key)} if key else {}


class VendorAnswer(NamedTuple):
    """An answer as the vendor gave it."""

    reply: Reply
    """Without price, seconds and provider."""
    refusal: str = ""
    """The words of the model instead of an answer."""
    hour_writes: int = 0
    """Tokens that were written to a cache for an hour; part of all that were written."""


class StreamedEvent(NamedTuple):
    """One event of a stream."""

    data: str
    kind: str = "message"

    def read(self) -> dict[str, Any]:
        """The JSON object in it; empty where it holds another value. `IncompleteAnswerError` where it holds no JSON."""
        try:
            return as_object(json.loads(self.data))
        except (ValueError, RecursionError) as error:
            raise IncompleteAnswerError("a piece of the server's answer cannot be read as JSON") from error


class IncompleteAnswerError(Exception):
    """An answer that has no end, or nothing in it. `is_final`: it is none of a model's, and will be the same again."""

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


class StreamFailureError(Exception):
    """A failure that the server told inside of an answer that it had begun."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        super().__init__("the server broke its answer off")
        self.body = body
        """The failure, as the body of an HTTP error would be."""
        self.has_begun = False
        """Whether a part of the answer had come."""


class AnswerCollector(Protocol):
    """Puts the events of a streamed answer together."""

    is_complete: bool
    """Whether the event has come after which no other one matters."""

    @property
    def has_begun(self) -> bool:
        """Whether a part of what the model says, thinks or calls has come."""
        ...

    @property
    def has_ended(self) -> bool:
        """Whether the answer is whole already; what follows may tell its tokens."""
        ...

    def add(self, event: StreamedEvent) -> str:
        """Take an event; its piece of the text, which may be empty. `StreamFailureError` where it tells of one."""
        ...

    def answer(self) -> VendorAnswer:
        """The whole answer, once the stream has ended; `IncompleteAnswerError` where its end is missing."""
        ...


class ChatProtocol(Protocol):
    """One way to talk to a model over HTTP."""

    def path(self, model: str, settings: Mapping[str, Any]) -> str:
        """Returns the path and query behind the vendor's address."""
        ...

    def headers(self, settings: Mapping[str, Any]) -> dict[str, str]:
        """The headers of each call, the key among them (`settings["api_key"]`)."""
        ...

    def body(self, request: Request, traits: VendorTraits, *, stream: bool) -> dict[str, Any]:
        """The request as the vendor wants it; what the caller left open is left out."""
        ...

    def read(self, body: Mapping[str, Any], traits: VendorTraits) -> VendorAnswer:
        """A whole answer; `IncompleteAnswerError` where there is none in it."""
        ...

    def collector(self, traits: VendorTraits) -> AnswerCollector:
        """For the events of one answer."""
        ...


# --- Server-sent events
#
# Lines end as the format says (LF, CR, CRLF), and nowhere else: what a text may hold besides (U+2028, U+0085) is left
# in it. An event is handed out once its blank line has come. An event has a bound.

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
        self._rest = bytearray()
        """The beginning of a line that has not ended."""
        self._data: list[bytes] = []
        self._kind = b""
        self._size = 0
        self._is_first = True

    def feed(self, chunk: bytes) -> Iterator[StreamedEvent]:
        """The events that end in this chunk."""
        may_end = self._is_first or self._rest.endswith(b"\r") or b"\n" in chunk or b"\r" in chunk
        self._rest += chunk
        lines: list[bytes] = []
        if may_end:  # Else only the new bytes are looked at: a long line may come in very many pieces.
            text = bytes(self._rest)
            if self._is_first:
                if len(text) < len(_MARK) and _MARK.startswith(text):
                    return
                text, self._is_first = text.removeprefix(_MARK), False
            if b"\r" in text:
                # A CR at the end may be half of a CRLF: it waits for what follows.
                half_line_end = b"\r" if text.endswith(b"\r") else b""
                text = text.removesuffix(half_line_end).replace(b"\r\n", b"\n").replace(b"\r", b"\n") + half_line_end
            *lines, rest = text.split(b"\n")
            self._rest = bytearray(rest)
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
        rest, self._rest = bytes(self._rest.removesuffix(b"\r")), bytearray()
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
