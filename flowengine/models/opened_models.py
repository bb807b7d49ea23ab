"""Looks into opened models: what a project says of one, and which of several inside each other may answer.

It opens none, and knows wrappers by what they have inside alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Protocol, cast, runtime_checkable

from flowengine.core.context import EMPTY
from flowengine.models.definitions import ModelDefinition
from flowengine.models.model import Model
from flowengine.models.pricing import Price, context_window, longest_answer

__all__ = [
    "SaysItsPrice",
    "default_options",
    "definition_of",
    "has_own_price",
    "innermost_models",
    "longest_answer_of",
    "window_of",
]


def _own_definition(model: Model) -> ModelDefinition | None:
    own = getattr(model, "definition", None)
    return own if isinstance(own, ModelDefinition) else None


def definition_of(model: Model) -> ModelDefinition | None:
    """Returns the project's definition of a model, or of the first of several; None if it has none."""
    while True:
        own = _own_definition(model)
        if own is not None:
            return own
        inside = getattr(model, "inside", None)
        if inside is None:
            return None
        model = inside()[0]


def default_options(model: Model) -> Mapping[str, Any]:
    """Options that the calls of a model have where no others are said; they count in the key of a request."""
    definition = definition_of(model)
    return EMPTY if definition is None else definition.options


def window_of(model: Model) -> int | None:
    """The longest question of a model, in tokens, as the project or a list says; None where neither does."""
    own = definition_of(model)
    return (own and own.window) or context_window(model.provider, model.name)


def longest_answer_of(model: Model) -> int | None:
    """The longest answer of a model, in tokens; None where neither the project nor a list says it."""
    own = definition_of(model)
    return (own and own.longest_answer) or longest_answer(model.provider, model.name)


# --- Models that may answer


@runtime_checkable
class SaysItsPrice(Protocol):
    def own_price(self) -> Price: ...


@cache
def has_own_price(kind: type[Model]) -> bool:
    """Tells whether models of a class say what they cost. Looked up once a class: asking a protocol takes long."""
    return issubclass(kind, SaysItsPrice)


@runtime_checkable
class _Wrapper(Protocol):
    def inside(self) -> Sequence[Model]: ...


def innermost_models(model: Model, *, past_prices: bool = False) -> Iterator[Model]:
    """The innermost models, in the order in which they would be asked. One with a price of its own counts as such, and
    one of which a project says something, unless `past_prices`."""
    if not _is_wrapper(type(model), past_prices) or (not past_prices and _own_definition(model) is not None):
        yield model
        return
    for each in cast(_Wrapper, model).inside():
        yield from innermost_models(each, past_prices=past_prices)


@cache
def _is_wrapper(kind: type[Model], past_prices: bool) -> bool:
    """Looked up once a class: asking a protocol takes longer than all else that a reservation does."""
    return issubclass(kind, _Wrapper) and (past_prices or not has_own_price(kind))
