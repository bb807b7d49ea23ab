r"""Converts Jinja templates of others to templates of ours, where these can say the same.

Outer names become expressions of the flow, the newline behind a block goes where the source says `trim_blocks`, and
a field that is not there is nothing, as Jinja has it. What our language does not have is told: the caller then renders
the template by code (`rendering_module`).

    >>> convert("{% for x in rows %}\n- {{ x.name }}\n{% endfor %}\n", {"rows": "inputs.rows"}, trim_blocks=True).text
    '{% for x in inputs.rows -%}\n- {{ x.name | default("") }}\n{% endfor %}'
    >>> convert("draw {{ x.name }}", {"x": "inputs.x"}).text
    'draw {{ inputs.x.name | default("") }}'
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from flowengine.core.templating import ParsedTemplate, has_tags, parse_template
from flowengine.errors import TemplateSyntaxError

_OPENING: Final = re.compile(r"\{[%#{]")
_CLOSING: Final = {"{%": "%}", "{#": "#}", "{{": "}}"}
_NAME: Final = re.compile(r"[^\W\d]\w*")
_METHODS: Final = (
    (re.compile(r"\.(upper|lower|title|capitalize)\(\)"), r"|\1"),
    (re.compile(r"\.(?:strip|lstrip|rstrip)\(\)"), "|trim"),
    (re.compile(r"\.(split|join|replace)\("), ""),
)
_FIELD: Final = re.compile(
    r"(?P<head>\{\{[-+]?\s*|\{%[-+]?\s*for\s[^%|]*?\sin\s+)"
    r"(?P<path>(?!loop\b)[^\W\d]\w*+(?:\.[^\W\d]\w*+|\[[0-9]++\]|\[\"[^\"]*+\"\]|\['[^']*+'\])++)"
    r"(?=\s*(?:[-+]?[}%]\}|if\s|\|\s*(?!d\b|default\b|tojson\b)))"
)
"""A field of something that a tag prints or goes through."""
_RAW: Final = re.compile(r"\{%[-+]?\s*raw\b")
_RENDERING_MODULE: Final = '''\
"""Renders the Jinja templates that use more than templates of flows have; the files stand in `templates/`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2.sandbox import SandboxedEnvironment

_ENVIRONMENT = SandboxedEnvironment(SETTINGS)


def render(template: str, values: dict[str, Any]) -> str:
    """The text of a file of `templates/`."""
    if Path(template).name != template:
        raise ValueError(f"{template} is not the name of a template")
    source = (Path(__file__).parent / "templates" / template).read_text("utf-8")
    return _ENVIRONMENT.from_string(source).render(values)
'''


def rendering_module(settings: str = "") -> str:
    """The module that renders templates, with settings of the environment that the source had."""
    return _RENDERING_MODULE.replace("SETTINGS", settings)


class Converted(NamedTuple):
    """A template of ours, or why there is none."""

    text: str
    problem: str = ""
    missing: tuple[str, ...] = ()
    """Names without a value: they are empty, as Jinja has it."""


def convert(text: str, names: Mapping[str, str], *, trim_blocks: bool = False) -> Converted:
    """The template with its outer names replaced. `names`: name → expression of ours."""
    text = text.replace("\r\n", "\n")
    if not has_tags(text):
        return Converted(text)
    template = _trim_blocks(text) if trim_blocks else text
    template = _fill_fields(_replace_methods(template))
    try:
        tree = parse_template(template)
    except TemplateSyntaxError as error:
        return Converted(text, str(error))
    return _rename(template, tree, names)


def _trim_blocks(text: str) -> str:
    """The text without the newline behind each block: by a minus where that is the same, else by leaving it out."""
    parts: list[str] = []
    at = 0
    for start, end in _find_tags(text):
        tag = text[start:end]
        parts += [text[at:start], tag]
        at = end
        if tag.startswith("{{") or not text.startswith("\n", at) or tag[-3:-2] in "-+":
            continue
        after = text[at + 1 : at + 2]
        if tag.startswith("{%") and after and not after.isspace() and not tag.startswith("{% raw"):
            parts[-1] = f"{tag[:-2].rstrip()} -%}}"
        else:
            at += 1
    return "".join([*parts, text[at:]])


def _find_tags(text: str) -> Iterator[tuple[int, int]]:
    """Finds tags and comments in linear time; an unterminated one does not count."""
    endless: set[str] = set()
    at = 0
    while (opening := _OPENING.search(text, at)) is not None:
        end = -1 if opening[0] in endless else text.find(_CLOSING[opening[0]], opening.end())
        if end < 0:
            endless.add(opening[0])
            at = opening.start() + 1
        else:
            at = end + 2
            yield opening.start(), at


def _replace_methods(text: str) -> str:
    """Python's methods of texts as filters, inside the tags."""
    parts: list[str] = []
    at = 0
    for start, end in _find_tags(text):
        tag = text[start:end]
        for pattern, filtered in _METHODS[:2]:
            tag = pattern.sub(filtered, tag)
        parts += [text[at:start], tag]
        at = end
    return "".join([*parts, text[at:]])


def _fill_fields(text: str) -> str:
    """The text with a default behind each field that is printed or gone through: Jinja takes it for nothing."""
    if _RAW.search(text):
        return text
    parts: list[str] = []
    at = 0
    for start, end in _find_tags(text):
        field = _FIELD.match(text, start, end)
        if field is not None:
            default = '""' if text.startswith("{{", start) else "[]"
            parts += [text[at : field.end()], f" | default({default})"]
            at = field.end()
    return "".join([*parts, text[at:]])


def _rename(text: str, tree: ParsedTemplate, names: Mapping[str, str]) -> Converted:
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    edits: dict[int, tuple[str, str]] = {}
    missing: dict[str, None] = {}
    for reference in tree.references:
        name = reference.path[0]
        instead = names.get(name)
        if reference.may_be_own:
            if instead is None:
                continue
            return Converted(text, f"'{name}' is an outer name in one branch, and set in another")
        if instead is None:
            missing[name] = None
            instead = '""'
        at = starts[reference.line - 1] + reference.column - 1
        match = _NAME.match(text, at)
        if match is None or match[0] != name:
            return Converted(text, f"'{name}' cannot be placed")
        edits[at] = (name, instead)
    parts: list[str] = []
    done = 0
    for at in sorted(edits):
        name, instead = edits[at]
        end = at + len(name)
        space, after = " " * text.endswith("{{", 0, at), " " * text.startswith("}}", end)
        parts += [text[done:at], space, instead, after]
        done = end
    return Converted("".join([*parts, text[done:]]), missing=tuple(missing))
