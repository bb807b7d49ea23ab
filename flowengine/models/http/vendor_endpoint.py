"""Says where calls of one vendor's model go: address, key and headers, and what goes wrong there as our errors.

It sends what it is given. What must not be seen (keys, passwords in addresses) is taken out of all that is told.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Final, cast
from urllib.parse import urlsplit

import anyio

from flowengine.core import Secrets, find_secret_values, find_url_secrets, is_random
from flowengine.errors import ModelError, PermanentModelError, TransientModelError
from flowengine.models.http.chat_protocol import IncompleteAnswerError, StreamFailureError
from flowengine.models.http.connection_pool import NoConnectionError
from flowengine.models.http.http_connection import BrokenExchangeError
from flowengine.models.http.loop_client import HttpAnswer, HttpCall, send_call
from flowengine.models.http.status_errors import error_of_answer, show_address, status_of_body
from flowengine.models.http.vendor_traits import VendorTraits
from flowengine.models.messages import ToolRequest
from flowengine.models.model import Reply

CONNECTION_SETTINGS: Final = frozenset(
    {"api_base", "api_key", "api_version", "base_url", "extra_headers", "organization"}
)
"""Settings of calls that say where they go, and are no part of what is asked."""


_SILENCE: Final = 600.0
"""Seconds in which nothing of a stream may come: some models think for minutes before their first word."""


class Patience:
    """How long an answer is waited for: so many seconds in all, and at most so many without a sign of it."""

    __slots__ = ("_until", "_whole", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = self._whole = seconds
        """The bound of the wait that is under way."""
        self._until = anyio.current_time() + seconds

    def limit(self, silence: float | None = None) -> AbstractContextManager[object]:
        """A `TimeoutError` within it where it takes longer than is left, or than the silence."""
        silence, rest = _SILENCE if silence is None else silence, self._until - anyio.current_time()
        self.seconds = silence if silence < rest else self._whole
        return anyio.fail_after(max(0.0, min(rest, silence)))


class VendorEndpoint:
    """Sends requests of one model. `settings`: those of `CONNECTION_SETTINGS`, and further parameters of every call."""

    def __init__(self, provider: str, name: str, vendor: VendorTraits, settings: Mapping[str, Any]) -> None:
        self.full_name = f"{provider}/{name}"
        self.more = {name: value for name, value in settings.items() if name not in CONNECTION_SETTINGS}
        """The further parameters."""
        settings = {name: value for name, value in settings.items() if name in CONNECTION_SETTINGS}
        self.base = join_address(settings.get("api_base") or settings.get("base_url"), vendor)
        self.settings: Mapping[str, Any] = {**settings, "api_base": self.base}
        self.is_elsewhere = urlsplit(self.base).netloc != urlsplit(vendor.address).netloc
        """Whether that is another server than the vendor's own."""
        headers: Mapping[str, Any] = settings.get("extra_headers") or {}
        self._more_headers = {str(key).lower(): str(value) for key, value in headers.items()}
        if settings.get("organization"):
            self._more_headers["openai-organization"] = str(settings["organization"])
        secrets = [*find_secret_values(self.settings), *find_secret_values(self._more_headers)]
        self._secrets = Secrets([*secrets, *find_url_secrets(self.base)])
        self.keys = Secrets(filter(is_random, secrets))
        """Those that are taken out of answers too."""

    def post(self, path: str, headers: Mapping[str, str], body: Mapping[str, Any], *, stream: bool = False) -> HttpCall:
        """The body as a request to a place below the address."""
        base, _, query = self.base.partition("?")
        if query:
            path += f"{'&' if '?' in path else '?'}{query}"
        all_headers = {
            "content-type": "application/json",
            "accept": "text/event-stream" if stream else "application/json",
            **headers,
            **self._more_headers,
        }
        data = json.dumps(body, ensure_ascii=False, separators=(",", ":"), default=_to_plain)
        return HttpCall(base.rstrip("/") + path, all_headers, data.encode("utf-8", "replace"))

    async def exchange(self, post: HttpCall, timeout: float) -> Mapping[str, Any]:
        """The JSON object that is answered, within so many seconds."""
        with self.telling_errors(Patience(timeout), post), anyio.fail_after(timeout):
            async with send_call(post) as answer:
                if answer.is_fine:
                    return await self.read_object(answer)
                body = await answer.read()
        raise self.failure(answer.status, body, answer.headers)

    async def read_object(self, answer: HttpAnswer, first: bytes = b"") -> Mapping[str, Any]:
        """The JSON object that an answer is, of which `first` was read before.

        It is there as soon as it is whole: how the connection ends after it, or that it does not, loses nothing.
        """
        chunk = first or await answer.receive()
        body, tries = bytearray(chunk), _MOST_TRIES
        while chunk:
            if tries and chunk.rstrip().endswith(_ENDS):
                tries -= 1
                with suppress(ValueError, RecursionError):
                    content = self._check_object(json.loads(body))
                    await answer.finish()
                    answer.keep_arrived()
                    return content
            chunk = await answer.receive()
            body += chunk
        answer.keep_arrived()
        try:
            return self._check_object(json.loads(body))
        except (ValueError, RecursionError):
            message = f"the server's answer cannot be read as JSON{self.quote_start(bytes(body))}"
            is_final = answer.status == _NO_CONTENT or is_web_page(bytes(body))
            kind = PermanentModelError if is_final else TransientModelError
            raise self._error(kind, message, unanswered=not is_final) from None

    def _check_object(self, value: Any) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise PermanentModelError(f"{self.full_name}: the server's answer is no JSON object")
        return cast("dict[str, Any]", value)

    @contextmanager
    def telling_errors(self, patience: Patience | None = None, post: HttpCall | None = None) -> Generator[None]:
        """Raises errors inside the block as ours, with whether the vendor may bill the attempt. `patience`: how long it
        waits; `post`: the request, where it may not be sent yet."""
        try:
            yield
        except TimeoutError:
            seconds = "" if patience is None else f" within {patience.seconds:g} s"
            late = TransientModelError(f"{self.full_name} did not answer{seconds}")
            late.is_timeout, late.unanswered = True, int(post is None or post.is_sent)
            raise late from None
        except NoConnectionError as error:
            kind = PermanentModelError if error.is_final else TransientModelError
            raise self._error(kind, f"no connection to {show_address(self.base)}: {error}") from None
        except BrokenExchangeError as error:
            is_sent = (post is None or post.is_sent) and not error.is_unread
            kind = PermanentModelError if error.is_final else TransientModelError
            raise self._error(kind, str(error), unanswered=is_sent) from None
        except IncompleteAnswerError as error:
            kind = PermanentModelError if error.is_final else TransientModelError
            raise self._error(kind, str(error), unanswered=not error.is_final) from None
        except StreamFailureError as error:
            failure = self.failure(status_of_body(error.body), json.dumps(error.body).encode(), {})
            failure.unanswered = int(error.has_begun)
            raise failure from None

    def failure(self, status: int, body: bytes, headers: Mapping[str, str]) -> ModelError:
        """Our error for an answer that is none."""
        text = body.decode("utf-8", "replace")
        return error_of_answer(status, text, headers, self.full_name, self._secrets)

    def quote_start(self, body: bytes) -> str:
        """Quotes the start of an unreadable body."""
        text = " ".join(self._secrets.hide(body[:2000].decode("utf-8", "replace")).split())
        return f": it begins with {text[:80]!r}" if text else ": it is empty"

    def _error(self, kind: type[ModelError], text: str, *, unanswered: bool = False) -> ModelError:
        error = kind(self._secrets.hide(f"{self.full_name}: {text}"))
        error.unanswered = int(unanswered)
        return error


