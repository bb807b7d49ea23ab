"""What compiled templates give: types, data-only access, filters, tests, operators, statements."""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from flowengine.core.context import EvaluationResult, LLMResult, NodeView
from flowengine.core.templating.access import Missing
from flowengine.core.templating.compile import compile_expression, compile_predicate, compile_template
from flowengine.core.templating.limits import MAX_INT_BITS, MAX_ITEMS, MAX_TEXT
from flowengine.core.templating.parse import parse_expression, parse_template
from flowengine.core.values import freeze
from flowengine.errors import TemplateError, TemplateSyntaxError


class Report(BaseModel):
    title: str
    score: float = 0.5
    _secret: str = "hidden"

    @property
    def computed(self) -> str:
        raise AssertionError("a property was read")

    def method(self) -> str:
        raise AssertionError("a method was called")


@dataclass
class Point:
    x: int
    _private: int = 7


class Status(enum.Enum):
    OPEN = "open"


class Lazy(Mapping[str, Any]):
    """A mapping that computes its values and must never be listed."""

    def __getitem__(self, key: str) -> Any:
        if key != "a":
            raise KeyError(key)
        return 1

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("the mapping was listed")

    def __len__(self) -> int:
        raise AssertionError("the mapping was listed")


class Opaque:
    def __str__(self) -> str:
        raise AssertionError("a foreign __str__ was called")

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        raise AssertionError("a foreign __eq__ was called")

    __hash__ = object.__hash__


SCOPE: dict[str, Any] = {
    "nodes": {"a": NodeView({"ok": True, "notes": ["n1", "n2"]}, None, "succeeded", None)},
    "shared_state": {"counter": 3, "_last_prompt": "Say hi"},
    "inputs": freeze({"name": "Ada", "n": 4, "list": [3, 1, 2], "flag": "false", "open": "{{ inputs.name }}"}),
    "people": [{"name": "Bo", "age": 3}, {"name": "al", "age": 1}, {"name": "Cy", "age": 3}],
    "report": Report(title="T"),
    "point": Point(1),
    "status": Status.OPEN,
    "lazy": Lazy(),
    "opaque": Opaque(),
    "day": date(2024, 5, 1),
    "price": Decimal("1.50"),
    "result": LLMResult(content={"text": "hé"}),
}


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("{{ inputs.list }}", [3, 1, 2]),
        ("{{ inputs.n }}", 4),
        ("{{ shared_state.counter < 5 }}", True),
        ("{{ none }}", None),
        ("{{ inputs.n }}\n", 4),
        ("{{ inputs.n }}!", "4!"),
        ("{{ inputs.n }} ", "4 "),
        ("x{{ none }}{{ true }}{{ 1.5 }}", "xnulltrue1.5"),
        ("x{{ ['a', 1, none, {'k': false}] }}", 'x["a", 1, null, {"k": false}]'),
        ("plain { text }\n", "plain { text }"),
        ("a{# note #}b", "ab"),
        ("{% raw %}{{ x }}{% endraw %}", "{{ x }}"),
        ("{{ inputs.open }}!", "{{ inputs.name }}!"),
        ("a  {{- inputs.n -}}  b", "a4b"),
        ("x{{ result }}", 'x{"text": "hé"}'),
        ("x{{ report }}", 'x{"title": "T", "score": 0.5}'),
        ("x{{ point }}", 'x{"x": 1}'),
        ("x{{ status }}{{ day }}{{ price }}", "xopen2024-05-011.50"),
        ("x{{ [status, day, price] }}", 'x["open", "2024-05-01", "1.50"]'),
        ("x{{ nodes.a.output.notes }}", 'x["n1", "n2"]'),
    ],
)
def test_a_template_gives_text_and_a_lone_placeholder_keeps_its_type(source: str, value: Any) -> None:
    result = compile_template(source)(SCOPE)
    assert result == value
    assert isinstance(result, type(value))


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (
            "{% for x in inputs.list %}{{ loop.index }}:{{ x }}{{ ',' if not loop.last else '' }}{% endfor %}",
            "1:3,2:1,3:2",
        ),
        ("{% for x in [] %}a{% else %}none{% endfor %}", "none"),
        ("{% for x in inputs.list if x > 1 %}{{ x }}/{{ loop.length }} {% endfor %}", "3/2 2/2 "),
        ("{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}{{ v }}{% endfor %}", "a1b2"),
        (
            "{% for x in [1, 2] %}{% for y in [1, 2] %}{{ x * y }} {% endfor %}{{ loop.index0 }};{% endfor %}",
            "1 2 0;2 4 1;",
        ),
        (
            "{% for x in [1, 2] %}{{ loop.previtem | default('-') }}{{ loop.nextitem | default('-') }}{% endfor %}",
            "-21-",
        ),
        ("{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = i + 5 %}{{ x }}{% endfor %}{{ x }}", "16171"),
        ("{% for i in [1, 0] %}{% if i %}{% set y = 'y' %}{% endif %}{{ y | default('-') }}{% endfor %}", "y-"),
        ("{% set r='u' %}{% for i in [1, 2] %}{% if i==2 %}{% set r='b' %}{% endif %}{{ r or '-' }}{% endfor %}", "ub"),
        ("{% if false %}{% set inputs = 1 %}{% endif %}{% if inputs %}{{ inputs.n }}{% else %}none{% endif %}", "4"),
        ("{% set r=1 %}{% with %}{% if false %}{% set r=2 %}{% endif %}{{ r }}{{ r | d('-') }}{% endwith %}", "11"),
        ("{% for i in [1, 2] %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}", "1010"),
        ("{% set a, b = 1, 2 %}{{ a }}{{ b }}", "12"),
        ("{% set x %}<{{ inputs.n }}>{% endset %}{{ x }}{{ x }}", "<4><4>"),
        ("{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a | default('-') }}", "3-"),
        ("{% if inputs.n > 5 %}a{% elif inputs.n > 3 %}b{% else %}c{% endif %}", "b"),
        ("{% if false %}a{% elif false %}b{% else %}c{% endif %}", "c"),
        ("{% for x in 'ab' %}{{ x }}.{% endfor %}", "a.b."),
        ("{% for k in {'a': 1} %}{{ k }}{% endfor %}", "a"),
        ("{% for inputs in inputs.list %}{{ inputs }}{% endfor %}{{ inputs.n }}", "3124"),
        ("{% print inputs.n %}!", "4!"),
    ],
)
def test_statements(source: str, text: str) -> None:
    assert compile_template(source)(SCOPE) == text


