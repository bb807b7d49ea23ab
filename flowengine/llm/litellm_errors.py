"""What an exception of litellm means: the same request may work later, or it never will."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from json import JSONDecodeError
from typing import Any, Final

from flowengine.errors import FlowEngineError, PermanentModelError, TransientModelError

__all__ = ["as_model_error", "tellable"]

_TRANSIENT: Final = frozenset({408, 409, 425, 429, *range(500, 600)})
"""HTTP statuses after which the same request may work. litellm gives a failed connection a 500."""

_SPENT: Final = re.compile(r"insufficient_quota|exceeded your current quota", re.IGNORECASE)
"""A 429 that no waiting helps."""

_CLASS_NAMES: Final = re.compile(r"^(?:(?:litellm\.)?[A-Za-z_]*(?:Error|Timeout)(?: Error)?: |[A-Za-z]+Exception - )+")


def as_model_error(error: Exception, provider: str, model: str, key: str | None = None) -> FlowEngineError:
    """Our error for one that a call of litellm raised. `key`: what it must not tell, even if a server sends it back."""
    if isinstance(error, FlowEngineError):
        return error
    message = f"{provider}/{model}: {_message(error)}"
    if _holds(message, key):
        message = message.replace(str(key), "[hidden]")
    status = getattr(error, "status_code", None)
    spent = status == 429 and _SPENT.search(str(error)) is not None
    if (status in _TRANSIENT and not spent) or isinstance(error, OSError):
        return TransientModelError(message, _retry_after(error))
    return PermanentModelError(message)


def tellable(error: Exception, key: str | None) -> Exception | None:
    """The error as the cause of another one, which is told with it; None where it holds the key or a traceback."""
    told = str(error)
    return None if _holds(told, key) or _TRACEBACK in told else error


_TRACEBACK: Final = "Traceback (most recent call last)"
"""litellm's own, in the text of some of its errors."""

_DEEPEST: Final = 8
"""Causes of causes that are looked at."""

_SHORTEST: Final = 6
"""Shorter keys are placeholders, and hiding them would tear words apart."""


def _holds(text: str, key: str | None) -> bool:
    return key is not None and len(key) >= _SHORTEST and key in text


def _message(error: Exception) -> str:
    """What happened, without the class names that litellm wraps round it once or twice, and without its traceback."""
    text = str(error).partition(" Original exception: ")[0].partition(_TRACEBACK)[0]
    told = _CLASS_NAMES.sub("", text).strip() or type(error).__name__
    return f"the server's answer cannot be read as JSON: {told}" if _is_unreadable(error) else told


def _is_unreadable(error: BaseException) -> bool:
    """Whether a body that is no JSON is behind it."""
    cause: BaseException | None = error
    for _ in range(_DEEPEST):
        if cause is None or isinstance(cause, JSONDecodeError | UnicodeDecodeError):
            return cause is not None
        cause = cause.__cause__ or cause.__context__
    return False


def _retry_after(error: Exception) -> float | None:
    """Seconds that the server asked to wait: a number, milliseconds, or a date."""
    headers = _headers(error)
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    asked = headers.get("retry-after") or ""
    if (seconds := _number(asked)) is not None:
        return seconds
    try:
        date = parsedate_to_datetime(asked)
    except ValueError:
        return None
    return max(0.0, (date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


def _headers(error: Exception) -> Mapping[str, str]:
    """litellm keeps the server's headers in one place or in the other."""
    response: Any = getattr(error, "response", None)
    return getattr(error, "litellm_response_headers", None) or getattr(response, "headers", None) or {}


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "none")
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None
