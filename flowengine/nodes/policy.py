"""Policies round a node: `when`, `set`, retry, timeout. Each has the shape of the node it wraps.

From the outside in: when → set → retry → timeout → the node itself. So a timeout bounds one
attempt, a retry repeats the node and its timeout, and `set` sees the output that was kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import isawaitable
from random import random
from typing import Any

import anyio

from flowengine.context import Context, NodeResult
from flowengine.engine.ports import Ended, Node, Skip
from flowengine.errors import NodeTimeoutError, TemplateError
from flowengine.nodes.node import FlowNode
from flowengine.nodes.retry import Retry
from flowengine.records import Retry as RetryRecord
from flowengine.values import shown

__all__ = ["wrapped"]


def wrapped(node: FlowNode) -> Node:
    """The node with the policies that it asks for; without any it is the node itself."""
    runnable: Node = node
    if node.timeout is not None:
        runnable = _Timed(runnable, node.timeout)
    if node.retry is not None and node.retry.attempts > 1:
        runnable = _Retrying(runnable, node.retry)
    if node.set:
        runnable = _Setting(runnable, node.set)
    if node.when is not None:
        runnable = _Conditional(runnable, node.when)
    return runnable


class _Conditional:
    def __init__(self, node: Node, when: Callable[[Context], Any]) -> None:
        self._node = node
        self._when = when

    async def run(self, context: Context, /) -> Ended:
        answer: Any = self._when(context)
        if isawaitable(answer):
            answer = await answer
        if not isinstance(answer, bool):
            raise TemplateError(f"`when` must give true or false, found {shown(answer)}")
        return await self._node.run(context) if answer else Skip()


class _Setting:
    def __init__(self, node: Node, values: Mapping[str, Callable[[Context, Any], Any]]) -> None:
        self._node = node
        self._values = values

    async def run(self, context: Context, /) -> Ended:
        result = await self._node.run(context)
        if not isinstance(result, NodeResult):
            return result
        written = {key: value(context, result.output) for key, value in self._values.items()}
        return result._replace(state={**(result.state or {}), **written})


class _Timed:
    def __init__(self, node: Node, seconds: float) -> None:
        self._node = node
        self._seconds = seconds

    async def run(self, context: Context, /) -> Ended:
        with anyio.move_on_after(self._seconds) as scope:
            return await self._node.run(context)
        assert scope.cancelled_caught
        raise NodeTimeoutError(f"took longer than its timeout of {self._seconds:g} s")


class _Retrying:
    """Goes on counting where an interrupted run of the node broke off: what had failed is not tried again."""

    def __init__(self, node: Node, policy: Retry) -> None:
        self._node = node
        self._policy = policy

    async def run(self, context: Context, /) -> Ended:
        import tenacity  # Only where a retry is asked for: its import costs more than a run.

        policy = self._policy
        failed = sum(type(record) is RetryRecord for record in context.recorded)
        if policy.backoff == "fixed":
            pause: Any = tenacity.wait_fixed(policy.initial)
        else:
            pause = tenacity.wait_exponential(multiplier=policy.initial * 2**failed, max=policy.max)

        def seconds(state: tenacity.RetryCallState) -> float:
            return min(pause(state), policy.max) * (1 - random() / 2 if policy.jitter else 1)

        async def tell(state: tenacity.RetryCallState) -> None:
            assert state.outcome is not None
            assert state.next_action is not None
            failure = state.outcome.exception()
            attempt, told = failed + state.attempt_number, f"{type(failure).__name__}: {failure}"
            await context.note(RetryRecord(attempt, told, state.next_action.sleep))

        retrying = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(policy.attempts - failed),
            wait=seconds,
            retry=tenacity.retry_if_exception(policy.covers),
            sleep=anyio.sleep,
            before_sleep=tell,
            reraise=True,
        )
        return await retrying(self._node.run, context)
