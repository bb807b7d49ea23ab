"""Declares the whole flow file as frozen data: `FlowSpec` and the parts of its top level.

One set of models is the source of the loader, of the JSON Schema that editors use, and of the
reference. Structure only: whether a name that is used exists is for the checks.

Source: the flow format, version 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast, get_args

from pydantic import BeforeValidator, Field, PrivateAttr, model_validator

from flowengine.core import is_json_type, is_media_pattern, is_one_of
from flowengine.flowfile.schema.agent_settings import AgentRef, AgentSpec, JsonSchema, Servers
from flowengine.flowfile.schema.fields import (
    APART,
    Duration,
    Identifier,
    Keys,
    ListOf,
    Maybe,
    Reason,
    Rendered,
    format_found,
    refuse,
    without_notes,
)
from flowengine.flowfile.schema.keys import NodeLimitsSpec, RetrySpec
from flowengine.flowfile.schema.node_kinds import NodeSpec
from flowengine.flowfile.yaml import SourceText

T = TypeVar("T")

JsonType = Literal["string", "number", "integer", "boolean", "array", "object"]
InputType = Literal["string", "number", "integer", "boolean", "array", "object", "file"]
MergeRule = Literal["error", "replace", "append", "union", "sum", "max", "min", "update"]


class InputSpec(Keys):
    """One input of the flow. Without a default it is required."""

    type: Maybe[InputType] = None
    """Its JSON type, or `file`: a file that the run takes in and keeps, with `media_type`, `name` and `size`."""
    default: Any = None
    """The value where none is given; its being there makes the input optional. Of a file: its path."""
    enum: Maybe[list[Any]] = None
    """The values that are allowed."""
    media_types: Maybe[ListOf[str]] = None
    """The media types that a file may have by its content, such as `image/*`; left out: all that the project allows."""
    description: str = ""
    """A description for readers and for forms."""
    schema_: Maybe[JsonSchema] = Field(default=None, alias="schema")
    """A JSON Schema, instead of `type` and `enum`."""
    untrusted: Maybe[bool] = None
    """Whether the text comes from an untrusted source. Default: true for files and what webhooks fill."""

    @property
    def is_untrusted(self) -> bool:
        """Whether the value comes from an untrusted source."""
        return self.type == "file" if self.untrusted is None else self.untrusted

    @property
    def required(self) -> bool:
        """Whether a run must be given this input."""
        return "default" not in self.model_fields_set

    def may_be(self, value: Any) -> bool:
        """Tells whether a value that is given can equal this one; 1 equals 1.0."""
        whole = self.type == "integer" and is_json_type(value, "number") and value == value // 1
        return self.type is None or whole or is_json_type(value, self.type)

    @model_validator(mode="after")
    def _one_description_of_shape(self) -> InputSpec:
        if self.schema_ is not None:
            for key in ("type", "enum"):
                if getattr(self, key) is not None:
                    raise refuse("FE209", f"'schema' says it all; remove '{key}'", at=key)
        elif self.type is None:
            raise refuse("FE202", "an input needs 'type' or 'schema'")
        if self.media_types is not None and self.type != "file":
            raise refuse("FE209", "'media_types' goes with type: file; remove it", at="media_types")
        for number, each in enumerate(self.media_types or ()):
            if not is_media_pattern(each):
                message = f"a media type is like image/png, image/* or */*, found {format_found(each)}"
                raise refuse("FE401", message, at=("media_types", number))
        if self.type == "file":
            if self.enum is not None:
                raise refuse("FE209", "'enum' does not go with files; remove it", at="enum")
            if self.default is not None and not isinstance(self.default, str):
                raise refuse(
                    "FE407", f"the default of a file is its path, found {format_found(self.default)}", at="default"
                )
        elif self.type is not None and self.default is not None and not is_json_type(self.default, self.type):
            raise refuse("FE407", f"the default {format_found(self.default)} is not of type {self.type}", at="default")
        if self.enum is not None and self.default is not None and not is_one_of(self.default, self.enum):
            raise refuse("FE407", f"the default {format_found(self.default)} is not one of 'enum'", at="default")
        if self.enum is not None and self.required and not any(map(self.may_be, self.enum)):
            raise refuse("FE407", f"'enum' has no value of type {self.type}, so none can be given", at="enum")
        return self


_MERGES = {
    "append": ("array",),
    "union": ("array",),
    "sum": ("number", "integer"),
    "max": ("number", "integer", "string"),
    "min": ("number", "integer", "string"),
    "update": ("object",),
}


class StateSpec(Keys):
    """One key of shared state."""

    type: Maybe[JsonType] = None
    """JSON type of its values; left out: any."""
    default: Any = None
    """The value before anybody wrote it."""
    merge: MergeRule = "error"
    """How the writes of nodes without an order meet; `error` refuses them."""
    trust: Maybe[Reason] = None
    """Why untrusted text in it may do what nodes that read it can do."""

    @model_validator(mode="after")
    def _consistent(self) -> StateSpec:
        if self.type is not None and self.default is not None and not is_json_type(self.default, self.type):
            raise refuse("FE407", f"the default {format_found(self.default)} is not of type {self.type}", at="default")
        allowed = _MERGES.get(self.merge)
        if allowed is None:
            return self
        if self.type is not None and self.type not in allowed:
            raise refuse("FE410", f"'{self.merge}' goes with {' or '.join(allowed)}, not with {self.type}", at="merge")
        if self.default is not None and not any(is_json_type(self.default, each) for each in allowed):
            raise refuse(
                "FE407",
                f"'{self.merge}' starts at {' or '.join(allowed)}, not at {format_found(self.default)}",
                at="default",
            )
        return self


class Defaults(Keys):
    """Settings for agent, routing, evaluation, function, tool, http and code nodes that do not say them themselves."""

    agent: Maybe[AgentRef] = None
    """An entry of `agents`, or an agent in place."""
    retry: Maybe[Annotated[RetrySpec, APART]] = None
    """Run a node again when it fails."""
    timeout: Maybe[Duration] = None
    """Time for one attempt of a node."""


class LimitsSpec(NodeLimitsSpec):
    """Bounds of a run."""

    timeout: Maybe[Duration] = None
    """Time for the run."""
    concurrency: Maybe[Annotated[int, Field(ge=1, le=10_000)]] = None
    """Nodes in flight at once, at most, and so many plain functions; left out: no bound, and 256 plain functions."""
    on_failure: Literal["drain", "cancel"] = "drain"
    """After a failure, nodes in flight finish (`drain`) or are stopped (`cancel`)."""


_Map = BeforeValidator(without_notes)


def _as_input(value: Any) -> Any:
    if isinstance(value, str) and value in get_args(InputType):
        raise refuse("FE401", f"expected a map, found {format_found(value)}", hint=f"; did you mean {{type: {value}}}?")
    return value


Inputs = Annotated[dict[Identifier, Annotated[InputSpec, APART, BeforeValidator(_as_input)]], _Map]
States = Annotated[dict[Identifier, Annotated[StateSpec, APART]], _Map]
Agents = Annotated[dict[Identifier, Annotated[AgentSpec, APART]], _Map]
Nodes = Annotated[dict[Identifier, NodeSpec], _Map]
Outputs = Annotated[dict[Identifier, Rendered], _Map]


class FlowSpec(Keys):
    """A flow file."""

    flowengine: Literal["v1"]
    """Version of the format."""
    name: Identifier
    """The flow's name."""
    description: str = ""
    """A description for readers."""
    inputs: Inputs = Field(default_factory=dict[str, InputSpec])
    """The values that a run takes."""
    shared_state: States = Field(default_factory=dict[str, StateSpec])
    """Keys that nodes may write."""
    agents: Agents = Field(default_factory=dict[str, AgentSpec])
    """Agents that several nodes share."""
    mcp_servers: Maybe[Servers] = None
    """MCP servers whose tools nodes of the type `tool` call."""
    defaults: Defaults = Defaults()
    """Settings for nodes that do not say them themselves."""
    limits: LimitsSpec = LimitsSpec()
    """Bounds of a run."""
    nodes: Nodes
    """The nodes, by id."""
    outputs: Outputs = Field(default_factory=dict[str, Any])
    """The values that a run returns: name → template; sees every node."""

    _subflows: dict[str, FlowSpec] = PrivateAttr(default_factory=dict[str, Any])
    _worked_out: dict[str, Any] = PrivateAttr(default_factory=dict[str, Any])
    _source: SourceText = PrivateAttr(default_factory=lambda: SourceText("", None, None))

    @model_validator(mode="after")
    def _has_nodes(self) -> FlowSpec:
        if not self.nodes:
            raise refuse("FE208", "a flow needs at least one node", at="nodes")
        return self

    @property
    def path(self) -> Path | None:
        """The file, as it was given; None for a flow that came as text."""
        return self._source.path

    @property
    def text(self) -> str:
        """The file's text."""
        return self._source.text

    @property
    def source(self) -> SourceText:
        """The text with the place of every key and value."""
        return self._source

    @property
    def subflows(self) -> Mapping[str, FlowSpec]:
        """The flows that this one runs as nodes, loaded and checked with it: path as the file gives it → the flow."""
        return self._subflows

    def remember(self, name: str, make: Callable[[FlowSpec], T]) -> T:
        """Returns a value computed once for this immutable spec."""
        private = cast("dict[str, dict[str, Any]]", self.__pydantic_private__)
        cache = private["_worked_out"]  # By its name pydantic would find it in five times the time.
        if name not in cache:
            cache[name] = make(self)
        return cache[name]

    def with_source(self, source: SourceText) -> FlowSpec:
        """This spec, knowing where its parts stand."""
        self._source = source
        return self

    def with_subflows(self, subflows: Mapping[str, FlowSpec]) -> FlowSpec:
        """This spec, knowing the flows that it runs as nodes."""
        self._subflows = dict(subflows)
        return self

    def position(self, path: str | tuple[str | int, ...]) -> tuple[int, int]:
        """Line and column of the value at a path such as `nodes.pick.routes.x`, or of the nearest part round it.

        A tuple serves where a label has a dot in it.
        """
        return self._source.position(path)
