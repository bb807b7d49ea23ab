"""Reads values of Prompt flow: `${node.output.x}` as expressions of ours, types and settings as the format has them."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, Final, NamedTuple, cast

from flowengine.importers.flow_text import key_path, literal, to_tag
from flowengine.importers.option_values import RANGES, WHOLE, fits_option

_REFERENCE: Final = re.compile(r"\s*\$\{\s*([\w-]+)((?:\s*(?:\.[\w-]+|\[\d+\]|\['[^']*'\]|\[\"[^\"]*\"\]))*)\s*\}\s*")
_STEP: Final = re.compile(r"\.([\w-]+)|\[(\d+)\]|\['([^']*)'\]|\[\"([^\"]*)\"\]")
_ROLE: Final = re.compile(
    r"^[ \t]*+(?:#[ \t]*+)?(system|user|assistant|function|tool|developer)[ \t]*+:[ \t]*+(?:\n|\Z)", re.I | re.M
)
_BLOCK: Final = re.compile(r"\{%-?\+?\s*(for|if|macro|call|filter|with|raw|set|end\w+)\b([^%]*)%\}")
INPUT_TYPES: Final = {
    "string": "string",
    "int": "integer",
    "double": "number",
    "float": "number",
    "number": "number",
    "bool": "boolean",
    "list": "array",
    "object": "object",
    "dict": "object",
    "image": "file",
    "file": "file",
}
"""Type of an input → its type here."""


class NodeReference(NamedTuple):
    """`${source.path}`: of an input, or of a node's output."""

    source: str
    """`inputs`, or the node's name."""
    steps: tuple[str | int, ...]

    def text(self, head: str) -> str:
        """An expression: `head` and what is read of it."""
        return key_path(head, self.steps)


def read_reference(value: Any) -> NodeReference | None:
    """The reference that a value is; None for a literal.

    >>> read_reference("${a.output.rows[0]}")
    NodeReference(source='a', steps=('rows', 0))
    >>> read_reference("${inputs.question}"), read_reference("costs ${5}")
    (NodeReference(source='inputs', steps=('question',)), None)
    """
    match = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return None
    steps = [
        int(each[2]) if each[2] is not None else next(one for one in each.groups() if one is not None)
        for each in _STEP.finditer(match[2])
    ]
    if match[1] in ("inputs", "flow"):
        return NodeReference("inputs", tuple(steps))
    return NodeReference(match[1], tuple(steps[1:] if steps[:1] == ["output"] else steps))


def to_value(value: Any, expression: Callable[[NodeReference], str]) -> Any:
    """A node's input as `with` has it: a template for a reference, else the literal with its braces escaped."""
    reference = read_reference(value)
    if reference is not None:
        return to_tag(expression(reference))
    if isinstance(value, str):
        return literal(value)
    if isinstance(value, Mapping):
        return {key: to_value(each, expression) for key, each in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list):
        return [to_value(each, expression) for each in cast("list[Any]", value)]
    return value


# --- Settings of models


class Setting(NamedTuple):
    """A parameter of a model's call: our keys, or why it has none; neither where it says what holds anyway."""

    keys: dict[str, Any]
    problem: str = ""


_NEUTRAL: Final[Mapping[str, tuple[Any, ...]]] = {
    "echo": (False,),
    "best_of": (1,),
    "n": (1,),
    "stream": (False,),
    "logit_bias": ({},),
    "suffix": (),
    "logprobs": (0,),
    "functions": ([],),
    "function_call": ("none",),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "response_format": ({"type": "text"}, "text"),
    "top_p": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "stop": ([],),
    "user": (),
    "seed": (),
    "max_tokens": ("inf",),
    "deployment_name": (),
    "model": (),
}
"""Parameter → values that change nothing; empty ones never do."""
SETTINGS: Final = frozenset({*_NEUTRAL, *RANGES})
"""Inputs of an `llm` node that are parameters of the call; all others are variables of its prompt."""


