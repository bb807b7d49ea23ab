"""Calls models of all vendors through litellm, for answers and for embeddings.

It knows what a request looks like to litellm, and when a call has taken too long. Replies and errors are read in
`reply`; the import is in `loading`, the thread in `event_loop`.
litellm's own retries are off: waiting is the business of `retrying`, limits that of `rate`.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, contextmanager, suppress
from typing import Any, Final, NamedTuple

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from flowengine.core import (
    HiddenStream,
    Secrets,
    find_secret_values,
    is_random,
    post_to_this_loop,
    postpone_cancellation,
)
from flowengine.errors import ModelError, TransientModelError
from flowengine.models.attachments import openai_parts
from flowengine.models.call_timeline import spent_on
from flowengine.models.http import CONNECTION_SETTINGS, THINKING
from flowengine.models.litellm import loading as litellm_import
from flowengine.models.litellm.loading import (
    LITELLM_LOOP,
    litellm_loaded,
    mute_background_logging,
    silence_warnings,
)
from flowengine.models.litellm.reply import (
    PieceCollector,
    as_model_error,
    read_embedding,
    read_reply,
    secrets_of,
    tellable,
)
from flowengine.models.messages import Message, as_dict
from flowengine.models.model import Model, Reply, Request, stream_whole
from flowengine.models.outbound import check_outbound
from flowengine.models.pricing import seconds_of_call
from flowengine.models.vendors import Vendor


class _CallSecrets(NamedTuple):
    """The secrets among the settings of a call, which are told to no one."""

    all: Secrets
    keys: Secrets
    """Those that are taken out of answers too."""


def _find_secrets(settings: Mapping[str, Any]) -> _CallSecrets:
    return _CallSecrets(secrets_of(settings), Secrets(filter(is_random, find_secret_values(settings))))


class _LiteLLMCaller:
    """One vendor's model.

    `prefix` is litellm's word for the vendor where it differs from `provider`; `settings` are
    further arguments of every call: `api_key`, `api_base`, `api_version`.
    """

    def __init__(
        self, name: str, provider: str, *, prefix: str | None = None, settings: Mapping[str, Any] | None = None
    ) -> None:
        self.name = name
        self.provider = provider
        self._full_name = f"{provider}/{name}"
        self._prefix = prefix or provider
        self._settings = dict(settings or {})

    @staticmethod
    async def ready() -> None:
        """Load what a first call would wait for: one that is made from now on goes out at once."""
        await litellm_loaded()

    async def _litellm(self) -> Any:
        silence_warnings()
        ready = litellm_import.litellm_ready()
        if ready is not None:
            return ready
        with spent_on("loading"):
            return await litellm_loaded()

    @contextmanager
    def _telling_errors(self, timeout: float, secrets: Secrets) -> Generator[None]:
        """Raises errors inside the block as ours, without secrets. `timeout`: the seconds of the call."""
        try:
            yield
        except TimeoutError as error:
            late = TransientModelError(f"{self._full_name} did not answer within {timeout:g} s")
            late.is_timeout, late.unanswered = True, 1
            raise late from error
        except Exception as error:  # foreign code
            address = self._settings.get("api_base")
            raise as_model_error(error, self.provider, self.name, secrets, address) from tellable(error, secrets)


class LiteLLMModel(_LiteLLMCaller):
    """A model that answers. `structured_output`: `json_schema` where it is said to follow one, any other word where it
    is told the shape in the prompt; None: as litellm knows.
    """

    def __init__(
        self,
        name: str,
        provider: str,
        *,
        prefix: str | None = None,
        settings: Mapping[str, Any] | None = None,
        structured_output: str | None = None,
    ) -> None:
        super().__init__(name, provider, prefix=prefix, settings=settings)
        self._structured_output = structured_output
        self._secrets = _find_secrets(self._settings)

    @staticmethod
    def preload() -> None:
        """Start loading litellm in the background, for a call that will come."""
        litellm_import.preload()

    async def supports_schema(self) -> bool:
        """Tells whether litellm knows that the vendor follows a JSON Schema by itself."""
        return self._follows_schemas(await self._litellm())

    async def complete(self, request: Request) -> Reply:
        self._check_outbound(request)
        secrets = self._secrets_of(request)
        litellm = await self._litellm()
        started = time.perf_counter()
        arguments = self._to_arguments(litellm, request)

        async def call() -> Any:
            mute_background_logging(litellm)
            return await litellm.acompletion(**arguments)

        seconds = seconds_of_call(self, request)
        with self._telling_errors(seconds, secrets.all):
            response = await LITELLM_LOOP.call(call, seconds)
        return read_reply(response, self.provider, self.name, time.perf_counter() - started, secrets.keys)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[str | Reply]]:
        self._check_outbound(request)
        secrets = self._secrets_of(request)
        litellm = await self._litellm()
        send, receive = anyio.create_memory_object_stream[str | Reply](math.inf)
        post = post_to_this_loop()
        started = time.perf_counter()
        arguments = self._to_arguments(litellm, request)
        arguments |= {"stream": True, "stream_options": {"include_usage": True}}

        def hand_on(piece: str | Reply) -> None:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the reader has left
                send.send_nowait(piece)

        async def call() -> None:
            mute_background_logging(litellm)
            collector = PieceCollector(litellm, self.provider, self.name, arguments["model"], secrets.keys)
            mask = HiddenStream(secrets.keys)
            try:
                async with aclosing(await litellm.acompletion(**arguments)) as chunks:
                    try:
                        async for chunk in chunks:
                            if piece := mask.feed(collector.add(chunk)):
                                post(hand_on, piece)
                    except Exception:  # foreign code; what comes after the answer's last word loses nothing
                        if not collector.has_ended:
                            raise
                if piece := mask.close():
                    post(hand_on, piece)
                post(hand_on, collector.reply(time.perf_counter() - started))
            finally:
                post(send.close)

        async def pieces() -> AsyncGenerator[str | Reply]:
            has_begun = False
            try:
                async for piece in receive:
                    has_begun = True
                    yield piece
            except anyio.get_cancelled_exc_class() as error:
                reply = _reply_in(receive)
                if reply is None:
                    raise
                postpone_cancellation(error)
                yield reply
                return
            try:
                with self._telling_errors(seconds, secrets.all):
                    await job.wait()
            except ModelError as error:
                error.unanswered = max(error.unanswered, int(has_begun))
                raise

        seconds = seconds_of_call(self, request)
        job = LITELLM_LOOP.begin(call, seconds)
        iterator = pieces()
        try:
            with receive:
                yield iterator
        finally:
            job.cancel()
            send.close()
            with anyio.CancelScope(shield=True):
                await iterator.aclose()

    def _check_outbound(self, request: Request) -> None:
        check_outbound(self._full_name, self._settings, request.extra)

    def _to_arguments(self, litellm: Any, request: Request) -> dict[str, Any]:
        """The request as litellm's keyword arguments; what the caller left open is left out."""
        arguments: dict[str, Any] = {
            "model": f"{self._prefix}/{self.name}",
            "messages": [_to_wire(each, self._prefix) for each in request.messages],
            "timeout": seconds_of_call(self, request),
            "max_retries": 0,
            "num_retries": 0,
            **self._settings,
        }
        if request.temperature is not None:
            arguments["temperature"] = request.temperature
        if request.max_tokens is not None:
            arguments["max_tokens"] = request.max_tokens
        if request.tools:
            arguments["tools"] = list(request.tools)
        # Some vendors refuse tools beside a format, and others never call them then: the prompt has to say it.
        if request.response_schema is not None and not request.tools and self._follows_schemas(litellm):
            arguments["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": request.response_name, "schema": request.response_schema},
            }
        arguments.update(_to_litellm(request))
        return arguments

    def _follows_schemas(self, litellm: Any) -> bool:
        if self._structured_output is not None:
            return self._structured_output == "json_schema"
        return bool(litellm.supports_response_schema(self.name, self._prefix))

    def _secrets_of(self, request: Request) -> _CallSecrets:
        """A request may name a key of its own."""
        own = {name: request.extra[name] for name in request.extra if name in CONNECTION_SETTINGS}
        return _find_secrets({**self._settings, **own}) if own else self._secrets


