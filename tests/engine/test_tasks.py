"""Slots for nodes in flight: handed over in the order of asking, and never lost."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from flowengine.engine.tasks import NodeSlots

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]


async def test_a_slot_that_is_handed_to_a_waiter_as_it_is_cancelled_goes_to_the_next_one():
    slots = NodeSlots(1)
    slots.used = 1
    first, second = asyncio.create_task(slots.take()), asyncio.create_task(slots.take())
    await anyio.wait_all_tasks_blocked()
    slots.give_back()
    first.cancel()  # By asyncio itself, which takes back what the waiter was told; anyio's scopes do not.
    with anyio.fail_after(60):
        await second
    assert first.cancelled()
    slots.give_back()
    assert slots.used == 0
