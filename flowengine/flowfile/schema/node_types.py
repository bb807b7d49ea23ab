"""What a flow file may say about a node, one model a node type; those with nodes inside are in `schema_containers`.

Data only: which edges follow from it is the matter of `references`, whether the names in it exist
that of the checks, and what runs that of the builder.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from flowengine.flowfile.analysis.shapes import is_map
from flowengine.flowfile.schema.agent_settings import AgentRef, AgentSettings, JsonSchema, ModelSettings
from flowengine.flowfile.schema.fields import (
    CodePath,
    Duration,
    Expression,
    Identifier,
    Keys,
    ListOf,
    Maybe,
    NodeId,
    Plain,
    Prompt,
    Rendered,
    Routes,
    Score,
    Target,
    Template,
    Values,
    refuse,
    without_notes,
)
from flowengine.flowfile.schema.keys import BoundedKeys, NodeKeys, OwnRoute, WorkKeys, routes_to
from flowengine.flowfile.schema.output_shapes import EVALUATION, ROUTING, TEXT, Shape, object_shape
from flowengine.flowfile.schema.packaged_kinds import TAG, PackagedNodeSpec, find_kinds, read_packaged

__all__ = [
    "NODE_TYPES",
    "AgentNodeSpec",
    "ApprovalNodeSpec",
    "BodyKeys",
    "CaseSpec",
    "ConditionNodeSpec",
    "EvaluationNodeSpec",
    "FunctionNodeSpec",
    "LoopNodeSpec",
    "MapNodeSpec",
    "NodeSpec",
    "RoutingNodeSpec",
    "SubflowNodeSpec",
]

# --- What a flow file may say about the nodes that hold a flow of their own, and about waiting for a person


class BodyKeys(BoundedKeys):
    """What a node with nodes inside may say."""

    nodes: Annotated[dict[Identifier, NodeSpec], BeforeValidator(without_notes)]
    """The nodes of its body, by id."""

    @model_validator(mode="after")
    def _has_nodes(self) -> BodyKeys:
        if not self.nodes:
            raise refuse("FE208", "there is nothing to run in it: give at least one node", at="nodes")
        return self


class MapNodeSpec(BodyKeys):
    """The body runs once for each item of a list; the output is the list of the results, in the order of the items."""

    type: Literal["map"]
    """Kind of the node."""
    over: Expression
    """The list."""
    as_: Identifier = Field(default="item", alias="as")
    """The item's name in the body."""
    concurrency: Maybe[Annotated[int, Field(ge=1, le=10_000)]] = None
    """Items in work at once, at most; left out: as many as the run allows."""
    on_item_error: Literal["fail", "collect", "skip"] = "fail"
    """A failed item fails the map, has `{error, index}` in its place, or is dropped."""
    result: Maybe[Rendered] = None
    """What an item gives; sees the body. Left out: the output of the body's last node, where there is but one."""


class LoopNodeSpec(BodyKeys):
    """The body runs again until it is good enough; the output is the variables of the chosen round. Each round sees the
    shared state that earlier ones wrote, and what every round wrote counts."""

    type: Literal["loop"]
    """Kind of the node."""
    max_iterations: Annotated[int, Field(ge=1, le=10_000)]
    """Rounds, at most."""
    initial: Values = Field(default_factory=dict[str, Any])
    """Variable → its value in the first round, seen there as `round.<variable>`."""
    until: Maybe[Expression] = None
    """Looked at after each round: where it is true, that round was the last and is the chosen one."""
    carry: Values = Field(default_factory=dict[str, Any])
    """Variable → its value in the next round; sees the body."""
    on_exhausted: Literal["fail", "continue"] = "fail"
    """What it means that no round was good enough."""
    best_by: Maybe[Expression] = None
    """A round's mark; of an exhausted loop the round with the highest one is chosen. Left out: the last."""


class SubflowNodeSpec(BoundedKeys):
    """Another flow file runs as one node; the output is that flow's outputs."""

    type: Literal["subflow"]
    """Kind of the node."""
    flow: Plain = Field(min_length=1)
    """Path of the flow file, from this file's folder."""
    with_: Values = Field(default_factory=dict[str, Any], alias="with")
    """Input of that flow → template."""


