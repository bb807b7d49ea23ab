"""Every sample flow runs: offline, and once through a real HTTP connection to an OpenAI-compatible server."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from flowengine.agents.skills.sandbox.sandbox import verdict
from flowengine.core.records import ModelCall
from flowengine.engine.events import NodeRecorded
from flowengine.errors import FlowEngineError, ModelConfigError
from flowengine.flow import Flow
from flowengine.flowfile.analysis.references import edges_of
from flowengine.flowfile.loader import check_file, load_flow
from flowengine.flowfile.schema.editor_schema import json_schema
from flowengine.flowfile.yaml.parser import parse_yaml
from flowengine.journal.memory import MemoryStore
from flowengine.models.messages import ToolRequest
from flowengine.runtime.run import Run
from flowengine.testing.scripted_answers import scripted
from tests.support.model_answers import Completion, ToolCall
from tests.support.model_server import ModelServer
from tests.support.require import missing

FLOWS = Path(__file__).parents[2] / "flows"

SAMPLES: dict[str, dict[str, Any]] = {
    "hello": {"name": "Ada"},
    "support_triage": {"message": "I was charged twice for one invoice"},
    "content_route": {"topic": "Markets, sales and the strategy of a shop"},
    "quality_gate": {"brief": "Tea is a drink. It is made from leaves. Water is poured over them."},
    "tool_agent": {"message": "My teapot from order A-17 came broken."},
    "draft_evaluate_improve": {"facts": "The shop moves on 3 May. Parking is free. Old vouchers stay valid."},
    "multilingual_triage": {"message": "先月の料金が二重に請求されています。返金してください。"},
    "channel_reply": {"text": "Bot, when is the release?", "remember": False},
    "draft_until_good": {"topic": "Bees make honey. They fly. They dance."},
    "parallel_research": {"question": "How do message queues keep their order?"},
    "wider_search": {"question": "How do message queues keep their order?"},
    "handoff": {"message": "My teapot from order A-17 came broken."},
    "refund_desk": {"message": "My teapot from order A-17 came broken."},
    "parallel_review": {"text": "Tea is the oldest drink. Everybody likes it. Nobody knows why."},
}
PATTERNS: dict[str, dict[str, Any]] = {
    "answer_with_citations": {"question": "When are refunds paid?"},
    "map_reduce": {"text": "Tea is a drink.\n\nIt is made from leaves.\n\nWater is poured over them."},
    "judge_panel": {"text": "Tea is the oldest drink. Everybody likes it."},
    "best_of_three": {"task": "Say how tea is brewed."},
    "first_answer": {"question": "What is tea?"},
    "rules_before_models": {"text": "I was charged twice for one invoice"},
    "extract_fields": {"message": "A table for four on 1 March, Ann"},
    "graceful_failure": {"number": "Z-1"},
    "plan_and_execute": {"task": "Move the shop to another street"},
    "debate": {"question": "Should the shop open on Sundays?"},
    "back_translation": {"text": "We open at nine."},
    "rolling_summary": {"text": "Tea is a drink.\n\nIt is made from leaves.\n\nWater is poured over them."},
    "screened_reply": {"message": "Which tea is mild?"},
    "report_with_failures": {"numbers": ["A-17", "Z-9", "B-4"]},
    "repair_desk": {"message": "My kettle K2 hums and switches off early."},
    "team_memory": {"text": "Bot, when is the release?", "remember": False},
    "check_invoice": {"invoice": "Teapot 30.00 (19 %), tea 4.50 (7 %). Net 34.50, tax 6.10."},
}
"""Further ones, of the same kinds of nodes: what costs time is done with them in the long tests alone."""
ALL = [*SAMPLES, *(pytest.param(name, marks=pytest.mark.long) for name in PATTERNS)]
SAMPLES |= PATTERNS


WITHOUT_MODELS: dict[str, dict[str, Any]] = {"call_tools": {}}
NEEDS_A_SERVER = {"order_status"}
NEEDS_A_SANDBOX = {"compute_totals"}


@pytest.fixture(autouse=True)
def no_vendor(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key and no address of this machine takes part."""
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "FLOWENGINE_DEFAULT_MODEL", "OLLAMA_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def editors_schema() -> jsonschema.Draft7Validator:
    schema = json_schema()
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema)


def run_of(name: str, **options: Any) -> Run:
    run = Flow.from_yaml(FLOWS / f"{name}.yaml", **options).run_sync({**SAMPLES, **WITHOUT_MODELS}[name])
    return run.raise_for_status()


def calls_of(run: Run) -> list[ModelCall]:
    records = [event.record for event in run.events if isinstance(event, NodeRecorded)]
    return [record for record in records if isinstance(record, ModelCall)]


def test_there_is_a_test_for_every_sample():
    assert {path.stem for path in FLOWS.glob("*.yaml")} >= {
        *SAMPLES,
        *WITHOUT_MODELS,
        *NEEDS_A_SERVER,
        *NEEDS_A_SANDBOX,
    }


