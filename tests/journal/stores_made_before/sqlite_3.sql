PRAGMA application_id = 1179406167;
PRAGMA user_version = 3;
BEGIN TRANSACTION;
CREATE TABLE beside (
        kind TEXT NOT NULL, key TEXT NOT NULL, at REAL NOT NULL, value TEXT NOT NULL, checksum INTEGER,
        PRIMARY KEY (kind, key)
    ) WITHOUT ROWID
;
INSERT INTO "beside" VALUES('session','s',1.79536683630538296697e+09,'[1,{"x":1}]',2614308434);
CREATE TABLE event (position INTEGER PRIMARY KEY, body TEXT NOT NULL, checksum INTEGER);
INSERT INTO "event" VALUES(4294967296,'[1,"RunStarted","good2","before",1795366836.2959092,{"text":"b"},{},{"one":"a676804cd8fe59f9"},null,null,"0.1.0",{},{"nodes":[["one","function"]],"edges":[]}]',4202388599);
INSERT INTO "event" VALUES(4294967298,'[1,"NodeStarted","one",1795366836.3016207]
[1,"NodeFinished","one",1795366836.302584,{"$NodeResult":[{"n":1}]}]',1872145156);
INSERT INTO "event" VALUES(4294967299,'[1,"RunFinished",1795366836.3031049,"succeeded",{"one":{"n":1}}]',2673525469);
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
        labels TEXT,
        checksum INTEGER,
        ended INTEGER
    );
INSERT INTO "run" VALUES(1,'good2','before','succeeded',1.79536683629590916632e+09,1.79536683630310487744e+09,NULL,NULL,1,NULL,1182388953,3111943618);
COMMIT;
