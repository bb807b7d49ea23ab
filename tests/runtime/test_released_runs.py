"""What a run holds is let go of with it: whoever starts many runs does not wait for the garbage collector."""

from __future__ import annotations

import gc
from weakref import ref

import pytest

from flowengine import Context, Flow, FunctionNode


async def count(context: Context) -> int:
    return context.shared_state["start"] + 1


@pytest.mark.anyio
async def test_a_run_that_is_let_go_of_leaves_nothing_to_the_garbage_collector() -> None:
    flow = Flow("t", {"a": FunctionNode(count), "b": FunctionNode(count, needs=["a"])}, shared_state={"start": 1})
    await flow.run()
    gc.disable()
    try:
        run = await flow.run()
        assert run.outputs == {"b": 2}
        walk = ref(run._walk)  # type: ignore[attr-defined]
        del run
        assert walk() is None
    finally:
        gc.enable()
