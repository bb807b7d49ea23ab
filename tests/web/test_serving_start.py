"""The start of a server: what keeps an app from starting is told, and ends the command."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing

import pytest
from starlette.applications import Starlette

from flowengine.errors import FlowEngineError, StoreUnavailableError
from flowengine.web.serving import listen, serve


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (TypeError("Guard() got multiple values"), "the server cannot start: TypeError: Guard() got multiple values"),
        (StoreUnavailableError("the store is away"), "the store is away"),
    ],
)
def test_an_app_that_does_not_start_says_why(failure: Exception, said: str) -> None:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        raise failure
        yield

    ready: list[bool] = []
    with closing(listen("127.0.0.1", 0)) as listening, pytest.raises(FlowEngineError) as caught:
        serve(Starlette(lifespan=lifespan), listening, lambda: ready.append(True))
    assert (str(caught.value), ready) == (said, [])