class Recording(dict[str, Any]):
    """A scope that remembers which names were asked for."""

    def __init__(self, scope: dict[str, Any]) -> None:
        super().__init__(scope)
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.asked.add(name)
        return super().__getitem__(name)


@pytest.mark.parametrize(
    "source",
    [
        "{% for x in xs %}{{ x }}{{ loop.first }}{% else %}{{ x }}{{ loop }}{% endfor %}{{ x }}",
        "{% for a, b in [(1, a)] if b %}{{ b }}{% endfor %}{{ b }}",
        "{% if y %}{% set x = y %}{% endif %}{{ x or z }}",
        "{{ x or 1 }}{% set x = x or w %}{{ x }}",
        "{% set x %}{% set y = q or 1 %}{{ y }}{% endset %}{{ y or x }}",
        "{% with a = b or 1, c = a or 2 %}{{ a }}{{ c }}{% endwith %}{{ c or 1 }}",
        "{% for i in [1, 2] %}{{ t or 'u' }}{% set t = i %}{% endfor %}{{ t or 1 }}",
        "{{ d['k'][e or 0] or d.get(f or 'x', g) or range(h or 1) }}",
    ],
)
def test_the_references_cover_every_name_that_is_read(source: str) -> None:
    roots = {each.path[0] for each in parse_template(source).references}
    scope = Recording(dict.fromkeys(roots) | {"xs": [], "a": 5, "d": {}})
    with suppress(TemplateError):
        compile_template(source)(scope)
    assert scope.asked <= roots
    assert scope.asked


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("1 + 2 * 3 - 4 / 2", 5.0),
        ("7 // 2 + 7 % 4", 6),
        ("2 ** 10", 1024),
        ("-inputs.n + +1", -3),
        ("'a' ~ 1 ~ none", "a1null"),
        ("'a' + 'b' * 2", "abb"),
        ("[1] + [2] * 2", [1, 2, 2]),
        ("1 < 2 <= 2 != 3", True),
        ("1 < 2 > 5", False),
        ("[1, 2] < [1, 3] and 'a' < 'b'", True),
        ("1 == 1.0 and true == 1 and 'a' == 'a' and [1, {'a': none}] == [1.0, {'a': none}]", True),
        ("'1' == 1 or [1] == (2,) or {'a': 1} == {'b': 1} or none == false or [1] == [1, 2]", False),
        ("'b' in 'abc' and 2 in inputs.list and 'name' in inputs and 9 not in inputs.list", True),
        ("0 or '' or [] or {} or none or 'last'", "last"),
        ("1 and 'x'", "x"),
        ("not inputs.n == 4", False),
        ("'a' if inputs.n == 4 else 'b'", "a"),
        ("inputs.list[0], inputs.list[-1], inputs.name[1]", (3, 2, "d")),
        ("inputs.list[1:], inputs.name[::-1], inputs.list[:inputs.n - 3]", ([1, 2], "adA", [3])),
        ("{'a': 1}['a'] + {'a': 1}.a", 2),
        ("{1: 'x'}[1]", "x"),
        ("range(3)", [0, 1, 2]),
        ("range(5, 0, -2)", [5, 3, 1]),
        ("{'a': 1}.get('a'), {'a': 1}.get('b', 2), {'a': 1}.get('b')", (1, 2, None)),
        ("{'a': 1}.get('b') is none and {'a': 1}.get('b') == none and {}.get('b') in [none]", True),
        ("{'a': 1}.keys(), {'a': 1}.values(), {'a': 1}.items()", (["a"], [1], [("a", 1)])),
        ("report.title, point.x, report['score'], report.get('title')", ("T", 1, 0.5, "T")),
        ("status == 'open'", True),
        ("day < day or day == day", True),
        ("lazy.a", 1),
        ("shared_state._last_prompt", "Say hi"),
        ("nodes.a.status", "succeeded"),
        ("opaque == opaque", True),
    ],
)
def test_expressions(source: str, value: Any) -> None:
    result = compile_expression(f"({source})")(SCOPE)
    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("none | default('x')", None),
        ("none | default('x', true)", "x"),
        ("'' | d('x', boolean=true)", "x"),
        ("[1, 2] | length, 'abc' | count, {'a': 1} | length", (2, 3, 1)),
        ("'aBc' | upper, 'aBc' | lower, 'aBc dE-f' | title, 'aBc' | capitalize", ("ABC", "abc", "Abc De-F", "Abc")),
        ("'  a ' | trim, 'xxaxx' | trim('x')", ("a", "a")),
        ("'aaa' | replace('a', 'b'), 'aaa' | replace('a', 'b', 2), 'ab' | replace('', '-')", ("bbb", "bba", "-a-b-")),
        ("[1, 'a', none] | join(', '), people | join('/', attribute='name')", ("1, a, null", "Bo/al/Cy")),
        ("[1, 2] | first, [1, 2] | last, 'ab' | first", (1, 2, "a")),
        ("'ab' | list, {'a': 1} | list", (["a", "b"], ["a"])),
        ("['b', 'B', 'a'] | unique, [1, 1.0, [1], [1]] | unique", (["b", "a"], [1, [1]])),
        ("['b', 'B', 'a'] | unique(case_sensitive=true)", ["b", "B", "a"]),
        ("['b', 'A', 'c'] | sort, ['b', 'A', 'c'] | sort(case_sensitive=true)", (["A", "b", "c"], ["A", "b", "c"])),
        ("[3, 1, 2.5] | sort(reverse=true)", [3, 2.5, 1]),
        ("people | sort(attribute='age,name') | map(attribute='name') | list", ["al", "Bo", "Cy"]),
        ("people | sort(attribute='age') | map(attribute='name') | join", "alBoCy"),
        ("[[2], [1]] | sort", [[1], [2]]),
        ("[1, 2] | reverse, 'ab' | reverse", ([2, 1], "ba")),
        ("people | map('length') | list", [2, 2, 2]),
        ("['a'] | map('replace', 'a', 'b') | list", ["b"]),
        ("[{}, {'a': 1}] | map(attribute='a', default=0) | list", [0, 1]),
        ("[{'a': {'b': [5]}}] | map(attribute='a.b.0') | list", [5]),
        ("[0, 1, '', 'x'] | select, [0, 1] | reject", ([1, "x"], [0])),
        ("[1, 2, 3] | select('odd') | list, [1, 2, 3] | reject('gt', 1) | list", ([1, 3], [1])),
        ("people | selectattr('age', 'eq', 3) | map(attribute='name') | list", ["Bo", "Cy"]),
        ("people | rejectattr('age', 'eq', 3) | map(attribute='name') | list", ["al"]),
        ("[{'a': 1}, {}] | selectattr('a') | list", [{"a": 1}]),
        ("[1, 2] | sum, people | sum(attribute='age'), [[1], [2]] | sum(start=[])", (3, 7, [1, 2])),
        ("[2, 1] | min, ['b', 'A'] | max, people | min(attribute='age')", (1, "b", {"name": "al", "age": 1})),
        ("2.5 | round, 2.567 | round(2), 2.1 | round(method='ceil'), 2.9 | round(0, 'floor')", (2.0, 2.57, 3.0, 2.0)),
        ("'42' | int, '4.7' | int, 'x' | int, 'x' | int(7), 'ff' | int(base=16), true | int", (42, 4, 0, 7, 255, 1)),
        ("'1.5' | float, 'x' | float, 2 | float", (1.5, 0.0, 2.0)),
        ("-3 | abs", 3),
        ("(-3) | abs, 5 | string, [1] | string", (3, "5", "[1]")),
        ("{'é': [1, '<']} | tojson", '{"é": [1, "<"]}'),
        ("{'a': [1, 2], 'b': {}} | tojson(indent=2)", '{\n  "a": [\n    1,\n    2\n  ],\n  "b": {}\n}'),
        ("'a\nb\n\nc' | indent(2), 'a\nb' | indent('> ', true)", ("a\n  b\n\n  c", "> a\n> b")),
        ("'one two three four' | truncate(11)", "one two..."),
        ("'one two three four' | truncate(12, true)", "one two t..."),
        ("'short' | truncate(3), 'a, b c' | wordcount", ("short", 3)),
        ("{'b': 1, 'A': 2} | dictsort", [("A", 2), ("b", 1)]),
        ("{'b': 1, 'a': 2} | dictsort(by='value')", [("b", 1), ("a", 2)]),
        ("{'a': 1} | items", [("a", 1)]),
        ("[1, 2, 3] | batch(2, 0) | list, [1, 2, 3] | slice(2) | list", ([[1, 2], [3, 0]], [[1, 2], [3]])),
        ("[1, 2, 3, 4, 5] | slice(3, 'x')", [[1, 2], [3, 4], [5, "x"]]),
        ("'ab' | center(6)", "  ab  "),
        ("'%s is %05.2f, %d%%' | format('x', 3.14159, 7)", "x is 03.14, 7%"),
        ("'%-4s|%4s' | format('a', 'b')", "a   |   b"),
        ("'a b/é' | urlencode, {'a b': 1, 'c': 'x&y'} | urlencode", ("a%20b/%C3%A9", "a+b=1&c=x%26y")),
        ("'<a href=\"x\">\\'&' | escape", "&lt;a href=&#34;x&#34;&gt;&#39;&amp;"),
        ("'a, b' | split(','), ' a  b\nc' | split, 'a-b-c' | split('-', 1)", (["a", " b"], [*"abc"], ["a", "b-c"])),
        ("'' | split, '' | split(','), 'ab' | split('-'), 'a,b' | split(',', count=0)", ([], [""], ["ab"], ["a,b"])),
        ("['a-b', 'c'] | map('split', '-') | list", [["a", "b"], ["c"]]),
        ("'{\"a\": [1, 2.5, null, true, \"é\"]}' | from_json", {"a": [1, 2.5, None, True, "é"]}),
        ("('{\"a\": {\"b\": 7}}' | from_json).a.b", 7),
        ("[1, 'x'] | from_json, 5 | from_json, 'null' | from_json", ([1, "x"], 5, None)),
        (r"'2026-11-22' | regex_replace('(\\d+)-(\\d+)-(\\d+)', '\\3.\\2.\\1')", "22.11.2026"),
        (r"'Ab ab' | regex_replace('(?<w>a)b', '<\\g<w>>', ignorecase=true)", "<A> <a>"),
        (r"'a1b22' | regex_replace('\\d+'), 'a1b22' | regex_replace('\\d', '#', 1)", ("ab", "a#b22")),
        (r"'日本、東京' | regex_replace('\\p{P}', ' '), 'abc' | regex_replace('x*', '-')", ("日本 東京", "-a-b-c-")),
    ],
)  # fmt: skip
def test_filters(source: str, value: Any) -> None:
    result = compile_expression(f"({source})")(SCOPE)
    assert result == value
    assert type(result) is type(value)


