CREATE SCHEMA flowengine;
CREATE FUNCTION flowengine.slot_key(called text, slot integer) RETURNS bigint
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT hashtextextended('flowengine slot ' || slot || ' of ' || called, 0)
$$;
CREATE FUNCTION flowengine.take_turn(called text, parallel integer, held integer[], requests integer, most bigint, seconds double precision, wanted bigint, OUT slot integer, OUT entry bigint, OUT wait double precision) RETURNS record
    LANGUAGE plpgsql
    AS $$
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
CREATE FUNCTION flowengine.turn_at(called text, requests integer, most bigint, seconds double precision, wanted bigint, moment double precision, OUT entry bigint, OUT turn double precision) RETURNS record
    LANGUAGE plpgsql
    AS $$
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
CREATE TABLE flowengine.beside (
    kind text NOT NULL,
    key text NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    value text NOT NULL
);
CREATE TABLE flowengine.event (
    number bigint NOT NULL,
    "position" integer NOT NULL,
    body text NOT NULL
);
CREATE TABLE flowengine.late (
    number bigint NOT NULL,
    epoch bigint NOT NULL,
    "position" integer NOT NULL,
    body text NOT NULL
);
CREATE TABLE flowengine.run (
    number bigint NOT NULL,
    run_id text NOT NULL COLLATE pg_catalog."C",
    flow text NOT NULL,
    status text NOT NULL,
    started double precision NOT NULL,
    finished double precision,
    path text,
    owner bigint,
    owner_name text,
    epoch bigint DEFAULT 1 NOT NULL,
    length integer NOT NULL
)
WITH (fillfactor='50');
CREATE SEQUENCE flowengine.run_number
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE flowengine.turn (
    limiter text NOT NULL,
    at double precision NOT NULL,
    number bigint NOT NULL,
    asked double precision NOT NULL,
    tokens bigint NOT NULL
);
ALTER TABLE flowengine.turn ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME flowengine.turn_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE flowengine.version (
    number integer NOT NULL
);
INSERT INTO flowengine.beside VALUES ('session', 's', '2026-11-22 10:28:35.236466+00', '[1,{"x":1}]');
INSERT INTO flowengine.event VALUES (1, 0, '[1,"RunStarted","failed1","before",1795343315.1969485,{"text":"a"},{},{"one":"83b2abcd457aee22","bad":"025eec758a539795"},null,null,"0.1.0",{},{"nodes":[["one","function"],["bad","function"]],"edges":[["one","bad",[]]]}]');
INSERT INTO flowengine.event VALUES (1, 2, '[1,"NodeFinished","one",1795343315.2215648,{"$NodeResult":[{"n":1}]}]');
INSERT INTO flowengine.event VALUES (1, 1, '[1,"NodeStarted","one",1795343315.2212698]');
INSERT INTO flowengine.event VALUES (1, 4, '[1,"NodeFailed","bad",1795343315.2238731,{"$ErrorInfo":["ValueError","ValueError: broken","Traceback of foreign code"]}]');
INSERT INTO flowengine.event VALUES (1, 3, '[1,"NodeStarted","bad",1795343315.2235954]');
INSERT INTO flowengine.event VALUES (1, 5, '[1,"RunFinished",1795343315.2269824,"failed",null,{"$ErrorInfo":["ValueError","ValueError: broken","Traceback of foreign code"]},"bad"]');
INSERT INTO flowengine.event VALUES (2, 0, '[1,"RunStarted","good2","before",1795343315.2284477,{"text":"b"},{},{"one":"83b2abcd457aee22"},null,null,"0.1.0",{},{"nodes":[["one","function"]],"edges":[]}]');
INSERT INTO flowengine.event VALUES (2, 2, '[1,"NodeFinished","one",1795343315.233789,{"$NodeResult":[{"n":1}]}]');
INSERT INTO flowengine.event VALUES (2, 1, '[1,"NodeStarted","one",1795343315.2304392]');
INSERT INTO flowengine.event VALUES (2, 3, '[1,"RunFinished",1795343315.2351174,"succeeded",{"one":{"n":1}}]');
INSERT INTO flowengine.run VALUES (1, 'failed1', 'before', 'failed', 1795343315.1969485, 1795343315.2269824, NULL, NULL, 'process 7 on host', 1, 6);
INSERT INTO flowengine.run VALUES (2, 'good2', 'before', 'succeeded', 1795343315.2284477, 1795343315.2351174, NULL, NULL, 'process 7 on host', 1, 4);
INSERT INTO flowengine.version VALUES (2);
SELECT pg_catalog.setval('flowengine.run_number', 2, true);
SELECT pg_catalog.setval('flowengine.turn_number_seq', 1, false);
ALTER TABLE ONLY flowengine.beside
    ADD CONSTRAINT beside_pkey PRIMARY KEY (kind, key);
ALTER TABLE ONLY flowengine.event
    ADD CONSTRAINT event_pkey PRIMARY KEY (number, "position");
ALTER TABLE ONLY flowengine.late
    ADD CONSTRAINT late_pkey PRIMARY KEY (number, epoch, "position");
ALTER TABLE ONLY flowengine.run
    ADD CONSTRAINT run_pkey PRIMARY KEY (number);
ALTER TABLE ONLY flowengine.run
    ADD CONSTRAINT run_run_id_key UNIQUE (run_id);
ALTER TABLE ONLY flowengine.turn
    ADD CONSTRAINT turn_pkey PRIMARY KEY (limiter, at, number);
