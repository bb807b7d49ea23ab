"""Which models may answer what is asked of one: a wrapper lets others answer, a fallback several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Protocol, cast, runtime_checkable

from flowengine.llm.model import Model

__all__ = ["answering"]


@runtime_checkable
class _Wrapper(Protocol):
    def inside(self) -> Sequence[Model]: ...


def answering(model: Model) -> Iterator[Model]:
    """The innermost models, in the order in which they would be asked."""
    if not _is_wrapper(type(model)):
        yield model
        return
    for each in cast(_Wrapper, model).inside():
        yield from answering(each)


@cache
def _is_wrapper(kind: type[Model]) -> bool:
    """Looked up once a class: asking a protocol takes longer than all else that a reservation does."""
    return issubclass(kind, _Wrapper)