class ApprovalNodeSpec(NodeKeys):
    """A person decides; the run waits as long as that takes. The output is {choice, comment, by, form}."""

    type: Literal["approval"]
    """Kind of the node."""
    message: Template
    """What the person is asked."""
    form: Maybe[JsonSchema] = None
    """What the person fills in beside the choice: a JSON Schema."""
    routes: Routes
    """Choice → node, {to, description}, or {} for nowhere."""
    expires: Maybe[Duration] = None
    """How long the person has; goes with `on_expire`."""
    on_expire: Maybe[str] = None
    """The choice that is made when nobody made one in time."""

    @model_validator(mode="after")
    def _can_be_answered(self) -> ApprovalNodeSpec:
        if not self.routes:
            raise refuse("FE214", "there is nothing to choose from: give at least one choice", at="routes")
        if (self.expires is None) != (self.on_expire is None):
            given, lacks = ("expires", "on_expire") if self.on_expire is None else ("on_expire", "expires")
            raise refuse("FE202", f"'{given}' goes with '{lacks}', which is missing", at=given)
        if self.on_expire is not None and self.on_expire not in self.routes:
            known = ", ".join(self.routes)
            raise refuse("FE224", f"there is no choice '{self.on_expire}' (there are {known})", at="on_expire")
        return self

    def own_routes(self) -> list[OwnRoute]:
        return routes_to(self.routes)

    def output_shape(self) -> Shape:
        form = self.form or {}
        return object_shape(("choice", "comment", "by", "form"), choice=TEXT, comment=TEXT, by=TEXT, form=form)


class AgentNodeSpec(WorkKeys, AgentSettings):
    """A model is asked; the output is its answer. The type of a node that names none."""

    type: Literal["agent"] = "agent"
    """Kind of the node."""
    agent: Maybe[AgentRef] = None
    """An entry of `agents`, or an agent in place; keys of the node go before it."""
    prompt: Maybe[Prompt] = None
    """The user input. Left out: the predecessor's `result`; in a first node the flow's input."""


class RoutingNodeSpec(WorkKeys, ModelSettings):
    """A model reads the last generation and chooses a route."""

    type: Literal["routing"]
    """Kind of the node."""
    instruction: Prompt
    """How to choose."""
    routes: Routes
    """Label → node, or {to, description}."""
    min_confidence: Maybe[Score] = None
    """Below it the fallback is taken; without a fallback the node fails."""
    fallback: Maybe[NodeId] = None
    """A label, or the id of a node: taken where the answer is none of the routes, or too unsure."""
    target: Maybe[Template] = None
    """The text to route; left out: the last generation."""
    agent: Maybe[AgentRef] = None
    """Where the model and its settings come from, if not from the node."""

    @model_validator(mode="after")
    def _chooses(self) -> RoutingNodeSpec:
        if not self.routes:
            raise refuse("FE214", "there is nothing to choose from: give at least one route", at="routes")
        return self

    def own_routes(self) -> list[OwnRoute]:
        return routes_to(self.routes, self.fallback)

    def output_shape(self) -> Shape:
        return ROUTING


class CaseSpec(Keys):
    """One case: the first whose `if` is true is taken."""

    if_: Expression = Field(alias="if")
    """When this case is taken."""
    then: Target = None
    """Where it leads; left out: nowhere (then it needs a label)."""
    label: Maybe[Annotated[str, Field(min_length=1)]] = None
    """The case's name in pictures and traces; left out: the target's id."""

    @property
    def taken(self) -> str:
        """The label taken."""
        return self.label or self.then or ""

    @model_validator(mode="after")
    def _has_a_name(self) -> CaseSpec:
        if not self.label and not self.then:
            raise refuse("FE202", "a case needs 'then', or a 'label' if it leads nowhere")
        return self


class ConditionNodeSpec(WorkKeys):
    """Chooses a route without a model: `if`, `cases`, or a function."""

    type: Literal["condition"]
    """Kind of the node."""
    if_: Maybe[Expression] = Field(default=None, alias="if")
    """A boolean; goes with `then` and `else`."""
    then: Target = None
    """Where true leads; left out: nowhere."""
    else_: Target = Field(default=None, alias="else")
    """Where false leads, or what no case matches; left out beside `if`: nowhere."""
    cases: Maybe[ListOf[CaseSpec]] = None
    """The first case that is true is taken; none and no `else`: the node fails."""
    call: Maybe[CodePath] = None
    """A function that answers one of the `routes`."""
    routes: Maybe[Routes] = None
    """Value that `call` returns → node."""

    @property
    def form(self) -> Literal["if", "cases", "call"]:
        """Which of the three forms this is."""
        if self.cases is not None:
            return "cases"
        return "if" if self.call is None else "call"

    @property
    def has_else(self) -> bool:
        """Whether `else` is there, be it that it leads nowhere."""
        return "else_" in self.model_fields_set

    @model_validator(mode="after")
    def _one_form(self) -> ConditionNodeSpec:
        forms = [
            key for key, value in (("if", self.if_), ("cases", self.cases), ("call", self.call)) if value is not None
        ]
        if not forms:
            raise refuse("FE202", "a condition needs 'if', 'cases' or 'call'")
        if len(forms) > 1:
            raise refuse("FE209", f"'{forms[0]}' and '{forms[1]}' exclude each other", at=forms[1])
        self._keys_of_the_form(forms[0])
        return self

    def _keys_of_the_form(self, form: str) -> None:
        given = {key for key in ("then", "else", "routes") if key.replace("else", "else_") in self.model_fields_set}
        for key in sorted(given - _KEYS_OF_FORM[form]):
            raise refuse("FE209", f"'{key}' does not go with '{form}'", at=key)
        if form == "call" and not self.routes:
            raise refuse("FE214", "'call' needs 'routes': which answer leads where", at="call")
        if form == "cases" and not self.cases:
            raise refuse("FE214", "there is nothing to choose from: give at least one case", at="cases")

    def own_routes(self) -> list[OwnRoute]:
        otherwise = OwnRoute("else", self.else_, ("else",))
        if self.form == "if":
            return [OwnRoute("then", self.then, ("then",)), otherwise]
        if self.form == "call":
            found = routes_to(self.routes or {})
        else:
            cases = enumerate(self.cases or ())
            found = [OwnRoute(case.taken, case.then, ("cases", number, "then")) for number, case in cases]
        return [*found, otherwise] if self.has_else else found

    def output_shape(self) -> Shape:
        return TEXT


