"""Runs levels: the body of a loop, a map or a subflow, walked inside its node.

A container is a node like any other whose `run` enters levels: each is a walk of its own with the
container's path before its nodes' paths, driven by a scheduler that shares journal, slots and
listeners with the one outside. Which levels are entered, and what they add up to, is the
container's to say; nothing of it is known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import anyio

from flowengine.core import EMPTY, Context, Ledger, NodeResult, freeze, frozen_dict
from flowengine.engine.graph import Graph
from flowengine.engine.ports import CalledOff, Node, Park
from flowengine.engine.restoring import History
from flowengine.engine.result_propagation import NOTHING
from flowengine.engine.scheduler import BodyError, Scheduler
from flowengine.engine.state import ENGINE_OWNED, StateStore, kept_name
from flowengine.engine.view import FinalContext, NodeContext, NodeRuntime
from flowengine.engine.walk import Walk
from flowengine.errors import LimitError, RunError


class LevelBody(NamedTuple):
    """The body that a container runs: a graph, and its nodes in topological order."""

    graph: Graph
    nodes: Sequence[Node]


class Unfinished(Exception):  # noqa: N818 - not an error: the level waits, or was stopped with the run
    """A level ended before its end; `answer` is what its container answers then."""

    def __init__(self, answer: Park | CalledOff) -> None:
        super().__init__()
        self.answer = answer


class Level:
    """One level of a run, from its entry to its end."""

    def __init__(self, walk: Walk, scheduler: Scheduler, outside: Walk) -> None:
        self.walk = walk
        self._scheduler = scheduler
        self._outside = outside

    async def run(self) -> None:
        """Runs it to its end. Raises `BodyError` where a node's failure was not handled, `Unfinished` where it waits
        or was stopped, and the `LimitError` that stopped it."""
        outside, walk, ledger = self._outside, self.walk, self._scheduler.ledger
        outside.inside.add(walk)
        if outside.stopped:
            walk.stop()
        try:
            if ledger is None or ledger.deadline is None:
                await self._scheduler.run_level()
            else:
                await self._run_until(ledger.deadline, ledger)
        finally:
            outside.inside.discard(walk)
        failure = walk.failure()
        if failure is not None:
            raise BodyError(*failure)
        if self._scheduler.limited is not None:
            raise self._scheduler.limited
        if not walk.done:
            raise Unfinished(Park() if walk.waits and not outside.stopped else CalledOff())

    async def _run_until(self, deadline: float, ledger: Ledger) -> None:
        with anyio.move_on_at(deadline) as scope:
            await self._scheduler.run_level()
        if scope.cancel_called and self.walk.is_cut:
            raise timeout_error(ledger)

    def make_context(self, **names: Any) -> FinalContext:
        """Makes the context that is seen once all nodes are settled. `names`: variables that are known only now."""
        if names:
            self.walk.variables = freeze({**self.walk.variables, **names})
        return FinalContext(self.walk)

    def contribution(self) -> Mapping[str, Any]:
        """Returns the writes of all its nodes, as one write, the engine's own keys included."""
        return self.walk.store.contribution(self.walk.final())


def enter_level(
    context: Context,
    body: LevelBody,
    at: str,
    *,
    variables: Mapping[str, Any] = EMPTY,
    received: Any = NOTHING,
    before: Mapping[str, Any] = EMPTY,
    store: StateStore | None = None,
    inputs: Mapping[str, Any] | None = None,
) -> Level:
    """A level inside the node that a context belongs to; what is journaled of it already is done.

    `at` is what follows the node's path in the paths inside (`.`, `[3].`, `.round[2].`). `variables` are frozen
    already. `received`: the `result` of its first nodes. `before`: what earlier levels of the same node wrote, which
    this one sees. With a `store` of its own (a subflow) it sees nothing of what is outside.
    """
    runtime = _runtime_of(context)
    outside, number = runtime.walk, runtime.number
    inherited = outside.variables if store is None else EMPTY
    walk = Walk(
        body.graph,
        outside.store.inside(outside.layer_before(number), before) if store is None else store,
        inputs=outside.inputs if inputs is None else inputs,
        env=outside.env,
        run_id=outside.run_id,
        history=outside.history,
        prefix=f"{outside.path_of(number)}{at}",
        variables=frozen_dict({**inherited, **variables} if inherited else variables),
        received=received,
        outer=(outside, number) if store is None else None,
        container=(outside, number),
    )
    assert isinstance(runtime.listener, Scheduler)  # The listener of every node that runs.
    return Level(walk, runtime.listener.inside(walk, body.nodes, runtime.ledger), outside)


def _runtime_of(context: Context) -> NodeRuntime:
    if not isinstance(context, NodeContext):
        raise RunError("a container runs inside a flow's run only")
    return context.runtime


def timeout_error(ledger: Ledger) -> LimitError:
    """The time of a part of the run is up."""
    message = f"{ledger.of} took longer than its limit of time"
    return LimitError(message, part=ledger.part, on_limit=ledger.on_limit, of=ledger.of, limit="timeout", ledger=ledger)


def history_of(context: Context) -> History:
    """Returns the history that earlier owners of a container's run left behind."""
    return _runtime_of(context).walk.history


def store_of(context: Context) -> StateStore:
    """The store that a container's own state is in."""
    return _runtime_of(context).walk.store


def result_of_level(output: Any, contribution: Mapping[str, Any]) -> NodeResult:
    """A container's result: its output, and what its body wrote as its own write."""
    owned = {key: contribution[key] for key in ENGINE_OWNED if key in contribution}
    values = {name: contribution[key] for key in contribution if (name := kept_name(key)) is not None}
    state = {key: value for key, value in contribution.items() if key not in owned and kept_name(key) is None}
    routing, evaluation, prompt, generation = (owned.get(key) for key in ENGINE_OWNED)
    return NodeResult(
        output,
        state or None,
        routing=routing,
        evaluation=evaluation,
        prompt=prompt,
        generation=generation,
        kept=values or None,
    )
