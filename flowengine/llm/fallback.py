"""Several models as one: the first that answers, in the order given."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TypeVar

from flowengine.errors import ModelError, PermanentModelError, TransientModelError
from flowengine.llm.model import Model, Reply, Request
from flowengine.llm.schema_support import supports_schema
from flowengine.llm.streaming import open_stream

__all__ = ["FallbackModel"]

T = TypeVar("T")


class FallbackModel:
    """Asks the next model when one fails for good, its own retries included.

    It has the name of the first; `Reply.model` and `Reply.provider` say which one answered, and
    `Reply.attempts` counts the models that failed before it as one attempt each. If all fail, the
    error tells of each; it is transient if any of theirs was.
    """

    def __init__(self, models: Sequence[Model]) -> None:
        if not models:
            raise ValueError("a FallbackModel needs at least one model")
        self._models = tuple(models)

    @property
    def name(self) -> str:
        return self._models[0].name

    @property
    def provider(self) -> str:
        return self._models[0].provider

    async def supports_schema(self) -> bool:
        """Whether all of them do."""
        for model in self._models:
            if not await supports_schema(model):
                return False
        return True

    def inside(self) -> Sequence[Model]:
        """Those that may answer, the first one first."""
        return self._models

    def around(self, change: Callable[[Model], Model]) -> FallbackModel:
        """Other models in the same order, each made from the one in its place."""
        return FallbackModel([change(each) for each in self._models])

    async def complete(self, request: Request) -> Reply:
        async def ask(model: Model, failed: int) -> Reply:
            return _signed(await model.complete(replace(request, model=model.name)), model, failed)

        return await self._first(ask)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[str | Reply]]:
        async with AsyncExitStack() as stack:

            async def ask(model: Model, failed: int) -> AsyncIterator[str | Reply]:
                asked = replace(request, model=model.name)
                return await open_stream(stack, model, asked, lambda reply: _signed(reply, model, failed))

            yield await self._first(ask)

    async def _first(self, ask: Callable[[Model, int], Awaitable[T]]) -> T:
        errors: list[ModelError] = []
        for model in self._models:
            try:
                return await ask(model, len(errors))
            except ModelError as error:
                errors.append(error)
        raise self._summary(errors) from errors[-1]

    def _summary(self, errors: Sequence[ModelError]) -> ModelError:
        if len(errors) == 1:
            return errors[0]
        told = "; ".join(_named(each, str(error)) for each, error in zip(self._models, errors, strict=True))
        transient = any(isinstance(each, TransientModelError) for each in errors)
        return (TransientModelError if transient else PermanentModelError)(f"all {len(errors)} models failed: {told}")


def _named(model: Model, failure: str) -> str:
    """A failure after the model's name, which most of them begin with."""
    name = f"{model.provider}/{model.name}: "
    return failure if failure.startswith(name) else f"{name}{failure}"


def _signed(reply: Reply, model: Model, failed: int) -> Reply:
    return reply._replace(
        model=reply.model or model.name, provider=reply.provider or model.provider, attempts=reply.attempts + failed
    )
