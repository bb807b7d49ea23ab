"""Makes the tables in PostgreSQL, in a schema of their own, and migrates older ones.

    version  one row: how many of the migrations were applied
    run      one row a run, from its first event on; `owner` is the key of its writer's lock, `epoch` counts the
             writers that it had, `length` its events, `labels` an object of texts,
             `session` the one that it belongs to; where a run began without the column, its digest has it
    event    the events of each run, counted from 0
    late     what a writer had paid for when the run was another's already; it joins the run when that is opened
    beside   what is kept beside the runs
    blob     contents of files, under their hashes
    blob_use the runs, and the values beside them, that need a content
    digest   what lists tell of runs, and search in (see `digests`)
    turn     calls to vendors: when the turn of each is, or was, and the tokens that it takes (see `postgres_rates`)

Rows have no checksums of ours, unlike those of a SQLite file: the server has its own for every page (`initdb
--data-checksums`, the default from version 18 on; `pg_checksums --enable` turns them on for a cluster that is stopped)
and for every record of its log, and its copies and backups check them too. Ours would say the same once more.

Migrations are only ever added.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg

from flowengine.errors import StoreUnavailableError, StoreVersionError

# --- Turns and slots in PostgreSQL

TURNS: Final = b"""
CREATE TABLE flowengine.turn (
    limiter TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    number BIGINT GENERATED ALWAYS AS IDENTITY,
    asked DOUBLE PRECISION NOT NULL,
    tokens BIGINT NOT NULL,
    PRIMARY KEY (limiter, at, number)
);

-- The earliest time that keeps both limits and comes after all earlier turns. A call larger than the whole limit gets
-- a minute of its own. To be called by one session at a time. A clock that was set back takes what is known with it.
CREATE FUNCTION flowengine.turn_at(
    called TEXT, requests INTEGER, most BIGINT, seconds DOUBLE PRECISION, wanted BIGINT, moment DOUBLE PRECISION,
    OUT entry BIGINT, OUT turn DOUBLE PRECISION
) LANGUAGE plpgsql AS $$
DECLARE
    back DOUBLE PRECISION;
    calls BIGINT;
    total NUMERIC;
    oldest RECORD;
BEGIN
    SELECT max(held.at), max(held.asked) - moment INTO turn, back FROM flowengine.turn AS held WHERE limiter = called;
    IF back > 1 THEN
        UPDATE flowengine.turn AS held SET at = held.at - back, asked = held.asked - back WHERE limiter = called;
        turn := turn - back;
    END IF;
    turn := greatest(moment, turn);
    DELETE FROM flowengine.turn AS held WHERE limiter = called AND held.at <= turn - seconds;
    SELECT count(*), coalesce(sum(held.tokens), 0) INTO calls, total
        FROM flowengine.turn AS held WHERE limiter = called;
    FOR oldest IN
        SELECT held.at, held.tokens FROM flowengine.turn AS held WHERE limiter = called ORDER BY held.at, held.number
    LOOP
        EXIT WHEN (requests IS NULL OR calls < requests) AND (most IS NULL OR total + wanted <= most);
        turn := greatest(turn, oldest.at + seconds);
        calls := calls - 1;
        total := total - oldest.tokens;
    END LOOP;
    INSERT INTO flowengine.turn (limiter, at, asked, tokens) VALUES (called, turn, moment, wanted)
        RETURNING number INTO entry;
END $$;

CREATE FUNCTION flowengine.slot_key(called TEXT, slot INTEGER) RETURNS BIGINT IMMUTABLE LANGUAGE sql AS $$
    SELECT hashtextextended('flowengine slot ' || slot || ' of ' || called, 0)
$$;

-- A slot that the session does not hold already, if `parallel` is a limit: its lock is the session's then. NULL: none
-- is free, and nothing was reserved. With it the turn, if there are limits a minute: its entry, and the seconds until
-- it comes.
CREATE FUNCTION flowengine.take_turn(
    called TEXT, parallel INTEGER, held INTEGER[], requests INTEGER, most BIGINT, seconds DOUBLE PRECISION,
    wanted BIGINT, OUT slot INTEGER, OUT entry BIGINT, OUT wait DOUBLE PRECISION
) LANGUAGE plpgsql AS $$
DECLARE
    moment DOUBLE PRECISION;
BEGIN
    FOR number IN 0 .. coalesce(parallel, 0) - 1 LOOP
        IF number <> ALL (held) AND pg_try_advisory_lock(flowengine.slot_key(called, number)) THEN
            slot := number;
            EXIT;
        END IF;
    END LOOP;
    IF (requests IS NULL AND most IS NULL) OR (slot IS NULL AND parallel IS NOT NULL) THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('flowengine turns of ' || called, 0));
    moment := extract(epoch FROM clock_timestamp());
    SELECT turns.entry, greatest(turns.turn - moment, 0) INTO entry, wait
        FROM flowengine.turn_at(called, requests, most, seconds, wanted, moment) AS turns;
