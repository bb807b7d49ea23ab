"""Misspelt keywords of a flow's async methods are told with the nearest one that there is."""

from __future__ import annotations

import inspect

import pytest

from flowengine import Flow, FunctionNode
from flowengine.core.context import Context


def one(context: Context) -> int:
    return 1


FLOW = Flow("one", {"one": FunctionNode(one)})


@pytest.mark.parametrize(
    ("method", "names"),
    [
        ("run", "stroe → store"),
        ("resume", "allow_change → allow_changed"),
        ("fork", "states → state"),
        ("stream", "token → tokens"),
        ("stream_resume", "retry_effect → retry_effects"),
    ],
)
async def test_a_mistyped_argument_of_an_async_method_is_told_with_the_nearest(method: str, names: str):
    wrong, meant = names.split(" → ")
    with pytest.raises(TypeError, match=f"Flow.{method} has no argument '{wrong}'; did you mean '{meant}'") as caught:
        await getattr(FLOW, method)(**{wrong: 1})
    assert caught.value.__cause__ is None
    assert inspect.iscoroutinefunction(FLOW.run)
    assert "store" in inspect.signature(FLOW.run).parameters
