"""Asks a vendor over HTTP for the vectors of texts."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from flowengine.models.http.chat_protocol import StreamFailureError, read_vectors
from flowengine.models.http.openai_chat import AZURE_CHAT, OPENAI_CHAT, read_chat_usage
from flowengine.models.http.vendor_endpoint import VendorEndpoint
from flowengine.models.http.vendor_traits import NATIVE
from flowengine.models.model import Model, Reply, Request, stream_whole
from flowengine.models.outbound import check_outbound
from flowengine.models.vendors import Vendor
from flowengine.models.wrappers import cost_of


class NativeEmbedding:
    """One vendor's model of vectors. `settings`: those of its connection, and further parameters of every call."""

    def __init__(self, name: str, provider: str, *, settings: Mapping[str, Any] | None = None) -> None:
        self.name = name
        self.provider = provider
        self._vendor = NATIVE[provider]
        self._endpoint = VendorEndpoint(provider, name, self._vendor, settings or {})

    async def complete(self, request: Request) -> Reply:
        """A vector for each of the messages."""
        endpoint = self._endpoint
        check_outbound(endpoint.full_name, {"api_base": endpoint.base})
        texts = [each.content for each in request.messages]
        protocol = AZURE_CHAT if self._vendor.protocol == "azure" else OPENAI_CHAT
        path, headers = protocol.path(self.name, endpoint.settings, "embeddings"), protocol.headers(endpoint.settings)
        post = endpoint.post(path, headers, {"model": self.name, "input": texts, **endpoint.more})
        started = time.perf_counter()
        body = await endpoint.exchange(post, request.seconds(0))
        with endpoint.telling_errors():
            if body.get("error") and not body.get("data"):
                raise StreamFailureError(body)  # Some servers tell it with a status of 200.
        vectors = read_vectors(body.get("data"), len(texts), endpoint.full_name)
        usage = read_chat_usage(body.get("usage"), self._vendor)
        model_name: Any = body.get("model")
        return Reply(
            content="",
            usage=usage,
            cost_usd=cost_of(self.provider, self.name, usage),
            model=endpoint.keys.hide(model_name) if isinstance(model_name, str) and model_name else self.name,
            provider=self.provider,
            seconds=time.perf_counter() - started,
            vectors=vectors,
        )

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[str | Reply]]:
        """Vectors come at once or not at all."""
        return stream_whole(self.complete, request)


def make_native_embedding(vendor: Vendor, name: str, settings: Mapping[str, Any]) -> Model:
    """The backend of the vendors whose protocol has embeddings."""
    return NativeEmbedding(name, vendor.name, settings=settings)
