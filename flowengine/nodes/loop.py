"""Repeats a body, round after round, until it is good enough. Source of the rules: rule 11."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf, isnan
from typing import Any, ClassVar, Unpack

from flowengine.core import (
    EMPTY,
    USER_CODE,
    Context,
    Decided,
    NodeResult,
    RoundEnded,
    check_arguments,
    describe_value,
    freeze,
    frozen_dict,
)
from flowengine.engine import Ended, Unfinished, enter_level, result_of_level, store_of
from flowengine.errors import LimitError, RunError, TemplateError
from flowengine.nodes.compiled_flow import ContainerNode
from flowengine.nodes.node import FlowNode, NodeSettings, Testable, Value, check_least, work_out


class LoopNode(ContainerNode):
    """Runs its body up to `max_iterations` times; each round has its variables in `round`.

    - `initial`: variable → value in the first round; `carry`: variable → its value in the next one,
      worked out from the body (a variable that is not carried stays).
    - `until`: looked at after each round; true ends the loop with that round.
    - `best_by`: a round's mark, a number. Of a loop that is exhausted the round with the highest mark
      is chosen, the later on a tie; without it the last round.
    - `exhausted_fails`: whether it is a failure that no round was good enough.

    The output is the chosen round's variables with `iterations` and `exhausted`. Each round sees the state
    that earlier rounds wrote, and what every round wrote counts, whichever round is chosen. `round.index`
    counts from 0; `round.last` says that no other can follow.
    """

    kind: ClassVar[str] = "loop"

    def __init__(
        self,
        nodes: Mapping[str, FlowNode],
        *,
        max_iterations: int,
        initial: Mapping[str, Value] = EMPTY,
        until: Callable[[Context], Any] | None = None,
        carry: Mapping[str, Value] = EMPTY,
        best_by: Value | None = None,
        exhausted_fails: bool = True,
        **settings: Unpack[NodeSettings],
    ) -> None:
        super().__init__(nodes, **settings)
        check_arguments(LoopNode.__init__, locals())
        check_least("max_iterations", max_iterations, 1, whole=True)
        self.max_iterations = max_iterations
        self.initial = initial
        self.until = until
        self._test = until.test if isinstance(until, Testable) else None
        self.carry = carry
        self.best_by = best_by
        self.exhausted_fails = exhausted_fails

    @property
    def most(self) -> int:
        return self.max_iterations

    @property
    def evaluates(self) -> bool:
        return any(each.evaluates for each in self.body.graph.vertices)

    @property
    def chooses(self) -> bool:
        return any(each.chooses for each in self.body.graph.vertices)

    async def run(self, context: Context, /) -> Ended:
        records = {record.number: record for record in context.runtime.recorded if type(record) is RoundEnded}
        variables: Mapping[str, Any] = freeze(work_out(self.initial, context))
        wrote: Mapping[str, Any] = EMPTY
        best: RoundEnded | None = None
        for index in range(self.max_iterations):
            names = frozen_dict({**variables, "index": index, "last": index == self.max_iterations - 1})
            level = enter_level(context, self.body, f".round[{index}].", variables={"round": names}, before=wrote)
            try:
                await level.run()
            except Unfinished as end:
                return end.answer
            except LimitError as error:
                if error.on_limit != "partial" or error.part != context.current_node or best is None:
                    raise
                return _result(best, wrote, index, exhausted=True)
            view = level.make_context()
            ended = records.get(index)
            if ended is None:
                test = None if self._test is None else self._test(view)
                ended = self._judge_round(index, variables, view, test)
                if test is not None:
                    context.runtime.note_with_next(Decided("until", "true" if ended.stopped else "false", (test,)))
                await context.runtime.note(ended)
            wrote = store_of(context).following(wrote, level.contribution())
            if ended.stopped:
                return _result(ended, wrote, index + 1, exhausted=False)
            best = self._better(best, ended)
            if self.carry and index + 1 < self.max_iterations:
                variables = freeze({**variables, **work_out(self.carry, view)})
        assert best is not None  # There was at least one round.
        if self.until is not None and self.exhausted_fails:
            raise RunError(f"`until` was not true in any of the {self.max_iterations} rounds")
        return _result(best, wrote, self.max_iterations, exhausted=self.until is not None)

    def _judge_round(
        self, index: int, variables: Mapping[str, Any], view: Context, test: Mapping[str, Any] | None
    ) -> RoundEnded:
        with USER_CODE:
            stopped = test["answer"] if test is not None else self.until is not None and self.until(view)
            mark = None if self.best_by is None else self.best_by(view)
        if not isinstance(stopped, bool):
            raise TemplateError(f"`until` must give true or false, found {describe_value(stopped)}")
        if mark is not None and (isinstance(mark, bool) or not isinstance(mark, int | float)):
            raise TemplateError(f"`best_by` must give a number, found {describe_value(mark)}")
        return RoundEnded(index, variables, stopped, mark)

    def _better(self, best: RoundEnded | None, ended: RoundEnded) -> RoundEnded:
        """The round to be chosen so far; one without a mark is the worst."""
        return best if best is not None and self.best_by is not None and _mark(ended) < _mark(best) else ended


def _result(best: RoundEnded, wrote: Mapping[str, Any], iterations: int, *, exhausted: bool) -> NodeResult:
    return result_of_level({**best.variables, "iterations": iterations, "exhausted": exhausted}, wrote)


def _mark(ended: RoundEnded) -> float:
    return -inf if ended.best is None or isnan(ended.best) else ended.best
