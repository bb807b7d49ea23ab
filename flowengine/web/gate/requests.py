"""Reads the bodies of requests within limits, and gives handlers the parts that `make_app` made once."""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

import anyio.to_thread
from starlette.requests import ClientDisconnect, Request

from flowengine.core import MAX_VALUES, ValueCounter, dumps, load_json
from flowengine.web.gate.problems import ProblemError
from flowengine.web.gate.safety import AccessKeys
from flowengine.web.service import Library, LibraryRuns, RunCache

# --- Bodies of requests

FORM: Final = "application/x-www-form-urlencoded"
"""The media type of a form."""
_MAX_FORM_BYTES: Final = 256_000
LARGE_FORM_BYTES: Final = 4_000_000
"""The most bytes of a form with a run's inputs, its shared state or a prompt, and of a JSON object."""
_MAX_DEPTH: Final = 100
_MAX_FIELDS: Final = 1_000
_INLINE: Final = 16_384
"""Bytes of a body that is read without a thread."""
_ESCAPED: Final = re.compile("(?:%[0-9A-Fa-f]{2})+")


async def read_form(request: Request) -> Mapping[str, str]:
    """The fields of a posted form."""
    _expect_media_type(request, FORM)
    return parse_form(await read_body(request, _MAX_FORM_BYTES))


def parse_form(body: bytes) -> Mapping[str, str]:
    """The fields of a form; of a field that is there twice, the last counts."""
    return dict(_parse_pairs(body))


def _parse_pairs(body: bytes) -> Sequence[tuple[str, str]]:
    try:
        parts = [part.partition("=") for part in body.decode().replace("+", " ").split("&", _MAX_FIELDS)]
    except ValueError:
        parts = None
    if parts is None or len(parts) > _MAX_FIELDS:
        raise ProblemError(400, "Not a form", "the body is no form of at most 1,000 fields")
    return [(_unquote(name), _unquote(value)) for name, equals, value in parts if name or equals]


def _unquote(text: str) -> str:
    """Decodes like `urllib.parse.unquote`, which takes ten times as long for megabytes of `%` without digits behind."""
    return _ESCAPED.sub(lambda at: bytes.fromhex(at[0].replace("%", "")).decode(errors="replace"), text)


async def read_json(request: Request, schema: Mapping[str, Any], most: int = LARGE_FORM_BYTES) -> dict[str, Any]:
    """The JSON object of a body, which fits the schema; an empty body is an empty object."""
    value = await _read_json_value(request, most)
    if problems := await anyio.to_thread.run_sync(lambda: sorted(_find_problems(value, schema))):
        raise ProblemError(422, "The body does not fit", "\n".join(problems))
    return cast("dict[str, Any]", value)


async def read_json_object(request: Request, most: int) -> dict[str, Any]:
    """The JSON object of a body of at most so many bytes; an empty body is an empty object."""
    value = await _read_json_value(request, most)
    if not isinstance(value, dict):
        raise ProblemError(422, "The body does not fit", f"expected a JSON object, found {dumps(value):.60}")
    return cast("dict[str, Any]", value)


async def _read_json_value(request: Request, most: int) -> Any:
    if body := await read_body(request, most):
        _expect_media_type(request, "application/json")
    if len(body) <= _INLINE:
        return parse_json(body or b"{}")
    return await anyio.to_thread.run_sync(parse_json, body)  # Requests of others are answered meanwhile.


def parse_json(body: bytes) -> Any:
    """The value of a body; a `ProblemError` for what is no JSON, has a name twice, is nested too deep, or is of so many
    values that all that is done with it would take long."""
    if ValueCounter().feed(body) > MAX_VALUES:
        raise ProblemError(
            413, "Too many values", f"a body may hold {MAX_VALUES:,} values, lists and objects counted twice"
        )
    try:
        parsed: Any = load_json(body)
        level: list[Any] = [[parsed]]
        for _ in range(_MAX_DEPTH + 1):
            values = (cast("dict[str, Any]", each).values() if isinstance(each, dict) else each for each in level)
            level = [value for each in values for value in each if isinstance(value, dict | list)]
            if not any(level):
                return parsed
    except RecursionError:
        pass
    except ValueError as error:
        raise ProblemError(400, "Not JSON", f"the body is no JSON: {error}") from None
    raise ProblemError(400, "Too deep", f"the body is nested deeper than {_MAX_DEPTH}")


def _find_problems(value: Any, schema: Mapping[str, Any]) -> Iterator[str]:
    from flowengine.core import find_misfits  # Slow to load, and the pages need not wait for it.

    return (f"{each.path}: {each.message}" for each in find_misfits(schema, value))


def _expect_media_type(request: Request, media_type: str) -> None:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    packed = request.headers.get("content-encoding", "identity").strip().lower()
    if packed != "identity":
        raise ProblemError(415, "Not this encoding", f"send the body as it is, found Content-Encoding: {packed:.40}")
    if content_type != media_type:
        raise ProblemError(415, "Not this media type", f"expected {media_type}, found {content_type or 'nothing'}")


class BodyRoom:
    """Room for bodies whose senders have proved nothing yet: of all of them together, so that none fills the memory."""

    def __init__(self, most: int) -> None:
        self._free_bytes = most

    def take(self, size: int) -> None:
        """Room for so many bytes more; a `ProblemError` where there is none."""
        if size > self._free_bytes:
            raise ProblemError(503, "Busy", "too many calls are on their way: call again in some seconds")
        self._free_bytes -= size

    def free(self, size: int) -> None:
        self._free_bytes += size


async def read_body(request: Request, most: int, room: BodyRoom | None = None) -> bytes:
    """All of a body, which may have so many bytes, and while it comes those that there is room for."""
    too_large = ProblemError(413, "Too large", f"a body may have {most:,} bytes")
    if int(request.headers.get("content-length", "0")) > most:
        raise too_large  # Before it comes.
    body, reserved = bytearray(), 0
    try:
        async for part in request.stream():
            if room is not None:
                room.take(len(part))
                reserved += len(part)
            body += part
            if len(body) > most:
                raise too_large
    except ClientDisconnect:
        raise ProblemError(400, "Cut off", "the body did not come to its end") from None
    finally:
        if room is not None:
            room.free(reserved)
    return bytes(body)


async def read_own_form(request: Request, most: int = _MAX_FORM_BYTES) -> Mapping[str, str]:
    """The fields of one of our own forms; a `ProblemError` for any other."""
    return dict(await read_own_pairs(request, most))


async def read_own_pairs(request: Request, most: int = _MAX_FORM_BYTES) -> Sequence[tuple[str, str]]:
    """Reads one of our own forms like `read_own_form`, but as pairs in their order, repeated names included."""
    _expect_media_type(request, FORM)
    pairs = _parse_pairs(await read_body(request, most))
    token = dict(pairs).get("token", "").encode("utf-8", "replace")
    if not hmac.compare_digest(token, get_parts(request).keys.form.encode()):
        raise ProblemError(403, "Not our form", "the form is of another server, or of one that has ended: load it anew")
    return pairs


class ServerParts(NamedTuple):
    shelf: RunCache
    library: Library
    acts: LibraryRuns
    keys: AccessKeys
    by: str
    """Name of the person who answers in the pages."""
    options: Sequence[str] = ()
    """Options with which a command finds the same store."""
    read_only: bool = False


def get_parts(request: Request) -> ServerParts:
    return cast("ServerParts", request.app.state.parts)
