"""A file gives a spec or every problem of it; never anything else."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.errors import FlowError
from flowengine.flowfile.kinds.agent_kind import AgentNodeSpec
from flowengine.flowfile.kinds.routing_kind import RoutingNodeSpec
from flowengine.flowfile.loader import check_file, check_text, load_flow
from flowengine.flowfile.schema.flow_file import FlowSpec

FLOWS = Path(__file__).parents[2] / "flows"
SAMPLES = sorted(FLOWS.glob("*.yaml"))

TRIAGE = """\
flowengine: v1
name: support_triage
inputs:
  message: {type: string, description: What the customer wrote}
nodes:
  analyze:
    instructions: Say in two sentences what this customer needs.
    prompt: "{{ inputs.message }}"
  triage:
    type: routing
    needs: [analyze]
    instruction: Choose the team for this message.
    routes:
      billing: {to: settle, description: "Invoices, refunds and payments"}
      technical: {to: solve, description: Something does not work}
      other: {description: Anything else}
    min_confidence: 0.6
    fallback: ask_again
  settle: {instructions: You settle invoices and refunds., prompt: "{{ inputs.message }}"}
  solve: {instructions: You solve technical problems., prompt: "{{ inputs.message }}"}
  ask_again:
    type: condition
    if: routing_result.confidence > 0.3
    then: settle
    else: solve
  reply:
    needs: [triage]
    prompt: |
      Write the customer a short reply.
      {{ (nodes.settle.output or nodes.solve.output) | default("No specialist was needed.") }}
outputs:
  reply: "{{ nodes.reply.output }}"
  team: "{{ nodes.ask_again.output or nodes.triage.output.next_route }}"
