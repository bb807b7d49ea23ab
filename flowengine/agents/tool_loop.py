"""Runs the rounds in which a model calls an agent's tools.

In a round the model asks for tools, they run, and it sees the results. Every call goes through the gateway. What goes
wrong with a call is a result that the model reads; only the gateway's own failures end the loop. After the last round
the model is asked once more, without tools, to answer with what it has.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias, cast

import anyio

from flowengine.agents.standalone import StreamingGateway
from flowengine.agents.tools import ApprovalRules, Offer, Tool, ToolResult, ToolSet, cut, failed_result
from flowengine.core import AwaitsPerson, Gateway, Messages, Notice, load_json, load_messages
from flowengine.errors import PermanentModelError
from flowengine.models import Message, Model, Reply, Request, ToolRequest

if TYPE_CHECKING:
    from flowengine.agents.tools.mcp import Served

Admit: TypeAlias = Callable[[Iterable[Tool]], None]
"""Raises if one of the tools must not be offered to the model here."""


class Bringer(Protocol):
    """Brings tools of its own, which may be others before each request; observes all calls, and may change what the
    model sees of them."""

    def tool_sets(self) -> Sequence[ToolSet]: ...

    async def refresh_messages(self, request: Request) -> tuple[Message, ...]:
        """The messages of a request as the model gets them; what is taken out of them may bring a tool."""
        ...

    def begin_round(self, calls: Iterable[tuple[Tool, Mapping[str, Any]]]) -> None:
        """Told of the calls of a round before any of them is made."""
        ...

    def take_result(self, tool: Tool, result: ToolResult) -> ToolResult:
        """Returns the result of a call as everybody sees it; called at once, while other calls still run."""
        ...

    async def note_call(self, name: str, arguments: Mapping[str, Any], result: ToolResult) -> None:
        """Told of each call of a round once all of them have ended, in the order in which they were asked for."""
        ...


class CurrentTools:
    """An agent's own tools, those that its servers list now, and those that are brought."""

    def __init__(
        self,
        sets: Sequence[ToolSet],
        rules: ApprovalRules,
        served: Served | None,
        bringer: Bringer | None,
        admit: Admit | None,
    ) -> None:
        """`admit` is asked about the tools before a model is; `bringer` has tools beside the agent's."""
        self.bringer = bringer
        self._sets = sets
        self._rules = rules
        self._served = served
        self._admit = admit
        self._is_bringing = False
        self.offer = self._make_offer()

    async def renew(self) -> Offer:
        """The tools as they are now: the same object for as long as they stay the same."""
        changed = self._served is not None and await self._served.renew()
        if changed or self._is_bringing or (self.bringer is not None and self.bringer.tool_sets()):
            self.offer = self._make_offer()
        return self.offer

    @property
    def added(self) -> Sequence[ToolSet]:
        """Tools of typed contexts, skills and servers."""
        context_sets = () if self.bringer is None else self.bringer.tool_sets()
        self._is_bringing = bool(context_sets)
        return (*context_sets, *(() if self._served is None else self._served.sets))

    def _make_offer(self) -> Offer:
        offer = Offer((*self._sets, *self.added), self._rules)
        if self._admit is not None:
            self._admit(offer)
        return offer


class RoundLimits(NamedTuple):
    """How many tools a generation may call."""

    max_rounds: int = 10
    max_parallel: int = 8
    """Calls of one round that run at once."""


class ToolLoopRequest(NamedTuple):
    """An answer, with what the tools had to do with it."""

    reply: Reply
    added: tuple[Message, ...]
    """The messages after the request's on the way to the reply."""


