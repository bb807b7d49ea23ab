PRAGMA application_id = 1179406167;
PRAGMA user_version = 2;
BEGIN TRANSACTION;
CREATE TABLE beside (
        kind TEXT NOT NULL, key TEXT NOT NULL, at REAL NOT NULL, value TEXT NOT NULL, PRIMARY KEY (kind, key)
    ) WITHOUT ROWID
;
INSERT INTO "beside" VALUES('session','s',1.79534851126410126688e+09,'[1,{"x":1}]');
CREATE TABLE event (position INTEGER PRIMARY KEY, body TEXT NOT NULL);
INSERT INTO "event" VALUES(4294967296,'[1,"RunStarted","failed1","before",1795348511.1578012,{"text":"a"},{},{"one":"5ce1021fe286e7d7","bad":"83b2edefe298f1e2"},null,null,"0.1.0",{"labels":{"team":"billing"}},{"nodes":[["one","function"],["bad","function"]],"edges":[["one","bad",[]]]}]');
INSERT INTO "event" VALUES(4294967298,'[1,"NodeStarted","one",1795348511.174089]
[1,"NodeFinished","one",1795348511.1980948,{"$NodeResult":[{"n":1}]}]');
INSERT INTO "event" VALUES(4294967300,'[1,"NodeStarted","bad",1795348511.1983235]
[1,"NodeFailed","bad",1795348511.2207692,{"$ErrorInfo":["ValueError","ValueError: broken","Traceback of foreign code"]}]');
INSERT INTO "event" VALUES(4294967301,'[1,"RunFinished",1795348511.2229037,"failed",null,{"$ErrorInfo":["ValueError","ValueError: broken","Traceback of foreign code"]},"bad"]');
INSERT INTO "event" VALUES(8589934592,'[1,"RunStarted","good2","before",1795348511.2237017,{"text":"b"},{},{"one":"5ce1021fe286e7d7"},null,null,"0.1.0",{},{"nodes":[["one","function"]],"edges":[]}]');
INSERT INTO "event" VALUES(8589934594,'[1,"NodeStarted","one",1795348511.262373]
[1,"NodeFinished","one",1795348511.263094,{"$NodeResult":[{"n":1}]}]');
INSERT INTO "event" VALUES(8589934595,'[1,"RunFinished",1795348511.2634912,"succeeded",{"one":{"n":1}}]');
CREATE TABLE run (
        number INTEGER PRIMARY KEY,
        run_id TEXT NOT NULL UNIQUE,
        flow TEXT NOT NULL,
        status TEXT NOT NULL,
        started REAL NOT NULL,
        finished REAL,
        path TEXT,
        owner TEXT,
        epoch INTEGER NOT NULL DEFAULT 1,
        labels TEXT
    );
INSERT INTO "run" VALUES(1,'failed1','before','failed',1.79534851115780115125e+09,1.79534851122290372844e+09,NULL,NULL,1,'{"team": "billing"}');
INSERT INTO "run" VALUES(2,'good2','before','succeeded',1.79534851122370171542e+09,1.79534851126349115366e+09,NULL,NULL,1,NULL);
COMMIT;