def test_groupby_gives_groups_that_have_names_and_unpack() -> None:
    source = "{% for age, group in people | groupby('age') %}{{ age }}:{{ group | join(',', 'name') }} {% endfor %}"
    assert compile_template(source)(SCOPE) == "1:al 3:Bo,Cy "
    assert compile_template("{{ (people | groupby('age') | first).grouper }}")(SCOPE) == 1


@pytest.mark.parametrize(
    ("test", "yes", "no"),
    [
        ("none", "none", "0"),
        ("string", "'x'", "1"),
        ("number", "1.5", "'1'"),
        ("integer", "1", "true"),
        ("float", "1.5", "1"),
        ("boolean", "true", "1"),
        ("mapping", "{}", "[]"),
        ("sequence", "[]", "1"),
        ("iterable", "'x'", "1"),
        ("even", "2", "1"),
        ("odd", "1", "2"),
        ("divisibleby 3", "9", "10"),
        ("eq 1", "1", "2"),
        ("ne(1)", "2", "1"),
        ("lt(2)", "1", "2"),
        ("le(2)", "2", "3"),
        ("gt(2)", "3", "2"),
        ("ge(2)", "2", "1"),
        ("in [1]", "1", "2"),
        ("true", "true", "1"),
        ("false", "false", "0"),
        ("lower", "'a'", "'A'"),
        ("upper", "'A'", "'a'"),
        ("filter", "'upper'", "'attr'"),
        ("test", "'odd'", "'callable'"),
        ("defined", "1", "inputs.nope"),
        ("undefined", "inputs.nope", "1"),
    ],
)
def test_tests(test: str, yes: str, no: str) -> None:
    assert compile_predicate(f"{yes} is {test}")(SCOPE) is True
    assert compile_predicate(f"{no} is {test}")(SCOPE) is False
    assert compile_predicate(f"{no} is not {test}")(SCOPE) is True


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("inputs.flag", 'inputs.flag: expected true or false, got a string: "false"'),
        ("inputs.n", "inputs.n: expected true or false, got a number: 4"),
        ("inputs.list", "inputs.list: expected true or false, got a list: [3, 1, 2]"),
        ("none", "expected true or false, got null"),
        ("opaque", "opaque: expected true or false, got a value of type Opaque: …"),
        ("inputs.flag and true", 'inputs.flag: expected true or false, got a string: "false"'),
        ("true and inputs.flag", 'inputs.flag: expected true or false, got a string: "false"'),
        ("inputs.flag or true", 'inputs.flag: expected true or false, got a string: "false"'),
        ("false or inputs['flag']", 'inputs[…]: expected true or false, got a string: "false"'),
        ("not inputs.flag", 'inputs.flag: expected true or false, got a string: "false"'),
        ("not (true and inputs.flag)", 'inputs.flag: expected true or false, got a string: "false"'),
        ("true if inputs.flag else false", 'inputs.flag: expected true or false, got a string: "false"'),
        ("inputs.flag if true else false", 'inputs.flag: expected true or false, got a string: "false"'),
        ("(inputs.flag | lower) and true", 'expected true or false, got a string: "false"'),
        ("not none", "expected true or false, got null"),
        ("(not inputs.flag) == true", 'inputs.flag: expected true or false, got a string: "false"'),
    ],
)
def test_a_condition_must_be_a_boolean(source: str, message: str) -> None:
    with pytest.raises(TemplateError) as raised:
        compile_predicate(source)(SCOPE)
    assert str(raised.value) == message