_KEYS_OF_FORM: Final = {"if": {"then", "else"}, "cases": {"else"}, "call": {"routes", "else"}}


class EvaluationNodeSpec(WorkKeys, ModelSettings):
    """A model, or a function, gives a score."""

    type: Literal["evaluation"]
    """Kind of the node."""
    instructions: Maybe[Prompt] = None
    """How to judge."""
    criteria: dict[str, Plain] = Field(default_factory=dict[str, str])
    """Criterion → what it asks for. Without any: accuracy, relevance and completeness."""
    threshold: Maybe[Score] = None
    """The score from which on the target passes."""
    target: Maybe[Template] = None
    """The text to judge; left out: the last generation."""
    routes: Maybe[Routes] = None
    """Where `pass` and `fail` lead; one that is left out leads nowhere."""
    call: Maybe[CodePath] = None
    """A scorer in code, instead of a model."""
    agent: Maybe[AgentRef] = None
    """Where the model and its settings come from, if not from the node."""

    @model_validator(mode="after")
    def _passes_or_fails(self) -> EvaluationNodeSpec:
        for label in self.routes or ():
            if label not in ("pass", "fail"):
                raise refuse(
                    "FE201", f"an evaluation's routes are 'pass' and 'fail', found '{label}'", at=("routes", label)
                )
        if self.call is not None:
            given = [key for key in _OF_A_MODEL if getattr(self, key)]
            if given:
                raise refuse("FE209", f"'call' scores in code, so nothing would read '{given[0]}'", at=given[0])
        return self

    def own_routes(self) -> list[OwnRoute]:
        routes = self.routes or {}
        left_out = [OwnRoute(label, None, ()) for label in ("pass", "fail") if label not in routes]
        return routes_to(routes) + left_out

    def output_shape(self) -> Shape:
        return EVALUATION


_OF_A_MODEL: Final = ("instructions", "criteria", "agent", *ModelSettings.model_fields)


class FunctionNodeSpec(WorkKeys):
    """A function of the project is called; the output is what it returns."""

    type: Literal["function"]
    """Kind of the node."""
    call: CodePath
    """`module:function`."""
    with_: Values = Field(default_factory=dict[str, Any], alias="with")
    """Argument → template."""


NODE_TYPES: Final = {
    "agent": AgentNodeSpec,
    "routing": RoutingNodeSpec,
    "condition": ConditionNodeSpec,
    "evaluation": EvaluationNodeSpec,
    "function": FunctionNodeSpec,
    "map": MapNodeSpec,
    "loop": LoopNodeSpec,
    "subflow": SubflowNodeSpec,
    "approval": ApprovalNodeSpec,
}
"""`type` → what a node of it may say."""


def _type_of(value: Any) -> str | None:
    if is_map(value):
        kind = value.get("type", "agent")
        return TAG if isinstance(kind, str) and kind not in NODE_TYPES and kind in find_kinds() else f"<{kind}>"
    if isinstance(value, PackagedNodeSpec):
        return TAG
    return f"<{value.type}>" if isinstance(value, tuple(NODE_TYPES.values())) else None


NodeSpec = Annotated[
    Annotated[AgentNodeSpec, Tag("<agent>")]
    | Annotated[RoutingNodeSpec, Tag("<routing>")]
    | Annotated[ConditionNodeSpec, Tag("<condition>")]
    | Annotated[EvaluationNodeSpec, Tag("<evaluation>")]
    | Annotated[FunctionNodeSpec, Tag("<function>")]
    | Annotated[MapNodeSpec, Tag("<map>")]
    | Annotated[LoopNodeSpec, Tag("<loop>")]
    | Annotated[SubflowNodeSpec, Tag("<subflow>")]
    | Annotated[ApprovalNodeSpec, Tag("<approval>")]
    | Annotated[PackagedNodeSpec, BeforeValidator(read_packaged), Tag(TAG)],
    Discriminator(_type_of),
]
"""A node of any type."""

for _holder in (MapNodeSpec, LoopNodeSpec):
    _holder.model_rebuild(_types_namespace={"NodeSpec": NodeSpec})  # Their bodies hold nodes of any type.
