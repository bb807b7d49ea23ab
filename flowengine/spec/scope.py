"""The names that templates and expressions know (rule 9), read from a node's context when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from flowengine.context import Context, NodeView
from flowengine.templating.compile import compile_boolean, compile_expression, compile_template
from flowengine.templating.parse import parse_template
from flowengine.templating.undefined import Missing

__all__ = ["ContextScope", "boolean", "expression", "is_static", "template", "values"]

Value = Callable[[Context], Any]


class ContextScope:
    """A context under the names of the format; `output` only where there is one (in `set`)."""

    __slots__ = ("_context", "_output")

    def __init__(self, context: Context, output: Any = Missing) -> None:
        self._context = context
        self._output = output

    def __getitem__(self, name: str, /) -> Any:
        read = _NAMES.get(name)
        if read is not None:
            return read(self._context)
        if name == "output" and self._output is not Missing:
            return self._output
        return self._context.variables[name]


class _Nodes(Mapping[str, NodeView]):
    """Ancestors by id; the output of one that did not succeed is missing, with the reason."""

    __slots__ = ("_nodes",)

    def __init__(self, nodes: Mapping[str, NodeView]) -> None:
        self._nodes = nodes

    def __getitem__(self, node: str) -> NodeView:
        view = self._nodes[node]
        if view.status == "succeeded":
            return view
        reason = f"node '{node}' was {view.status}"
        output, result = (Missing(f"nodes.{node}.{field}", reason) for field in ("output", "result"))
        return view._replace(output=output, result=result)

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)


def _or_missing(value: Any, name: str, reason: str) -> Any:
    return Missing(name, reason) if value is None else value


_NAMES: Final[Mapping[str, Callable[[Context], Any]]] = {
    "inputs": lambda context: context.inputs,
    "shared_state": lambda context: context.shared_state,
    "nodes": lambda context: _Nodes(context.nodes),
    "result": lambda context: _or_missing(context.result, "result", "no predecessor ran"),
    "routing_result": lambda context: _or_missing(context.routing_result, "routing_result", "nothing routed before"),
    "evaluation_result": lambda context: _or_missing(
        context.evaluation_result, "evaluation_result", "nothing was evaluated before"
    ),
    "prev_outputs": lambda context: context.prev_outputs,
    "run": lambda context: {"id": context.run_id},
    "env": lambda context: context.env,
}


def expression(source: str) -> Value:
    """A bare expression as a function of the context."""
    evaluate = compile_expression(source)
    return lambda context: evaluate(ContextScope(context))


def boolean(source: str) -> Callable[[Context], bool]:
    """A bare expression that must give true or false."""
    evaluate = compile_boolean(source)
    return lambda context: evaluate(ContextScope(context))


def template(source: str) -> Value:
    """A template as a function of the context."""
    render = compile_template(source)
    return lambda context: render(ContextScope(context))


def is_static(source: str) -> bool:
    """Whether a template has no placeholder."""
    return parse_template(source).is_static


def values(tree: Any) -> Callable[[Context, Any], Any]:
    """Any value with templates in its strings, however deep, as a function of (context, output).

    >>> values({"a": ["{{ output }}", 1]})(Context(), "x")
    {'a': ['x', 1]}
    """
    if isinstance(tree, str):
        render = compile_template(tree)
        return lambda context, output=Missing: render(ContextScope(context, output))
    if isinstance(tree, dict):
        pairs = {str(key): values(each) for key, each in tree.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - any JSON value
        return lambda context, output=Missing: {key: each(context, output) for key, each in pairs.items()}
    if isinstance(tree, list | tuple):
        parts = [values(each) for each in tree]  # pyright: ignore[reportUnknownVariableType] - any JSON value
        return lambda context, output=Missing: [each(context, output) for each in parts]
    return lambda context, output=Missing: tree
