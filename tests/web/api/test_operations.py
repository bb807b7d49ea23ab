"""What `/readyz` and answers to callers say of a store."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import psycopg
import pytest
from starlette.responses import Response

from flowengine.errors import JournalError, StoreCorruptError, StoreUnavailableError, StoreVersionError
from flowengine.journal.memory import MemoryStore
from flowengine.journal.postgres.store import PostgresStore
from flowengine.web.api.http_answers import error_response
from flowengine.web.api.operations import find_unreadiness
from flowengine.web.openai.openai_routes import error_response as openai_response
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


@pytest.mark.parametrize("answer", [error_response, openai_response])
@pytest.mark.parametrize("kind", [StoreUnavailableError, StoreCorruptError, StoreVersionError])
def test_callers_are_not_told_where_the_store_is_but_the_log_is(
    answer: Callable[[Exception], Response], kind: type[JournalError], caplog: pytest.LogCaptureFixture
) -> None:
    told = answer(kind("/srv/ann/runs.db cannot be opened")).body
    assert b"the server's log says more" in bytes(told)
    assert b"/srv" not in bytes(told)
    assert "/srv/ann/runs.db cannot be opened" in caplog.text