"""


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_the_sample_flows_have_neither_errors_nor_warnings(path: Path) -> None:
    assert check_file(path) == []
    assert load_flow(path).path == path


def test_a_flow_is_frozen_data_that_knows_its_text_and_its_places() -> None:
    spec = load_flow("triage.yaml", text=TRIAGE)
    assert (spec.name, spec.text, str(spec.path)) == ("support_triage", TRIAGE, "triage.yaml")
    triage = spec.nodes["triage"]
    assert isinstance(triage, RoutingNodeSpec)
    assert {label: route.to for label, route in triage.routes.items()} == {
        "billing": "settle",
        "technical": "solve",
        "other": None,
    }
    assert spec.position("nodes.triage.routes.technical") == (15, 18)
    assert spec.position(("nodes", "reply", "prompt")) == (28, 13)
    with pytest.raises(ValueError, match="frozen"):
        spec.name = "other"


def test_that_flow_has_no_warnings() -> None:
    assert check_text(TRIAGE) == []


def test_all_problems_come_in_one_pass_sorted_by_position() -> None:
    text = (
        "flowengine: v1\nname: many\nnodes:\n"
        "  pick:\n    type: condition\n    if: inputs.n >\n    then: publsh\n    els: a\n"
        "  publish: {prompt: '{{ inputs.x }}', temperature: warm}\n"
        "  a: {needs: [b], promt: x}\n"
        "  b: {needs: [a], prompt: x}\n"
    )
    found = check_text(text, "f.yaml")
    assert [(each.code, each.line) for each in found] == [
        ("FE301", 6),
        ("FE203", 7),
        ("FE201", 8),
        ("FE303", 9),
        ("FE401", 9),
        ("FE210", 10),
        ("FE201", 10),
    ]
    with pytest.raises(FlowError) as caught:
        load_flow("f.yaml", text=text)
    assert [str(each) for each in caught.value.diagnostics] == [str(each) for each in found]
    assert str(found[1]) == "f.yaml:7:11: FE203 node 'pick': unknown target 'publsh'; did you mean 'publish'?"


def test_an_input_that_is_written_wrongly_is_still_there_for_what_reads_it() -> None:
    text = "flowengine: v1\nname: a\ninputs: {n: string}\nnodes: {a: {prompt: '{{ inputs.n }}'}}"
    assert [each.code for each in check_text(text)] == ["FE401"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("topic", "inputs.topic"),
        ("total", "shared_state.total"),
        ("first", "nodes.first.output"),
        ("first.status", "nodes.first.status"),
        ("second", None),
    ],
)
def test_a_name_without_what_it_belongs_to_is_told_with_it(name: str, meant: str | None) -> None:
    text = (
        "flowengine: v1\nname: a\ninputs: {topic: {type: string}}\nshared_state: {total: {}}\n"
        f"nodes:\n  first: {{prompt: '{{{{ inputs.topic }}}}'}}\n  second: {{prompt: '{{{{ {name} }}}}'}}\n"
    )
    [found] = [each for each in check_text(text) if each.code == "FE302"]
    assert found.hint == (f"; did you mean '{meant}'?" if meant else "")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("x: {type: list}", "found 'list'; did you mean 'array'?"),
        ("x: {type: dict}", "found 'dict'; did you mean 'object'?"),
        ("x: {type: float}", "found 'float'; did you mean 'number'?"),
    ],
)
def test_a_type_of_another_language_is_told_by_its_name_here(line: str, expected: str) -> None:
    [found] = check_text(f"flowengine: v1\nname: a\ninputs:\n  {line}\nnodes: {{a: {{prompt: '{{{{ inputs.x }}}}'}}}}")
    assert str(found).endswith(expected)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("{type: llm, prompt: x}", "unknown node type 'llm'; did you mean 'agent'?"),
        ("{type: human_input, prompt: x}", "unknown node type 'human_input'; did you mean 'approval'?"),
        ("{type: foreach, over: '[1]'}", "unknown node type 'foreach'; did you mean 'map'?"),
        ("{type: function, function: json:loads}", "unknown key 'function'; did you mean 'call'?"),
        ("{prompt: x, system_prompt: y}", "unknown key 'system_prompt'; did you mean 'instructions'?"),
        ("{prompt: x, context_providers: []}", "unknown key 'context_providers'; did you mean 'context'?"),
        ("{type: map, over: '[1]', max_parallel: 2}", "unknown key 'max_parallel'; did you mean 'concurrency'?"),
        ("{type: map, over: '[1]', output: x}", "unknown key 'output'; did you mean 'result'?"),
        ("{prompt: x, on: y}", "unknown key 'on'"),
        ("{type: code, zebra: y}", "unknown key 'zebra'; it takes code, with"),
    ],
)
def test_words_of_other_tools_are_told_by_their_names_here(node: str, expected: str) -> None:
    found = check_text(f"flowengine: v1\nname: a\nnodes: {{a: {node}}}")
    assert any(str(each).endswith(expected) for each in found), found


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("state: {}", "unknown key 'state'; did you mean 'shared_state'?"),
        ("inputs: {x: {type: array, items: {}}}", "unknown key 'items'; it goes to `schema`: {schema: {items: …}}"),
        ("shared_state: {x: {initial: 1}}", "unknown key 'initial'; did you mean 'default'?"),
        ("shared_state: {x: {zebra: 1}}", "unknown key 'zebra'; it takes type, default, merge, trust"),
    ],
)
def test_an_unknown_key_is_told_with_those_that_there_are(part: str, expected: str) -> None:
    found = check_text(f"flowengine: v1\nname: a\n{part}\nnodes: {{a: {{prompt: hi}}}}")
    assert any(str(each).endswith(expected) for each in found), found


def test_a_bad_expression_deep_in_a_block_has_its_own_line_and_column() -> None:
    text = (
        "flowengine: v1\nname: deep\nnodes:\n  a:\n    prompt: |\n"
        "      One line,\n\n        and {{ 'fine' }}, then\n      the {{ inputs.n | uper }} one.\n"
    )
    [found] = [each for each in check_text(text) if each.code == "FE301"]
    assert (found.line, found.node) == (9, "a")
    assert found.column is not None
    assert text.splitlines()[8][found.column - 1 :].startswith(("inputs.n", "| uper", "uper", "{{ inputs.n"))


def test_errors_hide_warnings_that_they_could_cause() -> None:
    text = "flowengine: v1\nname: a\nshared_state: {n: {}}\nnodes: {a: {prompt: '{{ shared_state.m }}'}}"
    assert [each.code for each in check_text(text)] == ["FE304"]


def test_warnings_do_not_stop_a_flow() -> None:
    text = "flowengine: v1\nname: a\ninputs: {n: {type: string}}\nnodes: {a: {prompt: x}}"
    assert [each.severity for each in check_text(text)] == ["warning"]
    assert load_flow(text=text).name == "a"


def test_notes_are_free_wherever_keys_are_known() -> None:
    text = """
