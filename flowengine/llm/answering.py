"""Which models may answer what is asked of one: a wrapper lets others answer, a fallback several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

from flowengine.llm.model import Model

__all__ = ["answering"]


@runtime_checkable
class _Wrapper(Protocol):
    def inside(self) -> Sequence[Model]: ...


def answering(model: Model) -> Iterator[Model]:
    """The innermost models, in the order in which they would be asked."""
    if not isinstance(model, _Wrapper):
        yield model
        return
    for each in model.inside():
        yield from answering(each)
