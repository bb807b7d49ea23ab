"""What the checks let through, and what they see in a graph: rules 6 to 9 and the warnings."""

from __future__ import annotations

import time
from typing import Final

import pytest

from flowengine.errors import Diagnostic
from flowengine.flowfile.loader import check_text, load_flow


def codes(nodes: str, rest: str = "") -> list[str]:
    """The codes of a flow with these nodes."""
    return [each.code for each in check_text(f"flowengine: v1\nname: a\n{rest}\nnodes:\n{nodes}")]


CHOICE = "  p: {type: condition, if: 'true', then: x, else: y}\n  x: {prompt: x}\n  y: {prompt: y}\n"
"""Two branches that exclude each other."""


# --- rule 7


def test_branches_that_exclude_each_other_leave_result_clear() -> None:
    assert codes(CHOICE + "  z: {needs: [x, y], prompt: 'say {{ result }}'}") == []
    assert codes(CHOICE + "  z: {needs: [x, y], instructions: sum up}") == []


def test_a_router_passes_on_what_it_received_so_its_source_may_be_a_predecessor_too() -> None:
    nodes = (
        "  a: {prompt: x}\n  p: {type: condition, needs: [a], if: 'true', then: z}\n  z: {needs: [a], instructions: i}"
    )
    assert codes(nodes) == []


def test_the_last_of_ordered_predecessors_speaks() -> None:
    assert codes("  a: {prompt: x}\n  b: {needs: [a], prompt: x}\n  c: {needs: [a, b], instructions: i}") == []


def test_ambiguity_is_seen_through_routers() -> None:
    nodes = (
        "  a: {prompt: x}\n  b: {prompt: x}\n  p: {type: condition, needs: [a, b], if: 'true', then: q}\n"
        "  q: {type: condition, if: 'true', then: z}\n  z: {instructions: i}"
    )
    assert codes(nodes) == ["FE215"]


def test_ambiguity_is_seen_behind_a_transparent_node_that_comes_after_its_neighbour() -> None:
    nodes = (
        "  f: {prompt: x}\n  d: {type: condition, if: 'true'}\n  e: {type: condition, needs: [f, d], if: 'true'}\n"
        "  g: {needs: [e, f], instructions: i}"
    )
    assert codes(nodes) == ["FE215"]
    assert codes(nodes + "\n  h: {needs: [e, f], prompt: '{{ result }}'}") == ["FE215", "FE215"]
    later = "\n  s: {needs: [e], prompt: x}\n  g: {needs: [e, f, s], instructions: i}"
    assert codes(nodes.rpartition("\n")[0] + later) == []


def test_what_a_node_that_always_runs_prints_may_be_absent() -> None:
    nodes = '  a: {prompt: x}\n  b: {needs: [a], join: always, prompt: "x {{ nodes.a.OUT }}"}'
    for field in ("output", "result"):
        assert codes(nodes.replace("OUT", field)) == ["FE903"]
    for guarded in ("output | default('-')", "error", "status", "output or 'x'"):
        assert codes(nodes.replace("OUT", guarded)) == []
    assert codes(nodes.replace("OUT", "output").replace(", join: always", "")) == []


def test_a_printed_inline_if_needs_an_else() -> None:
    node, inputs = '  b: {prompt: "TEXT"}', "inputs: {topic: {type: string}}"
    for source in ("a{{ 'x' if inputs.topic }}", "{{ 'x' if inputs.topic }}", "{% if 1 %}{{ 1 if 0 }}{% endif %}"):
        assert codes(node.replace("TEXT", f"{source}{{{{ inputs.topic }}}}"), inputs) == ["FE903"]
    for source in ("{{ 'x' if inputs.topic else '' }}", "{{ ('x' if inputs.topic) | default('') }}"):
        assert codes(node.replace("TEXT", source), inputs) == []


@pytest.mark.parametrize("read", ["prev_outputs.a.txt", "prev_outputs.a.text.deep", "prev_outputs['a'].txt"])
def test_fields_that_an_output_does_not_have_are_refused_behind_prev_outputs_too(read: str) -> None:
    output = "{type: object, properties: {text: {type: string}}, required: [text], additionalProperties: false}"
    nodes = f'  a: {{prompt: x, output: {output}}}\n  b: {{needs: [a], prompt: "{{{{ READ }}}}"}}'
    assert codes(nodes.replace("READ", read)) == ["FE306"]
    assert codes(nodes.replace("READ", "prev_outputs.a.text")) == []