def test_the_test_of_an_inline_if_must_be_a_boolean_in_any_bare_expression() -> None:
    with pytest.raises(TemplateError, match=r"inputs\.flag: expected true or false"):
        compile_expression("[1] if inputs.flag else []")(SCOPE)


def test_a_template_takes_any_value_as_a_test() -> None:
    scope = {"x": "", "y": "text", "xs": []}
    assert compile_template("{{ 'a' if x else 'b' }}{{ 'a' if y else 'b' }}{% if xs %}c{% endif %}")(scope) == "ba"
    assert compile_template("{{ not xs }}")(scope) is True
    assert compile_template("{{ x or y }}")(scope) == "text"


def test_a_way_to_round_that_is_no_text_is_refused() -> None:
    with pytest.raises(TemplateError, match="round knows the methods"):
        compile_expression("1.5 | round(1, ['ceil'])")(SCOPE)


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(TemplateError) as raised:
        compile_predicate("x")({"x": ["y" * 100] * 10_000})
    assert len(str(raised.value)) < 120


@pytest.mark.parametrize(
    "source",
    [
        "''.__class__",
        "''.__class__.__mro__[1]",
        "inputs.__class__.__init__",
        "inputs['__class__'].__mro__",
        "inputs.list.append",
        "inputs.name.format",
        "report.method",
        "report.computed",
        "report.model_fields",
        "report.__dict__",
        "report._secret",
        "point._private",
        "point.__dict__",
        "nodes.a._fields",
        "nodes.a.count",
        "nodes.__getitem__",
        "lazy.keys",
        "status.name",
        "day.year",
        "opaque.x",
        "(range(3)).__class__",
        "people | map(attribute='__class__') | first",
        "people | map(attribute='name.__class__') | first",
        "report['__class__']",
        "loop",
        "self",
        "cycler",
        "config",
    ],
)
def test_nothing_but_declared_data_can_be_reached(source: str) -> None:
    try:
        found = compile_expression(source)(SCOPE)
    except TemplateError:
        return
    assert isinstance(found, Missing)


