"""A run as one file and back."""

from __future__ import annotations

import pytest

from flowengine.core.context import Context
from flowengine.errors import JournalError, StoreCorruptError, StoreVersionError
from flowengine.flow import Flow
from flowengine.journal.memory import MemoryStore
from flowengine.journal.run_export import pack_run, store_run, unpack_run
from flowengine.nodes.function import FunctionNode

pytestmark = pytest.mark.anyio


async def lines() -> list[str]:
    async def work(context: Context) -> str:
        return "日本語 <&> \x00"

    return list(pack_run((await Flow("f", {"a": FunctionNode(work)}).run(run_id="r")).events))


async def test_a_run_comes_back_as_it_was_under_its_id_or_another():
    packed = await lines()
    events = unpack_run(packed, "run.jsonl")
    store = MemoryStore()
    assert await store_run(store, events) == "r"
    assert await store_run(store, events, "copy") == "copy"
    assert list(store.events("r")) == events
    assert list(store.events("copy"))[1:] == events[1:]
    with pytest.raises(JournalError, match="exists already"):
        await store_run(store, events)


async def test_what_is_no_exported_run_is_refused_with_its_place():
    packed = await lines()
    for broken, error, said in [
        ([], StoreCorruptError, "is no exported run"),
        (["hello"], StoreCorruptError, "is no exported run"),
        (["[]"], StoreCorruptError, "is no exported run"),
        (packed[:-1], StoreCorruptError, "is not whole: it has 3 of 4 events"),
        ([packed[0], packed[1], '[1,"Nothing"]', *packed[3:]], StoreCorruptError, "run.jsonl:3: not an event"),
        ([packed[0].replace(": 1", ": 99"), *packed[1:]], StoreVersionError, "newer FlowEngine"),
        ([packed[0], *packed[2:], packed[2]], StoreCorruptError, "does not begin with a run's start"),
    ]:
        with pytest.raises(error, match=said):
            unpack_run(broken, "run.jsonl")
