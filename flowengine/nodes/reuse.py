"""Nodes that take a result which is known already in the place of running: of an earlier run, or of the cache.

Each is a wrapper with the shape of the node that it wraps, put round the nodes of a plan for one run.
Whether a result still holds is decided by `earlier`; what the key of a cached one is made of, here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from flowengine.context import Context, NodeResult
from flowengine.engine.ports import Ended, JournalStore, Known, Node
from flowengine.engine.view import NodeContext
from flowengine.errors import NotJournalableError
from flowengine.journal.codec import encode_value
from flowengine.nodes.agent import AgentNode, EvaluationNode, RoutingNode
from flowengine.nodes.container import ContainerNode
from flowengine.nodes.earlier import Earlier
from flowengine.nodes.function import FunctionNode
from flowengine.nodes.node import FlowNode
from flowengine.nodes.plan import Plan
from flowengine.nodes.policy import wrapped
from flowengine.records import Reused

__all__ = ["reusing"]

CACHE = "cache"
"""Under which kind results are kept beside the runs."""


def reusing(plan: Plan, store: JournalStore, run_id: str, reuse: str | None) -> Plan:
    """The plan whose nodes look for a known result before they run. `reuse`: id of an earlier run.

    `InputError` where that is a run of another flow.
    """
    earlier = None if reuse is None else Earlier(plan, store.events(reuse))
    wrap = _Wrapping(plan, store, run_id, earlier)
    nodes = {name: wrap(name, node) for name, node in plan.definitions.items()}
    return replace(plan, nodes=[nodes[name] for name in plan.graph.ids])


class _Wrapping(NamedTuple):
    plan: Plan
    store: JournalStore
    run_id: str
    earlier: Earlier | None

    def __call__(self, path: str, node: FlowNode) -> Node:
        if isinstance(node, ContainerNode):
            inside = {name: self(f"{path}.{name}", each) for name, each in node.inside.items()}
            node = copy(node)
            node.body = node.body._replace(nodes=[inside[name] for name in node.body.graph.ids])
        runnable = wrapped(node)
        if node.cache:
            key = f"{self.plan.fingerprints[path]} {self.plan.code.get(path, '')}"
            runnable = _Cached(runnable, node, key, self.store, self.run_id)
        return runnable if self.earlier is None else _Reusing(runnable, node, self.earlier)


class _Found(Exception):  # noqa: N818 - no error: the first request tells that the result is known
    def __init__(self, result: NodeResult, origin: Reused) -> None:
        super().__init__()
        self.known = Known(result, origin)


class _Reusing:
    """Takes the earlier run's result where it still holds."""

    def __init__(self, inner: Node, node: FlowNode, earlier: Earlier) -> None:
        self._inner = inner
        self._node = node
        self._earlier = earlier

    async def run(self, context: Context, /) -> Ended:
        path = context.current_node or ""
        then = self._earlier.result(path)
        if then is None or not isinstance(context, NodeContext):
            return await self._inner.run(context)
        if not self._earlier.saw_the_same(context, self._node):
            if not isinstance(self._node, AgentNode | RoutingNode | EvaluationNode):
                return await self._inner.run(context)
            try:
                return await self._inner.run(context.asking_first(partial(self._look, path, then)))
            except _Found as found:
                return found.known
        return Known(then, Reused(self._earlier.run_id, path))

    def _look(self, path: str, then: NodeResult, request: str) -> None:
        if request == self._earlier.request(path):
            raise _Found(then, Reused(self._earlier.run_id, path))


class _Cached:
    """Takes the result that any run of the store has had with the same definition and inputs; keeps its own."""

    def __init__(self, inner: Node, node: FlowNode, definition: str, store: JournalStore, run_id: str) -> None:
        self._inner = inner
        self._node = node
        self._definition = definition
        self._store = store
        self._run_id = run_id

    async def run(self, context: Context, /) -> Ended:
        if isinstance(self._node, FunctionNode):
            return await self._by_inputs(self._node, context)
        keys: list[str] = []

        def look(request: str) -> None:
            keys.append(self._key(request))
            self._take(keys[0])

        asking = context.asking_first(look) if isinstance(context, NodeContext) else context
        try:
            result = await self._inner.run(asking)
        except _Found as found:
            return found.known
        return self._kept(keys[0], context, result) if keys else result

    async def _by_inputs(self, node: FunctionNode, context: Context) -> Ended:
        key = self._key(encode_value(node.given(context)[1]))
        try:
            self._take(key)
        except _Found as found:
            return found.known
        return self._kept(key, context, await self._inner.run(context))

    def _key(self, inputs: str) -> str:
        return hashlib.sha256(f"{self._definition}\n{inputs}".encode("utf-8", "surrogatepass")).hexdigest()

    def _take(self, key: str) -> None:
        kept: Mapping[str, Any] | None = self._store.recall(CACHE, key)
        if kept is not None:
            raise _Found(kept["result"], Reused(kept["run"], kept["node"]))

    def _kept(self, key: str, context: Context, result: Ended) -> Ended:
        if isinstance(result, NodeResult):
            value = {"run": self._run_id, "node": context.current_node, "result": result}
            try:
                self._store.revise(CACHE, key, lambda before: value)
            except NotJournalableError:  # The run says so itself, when it journals the result.
                return result
        return result
