"""Which names texts know (rule 9 of the flow format): everywhere, in a map, in a loop, and after a body."""

from __future__ import annotations

from typing import Final

from flowengine.spec.levels import Level, NodePath, levels_of
from flowengine.spec.schema import FlowSpec
from flowengine.spec.schema_nodes import LoopNodeSpec, MapNodeSpec
from flowengine.spec.texts import Scope

__all__ = ["EACH", "ENGINE_KEYS", "LOOP_OUTPUT", "RESERVED", "ROUND", "holders_of", "visible"]

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
_WORDS: Final = ("true", "false", "none", "not", "and", "or", "in", "is", "if", "else", "loop", "range")
"""What a template reads as something else than a name."""
RESERVED: Final = frozenset({*_EVERYWHERE, *_WORDS, "result", "output", "each", "round"})
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
