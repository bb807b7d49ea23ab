"""Kinds of node that installed packages bring, under the entry point group `flowengine.nodes`: `type` → a `NodeKind`.

They are looked for only when a `type` is none of ours. What a file says wrong of such a node has its line and column
as with ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any, Final, cast

from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from flowengine.core.node_traits import TRAITS, NodeTraits
from flowengine.core.packages import find_entry_points, load_entry_point, package_of
from flowengine.errors import DefinitionError
from flowengine.flowfile.schema.fields import refuse
from flowengine.flowfile.schema.keys import WorkKeys

if TYPE_CHECKING:
    from flowengine.nodes.node import FlowNode

__all__ = ["TAG", "NodeKind", "PackagedNodeSpec", "find_kinds", "load_kind", "read_packaged"]

TAG: Final = "<packaged>"
"""Of the branch of packages' kinds, in the places that pydantic names."""
_OURS: Final = frozenset(TRAITS)


class PackagedNodeSpec(WorkKeys):
    """What a flow file may say of a node whose kind a package brings; each kind has a class made from this one."""

    type: str
    """Kind of the node."""


@dataclass(frozen=True)
class NodeKind:
    """A kind of node that a package brings."""

    spec: type[PackagedNodeSpec]
    """What a file may say of it; its `own_routes` and `output_shape` say what follows from that."""
    make: Callable[[Any, Mapping[str, Any]], FlowNode]
    """Takes what the file says and the settings of every node, and makes the node."""
    traits: NodeTraits = TRAITS["function"]


def find_kinds() -> Mapping[str, EntryPoint]:
    """The kinds of packages, by `type`; none takes the name of one of ours. Nothing is imported."""
    return {name: point for name, point in find_entry_points("flowengine.nodes").items() if name not in _OURS}


def load_kind(name: str) -> NodeKind:
    """The kind of a `type`; from now on its traits are known. A `DefinitionError` says what is in the way."""
    point = find_kinds()[name]
    kind: object = load_entry_point(point, f"the node type '{name}'")
    if not isinstance(kind, NodeKind):
        raise DefinitionError(
            f"the node type '{name}' of the package '{package_of(point)}' is no NodeKind, but {type(kind).__name__}"
        )
    TRAITS[name] = kind.traits
    return kind


def read_packaged(value: Any) -> Any:
    """What a file says of a node of a package's kind."""
    if isinstance(value, PackagedNodeSpec):
        return value
    name = cast("Mapping[str, Any]", value)["type"]
    try:
        spec = load_kind(name).spec
    except DefinitionError as error:
        raise refuse("FE204", str(error), path=("type",)) from error
    try:
        return spec.model_validate(value)
    except ValidationError as error:
        problems = [_placed(name, cast("Mapping[str, Any]", each)) for each in error.errors(include_url=False)]
        raise ValidationError.from_exception_data(name, problems) from error


def _placed(name: str, problem: Mapping[str, Any]) -> InitErrorDetails:
    context, kind = problem.get("ctx", {}), problem["type"]
    said = PydanticCustomError(kind, "{text}", context) if kind.startswith("FE") else kind
    return InitErrorDetails(type=said, loc=(f"<{name}>", *problem["loc"]), input=problem["input"], ctx=context)
