"""Maps, loops and approvals as the checks see them: levels, their edges, and the names that each knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowengine import Flow
from flowengine.engine.graph import Edge
from flowengine.flowfile.analysis.flow_nodes import home_of, labels_of, level_of, levels_of
from flowengine.flowfile.analysis.references import edges_of
from flowengine.flowfile.kinds.approval_kind import ApprovalNodeSpec
from flowengine.flowfile.kinds.loop_kind import LoopNodeSpec
from flowengine.flowfile.kinds.map_kind import MapNodeSpec
from flowengine.flowfile.loader import check_text, load_flow
from flowengine.flowfile.schema.flow_file import FlowSpec
from tests.support.polish_loop import POLISH_LOOP

POLISH = (
    """\
flowengine: v1
name: draft_until_good
inputs:
  topic: {type: string}
nodes:
  draft:
    instructions: Write 200 clear words about the topic.
    prompt: "{{ inputs.topic }}"
"""
    + POLISH_LOOP
    + """\
outputs:
  text: "{{ nodes.polish.output.text }}"
  rounds: "{{ nodes.polish.output.iterations }}"
limits: {model_calls: 20}
"""
)

RESEARCH = """\
flowengine: v1
name: parallel_research
inputs:
  question: {type: string}
limits: {concurrency: 8, cost_usd: 2.0, timeout: 10m}
nodes:
  plan:
    prompt: "Split into at most five research questions: {{ inputs.question }}"
    output:
      type: object
      properties:
        questions:
          type: array
          items: {type: object, properties: {text: {type: string}, weight: {type: number}}}
      required: [questions]
  style: {prompt: How to write?}
  investigate:
    type: map
    over: nodes.plan.output.questions
    as: question
    concurrency: 4
    on_item_error: skip
    limits: {cost_usd: 1, on_limit: partial}
    nodes:
      search: {prompt: "{{ question.text }} {{ nodes.style.output }}"}
      summarise:
        cache: true
        prompt: "Question {{ each.index + 1 }} of {{ each.total }}: {{ nodes.search.output }}"
    result: {text: "{{ nodes.summarise.output }}", weight: "{{ question.weight }}"}
  write:
    prompt: |
      {% for note in nodes.investigate.output %}- {{ note.text }}
      {% endfor %}
outputs:
  report: "{{ nodes.write.output }}"
"""


def spec_of(text: str) -> FlowSpec:
    assert [str(each) for each in check_text(text)] == []
    return load_flow(text=text)


def found(text: str) -> list[str]:
    return [f"{each.line}:{each.column} {each.code} {each.message}{each.hint}" for each in check_text(text)]


def codes(nodes: str, rest: str = "") -> list[str]:
    """The codes of a flow with these nodes, whose calls are limited."""
    limits = "limits: {model_calls: 99}"
    return [each.code for each in check_text(f"flowengine: v1\nname: a\n{rest}\nnodes:\n{nodes}\n{limits}\n")]


# --- models


def test_a_loop_says_what_it_repeats() -> None:
    polish = spec_of(POLISH).nodes["polish"]
    assert isinstance(polish, LoopNodeSpec)
    assert (polish.max_iterations, polish.on_exhausted, polish.timeout, polish.cache) == (4, "continue", None, False)
    assert list(polish.nodes) == ["judge", "improve"]


def test_a_map_says_what_it_goes_over() -> None:
    investigate = spec_of(RESEARCH).nodes["investigate"]
    assert isinstance(investigate, MapNodeSpec)
    assert (investigate.as_, investigate.concurrency, investigate.on_item_error) == ("question", 4, "skip")
    assert investigate.limits is not None
    assert (investigate.limits.cost_usd, investigate.limits.on_limit) == (1.0, "partial")


def test_an_approval_says_what_can_be_chosen() -> None:
    text = """\
flowengine: v1
name: a
nodes:
  ask:
    type: approval
    message: Publish?
    form: {type: object, properties: {note: {type: string}}}
    routes: {yes: go, later: {to: wait, description: not today}, no: {}}
    expires: 2h
    on_expire: no
  go: {prompt: "{{ nodes.ask.output.by }} {{ nodes.ask.output.form.note }}"}
  wait: {prompt: "{{ nodes.ask.output.comment }}"}
