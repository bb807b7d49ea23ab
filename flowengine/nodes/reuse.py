"""Makes nodes that take a result which is known already in the place of running: of an earlier run, or of the cache.

Theory of operation:

1. Only what a node's body gives is taken over: `when`, `set`, joins and the choices of conditions are decided anew.
   So the wrappers stand right round the body, inside of `when` and `set`.
2. A result is taken where all that the body could see is the same: for a function with arguments of its own these
   arguments, for an agent all its requests, for anything else the whole view of the node.
3. An agent is run for a try against the transcript of an earlier run (`transcript`): where that has an answer to every
   request, the result is made of these answers; otherwise the agent begins anew.
4. Containers are entered anew, and their nodes looked at one by one. As a whole one is taken from an earlier run only,
   if nothing failed inside, and what its agents ask follows from the file and the view alone.

Whether a result of an earlier run still holds is decided by `earlier`; what the key of a cached one is made of, here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any, Final, NamedTuple, TypeGuard
from weakref import WeakKeyDictionary

import anyio

from flowengine.agents import Agent, EvaluationAgent, RoutingAgent
from flowengine.core import Context, Gateway, ModelCall, NodeResult, Notice, Reused, ToolCall, freeze
from flowengine.engine import Ended, JournalStore, Known, Node, NodeContext, Walk
from flowengine.errors import InactiveError, NotJournalableError
from flowengine.nodes.approval import ApprovalNode
from flowengine.nodes.asking_node import AskingNode
from flowengine.nodes.code_digest import ViewDigests, digest_handed, digest_of, views_of
from flowengine.nodes.compiled_flow import CompiledFlow, ContainerNode, file_path
from flowengine.nodes.condition import ConditionNode
from flowengine.nodes.gateway import CopyingGateway, InactiveGateway, TranscriptGateway
from flowengine.nodes.node import FlowNode
from flowengine.nodes.policy import wrap_node
from flowengine.nodes.reuse_rules import Earlier, opening_keys

CACHE: Final = "cache"
"""Under which kind results are kept beside the runs."""
TRANSCRIPTS: Final = 8
"""Transcripts of an agent that are kept for one first request."""


def reusing(
    plan: CompiledFlow,
    store: JournalStore,
    run_id: str,
    reuse: str | Sequence[str] | None,
    *,
    acts: bool = True,
    anew: Collection[str] = (),
) -> CompiledFlow:
    """The plan whose nodes look for a known result before they run. `reuse`: id of an earlier run, or of several, of
    which the first that has a result that holds is taken.

    Without `acts`, what has an effect outside or asks a person is never done: its known result stands, and where it
    does not hold, the node fails. Nodes in `anew` take none of a run. `InputError` where that is a run of another flow.
    """
    runs = () if reuse is None else [reuse] if isinstance(reuse, str) else reuse
    earlier = [Earlier(plan, store.events(each)) for each in runs]
    wrap = _Wrapping(earlier, _Cache(plan, store, run_id), acts, plan.gaps)
    fresh = wrap._replace(earlier=())
    nodes = {
        name: (fresh if name in anew else wrap)(name, node, cached=node.cache)
        for name, node in plan.definitions.items()
    }
    return replace(plan, nodes=[nodes[name] for name in plan.graph.ids])


class _Wrapping(NamedTuple):
    earlier: Sequence[Earlier]
    cache: _Cache
    acts: bool
    gaps: Mapping[str, Sequence[str]]

    def __call__(self, path: str, node: FlowNode, *, cached: bool) -> Node:
        """`cached`: it asks for it, or a container round it does."""
        if isinstance(node, ContainerNode):
            inside = {
                name: self(f"{path}.{name}", each, cached=cached or each.cache) for name, each in node.inside.items()
            }
            node = copy(node)
            node.body = node.body._replace(nodes=[inside[name] for name in node.body.graph.ids])
        if isinstance(node, ConditionNode):
            return wrap_node(node)
        return wrap_node(node, lambda body: self._round(body, node, path, cached=cached))

    def _round(self, body: Node, node: FlowNode, path: str, *, cached: bool) -> Node:
        if not self.acts and not isinstance(node, ContainerNode):
            body = _Inactive(body, node, self.earlier)
        is_cached = cached and _may_be_cached(node)
        if path in self.gaps and (is_cached or self.earlier):
            return _Unread(body, self.gaps[path])
        if is_cached:
            body = _Cached(body, node, self.cache)
        return _Reusing(body, node, self.earlier) if self.earlier else body


class _Unread:
    """Runs what cannot be told to be the same as another time, and says once why."""

    def __init__(self, body: Node, gaps: Sequence[str]) -> None:
        self._body = body
        self._gaps = gaps
        self._is_told = False

    async def run(self, context: Context, /) -> Ended:
        if not self._is_told:
            self._is_told = True
            more = f" (and {len(self._gaps) - 1} more)" if len(self._gaps) > 1 else ""
            await context.runtime.note(Notice(f"no known result is taken for it: {self._gaps[0]}{more}; {_DECLARE}"))
        return await self._body.run(context)


_DECLARE: Final = "`version` on the node stands for that: its result holds until the version is another"


class _BesideEarlier:
    """The body of a node, beside the earlier runs that it is compared with."""

    def __init__(self, body: Node, node: FlowNode, earlier: Sequence[Earlier]) -> None:
        self._body = body
        self._node = node
        self._earlier = earlier


class _Inactive(_BesideEarlier):
    """Runs only what has no effect outside, without questions; of an agent's tools what had one gives what it gave."""

    async def run(self, context: Context, /) -> Ended:
        if isinstance(self._node, ApprovalNode):
            raise InactiveError("the question cannot be asked again, and what led to it has changed")
        if self._node.effect == "external" and not _asks_models(self._node):
            raise InactiveError("its effect outside is not had again, and it is asked something else than it was")
        if isinstance(context, NodeContext) and _asks_models(self._node):
            path = context.current_node
            calls = [call for each in self._earlier for call in each.calls_of(path)]
            context = context.with_(runtime=context.runtime.asking_through(lambda inner: InactiveGateway(inner, calls)))
        return await self._body.run(context)


