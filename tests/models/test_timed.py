"""Models that are objects of a program are held to the time of their agent."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from flowengine import Agent, Reply, Request
from flowengine.errors import TransientModelError


class Slow:
    """Answers in two pieces; waits before each."""

    name = "slow"
    provider = "local"

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def complete(self, request: Request) -> Reply:
        await anyio.sleep(self.seconds)
        return Reply("done")

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[str | Reply]]:
        async def pieces() -> AsyncGenerator[str | Reply]:
            for piece in ("do", "ne", Reply("done")):
                await anyio.sleep(self.seconds)
                yield piece

        yield pieces()


async def test_a_model_that_takes_longer_than_its_agent_allows_fails() -> None:
    agent = Agent("a", "", model=Slow(60), timeout=0.01, max_retries=0)
    with pytest.raises(TransientModelError, match=r"'slow' did not answer within 0\.01 s"):
        await agent.run_async("x")
    with pytest.raises(TransientModelError, match="did not answer within"):
        async with agent.stream("x") as pieces:
            _ = [each async for each in pieces]


async def test_a_stream_that_is_talking_is_not_cut() -> None:
    async with Agent("a", "", model=Slow(0.3), timeout=0.7, max_retries=0).stream("x") as pieces:
        assert [each async for each in pieces][:2] == ["do", "ne"]