"""
    ask = spec_of(text).nodes["ask"]
    assert isinstance(ask, ApprovalNodeSpec)
    assert (ask.expires, ask.on_expire) == (7200.0, "no")
    assert labels_of(spec_of(text), "ask") == {"yes", "later", "no"}
    assert ("ask", "wait", "later") in edges_of(spec_of(text))
    assert (
        "FE306 the output of 'ask' has no field 'remark'" in found(text.replace("output.comment", "output.remark"))[0]
    )


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("{type: loop, nodes: {a: {prompt: x}}}", "FE202 the key 'max_iterations' is missing"),
        ("{type: loop, max_iterations: 0, nodes: {a: {prompt: x}}}", "FE403 expected at least 1"),
        ("{type: loop, max_iterations: 10001, nodes: {a: {prompt: x}}}", "FE403 expected at most 10000"),
        ("{type: loop, max_iterations: 2}", "FE202 the key 'nodes' is missing"),
        ("{type: loop, max_iterations: 2, nodes: {}}", "FE208 there is nothing to run in it"),
        (
            "{type: loop, max_iterations: 2, retry: {}, nodes: {a: {prompt: x}}}",
            "FE201 'loop' takes no 'retry'; put it",
        ),
        ("{type: loop, max_iterations: 2, over: x, nodes: {a: {prompt: x}}}", "FE201 unknown key 'over'"),
        ("{type: map, nodes: {a: {}}}", "FE202 the key 'over' is missing"),
        ("{type: map, over: '[1]', as: my-item, nodes: {a: {}}}", "FE206 'my-item' is not a valid name"),
        ("{type: map, over: '[1]', result: , nodes: {a: {}}}", "FE408 the key has no value"),
        (
            "{type: map, over: '[1]', on_item_error: ignore, nodes: {a: {}}}",
            "FE402 expected 'fail', 'collect' or 'skip'",
        ),
        ("{type: subflow}", "FE202 the key 'flow' is missing"),
        ("{type: subflow, flow: a.yaml, retry: {}}", "FE201 'subflow' takes no 'retry'"),
        ("{type: approval, message: m, routes: {}}", "FE214 there is nothing to choose from"),
        ("{type: approval, message: m}", "FE202 the key 'routes' is missing"),
        ("{type: approval, message: m, routes: {y: {}}, expires: 1h}", "FE202 'expires' goes with 'on_expire'"),
        ("{type: approval, message: m, routes: {y: {}}, on_expire: y}", "FE202 'on_expire' goes with 'expires'"),
        ("{type: approval, message: m, routes: {y: {}}, timeout: 1h}", "FE201 'approval' takes no 'timeout'; how long"),
        ("{type: approval, message: m, routes: {y: {}}, form: {type: objct}}", "FE406 unknown JSON type 'objct'"),
        ("{prompt: x, effect: external, cache: true}", "FE209 what has an external effect is done once"),
        ("{prompt: x, effect: external, retry: {}}", "FE209 what has an external effect is done once"),
        ("{prompt: x, effect: outside}", "FE402 expected 'none', 'idempotent' or 'external'"),
        ("{prompt: x, limits: {cost_usd: 0}}", "FE403 expected more than 0"),
        ("{prompt: x, limits: {concurrency: 2}}", "FE201 unknown key 'concurrency'"),
    ],
)
def test_what_does_not_fit_is_told_at_its_place(node: str, expected: str) -> None:
    text = f"flowengine: v1\nname: a\nnodes:\n  n: {node}\n"
    assert any(expected in each for each in found(text)), found(text)
    inside = (
        f"flowengine: v1\nname: a\nnodes:\n  l:\n    type: loop\n    max_iterations: 2\n    nodes:\n      n: {node}\n"
    )
    [line] = [each for each in check_text(inside) if expected in f"{each.code} {each.message}{each.hint}"]
    assert (line.line, line.node) == (8, "l.n")


def test_a_misspelt_key_of_a_nested_node_is_told_with_the_nearest_of_its_kind() -> None:
    text = POLISH.replace("threshold: 0.8", "threshhold: 0.8").replace("until:", "untill:")
    assert found(text) == [
        "13:5 FE201 unknown key 'untill'; did you mean 'until'?",
        "22:9 FE201 unknown key 'threshhold'; did you mean 'threshold'?",
    ]


def test_positions_reach_into_bodies() -> None:
    spec = spec_of(POLISH)
    assert spec.position(("nodes", "polish", "nodes", "judge", "threshold")) == (22, 20)
    assert spec.position(("nodes", "polish", "until")) == (13, 12)
    assert spec.position("nodes.polish.nodes.improve.when") == (25, 15)


# --- levels and edges


def test_a_level_is_known_by_the_containers_round_it() -> None:
    spec = spec_of(POLISH)
    assert list(levels_of(spec)) == [(), ("polish",)]
    assert list(level_of(spec, ("polish",))) == ["judge", "improve"]
    assert home_of(spec, ("polish",), "judge") == ("polish",)
    assert home_of(spec, ("polish",), "draft") == ()
    assert home_of(spec, (), "judge") is None


def test_each_level_has_its_own_edges() -> None:
    assert edges_of(spec_of(POLISH)) == [Edge("draft", "polish")]
    assert edges_of(spec_of(POLISH), ("polish",)) == [Edge("judge", "improve", "fail"), Edge("judge", "improve")]


def test_what_a_body_reads_outside_makes_an_edge_to_its_container() -> None:
    edges = edges_of(spec_of(RESEARCH))
    assert set(edges) == {Edge("plan", "investigate"), Edge("style", "investigate"), Edge("investigate", "write")}


def test_an_edge_is_made_on_the_level_of_the_node_that_is_read() -> None:
    text = """\
