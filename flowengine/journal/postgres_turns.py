"""Turns and slots in PostgreSQL: the table of calls to vendors, and the functions that decide about it.

They decide on the server, so that asking for a turn is one trip to it, and one transaction. What `turn_at` decides
is what `flowengine.llm.rate` decides in memory. Changes are further migrations.
"""

from __future__ import annotations

from typing import Final

__all__ = ["TURNS"]

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
