"""Gives a node's agent its gateway: it serves what was recorded, keeps the limits, records what is asked, and tells
what is being written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

import anyio

from flowengine.agents import CACHE_NOTICE, DirectGateway, find_cache_rule, model_call
from flowengine.agents.tools import Tool, ToolResult, failed_result
from flowengine.core import (
    BATCHING,
    CALL,
    PREPARING,
    AwaitsAnswer,
    Batcher,
    CallPlace,
    Context,
    Fence,
    Gateway,
    Ledger,
    Messages,
    ModelCall,
    Notice,
    Retry,
    Reused,
    Tell,
    ToolCall,
    load_messages,
    tool_key,
)
from flowengine.errors import CallRefusedError, InactiveError
from flowengine.journal import CountingGateway, RecordedGateway, Replay
from flowengine.models import Model, Reply, Request
from flowengine.models.wrappers import BoundedModel, tap_model
from flowengine.nodes.compiled_flow import file_path
from flowengine.nodes.reuse_rules import without_question
from flowengine.nodes.warm_start import WarmStart, find_warm_start


def gateway_of(
    context: Context, words: Messages | None = None, approvers: Sequence[str] = (), *, is_last: bool = False
) -> Gateway:
    """Gives the code of a node its gateway: each call is committed before its answer is used, none is made twice, and
    none that a limit does not allow.

    `words`: of an agent that may call tools, for some of which a person's consent may be asked; `approvers`: whose.
    `is_last`: the first answer ends the node, so that one commit keeps both.
    """
    gateway = _gateway_of(context, is_last=is_last)
    recorded = context.runtime.recorded
    served: Gateway = RecordedGateway(gateway, recorded) if recorded else gateway
    if words is not None:
        served = _make_asking_gateway(served, recorded, words, approvers=approvers)
    is_in_first_item = "[0]." in (context.current_node or "")
    if is_in_first_item and BATCHING.get() is None and (start := find_warm_start(context)) is not None:
        served = _WarmGateway(served, start)
    around = context.runtime.around
    return served if around is None else around(served)


def tool_gateway_of(context: Context) -> Gateway:
    """For a node that is one call of a tool: a call that failed before is made anew when the node runs again, and one
    that a person refuses is a `CallRefusedError`. Whether one whose end is unknown is made anew, a person decides."""
    records = [each for each in context.runtime.recorded if not (type(each) is ToolCall and each.is_error)]
    gateway = _gateway_of(context, raises_doubt=True)
    return _make_asking_gateway(
        RecordedGateway(gateway, records) if records else gateway, records, load_messages("en"), _raise_refusal
    )


def _raise_refusal(text: str) -> NoReturn:
    raise CallRefusedError(text)


def _make_asking_gateway(
    gateway: Gateway,
    recorded: Sequence[Any],
    words: Messages,
    refuse: Callable[[str], ToolResult] = failed_result,
    approvers: Sequence[str] = (),
) -> Gateway:
    from flowengine.nodes.call_approval import ApprovalGateway  # Nodes without tools need none of it.

    return ApprovalGateway(gateway, recorded, words, refuse, approvers)


def _gateway_of(context: Context, *, raises_doubt: bool = False, is_last: bool = False) -> CountingGateway:
    listener = _listener_of(context)
    if is_last:
        listener = _with_the_end(context, listener)
    gateway: CountingGateway = DirectGateway(listener, context.runtime.scope, raises_doubt=raises_doubt)
    if context.runtime.ledger is not None:
        notices = set[str]() if context.runtime.scope is None else context.runtime.scope.once(_LedgerGateway, set[str])
        gateway = _LedgerGateway(gateway, context.runtime.ledger, notices)
    if context.runtime.scope is not None and context.runtime.scope.fence is not None:
        gateway = _FencedGateway(gateway, context.runtime.scope.fence)
    if (batcher := BATCHING.get()) is not None and context.run_id is not None:
        gateway = _BatchingGateway(gateway, batcher, context)
    return gateway


def _listener_of(context: Context) -> Callable[[Any], Awaitable[None]]:
    """Returns the receiver of the node's records. An unused vendor cache is reported once for all items and rounds."""
    scope = context.runtime.scope
    if scope is None:
        return context.runtime.note

    async def note(record: Any) -> None:
        if type(record) is Notice and record.text.startswith(CACHE_NOTICE):
            notices = scope.once(_listener_of, set[tuple[str, str]])
            notice = file_path(context.current_node or ""), find_cache_rule(record.text)
            if notice in notices:
                return
            notices.add(notice)
        await context.runtime.note(record)

    return note