@pytest.mark.parametrize(
    "source",
    ["''|attr('x')", "x()", "x.y()", "'{0.a}'.format(x)", "x.items.append(1)", "''.join([])", "x[0]()", "range.x()",
     "(range)(1).append(2)", "namespace()", "dict()", "x|xmlattr", "x|pprint", "x|random", "x|safe"],
)  # fmt: skip
def test_calls_and_filters_outside_the_lists_do_not_parse(source: str) -> None:
    with pytest.raises(TemplateSyntaxError):
        compile_expression(source)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("1 / 0", "`/`: division by zero"),
        ("1 // 0", "`//`: "),
        ("1 % 0", "`%`: "),
        ("'a' % 1", "`%` does not format text here"),
        ("'a' + 1", "`+` does not take a string and a number"),
        ("'a' < 1", "a string and a number cannot be ordered"),
        ("[1, 'a'] | sort", "and a"),
        ("1 | length", "a number has no length"),
        ("inputs.list.x", "inputs.list.x: a list has no field 'x'"),
        ("inputs.list['x']", "inputs.list.x: a list has no field 'x'"),
        ("{[1]: 2}", "a list cannot be a key"),
        ("opaque ~ ''", "a value of type Opaque cannot be printed"),
        ("'a' | truncate('x')", "length must be a whole number, not a string"),
        ("[1] | map('uper' ~ '')", "unknown filter \"uper\"; did you mean 'upper'?"),
        ("[1] | map('replace' ~ '', 'a')", "filter 'replace' needs the argument 'new'"),
        ("[[1]] | map(attribute=1.5)", "attribute must be a name, not a number"),
        ("inputs.n.get('x')", "inputs.n.get(…): a number is no mapping"),
        ("inputs.list.items()", "a list has no pairs"),
        ("[1, 2][1.5]", "a list is read by position, not by a number"),
        ("(1.0 / 3e-310) | tojson", "JSON has no Infinity"),
        ("'%q' | format(1)", "format knows %s, %d, %f and %% only"),
        ("'%d' | format", "format was given fewer values"),
        ("'%d' | format('x')", "the value of %d in format must be a number, not a string"),
        ("range(1, 2, 0)", "the step of range() cannot be 0"),
        ("'a' | split('')", "the separator of split is empty"),
        ("'a' | split(',', -1)", "count must be between 0 and"),
        ("'[1, 2' | from_json", "is no JSON: Expecting ',' delimiter (line 1, column 6)"),
        ("'[NaN]' | from_json", "JSON has no NaN"),
        ("'1e999' | from_json", "the number 1e999 is too large"),
        ("opaque | from_json", "a value of type Opaque cannot be printed"),
        ("'a' | regex_replace('(', '')", "is no regular expression: missing )"),
        (r"'a' | regex_replace('a', '\\2')", "regex_replace: no such group"),
    ],
)
def test_an_error_of_an_evaluation_says_what_was_found(source: str, message: str) -> None:
    with pytest.raises(TemplateError) as raised:
        compile_expression(source)({**SCOPE})
    assert message in str(raised.value)
    cause = raised.value.__cause__  # It is told behind the message where that does not have its text.
    assert cause is None or str(cause) in str(raised.value)


