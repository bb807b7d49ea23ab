"""Which names texts know (rule 9 of the flow format): everywhere, in a map, in a loop, and after a body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from flowengine.spec.levels import Level, NodePath, levels_of
from flowengine.spec.schema import FlowSpec
from flowengine.spec.schema_nodes import LoopNodeSpec, MapNodeSpec
from flowengine.spec.texts import Scope

__all__ = ["DESCRIBED", "EACH", "ENGINE_KEYS", "LOOP_OUTPUT", "RESERVED", "ROUND", "WORDS", "holders_of", "visible"]

ENGINE_KEYS: Final = ("_last_prompt", "_last_generation")
"""State keys that the engine writes."""
EACH: Final = ("index", "total")
"""Fields of `each`."""
ROUND: Final = ("index", "last")
"""Fields of `round` beside the loop's variables."""
LOOP_OUTPUT: Final = ("iterations", "exhausted")
"""Fields of a loop's output beside its variables."""

_EVERYWHERE: Final = (
    "inputs", "shared_state", "nodes", "routing_result", "evaluation_result", "prev_outputs", "run", "env",
)  # fmt: skip
_OF_SCOPE: Final[dict[Scope, tuple[str, ...]]] = {
    "node": ("result",),
    "set": ("result", "output"),
    "end": (),
    "outputs": (),
}
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
    "round.<variable>": ("a loop's body", "A variable as this round began with it."),
    "round.index, round.last": ("a loop's body", "Number of the round, counted from 0, and whether it is the last."),
    "run.id": ("everywhere", "The run's id."),
    "env.<NAME>": ("everywhere", "A variable of the environment that the project file allows (`allow_env`)."),
}
"""Name → where texts know it, and what it is. A literal id or key stands for what is in angle brackets."""

WORDS: Final = ("true", "false", "none", "not", "and", "or", "in", "is", "if", "else", "loop", "range")
"""What a template reads as something else than a name."""
RESERVED: Final = frozenset({*_EVERYWHERE, *WORDS, "result", "output", "each", "round"})
"""What an item may not be called."""


def holders_of(spec: FlowSpec, level: NodePath) -> list[Level]:
    """The bodies that a level is or is inside, the innermost first."""
    levels = levels_of(spec)
    return [levels[level[:depth]] for depth in range(len(level), 0, -1)]


def visible(spec: FlowSpec, level: NodePath, scope: Scope) -> tuple[str, ...]:
    """The names that a text knows which is evaluated inside a level."""
    inside: list[str] = []
    for each in holders_of(spec, level):
        if isinstance(each.holder, MapNodeSpec):
            inside += [each.holder.as_, "each"]
        elif isinstance(each.holder, LoopNodeSpec):
            inside.append("round")
    return tuple(dict.fromkeys((*_EVERYWHERE, *_OF_SCOPE[scope], *inside)))
