"""What `/readyz` says of a store."""

from __future__ import annotations

from contextlib import closing

import psycopg
import pytest

from flowengine.journal.memory import MemoryStore
from flowengine.journal.postgres.store import PostgresStore
from flowengine.serving.operations import find_unreadiness
from tests.support.pace import done_within
from tests.support.postgres import empty_database


@pytest.mark.parametrize("is_cut", [False, True])
async def test_a_store_that_a_newer_version_has_changed_is_reported_at_once(is_cut: bool) -> None:
    url = empty_database()
    with closing(PostgresStore(url)) as store:
        assert await find_unreadiness(store) is None
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("UPDATE flowengine.version SET number = 99")
            if is_cut:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                    " AND datname = current_database()"
                )
        with done_within(2):
            assert await find_unreadiness(store) == "the store was changed by a newer FlowEngine; upgrade this one"


async def test_a_store_without_versions_is_ready() -> None:
    assert await find_unreadiness(MemoryStore()) is None
