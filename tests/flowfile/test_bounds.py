"""What a flow can take at most: as the file says, and never less than a run of it takes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from flowengine.core.records import ModelCall
from flowengine.engine.events import NodeRecorded
from flowengine.flow import Flow
from flowengine.flowfile.estimate.bounds import FlowBound, bound_of
from flowengine.flowfile.loader import load_flow
from flowengine.flowfile.project.project import find_project
from flowengine.flowfile.yaml.parser import parse_yaml
from flowengine.models.model import Request
from flowengine.models.pricing import Price
from flowengine.models.scripted import ScriptedModel
from flowengine.models.tokens import count_tokens
from flowengine.models.worst_case import ModelFacts
from flowengine.runtime.run import Run
from flowengine.testing.model_overrides import with_models
from tests.support.require import require

HEAD = "flowengine: v1\nname: f\n"
FACTS = ModelFacts({"OLLAMA_HOST": "127.0.0.1"}, {"ours": Price(1.0, 10.0)})
"""The model `ours`: a price, and neither a known window nor a longest answer."""
TEN = "prompt: ten, model: ours, max_tokens: 10, max_retries: 0"
"""A node with one call of a known size."""


def bound(nodes: str, top: str = "", facts: ModelFacts = FACTS, **options: Any) -> FlowBound:
    return bound_of(load_flow(text=f"{HEAD}{top}\nnodes:\n{nodes}"), facts, **options)


def calls_of(found: FlowBound) -> dict[str, int | None]:
    return {each.path: each.most.calls for each in found.nodes}


# --- one node


def test_what_documents_cost_to_embed_is_not_known_unless_a_stand_in_embeds_none() -> None:
    node = (
        "  a: {prompt: x, model: ours, context: [{retrieval: {store: i.db, embedding: openai/text-embedding-3-small}}]}"
    )
    found = bound(node).most
    assert (found.calls, found.tokens, found.cost_usd, found.unpriced) == (None, None, None, frozenset())
    assert bound(node, model="offline").most.calls == 2
    assert bound(node, top="limits: {model_calls: 5, tokens: 900}").most[:2] == (5, 900)


@pytest.mark.parametrize(
    ("node", "calls"),
    [
        ("{prompt: x}", 2),
        ("{prompt: x, max_retries: 0}", 1),
        ("{prompt: x, output: {type: object}}", 4),
        ("{prompt: x, output: {type: object}, max_retries: 1}", 2),
        ("{prompt: x, tools: ['math:sqrt']}", 12),
        ("{prompt: x, tools: ['math:sqrt'], max_tool_rounds: 3, output: {type: object}}", 7),
        ("{prompt: x, mcp_servers: [{name: s, command: s}], max_tool_rounds: 1, max_retries: 0}", 2),
        ("{prompt: x, contexts: ['math:tau'], max_tool_rounds: 4}", 6),
        ("{prompt: x, context: [{compressor: {model: ours}}, {compressor: {max_tokens: 9}}]}", 2 + 1),
        ("{prompt: x, context: [{retrieval: {store: i.db}}]}", 2),
        ("{prompt: x, context: [{retrieval: {store: i.db, embedding: ours}}]}", None),
        ("{prompt: x, evaluate: {}}", 2 + 4),
        ("{prompt: x, improve: {}}", 4 * 2 + 4 * 4),
        ("{prompt: x, improve: {max_iterations: 1}, max_retries: 0}", 2 + 2),
        ("{prompt: x, improve: {max_iterations: 2}, tools: ['math:sqrt'], max_tool_rounds: 1}", 3 * 3 + 3 * 4),
        ("{prompt: x, routing: {instruction: i, routes: {a: {}}}}", 2 + 4),
        ("{prompt: x, retry: {attempts: 3}}", 6),
        ("{type: evaluation, target: x}", 4),
        ("{type: evaluation, target: x, retry: {attempts: 2}, max_retries: 0}", 2),
        ("{type: evaluation, target: x, call: 'math:sqrt'}", 0),
        ("{type: routing, instruction: i, target: x, routes: {a: {}}}", 4),
        ("{type: condition, if: 'true'}", 0),
        ("{type: function, call: 'math:sqrt'}", 0),
        ("{type: approval, message: m, routes: {a: {}}}", 0),
    ],
)
def test_the_calls_of_one_node(node: str, calls: int | None, tmp_path: Path) -> None:
    (tmp_path / "flowengine.toml").write_text("allow_calls = ['math']\nallow_mcp = ['s']")
    (tmp_path / "f.yaml").write_text(f"{HEAD}nodes:\n  a: {node}\n")
    spec = load_flow(tmp_path / "f.yaml", project=find_project(tmp_path / "f.yaml"))
    assert bound_of(spec, FACTS).most.calls == calls


def test_settings_of_a_shared_agent_and_defaults_count() -> None:
    top = "agents: {w: {model: ours, max_retries: 0}}\ndefaults: {agent: w, retry: {attempts: 2}}"
    assert bound("  a: {prompt: x}\n", top).most.calls == 2


def test_a_call_takes_its_question_and_its_longest_answer() -> None:
    found = bound(
        "  a: {prompt: 'How hot is tea? {{ inputs.more }}', model: ours, max_tokens: 50, max_retries: 0}\n",
        "inputs: {more: {type: string}}",
        inputs={"more": "Say it in Celsius. " * 50},
    )
    most = found.most
    asked = count_tokens("How hot is tea? " + "Say it in Celsius. " * 50)
    assert most.tokens is not None
    assert asked + 50 < most.tokens < 2 * asked + 1800
    assert most.cost_usd == pytest.approx(((most.tokens - 50) * 1.0 + 50 * 10.0) / 1e6)


@pytest.mark.parametrize("read", ["inputs.tea[1].text", "inputs.tea[1]['text']", "inputs.tea.1.text"])
def test_a_field_of_an_item_of_a_known_list_is_as_long_as_the_list_may_be(read: str) -> None:
    node = f'  a: {{prompt: "{{{{ {read} }}}}", model: ours, max_tokens: 1, max_retries: 0}}\n'
    text = "Say it in Celsius. " * 500
    found = bound(node, "inputs: {tea: {type: array}}", inputs={"tea": [{"text": "x"}, {"text": text}]})
    assert (found.most.tokens or 0) > count_tokens(text)


def test_a_structured_answer_may_be_longer_where_it_is_printed_than_where_it_was_written() -> None:
    written, printed = (json.dumps([True] * 6000, separators=each) for each in ((",", ":"), (", ", ": ")))
    first = f"  a: {{prompt: x, model: ours, max_tokens: {count_tokens(written)}, output: {{type: array}}}}\n"
    found = bound(f"{first}  b: {{prompt: '{{{{ nodes.a.output }}}}', model: ours, max_tokens: 1, max_retries: 0}}\n")
    assert (found.nodes[1].most.tokens or 0) > count_tokens(printed)


def test_the_models_own_bounds_are_taken_where_the_file_has_none() -> None:
    found = bound(
        "  a: {prompt: '{{ shared_state.x }}', model: gpt-4o-mini, max_retries: 0}\n", "shared_state: {x: {}}"
    )
    assert found.most.tokens == 128_000 + 16_384
    assert bound("  a: {prompt: x, model: ours}\n").most.tokens is None
    capped = bound("  a: {prompt: x, model: ours, max_retries: 0}\n", "limits: {cost_usd: 5}").most.tokens
    assert capped is not None
    assert 4096 < capped < 4096 + 2000


def test_what_the_file_does_not_show_counts_as_long_as_the_window_allows_or_a_budget_does() -> None:
    node = "  a: {{prompt: x, model: {}, max_tokens: 1, max_retries: 0, context: [{{conversation: {{}}}}] {}}}\n"
    assert bound(node.format("gpt-4o-mini", "")).most.tokens == 128_001
    assert bound(node.format("ours", "")).most.tokens is None
    budgeted = bound(node.format("ours", ", context_budget: 500")).most.tokens
    assert budgeted is not None
    assert 501 <= budgeted < 1000


def test_of_models_that_stand_in_for_each_other_the_dearest_counts() -> None:
    facts = ModelFacts({"OLLAMA_HOST": "127.0.0.1"}, {"cheap": Price(1, 1), "dear": Price(1, 20)})
    nodes = "  a: {prompt: x, model: cheap, fallbacks: [dear], max_tokens: 100000, max_retries: 0}\n"
    assert bound(nodes, facts=facts).most.cost_usd == pytest.approx(2.0, rel=0.01)
    assert bound(nodes, facts=facts, model="cheap").most.cost_usd == pytest.approx(0.1, rel=0.05)


def test_a_price_that_is_unknown_is_named_and_bounds_nothing() -> None:
    found = bound(f"  a: {{{TEN}}}\n  b: {{prompt: x, model: ollama/any, max_tokens: 5, max_retries: 0}}\n")
    assert found.most.unpriced == {"ollama/any"}
    assert found.most.cost_usd is None
    assert found.most.calls == 2
    assert found.most.tokens is not None
    limited = bound("  b: {prompt: x, model: ollama/any, max_tokens: 5}\n", "limits: {cost_usd: 1}")
    assert limited.most.cost_usd is None


def test_what_is_free_costs_nothing_however_long_it_is() -> None:
    assert bound("  a: {prompt: '{{ shared_state.x }}', model: offline}\n", "shared_state: {x: {}}").most.cost_usd == 0


# --- levels


BODY = f"nodes: {{one: {{{TEN}}}, two: {{{TEN}, needs: [one]}}}}"


def test_a_loop_runs_its_body_once_a_round() -> None:
    found = bound(f"  l: {{type: loop, max_iterations: 4, {BODY}}}\n")
    assert calls_of(found) == {"l": 8, "l.one": 4, "l.two": 4}
    assert [each.runs for each in found.nodes] == [1, 4, 4]
    assert [each.depth for each in found.nodes] == [0, 1, 1]


@pytest.mark.parametrize(
    ("over", "top", "inputs", "items"),
    [
        ("inputs.teas", "inputs: {teas: {type: array}}", {"teas": ["a", "b", "c"]}, 3),
        ("inputs.teas", "inputs: {teas: {type: array, default: [a, b]}}", {}, 2),
        ("inputs.teas[:2]", "inputs: {teas: {type: array}}", {"teas": ["a", "b", "c"]}, 2),
        ("inputs.teas | unique", "inputs: {teas: {type: array}}", {"teas": ["a", "a", "c"]}, 2),
        ("inputs.teas", "inputs: {teas: {schema: {type: array, maxItems: 7}}}", {}, 7),
        ("inputs.teas", "inputs: {teas: {type: array}}", {}, None),
        ("range(5)", "", {}, 5),
        ("nodes.plan.output.teas", "", {}, 6),
        ("nodes.plan.output.others", "", {}, None),
        ("nodes.before.output", "", {}, 9),
        ("shared_state.x", "shared_state: {x: {type: array, default: []}}", {}, None),
    ],
)
def test_a_map_runs_its_body_once_an_item(over: str, top: str, inputs: Mapping[str, Any], items: int | None) -> None:
    plan = (
        "  plan: {prompt: x, output: {type: object, properties: {teas: {type: array, maxItems: 6}, "
        "others: {type: array}}}}\n"
        "  before: {type: map, over: range(9), nodes: {f: {type: condition, if: 'true'}}}\n"
    )
    found = bound(f"{plan}  m: {{type: map, over: '{over}', {BODY}}}\n", top, inputs=inputs)
    assert calls_of(found)["m"] == (None if items is None else 2 * items)
    assert {each.path: each.runs for each in found.nodes}["m.one"] == items


def test_levels_multiply() -> None:
    inner = f"m: {{type: map, over: range(3), {BODY}}}"
    found = bound(f"  l: {{type: loop, max_iterations: 5, nodes: {{{inner}}}}}\n")
    assert calls_of(found)["l.m.two"] == 15
    assert found.most.calls == 30


def test_a_map_that_asks_nobody_is_free_however_often_it_runs() -> None:
    nodes = "  m: {type: map, over: inputs.x, nodes: {f: {type: condition, if: 'true'}}}\n"
    assert bound(nodes, "inputs: {x: {type: array}}").most[:3] == (0, 0, 0.0)


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(HEAD + text)


def test_a_subflow_knows_the_inputs_that_it_is_given(tmp_path: Path) -> None:
    inner = f"nodes:\n  m: {{type: map, over: inputs.xs, {BODY}}}\noutputs: {{all: '{{{{ nodes.m.output }}}}'}}\n"
    outer = "nodes:\n  s: {type: subflow, flow: ./inner.yaml, with: {xs: '{{ inputs.teas }}'}}\n"
    (tmp_path / "inner.yaml").write_text(f"{HEAD}inputs: {{xs: {{type: array}}}}\n{inner}")
    (tmp_path / "outer.yaml").write_text(f"{HEAD}inputs: {{teas: {{type: array}}}}\n{outer}")
    spec = load_flow(tmp_path / "outer.yaml", project=find_project(tmp_path))
    found = bound_of(spec, FACTS, inputs={"teas": [1, 2, 3]})
    assert calls_of(found) == {"s": 6, "s.m": 6, "s.m.one": 3, "s.m.two": 3}
    assert bound_of(spec, FACTS).most.calls is None


# --- ways and limits


def test_of_routes_the_dearest_counts() -> None:
    nodes = (
        "  pick: {type: condition, if: 'true', then: left, else: right}\n"
        f"  left: {{{TEN}}}\n  right: {{{TEN}, retry: {{attempts: 5}}}}\n  more: {{{TEN}, needs: [left]}}\n"
    )
    found = bound(nodes)
    assert found.most.calls == 5
    assert found.longest == ["pick", "left", "more"]


@pytest.mark.parametrize(("limits", "calls"), [("model_calls: 7", 7), ("model_calls: 100", 20), ("tokens: 100", 20)])
def test_limits_of_the_run_bound_the_whole(limits: str, calls: int) -> None:
    found = bound(f"  l: {{type: loop, max_iterations: 10, {BODY}}}\n", f"limits: {{{limits}}}")
    assert (found.most.calls, found.unlimited.calls) == (calls, 20)
    assert (found.most.tokens or 0) <= (found.unlimited.tokens or 0)


def test_a_bound_on_calls_bounds_tokens_and_cost_too() -> None:
    nodes = f"  m: {{type: map, over: inputs.x, limits: {{model_calls: 3}}, {BODY}}}\n"
    top = "inputs: {x: {type: array}}"
    one = bound(f"  a: {{{TEN}}}\n").most
    found = bound(nodes, top).most
    assert (one.tokens, one.cost_usd) != (None, None)
    assert found[:3] == (3, 3 * (one.tokens or 0), pytest.approx(3 * (one.cost_usd or 0)))
    assert bound(nodes.replace("model_calls: 3", "cost_usd: 0.5"), top).most[:3] == (None, None, 0.5)


# --- runs never take more


def records(run: Run) -> Sequence[ModelCall]:
    found = [event.record for event in run.events if isinstance(event, NodeRecorded)]
    return [record for record in found if type(record) is ModelCall]


SAMPLES = sorted(Path(__file__).parents[2].joinpath("flows", "tests").glob("*.flowtest.yaml"))


def has_a_bound(test: Path) -> bool:
    """Not where a service is asked, nor where functions ask models, which no file shows."""
    name = test.name.partition(".")[0]
    return name != "team_memory" and "type: http" not in test.parents[1].joinpath(f"{name}.yaml").read_text()


@pytest.mark.parametrize(
    "file",
    list(filter(has_a_bound, SAMPLES)),
    ids=lambda file: file.name.partition(".")[0],
)
def test_no_sample_flow_takes_more_than_its_bound(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the stand-in, counted as the model that the bound is for would count."""
    monkeypatch.setenv("FLOWENGINE_DEFAULT_MODEL", "offline")
    told: Any = parse_yaml(file.read_text(), None).data
    path = (file.parent / told["flow"]).resolve()
    if "type: code" in path.read_text():
        require("bwrap", "apt-get install bubblewrap")
    for case in told["cases"]:
        inputs = case.get("inputs", {})
        run = Flow.from_yaml(path, model="offline").run_sync(inputs)
        most = bound_of(
            load_flow(path), ModelFacts({"OLLAMA_HOST": "127.0.0.1"}), inputs=inputs, model="gpt-4o-mini"
        ).most
        calls = records(run)
        tokens = sum(count_tokens(str(message["content"])) for call in calls for message in call.messages)
        assert len(calls) <= (most.calls or 0)
        assert tokens + sum(count_tokens(call.content) for call in calls) <= (most.tokens or 0)