flowengine: v1
name: a
nodes:
  far: {prompt: x}
  outer:
    type: loop
    max_iterations: 2
    until: nodes.far.output == nodes.near.output
    nodes:
      near: {prompt: x}
      inner:
        type: map
        over: "[1]"
        nodes:
          reader: {prompt: "{{ nodes.near.output }} {{ nodes.far.output }}"}
limits: {model_calls: 20}
"""
    spec = spec_of(text)
    assert edges_of(spec) == [Edge("far", "outer")]
    assert edges_of(spec, ("outer",)) == [Edge("near", "inner")]
    assert edges_of(spec, ("outer", "inner")) == []


def test_a_shared_agent_makes_edges_on_the_level_of_each_node_that_names_it() -> None:
    text = """\
flowengine: v1
name: a
agents: {writer: {instructions: "Mind {{ nodes.notes.output }}"}}
nodes:
  notes: {prompt: x}
  one: {agent: writer, prompt: x}
  all: {type: map, over: "[1]", nodes: {two: {agent: writer}}}
"""
    assert edges_of(spec_of(text)) == [Edge("notes", "one"), Edge("notes", "all")]


def test_a_body_that_reads_its_own_container_is_told_so() -> None:
    text = POLISH.replace("Remarks: {{ nodes.judge.output.feedback }}", "Remarks: {{ nodes.polish.output.text }}")
    assert found(text) == ["27:23 FE211 this is part of 'polish', whose own output is not there yet"]
    text = POLISH.replace("until: nodes.judge.output.passed", "until: nodes.polish.output.exhausted")
    assert found(text) == ["13:12 FE211 this is part of 'polish', whose own output is not there yet"]


def test_cycles_are_seen_through_bodies() -> None:
    text = RESEARCH.replace("How to write?", "'{{ nodes.write.output }}'")
    assert found(text) == ["16:23 FE210 the nodes form a cycle: style → investigate → write → style"]
    text = POLISH.replace('"{{ round.text }}"', '"{{ nodes.improve.output }}"')
    assert [each.split(" ")[1] for each in found(text)] == ["FE210"]


# --- names


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("{{ question.text }}", "{{ question.txt }}", "FE306 `question` has no field 'txt'; did you mean 'text'?"),
        ("{{ question.text }}", "{{ item }}", "FE309 'item' is not visible here: the item is called 'question'"),
        ("{{ question.text }}", "{{ each.idx }}", "FE306 `each` has no field 'idx'; did you mean 'index'?"),
        (
            "{{ question.text }}",
            "{{ round.index }}",
            "FE309 'round' is not visible here: only the nodes of a loop see it",
        ),
        ("{{ question.text }}", "{{ questoin }}", "FE302 unknown name 'questoin'; did you mean 'question'?"),
        ("{{ note.text }}", "{{ question }}", "FE309 'question' is not visible here: only the nodes of 'investigate'"),
        (
            "{{ note.text }}",
            "{{ nodes.search.output }}",
            "FE305 'search' is inside 'investigate'; what a body gives is",
        ),
        ("{{ nodes.style.output }}", "{{ nodes.stile.output }}", "FE305 unknown node 'stile'; did you mean 'style'?"),
        ('weight: "{{ question.weight }}"', 'weight: "{{ result }}"', "FE309 'result' is not visible here: what comes"),
        ('weight: "{{ question.weight }}"', 'weight: "{{ output }}"', "FE309 'output' is not visible here: only `set`"),
        ("{{ note.text }}", "{{ nodes.investigate.output.text }}", "is a list, it has no field 'text'"),
    ],
)
def test_names_are_checked_where_they_are_read(old: str, new: str, expected: str) -> None:
    told = found(RESEARCH.replace(old, new))
    assert any(expected in each for each in told), told


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("{{ round.text }}\n", "{{ round.txt }}\n", "FE306 `round` has no field 'txt'; did you mean 'text'?"),
        ("nodes.judge.output.passed", "nodes.judge.output.pass", "FE306 the output of 'judge' has no field 'pass'"),
        ("nodes.judge.output.passed", "round.text.good or nodes.judge.output.passed", None),
        ("nodes.polish.output.text", "nodes.polish.output.txt", "FE306 the output of 'polish' has no field 'txt'"),
        (
            "nodes.polish.output.text",
            "round.text",
            "FE309 'round' is not visible here: only the nodes of a loop see it",
        ),
        ("when: not round.last", "when: not round.lst", "FE306 `round` has no field 'lst'; did you mean 'last'?"),
        ("{{ nodes.draft.output }}", "{{ round.index }}", "FE309 'round' is not visible here"),
    ],
)
def test_variables_of_rounds_are_checked(old: str, new: str, expected: str | None) -> None:
    told = found(POLISH.replace(old, new))
    assert (told == []) if expected is None else any(expected in each for each in told), told


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ("result: {text: '{{ nodes.a.output.n }}'}", "FE306 `item` has no field 'n'"),
        ("result: '{{ nodes.a.output }}'", None),
        ("result: '{{ nodes.a.output.n }}'", "FE306 `item` is a number, it has no field 'n'"),
        ("result: '{{ nodes.a.output | default(1) }}'", None),
        ("result: 'x {{ nodes.a.output.n }}'", None),
        ("timeout: 3s", None),
        ("on_item_error: collect, result: {text: x}", None),
        ("result: '{{ item }}'", None),
    ],
)
def test_what_a_map_gives_is_known_to_the_next_map(result: str, expected: str | None) -> None:
    text = f"""\
