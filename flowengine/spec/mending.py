"""A copy of a file's data in which what is wrong is left out or stood in for, so that the checks that come after
can look at the rest in the same pass. What is wrong, and where, was found before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Final, cast

from flowengine.spec.levels import key_path, node_at
from flowengine.spec.translate import Problem

__all__ = ["STAND_IN_CODE", "STAND_IN_FLOW", "mend"]

STAND_IN_CODE: Final = "unnamed:unnamed"
"""A reference to code that nobody gave."""

STAND_IN_FLOW: Final = "unnamed:"
"""A file that nobody named."""

_STAND_IN_INPUT: Final[Mapping[str, Any]] = {"schema": {}}
"""An input of any type: what reads it reads something that there is."""

_STAND_INS: Final[Mapping[str, Any]] = {
    "flowengine": "v1",
    "name": "unnamed",
    "nodes": {"unnamed": {"prompt": "-"}},
    "instruction": "-",
    "routes": {"unnamed": {}},
    "call": STAND_IN_CODE,
    "if": "true",
    "over": "[]",
    "max_iterations": 1,
    "flow": STAND_IN_FLOW,
    "message": "-",
}
"""What takes the place of a required value, so that the rest of the file can be looked at."""


def mend(data: Mapping[str, Any], problems: Sequence[Problem], drop_nodes: bool) -> dict[str, Any]:
    """A copy in which the offending values are left out or stood in for; whole nodes, where that did not help."""
    mended = _Copy(data)
    for problem in problems:
        path = (*problem.path, problem.lacks) if problem.lacks else problem.path
        if path[:1] == ("inputs",) and len(path) > 1:
            mended.put(path[:2], _STAND_IN_INPUT)
            continue
        node = key_path(node_at(path))
        if node and (drop_nodes or path == node):
            mended.put(node, {"prompt": "-"})
        elif path:
            mended.put(path, _STAND_INS.get(str(path[-1])))
    return mended.data


class _Copy:
    """A copy of maps in maps that can be changed; each is copied when it is changed first, however often it is."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data: dict[Any, Any] = dict(data)
        self._copied: set[tuple[str | int, ...]] = set()

    def put(self, path: Sequence[str | int], new: Any) -> None:
        """Another value at a path, or none, where the new one is None; what is no map on the way there goes."""
        value = self.data
        for depth, key in enumerate(path[:-1], 1):
            inner: Any = value.get(key)
            if not isinstance(inner, dict):
                value.pop(key, None)
                return
            if (at := tuple(path[:depth])) not in self._copied:
                self._copied.add(at)
                inner = value[key] = dict(cast("dict[Any, Any]", inner))
            value = cast("dict[Any, Any]", inner)
        if new is None:
            value.pop(path[-1], None)
        else:
            value[path[-1]] = deepcopy(new)
