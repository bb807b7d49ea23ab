"""Prompts of a map over one long context: what the vendor's cache could serve of them, on the recording server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flowengine.core.records import ModelCall, Notice
from flowengine.engine.events import NodeRecorded
from flowengine.flow import Flow
from flowengine.runtime.run import Run
from tests.support.model_answers import Completion
from tests.support.model_server import ModelServer
from tests.support.prompt_cache import Served, served_of

LONG = "\n".join(f"Paragraph {number}: the shop takes back what was bought {number} days ago." for number in range(400))

FLOW = """\
flowengine: v1
name: questions
inputs:
  questions: {type: array}
nodes:
  ask:
    type: map
    over: inputs.questions
    %s
    nodes:
      answer:
        model: %s
        instructions: Answer from the handbook in one sentence.
        prompt: "{{ item }}"
        context:
          - fixed_file: {file_path: handbook.md}
        %s
outputs:
  answers: "{{ nodes.ask.output }}"
"""
QUESTIONS = [f"What holds for thing {number}?" for number in range(20)]
MODELS = ("anthropic/claude-sonnet-4-5", "openai/gpt-4o-mini")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    with ModelServer(lambda _: Completion("It holds.", piece_delay=0.02)) as running:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-a1b2c3d4e5f6")
        monkeypatch.setenv("OPENAI_BASE_URL", running.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-a1b2c3d4e5f6")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", running.root)
        yield running


def run_of(folder: Path, model: str, *, on_map: str = "", on_agent: str = "", text: str = LONG) -> Run:
    (folder / "handbook.md").write_text(text, "utf-8")
    (folder / "flowengine.toml").write_text("allow_calls = []\n", "utf-8")
    path = folder / "questions.yaml"
    path.write_text(FLOW % (on_map, model, on_agent), "utf-8")
    return Flow.from_yaml(path).run_sync({"questions": QUESTIONS}).raise_for_status()


def share_of(served: list[Served]) -> float:
    return sum(each.read for each in served) / sum(each.all for each in served)


def records_of(run: Run, kind: type[Any]) -> list[Any]:
    records = [event.record for event in run.events if isinstance(event, NodeRecorded)]
    return [each for each in records if isinstance(each, kind)]


@pytest.mark.parametrize("model", MODELS)
def test_nine_tenths_of_the_prompts_of_a_warm_map_can_be_served(
    model: str, server: ModelServer, tmp_path: Path
) -> None:
    run = run_of(tmp_path, model, on_map="prompt_cache: warm", on_agent="prompt_cache: auto")
    served = served_of(server.requests)
    assert len(served) == 20
    assert share_of(served) >= 0.9
    assert [each.read > 0 for each in served] == [False, *[True] * 19]
    first, *others = sorted(server.requests, key=lambda each: each.arrived)
    assert first.began is not None
    assert first.answered is not None
    assert min(each.arrived for each in others) >= first.began
    assert len(run.outputs["answers"]) == 20


@pytest.mark.parametrize("model", MODELS)
def test_items_that_go_one_after_the_other_are_served_without_a_warm_start(
    model: str, server: ModelServer, tmp_path: Path
) -> None:
    run_of(tmp_path, model, on_map="concurrency: 1", on_agent="prompt_cache: auto")
    assert share_of(served_of(server.requests)) >= 0.9


IN_THE_PROMPT = """\
flowengine: v1
name: questions
inputs: {handbook: {type: string}, questions: {type: array}}
nodes:
  ask:
    type: map
    over: inputs.questions
    prompt_cache: warm
    nodes:
      answer:
        model: %s
        prompt: "{{ inputs.handbook }}\\n\\nQuestion {{ each.index }}: {{ item }}"
        prompt_cache: auto
