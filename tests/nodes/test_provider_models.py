"""Models that context providers name: opened as the project says, recorded, paid for, and not asked twice."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from flowengine.cli.commands.runs_show import format_node
from flowengine.core.budget import Budget
from flowengine.core.records import ModelCall, ProviderFailed
from flowengine.engine.events import NodeRecorded, TokenStreamed
from flowengine.errors import ModelConfigError
from flowengine.flow import Flow
from flowengine.journal.memory import MemoryStore
from flowengine.nodes.node import RunLimits
from flowengine.runtime.run import Run
from tests.support.model_answers import Hang
from tests.support.model_server import ModelServer
from visualize.progress import NodeRow
from visualize.viewer.reading import Reading

SUMMARY = "## Goal\nTea.\n## Instructions\nNone.\n## Progress\nRead.\n## Decisions\nNone.\n## Facts\nNone."
FLOW = """
flowengine: v1
name: ask
nodes:
  ask:
    prompt: How hot is green tea brewed?
    model: openai/gpt-4o-mini
    context:
      - retrieval: {documents: docs, max_results: 9, embedding: openai/text-embedding-3-small}
      - compressor: {max_tokens: 400, model: openai/gpt-4o-nano}
"""
PROJECT = """
[providers.openai]
base_url = "{url}"
requests_per_minute = 6000

[prices."text-embedding-3-small"]
input = 1000.0
output = 0.0