def test_a_mistake_beside_the_file_hides_none_of_its_graph() -> None:
    nodes = "  a: {prompt: x}\n  b: {prompt: x}\n  c: {needs: [a, b], instructions: i}"
    assert codes(nodes + "\n  f: {type: function, call: 'nowhere:f'}\n  s: {type: subflow, flow: ./gone.yaml}") == [
        "FE215",
        "FE505",
        "FE225",
    ]


def test_a_failure_and_its_success_exclude_each_other() -> None:
    nodes = (
        "  a: {prompt: x, on_error: {then: rescue}}\n  rescue: {prompt: x}\n  go_on: {needs: [a], prompt: x}\n"
        "  end: {needs: [rescue, go_on], instructions: i}"
    )
    assert codes(nodes) == []


def test_a_reference_makes_a_predecessor_too() -> None:
    nodes = "  a: {prompt: x}\n  b: {prompt: x}\n  c: {needs: [a], instructions: 'mind {{ nodes.b.output }}'}"
    assert codes(nodes) == ["FE215"]


def test_first_nodes_take_the_inputs() -> None:
    assert codes("  a: {instructions: i}\n  b: {}", "inputs: {n: {type: string}}") == []
    assert codes("  a: {type: evaluation}", "inputs: {n: {type: string}}") == []


# --- rule 8


def test_the_last_generation_of_ordered_agents_is_clear() -> None:
    nodes = "  a: {prompt: x}\n  b: {needs: [a], prompt: x}\n  j: {type: evaluation, needs: [b]}"
    assert codes(nodes) == []


def test_a_later_agent_settles_which_generation_is_the_last() -> None:
    nodes = "  a: {prompt: x}\n  b: {prompt: x}\n  c: {needs: [a, b], prompt: x}\n  j: {type: evaluation, needs: [c]}"
    assert codes(nodes) == []


def test_an_optional_later_agent_does_not_settle_it() -> None:
    nodes = (
        "  a: {prompt: x}\n  b: {prompt: x}\n  c: {needs: [a, b], when: run.id == 'x', prompt: x}\n"
        "  d: {type: condition, needs: [a, b, c], if: 'true', then: j}\n  j: {type: evaluation}"
    )
    assert codes(nodes) == ["FE216"]


def test_routings_in_branches_that_exclude_each_other_are_clear() -> None:
    nodes = CHOICE.replace("{prompt: x}", "{type: routing, target: t, instruction: i, routes: {m: {}}}").replace(
        "{prompt: y}", "{type: routing, target: t, instruction: i, routes: {m: {}}}"
    )
    assert codes(nodes + "  z: {needs: [x, y], prompt: '{{ routing_result.next_route }}'}") == []


def test_an_agent_that_improves_sets_an_evaluation() -> None:
    nodes = "  a: {prompt: x, improve: {}}\n  b: {prompt: x, evaluate: {}}\n"
    assert codes(nodes + "  c: {needs: [a, b], prompt: '{{ evaluation_result.score }}'}") == ["FE216"]


# --- rule 6


def test_ordered_writers_and_writers_that_exclude_each_other_do_not_race() -> None:
    state = "shared_state: {n: {}}"
    ordered = "  a: {prompt: x, set: {n: 1}}\n  b: {needs: [a], prompt: '{{ shared_state.n }}', set: {n: 2}}"
    assert codes(ordered, state) == []
    branches = CHOICE.replace("{prompt: x}", "{prompt: x, set: {n: 1}}").replace(
        "{prompt: y}", "{prompt: y, set: {n: 2}}"
    )
    assert codes(branches + "  z: {needs: [x, y], prompt: '{{ shared_state.n }}'}", state) == []


@pytest.mark.parametrize("merge", ["replace", "append", "union", "sum", "max", "min", "update"])
def test_a_merge_rule_lets_unordered_writers_write(merge: str) -> None:
    one, two = {"append": ("[1]", "[2]"), "union": ("[1]", "[2]"), "update": ("{a: 1}", "{b: 2}")}.get(merge, "12")
    nodes = f"  a: {{prompt: x, set: {{n: {one}}}}}\n  b: {{prompt: x, set: {{n: {two}}}}}"
    nodes += "\noutputs: {n: '{{ shared_state.n }}'}"
    assert codes(nodes, f"shared_state: {{n: {{merge: {merge}}}}}") == []


