"""What the tests of memory share: a store in a folder of its own."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from flowengine.memory.database import MemoryDatabase


@pytest.fixture
def database(tmp_path: Path) -> Generator[MemoryDatabase]:
    opened = MemoryDatabase(tmp_path / "kept" / "memory.db")
    yield opened
    opened.close()