def _may_be_cached(node: FlowNode) -> bool:
    """A container's nodes are, one by one; what a person decided or what is done outside holds for one run only."""
    return not isinstance(node, ContainerNode | ApprovalNode) and node.effect != "external"


def _asks_models(node: FlowNode) -> TypeGuard[AskingNode]:
    return isinstance(node, AskingNode) and node.prototype is not None


def _is_open(node: FlowNode) -> bool:
    """Tells whether an agent in it may ask something else although definition and view are the same: it has sources,
    servers or a shape, takes its model from the environment, or was made in Python, where a definition does not say
    all.
    """
    if any(_is_open(each) for each in node.inside.values()):
        return True
    agent = node.prototype if isinstance(node, AskingNode) else getattr(node, "agent", None)
    if not isinstance(agent, Agent | RoutingAgent | EvaluationAgent):
        return False
    if not node.says_its_definition or agent.settings.model is None:
        return True
    return isinstance(agent, Agent) and bool(agent.sources or agent.tooling.servers or agent.generation.shape)


async def _replay_agent(
    node: AskingNode, context: NodeContext, find: Callable[[str], Iterable[Reused]]
) -> Known | None:
    """Replays an agent's node from transcripts; None if they do not answer all its requests.

    One that has asked for itself in this run, before it was interrupted, goes on with what it was answered.
    """
    if any(isinstance(each, ModelCall | ToolCall | Reused) for each in context.runtime.recorded):
        return None
    scope = anyio.CancelScope(deadline=inf if node.timeout is None else anyio.current_time() + node.timeout)
    gateway, result = TranscriptGateway(find, scope.cancel), None
    with scope:
        try:
            result = await node.run(context.with_(runtime=context.runtime.asking_through(lambda own: gateway)))
        except Exception:  # Whatever is wrong with it is told where the node runs.
            return None
    return Known(result, gateway.origin) if isinstance(result, NodeResult) and gateway.origin is not None else None


class _Reusing(_BesideEarlier):
    """Takes an earlier run's result where it still holds."""

    async def run(self, context: Context, /) -> Ended:
        if isinstance(context, NodeContext):
            for earlier in self._earlier:
                earlier_result = await self._find_known(context, earlier)
                if earlier_result is not None:
                    earlier.take(earlier_result.record)
                    return earlier_result
        return await self._body.run(context)

    async def _find_known(self, context: NodeContext, earlier: Earlier) -> Known | None:
        node, path = self._node, context.current_node
        if isinstance(node, ContainerNode):
            if _is_open(node) or earlier.failed_inside(path):
                return None
        elif _asks_models(node):
            return await _replay_agent(node, context, partial(earlier.transcripts, path))
        try:
            handed = node.handed(context)
        except Exception:  # What cannot be rendered fails where the node runs.
            return None
        digest = None if handed is None else digest_handed(context, handed)
        if not node.sees_all:
            candidate = (
                None if digest is None else earlier.find_by_arguments(path, digest, anywhere=node.effect != "external")
            )
        else:
            candidate = earlier.at(path)
            if candidate is not None and (candidate.result.given != digest or not earlier.saw_the_same(context)):
                candidate = None
        return None if candidate is None else Known(_body_result(candidate.result, node), earlier.origin(candidate))