flowengine: v1
name: a
nodes:
  one: {{type: map, over: "[1]", {result}, nodes: {{a: {{output: {{properties: {{n: {{type: number}}}}}}}}}}}}
  two: {{type: map, over: nodes.one.output, nodes: {{b: {{prompt: "{{{{ item.n }}}}"}}}}}}
"""
    told = found(text)
    assert told == [] if expected is None else any(expected in each for each in told), told


def test_maps_that_go_over_each_other_are_a_cycle_and_nothing_worse() -> None:
    nodes = (
        "  one: {type: map, over: nodes.two.output, result: '{{ item }}', nodes: {a: {prompt: '{{ item.x }}'}}}\n"
        "  two: {type: map, over: nodes.one.output, result: '{{ item }}', nodes: {b: {prompt: '{{ item.x }}'}}}\n"
    )
    assert codes(nodes) == ["FE210"]


def test_a_shared_agents_texts_are_checked_on_every_level_that_uses_them() -> None:
    text = """\
flowengine: v1
name: a
agents: {writer: {instructions: "Mind {{ item }}"}}
nodes:
  all: {type: map, over: "[1]", nodes: {two: {agent: writer}}}
"""
    assert found(text) == []
    assert found(text + "  one: {agent: writer, prompt: x}\n") == [
        "3:42 FE309 'item' is not visible here: only the nodes of a map see it"
    ]


def test_an_inner_loop_sees_its_own_rounds_alone() -> None:
    text = """\
