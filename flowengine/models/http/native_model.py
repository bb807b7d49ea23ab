"""Asks a vendor's model over HTTP, in the vendor's protocol.

It knows when a call has taken too long and what an answer costs. What is sent and how answers are read is the
protocol's matter; where it goes that of `vendor_endpoint`; waiting before another attempt that of `retrying`.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any, Final

from flowengine.core import CALL, EMPTY, HiddenStream
from flowengine.errors import ModelConfigError
from flowengine.models.http.chat_protocol import (
    ChatProtocol,
    EventReader,
    IncompleteAnswerError,
    VendorAnswer,
    ends_in_half,
    join_surrogates,
)
from flowengine.models.http.loop_client import HttpAnswer, HttpCall, send_call
from flowengine.models.http.streamed_answer import add_events, is_whole, receive_piece
from flowengine.models.http.vendor_endpoint import (
    CONNECTION_SETTINGS,
    Patience,
    VendorEndpoint,
    check_answer,
    is_web_page,
)
from flowengine.models.http.vendor_traits import NATIVE, VendorTraits, traits_of
from flowengine.models.model import Model, Reply, Request, stream_whole
from flowengine.models.outbound import check_outbound
from flowengine.models.pricing import seconds_of_call
from flowengine.models.vendors import BATCH_PRICE, BATCH_VENDORS, Vendor, vendor_named
from flowengine.models.wrappers import cost_of

PROTOCOLS: Final[Mapping[str, str]] = {
    "openai": "openai_chat:OPENAI_CHAT",
    "azure": "openai_chat:AZURE_CHAT",
    "anthropic": "anthropic_messages:ANTHROPIC_MESSAGES",
}
"""The protocols by the names that `VendorTraits.protocol` has: a run loads those alone that it speaks."""
_RESPONSES: Final[Mapping[str, str]] = {
    "openai": "openai_responses:OPENAI_RESPONSES",
    "azure": "openai_responses:AZURE_RESPONSES",
}
"""The protocols, by the same names, for calls that chat completions refuse."""


@cache
def load_protocol(place: str) -> ChatProtocol:
    """The protocol at a place of `PROTOCOLS`."""
    module, _, name = place.partition(":")
    return getattr(import_module(f"flowengine.models.http.{module}"), name)


class NativeModel:
    """One vendor's model. `settings`: those of its connection, and further parameters of every call."""

    def __init__(
        self,
        name: str,
        provider: str,
        *,
        settings: Mapping[str, Any] | None = None,
        structured_output: str | None = None,
        overrides: Mapping[str, Any] = EMPTY,
    ) -> None:
        """`overrides`: what a project says that the model can do."""
        self.name = name
        self.provider = provider
        self._structured_output = structured_output
        self._overrides = overrides
        self._endpoint = VendorEndpoint(provider, name, NATIVE[provider], settings or {})
        self._traits = traits_of(
            provider,
            name,
            structured_output=structured_output,
            is_elsewhere=self._endpoint.is_elsewhere,
            overrides=overrides,
        )
        self._protocol_for(Request(name, ()))  # Loaded now, and not within the time of the first call.

    @property
    def traits(self) -> VendorTraits:
        """The model's traits."""
        return self._traits

    async def supports_schema(self) -> bool:
        """Tells whether the vendor holds the model to a JSON Schema."""
        return self._traits.structured_output in ("json_schema", "tool")

    async def complete(self, request: Request) -> Reply:
        moved = self._move_request(request)
        if moved is not None:
            return await moved[0].complete(moved[1])
        protocol = self._protocol_for(request)
        post = self._post(request, protocol, stream=False)
        started = time.perf_counter()
        place, is_cheap = CALL.get(), False
        if place is not None and self.provider in BATCH_VENDORS:
            from flowengine.models.http.vendor_batches import BatchableCall  # Few runs wait for a batch.

            call = BatchableCall(self._endpoint, post, self.provider, self.name)
            body, is_cheap = await place.batcher.answer(place, call)
            place.is_cheap = is_cheap
        else:
            body = await self._endpoint.exchange(post, seconds_of_call(self, request))
        with self._endpoint.telling_errors():
            answer = protocol.read(body, self._traits)
        return self._finish(answer, request, time.perf_counter() - started, BATCH_PRICE if is_cheap else 1)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[str | Reply]]:
        moved = self._move_request(request)
        if moved is not None:
            async with moved[0].stream(moved[1]) as elsewhere:
                yield elsewhere
            return
        if not self._traits.can.streams:
            async with stream_whole(self.complete, request) as whole:
                yield whole
            return
        protocol = self._protocol_for(request)
        post = self._post(request, protocol, stream=True)
        started, patience = time.perf_counter(), Patience(seconds_of_call(self, request))
        async with AsyncExitStack() as stack:
            with self._endpoint.telling_errors(patience, post), patience.limit():
                answer = await stack.enter_async_context(send_call(post))
                failure = await answer.read() if not answer.is_fine else None
            if failure is not None:
                raise self._endpoint.failure(answer.status, failure, answer.headers)
            pieces = self._pieces(answer, protocol, request, started, patience)
            stack.push_async_callback(pieces.aclose)
            yield pieces

    async def _pieces(
        self, answer: HttpAnswer, protocol: ChatProtocol, request: Request, started: float, patience: Patience
    ) -> AsyncGenerator[str | Reply]:
        """The text as it comes, and at the end all of it."""
        with self._endpoint.telling_errors(patience), patience.limit():
            first = chunk = await answer.receive()
            full_answer: VendorAnswer | None = None
            if is_whole(answer, first):  # It knows no streams.
                full_answer = protocol.read(await self._endpoint.read_object(answer, first), self._traits)
        if full_answer is not None:
            reply = self._finish(full_answer, request, time.perf_counter() - started)
            if reply.content and not answer.is_late:
                yield reply.content
            yield reply
            return
        collector, events, mask = (
            protocol.collector(self._traits),
            EventReader(),
            HiddenStream(self._endpoint.keys),
        )
        is_open, is_broken, event_count, half = True, False, 0, ""
        while is_open and not collector.is_complete:
            with self._endpoint.telling_errors(patience):
                if not chunk:
                    chunk, is_broken = await receive_piece(answer, collector, patience)
                is_open = bool(chunk)
                ended = () if is_broken else events.close()
                texts, is_broken = add_events(collector, events.feed(chunk) if chunk else ended, is_broken)
                is_open = is_open and not is_broken
                event_count += len(texts)
                if not is_open or collector.is_complete:
                    answer.keep_arrived()
            chunk, text = b"", join_surrogates(half + "".join(texts))
            half = text[-1] if ends_in_half(text) else ""
            if (piece := mask.feed(text.removesuffix(half))) and not answer.is_late:
                yield piece
        if (piece := mask.feed(half) + mask.close()) and not answer.is_late:
            yield piece
        with self._endpoint.telling_errors():
            if not event_count:
                begins = self._endpoint.quote_start(first)
                message = f"the server's answer is no stream of events{begins}"
                raise IncompleteAnswerError(message, is_final=is_web_page(first))
            whole = collector.answer()
        yield self._finish(whole, request, time.perf_counter() - started)
        if not is_broken:
            await answer.finish()

    # --- What is sent

    def _protocol_for(self, request: Request) -> ChatProtocol:
        traits, options = self._traits, {**self._endpoint.more, **request.extra}
        has_tools = bool(request.tools) or any(each.tool_calls for each in request.messages)
        is_summary = "reasoning" in options and traits.name in ("openai", "azure")
        if is_summary or traits.can.needs_responses(options, has_tools=has_tools):
            return load_protocol(_RESPONSES.get(traits.protocol, PROTOCOLS[traits.protocol]))
        return load_protocol(PROTOCOLS[traits.protocol])

    def _move_request(self, request: Request) -> tuple[NativeModel, Request] | None:
        """The model at another place, where the request names one of its own."""
        connection = {name: request.extra[name] for name in request.extra if name in CONNECTION_SETTINGS}
        if not connection:
            return None
        rest = {name: value for name, value in request.extra.items() if name not in connection}
        settings = {**self._endpoint.more, **self._endpoint.settings, **connection}
        moved = NativeModel(
            self.name,
            self.provider,
            settings=settings,
            structured_output=self._structured_output,
            overrides=self._overrides,
        )
        return moved, replace(request, extra=rest)

    def _post(self, request: Request, protocol: ChatProtocol, *, stream: bool) -> HttpCall:
        endpoint, traits = self._endpoint, self._traits
        check_outbound(endpoint.full_name, {"api_base": endpoint.base})
        name = self.name if "/" in self.name else vendor_named(self.provider).model_prefix + self.name
        sendable = replace(
            request, model=name, extra={**endpoint.more, **request.extra} if endpoint.more else request.extra
        )
        for option in traits.untaken_options:
            if option in sendable.extra:
                raise ModelConfigError(
                    f"{endpoint.full_name} is asked in OpenAI's protocol, where {self.provider} does not read "
                    f"`{option}`: "
                    f'set it at the server, or `adapter = "litellm"` in [providers.{self.provider}]'
                )
        body = protocol.body(sendable, traits, stream=stream)
        settings = endpoint.settings
        if traits.api_version and not endpoint.is_elsewhere and body.keys().isdisjoint(_SAMPLING):
            settings = {"api_version": traits.api_version, **settings}
        return endpoint.post(protocol.path(name, settings), protocol.headers(settings), body, stream=stream)

    # --- What comes back

    def _finish(self, answer: VendorAnswer, request: Request, seconds: float, share: float = 1) -> Reply:
        """The answer with its price, as far as it may be told."""
        reply = answer.reply._replace(content=join_surrogates(answer.reply.content))
        cost = reply.cost_usd
        if cost is None:
            cost = cost_of(self.provider, self.name, reply.usage, request.extra, hour_writes=answer.hour_writes)
        reply = reply._replace(
            model=reply.model or self.name,
            provider=self.provider,
            seconds=seconds,
            cost_usd=None if cost is None else cost * share,
        )
        return check_answer(reply, answer.refusal, self._endpoint.keys)


def make_native_model(
    vendor: Vendor,
    name: str,
    settings: Mapping[str, Any],
    structured_output: str | None = None,
    overrides: Mapping[str, Any] = EMPTY,
) -> Model:
    """The backend of the vendors in `NATIVE`."""
    return NativeModel(name, vendor.name, settings=settings, structured_output=structured_output, overrides=overrides)


_SAMPLING: Final = ("temperature", "top_p", "top_k")
"""Options that the newest version of Anthropic's API has no longer."""
