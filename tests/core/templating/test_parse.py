"""What parsing finds: errors with their places, references with their positions, hostile sources in time."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.core.templating.parse import ParsedTemplate, parse_expression, parse_template
from flowengine.errors import TemplateSyntaxError
from tests.support.pace import refused_within, spent_within


def paths(parsed: ParsedTemplate) -> list[tuple[str, ...]]:
    return [each.path for each in parsed.references]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("nodes.plan.output.questions", [("nodes", "plan", "output", "questions")]),
        ("item[0].x", [("item",)]),
        ("nodes['a'].output", [("nodes", "a", "output")]),
        ("nodes[item.name].output", [("nodes",), ("item", "name")]),
        ("inputs.get('a', inputs.b)", [("inputs", "a"), ("inputs", "b")]),
        ("inputs.items()", [("inputs",)]),
        ("range(inputs.n)", [("inputs", "n")]),
        ("(a or b).c", [("a",), ("b",)]),
        ("a.b[c.d:e]", [("a", "b"), ("c", "d"), ("e",)]),
        ("a | map(attribute=b.c) | join(d)", [("a",), ("b", "c"), ("d",)]),
        ("x is divisibleby y.z", [("x",), ("y", "z")]),
        ("1 + 2", []),
    ],
)
def test_an_expression_tells_which_outer_names_it_reads(source: str, expected: list[tuple[str, ...]]) -> None:
    assert paths(parse_expression(source)) == expected


def test_a_name_that_an_untaken_branch_may_set_is_a_reference_that_may_be_the_templates_own() -> None:
    parsed = parse_template(
        "{% if a %}{% set x, y = 1, 2 %}{{ x }}{% elif b %}{% set y = 3 %}{% endif %}{{ x }}{{ y }}{{ c }}"
    )
    assert [(each.path[0], each.may_be_own) for each in parsed.references] == [
        ("a", False), ("b", False), ("x", True), ("y", True), ("c", False)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{% for x in xs %}{{ x.a }}{{ loop.index }}{{ y }}{% endfor %}{{ x.b }}", [("xs",), ("y",), ("x", "b")]),
        ("{% for a, b in xs.items() if b > c %}{{ a }}{% endfor %}", [("xs",), ("c",)]),
        ("{% for nodes in nodes.a.output %}{{ nodes }}{% endfor %}", [("nodes", "a", "output")]),
        ("{{ x }}{% set x = x.y %}{{ x }}", [("x",), ("x", "y")]),
        ("{% set x %}{{ z }}{% endset %}{{ x }}", [("z",)]),
        ("{% if a %}{% set x = 1 %}{% else %}{% set x = 2 %}{% endif %}{{ x }}", [("a",)]),
        ("{% for i in xs %}{% set t = i %}{% endfor %}{{ t }}", [("xs",), ("t",)]),
        ("{% with v = inputs.a %}{{ v }}{% endwith %}{{ v }}", [("inputs", "a"), ("v",)]),
        ("{# {{ comment }} #}{% raw %}{{ raw }}{% endraw %}", []),
    ],
)
def test_names_that_a_template_binds_itself_are_no_references(source: str, expected: list[tuple[str, ...]]) -> None:
    assert paths(parse_template(source)) == expected


@pytest.mark.parametrize(
    ("source", "printed", "guarded"),
    [
        ("{{ a }}", True, False),
        ("{{ a | upper }}", True, False),
        ("text {{ a ~ 'x' }}", True, False),
        ("{{ a | default('x') }}", False, True),
        ("{{ a | default('x') | upper }}", False, True),
        ("{{ a or 'x' }}", False, True),
        ("{{ 'x' or a }}", True, True),
        ("{{ a is defined }}", False, True),
        ("{{ a is none }}", False, False),
        ("{{ a == 1 }}", False, False),
        ("{{ a < 1 }}", True, False),
        ("{{ not a }}", False, False),
        ("{% if a %}x{% endif %}", False, True),
        ("{% for x in a %}{% endfor %}", True, False),
        ("{{ [a, 1] | select('defined') | first }}", False, True),
        ("{{ d.get('k', 1) }}", True, True),
    ],
)
def test_a_reference_tells_whether_its_value_is_needed_and_looked_after(
    source: str, printed: bool, guarded: bool
) -> None:
    (reference,) = parse_template(source).references
    assert (reference.printed, reference.guarded) == (printed, guarded)


@pytest.mark.parametrize(
    "source",
    ["{% if a.b %}{{ a.b.c }}{% endif %}", "{{ a.b.c if a.b else 'x' }}", "{{ a.b and a.b.c }}"],
)
def test_what_an_if_tests_is_looked_after_under_it(source: str) -> None:
    printed = [each for each in parse_template(source).references if each.printed]
    assert [(each.path, each.guarded) for each in printed] == [(("a", "b", "c"), True)]


def test_a_guard_ends_with_its_if() -> None:
    last = parse_template("{% if a %}{{ a }}{% endif %}{{ a }}").references[-1]
    assert last.printed
    assert not last.guarded


def test_references_have_their_line_and_column() -> None:
    source = "Hello\r\n  {{ first.x\n   ~ second }}\n\n   {%- if third -%}  {{- fourth }}{% endif %}"
    found = [(each.path[0], each.line, each.column) for each in parse_template(source).references]
    assert found == [("first", 2, 6), ("second", 3, 6), ("third", 5, 11), ("fourth", 5, 26)]


@pytest.mark.parametrize(
    ("source", "lone", "static"),
    [
        ("{{ x }}", True, False),
        ("{{ x }}\n", True, False),
        ("{{ x }} ", False, False),
        ("{{ x }}{{ y }}", False, False),
        ("plain", False, True),
        ("plain {# note #}", False, True),
        ("", False, True),
        ("{% if x %}{% endif %}", False, False),
    ],
)
def test_lone_and_static_templates_are_told_apart(source: str, lone: bool, static: bool) -> None:
    parsed = parse_template(source)
    assert (parsed.is_lone, parsed.is_static) == (lone, static)


@pytest.mark.parametrize(
    ("source", "message", "line", "column"),
    [
        ("a\n {{ x | uper }}", "unknown filter 'uper'; did you mean 'upper'?", 2, 9),
        ("{{ x is definde }}", "unknown test 'definde'; did you mean 'defined'?", 1, 6),
        ("{{ xs | map('uper') }}", "unknown filter 'uper'; did you mean 'upper'?", 1, 13),
        ("{{ xs | selectattr('a', 'equals') }}", "unknown test 'equals'", 1, 25),
        ("{{ x | truncate(1, 2, 3, 4, 5) }}", "filter 'truncate' takes at most 4 arguments", 1, 8),
        ("{{ x | truncate(lenght=1) }}", "filter 'truncate' has no argument 'lenght'; did you mean 'length'?", 1, 8),
        ("{{ x | replace('a') }}", "filter 'replace' needs the argument 'new'", 1, 8),
        ("{{ x | join(',', d=';') }}", "filter 'join' was given 'd' twice", 1, 8),
        ("{{ x | upper(*y) }}", "`*` and `**` in arguments are not allowed here", 1, 8),
        ("{{ x.upper() }}", "only range() and the mappings' get, items, keys, values can be called", 1, 11),
        ("{{ lipsum() }}", "only range() and the mappings' get, items, keys, values can be called", 1, 10),
        ("{{ x.get() }}", ".get() takes 1 to 2 arguments without names", 1, 9),
        ("{{ x.items(1) }}", ".items() takes 0 arguments without names", 1, 11),
        ("{{ x", "unexpected end of template, expected 'end of print statement'", 1, 4),
        ("{{ x + }}", "unexpected 'end of print statement'", 1, 8),
        ("x\n{{ a $ b }}", "unexpected char '$'", 2, 6),
        ("{% if x %}", "Unexpected end of template", 1, 1),
        ("{% macro m() %}{% endmacro %}", "{% macro %} is not allowed here", 1, 4),
        ("{% include 'x' %}", "{% include %} is not allowed here", 1, 4),
        ("{% import 'x' as y %}", "{% import %} is not allowed here", 1, 4),
        ("{% from 'x' import y %}", "{% from %} is not allowed here", 1, 4),
        ("{% extends 'x' %}", "{% extends %} is not allowed here", 1, 4),
        ("{% block x %}{% endblock %}", "{% block %} is not allowed here", 1, 4),
        ("{% filter upper %}x{% endfilter %}", "{% filter %} is not allowed here", 1, 4),
        ("{% call x() %}{% endcall %}", "{% call %} is not allowed here", 1, 4),
        ("{% set x.y = 1 %}", "setting a field is not allowed here", 1, 8),
        ("{% autoescape true %}{% endautoescape %}", "{% autoescape %} is not allowed here", 1, 4),
        ("{% for x in xs recursive %}{% endfor %}", "a recursive loop is not allowed here", 1, 4),
        ("{% for x in xs %}{{ loop.indx }}{% endfor %}", "`loop` has no 'indx'; did you mean 'index'?", 1, 25),
        ("{% do x %}", "Encountered unknown tag 'do'", 1, 4),
    ],
)
def test_an_error_says_what_is_wrong_and_where(source: str, message: str, line: int, column: int) -> None:
    with pytest.raises(TemplateSyntaxError) as raised:
        parse_template(source)
    assert raised.value.message.startswith(message)
    if "Unexpected end" not in message:
        assert (raised.value.line, raised.value.column) == (line, column)


def test_an_expression_ends_where_it_ends() -> None:
    with pytest.raises(TemplateSyntaxError, match="unexpected 'b' after the expression") as raised:
        parse_expression("a b")
    assert raised.value.column == 3


HOSTILE_EXPRESSIONS = {
    "parentheses": "(" * 10_000 + "1" + ")" * 10_000,
    "not": "not " * 10_000 + "x",
    "minus": "-" * 10_000 + "1",
    "plus chain": "a" + "+a" * 9_000,
    "field chain": "a" + ".b" * 9_000,
    "filter chain": "a" + "|upper" * 9_000,
    "or chain": "a" + " or a" * 9_000,
    "if chain": "a if b else " * 5_000 + "c",
    "digits": "1" * 900_000,
    "underscored digits": "1_" * 400_000 + "1",
    "hex": "0x" + "f" * 10_000,
    "open string": "'" + "a" * 900_000,
    "escapes": "'" + "\\a" * 450_000,
    "open lists": "[" * 10_000,
    "open calls": "f(" * 5_000,
    "too long": "a" * 1_000_001,
}
HOSTILE_TEMPLATES = {
    "open variables": "{{" * 400_000,
    "open blocks": "{%" * 400_000,
    "open comments": "{#" * 400_000,
    "open raws": "{% raw %}" * 100_000,
    "spaces in raw": "{% raw %}{%" + " " * 900_000,
    "many placeholders": "{{ a }}" * 140_000,
    "nested ifs": "{% if a %}" * 5_000,
    "nested loops": "{% for a in b %}" * 5_000,
    "lines": "\r\n" * 400_000 + "{{ x",
    "long target": "{% for " + "a," * 50_000 + " in b %}{% endfor %}",
}


@pytest.mark.parametrize(
    ("parse", "source"),
    [pytest.param(parse_expression, source, id=name) for name, source in HOSTILE_EXPRESSIONS.items()]
    + [pytest.param(parse_template, source, id=name) for name, source in HOSTILE_TEMPLATES.items()],
)
def test_a_hostile_source_is_refused_in_time(parse: Callable[[str], ParsedTemplate], source: str) -> None:
    assert refused_within(0.5, TemplateSyntaxError, lambda: parse(source))


@pytest.mark.parametrize(
    "source", ["'" + "\\a" * 40_000 + "'", "{ " * 499_000 + "{{ x }}", "x {{ a }}\n" * 3_000, "a\n" * 500_000]
)
def test_a_large_source_is_read_in_time(source: str) -> None:
    assert spent_within(0.5, lambda: parse_template(source))


@pytest.mark.parametrize("name", ["digits", "underscored digits", "escapes", "open lists"])
def test_a_hostile_source_takes_little_memory(name: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(TemplateSyntaxError):
            parse_expression(HOSTILE_EXPRESSIONS[name])
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()


def test_thirty_brackets_are_not_too_many() -> None:
    assert parse_expression("(" * 30 + "x" + ")" * 30).references[0].column == 31


WORDS = """{{ }} {% %} {# #} - if for in endfor endif else set a b.c x['y'] | upper default( ) ( [ ] , 1 2.5 'text' + ~
not and or is defined range( .get( { } : == < \\ " é raw endraw macro"""
PIECES = st.sampled_from([*WORDS.split(), "\n", "\x00"])


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=25).map(" ".join) | st.text(max_size=40))
def test_any_source_parses_or_is_a_syntax_error(source: str) -> None:
    for parse in (parse_template, parse_expression):
        try:
            parsed = parse(source)
        except TemplateSyntaxError as error:
            # Not `pytest.raises`: either outcome is fine, but an error must have a place.
            problem = (error.line, error.column, bool(error.message))
            assert min(problem) >= 1
        else:
            for each in parsed.references:
                line = source.replace("\r\n", "\n").replace("\r", "\n").split("\n")[each.line - 1]
                assert line[each.column - 1 :].startswith(each.path[0])