WORDS = " ".join(["tea"] * 60)
"""An answer of sixty tokens."""
SCORES = dict.fromkeys(("short", "clear", "accuracy", "relevance", "completeness"), 0.1)
STRICT = {
    "score": 0.1,
    "criteria_scores": SCORES,
    "feedback": "Not good enough. " * 10,
    "suggestions": ["More words, please."] * 3,
}
CHAIN = """
flowengine: v1
name: chain
inputs: {topic: {type: string}}
agents: {w: {model: gpt-4o-mini, max_tokens: 60, max_retries: 1, system_message: "You are brief. {{ inputs.topic }}"}}
defaults: {agent: w}
nodes:
  draft: {instructions: Write about it., prompt: "{{ inputs.topic }}"}
  better: {prompt: "Rewrite: {{ nodes.draft.output }}", improve: {max_iterations: 3, criteria: {short: It is short}}}
  judge: {type: evaluation, needs: [better], criteria: {clear: It is clear}, routes: {fail: again}}
  again: {prompt: "{{ nodes.judge.output.feedback }} {% if nodes.draft.output %}{{ nodes.better.output }}{% endif %}"}
  same: {needs: [again], prompt: "Once more: {{ nodes.again.output }}", evaluate: {instructions: Judge it.}}
  last: {needs: [same]}
"""


