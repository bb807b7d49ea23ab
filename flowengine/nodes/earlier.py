"""Results of an earlier run that still hold: for a run that pays only for what was changed since.

Theory of operation:

1. A node keeps its result where its definition, the code that it calls and everything that it sees are
   what they were. What it sees is the run's inputs and what its ancestors left; an ancestor that ran again
   and left the same changes nothing.
2. Where something that it sees has changed, its inputs are compared as they are rendered: the arguments
   of a function, the message of an approval. A function that is handed the whole context has no other
   inputs than that.
3. An agent is asked for its first request; if that is the one of the earlier run, so is its result.
4. Inside loops and maps that did not stay as they were, agents are compared by their first request, and
   functions run again.

Pure: it reads two walks. Who wraps nodes in it is `reuse`'s matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from flowengine.context import EMPTY, Context, EvaluationResult, NodeResult, RoutingResult
from flowengine.engine.events import Event, NodeFinished, NodeRecorded, NodeStarted, RunResumed, RunStarted
from flowengine.engine.restoring import History
from flowengine.engine.state import StateStore
from flowengine.engine.view import NodeContext
from flowengine.engine.walk import Walk
from flowengine.errors import InputError, StoreCorruptError
from flowengine.nodes.approval import ApprovalNode
from flowengine.nodes.container import file_path
from flowengine.nodes.function import FunctionNode
from flowengine.nodes.node import FlowNode
from flowengine.nodes.plan import Plan
from flowengine.records import PREPARING, ModelCall

__all__ = ["Earlier"]


class Earlier:
    """One earlier run of a plan, which may have been edited since."""

    def __init__(self, plan: Plan, events: Sequence[Event]) -> None:
        """`InputError` where it is a run of another flow."""
        started = events[0] if events else None
        if not isinstance(started, RunStarted):
            raise StoreCorruptError("the journal does not begin with its start")
        if started.flow != plan.name:
            raise InputError(
                f"run {started.run_id} is one of flow '{started.flow}', not of '{plan.name}': "
                f"nothing of it can be re-used"
            )
        self.run_id = started.run_id
        self._plan = plan
        self._started = started
        self._definitions = _definitions(events)
        self._results: dict[str, NodeResult] = {}
        self._requests: dict[str, str] = {}
        for event in events:
            self._take(event)
        self._walk = Walk(
            plan.graph,
            StateStore(plan.state, started.kept),
            inputs=started.inputs,
            env=started.env,
            run_id=started.run_id,
            history=History(events),
        )
        self._same: dict[int, bool] = {}

    def _take(self, event: Event) -> None:
        match event:
            case NodeStarted(node=node):
                self._requests.pop(node, None)
            case NodeFinished(node=node, result=result):
                self._results[node] = result
            case NodeRecorded(node=node, record=ModelCall(key=key, purpose=purpose)) if purpose not in PREPARING:
                self._requests.setdefault(node, key)
            case _:
                pass

    def result(self, path: str) -> NodeResult | None:
        """What a node gave then, if it is defined now as it was, with all that is inside it."""
        return self._results.get(path) if self._is_defined_alike(file_path(path)) else None

    def request(self, path: str) -> str | None:
        """Key of the first request that a node made then."""
        return self._requests.get(path)

    def saw_the_same(self, context: NodeContext, node: FlowNode) -> bool:
        """Whether everything that a node sees now is what it saw then, or at least all that it uses."""
        walk, number = context.walk, context.number
        if walk.outer is not None or walk.prefix:
            return False
        if self._views_are_alike(walk, number):
            return True
        return self._inputs_are_alike(context, NodeContext(self._walk, number, _NOBODY), node)

    def _is_defined_alike(self, path: str) -> bool:
        now = {**self._plan.fingerprints, **_marked(self._plan.code)}
        inside = f"{path}."
        names = [path, _mark(path)]
        names += [each for each in now if each.startswith(inside)] if path in self._containers else []
        return all(self._definitions.get(each) == now.get(each) for each in names)

    @cached_property
    def _containers(self) -> frozenset[str]:
        return frozenset(path.rpartition(".")[0] for path in self._plan.fingerprints)

    # --- what a node sees

    def _views_are_alike(self, walk: Walk, number: int) -> bool:
        """All ancestors left what they left then. Asked in topological order mostly, so each is looked at once."""
        if walk.inputs != self._started.inputs or walk.env != self._started.env:
            return False
        todo = [number]
        while todo:
            at = todo[-1]
            unknown = [each for each in walk.graph.parents[at] if each not in self._same]
            if unknown:
                todo.extend(unknown)
                continue
            todo.pop()
            if at != number:
                self._same[at] = self._left_the_same(walk, at)
        return all(self._same[each] for each in walk.graph.parents[number])

    def _left_the_same(self, walk: Walk, number: int) -> bool:
        """Its ancestors did, and so did it."""
        then = self._walk
        if not all(self._same[each] for each in walk.graph.parents[number]):
            # What it left may be the same, but then its descendants still see ancestors that are not.
            return False
        if walk.status_of(number) != then.status_of(number):
            return False
        now, before = walk.result_of(number), then.result_of(number)
        return now is before or (now is not None and before is not None and _bare(now) == _bare(before))

    def _inputs_are_alike(self, now: Context, then: Context, node: FlowNode) -> bool:
        try:
            if isinstance(node, FunctionNode) and node.arguments is not None and not node.wants_context:
                return node.given(now) == node.given(then)
            if isinstance(node, ApprovalNode):
                return node.message(now) == node.message(then)
        except Exception:  # What cannot be rendered fails where the node runs.
            return False
        return False


def _bare(result: NodeResult) -> Sequence[Any]:
    """A result without what is only told about it (how long a call took, and the like)."""
    parts = result._replace(result=None)
    return [_without_metadata(each) for each in parts]


def _without_metadata(value: Any) -> Any:
    if isinstance(value, RoutingResult | EvaluationResult):
        return value.model_copy(update={"metadata": {}})
    return value


def _definitions(events: Sequence[Event]) -> Mapping[str, str]:
    """Of the flow as the run last went on with it; code beside definitions, under names of their own."""
    found: Mapping[str, str] = EMPTY
    code: Mapping[str, str] = EMPTY
    for event in events:
        if isinstance(event, RunStarted):
            found, code = event.fingerprints, event.code
        elif isinstance(event, RunResumed) and event.fingerprints:
            found = event.fingerprints
    return {**found, **_marked(code)}


def _marked(code: Mapping[str, str]) -> dict[str, str]:
    return {_mark(path): digest for path, digest in code.items()}


def _mark(path: str) -> str:
    return f"{path} ()"


class _Nobody:
    """Who listens to nodes of a run that is over."""

    scope = None
    ledger = None

    def note_of(self, node: str, /) -> Any:
        raise AssertionError("no node runs here")

    def tell_of(self, node: str, /) -> None:
        return None


_NOBODY: Final = _Nobody()