def is_web_page(body: bytes) -> bool:
    """Tells whether an answer is for people: a form to log in, or a proxy's word."""
    return body.lstrip()[:1] == b"<"


_NO_CONTENT: Final = 204
_ENDS: Final = (b"}", b"]")
"""How JSON that is no plain value ends."""
_MOST_TRIES: Final = 20
"""How often the beginning of a body is read as if it were all of it."""


def _to_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(cast("Mapping[Any, Any]", value))
    if isinstance(value, tuple | set | frozenset):
        return list(cast("tuple[Any, ...]", value))
    raise TypeError(f"a value of type {type(value).__name__} cannot be sent to a model")


def check_answer(reply: Reply, refusal: str, keys: Secrets) -> Reply:
    """The answer without keys, which a server must not send back to be printed and recorded.

    Refused content is a `PermanentModelError`: it is no answer to what was asked. `refusal`: what the model said
    instead.
    """
    if keys:
        reply = reply._replace(
            content=keys.hide(reply.content),
            tool_calls=tuple(ToolRequest(*map(keys.hide, each)) for each in reply.tool_calls),
            model=keys.hide(reply.model),
            vendor_parts=tuple(keys.hide_in(each) for each in reply.vendor_parts),
        )
        refusal = keys.hide(refusal)
    if refusal or (reply.finish_reason == "content_filter" and not reply.content and not reply.tool_calls):
        error = PermanentModelError(f"{reply.provider}/{reply.model} refused to answer{refusal and ': '}{refusal}")
        error.reply = reply
        raise error
    if (error_kind := _BROKEN_OFF.get(reply.finish_reason)) is not None:
        error = error_kind(f"{reply.provider}/{reply.model} broke its answer off ({reply.finish_reason})")
        error.reply = reply
        raise error
    return reply


_BROKEN_OFF: Final[Mapping[str, type[TransientModelError | PermanentModelError]]] = {
    "error": TransientModelError,  # https://docs.mistral.ai/api/#tag/chat, https://openrouter.ai/docs/api-reference
    "insufficient_system_resource": TransientModelError,  # https://api-docs.deepseek.com/api/create-chat-completion
    "abort": TransientModelError,  # https://docs.vllm.ai/en/latest/api/vllm/v1/engine
    "pause_turn": PermanentModelError,  # https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons
}
"""Reasons for which an answer is none."""


def join_address(address: str | None, vendor: VendorTraits) -> str:
    """Joins the vendor's default path to an address that has none.

    >>> from flowengine.models.http.vendor_traits import NATIVE
    >>> join_address("http://127.0.0.1:8000/", NATIVE["hosted_vllm"]), join_address(None, NATIVE["groq"])
    ('http://127.0.0.1:8000/v1', 'https://api.groq.com/openai/v1')
    """
    if not address:
        return vendor.address
    base, mark, query = address.strip().partition("?")
    if "://" not in base:
        base = f"http://{base}"
    base = base.rstrip("/").removesuffix("/chat/completions").removesuffix("/responses").rstrip("/")
    if vendor.protocol == "azure":
        base, mark, query = base.partition("/openai/deployments/")[0], "", ""
    if not urlsplit(base).path:
        base += vendor.path
    return base + mark + query
