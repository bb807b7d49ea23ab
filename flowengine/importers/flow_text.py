"""Writes texts, values and paths of a source as templates and expressions of ours.

Text of the source that looks like a template stays text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, cast

from flowengine.core import is_map

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def literal(text: str, *, is_end: bool = True) -> str:
    """A plain text as a template that gives it; `is_end`: nothing follows it.

    >>> literal('{"a": {{b}} }')
    '{"a": {{ "{{" }}b}} }'
    """
    return re.sub(r"\{[{%#]" if is_end else r"\{(?:[{%#]|\Z)", lambda match: f'{{{{ "{match[0]}" }}}}', text)


def escape_text(text: str, *, is_end: bool = False) -> str:
    """A plain text as a template that prints it, whatever follows it; `is_end`: nothing does.

    >>> print(escape_text("{{b}} {"), escape_text("{", is_end=True))
    {{ "{" }}{b}} {{ "{" }} {
    """
    return re.sub(r"\{(?=[{%#])" if is_end else r"\{(?=[{%#]|\Z)", '{{ "{" }}', text)


def fill_text(
    text: str,
    pattern: re.Pattern[str],
    meaning: Callable[[re.Match[str]], str | None],
    *,
    escape: Callable[[str], str] = escape_text,
    last: Callable[[str], str] = literal,
) -> str:
    """A text with what a pattern finds in it as templates, and all else as text.

    `meaning` gives the template, or None for what is text, too; `escape` is for what stands before a template, `last`
    for the end.
    """
    parts: list[str] = []
    at = 0
    for match in pattern.finditer(text):
        replacement = meaning(match)
        if replacement is not None:
            parts += [escape(text[at : match.start()]), replacement]
            at = match.end()
    return "".join([*parts, last(text[at:])])


def plain_words(text: object, longest: int = 400) -> str:
    """A text for readers: on one line, without what looks like a template."""
    return re.sub(r"\{(?=[{%#])", "{ ", " ".join(str("" if text is None else text).split())[:longest])


def to_tag(expression: str) -> str:
    """An expression as a template."""
    return f"{{{{ {expression} }}}}"


def to_expression(template: str) -> str:
    """A template without blocks as an expression.

    >>> to_expression("{{ a }}"), to_expression("about {{ a }}")
    ('a', '"about " ~ a')
    """
    pieces = [each for each in re.split(r"(\{\{.*?\}\})", template, flags=re.DOTALL) if each]
    return " ~ ".join(each[2:-2].strip() if each.startswith("{{") else quote(each) for each in pieces) or '""'


def join_tests(tests: Sequence[str], word: str = "or") -> str:
    """Expressions that decide together: each in brackets, or the only one as it is."""
    return tests[0] if len(tests) == 1 else f" {word} ".join(f"({each})" for each in tests)


def status_test(id: str, sign: str = "==") -> str:
    """The expression that says whether a node succeeded."""
    return f'nodes.{id}.status {sign} "succeeded"'


def key_path(start: str, keys: Iterable[str | int]) -> str:
    """A path in an expression.

    >>> key_path("a", ["b", "c d", 0])
    'a.b["c d"][0]'
    """
    return start + "".join(
        f".{key}"
        if isinstance(key, str) and _NAME.fullmatch(key)
        else f"[{quote(key) if isinstance(key, str) else key}]"
        for key in keys
    )


def quote(text: str) -> str:
    r"""A text as an expression, in which nothing looks like a tag of a template.

    >>> print(quote('a "b"'), quote("{{ c"))
    "a \"b\"" ("{" ~ "{ c")
    """
    literal_text = re.sub(r"\{(?=[{%#])|\}(?=\})|%(?=\})|#(?=\})", r'\g<0>" ~ "', json.dumps(text, ensure_ascii=False))
    return f"({literal_text})" if literal_text.count('"') != json.dumps(text).count('"') else literal_text


def quote_value(value: Any, quote_text: Callable[[str], str] = quote) -> str:
    """A value of JSON as an expression; `quote_text` says what a text of it is.

    >>> quote_value({"a": [None, True, "{{"]})
    '{"a": [none, true, ("{" ~ "{")] }'
    """
    if isinstance(value, str):
        return quote_text(value)
    if is_map(value):
        pairs = (f"{quote(str(key))}: {quote_value(each, quote_text)}" for key, each in value.items())
        return "{" + ", ".join(pairs) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(quote_value(each, quote_text) for each in cast("list[Any]", value)) + "]"
    return "none" if value is None else json.dumps(value)
