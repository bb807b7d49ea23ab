"""Gives an agent outside of any flow its gateway: calls go straight through, and records go to one callable.

It knows models, tools and record types. It keeps and retries nothing itself: inside a flow its
listener is the journal, and round it is a gateway that serves what was recorded before.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager, suppress
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import anyio

from flowengine.agents.tools import Tool, ToolResult, failed_result
from flowengine.core import (
    USER_CODE,
    FileKeeper,
    FileValue,
    Gateway,
    ModelCall,
    Post,
    RefusedFileError,
    RunScope,
    ToolCall,
    ignore_record,
    is_being_cancelled,
    post_to_this_loop,
    short_lived,
    tool_key,
)
from flowengine.errors import LimitError, ModelError, NotJournalableError, RunError, UnknownEffectError
from flowengine.models import (
    CALL_STEPS,
    Model,
    Reply,
    Request,
    TimedStep,
    Unanswered,
    most_of,
    plain_request,
    read_cost,
    tell_steps,
    worst_cases,
)

# --- From synchronous code into asynchronous code

T = TypeVar("T")


def run_sync(function: Callable[[], Awaitable[T]]) -> T:
    """Run a coroutine function to its end and return its result.

    Where an event loop is already running in this thread (a notebook, a server), a thread with a
    loop of its own does it, and the running loop stands still meanwhile: prefer `await` there.

    >>> async def answer() -> int:
    ...     return 42
    >>> run_sync(answer)
    42
    """

    async def run() -> T:
        with short_lived():
            return await function()

    if not in_event_loop():
        return anyio.run(run)
    stoppable = _Stoppable(run)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="flowengine") as pool:
        try:
            return pool.submit(anyio.run, stoppable.run).result()
        except BaseException:  # Also an interrupt of this thread: then the other is to end, and is waited for.
            stoppable.stop()
            raise


class _Stoppable(Generic[T]):
    """A coroutine function in an event loop of another thread."""

    def __init__(self, function: Callable[[], Awaitable[T]]) -> None:
        self._function = function
        self._is_stopped = False
        self._post: Post | None = None
        self._scope: anyio.CancelScope

    async def run(self) -> T:
        with anyio.CancelScope() as self._scope:
            self._post = post_to_this_loop()
            if self._is_stopped:
                self._scope.cancel()
            return await self._function()
        raise RuntimeError("it was stopped")

    def stop(self) -> None:
        """Cancel it, if it has not ended; called in the thread that waits for it."""
        self._is_stopped = True
        if self._post is not None:
            with suppress(RuntimeError):  # Its loop has ended.
                self._post(lambda: self._scope.cancel())


def in_event_loop() -> bool:
    """Tells whether this thread is running an event loop, of whatever kind."""
    try:
        anyio.current_time()
    except RuntimeError:
        return False
    return True


Listener: TypeAlias = Callable[[Any], Awaitable[None]]


class StreamingGateway(Gateway, Protocol):
    """A gateway that can also hand on an answer while it is being written."""

    def stream(
        self, model: Model, request: Request, *, purpose: str
    ) -> AbstractAsyncContextManager[AsyncIterator[str | Reply]]:
        """Pieces of text and, last, the `Reply`; leaving the context early cancels the call."""
        ...


class DirectGateway:
    """Calls models and tools, and tells `note` about each call.

    `note` gets a `ModelCall` or `ToolCall` after every call, failed ones included, and before its
    answer is handed on; a call to an external tool is told before it begins as well. So is whatever
    else the agent has to tell (`Round`, `Notice`).
    """

    def __init__(
        self, note: Listener = ignore_record, scope: RunScope | None = None, *, raises_doubt: bool = False
    ) -> None:
        """`scope`: takes in what tools give as bytes; None: they stay bytes. `raises_doubt`: an external call that may
        have taken effect, and gave nothing that can be kept, is an `UnknownEffectError` without an end on record."""
        self._listener = note
        self._raises_doubt = raises_doubt
        self._scope = scope
        self.seen: defaultdict[str, int] = defaultdict(int)
        """Key → how many equal calls have begun."""

    async def complete(self, model: Model, request: Request, *, purpose: str) -> Reply:
        """One completion."""
        start = time.perf_counter()
        key, occurrence = self._count_call(request.key())
        steps: list[TimedStep] = []
        token = CALL_STEPS.set(steps)
        try:
            with USER_CODE:  # A model may be an object of an author's.
                reply = _add_model_name(await model.complete(request), model)
        except (ModelError, LimitError) as error:
            if isinstance(error, LimitError) and error.reply is None and not error.unanswered:
                raise  # It was not made.
            record = _failed_call(model, request, error, start, purpose=purpose, key=key, occurrence=occurrence)
            await self._listener(record._replace(timeline=tell_steps(steps)))
            raise
        finally:
            CALL_STEPS.reset(token)
        record = model_call(model, request, reply, purpose=purpose, key=key, occurrence=occurrence)
        await self._note_answer(record._replace(timeline=tell_steps(steps)) if steps else record)
        if is_being_cancelled():
            await anyio.lowlevel.checkpoint()  # The answer came all the same; nothing follows from it.
        return reply

    async def _note_answer(self, record: ModelCall) -> None:
        """Tell of an answer, which is paid for: without what the vendor wants back, where that cannot be written."""
        try:
            await self._listener(record)
        except NotJournalableError:
            await self._listener(record._replace(vendor_parts=()))

    @asynccontextmanager
    async def stream(
        self, model: Model, request: Request, *, purpose: str
    ) -> AsyncGenerator[AsyncIterator[str | Reply]]:
        """One completion, piece by piece; noted when its last piece has been taken, or when it fails."""
        start = time.perf_counter()
        key, occurrence = self._count_call(request.key())

        async def note(error: ModelError) -> None:
            await self._listener(
                _failed_call(model, request, error, start, purpose=purpose, key=key, occurrence=occurrence)
            )

        async def pieces(source: AsyncIterator[str | Reply]) -> AsyncGenerator[str | Reply]:
            try:
                async for piece in source:
                    if isinstance(piece, Reply):
                        record = model_call(model, request, piece, purpose=purpose, key=key, occurrence=occurrence)
                        await self._note_answer(record)
                    yield piece
            except ModelError as error:
                await note(error)
                raise

        async with AsyncExitStack() as stack:
            try:
                source = await stack.enter_async_context(model.stream(request))
            except ModelError as error:
                await note(error)
                raise
            yield await stack.enter_async_context(aclosing(pieces(source)))

    async def call_tool(self, tool: Tool, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool; what goes wrong in it is a result as well.

        `RunError` for one whose calls wait for a person: that is asked for before, by a caller that can wait.
        """
        if tool.approve:
            raise RunError(
                f"the call of tool '{tool.name}' waits for a person's consent, and only a flow's run can wait: "
                f"run the agent in a flow"
            )
        key, occurrence = self._count_call(tool_key(tool.name, arguments))
        opening = ToolCall(tool.name, arguments, None, effect=tool.effect, key=key, occurrence=occurrence, started=True)
        if tool.effect == "external":
            await self.note(opening)
        start = time.perf_counter()
        result = await tool.call(arguments)
        files = None if self._scope is None else self._scope.files
        if files is not None:
            result = await _keep_files(tool, result, files)
        if result.may_have_acted and self._raises_doubt:
            raise UnknownEffectError(result.text)
        seconds = time.perf_counter() - start
        record = opening._replace(
            started=False,
            result=result.text,
            is_error=result.is_error,
            value=result.value,
            seconds=seconds,
            files=tuple(each for each in result.files if isinstance(each, FileValue)),
        )
        try:
            await self.note(record)
        except NotJournalableError as error:  # What a function returned may be anything: then its text has to do.
            if self._raises_doubt:
                kind = UnknownEffectError if tool.effect == "external" else RunError
                raise kind(f"tool '{tool.name}' was called, and what it gave cannot be kept: {error}") from error
            await self.note(record._replace(value=None))
        return result

    async def note(self, record: Any) -> None:
        """Hands a record on to whoever listens."""
        await self._listener(record)

    def _count_call(self, key: str) -> tuple[str, int]:
        """The call's key, and how many equal calls came before."""
        before = self.seen[key]
        self.seen[key] = before + 1
        return key, before


