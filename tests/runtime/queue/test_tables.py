"""The tables of the queue's library: made, found, brought to a newer library, or refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from procrastinate.schema import SchemaManager

from flowengine.errors import StoreUnavailableError, StoreVersionError
from flowengine.journal.postgres.store import PostgresStore
from flowengine.runtime.queue.tables import make_tables
from tests.support.postgres import empty_database

OLD = "03.04"
"""The beginnings of the names of the migrations that the older library does not have."""


@pytest.fixture
def store() -> Iterator[PostgresStore]:
    made = PostgresStore(empty_database())
    yield made
    made.close()


def scripts() -> list[Path]:
    return sorted(Path(SchemaManager.get_migrations_path()).glob("*.sql"))


def execute(store: PostgresStore, *statements: str) -> list[tuple[object, ...]]:
    with psycopg.connect(store.url, autocommit=True, options="-c search_path=flowengine_queue") as connection:
        for each in statements:
            cursor = connection.execute(each.encode())
        return cursor.fetchall() if cursor.description else []


def make_old(store: PostgresStore) -> None:
    """The tables as an older library has left them."""
    before = [each for each in scripts() if each.name < OLD]
    execute(store, "CREATE SCHEMA flowengine_queue", *(each.read_text() for each in before))
    execute(
        store,
        "CREATE TABLE flowengine_version (last TEXT NOT NULL, library TEXT NOT NULL)",
        f"INSERT INTO flowengine_version VALUES ('{before[-1].name}', '3.3.0')",
    )


def functions(store: PostgresStore) -> set[object]:
    query = "SELECT proname FROM pg_proc JOIN pg_namespace AS n ON n.oid = pronamespace WHERE nspname = current_schema"
    return {name for (name,) in execute(store, query)}


def test_their_version_is_kept_beside_them(store: PostgresStore) -> None:
    make_tables(store)
    make_tables(store)
    [(last, _)] = execute(store, "SELECT * FROM flowengine_version")
    assert last == scripts()[-1].name


def test_a_newer_library_brings_them_up_to_date_and_keeps_the_jobs(store: PostgresStore) -> None:
    make_old(store)
    execute(store, "INSERT INTO procrastinate_jobs (queue_name, task_name) VALUES ('default', 'x')")
    assert "procrastinate_retry_job_v2" not in functions(store)
    make_tables(store)
    assert "procrastinate_retry_job_v2" in functions(store)
    assert execute(store, "SELECT last FROM flowengine_version") == [(scripts()[-1].name,)]
    assert execute(store, "SELECT task_name FROM procrastinate_jobs") == [("x",)]


def test_nothing_is_changed_while_a_worker_of_the_older_library_is_heard_of(store: PostgresStore) -> None:
    make_old(store)
    execute(store, "INSERT INTO procrastinate_workers DEFAULT VALUES")
    with pytest.raises(StoreVersionError, match=r"procrastinate 3\.3\.0.*1 worker\(s\) of the older one.*stop all"):
        make_tables(store)
    assert "procrastinate_retry_job_v2" not in functions(store)
    execute(store, "UPDATE procrastinate_workers SET last_heartbeat = now() - interval '2 minutes'")
    make_tables(store)


def test_tables_of_a_newer_library_are_refused(store: PostgresStore) -> None:
    make_tables(store)
    execute(store, "UPDATE flowengine_version SET last = '99.00.00_01_pre_x.sql', library = '99.0'")
    with pytest.raises(StoreVersionError, match=r"made by procrastinate 99\.0.*pip install --upgrade procrastinate"):
        make_tables(store)


def test_tables_that_do_not_say_their_version_are_taken_where_they_have_everything(store: PostgresStore) -> None:
    make_tables(store)
    execute(store, "DROP TABLE flowengine_version")
    make_tables(store)
    assert execute(store, "SELECT last FROM flowengine_version") == [(scripts()[-1].name,)]
    execute(store, "DROP TABLE flowengine_version", "DROP FUNCTION procrastinate_retry_job_v2 CASCADE")
    with pytest.raises(StoreVersionError, match="do not say of which"):
        make_tables(store)


def test_a_migration_that_fails_changes_nothing(store: PostgresStore) -> None:
    make_old(store)
    before = execute(store, "SELECT last FROM flowengine_version")
    execute(store, "ALTER TYPE procrastinate_job_event_type ADD VALUE 'retried'")
    with pytest.raises(StoreUnavailableError, match=r"the queue's tables cannot be made .*retried"):
        make_tables(store)
    assert execute(store, "SELECT last FROM flowengine_version") == before
    assert "procrastinate_retry_job_v2" not in functions(store)


def test_the_table_of_who_the_workers_are_is_added_to_tables_that_are_there(store: PostgresStore) -> None:
    make_tables(store)
    execute(store, "DROP TABLE flowengine_worker", "INSERT INTO procrastinate_workers DEFAULT VALUES")
    for _ in range(2):
        make_tables(store)
    assert execute(store, "SELECT * FROM flowengine_worker") == []
    assert execute(store, "SELECT id FROM procrastinate_workers") == [(1,)]
