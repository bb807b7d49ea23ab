"""A value that is not there: false, replaceable, and an error wherever a value is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from flowengine.core.context import NodeView, NoOutputError
from flowengine.core.templating.access import Missing
from flowengine.core.templating.compile import compile_expression, compile_predicate, compile_template
from flowengine.errors import TemplateError

SKIPPED = Missing("nodes.widen.output", "node 'widen' was skipped", excused=True)
SCOPE: dict[str, Any] = {
    "nodes": {
        "widen": NodeView(SKIPPED, SKIPPED, "skipped", None),
        "plan": NodeView({"text": "x"}, None, "succeeded", None),
    },
    "inputs": {"topic": "bees"},
    "nothing": None,
}


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("nodes.widen.output or 'x'", "x"),
        ("nodes.widen.output.notes | default('x')", "x"),
        ("nodes.widen.output['notes'][0].deep | d('x')", "x"),
        ("nodes.widen.output is defined", False),
        ("nodes.widen.output is undefined", True),
        ("nodes.widen.output is none", False),
        ("nodes.widen.output == none", False),
        ("nodes.widen.output != none", True),
        ("not nodes.widen.output", True),
        ("nodes.widen.output.get('notes', 'x')", "x"),
        ("'a' if nodes.widen.output else 'b'", "b"),
        ("[nodes.widen.output, nodes.plan.output.text] | select('defined') | list", ["x"]),
        ("inputs.nothing | default(nodes.widen.output) | default('x')", "x"),
        ("nothing.field | default('x')", "x"),
        ("unknown | default('x')", "x"),
        ("[] | first | default('x')", "x"),
        ("inputs.topic[9] | default('x')", "x"),
    ],
)
def test_what_is_not_there_is_false_and_can_be_replaced(source: str, value: Any) -> None:
    assert compile_expression(source)(SCOPE) == value


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "{{ nodes.widen.output }}",
            "nodes.widen.output is not there (node 'widen' was skipped); give it a default: | default(...)",
        ),
        ("a {{ nodes.widen.output.notes }}", "nodes.widen.output.notes is not there (node 'widen' was skipped)"),
        ("{{ inputs.topc }}", "inputs.topc is not there; did you mean 'topic'?"),
        ("{{ inputs.topc.first }}", "inputs.topc.first is not there; did you mean 'topic'?"),
        ("{{ nodes.plan.outptu }}", "nodes.plan.outptu is not there; did you mean 'output'?"),
        ("{{ nodes.widen.output + 1 }}", "nodes.widen.output is not there"),
        ("{{ 1 < nodes.widen.output }}", "nodes.widen.output is not there"),
        ("{{ -nodes.widen.output }}", "nodes.widen.output is not there"),
        ("{{ 1 in nodes.widen.output }}", "nodes.widen.output is not there"),
        ("{{ nodes.widen.output | upper }}", "nodes.widen.output is not there"),
        ("{{ 'a' | replace('a', nodes.widen.output) }}", "nodes.widen.output is not there"),
        ("{{ nodes.widen.output ~ 'x' }}", "nodes.widen.output is not there"),
        ("{{ [nodes.widen.output] }}", "nodes.widen.output is not there"),
        ("{{ {'a': [nodes.widen.output]} }}", "nodes.widen.output is not there"),
        ("{{ nodes.widen.output[:3] }}", "nodes.widen.output is not there"),
        ("{% for x in nodes.widen.output %}{% endfor %}", "nodes.widen.output is not there"),
        ("{{ 'x' if false }}", "the value is not there (`if` without `else`)"),
        ("{{ nothing.field }}", "nothing.field is not there (it is a field of null)"),
        ("{{ inputs.topic.passed }}", "inputs.topic.passed: a string has no field 'passed'"),
        ("{{ (1).real }}", "(…).real: a number has no field 'real'"),
        ("{% if false %}{% set v = 1 %}{% endif %}{{ v }}", "v is not there (the branch that sets it was not taken)"),
    ],
)
def test_using_what_is_not_there_says_what_and_why(source: str, message: str) -> None:
    with pytest.raises(TemplateError) as raised:
        compile_template(source)(SCOPE)
    assert str(raised.value).startswith(message)


def test_an_expression_hands_the_missing_value_to_its_caller() -> None:
    found = compile_expression("nodes.widen.output.urls")(SCOPE)
    assert isinstance(found, Missing)
    assert (found.path, found.reason) == ("nodes.widen.output.urls", "node 'widen' was skipped")


@pytest.mark.parametrize(
    ("status", "why"),
    [("skipped", "the node was skipped"), ("failed", "the node failed"), ("running", "the node is running")],
)
def test_the_empty_output_of_a_node_that_did_not_succeed_is_not_there(status: Any, why: str) -> None:
    scope = {"nodes": {"a": NodeView(None, None, status, None)}}
    assert compile_expression("nodes.a.output.x or nodes.a.result or nodes.a.status")(scope) == status
    with pytest.raises(TemplateError, match=rf"nodes.a.output.x is not there \({why}\)"):
        compile_template("{{ nodes.a.output.x }}")(scope)


def test_null_is_an_output_of_a_node_that_succeeded() -> None:
    assert compile_template("{{ nodes.a.output }}")({"nodes": {"a": NodeView(None, None, "succeeded", None)}}) is None


def test_no_missing_value_leaves_inside_a_new_list() -> None:
    for source in ("{{ {'k': [gone]}.k }}", "{{ [[gone]][0] }}", "{{ (gone, 1) }}", "{{ [{}] | map(attribute='a') }}"):
        with pytest.raises(TemplateError, match="is not there"):
            compile_template(source)({})


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("nodes.widen.output.passed", False),
        ("not nodes.widen.output.passed", True),
        ("nodes.widen.output.passed or true", True),
        ("true and nodes.widen.output", False),
        ("false if nodes.widen.output else true", True),
        ("nodes.widen.output.passed == true", False),
        ("true if false", False),
    ],
)
def test_a_condition_on_a_skipped_node_is_false(source: str, value: bool) -> None:
    assert compile_predicate(source)(SCOPE) is value


ABSENT = "nodes.plan.output.txt"
"""A misspelt key of an output that exists."""


@pytest.mark.parametrize(
    "source",
    [
        ABSENT,
        f"not {ABSENT}",
        f"{ABSENT} and true",
        f"true and {ABSENT}",
        f"{ABSENT} or true",
        f"false or {ABSENT}",
        f"true if {ABSENT} else false",
        f"{ABSENT} == 'x'",
        f"{ABSENT} != 'x'",
        f"{ABSENT} in ['x']",
        f"{ABSENT} is none",
        f"{ABSENT} is eq 'x'",
        f"{ABSENT}.deeper is string",
        f"[{ABSENT}] | length == 1",
        "nodes.plan.output['txt']",
        "nodes.plan.output['t' ~ 'xt']",
        "(nodes.plan.output.txt)",
        "nothing.txt",
        "[] | first",
        "[][0]",
    ],
)
def test_an_absent_key_of_what_exists_is_an_error_in_a_bare_expression(source: str) -> None:
    for compiled in (compile_predicate, compile_expression):
        with pytest.raises(TemplateError, match="is not there"):
            compiled(source)(SCOPE)


@pytest.mark.parametrize(
    ("source", "value"),
    [
        (f"{ABSENT} | default(false)", False),
        (f"({ABSENT} or nodes.plan.output.other) | default(true)", True),
        (f"({ABSENT} and nodes.plan.output.other) | d(true)", True),
        (f"{ABSENT} is defined", False),
        (f"{ABSENT} is undefined", True),
        (f"{ABSENT} is defined and {ABSENT}", False),
        ("nodes.plan.output.get('txt', false)", False),
        (f"[{ABSENT}, true] | select('defined') | list == [true]", True),
    ],
)
def test_an_absent_key_may_be_looked_after(source: str, value: bool) -> None:
    assert compile_predicate(source)(SCOPE) is value


def test_the_nearest_key_is_proposed() -> None:
    with pytest.raises(TemplateError, match=r"nodes.plan.output.txt is not there; did you mean 'text'\?"):
        compile_predicate(ABSENT)(SCOPE)


def test_the_output_of_a_node_that_did_not_run_is_falsy_among_all_outputs_too() -> None:
    class Computed(Mapping[str, Any]):
        def __getitem__(self, name: str) -> Any:
            raise NoOutputError(name, "skipped")

        def __iter__(self) -> Iterator[str]:
            return iter(())

        def __len__(self) -> int:
            return 0

    scope = {"prev_outputs": Computed()}
    assert compile_predicate("prev_outputs.a.passed")(scope) is False
    with pytest.raises(TemplateError, match=r"prev_outputs.a is not there \(the node was skipped\)"):
        compile_template("{{ prev_outputs.a }}")(scope)


@pytest.mark.parametrize("use", [str, list, len, "{}".format])
def test_python_code_cannot_print_or_walk_through_it_either(use: Any) -> None:
    with pytest.raises(TemplateError, match="was skipped"):
        use(SKIPPED)


def test_it_can_be_shown_in_a_debugger() -> None:
    assert repr(SKIPPED) == "Missing('nodes.widen.output')"


def test_a_hostile_key_is_not_compared_letter_by_letter() -> None:
    with pytest.raises(TemplateError, match="is not there"):
        compile_template("{{ d.naem }}")({"d": {"n" * 1_000_000: 1}})