@pytest.mark.parametrize("path", sorted(FLOWS.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_sample_has_no_error_and_no_warning_and_fits_the_editors_schema(
    path: Path, editors_schema: jsonschema.Draft7Validator
):
    assert [str(each) for each in check_file(path)] == []
    editors_schema.validate(parse_yaml(path.read_text(), None).data)


@pytest.mark.parametrize("path", sorted(FLOWS.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_checked_edges_are_those_that_run(path: Path):
    built = Flow.from_yaml(path).plan.graph.edges
    # What a template reads is an edge already where `needs` says so too.
    assert set(built) == set(edges_of(load_flow(path)))


@pytest.mark.parametrize("name", [*SAMPLES, *WITHOUT_MODELS])
def test_a_sample_runs_offline_and_gives_all_its_outputs(name: str):
    run = run_of(name)
    assert set(run.outputs) == set(load_flow(FLOWS / f"{name}.yaml").outputs)
    assert all(value not in (None, "", []) for value in run.outputs.values())
    assert all(call.model == "offline" for call in calls_of(run))


TEXTS = [
    (name, given)
    for name in (*SAMPLES, *WITHOUT_MODELS)
    for given, declared in load_flow(FLOWS / f"{name}.yaml").inputs.items()
    if declared.type == "string" and "call:" in (FLOWS / f"{name}.yaml").read_text()
]
"""Samples whose own functions may be handed a caller's text."""


@pytest.mark.parametrize(("name", "given"), TEXTS)
def test_no_text_of_a_caller_names_a_file_that_a_sample_makes(
    name: str, given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEAM_MEMORY", str(tmp_path / "memory.db"))
    monkeypatch.setenv("CHANNEL_MEMORY", str(tmp_path / "memory.db"))
    there = tmp_path / "there"
    there.mkdir()
    monkeypatch.chdir(there)
    for text in ("strange", "../strange.db"):
        with suppress(FlowEngineError):
            Flow.from_yaml(FLOWS / f"{name}.yaml").run_sync({given: text})
    assert [path.name for path in tmp_path.rglob("*strange*")] == []


@pytest.mark.parametrize(
    ("message", "team", "ran"),
    [
        ("I was charged twice for one invoice, please refund it", "billing", "settle"),
        ("The app shows errors and crashes, it does not work", "technical", "solve"),
        ("zzz", "general", "general"),
    ],
)
def test_support_triage_finds_the_team_or_goes_to_the_general_specialist(message: str, team: str, ran: str):
    run = Flow.from_yaml(FLOWS / "support_triage.yaml").run_sync({"message": message}).raise_for_status()
    assert run.outputs["team"] == team
    specialists = {name: run.nodes[name].status for name in ("settle", "solve", "general")}
    assert [name for name, status in specialists.items() if status == "succeeded"] == [ran]
    assert message in run.outputs["reply"]


def test_quality_gate_improves_what_does_not_pass_and_publishes_what_does():
    gate = Flow.from_yaml(FLOWS / "quality_gate.yaml")
    poor = gate.run_sync({"brief": "zebra quagga okapi; nothing else at all will do"}).raise_for_status()
    taken = "publish" if poor.outputs["passed"] else "improve"
    other = "improve" if poor.outputs["passed"] else "publish"
    assert poor.nodes[taken].status == "succeeded"
    assert poor.nodes[other].cause == "not_selected"


def test_draft_evaluate_improve_writes_again_with_what_the_judge_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    poor = {"score": 0.2, "criteria_scores": {"complete": 0.2, "clear": 0.2, "short": 0.2}, "feedback": "No day."}
    good = {"score": 0.9, "criteria_scores": {"complete": 0.9, "clear": 0.9, "short": 0.9}, "feedback": "Good."}
    with ModelServer(["We move.", poor, "We move on 3 May.", good]) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "test")
        monkeypatch.setenv("OPENAI_API_BASE", server.url)
        run = run_of("draft_evaluate_improve", model="openai/gpt-4o-mini")
        bodies = [json.dumps(each.body, ensure_ascii=False) for each in server.requests]
    assert run.outputs == {"text": "We move on 3 May.", "score": 0.9, "drafts": 2}
    assert "at most five sentences for customers" in bodies[0]
    assert "Every fact that was given is in the text" in bodies[1]
    assert "No day." in bodies[2]
    assert "We move." in bodies[2]
    assert [call.purpose for call in calls_of(run)] == ["generation", "evaluation", "improvement", "evaluation"]


def test_draft_evaluate_improve_offline_stops_after_its_rewritings() -> None:
    run = run_of("draft_evaluate_improve")
    assert 1 <= run.outputs["drafts"] <= 3
    assert len(calls_of(run)) == 2 * run.outputs["drafts"]


@pytest.mark.parametrize(
    ("message", "team", "ran"),
    [
        ("先月の料金が二重に請求されています。返金してください。", "billing", "settle"),
        ("アプリを開くとエラーが出てログインできません。", "technical", "solve"),
        ("桜の写真を送ります。", "ask", "ask"),
    ],
)
def test_multilingual_triage_finds_the_team_and_speaks_japanese_throughout(message: str, team: str, ran: str) -> None:
    run = Flow.from_yaml(FLOWS / "multilingual_triage.yaml").run_sync({"message": message}).raise_for_status()
    assert run.outputs["team"] == team
    assert [name for name in ("settle", "solve", "ask") if run.nodes[name].status == "succeeded"] == [ran]
    assert message.partition("。")[0] in run.outputs["reply"]
    assert "オフラインの代役" in run.outputs["reply"]
    for call in calls_of(run):
        prompt = " ".join(str(each["content"]) for each in call.messages)
        words = set(re.findall(r"[A-Za-z_]{2,}", prompt.partition("{")[0]))
        labels_and_tags = {"billing", "technical", "next_route", "confidence", "reasoning", "prompt", "result"}
        assert words <= {*labels_and_tags, "JSON", "Schema"}, call.purpose


def test_parallel_review_merges_what_each_reviewer_found():
    run = run_of("parallel_review")
    assert run.outputs["reviewers"] == ["facts", "style", "tone"]
    assert run.shared_state["remarks"]


@pytest.mark.parametrize("name", ALL)
def test_a_sample_runs_through_a_real_http_connection(name: str, monkeypatch: pytest.MonkeyPatch):
    with ModelServer() as server:
        monkeypatch.setenv("OPENAI_API_KEY", "test")
        monkeypatch.setenv("OPENAI_API_BASE", server.url)
        run = run_of(name, model="openai/gpt-4o-mini")
        assert len(server.requests) == len(calls_of(run)) > 0
    assert all(call.provider == "openai" and call.prompt_tokens for call in calls_of(run))


def test_tools_are_called_through_a_real_http_connection(monkeypatch: pytest.MonkeyPatch):
    order = {"euros": 30.0, "days_since_delivery": 5, "reason": "broken"}
    two = (ToolCall("refund_for", order, id="a"), ToolCall("find_order", {"number": "Z"}, id="b"))
    answers = [
        ToolCall("find_order", {"number": "A-17"}),
        ToolCall("refund_for", '{"euros": 30'),
        Completion("One moment.", tool_calls=two),
        "Sorry.",
    ]
    with ModelServer(answers) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "test")
        monkeypatch.setenv("OPENAI_API_BASE", server.url)
        run = run_of("tool_agent", model="openai/gpt-4o-mini")
        sent = server.requests[-1].body["messages"]
    assert run.outputs["answer"] == "Sorry."
    told = [each["content"] for each in sent if each["role"] == "tool"]
    assert '"teapot"' in told[0]
    assert told[1].startswith("The arguments for the tool 'refund_for' cannot be read as JSON")
    assert told[2:] == ["30.0", "tool 'find_order' failed: LookupError: no order 'Z'; the numbers look like A-17"]
    calls = [call["function"] for each in sent for call in each.get("tool_calls") or ()]
    assert [each["name"] for each in calls] == ["find_order", "refund_for", "refund_for", "find_order"]
    assert calls[1]["arguments"] == "{}"


def test_code_of_a_sample_runs_in_the_sandbox():
    if not verdict(FLOWS).holds:
        missing(f"there is no sandbox: {verdict(FLOWS).reason}")
    run = Flow.from_yaml(FLOWS / "compute_totals.yaml").run_sync()
    assert run.raise_for_status().outputs == {"net": 34.5, "tax": 6.02, "complaint": "none"}
    free = [{"article": "tea", "euros": 0, "rate": 7}]
    run = Flow.from_yaml(FLOWS / "compute_totals.yaml").run_sync({"lines": free})
    assert run.raise_for_status().outputs["complaint"] == "These cost nothing: tea"


def test_the_script_of_a_skill_runs_in_the_sandbox_and_the_model_reads_its_output_alone():
    if not verdict(FLOWS).holds:
        missing(f"there is no sandbox: {verdict(FLOWS).reason}")
    lines = [{"article": "teapot", "euros": 30.0, "rate": 19}, {"article": "tea", "euros": 4.5, "rate": 7}]
    wish = {"name": "check-invoice", "path": "scripts/add_up.py", "stdin": json.dumps(lines)}
    answers = [
        ToolRequest("1", "load_skill", '{"name": "check-invoice"}'),
        ToolRequest("2", "run_skill_script", json.dumps(wish)),
        "The tax is 6.02.",
    ]
    run = scripted(Flow.from_yaml(FLOWS / "check_invoice.yaml"), {"check": answers}).run_sync().raise_for_status()
    read = json.dumps(calls_of(run)[-1].messages)
    assert "net: 34.50\\ntax 19 %: 5.70\\ntax 7 %: 0.32\\ngross: 40.52" in read
    assert "json.load" not in read


def test_a_flow_that_names_a_model_without_its_key_is_an_error_and_never_a_stand_in():
    store = MemoryStore()
    for name in SAMPLES:
        with pytest.raises(ModelConfigError, match="OPENAI_API_KEY"):
            Flow.from_yaml(FLOWS / f"{name}.yaml", model="openai/gpt-4o-mini").run_sync(SAMPLES[name], store=store)
    assert store.list() == [], "nothing has begun"
