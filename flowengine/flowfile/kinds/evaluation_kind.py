"""The kind `evaluation`: a model, or a function, gives a score."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field, model_validator

from flowengine.core import TRAITS
from flowengine.flowfile.compile import template, values
from flowengine.flowfile.schema import (
    EVALUATION,
    AgentRef,
    CodePath,
    Criteria,
    ListOf,
    Maybe,
    ModelSettings,
    NodeCompiler,
    NodeKind,
    OwnRoute,
    Prompt,
    Routes,
    Score,
    Shape,
    Template,
    WorkKeys,
    refuse,
    routes_to,
)

if TYPE_CHECKING:
    from flowengine.nodes import FlowNode


class EvaluationNodeSpec(WorkKeys, ModelSettings):
    """A model, or a function, gives a score."""

    type: Literal["evaluation"]
    """Kind of the node."""
    instructions: Maybe[Prompt] = None
    """How to judge."""
    criteria: Criteria = Field(default_factory=dict[str, str])
    """Criterion → what it asks for. Without any: accuracy, relevance and completeness."""
    threshold: Maybe[Score] = None
    """The score from which on the target passes."""
    target: Maybe[Template] = None
    """The text to judge; left out: the last generation."""
    attach: ListOf[Template] = ()
    """Files that the model sees with it: images, PDF, sound as such, text files as text."""
    routes: Maybe[Routes] = None
    """The targets of `pass` and `fail`; one that is left out leads nowhere."""
    call: Maybe[CodePath] = None
    """A scorer in code, instead of a model."""
    agent: Maybe[AgentRef] = None
    """The agent that gives the model and its settings, if the node does not."""

    @model_validator(mode="after")
    def _passes_or_fails(self) -> EvaluationNodeSpec:
        for label in self.routes or ():
            if label not in ("pass", "fail"):
                raise refuse(
                    "FE201", f"an evaluation's routes are 'pass' and 'fail', found '{label}'", at=("routes", label)
                )
        if self.call is not None:
            keys = [key for key in _OF_A_MODEL if getattr(self, key)]
            if keys:
                raise refuse("FE209", f"'call' scores in code, so nothing would read '{keys[0]}'", at=keys[0])
        return self

    def own_routes(self) -> list[OwnRoute]:
        routes = self.routes or {}
        left_out = [OwnRoute(label, None, ()) for label in ("pass", "fail") if label not in routes]
        return routes_to(routes) + left_out

    def output_shape(self) -> Shape:
        return EVALUATION


_OF_A_MODEL: Final = ("instructions", "criteria", "attach", "agent", *ModelSettings.model_fields)


def make(node: EvaluationNodeSpec, settings: dict[str, Any], compiler: NodeCompiler) -> FlowNode:
    from flowengine.nodes import EvaluationNode

    routes = node.routes or {}
    common_settings: dict[str, Any] = {
        "passes": routes["pass"].to if "pass" in routes else None,
        "fails": routes["fail"].to if "fail" in routes else None,
        "target": None if node.target is None else template(node.target),
        **settings,
    }
    if node.call is not None:
        scorer = compiler.import_callable(node.call)
        return EvaluationNode(
            scorer=scorer, threshold=0.7 if node.threshold is None else node.threshold, **common_settings
        )
    return EvaluationNode(compiler.judge(node), attach=values(node.attach) if node.attach else None, **common_settings)


KIND: Final = NodeKind(EvaluationNodeSpec, make, TRAITS["evaluation"])
