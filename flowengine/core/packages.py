"""What installed packages bring under an entry point group: found by name, imported only when it is asked for."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from flowengine.core.user_code import describe_error
from flowengine.errors import DefinitionError

__all__ = ["find_entry_points", "load_entry_point", "package_of"]

_REMEMBERED: Final = 16
"""Groups whose entry points are kept: each search reads every installed package's metadata."""


def find_entry_points(group: str) -> Mapping[str, EntryPoint]:
    """Name → entry point of a group. Nothing is imported; the search is repeated when `sys.path` has changed."""
    return _search(group, tuple(sys.path))


@lru_cache(maxsize=_REMEMBERED)
def _search(group: str, path: tuple[str, ...]) -> Mapping[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=group)}


def load_entry_point(point: EntryPoint, what: str) -> Any:
    """The object of an entry point. A package that cannot be imported is a `DefinitionError` that names it."""
    try:
        return point.load()
    except Exception as error:  # A package is foreign code: whatever it raises is its own failure.
        raise DefinitionError(
            f"{what} of the package '{package_of(point)}' cannot be loaded: {describe_error(error)}"
        ) from error


def package_of(point: EntryPoint) -> str:
    """The name of the package that brings an entry point."""
    return point.value if point.dist is None else point.dist.name
