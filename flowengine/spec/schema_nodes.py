"""What a flow file may say about a node, one model a node type; those with nodes inside are in `schema_containers`.

Data only: which edges follow from it is the matter of `references`, whether the names in it exist
that of the checks, and what runs that of the builder.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from flowengine.spec.fields import (
    CodePath,
    Expression,
    Keys,
    ListOf,
    Maybe,
    NodeId,
    Plain,
    Prompt,
    Routes,
    Score,
    Target,
    Template,
    Values,
    refuse,
)
from flowengine.spec.schema_agent import AgentRef, AgentSettings, ModelSettings
from flowengine.spec.schema_containers import ApprovalNodeSpec, LoopNodeSpec, MapNodeSpec, SubflowNodeSpec
from flowengine.spec.schema_keys import NodeKeys, OnErrorSpec, RetrySpec, WorkKeys
from flowengine.spec.shapes import is_map

__all__ = [
    "NODE_TYPES",
    "AgentNodeSpec",
    "ApprovalNodeSpec",
    "CaseSpec",
    "ConditionNodeSpec",
    "EvaluationNodeSpec",
    "FunctionNodeSpec",
    "LoopNodeSpec",
    "MapNodeSpec",
    "NodeKeys",
    "NodeSpec",
    "OnErrorSpec",
    "RetrySpec",
    "RoutingNodeSpec",
    "SubflowNodeSpec",
]


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
        return f"<{value.get('type', 'agent')}>"
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
    | Annotated[ApprovalNodeSpec, Tag("<approval>")],
    Discriminator(_type_of),
]
"""A node of any type."""

for _holder in (MapNodeSpec, LoopNodeSpec):
    _holder.model_rebuild(_types_namespace={"NodeSpec": NodeSpec})  # Their bodies hold nodes of any type.
