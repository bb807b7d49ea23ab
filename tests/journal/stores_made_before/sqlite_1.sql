PRAGMA application_id = 1179406167;
PRAGMA user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE beside (
        kind TEXT NOT NULL, key TEXT NOT NULL, at REAL NOT NULL, value TEXT NOT NULL, PRIMARY KEY (kind, key)
    ) WITHOUT ROWID
;
INSERT INTO "beside" VALUES('session','s',1.79534331302865743634e+09,'[1,{"x":1}]');
CREATE TABLE event (position INTEGER PRIMARY KEY, body TEXT NOT NULL);
INSERT INTO "event" VALUES(4294967296,'[1,"RunStarted","failed1","before",1795343312.9520416,{"text":"a"},{},{"one":"83b2abcd457aee22","bad":"025eec758a539795"},null,null,"0.1.0",{},{"nodes":[["one","function"],["bad","function"]],"edges":[["one","bad",[]]]}]');
INSERT INTO "event" VALUES(4294967298,'[1,"NodeStarted","one",1795343313.018797]
[1,"NodeFinished","one",1795343313.0195243,{"$NodeResult":[{"n":1}]}]');
INSERT INTO "event" VALUES(4294967300,'[1,"NodeStarted","bad",1795343313.020149]
[1,"NodeFailed","bad",1795343313.0206022,{"$ErrorInfo":["ValueError","ValueError: broken","Traceback of foreign code"]}]');
INSERT INTO "event" VALUES(4294967301,'[1,"RunFinished",1795343313.0249796,"failed",null,{"$ErrorInfo":["ValueError","ValueError: broken","Traceback of foreign code"]},"bad"]');
INSERT INTO "event" VALUES(8589934592,'[1,"RunStarted","good2","before",1795343313.0255451,{"text":"b"},{},{"one":"83b2abcd457aee22"},null,null,"0.1.0",{},{"nodes":[["one","function"]],"edges":[]}]');
INSERT INTO "event" VALUES(8589934594,'[1,"NodeStarted","one",1795343313.0264847]
[1,"NodeFinished","one",1795343313.02727,{"$NodeResult":[{"n":1}]}]');
INSERT INTO "event" VALUES(8589934595,'[1,"RunFinished",1795343313.028042,"succeeded",{"one":{"n":1}}]');
CREATE TABLE run (
        number INTEGER PRIMARY KEY,
        run_id TEXT NOT NULL UNIQUE,
        flow TEXT NOT NULL,
        status TEXT NOT NULL,
        started REAL NOT NULL,
        finished REAL,
        path TEXT,
        owner TEXT,
        epoch INTEGER NOT NULL DEFAULT 1
    );
INSERT INTO "run" VALUES(1,'failed1','before','failed',1.79534331295204162594e+09,1.79534331302497959141e+09,NULL,NULL,1);
INSERT INTO "run" VALUES(2,'good2','before','succeeded',1.79534331302554512029e+09,1.79534331302804207796e+09,NULL,NULL,1);
COMMIT;
