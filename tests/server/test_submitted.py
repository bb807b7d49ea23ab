"""Runs that were submitted to a queue, answered and cancelled over HTTP: they are workers' to go on with."""

from __future__ import annotations

from pathlib import Path

import anyio

from flowengine.flow import Flow
from flowengine.journal.postgres.store import PostgresStore
from flowengine.runners.queue.run_queue import submit
from flowengine.server.app import make_app
from tests.support.postgres import empty_database
from tests.support.queue_runs import drain
from tests.support.ui_server import served


def test_an_answer_puts_the_run_back_into_its_queue_and_a_queued_one_is_cancelled(folder: Path) -> None:
    store = PostgresStore(empty_database(), "full")
    try:
        plan = Flow.from_yaml("ask.yaml").plan
        run_id = anyio.run(submit, store, plan, {})
        anyio.run(drain, store)
        with served(make_app(store, [folder / "ask.yaml"])) as server:
            body = {"choice": "yes", "form": {"channel": "blog"}}
            assert server.post(f"/api/runs/{run_id}/approve", body)["resumed"] is True
            assert server.get(f"/api/runs/{run_id}")["driven_here"] is False
            other = anyio.run(submit, store, plan, {})
            assert f"{other}</a>" in server.client.get("/?status=queued").text
            assert f"{other}</a>" not in server.client.get("/?status=running").text
            server.post(f"/api/runs/{other}/cancel", {})
        told = anyio.run(drain, store)
        assert told == [f"run {run_id} goes on: ask", f"run {run_id} succeeded"]
        assert {run.run_id: run.status for run in store.list()} == {run_id: "succeeded", other: "cancelled"}
    finally:
        store.close()