def _with_the_end(context: Context, listener: Callable[[Any], Awaitable[None]]) -> Callable[[Any], Awaitable[None]]:
    """An answer waits for the commit of what comes next, which is the end of the node; all else is as before."""

    async def note(record: Any) -> None:
        if type(record) is ModelCall and record.error is None:
            context.runtime.note_with_next(record)
        else:
            await listener(record)

    return note


def telling_gateway_of(
    context: Context, words: Messages | None = None, approvers: Sequence[str] = (), *, is_last: bool = False
) -> Gateway:
    """The same; and where somebody follows the run, free text is told while it is written."""
    gateway, tell = gateway_of(context, words, approvers, is_last=is_last), context.runtime.tell
    return gateway if tell is None else _TellingGateway(gateway, tell)


def asking_gateway_of(context: Context, words: Messages | None = None, approvers: Sequence[str] = ()) -> Gateway:
    """The same for answers that may still be taken back: only who is asked is told."""
    gateway, tell = gateway_of(context, words, approvers), context.runtime.tell
    return gateway if tell is None else _TellingGateway(gateway, tell, is_read=False)


G = TypeVar("G", bound=Gateway)


class _PassingGateway(Generic[G]):
    """Passes everything on to the gateway inside, as far as a gateway made of it does nothing else."""

    def __init__(self, inner: G) -> None:
        self._inner = inner

    async def complete(self, model: Model, request: Request, *, purpose: str) -> Reply:
        return await self._inner.complete(model, request, purpose=purpose)

    async def call_tool(self, tool: Tool, arguments: Mapping[str, Any]) -> ToolResult:
        return await self._inner.call_tool(tool, arguments)

    async def note(self, record: Any) -> None:
        await self._inner.note(record)


class _CountingGateway(_PassingGateway[CountingGateway]):
    """The same, inside of the gateway that serves what is on record."""

    @property
    def seen(self) -> defaultdict[str, int]:
        return self._inner.seen


class _TellingGateway(_PassingGateway[Gateway]):
    """Only a model that is really asked is heard: what was recorded is served by the gateway inside, in silence."""

    def __init__(self, inner: Gateway, tell: Tell, *, is_read: bool = True) -> None:
        super().__init__(inner)
        self._tell = tell
        self._is_read = is_read

    async def complete(self, model: Model, request: Request, *, purpose: str) -> Reply:
        is_read = self._is_read and request.response_schema is None and purpose not in PREPARING
        tapped_model = tap_model(model, self._tell, is_read=is_read)
        return await self._inner.complete(tapped_model, request, purpose=purpose)


class _WarmGateway(_PassingGateway[Gateway]):
    """Lets the other items of a map go once a model has begun to answer."""

    def __init__(self, inner: Gateway, start: WarmStart) -> None:
        super().__init__(inner)
        self._start = start

    async def complete(self, model: Model, request: Request, *, purpose: str) -> Reply:
        reply: Reply = await self._inner.complete(tap_model(model, self._hear), request, purpose=purpose)
        self._start.begin()
        return reply

    def _hear(self, text: str, begins: bool = False, model: str = "", /) -> None:
        if not model:
            self._start.begin()


class _FencedGateway(_CountingGateway):
    """Nothing is asked or called for a run that another process goes on with."""

    def __init__(self, inner: CountingGateway, fence: Fence) -> None:
        super().__init__(inner)
        self._fence = fence

    async def complete(self, model: Model, request: Request, *, purpose: str) -> Reply:
        await self._fence()
        return await self._inner.complete(model, request, purpose=purpose)

    async def call_tool(self, tool: Tool, arguments: Mapping[str, Any]) -> ToolResult:
        await self._fence()
        return await self._inner.call_tool(tool, arguments)


_PUT_ASIDE = Notice("it waits for the answer of a batch")


class _BatchingGateway(_CountingGateway):
    """Lets calls of models be put aside until a batch has answered them: an `AwaitsAnswer`."""

    def __init__(self, inner: CountingGateway, batcher: Batcher, context: Context) -> None:
        super().__init__(inner)
        self._batcher = batcher
        self._context = context

    async def complete(self, model: Model, request: Request, *, purpose: str) -> Reply:
        key, context = request.key(), self._context
        tries = sum(type(each) is Retry for each in context.runtime.recorded)
        place = CallPlace(self._batcher, context.run_id or "", context.current_node, tries, key, self.seen[key])
        token = CALL.set(place)
        try:
            return await self._inner.complete(model, request, purpose=purpose)
        except AwaitsAnswer:
            if _PUT_ASIDE not in context.runtime.recorded:
                await self._inner.note(_PUT_ASIDE)
            raise
        finally:
            CALL.reset(token)


