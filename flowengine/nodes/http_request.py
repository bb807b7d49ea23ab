"""Defines a request of a node and its answer as data: what is sent, which answers are expected, what an answer gives.

Values are data: they stand encoded in addresses, queries and forms, and no header is made of two lines. It sends
nothing.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast
from urllib.parse import quote, urlencode

from flowengine.core import MAX_VALUES, FileValue, ValueCounter, check_text, describe_value, refuse_constant, write_json
from flowengine.errors import DefinitionError, OutputError, RunError

_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_OURS: Final = frozenset(
    ("host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer", "expect", "keep-alive")
) | {"accept-encoding", "proxy-authorization", "proxy-connection"}
"""Headers that say where a message goes and where it ends."""
_TEXTS: Final = re.compile(
    r"text/.+|application/(.+\+)?(xml|javascript|x-www-form-urlencoded|(x-)?(ndjson|jsonlines|yaml)|jsonl|toml|sql)"
)
_JSON: Final = re.compile(r".+/(.+\+)?json")
_NO_CHARSETS: Final = frozenset({"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"})
_LONGEST_URL: Final = 8_000


@dataclass(frozen=True)
class HttpRequest:
    """An HTTP request."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Lower-case name → value."""
    secret_headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Header → the environment variable that holds its value."""
    content: bytes = field(default=b"", repr=False)
    follow: int = 0
    """Redirects that are followed."""


@dataclass(frozen=True)
class Answer:
    """An HTTP response."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Lower-case name → value; without cookies."""
    content: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class Expected:
    """The accepted responses."""

    status: Sequence[int | str] = ("2xx",)
    """Numbers, or classes such as `2xx`."""
    schema: Mapping[str, Any] | None = None
    """JSON Schema of the body."""

    def takes(self, status: int) -> bool:
        """
        >>> [Expected([404, "2xx"]).takes(each) for each in (200, 404, 500)]
        [True, True, False]
        """
        return any(each == status or each == f"{status // 100}xx" for each in self.status)


def check_header_name(name: str) -> None:
    """A `DefinitionError` for what is no header of the author's."""
    if not _NAME.fullmatch(name):
        raise DefinitionError(f"{name!r:.100} is no name of a header")
    if name.lower() in _OURS:
        raise DefinitionError(f"the header '{name}' is made with the message: a flow does not set it")


def make_request(method: str, values: Mapping[str, Any], secret: Mapping[str, str], follow: int) -> HttpRequest:
    """The request of rendered values: `url`, and where they are given `query`, `headers`, and `json`, `form` or
    `body`."""
    headers = {name.lower(): _header_value(name, each) for name, each in values.get("headers", {}).items()}
    content, media_type = _content_of(values)
    if content is not None:
        headers.setdefault("content-type", media_type)
    url = _with_query(values["url"], values.get("query", {}))
    secret = {name.lower(): variable for name, variable in secret.items()}
    return HttpRequest(method, url, headers, secret, content or b"", follow)


def _header_value(name: str, value: Any) -> str:
    text = _to_text(value)
    if not text.isprintable() or not text.isascii():
        raise RunError(f"the value of the header '{name}' has characters that no header can carry")
    return text.strip(" ")


def _with_query(url: Any, query: Mapping[str, Any]) -> str:
    if not isinstance(url, str):
        raise RunError(f"the address must be a text, found {describe_value(url)}")
    address = url.partition("#")[0]
    pairs: list[tuple[str, str]] = []
    for name, value in query.items():
        values = cast("list[Any]", value if isinstance(value, list | tuple) else [value])
        pairs += [(name, _to_text(each)) for each in values if each is not None]
    if pairs:
        address += f"{'&' if address.partition('?')[2] else '?'}{urlencode(pairs, quote_via=quote)}"
    if len(address) > _LONGEST_URL:
        raise RunError(f"the address has {len(address):,} characters, and {_LONGEST_URL:,} are the most")
    return address


def _content_of(values: Mapping[str, Any]) -> tuple[bytes | None, str]:
    """The body, and what it is."""
    if "json" in values:
        return write_json(values["json"], "`json`").encode(), "application/json"
    if "form" in values:
        pairs = [(name, _to_text(each)) for name, each in values["form"].items() if each is not None]
        return urlencode(pairs).encode(), "application/x-www-form-urlencoded"
    if "body" not in values:
        return None, ""
    body = values["body"]
    if isinstance(body, FileValue):
        return body.read_bytes(), body.media_type
    return _to_text(body).encode(), "text/plain; charset=utf-8"


def _to_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return check_text(value, "a value") if isinstance(value, str) else write_json(value, "a value")


def describe_url(url: str) -> str:
    """An address as errors and records have it: without the query, where services let keys be given.

    >>> describe_url("https://api.example.com/v1/orders?key=abc")
    'https://api.example.com/v1/orders?…'
    """
    path, query, _ = url.partition("?")
    text = path[:300] if path.isprintable() else repr(path[:300])[1:-1]
    return f"{text}{query and '?…'}"


def read_body(answer: Answer) -> Any:
    """The body as a value: JSON where the answer says so, else text, else bytes; None where it is empty.

    JSON of very many values stays bytes: all that is done with a value costs time for each.
    """
    if not answer.content:
        return None
    media_type, parameters = _media_type_of(answer)
    if is_json(answer):
        if ValueCounter().feed(answer.content) > MAX_VALUES:
            return answer.content
        try:
            return json.loads(answer.content, parse_constant=refuse_constant)
        except (ValueError, RecursionError) as error:
            raise OutputError(f"the answer says that it is JSON, and it is not: {error!s:.200}") from None
    if media_type and not _TEXTS.fullmatch(media_type):
        return answer.content
    try:
        return answer.content.decode(_charset_of(parameters))
    except (UnicodeError, LookupError):
        return answer.content.decode("utf-8", "replace") if media_type else answer.content


def is_json(answer: Answer) -> bool:
    """Tells whether an answer says that it is JSON."""
    return bool(_JSON.fullmatch(_media_type_of(answer)[0]))


def _media_type_of(answer: Answer) -> tuple[str, str]:
    """The media type, and the parameters behind it."""
    name, _, parameters = answer.headers.get("content-type", "").partition(";")
    return name.strip().lower(), parameters


def _charset_of(parameters: str) -> str:
    """The encoding that is named; those that are Python's own, or take very long, are none of a text's."""
    match = re.search(r"charset=\"?([A-Za-z0-9_.:-]{1,40})", parameters, re.IGNORECASE)
    name = codecs.lookup(match[1]).name if match else "utf-8"
    return "utf-8" if name in _NO_CHARSETS else name
