"""A copy of a file's data in which what is wrong is left out or stood in for, so that the checks that come after
can look at the rest in the same pass. What is wrong, and where, was found before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    mended = dict(data)
    for problem in problems:
        path = (*problem.path, problem.lacks) if problem.lacks else problem.path
        if path[:1] == ("inputs",) and len(path) > 1:
            mended = cast("dict[str, Any]", _put(mended, path[:2], _STAND_IN_INPUT))
            continue
        node = key_path(node_at(path))
        if node and (drop_nodes or path == node):
            mended = cast("dict[str, Any]", _put(mended, node, {"prompt": "-"}))
        elif path:
            mended = cast("dict[str, Any]", _put(mended, path, _STAND_INS.get(str(path[-1]))))
    return mended


def _put(value: Any, path: Sequence[str | int], new: Any) -> Any:
    """A copy of a value with another one at a path; without the key, where the new one is None."""
    if not isinstance(value, dict):
        return new if not path else None
    copy = dict(cast("dict[str | int, Any]", value))
    key = path[0]
    if len(path) == 1:
        copy[key] = new
    elif key in copy:
        copy[key] = _put(copy[key], path[1:], new)
    if copy.get(key) is None:
        copy.pop(key, None)
    return copy
