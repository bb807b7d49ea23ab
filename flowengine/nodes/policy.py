"""Puts policies round a node: `when`, `set`, retry, timeout. Each has the shape of the node it wraps.

From the outside in: when → set → limits → retry → thread → timeout → effect → check → the node itself. So a timeout
bounds one attempt, a retry repeats the node and its timeout, limits hold for all attempts together,
and `set` sees the output that was kept. What takes a known result in the place of the body stands between
`set` and the limits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from random import random
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import anyio

from flowengine.core import (
    GRACE,
    TRAITS,
    USER_CODE,
    Context,
    Decided,
    EffectDecided,
    Ledger,
    NodeResult,
    Notice,
    Spending,
    ToolCall,
    Waited,
    describe_error,
    describe_value,
    is_being_cancelled,
    is_failure,
    is_on_asyncio,
    tool_key,
)
from flowengine.core import Retry as RetryRecord
from flowengine.engine import Ended, Known, Node, NodeContext, Skip, meet_deadline, timeout_error
from flowengine.errors import LONGEST_WAIT, NodeTimeoutError, OverdueError, RunError, TemplateError, may_have_arrived
from flowengine.nodes.abandonable_body import AbandonableBody
from flowengine.nodes.node import FlowNode, NodeLimits, RetryPolicy, Testable, check_result, work_out

if TYPE_CHECKING:
    from tenacity import RetryCallState

N = TypeVar("N", bound=Node)


def wrap_node(node: FlowNode, wrap_body: Callable[[Node], Node] | None = None) -> Node:
    """The node with the policies that it asks for; without any it is the node itself. `wrap_body`: wraps what
    `set` and `when` have inside."""
    runnable: Node = node if node.kind in TRAITS else _Checked(node)
    if node.effect == "external" and not node.records_effect:
        runnable = _ExternalEffect(runnable)
    if node.timeout is not None:
        runnable = (_Timed if node.container else _TimedApart)(runnable, node.timeout, node.load_models)
    if node.in_thread:
        runnable = _InTurn(runnable)
    if node.retry is not None and node.retry.attempts > 1:
        runnable = _Retrying(runnable, node.retry)
    if node.limits is not None:
        runnable = _Bounded(runnable, node.limits, leaf=not node.container)
    if wrap_body is not None:
        runnable = wrap_body(runnable)
    if node.set:
        runnable = _Setting(runnable, node.set)
    if node.when is not None:
        runnable = _Conditional(runnable, node.when)
    return runnable


class _Wrapped(Generic[N]):
    """A node with something round it."""

    def __init__(self, node: N) -> None:
        self._node = node


class _Checked(_Wrapped[FlowNode]):
    """Refuses results of an author's own kind of node that the engine could not use."""

    async def run(self, context: Context, /) -> Ended:
        if self._node.container:
            result = await self._node.run(context)  # Its levels write the run's own record.
        else:
            with USER_CODE:
                result = await self._node.run(context)
        if isinstance(result, NodeResult):
            check_result(result, self._node)
        return result


class _Conditional:
    def __init__(self, node: Node, when: Callable[[Context], Any]) -> None:
        self._node = node
        self._when = when
        self._test = when.test if isinstance(when, Testable) else None

    async def run(self, context: Context, /) -> Ended:
        if self._test is not None:
            verdict = self._test(context)
            why = Decided("when", "true" if verdict["answer"] else "false", (verdict,))
            if not verdict["answer"]:
                return Skip(why=why)
            context.runtime.note_with_next(why)
            return await self._node.run(context)
        with USER_CODE:
            answer: Any = self._when(context)
            if isawaitable(answer):
                answer = await answer
        if not isinstance(answer, bool):
            raise TemplateError(f"`when` must give true or false, found {describe_value(answer)}")
        return await self._node.run(context) if answer else Skip()


