"""A set of rows is run by one process at a time, and whoever has died holds nothing."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from time import time
from typing import Any

import pytest

from flowengine.errors import RunBusyError
from flowengine.journal.memory import MemoryStore
from flowengine.journal.postgres.store import PostgresStore
from flowengine.runtime import set_lease
from flowengine.runtime.set_lease import hold_set
from tests.support.postgres import empty_database

HERE = socket.gethostname()


def held_by(**holder: Any) -> MemoryStore:
    store = MemoryStore()
    store.revise("rows.held", "ab12", lambda before: {"born": "", "at": time(), **holder})
    return store


def test_a_set_is_free_again_when_all_of_its_parts_have_ended() -> None:
    store = MemoryStore()
    with hold_set(store, "ab12"):
        with hold_set(store, "ab12"):
            pass
        found: Mapping[str, Any] = store.recall("rows.held", "ab12")
        assert (found["host"], found["process"]) == (HERE, os.getpid())
    assert store.recall("rows.held", "ab12") is None


@pytest.mark.parametrize("born", ["", "its own"])
def test_a_living_process_keeps_others_out_however_long_it_was_silent(born: str) -> None:
    parent = os.getppid()
    store = held_by(host=HERE, process=parent, born=born and set_lease.born_at(parent), at=0.0)
    with (
        pytest.raises(RunBusyError, match=f"set ab12 are being run by process {parent} on ") as caught,
        hold_set(store, "ab12"),
    ):
        pass
    assert "forgotten" not in str(caught.value)
    assert store.recall("rows.held", "ab12")["process"] == parent


def test_a_process_that_died_or_whose_number_another_has_keeps_nobody_out() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for store in (held_by(host=HERE, process=ended.pid), held_by(host=HERE, process=os.getppid(), born="before")):
        with hold_set(store, "ab12"):
            assert store.recall("rows.held", "ab12")["process"] == os.getpid()


def test_another_machine_keeps_others_out_until_it_was_silent_for_a_minute() -> None:
    with (
        pytest.raises(RunBusyError, match="forgotten after 60 s"),
        hold_set(held_by(host="elsewhere", process=1, at=time() - 50), "ab12"),
    ):
        pass
    with hold_set(held_by(host="elsewhere", process=1, at=time() - 61), "ab12"):
        pass


@pytest.mark.parametrize("ahead", [3600, -3600])
def test_on_postgresql_the_servers_clock_counts_whatever_that_of_a_machine_says(
    ahead: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresStore(empty_database())
    now = time()
    monkeypatch.setattr("flowengine.journal.stores.time", lambda: now + ahead)

    def hold(silent: float) -> None:
        holder = {"host": "elsewhere", "process": 1, "born": "", "at": now - silent}
        store.revise("rows.held", "ab12", lambda before: holder)
        with hold_set(store, "ab12"):
            assert abs(store.recall("rows.held", "ab12")["at"] - now) < 30

    with closing(store):
        with pytest.raises(RunBusyError, match="forgotten after 60 s"):
            hold(20)
        hold(61)
