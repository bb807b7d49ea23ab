"""What the nodes of a run came to, by which definitions and with which calls: its events, folded. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

from flowengine.context import EMPTY, NodeResult
from flowengine.engine.attempts import Attempts
from flowengine.engine.events import (
    Event,
    NodeCancelled,
    NodeFailed,
    NodeFinished,
    NodeRecorded,
    NodeSkipped,
    NodeStarted,
    RunResumed,
    RunStarted,
)
from flowengine.nodes.container import file_path
from flowengine.nodes.digests import left_by
from flowengine.records import PREPARING, ModelCall, Reused, ToolCall

__all__ = ["Definitions", "Past", "Result", "opening_keys", "transcript_of", "without_question"]

_OPENING: Final = 16
"""Requests that a transcript is found by."""


class Definitions:
    """Of all nodes, by their paths in the file: hashes of what the file says, and of the code that it calls."""

    def __init__(self, fingerprints: Mapping[str, str], code: Mapping[str, str]) -> None:
        self.fingerprints = fingerprints
        self.code = code

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
    """What a node gave in the earlier run."""

    path: str
    result: NodeResult
    definitions: Definitions | None
    """As they were at the time; None where the result was made by others, and shared."""
    calls: Sequence[Any]
    """Its transcript, where it is an agent's."""

    def is_defined_as(self, now: Definitions) -> bool:
        """Whether the node, with all that is inside it, was defined then as it is now."""
        path, then = file_path(self.path), self.definitions
        if then is None or then.of(path) != now.of(path):
            return False
        return all(then.of(each) == now.of(each) for each in {*then.inside(path), *now.inside(path)})


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
                self.results[node] = self._finished(node, result)
                self.left[node] = left_by(result, None, "succeeded")
            case NodeFailed(node=node, error=error):
                self._attempts.fail(node)
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

    def _finished(self, node: str, result: NodeResult) -> Result:
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