_TAKES_THINKING: Final = frozenset({"anthropic", "bedrock", "vertex_ai"})
"""Vendors to which signed thinking goes back."""


def _to_wire(message: Message, prefix: str) -> dict[str, Any]:
    shape = as_dict(message._replace(is_error=False))
    parts: list[dict[str, Any]] = shape.pop("vendor_parts", [])
    if shape.pop("attachments", ()):
        shape["content"] = openai_parts(message)
    if thinking := [each for each in parts if each.get("type") in THINKING and prefix in _TAKES_THINKING]:
        shape["thinking_blocks"] = thinking
    return shape


def _to_litellm(request: Request) -> dict[str, Any]:
    """The options of a request under litellm's names."""
    options = dict(request.extra)
    thinking = options.get("thinking")
    if isinstance(thinking, Mapping) and "type" not in thinking:
        options["thinking"] = {"type": "enabled", **thinking}
    if not request.tools:
        options.pop("parallel_tool_calls", None)  # Vendors refuse it where there is nothing to call.
    return options


def _reply_in(receive: MemoryObjectReceiveStream[str | Reply]) -> Reply | None:
    """The reply, where it has arrived and was not taken yet."""
    with suppress(anyio.WouldBlock, anyio.EndOfStream, anyio.ClosedResourceError):
        while True:
            if isinstance(piece := receive.receive_nowait(), Reply):
                return piece
    return None


def make_model(
    vendor: Vendor, name: str, settings: Mapping[str, Any], structured_output: str | None = None
) -> LiteLLMModel:
    """The backend of every vendor that has no other."""
    return LiteLLMModel(name, vendor.name, prefix=vendor.prefix, settings=settings, structured_output=structured_output)


# --- Embeddings


class LiteLLMEmbedding(_LiteLLMCaller):
    """A model for embeddings.

    litellm's client for OpenAI takes a 0 for its own 2 retries here, so that vendor is asked more often.
    """

    async def complete(self, request: Request) -> Reply:
        """A vector for each of the messages."""
        check_outbound(self._full_name, self._settings)
        litellm = await self._litellm()
        texts = [each.content for each in request.messages]
        arguments = {"model": f"{self._prefix}/{self.name}", "input": texts, "max_retries": 0, **self._settings}
        started = time.perf_counter()

        async def call() -> Any:
            mute_background_logging(litellm)
            return await litellm.aembedding(**arguments)

        seconds = request.seconds(0)
        with self._telling_errors(seconds, secrets_of(self._settings)):
            response = await LITELLM_LOOP.call(call, seconds)
        return read_embedding(response, self.provider, self.name, len(texts), time.perf_counter() - started)

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[str | Reply]]:
        """Vectors come at once or not at all."""
        return stream_whole(self.complete, request)


def make_embedding(vendor: Vendor, name: str, settings: Mapping[str, Any]) -> Model:
    """The backend of every vendor that has no other."""
    return LiteLLMEmbedding(name, vendor.name, prefix=vendor.prefix.removesuffix("_chat"), settings=settings)