class _Setting:
    def __init__(self, node: Node, values: Mapping[str, Callable[[Context, Any], Any]]) -> None:
        self._node = node
        self._values = values

    async def run(self, context: Context, /) -> Ended:
        result = await self._node.run(context)
        if isinstance(result, Known):
            return result._replace(result=self._with_writes(context, result.result))
        return self._with_writes(context, result) if isinstance(result, NodeResult) else result

    def _with_writes(self, context: Context, result: NodeResult) -> NodeResult:
        state = work_out(self._values, context, result.output)
        return result._replace(state={**(result.state or {}), **state})


class _Meeting(_Wrapped[Node]):
    """A node whose evaluation that ran into the deadline waits for the cancellation."""

    async def run(self, context: Context, /) -> Ended:
        try:
            return await self._node.run(context)
        except OverdueError as error:
            await meet_deadline(error)


class _Timed:
    """Bounds one attempt; a result that comes after its time is up does not count. `load` is waited for before."""

    def __init__(self, node: Node, seconds: float, load: Callable[[], Awaitable[None]]) -> None:
        self._node = _Meeting(node)
        self._seconds = seconds
        self._load = load

    async def run(self, context: Context, /) -> Ended:
        await self._load()
        with anyio.move_on_after(self._seconds) as scope:
            result = await self._node.run(context)
            if not scope.cancel_called and anyio.current_time() < scope.deadline:  # It may have blocked the loop.
                return result
        raise self._overrun()

    def _overrun(self, but: str = "") -> NodeTimeoutError:
        return NodeTimeoutError(f"took longer than its timeout of {self._seconds:g} s{but}")


class _TimedApart(_Timed):
    """Bounds one attempt of code that may ignore that it is cancelled: on asyncio the run goes on without it.

    On trio nothing ends before all that it started has ended.
    """

    async def run(self, context: Context, /) -> Ended:
        if not is_on_asyncio():
            return await super().run(context)
        await self._load()
        until = anyio.current_time() + self._seconds
        body = AbandonableBody(self._node, context, min(until, anyio.current_effective_deadline()))
        try:
            has_ended = await body.wait(until) or await body.cancel(GRACE)
        except anyio.get_cancelled_exc_class():
            if not await body.cancel(GRACE):
                with anyio.CancelScope(shield=True):
                    await self._leave_behind(body, context)
            raise
        if not has_ended:
            await self._leave_behind(body, context)
            raise self._overrun("; its code ignores that it is cancelled, and was left behind")
        if body.overran:
            await anyio.lowlevel.checkpoint()  # Where it is the run that was cancelled, it is told here.
        if body.error is not None:
            raise body.error
        if body.result is None:
            raise self._overrun()
        return body.result

    async def _leave_behind(self, body: AbandonableBody, context: Context) -> None:
        body.leave_behind()
        await context.runtime.note(
            Notice(
                f"its code still ran {GRACE:g} s after it was cancelled: it was left behind, and its result is dropped"
            )
        )


_WORTH_TELLING: Final = 0.01
"""Seconds of a wait for a thread."""


class _InTurn(_Wrapped[Node]):
    """Waits for one of the run's threads, so that the time of an attempt begins when its function does."""

    async def run(self, context: Context, /) -> Ended:
        if context.runtime.scope is None:
            return await self._node.run(context)
        threads, waited = context.runtime.scope.threads, 0.0
        try:
            threads.acquire_nowait()
        except anyio.WouldBlock:
            start = perf_counter()
            await threads.acquire()
            waited = perf_counter() - start
        try:
            if waited >= _WORTH_TELLING:
                await context.runtime.note(Waited(waited))
            return await self._node.run(context)
        finally:
            threads.release()


