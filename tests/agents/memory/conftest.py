"""What the tests of memory share: a store in a folder of its own."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from flowengine.agents.memory.database import MemoryDatabase, SQLDatabase
from flowengine.agents.memory.open_database import open_memory
from flowengine.agents.memory.postgres import PostgresMemoryDatabase
from tests.support.postgres import server


@pytest.fixture
def database(tmp_path: Path) -> Generator[MemoryDatabase]:
    opened = MemoryDatabase(tmp_path / "kept" / "memory.db")
    yield opened
    opened.close()


@pytest.fixture(params=["sqlite", "postgres"])
def any_database(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[SQLDatabase]:
    """One of each kind that `open_memory` opens, empty."""
    opened = open_memory(tmp_path / "memory.db" if request.param == "sqlite" else server().database())
    assert isinstance(opened, MemoryDatabase if request.param == "sqlite" else PostgresMemoryDatabase)
    yield opened
    opened.close()
