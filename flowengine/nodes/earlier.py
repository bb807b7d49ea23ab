"""Results of an earlier run that still hold: for a run that pays only for what was changed since.

Theory of operation:

1. A node's result is looked at where its definition and the code that it calls are what they were when it finished.
2. What its body is handed (the arguments of a function, the content for a scorer) is compared by its digest, which is
   in the result. Items that moved find theirs: any item or round may have had it, but each result is taken once.
3. A body that sees everything is compared by all that it can see, at the flow's own level only: inside maps and loops
   nothing is on record to compare it with. One that read the run's id holds for no other run.
4. An agent is compared by all its requests: its transcripts are given out, and whoever replays one decides.
5. Where anything inside a container failed, the container as a whole does not hold: it has to be tried again.

Pure: it reads events and a walk. Who wraps nodes in it is `reuse`'s matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from weakref import WeakKeyDictionary

from flowengine.engine.events import Event, RunStarted
from flowengine.engine.graph import Edge, Graph, Vertex
from flowengine.engine.view import NodeContext
from flowengine.engine.walk import Walk
from flowengine.errors import InputError, NotJournalableError, StoreCorruptError
from flowengine.nodes.container import file_path
from flowengine.nodes.digests import ViewDigests, level_digest, views_of
from flowengine.nodes.past import Definitions, Past, Result, opening_keys
from flowengine.nodes.plan import Plan
from flowengine.records import Reused

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
        self._started = started
        self._now = Definitions(plan.fingerprints, plan.code)
        self._past = Past(events)
        self._taken: set[str] = set()
        self._views: WeakKeyDictionary[Walk, ViewDigests] = WeakKeyDictionary()

    def at(self, path: str) -> Result | None:
        """What a node gave, if it is defined as it was, with all that is inside it."""
        found = self._past.results.get(path)
        return found if found is not None and found.is_defined_as(self._now) else None

    def handed(self, path: str, digest: str, *, anywhere: bool) -> Result | None:
        """What a node gave that was handed the same; `anywhere`: in whatever item or round."""
        own = self.at(path)
        if own is not None and own.result.given == digest:
            return own
        others = self._by_digest.get((file_path(path), digest), ()) if anywhere else ()
        return next((each for each in others if self._is_left(each)), None)

    def saw_the_same(self, context: NodeContext) -> bool:
        """Whether all that a node of the flow's own level can see is what it saw."""
        walk, name = context.walk, context.walk.graph.ids[context.number]
        then = self._then
        if walk.prefix or then is None or name not in then.graph.index:
            return False
        if walk not in self._views:
            self._views[walk] = views_of(walk, self._definition)
        try:
            return self._views[walk].seen(context.number) == then.seen(then.graph.index[name])
        except NotJournalableError:
            return False

    def failed_inside(self, path: str) -> bool:
        """Whether anything inside a container failed and was left so."""
        inside = (f"{path}.", f"{path}[")
        return any(failed.startswith(inside) for failed in self._past.failed)

    def transcripts(self, path: str, key: str) -> Iterator[Reused]:
        """The transcripts that begin with a request, the node's own first; of the same node in other items as well."""
        own = self.at(path)
        if own is not None:
            yield self.origin(own)
        for each in self._by_request.get((file_path(path), key), ()):
            if each.path != path and self._is_left(each):
                yield self.origin(each)

    def origin(self, result: Result) -> Reused:
        """What is told of a node that takes a result."""
        return Reused(self.run_id, result.path, result.calls)

    def take(self, origin: Reused) -> None:
        """A result is taken; no other item or round gets it as well, for where the same is asked several times,
        several answers are wanted."""
        self._taken.add(origin.node)

    def _is_left(self, result: Result) -> bool:
        return result.path not in self._taken and result.is_defined_as(self._now)

    def _definition(self, path: str) -> str:
        return self._now.fingerprints.get(file_path(path), "")

    @cached_property
    def _by_digest(self) -> Mapping[tuple[str, str], Sequence[Result]]:
        found: dict[tuple[str, str], list[Result]] = {}
        for each in self._past.results.values():
            if each.result.given is not None:
                found.setdefault((file_path(each.path), each.result.given), []).append(each)
        return found

    @cached_property
    def _by_request(self) -> Mapping[tuple[str, str], Sequence[Result]]:
        found: dict[tuple[str, str], list[Result]] = {}
        for each in self._past.results.values():
            for key in opening_keys(each.calls):
                found.setdefault((file_path(each.path), key), []).append(each)
        return found

    @cached_property
    def _then(self) -> ViewDigests | None:
        """What the nodes of the flow's own level saw; None where the flow was edited in the middle of the run."""
        return None if self._past.was_edited else _views_then(self._started, self._past)


def _views_then(started: RunStarted, past: Past) -> ViewDigests:
    """What the nodes of the flow's own level saw in the earlier run."""
    graph = Graph(
        [Vertex(name, kind) for name, kind, *_ in started.graph.get("nodes", ())],
        [Edge(source, target) for source, target, *_ in started.graph.get("edges", ())],
    )
    forked, state = str(started.settings.get("from")), started.settings.get("set")
    patches = {graph.index[forked]: state} if forked in graph.index and state else {}
    level = level_digest(started.inputs, started.env, started.graph.get("state", {}), started.kept)
    return ViewDigests(graph, level, lambda number: past.left.get(graph.ids[number], "pending"), patches)