[prices."gpt-4o-nano"]
input = 1.0
output = 2.0
"""
KEY = {"OPENAI_API_KEY": "sk-project"}


@pytest.fixture
def folder(tmp_path: Path, server: ModelServer) -> Path:
    (tmp_path / "docs").mkdir()
    for number in range(4):
        text = "\n\n".join(f"Green tea {number}, paragraph {each}: " + "brew it gently. " * 12 for each in range(5))
        (tmp_path / f"docs/{number}.md").write_text(text)
    (tmp_path / "flow.yaml").write_text(FLOW)
    (tmp_path / "flowengine.toml").write_text(PROJECT.format(url=server.url))
    server.respond_with(answering())
    return tmp_path


@pytest.fixture
def server() -> Any:
    with ModelServer() as made:
        yield made


def answering(**answers: Any) -> Any:
    """Answers by the model that is asked."""

    def answer(body: Mapping[str, Any]) -> Any:
        default = SUMMARY if body["model"] == "gpt-4o-nano" else "At 80 degrees."
        return answers.get(body["model"].replace("-", "_"), default)

    return answer


def flow_in(folder: Path, **options: Any) -> Flow:
    """As a new process has it: nothing is remembered."""
    return Flow.from_yaml(folder / "flow.yaml", environ=KEY, **options)


def asked(server: ModelServer) -> list[str]:
    return [each.body["model"] for each in server.requests]


def calls(run: Run) -> list[ModelCall]:
    records = [each.record for each in run.events if isinstance(each, NodeRecorded)]
    return [each for each in records if isinstance(each, ModelCall)]


ALL = ["text-embedding-3-small", "text-embedding-3-small", "gpt-4o-nano", "gpt-4o-mini"]
"""The documents, the question, the summary, the answer."""


async def test_they_go_where_the_project_says_with_its_key_and_its_limits(
    folder: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    run = await flow_in(folder).run(store=MemoryStore())
    assert run.status == "succeeded", run.error
    assert asked(server) == ALL
    assert {each.headers["authorization"] for each in server.requests} == {"Bearer sk-project"}
    assert not [each for each in run.events if isinstance(getattr(each, "record", None), ProviderFailed)]


async def test_they_are_on_record_with_what_they_cost(folder: Path, server: ModelServer) -> None:
    run = await flow_in(folder).run(store=MemoryStore())
    found = calls(run)
    assert [each.purpose for each in found] == ["embedding", "embedding", "summary", "generation"]
    documents, question, summary, _ = found
    assert [len(each.vectors) for each in found] == [len(documents.messages), 1, 0, 0]
    assert documents.cost_usd == pytest.approx((documents.prompt_tokens or 0) * 0.001)
    assert question.messages == [{"role": "user", "content": "How hot is green tea brewed?"}]
    assert summary.cost_usd == pytest.approx(
        ((summary.prompt_tokens or 0) + 2 * (summary.completion_tokens or 0)) / 1_000_000
    )


async def test_a_node_is_shown_with_the_number_of_its_vectors(folder: Path) -> None:
    run = await flow_in(folder).run(store=MemoryStore())
    documents, *_ = calls(run)
    shown = "\n".join(format_node(Reading(run.events), NodeRow("ask"), calls(run)))
    assert f"model call for embedding: {documents.model}" in shown
    assert f"answer: {len(documents.vectors)} vectors" in shown
    assert documents.vectors[0] not in shown


async def test_they_are_paid_from_the_runs_limits(folder: Path, server: ModelServer) -> None:
    (folder / "flow.yaml").write_text(FLOW.replace("max_tokens: 400, model", "max_tokens: 400000, model"))
    run = await flow_in(folder).run(store=MemoryStore(), limits=RunLimits(bounds=Budget(model_calls=2)))
    assert run.status == "failed"
    assert run.error is not None
    assert "2 model calls made" in run.error.message
    assert asked(server) == ALL[:2]


async def test_what_a_limit_does_not_allow_is_not_embedded(folder: Path, server: ModelServer) -> None:
    run = await flow_in(folder).run(store=MemoryStore(), limits=RunLimits(bounds=Budget(cost_usd=0.001)))
    assert "text-embedding-3-small" not in asked(server)
    assert run.error is None or "0.001 USD" in run.error.message


@pytest.mark.parametrize(("hanging", "left"), [("gpt-4o-nano", ALL[2:]), ("gpt-4o-mini", ALL[3:])])
async def test_a_run_that_goes_on_asks_only_what_was_not_answered(
    folder: Path, server: ModelServer, hanging: str, left: list[str]
) -> None:
    store = MemoryStore()
    server.respond_with(answering(**{hanging.replace("-", "_"): Hang()}))
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            await flow_in(folder).run(store=store, run_id="r1")

        tasks.start_soon(run)
        with anyio.fail_after(60):
            while hanging not in asked(server):  # noqa: ASYNC110 - another thread's doing
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    server.requests.clear()
    server.respond_with(answering())
    resumed = await flow_in(folder).resume("r1", store=store)
    assert resumed.status == "succeeded"
    assert asked(server) == left


async def test_a_model_that_stands_in_does_so_for_theirs(folder: Path, server: ModelServer) -> None:
    run = await flow_in(folder, model="openai/gpt-4.1-mini").run(store=MemoryStore())
    assert run.status == "succeeded", run.error
    # What stands in answers; it makes no vectors.
    assert set(asked(server)) == {"gpt-4.1-mini", "text-embedding-3-small"}
    assert asked(server).count("gpt-4.1-mini") == 2


async def test_with_the_offline_stand_in_nobody_is_asked(folder: Path, server: ModelServer) -> None:
    run = await Flow.from_yaml(folder / "flow.yaml", environ={}, model="offline").run(store=MemoryStore())
    assert run.status == "succeeded", run.error
    assert server.requests == []


@pytest.mark.parametrize("entry", ["retrieval: {documents: docs, embedding: groq/m}", "compressor: {model: groq/m}"])
async def test_a_key_that_is_missing_is_told_before_anything_is_paid(
    folder: Path, server: ModelServer, entry: str
) -> None:
    (folder / "flow.yaml").write_text(f"{FLOW.partition('context:')[0]}context: [{{{entry}}}]\n")
    with pytest.raises(ModelConfigError, match="GROQ_API_KEY"):
        await flow_in(folder).run(store=MemoryStore())
    assert server.requests == []


async def test_what_is_read_while_it_is_written_is_the_answer_alone(folder: Path) -> None:
    async with flow_in(folder).stream(tokens=True) as events:
        told = [event.text async for event in events if isinstance(event, TokenStreamed)]
    assert "".join(told) == "At 80 degrees."


async def test_a_result_is_taken_again_for_the_same_material_and_not_for_the_same_question(
    folder: Path, server: ModelServer
) -> None:
    store = MemoryStore()
    (folder / "flow.yaml").write_text(
        FLOW.replace("model: openai/gpt-4o-mini\n", "model: openai/gpt-4o-mini\n    cache: true\n")
    )
    for expected in (1, 1, 2):
        run = await flow_in(folder).run(store=store)
        assert run.status == "succeeded", run.error
        assert asked(server).count("gpt-4o-mini") == expected
        if len(store.list()) == 2:
            assert asked(server) == ALL  # Nothing was asked again, neither for the material nor for the answer.
            (folder / "docs/0.md").write_text("Green tea is brewed at 60 degrees.")