# --- names


def test_everything_that_rule_nine_names_is_visible() -> None:
    nodes = """
  a: {prompt: "{{ inputs.n }} {{ run.id }}", output: {properties: {n: {type: integer}}}}
  b:
    needs: [a]
    prompt: >-
      {{ nodes.a.output.n }} {{ nodes.a.result.content.n }} {{ nodes.a.status }} {{ nodes.a.error }} {{ result }}
      {{ prev_outputs.a.n }} {{ shared_state.k }} {{ shared_state._last_prompt }}
    set: {k: "{{ output }}"}
  c: {type: evaluation, needs: [b]}
  d: {needs: [c], prompt: "{{ evaluation_result.criteria_scores.any }} {{ evaluation_result.score }}"}
outputs:
  all: ["{{ nodes.d.output }}", {deep: "{{ inputs.n }}"}, 3]
"""
    assert codes(nodes, "inputs: {n: {type: string}}\nshared_state: {k: {}}") == []


def test_names_of_a_template_itself_are_its_own() -> None:
    assert (
        codes(
            "  a: {prompt: '{% for x in inputs.n %}{{ x.y }}{{ loop.index }}{% endfor %}'}",
            "inputs: {n: {type: array}}",
        )
        == []
    )


def test_the_templates_of_a_shared_agent_make_edges_for_each_node_that_names_it() -> None:
    from flowengine.flowfile.analysis.references import edges_of

    text = (
        "flowengine: v1\nname: a\nagents: {w: {instructions: 'mind {{ nodes.a.output }}'}}\nnodes:\n"
        "  a: {prompt: x}\n  b: {agent: w, prompt: x}\n  c: {agent: w, prompt: x}\n"
        "  d: {agent: w, instructions: own, prompt: x}\n"
    )
    assert [(edge.source, edge.target) for edge in edges_of(load_flow(text=text))] == [("a", "b"), ("a", "c")]


# --- warnings


def test_a_target_that_is_reached_again_through_a_route_is_no_warning() -> None:
    nodes = (
        "  p: {type: condition, if: 'true', then: long, else: publish}\n  long: {prompt: x}\n"
        "  q: {type: condition, needs: [long], if: 'true', then: publish}\n  publish: {prompt: x}"
    )
    assert codes(nodes) == []


def test_a_value_that_is_tested_before_is_no_warning() -> None:
    maybe = "  a: {prompt: x, when: run.id == 'x'}\n"
    assert codes(maybe + "  b: {when: nodes.a.output, prompt: '{{ nodes.a.output }}'}") == []
    assert codes(maybe + "  b: {prompt: '{% if nodes.a.output %}{{ nodes.a.output }}{% endif %}'}") == []
    assert codes(maybe + "  b: {prompt: '{{ nodes.a.output | default(1) }}'}") == []
    assert codes(maybe + "  b: {needs: [a], prompt: '{{ nodes.a.output }}'}") == []
    assert codes(maybe + "  c: {prompt: x}\n  b: {needs: [c], prompt: '{{ nodes.a.output }}'}") == ["FE903"]


def test_a_meeting_point_of_all_branches_is_never_absent() -> None:
    assert codes(CHOICE + "  z: {needs: [x, y], prompt: z}\noutputs: {o: '{{ nodes.z.output }}'}") == []


def test_flows_with_code_are_not_told_what_nobody_reads() -> None:
    nodes = "  a: {type: function, call: 'math:sqrt'}"
    found = codes(nodes, "inputs: {n: {type: string}}\nshared_state: {k: {}}")
    assert not {"FE904", "FE905"} & set(found)


# --- cost


