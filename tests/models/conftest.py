"""Fixtures of the model tests: both event loops, and the local model server."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from flowengine.models.litellm.event_loop import LoopThread
from flowengine.models.litellm.model import LiteLLMModel
from flowengine.models.messages import Message
from flowengine.models.model import Request

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from model_server import ModelServer  # found through the line above


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


async def _close_nothing() -> None:
    return None


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    made = LoopThread("test loop", close=_close_nothing)
    yield made
    made.stop()


@pytest.fixture(scope="session")
def litellm_is_loaded() -> None:
    """Importing it takes seconds: once, before a test's clock runs."""
    with ModelServer() as server:
        model = LiteLLMModel("gpt-4o-mini", "openai", settings={"api_base": server.url, "api_key": "secret"})
        anyio.run(model.complete, Request("gpt-4o-mini", (Message("user", "hi"),), timeout=60.0))