async def _keep_files(tool: Tool, result: ToolResult, files: FileKeeper) -> ToolResult:
    """The result with files of the run in the place of bytes; an error where one is refused."""
    try:
        value = await files.keep_in(result.value, tool.name)
        beside = tuple([await files.keep_in(each, tool.name) for each in result.files])
    except RefusedFileError as error:
        text = f"tool '{tool.name}' gave what cannot be kept: {error}"
        return failed_result(text, may_have_acted=tool.effect == "external")
    return result._replace(value=value, files=beside)


def _add_model_name(reply: Reply, model: Model) -> Reply:
    """The reply with who answered, where it does not say so itself; as it will be on record."""
    if reply.model and reply.provider:
        return reply
    return reply._replace(model=reply.model or model.name, provider=reply.provider or model.provider)


def _failed_call(
    model: Model, request: Request, error: ModelError | LimitError, start: float, **call: Any
) -> ModelCall:
    """The record of a call that failed, with what it took all the same."""
    paid: Reply = error.reply or Reply("", unanswered=Unanswered(error.unanswered))
    failed = paid._replace(content="", tool_calls=(), finish_reason="", seconds=time.perf_counter() - start)
    return model_call(model, request, failed, error=str(error), **call)


def model_call(
    model: Model,
    request: Request,
    reply: Reply,
    *,
    purpose: str,
    key: str = "",
    occurrence: int = 0,
    error: str | None = None,
) -> ModelCall:
    """The record of one call; `key` and `occurrence` are counted by the gateway."""
    unanswered = reply.unanswered
    if unanswered.calls and not unanswered.tokens:
        unanswered = most_of(next(worst_cases(model, request)), unanswered.calls)
    return ModelCall(
        model=reply.model or model.name,
        provider=reply.provider or model.provider,
        purpose=purpose,
        messages=request.plain_messages(),
        content=reply.content,
        tool_calls=[call._asdict() for call in reply.tool_calls],
        prompt_tokens=reply.usage.prompt_tokens,
        completion_tokens=reply.usage.completion_tokens,
        cached_tokens=reply.usage.cached_tokens,
        cost_usd=read_cost(reply.cost_usd),
        seconds=reply.seconds,
        key=key,
        occurrence=occurrence,
        attempts=reply.attempts,
        finish_reason=reply.finish_reason,
        error=error,
        request=plain_request(request),
        vectors=reply.vectors,
        vendor_parts=reply.vendor_parts,
        cache_write_tokens=reply.usage.cache_write_tokens,
        reasoning_tokens=reply.usage.reasoning_tokens,
        unanswered=unanswered.calls,
        may_be_billed_tokens=unanswered.tokens,
        may_be_billed_usd=read_cost(unanswered.cost_usd),
    )