flowengine: v1
name: a
nodes:
  outer:
    type: loop
    max_iterations: 2
    initial: {a: 1}
    nodes:
      inner:
        type: loop
        max_iterations: 2
        initial: {b: "{{ round.a }}"}
        nodes:
          n: {prompt: "{{ round.b }} {{ round.a }}"}
"""
    assert found(text) == ["14:41 FE306 `round` has no field 'a'"]


def test_set_in_a_body_sees_output_and_the_item() -> None:
    nodes = "  m: {type: map, over: '[1]', nodes: {a: {set: {k: ['{{ output }} {{ item }} {{ each.index }}']}}}}"
    assert codes(nodes + "\noutputs: {k: '{{ shared_state.k }}'}", "shared_state: {k: {merge: append}}") == []


# --- results, the engine's values and state


def test_the_first_nodes_of_a_map_take_the_item() -> None:
    assert codes("  m: {type: map, over: '[1]', nodes: {a: {}, b: {needs: [a]}}}") == []
    assert codes("  m: {type: map, over: '[1]', nodes: {a: {type: evaluation}}}") == []


def test_the_first_nodes_of_a_loop_need_a_prompt_also_behind_routers() -> None:
    head = "  l: {type: loop, max_iterations: 2, nodes: {"
    assert codes(head + "c: {type: condition, if: 'true', then: a}, a: {instructions: i}}}") == ["FE219"]
    assert codes(head + "a: {prompt: x}, b: {needs: [a], instructions: i}}}") == []
    assert codes(head + "a: {type: evaluation}}}") == ["FE219"]
    assert codes("  d: {prompt: x}\n" + head + "a: {type: evaluation, needs: []}}, needs: [d]}") == []


def test_result_is_ambiguous_inside_a_body_as_well() -> None:
    nodes = "  m: {type: map, over: '[1]', nodes: {a: {}, b: {}, c: {needs: [a, b], instructions: i}}}"
    assert codes(nodes) == ["FE215"]


def test_the_last_generation_outside_is_what_a_body_falls_back_to() -> None:
    two = "  a: {prompt: x}\n  b: {prompt: x}\n"
    judge = "  l: {type: loop, needs: [a, b], max_iterations: 2, nodes: {j: {type: evaluation}}}"
    assert codes(two + judge) == ["FE216"]
    covered = "c: {prompt: x}, j: {type: evaluation, needs: [c]}"
    assert codes(two + judge.replace("j: {type: evaluation}", covered)) == []
    uncertain = (
        "c: {prompt: x, when: round.last}, d: {type: condition, needs: [c], if: 'true', join: always, then: j}, "
    )
    assert codes(two + judge.replace("j: {", uncertain + "j: {")) == ["FE216"]


def test_what_a_loops_last_round_set_is_seen_after_it_and_of_a_map_nothing() -> None:
    loop = "  l: {type: loop, max_iterations: 2, nodes: {a: {prompt: x}}}\n"
    assert codes(loop + "  b: {prompt: x}\n  j: {type: evaluation, needs: [l, b]}") == ["FE216"]
    every = loop.replace("type: loop, max_iterations: 2", "type: map, over: '[1]'")
    assert codes(every + "  b: {prompt: x}\n  j: {type: evaluation, needs: [l, b]}") == []


def test_items_need_a_merge_rule_and_rounds_do_not() -> None:
    body = "nodes: {a: {prompt: x, set: {n: 1}}}}\noutputs: {n: '{{ shared_state.n }}'}"
    state = "shared_state: {n: {}}"
    assert codes("  m: {type: map, over: '[1]', " + body, state) == ["FE217"]
    assert codes("  m: {type: map, over: '[1]', " + body, "shared_state: {n: {merge: max}}") == []
    assert codes("  m: {type: loop, max_iterations: 2, " + body, state) == []


def test_items_that_write_are_told_once_however_deep() -> None:
    nodes = (
        "  m: {type: map, over: '[[1]]', as: row, nodes: {n: {type: map, over: row, nodes: {l: {type: loop, "
        "max_iterations: 2, nodes: {a: {prompt: x, set: {k: 1}}}}}}}}\noutputs: {k: '{{ shared_state.k }}'}"
    )
    text = f"flowengine: v1\nname: a\nshared_state: {{k: {{}}}}\nnodes:\n{nodes}"
    [told] = found(text)
    assert "FE217 every item of 'n' writes 'k', and items come in no order" in told


def test_bodies_without_an_order_race() -> None:
    nodes = (
        "  one: {type: loop, max_iterations: 2, nodes: {a: {prompt: x, set: {n: 1}}}}\n"
        "  two: {type: loop, max_iterations: 2, nodes: {b: {prompt: x, set: {n: 1}}}}\n"
        "outputs: {n: '{{ shared_state.n }}'}\nlimits: {model_calls: 9}"
    )
    text = f"flowengine: v1\nname: a\nshared_state: {{n: {{}}}}\nnodes:\n{nodes}"
    [told] = found(text)
    assert told.startswith("6:69 FE217 'one' writes 'n' too, and neither node comes before the other")
    assert found(text.replace("two: {", "two: {needs: [one], ")) == []


# --- warnings


def test_carry_counts_on_what_until_depends_on() -> None:
    assert found(POLISH) == []
    told = found(POLISH.replace("until: nodes.judge.output.passed", "until: round.index > 1"))
    assert told == [
        "14:23 FE903 'improve' may be skipped, and then it has no output to print; add `| default(…)`",
    ]


def test_what_until_and_results_print_may_be_absent() -> None:
    nodes = "  m: {type: map, over: '[1]', result: '{{ nodes.a.output }}', nodes: {a: {when: each.index > 0}}}"
    assert codes(nodes) == ["FE903"]
    assert codes(nodes.replace("a.output }}", "a.output | default(0) }}")) == []


def test_an_outer_value_that_may_be_absent_is_seen_from_inside() -> None:
    nodes = (
        "  a: {prompt: x, when: run.id == 'x'}\n  b: {prompt: x}\n"
        "  m: {type: map, needs: [b], over: '[1]', nodes: {c: {prompt: 'x {{ nodes.a.output }}'}}}"
    )
    assert codes(nodes) == ["FE903"]
    assert codes(nodes.replace("c: {", "c: {when: nodes.a.output, ")) == []
    assert codes(nodes.replace("needs: [b], over", "needs: [b], when: nodes.a.status == 'succeeded', over")) == []


@pytest.mark.parametrize(
    ("until", "expected"),
    [
        ("nodes.a.output == 'good'", []),
        ("round.index > 1", []),
        ("round.n > 1", []),
        ("round.same > 1", ["FE907"]),
        ("round.kept > 1", ["FE907"]),
        ("shared_state.k > 1", []),
        ("shared_state.other > 1", ["FE907"]),
        ("shared_state._last_generation == 'x'", []),
        ("evaluation_result.passed", []),
        ("prev_outputs.a == 'good'", []),
        ("inputs.n > 1", ["FE907"]),
        ("run.id == 'x'", ["FE907"]),
        ("'false'", ["FE907"]),
        ("inputs.n > round.index", []),
    ],
)
def test_until_must_read_something_that_changes(until: str, expected: list[str]) -> None:
    text = f"""\