flowengine: v1
name: notes
x-owner: [me]
x-words: &words {max_tokens: 10}
inputs: {x-why: 1, n: {type: string, x-n: 2}}
nodes:
  x-common: {any: thing}
  a: {prompt: "{{ inputs.n }}", x-todo: later, improve: {x-a: 1}}
outputs: {x-o: 1, a: "{{ nodes.a.output }}"}
"""
    spec = load_flow(text=text)
    assert list(spec.nodes) == ["a"]
    assert list(spec.outputs) == ["a"]


def test_labels_may_look_like_notes() -> None:
    text = (
        "flowengine: v1\nname: a\nnodes:\n"
        "  p: {type: routing, target: t, instruction: i, routes: {x-large: {}, 'two words': {}, größe: {}}}"
    )
    node = load_flow(text=text).nodes["p"]
    assert isinstance(node, RoutingNodeSpec)
    assert list(node.routes) == ["x-large", "two words", "größe"]


def test_the_core_schema_keeps_words_as_words() -> None:
    text = (
        "flowengine: v1\nname: words\nnodes:\n"
        "  p: {type: condition, call: 'tools:pick', routes: {on: a, yes: b, no: a}}\n"
        "  a: {prompt: x, max_tokens: 010, description: 2024-01-01}\n  b: {prompt: x}\n"
    )
    found = check_text(text)
    assert [each.code for each in found] == ["FE505"]
    spec = load_flow(text=text.replace("call: 'tools:pick', routes: {on: a, yes: b, no: a}", "if: 'true', then: a"))
    node = spec.nodes["a"]
    assert isinstance(node, AgentNodeSpec)
    assert (node.max_tokens, node.description) == (10, "2024-01-01")


def test_durations_are_seconds_and_on_error_has_one_shape() -> None:
    text = (
        "flowengine: v1\nname: a\nlimits: {timeout: 2h}\nnodes:\n"
        "  a: {prompt: x, timeout: 500ms, on_error: {then: b}, retry: {initial: 1.5s, max: 10m}}\n"
        "  b: {prompt: x, on_error: skip}\n"
    )
    spec = load_flow(text=text)
    a, b = spec.nodes["a"], spec.nodes["b"]
    assert (spec.limits.timeout, a.timeout) == (7200.0, 0.5)
    assert a.retry is not None
    assert (a.retry.initial, a.retry.max) == (1.5, 600.0)
    assert ((a.on_error.action, a.on_error.then), (b.on_error.action, b.on_error.then)) == (
        ("then", "b"),
        ("skip", None),
    )


def test_many_misspelt_names_cost_no_more_than_their_number() -> None:
    lines = [f"  a{at}: {{needs: [a{at}x], prompt: x}}" for at in range(6000)]
    found = check_text("\n".join(["flowengine: v1", "name: many", "nodes:", *lines]))
    assert len(found) == 6000
    assert found[0].hint == "; did you mean 'a0'?"
    assert found[-1].hint == ""  # Each against each would be thirty-six million comparisons.


def test_a_very_long_name_does_not_make_a_very_long_message() -> None:
    name = "q" * 100_000
    text = f"flowengine: v1\nname: a\nnodes: {{a: {{needs: ['{name}'], prompt: x}}, b: {{'{name}': 1}}}}"
    assert all(len(str(each)) < 1000 for each in check_text(text))


def test_neither_path_nor_text_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(TypeError, match="a path or a text"):
        load_flow()


# --- whatever comes


def gives_a_spec_or_diagnostics(text: str) -> None:
    found = check_text(text)
    assert all(str(each) for each in found)
    if any(each.severity == "error" for each in found):
        with pytest.raises(FlowError):
            load_flow(text=text)
    else:
        assert isinstance(load_flow(text=text), FlowSpec)


@given(st.text(max_size=80))
@settings(max_examples=100, deadline=None)
def test_any_text_gives_a_spec_or_diagnostics(text: str) -> None:
    gives_a_spec_or_diagnostics(text)
    gives_a_spec_or_diagnostics("flowengine: v1\nname: a\nnodes:\n" + text)


@given(st.binary(max_size=100))
@settings(max_examples=60, deadline=None)
def test_any_bytes_give_a_spec_or_diagnostics(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    file = tmp_path_factory.mktemp("any") / "flow.yaml"
    file.write_bytes(raw)
    assert check_file(file)


VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-3, 99),
        st.floats(),
        st.sampled_from(["", "a", "b", "triage", "{{ nodes.a.output }}", "{{", "30s", "fail", "routing", "m:f", "x-a"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(
            st.sampled_from(["to", "then", "type", "routes", "agent", "x-a", "a", "set", "if", "properties"]),
            inner,
            max_size=3,
        ),
    ),
    max_leaves=6,
)


@pytest.mark.long
@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_flow_with_anything_in_place_of_a_value_gives_a_spec_or_diagnostics(data: st.DataObject) -> None:
    import json

    from flowengine.flowfile.yaml.parser import parse_yaml

    root = parse_yaml(TRIAGE).data
    for _ in range(data.draw(st.integers(1, 3))):
        at = root
        while True:
            key = data.draw(st.sampled_from(sorted(at)))
            if not isinstance(at[key], dict) or not at[key] or data.draw(st.booleans()):
                break
            at = at[key]
        at[data.draw(st.sampled_from([key, "when", "set", "agent", "new"]))] = data.draw(VALUES)
    gives_a_spec_or_diagnostics(json.dumps(root).replace("NaN", ".nan").replace("Infinity", ".inf"))


@pytest.mark.parametrize("seed", range(8))
def test_a_flow_with_broken_characters_gives_a_spec_or_diagnostics(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(15):
        text = list(TRIAGE)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(text))
            text[at : at + chance.randint(0, 3)] = chance.choice(
                ["", " ", "\n", ":", "{", "}", "'", "\t", "- ", "&a ", "*a"]
            )
        gives_a_spec_or_diagnostics("".join(text))


# --- cost


def test_loading_a_flow_to_run_it_looks_for_no_paths_of_untrusted_text(tmp_path: Path) -> None:
    flow = tmp_path / "flow.yaml"
    flow.write_text(TRIAGE)
    code = (
        f"import sys; from flowengine.flowfile.loader import load_flow; load_flow({str(flow)!r}); "
        "print([name for name in sys.modules if name.startswith('flowengine.flowfile.risks')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_checking_a_flow_loads_neither_networkx_nor_litellm(tmp_path: Path) -> None:
    flow = tmp_path / "flow.yaml"
    flow.write_text(TRIAGE)
    code = (
        f"import sys; from flowengine.flowfile.loader import check_file; assert check_file({str(flow)!r}) == []; "
        "print([name for name in ('networkx', 'litellm', 'asyncio') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
