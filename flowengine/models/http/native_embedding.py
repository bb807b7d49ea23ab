"""Asks a vendor for embeddings over HTTP, in OpenAI's protocol: texts in, vectors out."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast
from urllib.parse import quote

from flowengine.errors import TransientModelError
from flowengine.models.http.chat_messages import list_of_objects
from flowengine.models.http.native_model import PROTOCOLS
from flowengine.models.http.openai_chat import AZURE_VERSION, read_chat_usage
from flowengine.models.http.vendor_endpoint import CONNECTION_SETTINGS, VendorEndpoint
from flowengine.models.http.vendor_traits import NATIVE
from flowengine.models.messages import texts_of
from flowengine.models.model import Model, Reply, Request
from flowengine.models.outbound import check_outbound
from flowengine.models.reply_cost import cost_of
from flowengine.models.vendors import Vendor

__all__ = ["NativeEmbedding", "make_native_embedding"]


class NativeEmbedding:
    """One vendor's model. `settings`: those of its connection, and further parameters of every call."""

    def __init__(self, name: str, provider: str, *, settings: Mapping[str, Any] | None = None) -> None:
        self.name = name
        self.provider = provider
        given = settings or {}
        connection = {name: value for name, value in given.items() if name in CONNECTION_SETTINGS}
        self._more = {name: value for name, value in given.items() if name not in CONNECTION_SETTINGS}
        self._vendor = NATIVE[provider]
        self._endpoint = VendorEndpoint(provider, name, self._vendor, connection)

    async def complete(self, request: Request) -> Reply:
        """A vector for each of the messages."""
        endpoint = self._endpoint
        check_outbound(endpoint.full_name, {"api_base": endpoint.base})
        texts = [each.content for each in request.messages]
        headers = PROTOCOLS[self._vendor.protocol].headers(endpoint.settings)
        post = endpoint.post(self._path(), headers, {"model": self.name, "input": texts, **self._more})
        started = time.perf_counter()
        body = await endpoint.exchange(post, request.timeout)
        entries = list_of_objects(body.get("data"))
        ordered = sorted(entries, key=lambda each: _whole_number(each.get("index")))
        if len(ordered) != len(texts):
            raise TransientModelError(f"{endpoint.full_name} gave {len(ordered)} vectors for {len(texts)} texts")
        vectors = [_numbers(each.get("embedding")) for each in ordered]
        if any(each is None for each in vectors):
            raise TransientModelError(f"{endpoint.full_name} gave a vector that is no list of numbers")
        usage = read_chat_usage(body.get("usage"), self._vendor)
        told: Any = body.get("model")
        return Reply(
            content="",
            usage=usage,
            cost_usd=cost_of(self.provider, self.name, usage),
            model=endpoint.keys.hide(told) if isinstance(told, str) and told else self.name,
            provider=self.provider,
            seconds=time.perf_counter() - started,
            vectors=texts_of(each for each in vectors if each is not None),
        )

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[str | Reply]]:
        """Vectors come at once or not at all."""

        async def pieces() -> AsyncGenerator[str | Reply]:
            yield await self.complete(request)

        yield pieces()

    def _path(self) -> str:
        base = self._endpoint.base.rstrip("/")
        if self._vendor.protocol != "azure" or base.endswith("/v1"):
            return "/embeddings"
        version = quote(str(self._endpoint.settings.get("api_version") or AZURE_VERSION), safe="")
        return f"/openai/deployments/{quote(self.name, safe='')}/embeddings?api-version={version}"


def make_native_embedding(vendor: Vendor, name: str, settings: Mapping[str, Any]) -> Model:
    """The backend of the vendors whose protocol has embeddings."""
    return NativeEmbedding(name, vendor.name, settings=settings)


def _whole_number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _numbers(value: Any) -> list[float] | None:
    if not isinstance(value, list):
        return None
    numbers = cast("list[Any]", value)
    return numbers if all(isinstance(each, int | float) for each in numbers) else None
