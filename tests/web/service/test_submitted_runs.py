"""Runs that were submitted to a queue, answered and cancelled over HTTP: they are workers' to go on with."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from flowengine.flow import Flow
from flowengine.journal.postgres.store import PostgresStore
from flowengine.runtime.queue.run_queue import submit
from flowengine.web.app import make_app
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


@pytest.mark.long
def test_what_is_done_in_the_page_is_for_workers_where_the_store_has_a_queue(folder: Path) -> None:
    store = PostgresStore(empty_database(), "full")

    try:
        with served(make_app(store, [folder / "shout.yaml", folder / "fail.yaml"])) as server:
            token: str = server.app.state.parts.keys.form

            def act(path: str, **more: str) -> str:
                answer = server.client.post(path, data={"token": token, "place": "submit", **more})
                assert answer.status_code == 303, answer.text
                return answer.headers["location"].rpartition("/")[2]

            first = act("/flows/shout/start", **{"form.text": "oh", "session": "s", "labels": "team=a"})
            failed = act("/flows/fail/start")
            assert server.get(f"/api/runs/{first}")["driven_here"] is False
            anyio.run(drain, store)
            assert "flowengine submit" in server.client.get(f"/runs/{first}/act/again").text
            again = act(f"/runs/{first}/act/again", **{"input.text": "oh", "reuse": "true"})
            here = act(f"/runs/{first}/act/again", **{"input.text": "ho", "place": "run"})
            server.until(here, "succeeded")
            fork = act(f"/runs/{first}/act/fork?node=shout", **{"input.text": "ah"})
            act(f"/runs/{failed}/act/resume")
            other = act(f"/runs/{first}/act/again", **{"input.text": "never"})
            assert 'data-act="cancel"' in server.client.get(f"/runs/{other}").text
            assert act(f"/runs/{other}/act/cancel") == other
            told = anyio.run(drain, store)
            assert f"run {failed} goes on: fail" in told
            assert server.get(f"/api/runs/{fork}")["outputs"] == {"loud": "AH"}
            assert server.get(f"/api/runs/{again}")["nodes"]["shout"]["reused"]["run_id"] == first
        statuses = {run.run_id: run.status for run in store.list()}
        assert statuses == {
            first: "succeeded", failed: "failed", again: "succeeded", here: "succeeded", fork: "succeeded",
            other: "cancelled",
        }  # fmt: skip
    finally:
        store.close()
