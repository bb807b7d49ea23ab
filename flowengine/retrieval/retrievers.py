"""Opens a retriever by name: our own, or one that an installed package brings.

It imports nothing before its name is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from flowengine.core.user_code import find_entry_points, load_entry_point
from flowengine.errors import DefinitionError, did_you_mean
from flowengine.retrieval.fts import FtsRetriever
from flowengine.retrieval.retriever import Retriever

__all__ = ["GROUP", "known_retrievers", "open_retriever"]

GROUP: Final = "flowengine.retrievers"
"""Entry points under which installed packages bring theirs: name → what makes a `Retriever` from its settings."""

_BUILTIN: Final[Mapping[str, Callable[..., Retriever]]] = {"sqlite": FtsRetriever}


def known_retrievers() -> list[str]:
    return list(dict.fromkeys((*_BUILTIN, *find_entry_points(GROUP))))


def open_retriever(name: str = "sqlite", **settings: Any) -> Retriever:
    """The retriever of a name, made with its settings; an unknown name is an error with the nearest known one.

    >>> open_retriever("sqlit")
    Traceback (most recent call last):
    ...
    flowengine.errors.DefinitionError: there is no retriever 'sqlit'; did you mean 'sqlite'?
    """
    make = _BUILTIN.get(name) or _find_in_packages(name)
    try:
        made = make(**settings)
    except TypeError as error:
        raise DefinitionError(f"retriever '{name}': {error}") from error
    if not isinstance(made, Retriever):
        raise DefinitionError(f"retriever '{name}' must have add, remove and search, which {made!r:.80} has not")
    return made


def _find_in_packages(name: str) -> Callable[..., Any]:
    point = find_entry_points(GROUP).get(name)
    if point is None:
        known = known_retrievers()
        near = did_you_mean(name, known) or f"; there are {', '.join(known)}"
        raise DefinitionError(f"there is no retriever '{name}'{near}")
    return load_entry_point(point, f"the retriever '{name}'")
