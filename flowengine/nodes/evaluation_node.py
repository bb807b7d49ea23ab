"""Scores a text as a node, by an agent that judges or by code; passing is computed from the threshold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import isawaitable
from typing import Any, ClassVar, Unpack

from flowengine.agents import EvaluationAgent, check_share
from flowengine.core import USER_CODE, Context, Decided, EvaluationResult, NodeResult, check_arguments
from flowengine.errors import DefinitionError, OutputError
from flowengine.nodes.asking_node import AskingNode, Templated, identify_judge, prototype_of, subject_of_node
from flowengine.nodes.code_digest import digest_handed
from flowengine.nodes.gateway import asking_gateway_of
from flowengine.nodes.node import NodeSettings, Value


class EvaluationNode(AskingNode):
    """Scores the last generation (or `target`) with an evaluation agent or a scorer in code.

    `judge` is an agent (or makes one from the context); `scorer(content) -> float | EvaluationResult`
    is code, sync or async. `passes` and `fails` are the nodes of its two routes.
    """

    kind: ClassVar[str] = "evaluation"
    sees_all = False

    def __init__(
        self,
        judge: EvaluationAgent | Templated[EvaluationAgent] | None = None,
        *,
        scorer: Callable[[Any], Any] | None = None,
        threshold: float = 0.7,
        passes: str | None = None,
        fails: str | None = None,
        target: Value | None = None,
        attach: Value | None = None,
        **settings: Unpack[NodeSettings],
    ) -> None:
        """Give `judge` or `scorer`; `threshold` is for a scorer in code. `settings`: see `FlowNode`."""
        check_arguments(EvaluationNode.__init__, locals())
        super().__init__(**settings)
        if (judge is None) == (scorer is None):
            raise DefinitionError("an evaluation node takes either a judge (an agent) or a scorer (code)")
        self.judge = judge
        self.scorer = scorer
        self.threshold = check_share("threshold", threshold)
        self.target = target
        self.attach = attach
        self._routes = {"pass": passes, "fail": fails}

    @property
    def prototype(self) -> EvaluationAgent | None:
        return None if self.judge is None else prototype_of(self.judge)

    @property
    def evaluates(self) -> bool:
        return True

    async def _ask(self, context: Context) -> NodeResult:
        digest = None
        if self.scorer is not None:
            with USER_CODE:
                handed = self.handed(context)
                digest = digest_handed(context, handed)
                answer = self.scorer(handed["content"])
                answer = await answer if isawaitable(answer) else answer
            evaluation = _score_of(answer, handed["content"], self.threshold)
        else:
            assert self.judge is not None  # There is no scorer.
            with USER_CODE:
                judge = self.judge if isinstance(self.judge, EvaluationAgent) else self.judge(context)
                subject = subject_of_node(context, self.target, self.attach)
            evaluation = await judge.evaluate(subject, asking_gateway_of(context))
        route = "pass" if evaluation.passed else "fail"
        context.runtime.note_with_next(Decided("evaluation", route, (self._explain(evaluation),), tuple(self._routes)))
        return NodeResult(output=evaluation, evaluation=evaluation, route=route, given=digest)

    def _explain(self, evaluation: EvaluationResult) -> Mapping[str, Any]:
        threshold = self.threshold if self.prototype is None else self.prototype.pass_threshold
        values = {"score": f"{evaluation.score:g}"}
        return {"expression": f"score >= {threshold:g}", "values": values, "answer": evaluation.passed}

    def handed(self, context: Context) -> Mapping[str, Any]:
        return {"content": subject_of_node(context, self.target).content}

    @property
    def code(self) -> Sequence[Any]:
        return () if self.scorer is None else (self.scorer,)

    def identity(self) -> Sequence[Any]:
        return (self.threshold, identify_judge(self.prototype), self.target, self.attach)


def _score_of(answer: Any, content: Any, threshold: float) -> EvaluationResult:
    if isinstance(answer, EvaluationResult):
        return answer
    if isinstance(answer, int | float) and not isinstance(answer, bool) and 0.0 <= answer <= 1.0:
        return EvaluationResult(content=content, score=answer, passed=answer >= threshold)
    raise OutputError(f"a scorer returns a number from 0.0 to 1.0 or an EvaluationResult, found {answer!r:.60}")
