"""Whether a model follows a JSON Schema by itself, or has to be told in words."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from flowengine.llm.model import Model

__all__ = ["supports_schema"]


@runtime_checkable
class _KnowsItsSchemas(Protocol):
    async def supports_schema(self) -> bool: ...


async def supports_schema(model: Model) -> bool:
    """True if `Request.response_schema` is enforced; False if the prompt has to describe the shape.

    Models that say nothing about it follow schemas.
    """
    return await model.supports_schema() if isinstance(model, _KnowsItsSchemas) else True
