"""The kind `condition`: a route is chosen without a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Field, model_validator

from flowengine.core import TRAITS
from flowengine.flowfile.compile import boolean, expression
from flowengine.flowfile.schema import (
    TEXT,
    CodePath,
    Expression,
    Keys,
    ListOf,
    Maybe,
    NodeCompiler,
    NodeKind,
    OwnRoute,
    Routes,
    Shape,
    Target,
    WorkKeys,
    refuse,
    routes_to,
)

if TYPE_CHECKING:
    from flowengine.nodes import FlowNode


class CaseSpec(Keys):
    """One case: the first whose `if` is true is taken."""

    if_: Expression = Field(alias="if")
    """When this case is taken."""
    then: Target = None
    """The node that it leads to; left out: nowhere (then it needs a label)."""
    label: Maybe[Annotated[str, Field(min_length=1)]] = None
    """The case's name in pictures and traces; left out: the target's id."""

    @property
    def route_label(self) -> str:
        """The label of the route."""
        return self.label or self.then or ""

    @model_validator(mode="after")
    def _has_a_name(self) -> CaseSpec:
        if not self.label and not self.then:
            raise refuse("FE202", "a case needs 'then', or a 'label' if it leads nowhere")
        return self


class ConditionNodeSpec(WorkKeys):
    """Chooses a route without a model: `if`, `cases`, `switch`, or a function."""

    type: Literal["condition"]
    """Kind of the node."""
    if_: Maybe[Expression] = Field(default=None, alias="if")
    """A boolean; goes with `then` and `else`."""
    then: Target = None
    """The node that true leads to; left out: nowhere."""
    else_: Target = Field(default=None, alias="else")
    """The node that false leads to, or a value that no case matches; left out beside `if`: nowhere."""
    cases: Maybe[ListOf[CaseSpec]] = None
    """The first case that is true is taken; none and no `else`: the node fails."""
    switch: Maybe[Expression] = None
    """A value that is one of the `routes`: text, a whole number, or a boolean."""
    call: Maybe[CodePath] = None
    """A function that answers one of the `routes`."""
    routes: Maybe[Routes] = None
    """Value of `switch`, or what `call` returns → node."""

    @property
    def form(self) -> Literal["if", "cases", "switch", "call"]:
        """The form of the condition, one of four."""
        if self.cases is not None:
            return "cases"
        return "call" if self.call is not None else "if" if self.switch is None else "switch"

    @property
    def has_else(self) -> bool:
        """Whether `else` is there, be it that it leads nowhere."""
        return "else_" in self.model_fields_set

    @model_validator(mode="after")
    def _one_form(self) -> ConditionNodeSpec:
        values = (("if", self.if_), ("cases", self.cases), ("switch", self.switch), ("call", self.call))
        forms = [key for key, value in values if value is not None]
        if not forms:
            raise refuse("FE202", "a condition needs 'if', 'cases', 'switch' or 'call'")
        if len(forms) > 1:
            raise refuse("FE209", f"'{forms[0]}' and '{forms[1]}' exclude each other", at=forms[1])
        self._keys_of_the_form(forms[0])
        return self

    def _keys_of_the_form(self, form: str) -> None:
        keys = {key for key in ("then", "else", "routes") if key.replace("else", "else_") in self.model_fields_set}
        for key in sorted(keys - _KEYS_OF_FORM[form]):
            raise refuse("FE209", f"'{key}' does not go with '{form}'", at=key)
        if form in ("call", "switch") and not self.routes:
            raise refuse("FE214", f"'{form}' needs 'routes': which answer leads where", at=form)
        if form == "cases" and not self.cases:
            raise refuse("FE214", "there is nothing to choose from: give at least one case", at="cases")

    def own_routes(self) -> list[OwnRoute]:
        otherwise = OwnRoute("else", self.else_, ("else",))
        if self.form == "if":
            return [OwnRoute("then", self.then, ("then",)), otherwise]
        if self.form in ("call", "switch"):
            routes = routes_to(self.routes or {})
        else:
            cases = enumerate(self.cases or ())
            routes = [OwnRoute(case.route_label, case.then, ("cases", number, "then")) for number, case in cases]
        return [*routes, otherwise] if self.has_else else routes

    def output_shape(self) -> Shape:
        return TEXT


_KEYS_OF_FORM: Final = {
    "if": {"then", "else"},
    "cases": {"else"},
    "switch": {"routes", "else"},
    "call": {"routes", "else"},
}


def make(node: ConditionNodeSpec, settings: dict[str, Any], compiler: NodeCompiler) -> FlowNode:
    from flowengine.nodes import CasesNode, ConditionNode, SwitchNode

    if node.cases is not None:
        cases = [(boolean(each.if_), each.route_label, each.then) for each in node.cases]
        return CasesNode(cases, node.else_, has_otherwise=node.has_else, **settings)
    targets = {label: route.to for label, route in (node.routes or {}).items()}
    if node.switch is not None:
        value = expression(node.switch)
        return SwitchNode(node.switch, value, targets, node.else_, has_otherwise=node.has_else, **settings)
    if node.call is not None:
        call = compiler.import_callable(node.call)
        return ConditionNode(call, targets, node.else_, has_otherwise=node.has_else, **settings)
    assert node.if_ is not None  # One of the four forms is there.
    return ConditionNode(boolean(node.if_), node.then, node.else_, **settings)


KIND: Final = NodeKind(ConditionNodeSpec, make, TRAITS["condition"])
