"""How long a template can become: never shorter than it does become."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.core.templating.compile import compile_template
from flowengine.flowfile.estimate.text_sizes import UNKNOWN, Size, size_of_expression, size_of_template, size_of_value
from flowengine.models.tokens import count_tokens

INPUTS: dict[str, Any] = {
    "word": "sencha and gyokuro",
    "words": ["green", "black", "oolong tea from Taiwan"],
    "nested": {"tea": {"hot": ["one", "two words"]}},
    "n": 12345,
    "no": False,
}
VALUES: dict[str, Any] = {"inputs": INPUTS}


def known(path: tuple[str, ...]) -> Size:
    value: Any = VALUES
    for field in path:
        value = value[field]
    return size_of_value(value)


@pytest.mark.parametrize(
    "source",
    [
        "",
        "No placeholder at all.",
        "{{ inputs.word }}",
        "Say {{ inputs.word }} and {{ inputs['word'] }}.",
        "{{ inputs.words | join(', ') }}",
        "{{ inputs.words }}",
        "{{ inputs.words[2] }} {{ inputs.words | first }} {{ inputs.words | last }}",
        "{{ inputs.nested.tea.hot | tojson }}",
        "{{ inputs.nothing | default('a long text instead of nothing') }}",
        "{{ inputs.nothing or inputs.word }}",
        "{{ inputs.n }} {{ inputs.words | length }} {{ inputs.n > 3 }} {{ not inputs.no }}",
        "{% if inputs.no %}{{ inputs.word }}{% elif inputs.n %}yes{% else %}{{ inputs.words }}{% endif %}",
        "{{ inputs.word if inputs.n else 'nothing' }}",
        "{{ inputs.word ~ ', ' ~ inputs.n }}",
        "{% for each in inputs.words %}- {{ loop.index }}. {{ each }} ({{ inputs.word }})\n{% endfor %}",
        "{% for each in inputs.words %}{{ each }}{{ each }}{% endfor %}",
        "{% for each in ['a', inputs.word] %}{{ each }}{% else %}none{% endfor %}",
        "{{ inputs.word | trim }}",
        "{{ inputs.word | int('a long text for what is no number, longer than any number that there is or will be') }}",
    ],
)
def test_a_text_is_no_longer_than_its_bound_and_the_bound_is_near(source: str) -> None:
    def lookup(path: tuple[str, ...]) -> Size:
        return Size(0) if path == ("inputs", "nothing") else known(path)

    text = str(compile_template(source)(VALUES))
    size = size_of_template(source, lookup).tokens
    assert size is not None
    assert count_tokens(text) <= size * 1.05 + 2
    assert size <= 4 * count_tokens(text) + 40


@pytest.mark.parametrize(
    "source",
    [
        "{{ shared_state.x }}",
        "{{ inputs.word | replace('e', 'a long text') }}",
        "{{ inputs.word | indent(40) }}",
        "{{ inputs.word * 1000 }}",
        "{{ inputs.words | map('upper') }}",
        "{% for each in inputs.nested %}{{ each }}{% endfor %}",
        "{% for each in inputs.words[1:] %}{{ each }}{% endfor %}",
        "{% for each in inputs.words[0] %}x{% endfor %}",
        "{% for each in inputs.words %}{{ loop.nextitem | default('') }}{% endfor %}",
        "{% set x = inputs.word %}{{ x }}",
        "{{ inputs.word | default(value=inputs.words) }}",
        "{{ this is no template",
    ],
)
def test_what_may_grow_in_ways_that_are_not_understood_has_no_bound(source: str) -> None:
    def lookup(path: tuple[str, ...]) -> Size:
        return known(path) if path[0] == "inputs" else UNKNOWN

    assert size_of_template(source, lookup).tokens is None


def test_a_lone_list_keeps_the_number_of_its_items() -> None:
    assert size_of_template("{{ inputs.words }}", known).items == 3
    assert size_of_expression("inputs.words", known).items == 3
    assert size_of_expression("inputs.words | sort", known).items == 3
    assert size_of_expression("[1, inputs.n]", known).items == 2
    assert size_of_template("{{ inputs.words }}.", known).items is None
    assert size_of_expression("inputs.words[0]", known).items is None
    assert size_of_expression("inputs.words | first", known).items is None