def test_a_scope_is_asked_for_names_and_never_listed() -> None:
    assert compile_template("n = {{ a }}{{ b | default('-') }}")(Lazy()) == "n = 1-"


def test_errors_of_a_lazy_scope_pass_through() -> None:
    class Failing:
        def __getitem__(self, name: str, /) -> Any:
            raise ConnectionError(name)

    with pytest.raises(ConnectionError):
        compile_expression("a.b")(Failing())


def test_a_template_is_compiled_once_a_source() -> None:
    assert compile_template("{{ once }}") is compile_template("{{ once }}")


def test_evaluations_do_not_share_their_names_or_their_fuel() -> None:
    template = compile_template("{% if x %}{% set y = x %}{% endif %}{{ y | default('-') }}{{ range(90000) | length }}")
    assert [template({"x": each}) for each in (1, 0, 2)] == ["190000", "-90000", "290000"]


def test_a_dict_that_fills_itself_is_not_filled() -> None:
    filling: dict[str, list[int]] = defaultdict(list)
    assert compile_expression("d.a is defined")({"d": filling}) is False
    assert not filling


def test_a_result_prints_as_its_content() -> None:
    scope = {"r": LLMResult(content=EvaluationResult(content="deep", score=1, passed=True))}
    assert compile_template("{{ r }}!")(scope) == "deep!"


