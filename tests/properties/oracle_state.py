"""Shared state for the oracle: what nodes wrote, folded in order (rule 6).

A node's writes are lists of what it wrote to each key, in order: a container's are those of its body. So a fold has to
look at one kind of thing only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from tests.properties.oracle_expressions import ExpressionError, Unclear

__all__ = ["Write", "Writes", "fold", "joined"]

_CONTRIBUTED: Final = frozenset({"append", "union", "sum", "max", "min", "update"})


class Write(NamedTuple):
    """Who wrote (its path) and what."""

    writer: str
    value: Any


Writes = Mapping[str, list[Write]]


def joined(parts: Iterable[Writes]) -> dict[str, list[Write]]:
    """The writes of several nodes one after the other."""
    found: dict[str, list[Write]] = {}
    for part in parts:
        for key, writes in part.items():
            found.setdefault(key, []).extend(writes)
    return found


def fold(declared: Mapping[str, Mapping[str, Any]], writes: Writes) -> dict[str, Any]:
    """The value of every declared key after these writes."""
    for key in writes:
        if key not in declared:
            raise ExpressionError(f"state key '{key}' is not declared")
    return {key: _folded(key, spec, [each.value for each in writes.get(key, [])]) for key, spec in declared.items()}


def _folded(key: str, spec: Mapping[str, Any], written: list[Any]) -> Any:
    rule, value = spec.get("merge", "error"), spec.get("default")
    if not written:
        return value
    if rule not in _CONTRIBUTED:
        return written[-1]
    if "default" not in spec:
        raise Unclear(f"where '{key}' starts, which has no default")
    for each in written:
        value = _met(key, rule, value, each)
    return value


def _met(key: str, rule: str, value: Any, new: Any) -> Any:
    if rule in ("append", "union"):
        if not isinstance(new, list):
            raise ExpressionError(f"'{key}' takes lists")
        return value + [each for each in new if rule == "append" or each not in value]
    if rule == "update":
        return {**value, **new}
    if rule == "sum":
        return value + new
    return max(value, new) if rule == "max" else min(value, new)
