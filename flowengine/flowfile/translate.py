"""Translates what pydantic says about a file into our words: a code, a place, what was found and what was expected.

It checks nothing itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, lru_cache
from types import UnionType
from typing import Annotated, Any, Final, NamedTuple, Union, cast, get_args, get_origin

from pydantic import BaseModel, Tag, ValidationError

from flowengine.core import is_map
from flowengine.errors import Diagnostic
from flowengine.flowfile.analysis import node_at
from flowengine.flowfile.checks import Nearest
from flowengine.flowfile.schema import RACE, FlowSpec, ModelSettings, format_found, node_types, shorten_message, spec_of
from flowengine.flowfile.yaml import SourceText


class Problem(NamedTuple):
    """One problem and the path of the value that has it."""

    diagnostic: Diagnostic
    path: tuple[str | int, ...]
    lacks: str | None = None
    """The key that is missing at the path."""


class _Mistake(NamedTuple):
    """One error of pydantic, its location without the names of union branches."""

    kind: str
    path: tuple[str | int, ...]
    location: tuple[str | int, ...]
    value: Any
    context: Mapping[str, Any]


class _Words(NamedTuple):
    """A diagnostic before it has a place."""

    code: str
    message: str
    hint: str = ""
    at_key: bool = False
    lacks: str | None = None
    inside: tuple[str | int, ...] = ()
    """The part of the value that is meant."""


def problems_of(error: ValidationError, source: SourceText) -> list[Problem]:
    """Everything that an error of pydantic holds."""
    nearest = Nearest()
    problems = [
        _problem(_translate_error(each), source, nearest) for each in cast("list[Any]", error.errors(include_url=False))
    ]
    proposed = {(each.path[:-1], each.diagnostic.hint) for each in problems if each.diagnostic.code == "FE201"}
    return [each for each in problems if (each.path, f"; did you mean '{each.lacks}'?") not in proposed]


def _translate_error(error: Mapping[str, Any]) -> _Mistake:
    location: tuple[str | int, ...] = error["loc"]
    path = tuple(part for part in location if not _is_tag(part) and part != "[key]")
    context: Mapping[str, Any] = error.get("ctx") or {}
    if "at" in context:
        at: str | tuple[str | int, ...] = context["at"]
        path = (*path, *((at,) if isinstance(at, str) else at))
    return _Mistake(error["type"], path, location, error["input"], context)


def _is_tag(part: str | int) -> bool:
    return isinstance(part, str) and part.startswith("<") and part.endswith(">")


def _problem(mistake: _Mistake, source: SourceText, nearest: Nearest) -> Problem:
    words = _words(mistake, nearest)
    path = (*mistake.path[:-1],) if mistake.kind == "missing" else mistake.path
    at_key = words.at_key or mistake.location[-1:] == ("[key]",)
    place_of = source.key_position if at_key else source.position
    line, column = place_of((*path, *words.inside))
    file = None if source.path is None else str(source.path)
    node = ".".join(node_at(path)) or None
    found_at = Diagnostic(words.code, shorten_message(words.message), file, line, column, node, words.hint)
    return Problem(found_at, path, words.lacks)


def _words(mistake: _Mistake, nearest: Nearest) -> _Words:
    if mistake.kind.startswith("FE"):
        text = str(mistake.context["text"])
        at_key = "at" in mistake.context or mistake.kind in ("FE202", "FE408")
        return _Words(
            mistake.kind, text, str(mistake.context.get("hint", "")), at_key, inside=mistake.context.get("path", ())
        )
    if mistake.kind in ("union_tag_invalid", "union_tag_not_found"):
        return _branch(mistake, nearest)
    if mistake.kind != "missing" and mistake.value is None:
        return _Words("FE408", "the key has no value; give one, or remove the key", at_key=True)
    translate = _KINDS.get(mistake.kind)
    if translate is not None:
        return translate(mistake, nearest)
    expected = _EXPECTED.get(mistake.kind, "another value")
    hint = ""
    if mistake.kind == "string_type" and isinstance(mistake.value, bool | int | float):
        hint = f'; put it in quotes: "{format_found(mistake.value)}"'
    if (
        expected == "a list"
        and isinstance(mistake.value, str)
        and len(mistake.value) <= _LONGEST
        and _NAMES.fullmatch(mistake.value)
    ):
        hint = f"; a list is written [{mistake.value}]"
    if expected == "a map":
        hint = _example_map(mistake.path)
    elif mistake.path[-1:] == ("over",) and isinstance(cast("object", mistake.value), list):
        hint = "; it is an expression, in which a list may stand: over: \"['tea', 'coffee']\""
    return _Words("FE401", f"expected {expected}, found {format_found(mistake.value)}", hint)


def _example_map(path: tuple[str | int, ...]) -> str:
    key = "an input" if path[:1] == ("inputs",) and len(path) == 2 else str(path[-1]) if path else ""
    return f"; such as {_EXAMPLE_MAPS[key]}" if key in _EXAMPLE_MAPS else ""


_EXAMPLE_MAPS: Final = {
    "inputs": "{topic: {type: string}}",
    "an input": "{type: string}",
    "nodes": "{draft: {prompt: Hello}}",
    "agents": "{writer: {instructions: Be brief}}",
    "outputs": "{text: '{{ nodes.draft.output }}'}",
    "shared_state": "{notes: {default: [], merge: append}}",
    "routes": "{ship: publish, hold: {}}",
    "retry": "{attempts: 3}",
    "limits": "{cost_usd: 0.5}",
    "memory": "{scope_id: '{{ inputs.customer }}'}",
}
"""Keys whose value is a map → how one looks, for files in which something shorter stands."""

_LONGEST: Final = 100
"""Characters of a text that a hint repeats."""
_NAME: Final = r"[A-Za-z_](?:[\w./:-]*\w)?"
_NAMES: Final = re.compile(f"{_NAME}(?:, ?{_NAME})*", re.ASCII)
"""A name, or some with commas between them: in brackets they are texts as well."""

_EXPECTED: Final = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a map",
    "model_type": "a map",
}


def _unknown_key(mistake: _Mistake, nearest: Nearest) -> _Words:
    key = str(mistake.location[-1])
    if key in _MISPLACED.get(mistake.location[-2:-1], {}):
        kind = str(mistake.location[-2]).strip("<>")
        return _Words("FE201", f"'{kind}' takes no '{key}'", _MISPLACED[mistake.location[-2:-1]][key], True)
    keys = _keys_at(mistake.location[:-1])
    if mistake.location[:-1] == ("defaults",) and key in _keys_of(FlowSpec, ("defaults", "agent")):
        return _Words("FE201", f"unknown key '{key}'", f"; it goes to `agent`: {{agent: {{{key}: …}}}}", True)
    if len(mistake.location) == 1 and key in _keys_of(ModelSettings, ()):
        hint = f"; it goes to `defaults`: {{defaults: {{agent: {{{key}: …}}}}}}"
        return _Words("FE201", f"unknown key '{key}'", hint, True)
    if len(mistake.location) == 1 and key == "edges":
        return _Words("FE201", "unknown key 'edges'", "; a node names what it follows: {needs: […]}", True)
    if mistake.location[:1] == ("inputs",) and key in _OF_A_SCHEMA:
        return _Words("FE201", f"unknown key '{key}'", f"; it goes to `schema`: {{schema: {{{key}: …}}}}", True)
    proposal = next((each for each in _ELSEWHERE.get(key, ()) if each in keys), None)
    hint = (
        f"; did you mean '{proposal}'?" if proposal else nearest(key, keys) or _list_keys(mistake.location[:-1], keys)
    )
    return _Words("FE201", f"unknown key '{key}'", hint, True)


def _list_keys(location: Sequence[str | int], keys: Sequence[str]) -> str:
    """The end of a message: the keys that a map takes, and of a node those that few types of nodes have."""
    if location and _is_tag(location[-1]) and location[-3] == "nodes":
        keys = _keys_of_few(str(location[-1]))
    return f"; it takes {', '.join(keys)}" if 0 < len(keys) <= _MOST_LISTED else ""


@cache
def _keys_of_few(tag: str) -> list[str]:
    kinds = [_keys_of(spec_of(kind), ()) for kind in node_types()]
    own = _keys_of(spec_of(tag.strip("<>")), ())
    return [each for each in own if sum(each in keys for keys in kinds) <= len(kinds) / 2]


_MOST_LISTED: Final = 15


_ELSEWHERE: Final[Mapping[str, Sequence[str]]] = {
    **dict.fromkeys(("otherwise", "default"), ("else",)),
    "condition": ("if", "when"),
    "if": ("when",),
    **dict.fromkeys(("depends_on", "after"), ("needs",)),
    **dict.fromkeys(("args", "arguments"), ("with",)),
    "params": ("query", "with"),
    "data": ("form", "with"),
    "script": ("code",),
    **dict.fromkeys(("items", "foreach", "for_each"), ("over",)),
    **dict.fromkeys(("output", "collect"), ("result",)),
    **dict.fromkeys(("state", "variables"), ("shared_state",)),
    **dict.fromkeys(("steps", "tasks", "stages"), ("nodes",)),
    "initial": ("default",),
    **dict.fromkeys(("parallel", "max_parallel", "max_concurrency"), ("concurrency",)),
    **dict.fromkeys(("context_providers", "providers"), ("context",)),
    "choices": ("routes",),
    "while": ("until",),
    "llm": ("model",),
    "input": ("prompt",),
    **dict.fromkeys(("schema", "output_schema", "response_format"), ("output",)),
    **dict.fromkeys(("function", "func", "callable"), ("call",)),
    **dict.fromkeys(("system", "system_prompt", "system_message"), ("instructions",)),
    **dict.fromkeys(("role", "goal", "backstory", "persona"), ("instructions",)),
    **dict.fromkeys(("user_prompt", "template"), ("prompt",)),
    **dict.fromkeys(("question", "prompt"), ("message",)),
    "inputs": ("with",),
    "body": ("nodes",),
    # What Python calls an agent's settings
    **dict.fromkeys(
        ("evaluation_instructions", "evaluation_criteria", "evaluation_threshold", "evaluation_model"), ("evaluate",)
    ),
    **dict.fromkeys(
        ("orchestration_mode", "max_improvement_iterations", "improvement_patience", "improvement_callback"),
        ("improve",),
    ),
    **dict.fromkeys(("routing_instruction", "routing_instructions", "min_confidence"), ("routing",)),
    **dict.fromkeys(("context_providers_config", "session_history", "conversation_history"), ("context",)),
    "generation_instructions": ("instructions",),
    "output_model": ("output",),
    "max_tool_calls": ("max_tool_rounds",),
}
"""Keys that other tools have → what may be meant by them here."""

_OF_A_SCHEMA: Final = frozenset(
    {"items", "properties", "required", "pattern", "minimum", "maximum", "minLength", "maxLength"}
)
"""Keys of a JSON Schema that an input has inside of `schema` only."""

_OTHER_TYPES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("list", "tuple"), "array"),
    **dict.fromkeys(("dict", "map", "json"), "object"),
    **dict.fromkeys(("float", "double", "decimal"), "number"),
    **dict.fromkeys(("str", "text"), "string"),
    "int": "integer",
    "bool": "boolean",
    **dict.fromkeys(("image", "pdf", "audio"), "file"),
}
"""Types of values as other languages call them → as they are called here."""

_OTHER_KINDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("llm", "chat", "prompt", "model", "generate"), "agent"),
    **dict.fromkeys(("if", "switch", "branch", "decision"), "condition"),
    **dict.fromkeys(("router", "classifier"), "routing"),
    **dict.fromkeys(("judge", "evaluator"), "evaluation"),
    **dict.fromkeys(("human", "human_input", "human_in_the_loop"), "approval"),
    **dict.fromkeys(("python", "script"), "code"),
    **dict.fromkeys(("foreach", "for_each", "parallel"), "map"),
    **dict.fromkeys(("while", "repeat"), "loop"),
    **dict.fromkeys(("flow", "workflow"), "subflow"),
    **dict.fromkeys(("request", "http_request", "webhook", "api"), "http"),
}
"""Types of nodes as other tools call them → as they are called here."""


_INSIDE: Final = {
    "retry": "; put it on the nodes inside, which are what can be repeated",
    "prompt": "; put it on a node inside: {nodes: {answer: {prompt: …}}}",
}
_WAITING: Final = {"timeout": "; how long it waits is `expires`", "retry": "; nothing of it can fail for a while"}
_MISPLACED: Final[Mapping[tuple[str | int, ...], Mapping[str, str]]] = {
    ("<map>",): _INSIDE,
    ("<loop>",): _INSIDE,
    ("<subflow>",): {"retry": _INSIDE["retry"]},
    ("<approval>",): _WAITING,
}
"""Kind of a node → keys that other kinds have, and what to write instead."""


def _missing_key(mistake: _Mistake, nearest: Nearest) -> _Words:
    key = str(mistake.path[-1])
    return _Words("FE202", f"the key '{key}' is missing", at_key=True, lacks=key)


def _not_a_word(mistake: _Mistake, nearest: Nearest) -> _Words:
    if mistake.path == ("flowengine",):
        return _Words("FE207", f"this version reads format v1, found {format_found(mistake.value)}")
    words: str = mistake.context["expected"]
    choices = [each.strip("'") for each in words.replace(" or ", ", ").split(", ")]
    hint = _suggest_name(mistake.value, _OTHER_TYPES, choices, nearest)
    return _Words("FE402", f"expected {words}, found {format_found(mistake.value)}", hint)


def _suggest_name(value: Any, elsewhere: Mapping[str, str], names: Collection[str], nearest: Nearest) -> str:
    """The end of a message: what a word of another tool is called here, else the nearest known word."""
    if not isinstance(value, str):
        return ""
    proposal = elsewhere.get(value)
    return f"; did you mean '{proposal}'?" if proposal in names else nearest(value, names)


def _not_a_name(mistake: _Mistake, nearest: Nearest) -> _Words:
    if ":" in mistake.context["pattern"]:
        return _Words(
            "FE409", f"expected 'module:function', found {format_found(mistake.value)}", _colon(mistake.value)
        )
    text = f"{format_found(mistake.value)} is not a valid name: small letters, digits and _, a letter first"
    return _Words("FE206", text, _as_name(str(mistake.value)))


def _colon(value: Any) -> str:
    module, dot, name = str(value).rpartition(".")
    return f"; did you mean '{module}:{name}'?" if dot and ":" not in str(value) else ""


def _as_name(value: str) -> str:
    name = "".join(each if each.isascii() and each.isalnum() else "_" for each in value.lower()).lstrip("_0123456789")
    return f"; did you mean '{name}'?" if name else ""


def _out_of_range(mistake: _Mistake, nearest: Nearest) -> _Words:
    bounds = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
    expected = " and ".join(f"{bounds[key]} {value:g}" for key, value in mistake.context.items() if key in bounds)
    return _Words("FE403", f"expected {expected}, found {format_found(mistake.value)}")


def _too_short(mistake: _Mistake, nearest: Nearest) -> _Words:
    return _Words("FE403", "the value is empty")


_KINDS: Final[dict[str, Callable[[_Mistake, Nearest], _Words]]] = {
    "extra_forbidden": _unknown_key,
    "missing": _missing_key,
    "literal_error": _not_a_word,
    "string_pattern_mismatch": _not_a_name,
    "greater_than": _out_of_range,
    "greater_than_equal": _out_of_range,
    "less_than": _out_of_range,
    "less_than_equal": _out_of_range,
    "string_too_short": _too_short,
    "too_short": _too_short,
}


def _branch(mistake: _Mistake, nearest: Nearest) -> _Words:
    """A value that fits none of a union's branches; for nodes, an unknown type."""
    if mistake.value is None:
        return _Words("FE408", "the key has no value; give one, or remove the key", at_key=True)
    if not is_map(mistake.value) or mistake.path[-2:-1] != ("nodes",):
        return _Words("FE401", f"expected a map, found {format_found(mistake.value)}", _example_map(mistake.path))
    kind = mistake.value.get("type")
    if kind == "race":
        return _Words("FE231", *RACE, inside=("type",))
    hint = _suggest_name(kind, _OTHER_KINDS, node_types(), nearest)
    hint = hint or f"; there are {', '.join(sorted(node_types()))}"
    return _Words("FE204", f"unknown node type {format_found(kind)}", hint, inside=("type",))


