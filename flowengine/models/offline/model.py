"""Stands in for a language model where there is none: no network, no key, the same answer every time.

It picks sentences of the prompt and compares words, and its answers say that it is no language
model. Flows run with it from end to end, so that they can be tried, drawn and tested at once.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, cast

import anyio.lowlevel

from flowengine.core import describe_error
from flowengine.errors import PermanentModelError
from flowengine.models.model import Reply, Request, TokenUsage, estimate_tokens, stream_whole
from flowengine.models.offline.decisions import (
    OfflineMaterial,
    choose,
    judge,
    looks_like_judgement,
    offline_texts,
    rank,
    route_reason,
)
from flowengine.models.offline.schema_values import Filler
from flowengine.models.pricing import Price
from flowengine.models.vendors import Vendor

_SENTENCES: Final = 3
"""Picked for an answer, at most."""


class OfflineModel:
    """Answers from the words of the prompt alone. Tools that are offered are never called.

    >>> import anyio
    >>> from flowengine.models.messages import Message
    >>> chat = (Message("user", "Context: Tea is brewed at 80 degrees. Milk is white.\\n\\nHow hot is tea brewed?"),)
    >>> print(anyio.run(OfflineModel().complete, Request("offline", chat)).content)
    Tea is brewed at 80 degrees.
    (Offline stand-in, no language model: these are sentences of the prompt.)
    """

    name = "offline"
    provider = "offline"

    def own_price(self) -> Price:
        """Nothing."""
        return Price(0.0, 0.0)

    async def complete(self, request: Request) -> Reply:
        await anyio.lowlevel.checkpoint()
        content = _answer(request)
        prompt = sum(estimate_tokens(each.content) for each in request.messages)
        return Reply(
            content=content,
            usage=TokenUsage(prompt, estimate_tokens(content), 0),
            cost_usd=0.0,
            model=self.name,
            provider=self.provider,
        )

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[str | Reply]]:
        return stream_whole(self.complete, request, r"\s*\S{1,12}\s*")


def _answer(request: Request) -> str:
    material = OfflineMaterial(request.messages)
    if request.response_schema is None:
        return _write_text(material)
    return json.dumps(_make_structured(material, request.response_schema), ensure_ascii=False)


def _write_text(material: OfflineMaterial) -> str:
    """The sentences nearest to the question, in their own order, and the line that says where they are from.

    An answer that is to be improved is kept, and the nearest sentences that it lacks are added.
    """
    texts = offline_texts(material.language)
    candidates = material.context or material.all_sentences
    ranked = rank(material.question, [each for each in candidates if each not in material.draft])[:_SENTENCES]
    related = {text for closeness, text in ranked if closeness} or {text for _, text in ranked}
    picked = [text for text in candidates if text in related or text in material.draft] or [texts["nothing"]]
    return "\n".join([*picked, texts["notice"]])


def _make_structured(material: OfflineMaterial, schema: Mapping[str, Any]) -> Any:
    """A value of the schema: a route, a judgement, or whatever the text offers for the places."""
    filler = Filler(schema, material.all_sentences, offline_texts(material.language)["value"])
    try:
        value = filler.value()
    except PermanentModelError:
        raise
    except Exception as error:  # What the schema asks for may be senseless, or without an end.
        raise PermanentModelError(f"no value of the schema is found: {describe_error(error)}") from error
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, Any]", value)
    properties = cast("Mapping[str, Any]", schema.get("properties") or {})
    if "next_route" in properties and isinstance(properties["next_route"].get("enum"), list):
        fields |= _choose_route(material, properties)
    elif looks_like_judgement(properties):
        fields |= judge(material, properties)
    return fields


def _choose_route(material: OfflineMaterial, properties: Mapping[str, Any]) -> dict[str, Any]:
    """The nearest route, how far ahead it is, and why."""
    labels: list[str] = [str(each) for each in properties["next_route"]["enum"]]
    described = f"{properties['next_route'].get('description', '')}\n{material.system}"
    choice = choose(f"{material.subject}", labels, described)
    answer = {
        "next_route": choice.label,
        "confidence": choice.confidence,
        "reasoning": route_reason(choice, material),
    }
    return {name: value for name, value in answer.items() if name in properties}


def make_model(
    vendor: Vendor, name: str, settings: Mapping[str, Any], structured_output: str | None = None
) -> OfflineModel:
    """The backend of the vendor `offline`."""
    return OfflineModel()
