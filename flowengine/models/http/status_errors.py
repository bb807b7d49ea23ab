"""Classifies what a server answers instead of an answer: the same request may work later, or it never will.

It reads statuses, headers and bodies that anybody may have written, and takes keys out of what is told of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, cast
from urllib.parse import urlsplit, urlunsplit

from flowengine.core import Secrets
from flowengine.errors import ModelError, PermanentModelError, TransientModelError
from flowengine.models.http.chat_protocol import as_object

_TRANSIENT: Final = frozenset({408, 409, 425, 429, *range(500, 600)})
"""HTTP statuses after which the same request may work."""

_SPENT: Final = re.compile(
    r"insufficient_quota|insufficient balance|enforced_spend_limit_reached|\blimit: 0\b|\"quotaId\":\s*\"\w*PerDay",
    re.IGNORECASE,
)
"""In a 429 that no waiting helps: the quota of an account or of a day. Google says of every quota that it is exceeded,
also where a minute's is: https://ai.google.dev/gemini-api/docs/rate-limits"""

_RETRY_DELAY: Final = re.compile(r"\"retryDelay\":\s*\"(\d{1,9}(?:\.\d{1,12})?)s\"")
"""In a body of Google's (`google.rpc.RetryInfo`), which has no header for it."""

_LONGEST: Final = 2000
"""Characters of what a server says that are told."""

_STATUS_OF_TYPE: Final = {
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "overloaded_error": 529,
    "api_error": 500,
    "server_error": 500,
    "internal_server_error": 500,
    "timeout_error": 504,
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
}
"""Words for failures that servers use where no HTTP status tells (in a stream that was begun)."""


def error_of_answer(status: int, text: str, headers: Mapping[str, str], label: str, secrets: Secrets) -> ModelError:
    """Our error for a response with such a body. `label`: the vendor and the model; `secrets`: what must not be told.

    >>> error_of_answer(429, '{"error": {"message": "slow down"}}', {}, "openai/m", Secrets(()))
    TransientModelError('openai/m: slow down')
    >>> error_of_answer(500, "{}", {}, "openai/m", Secrets(()))
    TransientModelError('openai/m: the server answers with status 500: {}')
    """
    message = secrets.hide(f"{label}: {_describe(status, text, secrets)}")
    error: ModelError = PermanentModelError(message)
    should_retry = headers.get("x-should-retry")  # OpenAI and Anthropic, whose own clients obey it.
    if should_retry != "false" and (may_work_later(status, text) or (should_retry == "true" and status != 429)):
        error = TransientModelError(message, read_retry_after(headers, text), is_rate_limit=status == 429)
    error.status = status
    return error


def may_work_later(status: Any, text: str) -> bool:
    """Tells whether the same request may work after an error of that status and text.

    >>> may_work_later(429, "slow down"), may_work_later(429, "insufficient_quota"), may_work_later(400, "")
    (True, False, False)
    """
    return status in _TRANSIENT and not (status == 429 and _SPENT.search(text))


def status_of_body(body: Mapping[str, Any]) -> int:
    """The HTTP status that a failure in a body amounts to; 500 where it says nothing.

    >>> status_of_body({"error": {"type": "overloaded_error"}}), status_of_body({"error": {"code": 429}})
    (529, 429)
    """
    inner = body.get("error")
    fields = cast("Mapping[str, Any]", inner) if isinstance(inner, Mapping) else body
    for name in ("status", "status_code", "code", "type"):
        value = fields.get(name)
        if isinstance(value, str):
            value = int(value) if value.isdecimal() and len(value) == 3 else _STATUS_OF_TYPE.get(value)
        if isinstance(value, int) and 400 <= value < 600:
            return value
    return 500


def _describe(status: int, text: str, secrets: Secrets) -> str:
    # Secrets go before the text is cut: half of one would not be known any more.
    message = " ".join(secrets.hide(message_in(text)[: 10 * _LONGEST]).split())
    beginning = text[:1000].lower()
    if not message or "<html" in beginning or "<!doctype" in beginning:
        return f"the server answers with status {status}{' and a web page' if message else ''}"
    if message[0] in "{[":  # JSON without a message, which alone does not say that the call failed.
        message = f"the server answers with status {status}: {message}"
    return message if len(message) <= _LONGEST else f"{message[:_LONGEST]} …"


def message_in(text: str) -> str:
    """The message inside of an error that is sent as JSON; any other text as it is.

    >>> message_in('{"error": {"message": "overloaded", "type": "x"}}'), message_in("overloaded")
    ('overloaded', 'overloaded')
    """
    try:
        body: Any = json.loads(text)
        inner = _find_message(body)
        return text if inner is body else inner if isinstance(inner, str) else json.dumps(inner, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def _find_message(body: Any) -> Any:
    """The innermost value under one of the names that messages have."""
    while True:
        fields = as_object(body)
        if isinstance(body, list):  # Gemini puts one round it.
            fields = as_object(next(iter(cast("list[Any]", body)), None))
        inner: Any = next((fields[name] for name in ("error", "message", "detail", "errors") if fields.get(name)), None)
        if inner is None:
            return cast("Any", body)
        body = inner


def read_retry_after(headers: Mapping[str, str], text: str = "") -> float | None:
    """Seconds that the server asked to wait: a number, milliseconds, a date, or a delay in its text. Names of headers
    in small letters."""
    if (milliseconds := _parse_seconds(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    value = headers.get("retry-after") or ""
    if (seconds := _parse_seconds(value)) is not None:
        return seconds
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        match = _RETRY_DELAY.search(text)
        return None if match is None else float(match[1])
    return max(0.0, (date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


def _parse_seconds(text: str | None) -> float | None:
    try:
        number = float(text or "none")
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None


def show_address(address: str) -> str:
    """An address without what may be secret in it.

    >>> show_address("http://me:word@models.example:8000/v1?key=x")
    'http://models.example:8000/v1'
    >>> show_address("http://me:wo/rd@models.example")
    'the server'
    """
    try:
        parts = urlsplit(address)
        _ = parts.port  # Where it is no number, it may be the beginning of a password with a slash in it.
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    except ValueError:
        return "the server"
