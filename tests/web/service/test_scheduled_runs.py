"""A server without PostgreSQL runs what is due, and what it does not serve it leaves to others."""

from __future__ import annotations

import logging
from pathlib import Path

import anyio
import pytest

from flowengine import Flow
from flowengine.engine.events import RunStarted
from flowengine.flowfile.project.project import find_project
from flowengine.journal.memory import MemoryStore
from flowengine.web.service.flow_service import FlowService
from flowengine.web.service.scheduled_runs import make_ticker

T = 1_777_593_600.0
"""2026-05-01, midnight in UTC."""

pytestmark = pytest.mark.anyio

FLOW = """flowengine: v1
name: {name}
inputs: {{who: {{type: string}}}}
nodes: {{ask: {{type: approval, message: "Go on, {{{{ inputs.who }}}}?", routes: {{"yes": {{}}}}}}}}
"""
PROJECT = """
[[schedules]]
flow = "due.yaml"
cron = "0 * * * *"
inputs = {who = "Ada"}
overlap = "cancel"
catch_up = "last"

[[schedules]]
flow = "other.yaml"
cron = "0 * * * *"
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_served_flow_runs_when_it_is_due_and_a_run_that_waits_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    for name in ("due", "other"):
        (tmp_path / f"{name}.yaml").write_text(FLOW.format(name=name))
    (tmp_path / "flowengine.toml").write_text(PROJECT)
    store, project, now = MemoryStore(), find_project(tmp_path), [T - 1]
    [due, _] = project.schedules
    first, second = due.run_id(T), due.run_id(T + 3600)
    with caplog.at_level(logging.INFO, "flowengine.serving"):
        async with FlowService(store, [Flow.from_yaml(tmp_path / "due.yaml")]) as service:
            ticker = make_ticker(service, project, lambda: now[0])
            assert ticker is not None
            for now[0] in (T - 1, T, T + 1):
                await ticker.look(due)
            with anyio.fail_after(20):
                assert (await service.wait(first)).status == "waiting"
            now[0] = T + 3600
            await ticker.look(due)
            with anyio.fail_after(20):
                assert (await service.wait(second)).status == "waiting"
            assert (await service.outcome(first)).status == "cancelled"  # For it still went on.
    assert {each.run_id: each.labels for each in store.list()} == {
        each: {"schedule": "due"} for each in (first, second)
    }
    started = store.events(first)[0]
    assert isinstance(started, RunStarted)
    assert started.inputs == {"who": "Ada"}
    assert "schedule 'other' is left to others: 'other.yaml' is not served here" in caplog.text
    assert f"run {first} begins: schedule 'due'" in caplog.text


async def test_a_project_whose_flows_are_not_served_has_no_ticker(tmp_path: Path):
    (tmp_path / "due.yaml").write_text(FLOW.format(name="due"))
    (tmp_path / "other.yaml").write_text(FLOW.format(name="other"))
    (tmp_path / "flowengine.toml").write_text(PROJECT)
    async with FlowService(MemoryStore(), []) as service:
        assert make_ticker(service, find_project(tmp_path)) is None