class ToolLoop:
    """The rounds of tools of one generation; corrections of its answer share them.

    A round is one answer that asks for tools, whatever their number. Tools that may change are asked for anew before
    each request.
    """

    def __init__(
        self, limits: RoundLimits, offer: Offer, words: Messages, changing: CurrentTools | None = None
    ) -> None:
        self._limits = limits
        self._offer: Offer = offer
        self._schemas = offer.schemas()
        self._words = words
        self._changing = changing
        self._bringer = None if changing is None else changing.bringer
        self._rounds_left = limits.max_rounds

    @property
    def schemas(self) -> Sequence[Mapping[str, Any]]:
        """The schemas of the tools that there are now."""
        return self._schemas

    @property
    def is_open(self) -> bool:
        """Whether the next request offers tools."""
        return bool(self._schemas) and self._rounds_left > 0

    async def ask(self, gateway: Gateway, model: Model, request: Request, *, purpose: str) -> ToolLoopRequest:
        """The model's answer, once it has had its tools."""
        current = self._set_tools(request) if self._changing is None else await self._add_offer(request)
        while True:
            rewritten = current if self._bringer is None else await self._rewrite_messages(current, self._bringer)
            reply: Reply = await gateway.complete(model, rewritten, purpose=purpose)
            _check_refusal(reply, rewritten)
            if not reply.tool_calls or not rewritten.tools:
                return ToolLoopRequest(reply, current.messages[len(request.messages) :])
            current = await self._request_after(gateway, current, reply)

    async def stream(
        self, gateway: StreamingGateway, model: Model, request: Request, *, purpose: str
    ) -> AsyncGenerator[str | ToolLoopRequest]:
        """The same, with the text as it is written; what was said before a request for tools ends in a blank line."""
        current = await self._add_offer(request)
        while True:
            reply = Reply("")
            rewritten = current if self._bringer is None else await self._rewrite_messages(current, self._bringer)
            async with gateway.stream(model, rewritten, purpose=purpose) as source:
                async for piece in source:
                    if isinstance(piece, Reply):
                        reply = piece
                    else:
                        yield piece
            _check_refusal(reply, current)
            if not reply.tool_calls or not rewritten.tools:
                yield ToolLoopRequest(reply, current.messages[len(request.messages) :])
                return
            current = await self._request_after(gateway, current, reply)
            if reply.content.strip():
                yield "\n\n"

    async def _rewrite_messages(self, request: Request, bringer: Bringer) -> Request:
        messages = await bringer.refresh_messages(request)
        if messages is request.messages:
            return request
        return await self._add_offer(replace(request, messages=messages))

    async def _add_offer(self, request: Request) -> Request:
        if self._changing is not None and self._rounds_left > 0:
            offer = await self._changing.renew()
            if offer is not self._offer:
                self._offer, self._schemas = offer, offer.schemas()
        return self._set_tools(request)

    def _set_tools(self, request: Request) -> Request:
        tools = self._schemas if self.is_open else ()
        return request if request.tools == tools else replace(request, tools=tools)

    async def _request_after(self, gateway: Gateway, request: Request, reply: Reply) -> Request:
        """The request after a round of the tools that the reply asks for."""
        self._rounds_left -= 1
        messages = [*request.messages, *await self._run_round(gateway, reply)]
        if self._rounds_left <= 0:
            limit = self._limits.max_rounds
            messages.append(Message("user", self._words("tools.limit", rounds=limit)))
            await gateway.note(Notice(f"the limit of {limit} round(s) of tool calls was reached"))
        return await self._add_offer(replace(request, messages=tuple(messages)))

    async def _run_round(self, gateway: Gateway, reply: Reply) -> tuple[Message, ...]:
        """The calls that a reply asks for, and their results in the same order."""
        calls = [_read_call(each) for each in reply.tool_calls]
        if self._bringer is not None:
            pairs = ((self._offer.find(each.request.name), each.arguments) for each in calls)
            self._bringer.begin_round(
                [(tool, arguments) for tool, arguments in pairs if tool and not isinstance(arguments, str)]
            )
        results = await self._run_calls(gateway, calls)
        if self._bringer is not None:
            for call, result in zip(calls, results, strict=True):
                if self._offer.find(call.request.name) is not None and not isinstance(call.arguments, str):
                    await self._bringer.note_call(call.request.name, call.arguments, result)
        answers = (
            Message("tool", result.text, tool_call_id=call.request.id, is_error=result.is_error)
            for call, result in zip(calls, results, strict=True)
        )
        sound = tuple(call.sound() for call in calls)
        return (Message("assistant", reply.content, sound, vendor_parts=reply.vendor_parts), *answers)

    async def _run_calls(self, gateway: Gateway, calls: Sequence[_Call]) -> list[ToolResult]:
        """At most `max_parallel` at once, begun in order. A failure of the gateway begins no further ones; a call that
        waits for a person keeps no other one from being made, or asked about."""
        results: dict[int, ToolResult] = {}
        failures: dict[int, Exception] = {}
        parked: list[AwaitsPerson] = []
        waiting = iter(enumerate(calls))

        async def work(waiting: Iterator[tuple[int, _Call]]) -> None:
            for number, call in waiting:
                try:
                    results[number] = await self._run_call(gateway, call)
                except AwaitsPerson as waits:
                    parked.append(waits)
                except Exception as error:
                    failures[number] = error
                if failures:
                    return

        async with anyio.create_task_group() as tasks:
            for _ in range(min(len(calls), self._limits.max_parallel)):
                tasks.start_soon(work, waiting)
        if failures:
            raise failures[min(failures)]  # Raised here, so that no exception group is round it.
        if parked:
            raise parked[0]
        return [results[number] for number in range(len(calls))]

    async def _run_call(self, gateway: Gateway, call: _Call) -> ToolResult:
        name, arguments = call.request.name, call.arguments
        tool = self._offer.find(name)
        if tool is not None and not isinstance(arguments, str):
            result: ToolResult = await gateway.call_tool(tool, arguments)
            return result if self._bringer is None else self._bringer.take_result(tool, result)
        if tool is None:
            refused = self._offer.unknown(name)
        else:
            refused = failed_result(self._words("tools.arguments", tool=name, problem=arguments))
        await gateway.note(Notice(f"a request for a tool was refused: {cut(refused.text, 500)}"))
        return refused


def _check_refusal(reply: Reply, request: Request) -> None:
    """Raise if the vendor's content filter took the answer."""
    if reply.finish_reason == "content_filter":
        raise PermanentModelError(f"model '{reply.model or request.model}' refused to answer (content filter)")


class _Call(NamedTuple):
    """A request for a tool as it was read."""

    request: ToolRequest
    arguments: Mapping[str, Any] | str
    """The arguments of the call, or what is wrong with them."""

    def sound(self) -> ToolRequest:
        """The request as vendors take it back: some refuse a whole chat for a name or arguments of another form."""
        name = re.sub(r"[^A-Za-z0-9_-]", "_", self.request.name)[:64] or "_"
        return ToolRequest(self.request.id, name, "{}" if isinstance(self.arguments, str) else self.request.arguments)


def _read_call(request: ToolRequest) -> _Call:
    """No text at all is no arguments: so some models call a tool that takes none."""
    text = request.arguments.strip() or "{}"
    try:
        arguments = load_json(text)
    except (ValueError, RecursionError) as error:
        return _Call(request, f"{error}; they were: {cut(text, 200)}")
    if not isinstance(arguments, dict):
        return _Call(request, f"a JSON object is expected; they were: {cut(text, 200)}")
    return _Call(request._replace(arguments=text), cast("dict[str, Any]", arguments))


def without_tools() -> ToolLoop:
    """The loop of a generation that has none: the first reply is the answer."""
    return _NONE


_NONE: Final = ToolLoop(RoundLimits(), Offer(()), load_messages("en"))
