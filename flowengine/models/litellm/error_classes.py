"""Classifies litellm's exceptions: the same request may work later, or it never will."""

from __future__ import annotations

import re
from collections.abc import Mapping
from json import JSONDecodeError
from typing import Any, Final, cast

from flowengine.core.secret_values import Secrets, find_secret_values, find_url_secrets
from flowengine.errors import FlowEngineError, PermanentModelError, TransientModelError
from flowengine.models.http.status_errors import may_work_later, message_in, read_retry_after, show_address

__all__ = ["as_model_error", "secrets_of", "tellable"]

_CLASS_NAMES: Final = re.compile(
    r"^(?:(?:litellm\.)?[A-Za-z_]*(?:Error|Timeout)(?: Error)?: |[A-Za-z_]+Exception(?: [A-Za-z]+Error)? - )+"
)
_ADVICE: Final = re.compile(r"\.? Handle with `litellm\.\w+`\.?$")
"""To those who call litellm themselves."""
_OBJECTS: Final = re.compile(r" ?(?:ssl:)?<[\w.]+ object at 0x[0-9a-f]+>")
_NO_CONNECTION: Final = re.compile(r"^(?:Connection error\.?|Cannot connect to host (?P<host>[^\s]+))", re.IGNORECASE)


def as_model_error(
    error: Exception, provider: str, model: str, secrets: Secrets, address: str | None = None
) -> FlowEngineError:
    """Our error for one that a call of litellm raised. `address`: where the vendor is said to be.

    `secrets`: what it must not tell, even if a server sends it back.
    """
    if isinstance(error, FlowEngineError):
        return error
    message = secrets.hide(f"{provider}/{model}: {_message(error, address)}")
    status = getattr(error, "status_code", None)
    if may_work_later(status, str(error)) or isinstance(error, OSError):
        return TransientModelError(message, read_retry_after(_headers(error)), is_rate_limit=status == 429)
    return PermanentModelError(message)


def secrets_of(settings: Mapping[str, Any]) -> Secrets:
    """Returns the secrets in the settings of calls: keys, and secret parts of the address.

    >>> secrets_of({"base_url": "http://me:word-12345@models.example"}).hide("it says word-12345")
    'it says [hidden]'
    """
    addresses = [str(settings.get(name) or "") for name in ("api_base", "base_url")]
    return Secrets([*find_secret_values(settings), *(each for url in addresses for each in find_url_secrets(url))])


def tellable(error: Exception, secrets: Secrets) -> Exception | None:
    """The error as the cause of another one, which is told with it; None where it holds a key or a traceback."""
    told = str(error)
    return None if secrets.holds(told) or _TRACEBACK in told else error


_TRACEBACK: Final = "Traceback (most recent call last)"
"""litellm's own, in the text of some of its errors."""

_DEEPEST: Final = 8
"""Causes of causes that are looked at."""


def _message(error: Exception, address: str | None) -> str:
    """Returns the error's message without litellm's class names and traceback."""
    text = str(error).partition(" Original exception: ")[0].partition(_TRACEBACK)[0]
    told = _ADVICE.sub("", _OBJECTS.sub("", _CLASS_NAMES.sub("", text).strip()))
    told = message_in(told) or type(error).__name__
    if (failed := _NO_CONNECTION.match(told)) is not None:
        where = (address and show_address(address)) or failed["host"] or _address_asked(error) or "the server"
        return f"no connection to {where}{told[failed.end() :].rstrip(' .')}"
    return f"the server's answer cannot be read as JSON: {told}" if _is_unreadable(error) else told


def _address_asked(error: BaseException) -> str | None:
    """The address that was asked, where a cause of the error knows it."""
    cause: BaseException | None = error
    for _ in range(_DEEPEST):
        if cause is None:
            return None
        try:
            url: Any = cast("Any", cause).request.url
        except (AttributeError, RuntimeError):  # httpx raises the second where there was none
            cause = cause.__cause__ or cause.__context__
        else:
            return show_address(str(url))
    return None


def _is_unreadable(error: BaseException) -> bool:
    """Tells whether a body that is no JSON is behind it."""
    cause: BaseException | None = error
    for _ in range(_DEEPEST):
        if cause is None or isinstance(cause, JSONDecodeError | UnicodeDecodeError):
            return cause is not None
        cause = cause.__cause__ or cause.__context__
    return False


def _headers(error: Exception) -> Mapping[str, str]:
    """litellm keeps the server's headers in one place or in the other."""
    response: Any = getattr(error, "response", None)
    return getattr(error, "litellm_response_headers", None) or getattr(response, "headers", None) or {}