def test_no_run_takes_more_than_its_bound_where_all_answers_are_as_long_as_they_may_be() -> None:
    def answer(request: Request) -> Any:
        return STRICT if request.response_schema is not None else WORDS

    inputs = {"topic": "What is to be known of tea, and of those who drink it? " * 5}
    model = ScriptedModel(answer, name="gpt-4o-mini", provider="openai")
    flow = Flow.from_text(CHAIN, "chain.yaml", model="offline")
    run = with_models(flow, lambda seat, settings: model).run_sync(inputs)
    run.raise_for_status()
    spec = load_flow(text=CHAIN)
    rows = {each.path: each for each in bound_of(spec, ModelFacts({"OLLAMA_HOST": "127.0.0.1"}), inputs=inputs).nodes}
    taken: dict[str, list[ModelCall]] = {}
    for event in run.events:
        if isinstance(event, NodeRecorded) and type(event.record) is ModelCall:
            taken.setdefault(event.node, []).append(event.record)
    assert set(taken) == set(rows)
    for node, calls in taken.items():
        most = rows[node].most
        largest = max(sum(count_tokens(str(each["content"])) for each in call.messages) for call in calls)
        assert len(calls) <= (most.calls or 0)
        assert largest <= (most.call_tokens or 0)
    answers = {node: rows[node].most.call_tokens for node in ("draft", "last")}
    assert all(tokens is not None and tokens < 3000 for tokens in answers.values())
