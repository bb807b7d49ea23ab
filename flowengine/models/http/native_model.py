"""Asks a vendor's model over HTTP, in the vendor's protocol.

It knows when a call has taken too long, what an answer costs, and what must not be seen of a server's words. What is
sent and how answers are read is the protocol's matter; waiting before another attempt that of `retrying`.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from typing import Any, Final, cast
from urllib.parse import urlsplit

import anyio

from flowengine.core.secret_values import HiddenStream, Secrets, find_secret_values, find_url_secrets, is_random
from flowengine.errors import ModelError, PermanentModelError, TransientModelError
from flowengine.models.http.anthropic_messages import ANTHROPIC_MESSAGES
from flowengine.models.http.chat_protocol import (
    ChatProtocol,
    IncompleteAnswerError,
    StreamFailureError,
    VendorAnswer,
)
from flowengine.models.http.event_stream import EventReader
from flowengine.models.http.loop_client import BrokenExchangeError, HttpPost, NoConnectionError, send_post
from flowengine.models.http.openai_chat import AZURE_CHAT, OPENAI_CHAT
from flowengine.models.http.status_errors import FailedAnswer, error_of_answer, show_address, status_of_body
from flowengine.models.http.vendor_traits import NATIVE, VendorTraits, traits_of
from flowengine.models.messages import ToolRequest
from flowengine.models.model import Reply, Request
from flowengine.models.outbound import check_outbound
from flowengine.models.reply_cost import cost_of

__all__ = ["PROTOCOLS", "NativeModel", "join_address"]

PROTOCOLS: Final[Mapping[str, ChatProtocol]] = {
    "openai": OPENAI_CHAT,
    "azure": AZURE_CHAT,
    "anthropic": ANTHROPIC_MESSAGES,
}
"""By the names that `VendorTraits.protocol` has."""

_END: Final = 0.05
"""Seconds that the end of a stream may take, once the answer is whole and handed out."""


class NativeModel:
    """One vendor's model. `settings`: `api_key`, `api_base`, `api_version`."""

    def __init__(
        self,
        name: str,
        provider: str,
        *,
        settings: Mapping[str, Any] | None = None,
        structured_output: str | None = None,
    ) -> None:
        self.name = name
        self.provider = provider
        self._full_name = f"{provider}/{name}"
        self._settings = dict(settings or {})
        self._base = join_address(self._settings.get("api_base"), NATIVE[provider])
        self._settings["api_base"] = self._base
        is_elsewhere = urlsplit(self._base).netloc != urlsplit(NATIVE[provider].address).netloc
        self._traits = traits_of(provider, name, structured_output=structured_output, is_elsewhere=is_elsewhere)
        self._protocol = PROTOCOLS[self._traits.protocol]
        self._secrets = Secrets([*find_secret_values(self._settings), *find_url_secrets(self._base)])
        self._keys = Secrets(filter(is_random, find_secret_values(self._settings)))
        """What is taken out of answers too."""

    @property
    def traits(self) -> VendorTraits:
        """What is known of the model."""
        return self._traits

    async def supports_schema(self) -> bool:
        """Whether the vendor holds the model to a JSON Schema."""
        return self._traits.structured_output in ("json_schema", "tool")

    async def complete(self, request: Request) -> Reply:
        post, traits = self._post(request, stream=False)
        started = time.perf_counter()
        with self._errors_told(request), anyio.fail_after(request.timeout):
            async with send_post(post) as answer:
                body = await answer.read()
        if answer.status != 200:
            raise self._failure(answer.status, body, answer.headers)
        return self._finish(self._read(body, traits), time.perf_counter() - started)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[str | Reply]]:
        post, traits = self._post(request, stream=True)
        started = time.perf_counter()
        deadline = anyio.current_time() + request.timeout

        async def pieces() -> AsyncGenerator[str | Reply]:
            collector, shown, reader = self._protocol.collector(traits), HiddenStream(self._keys), EventReader()
            async with aclosing(answer.chunks()) as chunks:
                while not collector.is_complete:
                    with self._errors_told(request), _fail_at(deadline):
                        chunk = await anext(chunks, None)
                    try:
                        for event in reader.close() if chunk is None else reader.feed(chunk):
                            if piece := shown.feed(collector.add(event)):
                                yield piece
                    except StreamFailureError as error:
                        raise self._failure(status_of_body(error.body), json.dumps(error.body).encode(), {}) from None
                    except IncompleteAnswerError as error:
                        raise self._incomplete(error) from None
                    if chunk is None:
                        break
                if piece := shown.close():
                    yield piece
                try:
                    whole = collector.answer()
                except IncompleteAnswerError as error:
                    raise self._incomplete(error) from None
                yield self._finish(whole, time.perf_counter() - started)
                with anyio.move_on_after(_END), suppress(BrokenExchangeError):
                    async for _ in chunks:
                        pass  # A connection that was read to its end is used again.

        async with AsyncExitStack() as stack:
            with self._errors_told(request), _fail_at(deadline):
                answer = await stack.enter_async_context(send_post(post))
                failure = await answer.read() if answer.status != 200 else None
            if failure is not None:
                raise self._failure(answer.status, failure, answer.headers)
            iterator = pieces()
            stack.push_async_callback(iterator.aclose)
            yield iterator

    # --- What is sent

    def _post(self, request: Request, *, stream: bool) -> tuple[HttpPost, VendorTraits]:
        check_outbound(self._full_name, {"api_base": self._base}, request.extra)
        name = request.model or self.name
        if self._traits.model_prefix and "/" not in name:
            name = self._traits.model_prefix + name
        body = self._protocol.body(replace(request, model=name), self._traits, stream=stream)
        headers = {
            "content-type": "application/json",
            "accept": "text/event-stream" if stream else "application/json",
            **self._protocol.headers(self._settings),
        }
        base, _, query = self._base.partition("?")
        path = self._protocol.path(name, self._settings)
        if query:
            path += f"{'&' if '?' in path else '?'}{query}"
        data = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        return HttpPost(base.rstrip("/") + path, headers, data), self._traits

    # --- What comes back

    def _read(self, body: bytes, traits: VendorTraits) -> VendorAnswer:
        try:
            value: Any = json.loads(body)
        except (ValueError, RecursionError):
            raise TransientModelError(
                self._secrets.hide(f"{self._full_name}: the server's answer cannot be read as JSON{_shown(body)}")
            ) from None
        if not isinstance(value, dict):
            raise TransientModelError(f"{self._full_name}: the server's answer is no JSON object")
        try:
            return self._protocol.read(cast("dict[str, Any]", value), traits)
        except StreamFailureError as error:
            raise self._failure(status_of_body(error.body), body, {}) from None
        except IncompleteAnswerError as error:
            raise self._incomplete(error) from None

    def _finish(self, answer: VendorAnswer, seconds: float) -> Reply:
        """The answer with its price, without keys. Refused content is an error: it is no answer to what was asked."""
        reply = answer.reply
        model = reply.model or self.name
        cost = cost_of(self.provider, self.name, reply.usage)
        reply = reply._replace(model=model, provider=self.provider, seconds=seconds, cost_usd=cost)
        refusal = answer.refusal
        if self._keys:
            calls = tuple(ToolRequest(*map(self._keys.hide, each)) for each in reply.tool_calls)
            content, model = self._keys.hide(reply.content), self._keys.hide(model)
            parts = tuple(self._keys.hide_in(reply.vendor_parts))
            reply = reply._replace(content=content, tool_calls=calls, model=model, vendor_parts=parts)
            refusal = self._keys.hide(refusal)
        if refusal or (reply.finish_reason == "content_filter" and not reply.content and not reply.tool_calls):
            error = PermanentModelError(f"{self.provider}/{reply.model} refused to answer{refusal and ': '}{refusal}")
            error.reply = reply
            raise error
        return reply

    # --- What goes wrong

    @contextmanager
    def _errors_told(self, request: Request) -> Generator[None]:
        try:
            yield
        except TimeoutError:
            raise TransientModelError(f"{self._full_name} did not answer within {request.timeout:g} s") from None
        except NoConnectionError as error:
            text = f"{self._full_name}: no connection to {show_address(self._base)}: {error}"
            raise TransientModelError(self._secrets.hide(text)) from None
        except BrokenExchangeError as error:
            kind = PermanentModelError if error.is_final else TransientModelError
            raise kind(self._secrets.hide(f"{self._full_name}: {error}")) from None

    def _failure(self, status: int, body: bytes, headers: Mapping[str, str]) -> ModelError:
        text = body.decode("utf-8", "replace")
        return error_of_answer(FailedAnswer(status, text, headers), self._full_name, self._secrets)

    def _incomplete(self, error: IncompleteAnswerError) -> TransientModelError:
        return TransientModelError(f"{self._full_name}: {error}")


def _fail_at(deadline: float) -> AbstractContextManager[Any]:
    return anyio.fail_after(max(0.0, deadline - anyio.current_time()))


def _shown(body: bytes) -> str:
    text = " ".join(body[:200].decode("utf-8", "replace").split())
    return f": it begins with {text[:80]!r}" if text else ": it is empty"


def join_address(given: str | None, vendor: VendorTraits) -> str:
    """Where a vendor's calls go: a given address without a path gets the vendor's own.

    >>> join_address("http://127.0.0.1:8000/", NATIVE["hosted_vllm"]), join_address(None, NATIVE["groq"])
    ('http://127.0.0.1:8000/v1', 'https://api.groq.com/openai/v1')
    """
    if not given:
        return vendor.address
    base, mark, query = given.strip().partition("?")
    if "://" not in base:
        base = f"http://{base}"
    base = base.rstrip("/").removesuffix("/chat/completions").rstrip("/")
    if not urlsplit(base).path:
        base += vendor.path
    return base + mark + query