# --- the models behind a location --------------------------------------------------------------------


def _keys_at(location: Sequence[str | int]) -> list[str]:
    """The keys that a map at this location may have."""
    starts = [at for at in range(0, len(location) - 2, 3) if location[at] == "nodes" and _is_tag(location[at + 2])]
    if not starts:
        return _keys_of(FlowSpec, tuple(location))
    kind, *inside = location[starts[-1] + 2 :]  # Wherever a node stands: every node of a type has the same keys.
    return _keys_of(spec_of(str(kind).strip("<>")), tuple(inside))


@lru_cache(maxsize=256)
def _keys_of(model: type[BaseModel], location: tuple[str | int, ...]) -> list[str]:
    at: list[tuple[str | None, Any]] = [(None, model)]
    for part in location:
        if _is_tag(part) and any(tag == part for tag, _ in at):
            at = [each for each in at if each[0] == part]
        else:
            at = [option for _, kind in at for option in _inner(kind, part)]
    models = [kind for _, kind in at if isinstance(kind, type) and issubclass(kind, BaseModel)]
    return [field.alias or name for model in models for name, field in model.model_fields.items()]


def _inner(kind: Any, part: str | int) -> list[tuple[str | None, Any]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        for name, field in kind.model_fields.items():
            if part == (field.alias or name):
                return _options(field.annotation)
        return []
    arguments = get_args(kind)
    return _options(arguments[-1 if get_origin(kind) is dict else 0]) if arguments else []


def _options(annotation: Any, tag: str | None = None) -> list[tuple[str | None, Any]]:
    """The branches of a type, each with its tag."""
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *marks = get_args(annotation)
        return _options(inner, next((each.tag for each in marks if isinstance(each, Tag)), tag))
    if origin in (Union, UnionType):
        return [option for each in get_args(annotation) for option in _options(each, tag)]
    return [(tag, annotation)]
