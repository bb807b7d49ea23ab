"""Defines the names that templates and expressions know (rule 9): what they are, and how they are read from a node's
context when asked for."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Final, Protocol, cast
from urllib.parse import quote

from flowengine.core import Context, check_text, copy_mutable
from flowengine.core.templating import (
    Meter,
    Missing,
    compile_encoded,
    compile_expression,
    compile_predicate,
    compile_template,
    lone_expression,
    parse_template,
    to_text,
)
from flowengine.errors import TemplateError

Value = Callable[[Context], Any]


class Rendering(Protocol):
    """A value with templates in it; `output` is the node's own, in `set`."""

    def __call__(self, context: Context, output: Any = ..., /) -> Any: ...


class ContextScope:
    """A context under the names of the format; `output` only where there is one (in `set`)."""

    __slots__ = ("_context", "_output")

    def __init__(self, context: Context, output: Any = Missing) -> None:
        self._context = context.shared  # Templates change nothing; what they give is copied.
        self._output = output

    def __getitem__(self, name: str, /) -> Any:
        try:
            read = _NAMES[name]
        except KeyError:
            if name == "output" and self._output is not Missing:
                return self._output
            return self._context.variables[name]
        return read(self._context)


def _or_missing(value: Any, name: str, reason: str) -> Any:
    return Missing(name, reason, excused=True) if value is None else value


_RESULT: Final = Missing("result", "no predecessor ran", excused=True)

_NAMES: Final[Mapping[str, Callable[[Context], Any]]] = {
    "inputs": attrgetter("inputs"),
    "shared_state": attrgetter("shared_state"),
    "nodes": attrgetter("nodes"),
    "result": lambda context: context.result if context.has_result else _RESULT,
    "routing_result": lambda context: _or_missing(context.routing_result, "routing_result", "nothing routed before"),
    "evaluation_result": lambda context: _or_missing(
        context.evaluation_result, "evaluation_result", "nothing was evaluated before"
    ),
    "prev_outputs": attrgetter("prev_outputs"),
    "run": lambda context: {"id": context.run_id},
    "env": attrgetter("env"),
}


def expression(source: str) -> Value:
    """A bare expression as a function of the context."""
    evaluate = compile_expression(source)
    return lambda context: copy_mutable(evaluate(ContextScope(context)))


class _Predicate:
    """An expression that decides, as a function of the context."""

    __slots__ = ("_decide", "_source")

    def __init__(self, source: str) -> None:
        self._source = source
        self._decide = compile_predicate(source)

    def __call__(self, context: Context) -> bool:
        return self._decide(ContextScope(context), None)

    def test(self, context: Context) -> Mapping[str, Any]:
        """Evaluates the condition, and returns its value with the values that it read (`Decided.tests`)."""
        values: dict[str, str] = {}
        answer = self._decide(ContextScope(context), values)
        return {"expression": self._source, "values": values, "answer": answer}


def boolean(source: str) -> _Predicate:
    """A bare expression that must give true or false."""
    return _Predicate(source)


def template(source: str) -> Value:
    """A template as a function of the context."""
    render = compile_template(source)
    return lambda context: copy_mutable(render(ContextScope(context)))


def text(source: str) -> Callable[[Context], str]:
    """A template as a function of the context that gives text: also what a lone `{{ x }}` gives is printed.

    >>> text("{{ inputs.x }}")(Context(inputs={"x": {"new": True}}))
    '{"new": true}'
    """
    render = compile_template(source)
    return lambda context: to_text(Meter(), render(ContextScope(context)))


def shared_beginning(source: str) -> str:
    """The beginning of a template that reads nothing but the flow's inputs: the same for all items and rounds. Empty
    where nothing follows it.

    >>> shared_beginning("{{ inputs.handbook }}\\nQuestion: {{ item }}")
    '{{ inputs.handbook }}\\nQuestion: '
    >>> shared_beginning("{{ item }} of {{ inputs.name }}"), shared_beginning("All of {{ inputs.name }}")
    ('', '')
    """
    match = _SHARED.match(source)
    beginning = "" if match is None else match[0]
    return beginning if "inputs" in beginning and beginning != source else ""


_SHARED: Final = re.compile(r"(?:[^{]|\{(?![{%#])|\{\{\s*inputs(?:\.[A-Za-z_]\w*)+\s*\}\})*")
"""Not possessive: Python before 3.11.5 matches the beginning of a tag then."""