END $$;
"""


_MIGRATIONS: Final = (
    b"""
    CREATE SEQUENCE flowengine.run_number;
    CREATE TABLE flowengine.run (
        number BIGINT PRIMARY KEY,
        run_id TEXT COLLATE "C" NOT NULL UNIQUE,
        flow TEXT NOT NULL,
        status TEXT NOT NULL,
        started DOUBLE PRECISION NOT NULL,
        finished DOUBLE PRECISION,
        path TEXT,
        owner BIGINT,
        owner_name TEXT,
        epoch BIGINT NOT NULL DEFAULT 1,
        length INTEGER NOT NULL
    ) WITH (fillfactor = 50);
    CREATE TABLE flowengine.event (
        number BIGINT NOT NULL, position INTEGER NOT NULL, body TEXT NOT NULL, PRIMARY KEY (number, position)
    );
    CREATE TABLE flowengine.late (
        number BIGINT NOT NULL, epoch BIGINT NOT NULL, position INTEGER NOT NULL, body TEXT NOT NULL,
        PRIMARY KEY (number, epoch, position)
    );
    CREATE TABLE flowengine.beside (
        kind TEXT NOT NULL, key TEXT NOT NULL, at TIMESTAMPTZ NOT NULL DEFAULT now(), value TEXT NOT NULL,
        PRIMARY KEY (kind, key)
    );
    """,
    TURNS,
    b"ALTER TABLE flowengine.run ADD COLUMN labels JSONB",
    b"""
    CREATE TABLE flowengine.blob (hash TEXT COLLATE "C" PRIMARY KEY, size BIGINT NOT NULL, body BYTEA NOT NULL);
    ALTER TABLE flowengine.blob ALTER COLUMN body SET STORAGE EXTERNAL;
    CREATE TABLE flowengine.blob_use (
        owner TEXT COLLATE "C" NOT NULL, hash TEXT COLLATE "C" NOT NULL, at TIMESTAMPTZ NOT NULL DEFAULT now(),
        PRIMARY KEY (owner, hash)
    );
    CREATE INDEX ON flowengine.blob_use (hash);
    """,
    b"""
    CREATE TABLE flowengine.digest (
        number BIGINT PRIMARY KEY, body TEXT NOT NULL, inputs TEXT NOT NULL, outputs TEXT NOT NULL,
        errors TEXT NOT NULL, words TSVECTOR NOT NULL, origins TEXT[]
    );
    CREATE INDEX ON flowengine.digest USING gin (words);
    CREATE INDEX ON flowengine.digest USING gin (origins);
    CREATE INDEX ON flowengine.run (started DESC, number DESC);
    """,
    b"""
    ALTER TABLE flowengine.run ADD COLUMN session TEXT;
    CREATE INDEX ON flowengine.run (session) WHERE session IS NOT NULL;
    CREATE INDEX ON flowengine.digest ((body::json ->> 8)) WHERE body::json ->> 8 <> '';
    """,
)
"""`fillfactor`: a commit changes the run's row where it lies."""

VERSION: Final = len(_MIGRATIONS)
"""The version of the tables that this program knows."""

_LOCK: Final = 0x464C4F57
"""One process at a time makes the tables."""


def migrate(connection: psycopg.Connection[Any], name: str) -> None:
    """Make the tables, or bring them to this version; nothing is done where they are. `name` is the store's."""
    if _read_version(connection, name) == VERSION:
        return
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        done = _read_version(connection, name)
        if done == 0:
            _check_encoding(connection, name)
            connection.execute("CREATE SCHEMA IF NOT EXISTS flowengine")
            connection.execute("CREATE TABLE flowengine.version (number INTEGER NOT NULL)")
            connection.execute("INSERT INTO flowengine.version VALUES (0)")
        for migration in _MIGRATIONS[done:]:
            connection.execute(migration)
        connection.execute("UPDATE flowengine.version SET number = %s", (VERSION,))


def check_version(connection: psycopg.Connection[Any], name: str) -> None:
    """Raise `StoreVersionError` where a newer FlowEngine has changed the tables meanwhile."""
    _read_version(connection, name)


def _read_version(connection: psycopg.Connection[Any], name: str) -> int:
    """Returns the number of applied migrations."""
    # Not `to_regclass`: what it remembers is not looked up anew while one waits for the lock.
    query = "SELECT FROM pg_tables WHERE schemaname = 'flowengine' AND tablename = 'version'"
    if not connection.execute(query).fetchall():
        return 0
    ((version,),) = connection.execute("SELECT number FROM flowengine.version").fetchall()
    if version > VERSION:
        raise StoreVersionError(
            f"{name} was written by a newer FlowEngine (store version {version}; this one reads up to "
            f"{VERSION}): upgrade FlowEngine to use it"
        )
    return version


def _check_encoding(connection: psycopg.Connection[Any], name: str) -> None:
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise StoreUnavailableError(f"{name} keeps text as {encoding}: create the database with ENCODING 'UTF8'")
