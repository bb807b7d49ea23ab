"""Lists every text of a flow file that is rendered, evaluated, or must not have braces: its place and its node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

from pydantic import BaseModel

from flowengine.flowfile.analysis.flow_nodes import NodePath, SpecLevel, key_path, levels_of, nodes_of
from flowengine.flowfile.schema.fields import TextKind, text_fields
from flowengine.flowfile.schema.flow_file import FlowSpec
from flowengine.flowfile.schema.node_kinds import BodyKeys
from flowengine.flowfile.yaml.positions import KeyPath

__all__ = [
    "DESCRIBED",
    "EACH",
    "ENGINE_KEYS",
    "LOOP_OUTPUT",
    "RESERVED",
    "ROUND",
    "WORDS",
    "Scope",
    "Text",
    "holders_of",
    "texts_of",
    "visible",
]

Scope: TypeAlias = Literal["node", "set", "end", "enough", "outputs"]
"""`node`: before the node runs; `set`: after it; `end`: after the body of a map or a loop; `enough`: the same, for
`until` of a map; `outputs`: after all."""


class Text(NamedTuple):
    """One text of the file."""

    path: KeyPath
    text: str
    kind: TextKind
    node: NodePath | None
    """The node that it belongs to; None for shared agents, defaults and outputs."""
    scope: Scope


def texts_of(spec: FlowSpec) -> Iterator[Text]:
    """Every text of the file, level by level."""
    for node_path, node in nodes_of(spec):
        at = key_path(node_path)
        for path, text, kind in _texts(node, at):
            yield Text(path, text, kind, node_path, _scope(node, str(path[len(at)])))
    for name, agent in spec.agents.items():
        for path, text, kind in _texts(agent, ("agents", name)):
            yield Text(path, text, kind, None, "node")
    if isinstance(spec.defaults.agent, BaseModel):
        for path, text, kind in _texts(spec.defaults.agent, ("defaults", "agent")):
            yield Text(path, text, kind, None, "node")
    for name, value in spec.outputs.items():
        for path, text in _strings(value, ("outputs", name)):
            yield Text(path, text, "template", None, "outputs")


def _scope(node: BaseModel, key: str) -> Scope:
    if key == "set":
        return "set"
    if not isinstance(node, BodyKeys) or key not in node.after_body:
        return "node"
    return "enough" if key == "until" and "each" in node.names_inside() else "end"


def _texts(model: BaseModel, path: KeyPath) -> Iterator[tuple[KeyPath, str, TextKind]]:
    """The texts of a model and of the models in it, in the order of its fields; a body's nodes are left out."""
    kinds = text_fields(type(model))
    given = model.model_fields_set
    for name, key, kind in kinds:
        if name in given and not (name == "nodes" and isinstance(model, BodyKeys)):
            value = getattr(model, name)
            if kind is None:
                for inner, at in _models(value, (*path, key)):
                    yield from _texts(inner, at)
            else:
                for at, text in _strings(value, (*path, key)):
                    yield at, text, "template" if kind == "values" else kind


def _models(value: Any, path: KeyPath) -> Iterator[tuple[BaseModel, KeyPath]]:
    if isinstance(value, BaseModel):
        yield value, path
    elif isinstance(value, dict):
        for key, each in cast("dict[str, Any]", value).items():
            yield from _models(each, (*path, key))
    elif isinstance(value, tuple):
        for number, each in enumerate(cast("tuple[Any, ...]", value)):
            yield from _models(each, (*path, number))


def _strings(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, each in cast("dict[str, Any]", value).items():
            yield from _strings(each, (*path, key))
    elif isinstance(value, list | tuple):
        for number, each in enumerate(cast("list[Any]", value)):
            yield from _strings(each, (*path, number))


# --- Which names texts know (rule 9 of the flow format)

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
    "enough": ("results",),
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
    "results": ("a map's `until`", "The results so far, in the order of the items."),
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


def holders_of(spec: FlowSpec, level: NodePath) -> list[SpecLevel]:
    """The bodies that a level is or is inside, the innermost first."""
    levels = levels_of(spec)
    return [levels[level[:depth]] for depth in range(len(level), 0, -1)]


def visible(spec: FlowSpec, level: NodePath, scope: Scope) -> tuple[str, ...]:
    """The names that a text knows which is evaluated inside a level."""
    holders = (each.holder for each in holders_of(spec, level))
    inside = [name for holder in holders if holder is not None for name in holder.names_inside()]
    return tuple(dict.fromkeys((*_EVERYWHERE, *_OF_SCOPE[scope], *inside)))