class _LedgerGateway(_CountingGateway):
    """Only a model that is really asked is reserved for: it stands inside of the gateway that serves records.

    The model is wrapped and not the request changed, since calls are found again by their request.
    """

    def __init__(self, inner: CountingGateway, ledger: Ledger, notices: set[str]) -> None:
        """`notices`: the notices of this run so far."""
        super().__init__(inner)
        self._ledger = ledger
        self._notices = notices

    async def complete(self, model: Model, request: Request, *, purpose: str) -> Reply:
        bounded = BoundedModel(model, self._ledger, self._say)
        return await self._inner.complete(bounded, request, purpose=purpose)

    async def _say(self, text: str) -> None:
        if text not in self._notices:
            self._notices.add(text)
            await self._inner.note(Notice(text))


# --- The gateways that write and replay the transcript of an agent's node

T = TypeVar("T")


class _Candidate(NamedTuple):
    origin: Reused
    replay: Replay


class TranscriptGateway:
    """Answers every call from one of several transcripts, and makes none.

    `find`: the key of the first request → the transcripts that may hold the answers. After each call only those are
    left that had it. `give_up` is called where none had; it is to cancel the caller, so that nothing is made of it.
    """

    def __init__(self, find: Callable[[str], Iterable[Reused]], give_up: Callable[[], object]) -> None:
        self._find = find
        self._give_up = give_up
        self._candidates: list[_Candidate] | None = None
        self._counts: defaultdict[str, int] = defaultdict(int)

    @property
    def origin(self) -> Reused | None:
        """The transcript that had every answer; None where none had, or where nothing was asked."""
        return self._candidates[0].origin if self._candidates else None

    async def complete(self, model: Model, request: Request, *, purpose: str) -> Reply:
        key = request.key()
        if self._candidates is None:
            self._candidates = [_Candidate(each, Replay(each.calls)) for each in self._find(key)]
        return await self._answer(key, Replay.take_reply)

    async def call_tool(self, tool: Tool, arguments: Mapping[str, Any]) -> ToolResult:
        return await self._answer(tool_key(tool.name, arguments), Replay.take_tool_result)

    async def note(self, record: Any) -> None:
        """Nothing happens here that is worth telling."""

    async def _answer(self, key: str, take: Callable[[Replay, str, int], T | None]) -> T:
        occurrence = self._counts[key]
        self._counts[key] += 1
        answers = [(each, take(each.replay, key, occurrence)) for each in self._candidates or ()]
        self._candidates = [each for each, answer in answers if answer is not None]
        for _, answer in answers:
            if answer is not None:
                return answer
        self._give_up()
        await anyio.sleep_forever()
        raise AssertionError("unreachable")


class InactiveGateway(_PassingGateway[Gateway]):
    """Calls no tool with an effect outside: one that was called with the same arguments gives what it gave."""

    def __init__(self, inner: Gateway, calls: Iterable[Any]) -> None:
        """`calls`: what the node called in the recorded run."""
        super().__init__(inner)
        self._replay = Replay(list(calls))
        self._counts: defaultdict[str, int] = defaultdict(int)

    async def call_tool(self, tool: Tool, arguments: Mapping[str, Any]) -> ToolResult:
        if tool.effect != "external":
            return await self._inner.call_tool(tool, arguments)
        key = tool_key(tool.name, arguments)
        occurrence = self._counts[key]
        self._counts[key] += 1
        result = self._replay.take_tool_result(key, occurrence)
        if result is None:
            raise InactiveError(
                f"the effect of tool '{tool.name}' is not had again, and it was not called with these arguments before"
            )
        return result


class CopyingGateway(_PassingGateway[Gateway]):
    """Keeps a transcript of what passes through it."""

    def __init__(self, inner: Gateway) -> None:
        super().__init__(inner)
        self._counts: defaultdict[str, int] = defaultdict(int)
        self.calls: list[Any] = []
        self.has_asked = False
        """Whether a person was asked about one of them."""

    async def complete(self, model: Model, request: Request, *, purpose: str) -> Reply:
        key, occurrence = self._count_request(request.key())
        reply: Reply = await self._inner.complete(model, request, purpose=purpose)
        call = model_call(model, request, reply, purpose=purpose, key=key, occurrence=occurrence)
        self.calls.append(without_question(call))
        return reply

    async def call_tool(self, tool: Tool, arguments: Mapping[str, Any]) -> ToolResult:
        self.has_asked |= bool(tool.approve)
        key, occurrence = self._count_request(tool_key(tool.name, arguments))
        result: ToolResult = await self._inner.call_tool(tool, arguments)
        call = ToolCall(tool.name, {}, result.text, result.is_error, effect=tool.effect, key=key, occurrence=occurrence)
        call = call._replace(value=result.value, files=result.files)
        self.calls.append(call)
        return result

    def _count_request(self, key: str) -> tuple[str, int]:
        before = self._counts[key]
        self._counts[key] = before + 1
        return key, before
