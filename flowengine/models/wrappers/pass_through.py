"""Holds what every wrapper of a model shares: it is called as the model inside is, and follows schemas as that does."""

from __future__ import annotations

from collections.abc import Sequence

from flowengine.models.model import Model, supports_schema

__all__ = ["PassThroughModel"]


class PassThroughModel:
    """Round one model. What a wrapper is for, it adds to `complete` and `stream`."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def provider(self) -> str:
        return self._model.provider

    def inside(self) -> Sequence[Model]:
        """The model that is asked."""
        return (self._model,)

    async def supports_schema(self) -> bool:
        """Whether the model inside is held to a JSON Schema."""
        return await supports_schema(self._model)