def address(source: str) -> Value:
    """An address of the web as a function of the context. A lone `{{ x }}` is a whole one; in any other, values are
    parts of it: percent-encoded, and never empty."""
    if is_static(source) or lone_expression(parse_template(source).tree) is not None:
        return template(source)
    render = compile_encoded(source, _encode_part)
    return lambda context: render(ContextScope(context))


def _encode_part(text: str) -> str:
    if text in ("", ".", ".."):
        raise TemplateError(f"a value in the address is {text!r}, which would lead somewhere else")
    check_text(text, "a value in the address")
    return quote(text, safe="")


def is_static(source: str) -> bool:
    """Tells whether a template has no placeholder."""
    return parse_template(source).is_static


def values(tree: Any) -> Rendering:
    """Any value with templates in its strings, however deep.

    >>> values({"a": ["{{ output }}", 1]})(Context(), "x")
    {'a': ['x', 1]}
    """
    if isinstance(tree, str):
        render = compile_template(tree)
        return lambda context, output=Missing, /: copy_mutable(render(ContextScope(context, output)))
    if isinstance(tree, dict):
        pairs = {key: values(each) for key, each in cast(dict[str, Any], tree).items()}
        return lambda context, output=Missing, /: {key: each(context, output) for key, each in pairs.items()}
    if isinstance(tree, list | tuple):
        parts = [values(each) for each in cast(list[Any], tree)]
        return lambda context, output=Missing, /: [each(context, output) for each in parts]
    return lambda context, output=Missing, /: tree


# --- What is said of the names (rule 9 of the flow format)

ENGINE_KEYS: Final = ("_last_prompt", "_last_generation")
"""State keys that the engine writes."""
EACH: Final = ("index", "total")
"""Fields of `each`."""
ROUND: Final = ("index", "last")
"""Fields of `round` beside the loop's variables."""
LOOP_OUTPUT: Final = ("iterations", "exhausted")
"""Fields of a loop's output beside its variables."""

KNOWN_EVERYWHERE: Final = tuple(name for name in _NAMES if name != "result")
"""Names that every text knows."""
DESCRIBED: Final[Mapping[str, tuple[str, str]]] = {
    "inputs.<id>": ("everywhere", "What the run, or the subflow, was given."),
    "shared_state.<key>": (
        "everywhere",
        "What this node's ancestors wrote; also `_last_prompt` and `_last_generation`, which the engine writes.",
    ),
    "nodes.<id>.output": ("everywhere", "What a node gave; of a skipped node it is undefined and counts as false."),
    "nodes.<id>.result": ("everywhere", "The same with what belongs to it: an agent's `LLMResult`, else the output."),
    "nodes.<id>.status": ("everywhere", "`succeeded`, `failed` or `skipped`."),
    "nodes.<id>.error": ("everywhere", "The message of a failure that was handled; else none."),
    "result": ("a node's texts", "What the predecessor gave; in a map's first nodes the item."),
    "output": ("`set`", "What the node itself gave."),
    "routing_result": ("everywhere", "The nearest route that an ancestor chose; an error where choosing it failed."),
    "evaluation_result": ("everywhere", "The nearest evaluation among the ancestors; an error where it failed."),
    "prev_outputs.<id>": ("everywhere", "The output of an ancestor, by its id."),
    "item": ("a map's body", "The item; `as` gives it another name."),
    "each.index, each.total": ("a map's body", "Place of the item, counted from 0, and number of the items."),
    "results": ("a map's `until`", "The results so far, in the order of the items."),
    "round.<variable>": ("a loop's body", "A variable as this round began with it."),
    "round.index, round.last": ("a loop's body", "Number of the round, counted from 0, and whether it is the last."),
    "run.id": ("everywhere", "The run's id."),
    "env.<NAME>": ("everywhere", "A variable of the environment that the project file allows (`allow_env`)."),
}
"""Name → where texts know it, and what it is. A literal id or key stands for what is in angle brackets."""

WORDS: Final = ("true", "false", "none", "not", "and", "or", "in", "is", "if", "else", "loop", "range")
"""Words that a template reads as something else than a name."""
RESERVED: Final = frozenset({*KNOWN_EVERYWHERE, *WORDS, "result", "output", "each", "round"})
"""Names that an item may not have."""
