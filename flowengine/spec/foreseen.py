"""Values that can be told before a run: those that read inputs which are known, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, cast

from flowengine.context import Context
from flowengine.errors import FlowEngineError
from flowengine.spec.scope import expression, values
from flowengine.templating.parse import Reference, parse_expression, parse_template

__all__ = ["Foreseen", "foreseen_expression", "foreseen_value"]


class Foreseen(NamedTuple):
    """A value, which may be None."""

    value: Any


def foreseen_value(tree: Any, inputs: Mapping[str, Any]) -> Foreseen | None:
    """Any value with templates in its strings; None where it is not known before.

    >>> foreseen_value({"n": "{{ inputs.n }}"}, {"n": 3}), foreseen_value("{{ nodes.a.output }}", {"n": 3})
    (Foreseen(value={'n': 3}), None)
    """
    try:
        if not all(_is_known(each, inputs) for text in _strings(tree) for each in parse_template(text).references):
            return None
        return Foreseen(values(tree)(Context(inputs=inputs)))
    except FlowEngineError:
        return None


def foreseen_expression(source: str, inputs: Mapping[str, Any]) -> Foreseen | None:
    """What a bare expression gives; None where it is not known before."""
    try:
        if not all(_is_known(each, inputs) for each in parse_expression(source).references):
            return None
        return Foreseen(expression(source)(Context(inputs=inputs)))
    except FlowEngineError:
        return None


def _is_known(read: Reference, inputs: Mapping[str, Any]) -> bool:
    return len(read.path) > 1 and read.path[0] == "inputs" and read.path[1] in inputs


def _strings(tree: Any) -> Iterator[str]:
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, dict):
        for each in cast("dict[str, Any]", tree).values():
            yield from _strings(each)
    elif isinstance(tree, list | tuple):
        for each in cast("list[Any]", tree):
            yield from _strings(each)
