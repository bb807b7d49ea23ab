"""Finds results of an earlier run that still hold: for a run that pays only for what was changed since.

Theory of operation:

1. A node's result is looked at where its definition and the code that it calls are what they were when it finished.
2. What its body is handed (the arguments of a function, the content for a scorer) is compared by its digest, which is
   in the result. Items that moved find theirs: any item or round may have had it, but each result is taken once.
3. A body that sees everything is compared by all that it can see, at the flow's own level only: inside maps and loops
   nothing is on record to compare it with. One that read the run's id holds for no other run.
4. An agent is compared by all its requests: its transcripts are given out, and the replay decides.
5. Where anything inside a container failed, the container as a whole does not hold: it has to be tried again.

Pure: it reads events and a walk. Who wraps nodes in it is `reuse`'s matter.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from flowengine.core import EMPTY, PREPARING, ModelCall, NodeResult, Reused, ToolCall
from flowengine.engine import (
    Attempts,
    Edge,
    Event,
    Graph,
    NodeCancelled,
    NodeContext,
    NodeFailed,
    NodeFinished,
    NodeRecorded,
    NodeSkipped,
    NodeStarted,
    RunResumed,
    RunStarted,
    Vertex,
    Walk,
    patches_in,
    start_of,
)
from flowengine.errors import InputError, NotJournalableError, StoreCorruptError
from flowengine.nodes.code_digest import ViewDigests, left_by, level_digest, views_of
from flowengine.nodes.compiled_flow import CompiledFlow, file_path

# --- What the nodes of a run came to, by which definitions and with which calls

_OPENING: Final = 16
"""Requests that a transcript is found by."""


class Definitions:
    """Of all nodes, by their paths in the file: hashes of what the file says, and of the code that it calls."""

    def __init__(self, fingerprints: Mapping[str, str], code: Mapping[str, str], unread: Collection[str] = ()) -> None:
        """`unread`: the nodes whose code cannot be read, so that it is not known to be the same."""
        self.fingerprints = fingerprints
        self.code = code
        self.unread = unread

    def of(self, path: str) -> tuple[str | None, str | None]:
        return self.fingerprints.get(path), self.code.get(path)

    def inside(self, path: str) -> Collection[str]:
        """The paths of all nodes inside a container."""
        return self._bodies.get(path, ())

    @cached_property
    def _bodies(self) -> Mapping[str, Collection[str]]:
        bodies: dict[str, set[str]] = {}
        for path in self.fingerprints:
            container = path.rpartition(".")[0]
            while container:
                bodies.setdefault(container, set()).add(path)
                container = container.rpartition(".")[0]
        return bodies


class Result(NamedTuple):
    """A node's result in the earlier run."""

    path: str
    result: NodeResult
    definitions: Definitions | None
    """As they were at the time; None where the result was made by others, and shared."""
    calls: Sequence[Any]
    """Its transcript, where it is an agent's."""

    def is_defined_as(self, now: Definitions) -> bool:
        """Tells whether the node, with all that is inside it, was defined then as it is now."""
        path, then = file_path(self.path), self.definitions
        if then is None:
            return False
        every = {path, *then.inside(path), *now.inside(path)}
        return all(then.of(each) == now.of(each) and each not in now.unread for each in every)


