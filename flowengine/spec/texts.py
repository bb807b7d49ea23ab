"""Every text of a flow file that is rendered, evaluated, or must not have braces: where it stands, where it runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

from pydantic import BaseModel

from flowengine.spec.fields import TextKind, text_fields
from flowengine.spec.levels import NodePath, key_path, nodes_of
from flowengine.spec.positions import KeyPath
from flowengine.spec.schema import FlowSpec
from flowengine.spec.schema_containers import BodyKeys

__all__ = ["Scope", "Text", "texts_of"]

Scope: TypeAlias = Literal["node", "set", "end", "outputs"]
"""`node`: before the node runs; `set`: after it; `end`: after the body of a map or a loop; `outputs`: after all."""

_END: Final = frozenset({"until", "carry", "best_by", "result"})
"""What a container's keys say about the end of its body."""


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
    return "end" if key in _END and isinstance(node, BodyKeys) else "node"


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
