"""Tests are told which line left a connection to SQLite open, on Pythons too that say nothing of it."""

from __future__ import annotations

import sqlite3
import warnings
from contextlib import closing
from pathlib import Path

import pytest

from flowengine.core.storage.sqlite_file import open_connection


def test_a_connection_that_is_left_open_is_told_with_its_place(tmp_path: Path):
    left = open_connection(tmp_path / "left.db", 1.0)
    with pytest.warns(ResourceWarning, match=r"left open; opened at .*sqlite_file\.py:\d+ < .*test_open_connections"):
        left.__del__()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        left.execute("SELECT 1")


def test_a_connection_that_was_closed_is_not_told(tmp_path: Path):
    with closing(sqlite3.connect(tmp_path / "closed.db")) as connection:
        connection.execute("SELECT 1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        connection.__del__()