class Past:
    """The events of a run, folded: what each node came to, and by which definitions."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.results: dict[str, Result] = {}
        self.failed: set[str] = set()
        """Nodes that failed, and were not run again since."""
        self.left: dict[str, Any] = {}
        """Node → what it left, as those behind it can see it."""
        self.was_edited = False
        self._attempts = Attempts()
        self._definitions = Definitions(EMPTY, EMPTY)
        self._foreign: tuple[str, frozenset[str]] = ("", frozenset())
        for event in events:
            self._take(event)

    def _take(self, event: Event) -> None:
        match event:
            case RunStarted(fingerprints=fingerprints, code=code, settings=settings):
                self._definitions = Definitions(fingerprints, code)
                self._foreign = str(settings.get("forked", "")), frozenset(settings.get("edited", ()))
            case RunResumed(fingerprints=fingerprints, code=code):
                before = self._definitions
                self._definitions = Definitions(fingerprints or before.fingerprints, code or before.code)
                self.was_edited = self.was_edited or bool(fingerprints)
            case NodeStarted(node=node):
                self._forget(node)
            case NodeRecorded(node=node, record=record):
                self._attempts.add(node, record)
            case NodeFinished(node=node, result=result):
                self.results[node] = self._note_finished(node, result)
                self.left[node] = left_by(result, None, "succeeded")
            case NodeFailed(node=node, error=error):
                self._attempts.fail(node, error)
                self.failed.add(node)
                definition = self._definitions.fingerprints.get(file_path(node), "")
                self.left[node] = left_by(None, (error.message, definition), "failed")
            case NodeSkipped(node=node):
                self.left[node] = left_by(None, None, "skipped")
            case NodeCancelled(node=node):
                self.left[node] = left_by(None, None, "cancelled")
            case _:
                pass

    def _forget(self, node: str) -> None:
        self.results.pop(node, None)
        self.left.pop(node, None)
        self.failed.discard(node)

    def _note_finished(self, node: str, result: NodeResult) -> Result:
        records = self._attempts.of(node)
        calls = transcript_of(records)
        forked, edited = self._foreign
        is_foreign = file_path(node) in edited and any(
            type(each) is Reused and each.run_id == forked for each in records
        )
        self._attempts.finish(node)
        return Result(node, result, None if is_foreign else self._definitions, calls)


def transcript_of(records: Iterable[Any]) -> Sequence[Any]:
    """The transcript in what a node recorded: its own, or the one that came with the result that it took over."""
    calls: list[Any] = []
    for record in records:
        if type(record) is Reused:
            calls = [*record.calls]
        elif type(record) is ModelCall and record.error is None:
            calls.append(without_question(record))
        elif type(record) is ToolCall and not record.started:
            calls.append(record)
    return calls


def opening_keys(transcript: Sequence[Any]) -> Sequence[str]:
    """The keys of the requests that it may begin with: those that prepare the prompt, of which some may not be needed
    another time (documents are embedded once), and the first one after them."""
    keys: dict[str, None] = {}
    for call in transcript:
        if type(call) is ModelCall:
            keys[call.key] = None
            if call.purpose not in PREPARING:
                break
    return list(keys)[-_OPENING:]


def without_question(call: ModelCall) -> ModelCall:
    """Its key says what was asked."""
    return call._replace(messages=(), request={})


class Earlier:
    """One earlier run of a plan, which may have been edited since."""

    def __init__(self, plan: CompiledFlow, events: Sequence[Event]) -> None:
        """`InputError` where it is a run of another flow."""
        started = start_of(events)
        if started is None:
            raise StoreCorruptError("the journal does not begin with its start")
        if started.flow != plan.name:
            raise InputError(
                f"run {started.run_id} is one of flow '{started.flow}', not of '{plan.name}': "
                f"nothing of it can be re-used"
            )
        self.run_id = started.run_id
        self._started = started
        self._now = Definitions(plan.fingerprints, plan.code, plan.gaps.keys())
        self._past = Past(events)
        self._origins_used: set[str] = set()
        self._views: WeakKeyDictionary[Walk, ViewDigests] = WeakKeyDictionary()

    def at(self, path: str) -> Result | None:
        """Returns a node's result if its definition, and all inside it, is unchanged."""
        result = self._past.results.get(path)
        return result if result is not None and result.is_defined_as(self._now) else None

    def find_by_arguments(self, path: str, digest: str, *, anywhere: bool) -> Result | None:
        """Returns the result of a node with equal arguments; `anywhere`: in any item or round."""
        own = self.at(path)
        if own is not None and own.result.given == digest:
            return own
        others = self._by_digest.get((file_path(path), digest), ()) if anywhere else ()
        return next((each for each in others if self._is_left(each)), None)

    def saw_the_same(self, context: NodeContext) -> bool:
        """Tells whether all that a node of the flow's own level can see is what it saw."""
        walk, name = context.runtime.walk, context.runtime.walk.graph.ids[context.runtime.number]
        then = self._then
        if walk.prefix or then is None or name not in then.graph.index:
            return False
        if walk not in self._views:
            self._views[walk] = views_of(walk, self._definition)
        try:
            return self._views[walk].digest_view(context.runtime.number) == then.digest_view(then.graph.index[name])
        except NotJournalableError:
            return False

    def failed_inside(self, path: str) -> bool:
        """Tells whether anything inside a container failed and was left so."""
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

    def calls_of(self, path: str) -> Sequence[Any]:
        """The transcript of a node, however it is defined now."""
        result = self._past.results.get(path)
        return () if result is None else result.calls

    def origin(self, result: Result) -> Reused:
        """Describes the origin of a re-used result."""
        return Reused(self.run_id, result.path, result.calls)

    def take(self, origin: Reused) -> None:
        """A result is taken; no other item or round gets it as well, for where the same is asked several times,
        several answers are wanted."""
        self._origins_used.add(origin.node)

    def _is_left(self, result: Result) -> bool:
        return result.path not in self._origins_used and result.is_defined_as(self._now)

    def _definition(self, path: str) -> str:
        return self._now.fingerprints.get(file_path(path), "")

    @cached_property
    def _by_digest(self) -> Mapping[tuple[str, str], Sequence[Result]]:
        results: dict[tuple[str, str], list[Result]] = {}
        for each in self._past.results.values():
            if each.result.given is not None:
                results.setdefault((file_path(each.path), each.result.given), []).append(each)
        return results

    @cached_property
    def _by_request(self) -> Mapping[tuple[str, str], Sequence[Result]]:
        results: dict[tuple[str, str], list[Result]] = {}
        for each in self._past.results.values():
            for key in opening_keys(each.calls):
                results.setdefault((file_path(each.path), key), []).append(each)
        return results

    @cached_property
    def _then(self) -> ViewDigests | None:
        """What the nodes of the flow's own level saw; None if the flow was edited during the run."""
        return None if self._past.was_edited else _views_then(self._started, self._past)


def _views_then(started: RunStarted, past: Past) -> ViewDigests:
    """Returns what the nodes of the flow's own level saw in the earlier run."""
    graph = Graph(
        [Vertex(name, kind) for name, kind, *_ in started.graph.get("nodes", ())],
        [Edge(source, target) for source, target, *_ in started.graph.get("edges", ())],
    )
    patches = {graph.index[node]: each for node, each in patches_in(started.settings).items() if node in graph.index}
    level = level_digest(started.inputs, started.env, started.graph.get("state", {}), started.kept)
    return ViewDigests(graph, level, lambda number: past.left.get(graph.ids[number], "pending"), patches)