def _many_choices(size: int) -> str:
    lines = ["flowengine: v1", "name: many", "shared_state: {n: {}}", "nodes:"]
    for at in range(size // 3):
        before = f"needs: [x{at - 1}, y{at - 1}], " if at else ""
        lines.append(f"  r{at}: {{type: condition, {before}if: 'true', then: x{at}, else: y{at}}}")
        lines += [f"  {each}{at}: {{instructions: go, prompt: p, set: {{n: 1}}}}" for each in "xy"]
    return "\n".join([*lines, "outputs: {n: '{{ shared_state.n }} {{ shared_state._last_generation }}'}"])


@pytest.mark.long
def test_a_thousand_nodes_with_routes_and_writers_cost_no_more_than_their_number() -> None:
    def cost(size: int) -> float:
        text = _many_choices(size)
        started = time.process_time()
        assert check_text(text) == []
        return time.process_time() - started

    cost(90)
    small, large = min(cost(300) for _ in range(3)), min(cost(1200) for _ in range(3))
    assert large < 10 * small  # Four times the nodes: quadratic would be sixteen times the cost.


def test_names_that_change_no_edge_hide_neither_ambiguous_results_nor_unordered_writers() -> None:
    text = (
        "flowengine: v1\nname: f\nshared_state: {n: {}}\ninputs: {i: {}}\nnodes:\n"
        "  a: {prompt: '{{ inputs.j }}', set: {n: 1}}\n"
        "  b: {prompt: '{{ env.X }}', set: {n: 2}}\n"
        "  c: {needs: [a, b], instructions: '{{ shared_state.m }}'}\n"
    ).replace("{i: {}}", "{i: {type: string}}")
    assert [each.code for each in check_text(text)] == ["FE303", "FE307", "FE217", "FE215", "FE304"]


def test_a_name_that_hides_an_edge_brings_no_mistakes_that_follow_from_it() -> None:
    nodes = "  a: {prompt: x}\n  b: {prompt: '{{ nodes.aa.output }}'}\n  c: {needs: [a, b]}\n"
    text = f"flowengine: v1\nname: f\nnodes:\n{nodes}"
    assert [each.code for each in check_text(text)] == ["FE305"]


def test_outputs_that_read_nodes_without_an_id_are_told() -> None:
    text = """
        flowengine: v1
        name: f
        nodes: {a: {prompt: Hi}}
        outputs: {all: "{{ nodes *a }}"}
    """
    assert "FE308" in [each.code for each in check_text(text)]


@pytest.mark.parametrize(
    ("declared", "value", "told"),
    [
        ("{type: integer}", "'1'", "takes integer values, found str '1'"),
        ("{type: boolean}", "1", "takes boolean values, found int 1"),
        ("{type: array, merge: append}", "x", "takes array values (merge: append takes contributions), found str 'x'"),
        ("{type: string, merge: max}", "[3]", "takes string values (merge: max takes contributions), found list [3]"),
        ("{type: integer}", "null", ""),
        ("{type: integer}", "'{{ 1 }}'", ""),
        ("{type: object, merge: update}", "{a: '{{ 1 }}'}", ""),
        ("{}", "x", ""),
        ("{type: array, merge: appnd}", "x", ""),
    ],
)
def test_a_plain_value_that_set_writes_is_of_the_declared_type(declared: str, value: str, told: str) -> None:
    text = (
        f"flowengine: v1\nname: a\nshared_state: {{k: {declared}}}\nnodes: {{a: {{prompt: x, set: {{k: {value}}}}}}}\n"
    )
    found = [each for each in check_text(text) if each.code == "FE407"]
    assert [each.message for each in found] == ([f"shared state key 'k' {told}"] if told else [])
    assert all(text.splitlines()[3][(each.column or 0) - 1 :].startswith(value) for each in found)


@pytest.mark.parametrize(
    ("switch", "routes", "told"),
    [
        ("inputs.ok", "{'yes': {}, 'no': {}}", ["FE402", "FE402"]),
        ("inputs.ok", "{'yes': {}, 'no': {}}, else: {}", ["FE909", "FE909"]),
        ("inputs.ok", "{'true': {}, 'false': {}}", []),
        ("inputs.ok", "{'true': {}}", []),
        ("inputs.kind", "{' a ': {}, b: {}}", []),
        ("inputs.kind", "{a: {}, c: {}}", ["FE909"]),
        ("inputs.level", "{'1': {}, '2': {}}", []),
        ("nodes.judge.output.sure", "{'yes': {}}", ["FE402"]),
        ("inputs.ok and inputs.kind", "{'yes': {}}", []),
        ("inputs.other", "{'yes': {}}", []),
        ("nodes.judge.output.why", "{'yes': {}}", []),
    ],
)
def test_labels_that_a_switch_can_never_give_are_told(switch: str, routes: str, told: list[str]) -> None:
    text = f"""
inputs: {{ok: {{type: boolean}}, kind: {{type: string, enum: [a, b]}}, level: {{schema: {{enum: [1, 2]}}}},
  other: {{type: string}}}}
nodes:
  judge: {{prompt: x, output: {{type: object, properties: {{sure: {{type: boolean}}, why: {{type: string}}}}}}}}
  c: {{type: condition, switch: {switch}, routes: {routes}}}
"""
    found = check_text(f"flowengine: v1\nname: a{text}")
    assert [each.code for each in found if each.code not in ("FE905",)] == told


@pytest.mark.parametrize(
    "declared",
    [
        "{type: integer, enum: [1.0, 2]}",
        "{type: integer, enum: ['1'], default: null}",
        "{type: number, enum: [1, 2.5]}",
        "{type: string, enum: [a, null], default: null}",
        "{schema: {$schema: 'http://json-schema.org/draft-07/schema#', type: array, items: [{type: string}]}}",
        "{schema: {$schema: 'http://json-schema.org/draft-04/schema#', minimum: 1, exclusiveMinimum: true}}",
        "{type: file, default: 'https://example.com/scan.png'}",
        "{type: file, default: 'data:text/plain;base64,aGk='}",
    ],
)
def test_no_error_is_told_of_an_input_that_can_be_given_or_left_out(declared: str) -> None:
    found = check_text(f"flowengine: v1\nname: a\ninputs: {{n: {declared}}}\nnodes: {{a: {{prompt: x}}}}\n")
    assert [each for each in found if each.severity == "error" or each.code == "FE910"] == []


_CHOICES: Final = """\
  r: {type: routing, instruction: x, target: x, routes: {tea: {}, coffee: {}}, fallback: tea}
  c: {type: condition, cases: [{if: 'true', label: big}]}
  p: {type: approval, message: x, routes: {'yes': {}, 'no': {}}}
  s: {prompt: x, output: {type: object, properties: {kind: {enum: [a, b]}, free: {}}}}
"""


@pytest.mark.parametrize(
    ("test", "told"),
    [
        ("nodes.s.status == 'success'", "; did you mean 'succeeded'?"),
        ("'coffe' != nodes.r.output.next_route", "; did you mean 'coffee'?"),
        ("nodes.c.output in ['big', 'bigg']", "; did you mean 'big'?"),
        ("nodes.p.output.choice == 'yess'", "; did you mean 'yes'?"),
        ("nodes.s.output.kind == 'c' or inputs.mode == 'fast'", ""),
        ("inputs.mode == 'fats'", "; did you mean 'fast'?"),
    ],
)
def test_a_text_that_a_value_never_is_is_told(test: str, told: str) -> None:
    [found] = _compared(test)
    assert (found.code, found.severity, found.hint) == ("FE909", "warning", told)


@pytest.mark.parametrize(
    "test",
    [
        "nodes.s.status in ['failed', 'skipped'] and nodes.s.output.free == 'x'",
        "nodes.r.output.next_route | default('') == '' or nodes.r.output.next_route == 'fallback'",
        "nodes.c.output == 'else' or nodes.c.output != 'big'",
        "inputs.mode[:2] == 'fa' or inputs.mode | upper == 'FAST' or 'fa' in inputs.mode or inputs.mode != ''",
        "{'fast': 'quick'}[inputs.mode] == 'quick' or inputs.get('mode') == 'fa' or inputs.mode ~ 'x' == 'y'",
    ],
)
def test_nothing_is_told_of_a_text_that_a_value_can_be(test: str) -> None:
    assert _compared(test) == []


def _compared(test: str) -> list[Diagnostic]:
    text = f"flowengine: v1\nname: compared\ninputs: {{mode: {{type: string, enum: [fast, slow]}}}}\nnodes:\n{_CHOICES}"
    return check_text(f'{text}  t: {{prompt: "{{{{ inputs.mode }}}}", when: "{test}"}}\n')