"""


@pytest.mark.parametrize("model", MODELS)
def test_what_all_items_read_in_their_prompts_is_served_too(model: str, server: ModelServer, tmp_path: Path) -> None:
    path = tmp_path / "questions.yaml"
    path.write_text(IN_THE_PROMPT % model, "utf-8")
    Flow.from_yaml(path).run_sync({"handbook": LONG, "questions": QUESTIONS}).raise_for_status()
    assert share_of(served_of(server.requests)) >= 0.9


def test_what_all_items_read_in_their_prompts_is_a_block_of_its_own(server: ModelServer, tmp_path: Path) -> None:
    path = tmp_path / "questions.yaml"
    path.write_text(IN_THE_PROMPT % MODELS[0], "utf-8")
    Flow.from_yaml(path).run_sync({"handbook": LONG, "questions": QUESTIONS}).raise_for_status()
    texts = [[block["text"] for block in each.body["messages"][0]["content"]] for each in server.requests]
    assert len({first for first, _ in texts}) == 1
    assert texts[0][0].endswith("Question")
    assert {rest for _, rest in texts} == {f" {number}: {each}" for number, each in enumerate(QUESTIONS)}


ONE_CALL = """\
flowengine: v1
name: %s
nodes:
  ask: {model: %s, system_message: "{{ 'Be brief. ' * 3000 }}", prompt: Why?%s}
"""


@pytest.mark.parametrize(("more", "marked"), [("", [False, True]), (", prompt_cache: auto", [True, True])])
def test_a_prompt_is_marked_once_it_is_asked_again(
    server: ModelServer, tmp_path: Path, more: str, marked: list[bool]
) -> None:
    path = tmp_path / "once.yaml"
    path.write_text(ONE_CALL % (f"once{len(more)}", MODELS[0], more), "utf-8")
    for _ in range(2):
        Flow.from_yaml(path).run_sync().raise_for_status()
    assert ["cache_control" in each.body["system"][-1] for each in server.requests] == marked


def test_what_is_marked_is_the_end_of_what_stays(server: ModelServer, tmp_path: Path) -> None:
    run_of(tmp_path, MODELS[0], on_map="concurrency: 1")
    body = server.requests[0].body
    (question,) = body["messages"]
    assert [("cache_control" in each) for each in question["content"]] == [True, False]
    assert question["content"][0]["text"].endswith("399 days ago.")
    assert question["content"][1]["text"].strip().endswith(QUESTIONS[0])
    assert "cache_control" not in body["system"][0], "it is shorter than what the vendor keeps"


def test_openai_is_told_the_flow_and_the_node_where_the_file_says_so(server: ModelServer, tmp_path: Path) -> None:
    run_of(tmp_path, MODELS[1], on_agent="prompt_cache: auto")
    assert {each.body["prompt_cache_key"] for each in server.requests} == {"questions.answer"}
    server.requests.clear()
    run_of(tmp_path, MODELS[1])
    assert not any("prompt_cache_key" in each.body for each in server.requests), "another server may refuse it"


def test_nothing_is_marked_where_it_is_off(server: ModelServer, tmp_path: Path) -> None:
    run_of(tmp_path, MODELS[0], on_agent="prompt_cache: off")
    assert "cache_control" not in str([each.body for each in server.requests])


def test_marks_are_no_part_of_a_requests_key(server: ModelServer, tmp_path: Path) -> None:
    keys = [
        {call.key for call in records_of(run_of(tmp_path, MODELS[0], on_agent=said), ModelCall)}
        for said in ("", "prompt_cache: auto", "prompt_cache: off")
    ]
    assert keys[0] == keys[1] == keys[2]


@pytest.mark.parametrize(("model", "minimum"), [(MODELS[0], "1,024"), (MODELS[1], "1,024")])
def test_prompts_that_are_too_short_for_the_vendor_are_told_once_for_all_items(
    model: str, minimum: str, server: ModelServer, tmp_path: Path
) -> None:
    told = records_of(run_of(tmp_path, model, on_agent="prompt_cache: auto", text="Be kind."), Notice)
    assert [f"from {minimum} tokens on" in each.text for each in told] == [True]
    assert records_of(run_of(tmp_path, model, text="Be kind."), Notice) == []


def test_what_a_cache_read_and_wrote_is_on_record_and_priced(server: ModelServer, tmp_path: Path) -> None:
    usage = {
        "input_tokens": 100,
        "cache_read_input_tokens": 6000,
        "cache_creation_input_tokens": 200,
        "output_tokens": 10,
    }
    server.respond_with(lambda _: Completion("It holds.", usage=usage))
    run = run_of(tmp_path, MODELS[0])
    call = records_of(run, ModelCall)[0]
    assert (call.prompt_tokens, call.cached_tokens, call.cache_write_tokens) == (6300, 6000, 200)
    assert call.cost_usd == pytest.approx((100 * 3.0 + 6000 * 0.3 + 200 * 3.75 + 10 * 15.0) / 1e6)
