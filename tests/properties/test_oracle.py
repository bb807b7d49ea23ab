"""The oracle by hand-written tables: the format's own examples, and a small flow for each rule."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from flowengine import NodeResult
from tests.properties.oracle import Meaning, mean
from tests.properties.oracle_expressions import Absent, ExpressionError, Unclear, choose, evaluate, node_names, render
from tests.properties.oracle_scope import Library


def fail(**_: Any) -> None:
    raise ValueError("no")


def give(x: Any) -> Any:
    return x


def log(x: Any) -> NodeResult:
    return NodeResult(x, {"log": [x]})


def search(query: str) -> dict[str, Any]:
    return {"text": f"found {query}", "urls": [f"u/{query}", "u/all"]}


def mark(target: str) -> float:
    return min(len(target) / 10, 1.0)


CODE = SimpleNamespace(give=give, fail=fail, log=log, search=search, mark=mark)


def think(instructions: str, text: str) -> str:
    return {"Choose the team for this message.": "technical"}.get(instructions, f"<{text.strip()}>")


def meaning(text: str, inputs: Mapping[str, Any] | None = None, folder: Path = Path(), **answers: str) -> Meaning:
    flow = yaml.safe_load(dedent(text))
    return mean(flow, inputs or {}, Library(CODE, folder, answers, think))  # type: ignore[arg-type]


def became(found: Meaning) -> dict[str, str]:
    """Node → its output, or why it was skipped, or that it failed."""
    return {path: str(each.cause or (each.output if each.status == "succeeded" else each.status))
            for path, each in found.nodes.items()}  # fmt: skip


# --- expressions ------------------------------------------------------------------------------------

NAMES = {
    "yes": True,
    "text": "false",
    "none": None,
    "table": {"ok": True, "said": "false", "nothing": None},
    "skipped": Absent("skipped", skipped=True),
}


@pytest.mark.parametrize(
    ("expression", "truth"),
    [
        ("yes", True),
        ("not yes", False),
        ("table.ok and yes", True),
        ("skipped", False),
        ("not skipped", True),
        ("skipped or yes", True),
        ("skipped.deeper.still", False),
        ("table.nothing is none", True),
        ("1 < 2 < 3", True),
        ("yes if table.ok else 7", True),
        ("(skipped | default(5)) > 4", True),
        ("2 in [1, 2]", True),
    ],
)
def test_a_boolean_is_read_as_the_format_says(expression: str, truth: bool):
    assert choose(expression, NAMES.__getitem__) is truth


@pytest.mark.parametrize(
    "expression",
    ["text", "text and yes", "not text", "yes and text", "1", "none", "table.missing", "not table.missing",
     "table.missing > 1", "7 if text else yes"],
)  # fmt: skip
def test_what_is_no_boolean_is_an_error(expression: str):
    with pytest.raises(ExpressionError):
        choose(expression, NAMES.__getitem__)


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("plain", "plain"),
        ("{{ table }}", NAMES["table"]),
        ("{{ none }}", None),
        ("a {{ 1 + 1 }}", "a 2"),
        ("{{ skipped or text }}", "false"),
        ('{{ table.missing | default("x") }}', "x"),
        (["{{ yes }}", {"k": "{{ text }}"}, 3], [True, {"k": "false"}, 3]),
        ("", ""),
    ],
)
def test_a_lone_reference_keeps_its_type(template: Any, value: Any):
    assert render(template, NAMES.__getitem__) == value


@pytest.mark.parametrize("template", ["{{ skipped }}", "a {{ skipped }}", "{{ table.missing }}"])
def test_what_is_absent_cannot_be_printed(template: str):
    with pytest.raises(ExpressionError):
        render(template, NAMES.__getitem__)


@pytest.mark.parametrize("template", ["a {{ none }}", "{{ skipped == 1 }}", "{{ yes | tojson }}"])
def test_what_the_format_leaves_open_is_unclear(template: str):
    with pytest.raises(Unclear):
        render(template, NAMES.__getitem__)


def test_edges_come_from_every_string():
    spec = {
        "when": "nodes.a.output > 1",
        "with": {"x": ["{{ nodes.b.output }}"]},
        "call": "nodes:c",
        "prompt": "nodes.d",
    }
    assert node_names(spec) == {"a", "b"}
    assert evaluate("[1, text]", NAMES.__getitem__) == [1, "false"]


# --- rules ------------------------------------------------------------------------------------------

GIVE = "{type: function, call: 'm:give', with: {x: 1}"
RULES = {
    "a gate comes before a join, and a skip runs on": (
        f"""
        c: {{type: condition, if: "false", then: a, else: b}}
        a: {GIVE}}}
        b: {GIVE}}}
        after_a: {GIVE}, needs: [a]}}
        both: {GIVE}, needs: [a, b]}}
        every: {GIVE}, needs: [a, b], join: all}}
        """,
        {"c": "else", "a": "not_selected", "b": "1", "after_a": "upstream_skipped", "both": "1",
         "every": "upstream_skipped"},
    ),
    "a failure that nothing handles is behind a skip": (
        f"""
        bad: {{type: function, call: "m:fail"}}
        good: {GIVE}}}
        after: {GIVE}, needs: [bad]}}
        behind: {GIVE}, needs: [after, good]}}
        """,
        {"bad": "failed", "after": "upstream_failed", "behind": "upstream_failed"},
    ),
    "a target whose deciders were all skipped is skipped behind them": (
        f"""
        idle: {{type: condition, when: "false", if: "true", then: chosen}}
        chosen: {GIVE}, join: always}}
        bad: {{type: function, call: "m:fail"}}
        behind: {{type: condition, needs: [bad], if: "true", then: unchosen}}
        unchosen: {GIVE}}}
        """,
        {"idle": "condition_false", "chosen": "upstream_skipped", "unchosen": "upstream_failed"},
    ),
    "a handled failure counts as skipped for others, always runs, and a gate holds for it too": (
        f"""
        bad: {{type: function, call: "m:fail", on_error: {{then: mend}}}}
        mend: {GIVE}}}
        after: {GIVE}, needs: [bad]}}
        behind: {GIVE}, needs: [after, mend]}}
        always: {GIVE}, needs: [after], join: always}}
        c: {{type: condition, if: "false", then: chosen}}
        chosen: {GIVE}, join: always}}
        """,
        {"bad": "failed", "mend": "1", "after": "upstream_skipped", "behind": "1", "always": "1",
         "c": "else", "chosen": "not_selected"},
    ),
    "an answer that matches nothing fails, and a skipped error is no failure": (
        f"""
        c: {{type: condition, cases: [{{if: "false", label: one, then: a}}], on_error: skip}}
        a: {GIVE}}}
        d: {GIVE}, when: not nodes.c.output}}
        e: {GIVE}, when: nodes.a.status == "skipped", join: always}}
        """,
        {"c": "error", "a": "upstream_skipped", "d": "upstream_skipped", "e": "1"},
    ),
    "a condition passes on the result": (
        """
        a: {type: function, call: "m:give", with: {x: seven}}
        c: {type: condition, if: "true", then: b, needs: [a]}
        b: {type: function, call: "m:give", with: {x: "{{ result }}"}}
        """,
        {"a": "seven", "c": "then", "b": "seven"},
    ),
    "a judge that failed is not answered for by an earlier one": (
        f"""
        one: {{type: evaluation, call: "m:mark", target: a long text, threshold: 0.5}}
        two: {{type: evaluation, call: "m:fail", target: b, on_error: skip, needs: [one]}}
        ship: {GIVE}, when: evaluation_result.passed, needs: [one, two], on_error: skip}}
        """,
        {"two": "error", "ship": "error"},
    ),
    "a loop stops with the variables of the round that was good enough": (
        """
        l:
          type: loop
          max_iterations: 5
          initial: {v: 1}
          nodes: {n: {type: function, call: "m:give", with: {x: "{{ round.v + round.index }}"}}}
          until: nodes.n.output > 3
          carry: {v: "{{ nodes.n.output + 1 }}"}
        """,
        {"l.round[0].n": "1", "l.round[1].n": "3", "l.round[2].n": "6",
         "l": "{'v': 4, 'iterations': 3, 'exhausted': False}"},
    ),
    "an exhausted loop gives the best round's variables": (
        """
        l:
          type: loop
          max_iterations: 3
          initial: {v: 1}
          nodes: {n: {type: function, call: "m:give", with: {x: "{{ round.v }}"}}}
          until: "false"
          carry: {v: "{{ round.v + 1 }}"}
          on_exhausted: continue
          best_by: "9 if round.index == 1 else round.v"
        """,
        {"l": "{'v': 2, 'iterations': 3, 'exhausted': True}"},
    ),
    "of equally good rounds the last is the best": (
        """
        l:
          type: loop
          max_iterations: 3
          initial: {v: 1}
          nodes: {n: {type: function, call: "m:give", with: {x: "{{ round.v }}"}}}
          until: "false"
          carry: {v: "{{ round.v + 1 }}"}
          on_exhausted: continue
          best_by: "0 if round.last else 7"
        """,
        {"l": "{'v': 2, 'iterations': 3, 'exhausted': True}"},
    ),
    "a map keeps the order, and drops an item that failed where it is told to": (
        """
        m:
          type: map
          over: "[3, 'x', 5]"
          nodes: {n: {type: function, call: "m:give", with: {x: "{{ item + 1 }}"}}}
          on_item_error: skip
          result: "{{ nodes.n.output }}"
        """,
        {"m[0].n": "4", "m[1].n": "failed", "m[2].n": "6", "m": "[4, 6]"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(RULES))
def test_rules(name: str):
    nodes, wanted = RULES[name]
    flow: dict[str, Any] = {"nodes": yaml.safe_load(dedent(nodes)), "outputs": {}}
    found = mean(flow, {}, Library(CODE, Path(), {}, think))  # type: ignore[arg-type]
    assert {path: each for path, each in became(found).items() if path in wanted} == wanted


STATE = """
name: t
shared_state:
  log: {type: array, default: [start], merge: append}
  best: {default: 0, merge: max}
  word: {}
