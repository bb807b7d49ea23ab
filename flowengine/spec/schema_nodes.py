"""What a flow file may say about a node, one model a node type.

Data only: which edges follow from it is the matter of `references`, whether the names in it exist
that of the checks, and what runs that of the builder.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from flowengine.spec.fields import (
    CodePath,
    Duration,
    Expression,
    Keys,
    ListOf,
    Maybe,
    NodeId,
    Plain,
    Routes,
    Score,
    Target,
    Template,
    Values,
    found,
    refuse,
)
from flowengine.spec.schema_agent import AgentRef, AgentSettings, ModelSettings
from flowengine.spec.shapes import is_map

__all__ = [
    "NODE_TYPES",
    "AgentNodeSpec",
    "CaseSpec",
    "ConditionNodeSpec",
    "EvaluationNodeSpec",
    "FunctionNodeSpec",
    "NodeKeys",
    "NodeSpec",
    "OnErrorSpec",
    "RetrySpec",
    "RoutingNodeSpec",
]


class RetrySpec(Keys):
    """The node runs again when it fails."""

    attempts: Annotated[int, Field(ge=1, le=100)] = 3
    """Runs of the node, the first included."""
    backoff: Literal["fixed", "exponential"] = "exponential"
    """How the wait between two attempts grows."""
    initial: Duration = 1.0
    """The first wait."""
    max: Duration = 60.0
    """The longest wait."""
    jitter: bool = True
    """Shorten each wait at random, so that many nodes do not come back at once."""
    on: ListOf[Literal["invalid_output", "error"]] = ("invalid_output", "error")
    """What is worth another attempt: an output that does not fit its shape, any other failure."""


class OnErrorSpec(Keys):
    """What a failure of the node means for the run."""

    action: Literal["fail", "skip", "then"]
    """The run fails; the node counts as skipped; another node handles the failure."""
    then: Maybe[NodeId] = None
    """The node that handles the failure."""


def _as_on_error(value: Any) -> Any:
    if value in ("fail", "skip"):
        return {"action": value}
    if is_map(value) and set(value) == {"then"}:
        return {"action": "then", "then": value["then"]}
    raise refuse("FE402", f"expected 'fail', 'skip' or {{then: <node id>}}, found {found(value)}")


OnError = Annotated[OnErrorSpec, BeforeValidator(_as_on_error)]


class NodeKeys(Keys):
    """What every node may say."""

    description: str = ""
    """For readers and pictures."""
    needs: ListOf[NodeId] = ()
    """Nodes that this one waits for, beside those that its templates name."""
    when: Maybe[Expression] = None
    """The node is skipped where this is false."""
    join: Literal["some", "all", "always"] = "some"
    """`some`: no predecessor failed and one succeeded; `all`: every one succeeded; `always`: whatever happened."""
    set: Values = Field(default_factory=dict[str, Any])
    """State key → template; sees this node's `output`."""
    retry: Maybe[RetrySpec] = None
    """Run the node again when it fails."""
    timeout: Maybe[Duration] = None
    """Time for one attempt."""
    on_error: OnError = OnErrorSpec(action="fail")
    """What a failure means: `fail`, `skip`, or `{then: <node id>}`."""


class AgentNodeSpec(NodeKeys, AgentSettings):
    """A model is asked; the output is its answer. The type of a node that names none."""

    type: Literal["agent"] = "agent"
    """Kind of the node."""
    agent: Maybe[AgentRef] = None
    """An entry of `agents`, or an agent in place; keys of the node go before it."""
    prompt: Maybe[Template] = None
    """The user input. Left out: the predecessor's `result`; in a first node the flow's input."""


class RoutingNodeSpec(NodeKeys, ModelSettings):
    """A model reads the last generation and chooses a route."""

    type: Literal["routing"]
    """Kind of the node."""
    instruction: Template
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


class ConditionNodeSpec(NodeKeys):
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


class EvaluationNodeSpec(NodeKeys, ModelSettings):
    """A model, or a function, gives a score."""

    type: Literal["evaluation"]
    """Kind of the node."""
    instructions: Maybe[Template] = None
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


class FunctionNodeSpec(NodeKeys):
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
    | Annotated[FunctionNodeSpec, Tag("<function>")],
    Discriminator(_type_of),
]
"""A node of any type."""
