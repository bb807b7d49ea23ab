"""Reads a run's events as the parts that a chat shows: steps, texts, tools, the end. Pure.

Each protocol that streams a run is an encoder of these parts. A step, a text or a tool that was begun is always ended,
whatever becomes of the run, and no two that are open at once have the same id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from flowengine.core import ModelCall, RunStatus, ToolCall
from flowengine.engine import (
    ErrorInfo,
    Event,
    NodeCancelled,
    NodeFailed,
    NodeFinished,
    NodeRecorded,
    NodeSkipped,
    NodeStarted,
    RunFinished,
    TokenStreamed,
)
from flowengine.web.service.chat_shape import TextOutput, to_text


class TokenCounts(NamedTuple):
    """Tokens of the model calls of a run, as far as the vendors told them."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    """The part of the prompts' that a vendor's cache served."""
    written: int = 0
    """The part of the prompts' that a vendor wrote to its cache."""
    reasoning: int = 0
    """The part of the answers' that models thought with."""

    @property
    def total(self) -> int:
        return self.prompt + self.completion

    def plus(self, call: ModelCall) -> TokenCounts:
        return TokenCounts(
            self.prompt + (call.prompt_tokens or 0),
            self.completion + (call.completion_tokens or 0),
            self.cached + (call.cached_tokens or 0),
            self.written + (call.cache_write_tokens or 0),
            self.reasoning + (call.reasoning_tokens or 0),
        )


class StepBegan(NamedTuple):
    """A node is at work."""

    node: str


class StepEnded(NamedTuple):
    """A node is done; one that was skipped has not begun."""

    node: str
    status: str
    """`succeeded`, `failed`, `skipped` or `cancelled`."""
    error: str = ""


class TextBegan(NamedTuple):
    """A text begins. `is_answer`: it is what the run answers, not what one of its steps writes on the way."""

    id: str
    node: str
    is_answer: bool


class TextDelta(NamedTuple):
    """A piece of a text that has begun."""

    id: str
    text: str


class TextEnded(NamedTuple):
    """The text is whole, or is given up: another one of its node begins."""

    id: str


class ToolBegan(NamedTuple):
    """A tool is called."""

    id: str
    node: str
    name: str
    arguments: Mapping[str, Any]


class ToolEnded(NamedTuple):
    """The tool has answered."""

    id: str
    text: str
    is_error: bool


class RunEnded(NamedTuple):
    """Nothing follows, unless somebody answers."""

    status: RunStatus
    outputs: Mapping[str, Any]
    error: ErrorInfo | None
    tokens: TokenCounts


Part: TypeAlias = StepBegan | StepEnded | TextBegan | TextDelta | TextEnded | ToolBegan | ToolEnded | RunEnded


class PartReader:
    """Reads one run, whose answer is the output `text`. None: there is none.

    >>> reader = PartReader(TextOutput("reply", "say"))
    >>> reader.read(TokenStreamed("say", 1.0, "Hel", begins=True))
    [TextBegan(id='say#1', node='say', is_answer=True), TextDelta(id='say#1', text='Hel')]
    >>> reader.read(TokenStreamed("say", 1.0, "lo"))
    [TextDelta(id='say#1', text='lo')]
    """

    def __init__(self, text: TextOutput | None) -> None:
        self._answer_node = None if text is None else text.agent
        self._text = None if text is None else text.name
        self._steps: dict[str, None] = {}
        self._texts: dict[str, str] = {}
        """Node → the id of its text that is open."""
        self._tools: dict[str, str] = {}
        """Key of a tool call that is open → its id."""
        self._answer_so_far = ""
        """The answer's text since it began last."""
        self._count = 0
        self._tokens = TokenCounts()

    def read(self, event: Event | TokenStreamed) -> Sequence[Part]:
        """Returns the parts of an event, in order."""
        return list(self._parts(event))

    def _parts(self, event: Event | TokenStreamed) -> Iterator[Part]:
        match event:
            case TokenStreamed():
                if not event.begins and event.node not in self._texts:
                    return  # Its beginning was told before anybody listened: what it was is told at the end.
                yield from self._write(event.node, event.text, event.begins, event.node == self._answer_node)
            case NodeStarted(node=node):
                if node not in self._steps:
                    self._steps[node] = None
                    yield StepBegan(node)
            case NodeRecorded(node=node, record=record):
                yield from self._record(node, record)
            case NodeFinished(node=node):
                yield from self._end_step(node, "succeeded")
            case NodeFailed(node=node, error=error):
                yield from self._end_step(node, "skipped" if event.skipped else "failed", error.message)
            case NodeCancelled(node=node):
                yield from self._end_step(node, "cancelled")
            case NodeSkipped(node=node):
                yield StepEnded(node, "skipped")
            case RunFinished():
                yield from self._end(event)
            case _:
                return

    def _record(self, node: str, record: Any) -> Iterator[Part]:
        if type(record) is ModelCall:
            self._tokens = self._tokens.plus(record)
        elif type(record) is ToolCall:
            call = f"{node}/{record.key}/{record.occurrence}"
            open_id = self._tools.pop(call, None)
            if open_id is None:
                self._count += 1
                open_id = f"{node}#tool{self._count}"
                yield ToolBegan(open_id, node, record.name, record.arguments)
            if record.started:
                self._tools[call] = open_id
            else:
                yield ToolEnded(open_id, to_text(record.result), record.is_error)

    def _write(self, node: str, text: str, begins: bool, is_answer: bool) -> Iterator[Part]:
        if begins and node in self._texts:
            yield TextEnded(self._texts.pop(node))
        if node not in self._texts:
            self._count += 1
            self._texts[node] = f"{node}#{self._count}"
            if is_answer:
                self._answer_so_far = ""
            yield TextBegan(self._texts[node], node, is_answer)
        if text:
            if is_answer:
                self._answer_so_far += text
            yield TextDelta(self._texts[node], text)

    def _end_step(self, node: str, status: str, error: str = "") -> Iterator[Part]:
        if node in self._texts and node != self._answer_node:
            yield TextEnded(self._texts.pop(node))
        if node in self._steps:
            del self._steps[node]
            yield StepEnded(node, status, error)

    def _end(self, event: RunFinished) -> Iterator[Part]:
        for call_id in self._tools.values():
            yield ToolEnded(call_id, "the call has no result", True)
        self._tools.clear()
        outputs = event.outputs or {}
        if event.status in ("succeeded", "partial") and self._text is not None and self._text in outputs:
            yield from self._complete_answer(to_text(outputs[self._text]))
        for text_id in self._texts.values():
            yield TextEnded(text_id)
        self._texts.clear()
        for node in list(self._steps):
            yield from self._end_step(node, "waiting" if event.status == "waiting" else "cancelled")
        if event.status != "running":  # Another process goes on with it, and tells the rest.
            yield RunEnded(event.status, outputs, event.error, self._tokens)

    def _complete_answer(self, text: str) -> Iterator[Part]:
        """Yields the rest of the answer; the whole answer if its beginning differed."""
        is_told = bool(self._answer_so_far) and text.startswith(self._answer_so_far)
        rest = text[len(self._answer_so_far) :] if is_told else text
        if rest:
            yield from self._write(self._answer_node or "answer", rest, not is_told, True)