class _Bounded:
    """A part of the run with a ledger of its own. What it has spent before counts; its time begins anew."""

    def __init__(self, node: Node, limits: NodeLimits, *, leaf: bool) -> None:
        self._node = node
        self._limits = limits
        self._leaf = leaf

    async def run(self, context: Context, /) -> Ended:
        limits, path = self._limits, context.current_node or ""
        deadline = None if limits.timeout is None else anyio.current_time() + limits.timeout
        spent = context.runtime.walk.history.sum_spending(path) if isinstance(context, NodeContext) else Spending()
        ledger = Ledger(
            limits.bounds,
            of=f"node '{path}'",
            part=path,
            on_limit=limits.on_limit,
            above=context.runtime.ledger,
            spent=spent,
            deadline=deadline,
        )
        charged = context.with_(runtime=context.runtime.charging(ledger))
        if deadline is None or not self._leaf:
            return await self._node.run(charged)  # A container keeps the deadline of its levels itself.
        with anyio.move_on_at(deadline):
            return await _Meeting(self._node).run(charged)
        raise timeout_error(ledger)


class _ExternalEffect(_Wrapped[Node]):
    """A function with an effect outside: that it begins is on record before it does. Source of the rule: rule 18."""

    async def run(self, context: Context, /) -> Ended:
        call = ToolCall(context.current_node or "", {}, None, effect="external", key=tool_key("node", {}), started=True)
        decided = [each for each in context.runtime.recorded if type(each) is EffectDecided and each.key == call.key]
        if decided and decided[-1].decision == "done":
            return NodeResult()
        await context.runtime.note(call)
        try:
            return await self._node.run(context)
        except BaseException as error:
            if not _has_failed(error) or may_have_arrived(error):
                raise  # As if the process had died meanwhile: a person decides.
            await context.runtime.note(call._replace(result=describe_error(error), is_error=True, started=False))
            raise


_MOST_DOUBLINGS: Final = 1000


class _Retrying:
    """Goes on counting where an interrupted run of the node broke off: what had failed is not tried again."""

    def __init__(self, node: Node, policy: RetryPolicy) -> None:
        self._node = node
        self._policy = policy

    async def run(self, context: Context, /) -> Ended:
        import tenacity  # Only where a retry is asked for: its import costs more than a run.

        policy = self._policy
        failed = sum(type(record) is RetryRecord for record in context.runtime.recorded)
        if policy.backoff == "fixed":
            pause: Any = tenacity.wait_fixed(policy.initial)
        else:
            pause = tenacity.wait_exponential(
                multiplier=policy.initial * 2.0 ** min(failed, _MOST_DOUBLINGS), max=policy.max
            )

        def seconds(state: tenacity.RetryCallState) -> float:
            own = min(pause(state), policy.max) * (1 - random() / 2 if policy.jitter else 1)
            return max(own, _seconds_asked(state))

        async def tell(state: tenacity.RetryCallState) -> None:
            assert state.outcome is not None
            assert state.next_action is not None
            failure = state.outcome.exception()
            attempt = failed + state.attempt_number
            await context.runtime.note(RetryRecord(attempt, describe_error(failure), state.next_action.sleep))

        retrying = tenacity.AsyncRetrying(
            stop=lambda state: state.attempt_number >= policy.attempts - failed or _seconds_asked(state) > LONGEST_WAIT,
            wait=seconds,
            retry=tenacity.retry_if_exception(lambda error: _has_failed(error) and policy.covers(error)),
            sleep=anyio.sleep,
            before_sleep=tell,
            reraise=True,
        )
        return await retrying(self._node.run, context)


def _has_failed(error: BaseException) -> bool:
    """Tells whether it is a node's failure, as the scheduler has it, and not what it made of its cancellation."""
    return (is_failure(error) or isinstance(error, anyio.get_cancelled_exc_class())) and not is_being_cancelled()


def _seconds_asked(state: RetryCallState) -> float:
    """Seconds that a server wants to be left alone, where it was one that failed."""
    failure = state.outcome and state.outcome.exception()
    return (failure.retry_after or 0.0) if isinstance(failure, RunError) else 0.0