def read_setting(name: str, raw: Any) -> Setting:
    """A parameter.

    >>> read_setting("temperature", "0.7").keys, read_setting("stop", "").keys, read_setting("best_of", 3).problem
    ({'temperature': 0.7}, {}, 'models are asked for one answer')
    """
    value = _parse(raw)
    if value is False or value in (None, "", "null", "None"):
        return Setting({})
    if type(value) is not bool and value in _NEUTRAL.get(name, ()):
        return Setting({})
    if name in RANGES:
        number = int(value) if name in WHOLE and isinstance(value, float) and isfinite(value) else value
        if not fits_option(name, number):
            return Setting({}, f"{value!r:.60} is no number from {RANGES[name][0]} to {RANGES[name][1]}")
        return Setting({name: number})
    if name == "stop":
        stops = cast("list[Any]", value if isinstance(value, list) else [value])
        return Setting({"stop": [str(each) for each in stops][:4]})
    if name == "logit_bias" and isinstance(value, Mapping):
        return Setting({"model_options": {"logit_bias": value}})
    if name == "user":
        return Setting({"model_options": {"user": str(value)}})
    if name in ("best_of", "n"):
        return Setting({}, "models are asked for one answer")
    if name in ("echo", "suffix", "logprobs"):
        return Setting({}, "chats have no such option")
    return Setting({}, "it has no counterpart")


def is_json_format(value: Any) -> bool:
    """Tells whether a `response_format` asks for a JSON object."""
    return _parse(value) == {"type": "json_object"}


def _parse(value: Any) -> Any:
    """The value of a text that is JSON."""
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    if isinstance(value, str) and len(value) < 100_000:
        try:
            return json.loads(value) if value.strip()[:1] in '{["-0123456789tfn' else value
        except (ValueError, RecursionError):
            return value
    return value


# --- Roles in chat templates


class RoleText(NamedTuple):
    """A chat template taken apart."""

    system: str
    prompt: str
    change: str = ""
    """The difference, where the text could not be kept."""


def split_roles(text: str) -> RoleText:
    r"""System message and prompt of a template with role headers.

    >>> split_roles("# system:\nBe brief.\n\n# user:\n{{ question }}")
    RoleText(system='Be brief.', prompt='{{ question }}', change='')
    """
    depths = _depths(text)
    headings = [each for each in _ROLE.finditer(text) if depths(each.start()) == 0]
    if not headings or text[: headings[0].start()].strip():
        note = "role headers inside of blocks are text of the prompt" if _ROLE.search(text) else ""
        return RoleText("", text.strip("\n"), note)
    sets = [each[0] for each in re.finditer(r"\{%-?\s*set\s[^%=]*+=[^%]*+%\}", text) if depths(each.start()) == 0]
    ends = [*(each.start() for each in headings[1:]), len(text)]
    parts = [(each[1].lower(), text[each.end() : end].strip("\n")) for each, end in zip(headings, ends, strict=True)]
    count = 0
    while count < len(parts) and parts[count][0] in ("system", "developer"):
        count += 1
    system = "\n\n".join(part for _, part in parts[:count]).strip()
    rest = parts[count:]
    change = ""
    if len(rest) == 1 and rest[0][0] == "user" and not _ROLE.search(rest[0][1]) and not _ROLE.search(system):
        prompt = rest[0][1]
    elif not rest and not _ROLE.search(system):
        return RoleText("", system, "the only message is sent as the user's")
    elif not rest:
        cut = _first_inner(text, headings[count - 1].end())
        system, prompt = (
            "\n\n".join([*(one for _, one in parts[: count - 1]), text[headings[count - 1].end() : cut]]),
            text[cut:],
        )
        change = "earlier turns are one message, with their roles as text"
    else:
        prompt = "\n\n".join(f"{role}:\n{part}" for role, part in rest)
        inner = _ROLE.search(system)
        if inner is not None:
            last_system = parts[count - 1][1]
            cut = _first_inner(last_system, 0)
            system = "\n\n".join([*(one for _, one in parts[: count - 1]), last_system[:cut]])
            prompt = f"{last_system[cut:]}\n\n{prompt}"
        change = "earlier turns are one message, with their roles as text"
    system, prompt = system.strip(), prompt.strip("\n")
    missing = [each for each in sets if each not in prompt]
    return RoleText(system, "".join(missing) + prompt if system else prompt, change)


def _first_inner(text: str, start: int) -> int:
    """Returns the start of the outermost block that holds the first role header."""
    header = _ROLE.search(text, start)
    at = len(text) if header is None else header.start()
    starts: list[int] = []
    for block in _BLOCK.finditer(text, start, at):
        if block[1].startswith("end"):
            starts = starts[:-1]
        elif not (block[1] == "set" and "=" in block[2]):
            starts.append(block.start())
    return starts[0] if starts else at


def _depths(text: str) -> Callable[[int], int]:
    """Counts the open blocks at a position of a template."""
    places: list[tuple[int, int]] = []
    depth = 0
    for block in _BLOCK.finditer(text):
        if block[1] == "set" and "=" in block[2]:
            continue
        depth += -1 if block[1].startswith("end") else 1
        places.append((block.start(), depth))
    return lambda at: places[number - 1][1] if (number := bisect_left(places, (at,))) else 0