nodes:
  a: {type: function, call: "m:log", with: {x: a}, set: {best: 4, word: first}}
  b: {type: function, call: "m:log", with: {x: b}, set: {best: 3}, needs: [a]}
  aside: {type: function, call: "m:log", with: {x: "{{ shared_state.log }}"}}
  l:
    type: loop
    max_iterations: 2
    needs: [b]
    nodes:
      r: {type: function, call: "m:log", with: {x: "{{ shared_state.log | length }}"}}
  m:
    type: map
    over: "[7, 8]"
    nodes: {i: {type: function, call: "m:log", with: {x: "{{ item }}"}}}
    result: "{{ shared_state.log | length }}"
  end: {type: function, call: "m:give", with: {x: "{{ shared_state.log }}"}, needs: [a, l, m]}
outputs: {log: "{{ shared_state.log }}", best: "{{ shared_state.best }}", word: "{{ shared_state.word }}"}
"""


def test_a_node_sees_what_its_ancestors_wrote_and_every_round_counts():
    found = meaning(STATE)
    assert found.nodes["aside"].output == ["start"]
    assert found.nodes["m"].output == [2, 2]
    assert found.nodes["end"].output == ["start", "a", "b", 3, 4, 7, 8]
    assert found.outputs == {"log": ["start", "a", "b", ["start"], 3, 4, 7, 8], "best": 4, "word": "first"}


def test_a_key_that_is_not_declared_fails_the_node():
    found = meaning("nodes: {a: {type: function, call: 'm:log', with: {x: 1}}}")
    assert (found.status, found.failures) == ("failed", frozenset({"a"}))


def test_what_came_of_the_others_beside_a_failure_is_not_sure():
    found = meaning(
        """
        nodes:
          bad: {type: function, call: "m:fail"}
          other: {type: function, call: "m:give", with: {x: 1}}
          last: {type: function, call: "m:give", with: {x: "{{ nodes.other.status }}"}, needs: [bad], join: always}
        """
    )
    assert found.status == "failed"
    assert not any(each.sure for each in found.nodes.values())
    assert [name for name, each in found.nodes.items() if each.free] == ["last"]


# --- the format's examples --------------------------------------------------------------------------


def example(name: str) -> dict[str, Any]:
    return yaml.safe_load((Path(__file__).parents[2] / "flows" / f"{name}.yaml").read_text("utf-8"))


def test_the_first_example_routes_to_one_team():
    flow = example("support_triage")
    found = mean(flow, {"message": "It crashes"}, Library(CODE, Path(), {}, think))  # type: ignore[arg-type]
    skipped = {path: each.cause for path, each in found.nodes.items() if each.status == "skipped"}
    assert skipped == {"settle": "not_selected", "general": "not_selected"}
    assert found.outputs["team"] == "technical"
    assert "<It crashes>" in found.outputs["reply"]


def test_the_second_example_improves_until_it_passes():
    flow = example("draft_until_good")
    flow["nodes"]["polish"]["nodes"]["judge"] |= {"call": "m:mark"}
    flow["nodes"]["polish"]["nodes"]["improve"]["prompt"] = "{{ round.text }}"
    found = mean(flow, {"topic": "tea"}, Library(CODE, Path(), {}, lambda _, text: text[-9:] + "!!!"))  # type: ignore[arg-type]
    assert found.nodes["polish"].output == {"text": "tea!!!!!!", "iterations": 2, "exhausted": False}
    assert found.nodes["polish.round[0].improve"].output == "tea!!!!!!"
    assert found.nodes["polish.round[1].improve"].cause == "not_selected"


def test_the_third_example_collects_sources_and_widens_where_there_are_few(tmp_path: Path):
    flow = example("parallel_research")
    flow["nodes"]["plan"] = {"type": "function", "call": "m:give", "with": {"x": {"questions": ["one"]}}}
    wider: dict[str, Any] = {
        "inputs": {"question": {}},
        "outputs": {"notes": "more"},
        "nodes": {"n": {"prompt": "x", "instructions": ""}},
    }
    (tmp_path / "wider_search.yaml").write_text(yaml.safe_dump(wider))
    flow["nodes"]["write"]["prompt"] = (
        '{{ nodes.investigate.output | first }} {{ nodes.widen.output.notes | default("") }}'
    )
    found = mean(flow, {"question": "tea?"}, Library(CODE, tmp_path, {}, think))  # type: ignore[arg-type]
    assert found.outputs["sources"] == ["u/one", "u/all"]
    assert found.nodes["widen"].output == {"notes": "more"}
    assert found.outputs["report"].endswith("more>")