def words(text: str) -> st.SearchStrategy[str]:
    return st.sampled_from(text.split())


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | words("{{a}} {%if%} {{"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc_"), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
SMALL = {"a": 1, "b": "text", "c": [1, "x", None], "d": {"a": [2]}, "big": "z" * 300_000, "n": list(range(20_000))}


ATOMS = words("a b c d big n 0 1 2.5 -1 'x' '%s' [] {} none true nope d.a c[0] c[-1] a.b d.a.b range(9) 99999999999")
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, words("+ - * / // % ** ~ and or == < >= in"), inner),
        st.builds("({} | {})".format, inner, words(
            "upper length list sort unique first sum max tojson int float round abs string items reverse title e trim "
            "center(99) batch(2) slice(3) indent wordcount urlencode dictsort truncate(5) join(b) join(big) capitalize "
            "replace('z',big) map('upper') map(attribute='a') select('odd') groupby('a') format(1) default(big) "
            "split split(b) from_json regex_replace('z+','y') regex_replace(b,big)"
        )),
        st.builds("({}[{}])".format, inner, inner),
        st.builds("({}[{}:{}])".format, inner, inner, inner),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("[{}, {}]".format, inner, inner),
        st.builds("{{'k': {}}}".format, inner),
        st.builds("({} is {})".format, inner, st.sampled_from(["defined", "odd", "string", "in(n)", "divisibleby(3)"])),
    ),
    max_leaves=8,
)  # fmt: skip


def size(value: Any) -> int:
    """Characters or items, whichever is more, in the largest part."""
    if isinstance(value, (list, tuple)):
        return max([len(value), *map(size, value)])
    if isinstance(value, dict):
        return max([len(value), *map(size, value.values())])
    return len(value) if isinstance(value, str) else 0


@settings(max_examples=150, deadline=None)
@given(VALUES)
def test_a_value_is_never_evaluated(value: Any) -> None:
    shown = compile_template("{{ v }}")({"v": value})
    assert shown is value
    text = compile_template("<{{ v }}>")({"v": value, "a": "EVALUATED"})
    assert isinstance(text, str)
    assert "EVALUATED" not in text
    if isinstance(value, str):
        assert text == f"<{value}>"


@pytest.mark.long
@settings(max_examples=400, deadline=None)
@given(EXPRESSIONS)
def test_any_expression_gives_a_value_within_the_caps_or_a_template_error(source: str) -> None:
    scope = Recording(SMALL)
    try:
        value = compile_expression(source)(scope)
        text = compile_template(f"{{% for i in [1, 2] %}}{{{{ {source} }}}}{{% endfor %}}")(SMALL)
    except (TemplateError, TemplateSyntaxError):
        return
    assert scope.asked <= {each.path[0] for each in parse_expression(source).references}
    assert size(value) <= max(MAX_TEXT, MAX_ITEMS)
    assert not isinstance(value, int) or value.bit_length() <= MAX_INT_BITS
    assert len(text) <= MAX_TEXT
