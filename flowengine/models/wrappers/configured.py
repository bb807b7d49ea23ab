"""Adds to a model what a project says of it under a name of its own: options of its calls, and its bounds."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from flowengine.core import EMPTY
from flowengine.models.definitions import ModelDefinition
from flowengine.models.model import Finish, Model, PassThroughModel, Request
from flowengine.models.wrappers.retrying import RetryingModel


class ConfiguredModel(PassThroughModel):
    """Wraps a model: its calls have the options of its definition, where a request says no others.

    `instead_of`: options of the model that was asked before it, which are not meant for this one.

    >>> import anyio
    >>> from flowengine.models.scripted import ScriptedModel
    >>> inner = ScriptedModel(["Green."])
    >>> model = ConfiguredModel(inner, ModelDefinition("calm", "x", options={"top_p": 0.5, "seed": 1}))
    >>> _ = anyio.run(model.complete, Request("x", (), extra={"seed": 2}))
    >>> dict(inner.requests[0].extra)
    {'top_p': 0.5, 'seed': 2}
    """

    def __init__(
        self, model: Model, definition: ModelDefinition | None, *, instead_of: Mapping[str, Any] = EMPTY
    ) -> None:
        super().__init__(model)
        self.definition = definition
        self._instead_of = instead_of

    @property
    def options(self) -> Mapping[str, Any]:
        return EMPTY if self.definition is None else self.definition.options

    @asynccontextmanager
    async def _around(self, request: Request) -> AsyncGenerator[tuple[Request, Finish]]:
        yield self._with_options(request), lambda reply: reply

    def _with_options(self, request: Request) -> Request:
        own_options = {name: each for name, each in request.extra.items() if not self._is_anothers(name, each)}
        extra = {**self.options, **own_options}
        return request if extra == request.extra else replace(request, extra=extra)

    def _is_anothers(self, name: str, value: Any) -> bool:
        return name in self._instead_of and self._instead_of[name] == value


def configure_model(model: Model, definition: ModelDefinition | None, instead_of: Mapping[str, Any] = EMPTY) -> Model:
    """The model with what is said of it; retries stay outside of that."""
    if definition is None and not instead_of:
        return model
    if isinstance(model, RetryingModel):
        return model.around(lambda each: configure_model(each, definition, instead_of))
    return ConfiguredModel(model, definition, instead_of=instead_of)
