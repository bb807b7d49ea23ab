"""What the writer does when it is interrupted."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from flowengine.errors import StoreUnavailableError
from flowengine.journal.sqlite.database import connect
from flowengine.journal.sqlite.tables import SqliteTables
from flowengine.journal.sqlite.writer import SqliteWriter


class Interrupted(sqlite3.Connection):
    """Ctrl-C arrives when the rows are in and the transaction is open."""

    def executemany(self, *args: Any) -> sqlite3.Cursor:
        super().executemany(*args)
        raise KeyboardInterrupt


def test_an_interrupted_commit_is_undone_and_the_writer_stops(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    connect(path, "process", 1.0).close()
    connection = sqlite3.connect(path, isolation_level=None, factory=Interrupted)
    writer = SqliteWriter(SqliteTables(path, connection))
    writer.rows += [(index, "body") for index in range(3)]
    with pytest.raises(KeyboardInterrupt):
        writer.write()
    with pytest.raises(StoreUnavailableError, match="was interrupted"):
        writer.write()
    writer.close()
    again = connect(path, "process", 1.0)
    assert again.execute("SELECT count(*) FROM event").fetchone() == (0,)
    again.close()
