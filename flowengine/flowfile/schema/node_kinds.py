"""Registers node kinds: what a flow file may say of a node of each, and how the node is made. `type` → a `NodeKind`.

Ours stand in `flowfile/kinds`, one file each; other packages bring theirs under the entry point group
`flowengine.nodes`. A kind is imported when a file has a node of it. What a file says wrong of it has a line and column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol, TypeAlias, cast

from pydantic import BeforeValidator, PlainValidator, SerializeAsAny, ValidationError, WithJsonSchema, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError, PydanticKnownError

from flowengine.core import SHAPES, TRAITS, NodeTraits, find_packaged_kinds, is_map, load_entry_point, package_of
from flowengine.errors import DefinitionError, did_you_mean
from flowengine.flowfile.schema.fields import Identifier, refuse, without_notes
from flowengine.flowfile.schema.keys import BoundedKeys, NodeKeys

if TYPE_CHECKING:
    from pathlib import Path

    from flowengine.agents import Agent, EvaluationAgent, RoutingAgent
    from flowengine.agents.tools import Tool
    from flowengine.agents.tools.mcp import ServerTool
    from flowengine.flowfile.schema.agent_settings import AgentRouting
    from flowengine.nodes import CompiledFlow, FlowNode, Sender, Templated

    ToolTarget: TypeAlias = Tool | ServerTool | Callable[..., Any]


class NodeCompiler(Protocol):
    """The services available to a kind while it makes a node: code of the project, its body, its agent."""

    def import_callable(self, target: str, /) -> Callable[..., Any]:
        """The function of `module:function`, where the project allows it."""
        ...

    def tool(self, target: str, /) -> ToolTarget:
        """The tool of `server.tool` or `module:function`, where the project allows it."""
        ...

    @property
    def root(self) -> Path:
        """The project's folder."""
        ...

    @property
    def approve_external(self) -> bool:
        """Whether the project has people asked before calls of external tools."""
        ...

    def http_sender(self) -> Sender:
        """Sends requests to where the project allows it."""
        ...

    def body(self) -> dict[str, FlowNode]:
        """The nodes inside the node."""
        ...

    def subflow(self, flow: str, /) -> CompiledFlow:
        """The plan of another file that the flow names."""
        ...

    def is_repeated(self) -> bool:
        """Tells whether the node stands inside a map or a loop."""
        ...

    def agent(self, node: Any, /) -> Agent | Templated[Agent]:
        """The agent of a node that generates."""
        ...

    def routing_agent(self, node: Any, /) -> RoutingAgent | Templated[RoutingAgent]: ...
    def judge(self, node: Any, /) -> EvaluationAgent | Templated[EvaluationAgent]: ...
    def routing_of(self, node: Any, /) -> AgentRouting | None:
        """Returns the routing settings of the node's agent."""
        ...


@dataclass(frozen=True)
class NodeKind:
    """A kind of node."""

    spec: type[NodeKeys]
    """The keys that a file may give it; its `own_routes` and `output_shape` say what follows from them."""
    make: Callable[[Any, dict[str, Any], NodeCompiler], FlowNode]
    """Takes what the file says, the settings of every node, and what it may ask for; makes the node."""
    traits: NodeTraits = TRAITS["function"]


def node_types() -> list[str]:
    """The types that a node may have. Nothing is imported."""
    return [*TRAITS, *find_packaged_kinds()]


def kind_of(name: str) -> NodeKind:
    """The kind of a type, imported. A `DefinitionError` says why a package's kind cannot be had."""
    if name in TRAITS:
        return import_module(f"flowengine.flowfile.kinds.{name}_kind").KIND
    point = find_packaged_kinds()[name]
    kind: object = load_entry_point(point, f"the node type '{name}'")
    subject = f"the node type '{name}' of the package '{package_of(point)}'"
    if not isinstance(kind, NodeKind):
        raise DefinitionError(f"{subject} is no NodeKind, but {type(kind).__name__}")
    if (shape := kind.traits.shape) not in SHAPES:
        raise DefinitionError(f"{subject} has the unknown shape '{shape}'{did_you_mean(shape, SHAPES)}")
    return kind


def spec_of(name: str) -> type[NodeKeys]:
    """Returns the spec class of a node type."""
    return kind_of(name).spec


def _read_node(value: Any) -> NodeKeys:
    """Validates a node by its `type`."""
    if isinstance(value, NodeKeys):
        return value
    if not is_map(value):
        raise PydanticKnownError("union_tag_not_found", {"discriminator": "type"})
    name = value.get("type", "agent")
    if not isinstance(name, str) or (name not in TRAITS and name not in find_packaged_kinds()):
        raise PydanticKnownError(
            "union_tag_invalid", {"discriminator": "type", "tag": str(name), "expected_tags": ", ".join(TRAITS)}
        )
    try:
        spec = spec_of(name)
    except DefinitionError as error:
        raise refuse("FE204", str(error), path=("type",)) from error
    try:
        return spec.model_validate(value)
    except ValidationError as error:
        problems = [_place_problem(name, cast("Mapping[str, Any]", each)) for each in error.errors(include_url=False)]
        raise ValidationError.from_exception_data(name, problems) from error


def _place_problem(name: str, problem: Mapping[str, Any]) -> InitErrorDetails:
    """A problem of a node, with the node's type in front of its place."""
    context, kind = problem.get("ctx", {}), problem["type"]
    kind_of_error = PydanticCustomError(kind, "{text}", context) if kind.startswith("FE") else kind
    return InitErrorDetails(type=kind_of_error, loc=(f"<{name}>", *problem["loc"]), input=problem["input"], ctx=context)


NodeSpec = Annotated[SerializeAsAny[NodeKeys], PlainValidator(_read_node), WithJsonSchema({})]
"""A node of any kind."""


class BodyKeys(BoundedKeys):
    """Keys of nodes with a body."""

    nodes: Annotated[dict[Identifier, NodeSpec], BeforeValidator(without_notes)]
    """The nodes of its body, by id."""

    after_body: ClassVar[frozenset[str]] = frozenset()
    """Keys whose texts are read when the body is done, and see its nodes."""

    @model_validator(mode="after")
    def _has_nodes(self) -> BodyKeys:
        if not self.nodes:
            raise refuse("FE208", "there is nothing to run in it: give at least one node", at="nodes")
        return self

    def names_inside(self) -> tuple[str, ...]:
        """Returns the names that its body's texts know in addition to those outside."""
        return ()

    def most_rounds(self) -> int | None:
        """Returns the maximum number of runs of its body; None if unknown."""
        return None