flowengine: v1
name: a
inputs: {{n: {{type: integer}}}}
shared_state: {{k: {{default: 0}}, other: {{default: 0}}}}
nodes:
  l:
    type: loop
    max_iterations: 3
    until: {until}
    initial: {{n: 0, same: 0, kept: 0}}
    carry: {{n: "{{{{ round.n + 1 }}}}", same: "{{{{ round.same }}}}"}}
    nodes: {{a: {{prompt: "{{{{ inputs.n }}}}", set: {{k: 1}}}}}}
outputs: {{all: ["{{{{ shared_state.k }}}}", "{{{{ shared_state.other }}}}"]}}
limits: {{model_calls: 20}}
"""
    assert [each.code for each in check_text(text)] == expected


def test_a_loop_without_until_has_a_fixed_number_of_rounds() -> None:
    assert codes("  l: {type: loop, max_iterations: 2, nodes: {a: {prompt: x}}}") == []


def test_dead_nodes_and_siblings_are_seen_inside() -> None:
    body = (
        "p: {type: condition, if: 'true', then: x, else: y}, x: {prompt: x}, y: {prompt: y}, "
        "z: {needs: [x, y], join: all, prompt: x}"
    )
    assert codes("  l: {type: loop, max_iterations: 2, nodes: {" + body + "}}") == ["FE902"]
    body = "p: {type: condition, if: 'true', then: x, else: y}, x: {prompt: x}, y: {needs: [x], prompt: y}"
    assert codes("  l: {type: loop, max_iterations: 2, nodes: {" + body + "}}") == ["FE901"]


def test_what_a_body_reads_counts_as_read() -> None:
    nodes = "  m: {type: map, over: inputs.n, nodes: {a: {agent: w, prompt: '{{ shared_state.k }} {{ item }}'}}}"
    rest = "inputs: {n: {type: array}}\nshared_state: {k: {}}\nagents: {w: {instructions: i}}"
    assert codes(nodes, rest) == []


ENOUGH = """
nodes:
  tries:
    type: map
    over: "[3, 1, 2]"
    as: way
    concurrency: 1
    until: results | length >= 2 and nodes.keep.output > 0
    nodes:
      keep: {type: tool, tool: "ways:keep", with: {way: "{{ way }}"}}