def _body_result(result: NodeResult, node: FlowNode) -> NodeResult:
    """The result without what `set` wrote beside the body."""
    if not node.set or not result.state:
        return result
    return result._replace(state={key: each for key, each in result.state.items() if key not in node.set} or None)


class _Cached:
    """Takes the result that any run of the store has had with the same definition and inputs; keeps its own."""

    def __init__(self, body: Node, node: FlowNode, cache: _Cache) -> None:
        self._body = body
        self._node = node
        self._cache = cache

    async def run(self, context: Context, /) -> Ended:
        if not isinstance(context, NodeContext):
            return await self._body.run(context)
        if _asks_models(self._node):
            return await self._run_copying(self._node, context)
        key = self._cache.key(self._node, context)
        if key is None:
            return await self._body.run(context)
        entry = self._cache.result(key)
        if entry is not None:
            return entry
        result = await self._body.run(context)
        if isinstance(result, NodeResult) and not context.runtime.walk.has_read_id(context.runtime.number):
            self._cache.keep_result(key, context.current_node, result)
        return result

    async def _run_copying(self, node: AskingNode, context: NodeContext) -> Ended:
        definition = self._cache.definition(context.current_node)
        copy = await _replay_agent(node, context, partial(self._cache.transcripts, definition))
        if copy is not None:
            return copy
        copies: list[CopyingGateway] = []

        def copying(gateway: Gateway) -> Gateway:
            copies.append(CopyingGateway(gateway))  # A new one for each attempt.
            return copies[-1]

        result = await self._body.run(context.with_(runtime=context.runtime.asking_through(copying)))
        if isinstance(result, NodeResult) and copies and not copies[-1].has_asked:  # That consent held for this run.
            self._cache.keep_transcript(definition, context.current_node, copies[-1].calls)
        return result


class _Cache:
    """The cached results of a store, for one run of a plan."""

    def __init__(self, plan: CompiledFlow, store: JournalStore, run_id: str) -> None:
        self._plan = plan
        self._store = store
        self._run_id = run_id
        self._views: WeakKeyDictionary[Walk, ViewDigests] = WeakKeyDictionary()

    def definition(self, path: str) -> str:
        """Of a node, with the code that it calls."""
        name = file_path(path)
        return f"{self._plan.fingerprints[name]} {self._plan.code.get(name, '')}"

    def key(self, node: FlowNode, context: NodeContext) -> str | None:
        """Under which the result of a body is kept; None where what it gets cannot be written down, or told."""
        path = context.current_node
        try:
            handed = node.handed(context)
            views = (
                [path, self._view(context.runtime.walk).digest_view(context.runtime.number)] if node.sees_all else []
            )
            return digest_of([CACHE, self.definition(path), handed and dict(handed), *views])
        except Exception:  # What cannot be rendered fails where the node runs.
            return None

    def _view(self, walk: Walk) -> ViewDigests:
        if walk not in self._views:
            outside = "" if walk.outer is None else self._view(walk.outer[0]).digest_view(walk.outer[1])
            self._views[walk] = views_of(walk, self.definition, outside)
        return self._views[walk]

    def result(self, key: str) -> Known | None:
        """The result that is kept under a key."""
        entry: Mapping[str, Any] | None = self._store.recall(CACHE, key)
        return None if entry is None else Known(entry["result"], Reused(entry["run"], entry["node"]))

    def keep_result(self, key: str, path: str, result: NodeResult) -> None:
        """Keep what a body gave."""
        entry = freeze({"run": self._run_id, "node": path, "result": result})
        self._keep(key, lambda before: entry)

    def transcripts(self, definition: str, request: str) -> Sequence[Reused]:
        """The transcripts of nodes with a definition that begin with a request, the newest first."""
        return self._store.recall(CACHE, _request_key(definition, request)) or ()

    def keep_transcript(self, definition: str, path: str, calls: Sequence[Any]) -> None:
        """Keep what an agent asked and was answered."""
        new = Reused(self._run_id, path, calls)

        def with_new(before: Sequence[Reused] | None) -> Sequence[Reused]:
            return [new, *(each for each in before or () if each.calls != calls)][:TRANSCRIPTS]

        for request in opening_keys(calls):
            self._keep(_request_key(definition, request), with_new)

    def _keep(self, key: str, change: Callable[[Any], Any]) -> None:
        # What cannot be written down is not kept: the run says so itself, when it journals the result.
        with suppress(NotJournalableError):
            self._store.revise(CACHE, key, change)


def _request_key(definition: str, request: str) -> str:
    return digest_of([CACHE, definition, request, "transcripts"])