"""


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("results |", "result |", "FE309 'result' is not visible here"),
        ("results |", "resuls |", "FE302 unknown name 'resuls'; did you mean 'results'?"),
        ("nodes.keep.output > 0", "nodes.keeep.output > 0", "FE305 unknown node 'keeep'; did you mean 'keep'?"),
        ("as: way", "as: results", "FE220 `until` of the map calls what it has so far 'results'"),
        ('over: "[3, 1, 2]"', "over: results", "FE309 'results' is not visible here: only `until` of a map sees it"),
    ],
)
def test_what_until_of_a_map_reads_is_checked(old: str, new: str, expected: str) -> None:
    told = [each for each in found(f"flowengine: v1\nname: ways\n{ENOUGH.replace(old, new)}") if "FE5" not in each]
    assert any(expected in each for each in told), told


def test_enough_results_end_a_map(tmp_path: Path) -> None:
    (tmp_path / "ways.py").write_text("def keep(way: int) -> int:\n    return way\n")
    (tmp_path / "flow.yaml").write_text(f"flowengine: v1\nname: ways\n{ENOUGH}")
    assert Flow.from_yaml(tmp_path / "flow.yaml").run_sync().outputs == {"tries": [3, 1]}


SWITCH = """
inputs: {way: {schema: {}}}
nodes:
  turn: {type: condition, switch: inputs.way, routes: {left: a, "2": b, "true": {}}}
  a: {type: tool, tool: "ways:keep", with: {way: 1}}
  b: {type: tool, tool: "ways:keep", with: {way: 2}}
"""


@pytest.mark.parametrize(("way", "taken"), [("left", "left"), (2, "2"), ("2", "2"), (True, "true"), (False, None)])
def test_a_switch_takes_the_route_that_its_value_names(tmp_path: Path, way: object, taken: str | None) -> None:
    (tmp_path / "ways.py").write_text("def keep(way: int) -> int:\n    return way\n")
    file = tmp_path / "flow.yaml"
    file.write_text(f"flowengine: v1\nname: ways\n{SWITCH}")
    run = Flow.from_yaml(file).run_sync({"way": way})
    assert (run.nodes["turn"].output, run.status) == (taken, "succeeded" if taken else "failed")
    assert taken or "allowed are: left, 2, true" in str(run.error)
    file.write_text(file.read_text().replace('"true": {}}', '"true": {}}, else: b'))
    assert taken or Flow.from_yaml(file).run_sync({"way": way}).nodes["b"].output == 2


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("switch: inputs.n", "FE214 'switch' needs 'routes': which answer leads where"),
        ("switch: inputs.n, call: m:f, routes: {a: {}}", "FE209 'switch' and 'call' exclude each other"),
        ("switch: inputs.n, then: b, routes: {a: {}}", "FE209 'then' does not go with 'switch'"),
        ("switch: inputs.m, routes: {a: {}}", "FE303 unknown input 'm'"),
    ],
)
def test_mistakes_in_a_switch(node: str, expected: str) -> None:
    text = f"flowengine: v1\nname: a\ninputs: {{n: {{type: string}}}}\nnodes:\n  s: {{type: condition, {node}}}\n"
    assert any(expected in each for each in found(text)), found(text)
