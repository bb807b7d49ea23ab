"""Makes the fields in which a run's inputs, model and limits are filled in, and reads what was posted in them.

They are read by the rules of the command line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any, Final

from pydantic_core import PydanticCustomError

from flowengine.core import EMPTY
from flowengine.errors import InputError
from flowengine.flowfile.schema import seconds
from flowengine.journal import parse_labels
from flowengine.nodes import REQUIRED, InputField, parse_text
from flowengine.runtime.queue import has_queue
from flowengine.web.gate import ServerParts
from visualize.viewer import LIMIT_OPTIONS, ActionField, FieldKind, input_option, whole, write_text

_MORE: Final = "Model, session, labels, limits"
_LIMIT_LABELS: Final[Mapping[str, str]] = {
    "cost_usd": "Most that its models may cost, in dollars",
    "model_calls": "Most calls of models",
    "tokens": "Most tokens, in and out",
    "timeout": "Longest time: 30s, 10m, 2h",
    "concurrency": "Nodes in flight at once",
}


def model_and_limits(fields: Mapping[str, str], group: str = _MORE, **defaults: str) -> list[ActionField]:
    """The fields of a run's model and limits. `defaults`: what stands in them at first."""
    model = ActionField("model", "Model, instead of all that the flow names", fields.get("model", ""), "--model",
                        group=group)  # fmt: skip
    limits = [
        ActionField(name, label, fields.get(name, defaults.get(name, "")), LIMIT_OPTIONS[name],
                    group="" if name in defaults else group)
        for name, label in _LIMIT_LABELS.items()
    ]  # fmt: skip
    return sorted([model, *limits], key=lambda each: each.group != "")


def read_limits(fields: Mapping[str, str]) -> dict[str, Any]:
    """Model and limits, by the names that a run's settings have."""
    limits: dict[str, Any] = {}
    if model := fields.get("model", "").strip():
        if not model.isprintable():
            raise InputError(f"--model takes a name on one line, found {model!r:.80}")
        limits["model"] = model
    for name in LIMIT_OPTIONS:
        if text := fields.get(name, "").strip():
            limits[name] = _read_limit(name, text)
    return limits


def _read_limit(name: str, text: str) -> float | int:
    kind = "a time such as 30s" if name == "timeout" else "a number above 0" if name == "cost_usd" else "a whole number"
    try:
        if name == "timeout":
            value = float(seconds(f"{text}s" if text[-1:].isdigit() else text))
        else:
            value = float(text) if name == "cost_usd" else int(text)
    except (ValueError, OverflowError, PydanticCustomError):
        value = -1
    if value > 0 and isfinite(value) and value < 1e15:
        return value
    raise InputError(f"{LIMIT_OPTIONS[name]} takes {kind}, found '{text:.40}'")


def start_fields(parts: ServerParts, fields: Mapping[str, str] = EMPTY) -> list[ActionField]:
    """Returns the fields for a new run, beside its inputs."""
    places = [("submit", "in a worker, by the queue 'default'"), ("run", "in this server")]
    place = ActionField("place", "Where it runs", fields.get("place", "submit"), kind="verb", choices=places)
    return [
        *([place] if has_queue(parts.shelf.store) else []),
        ActionField("session", "Session", fields.get("session", ""), "--session", group=_MORE,
                    hint="Continue the session of this name."),
        ActionField("labels", "Labels, NAME=VALUE, one a line", fields.get("labels", ""), "--label", "list",
                    group=_MORE),
        *model_and_limits(fields),
    ]  # fmt: skip


def read_start(fields: Mapping[str, str]) -> dict[str, Any]:
    """Reads these fields, for `LibraryRuns.start_entry`."""
    limits = read_limits(fields)
    return {
        "session": fields.get("session", "").strip() or None,
        "model": limits.pop("model", None),
        "labels": parse_labels([each.strip() for each in fields.get("labels", "").splitlines() if each.strip()]),
        "limits": limits,
        "queue": "default" if fields.get("place") == "submit" else None,
    }


def input_fields(
    declared: Mapping[str, InputField] | None,
    values: Mapping[str, Any] = EMPTY,
    fields: Mapping[str, str] = EMPTY,
    *,
    change: bool = False,
) -> Iterator[ActionField]:
    """A field for each input; `values`: those of a run, else the defaults. `change`: they count where changed."""
    names = list(values) if declared is None else [*declared]
    for name in names:
        field = None if declared is None else declared[name]
        default = values.get(name, None if field is None or field.default is REQUIRED else field.default)
        text = "" if default is None else write_text(default)
        yield ActionField(
            f"input.{name}",
            f"Input {name}" if change else name,
            fields.get(f"input.{name}", text),
            input_option(name, default),
            kind_of(text),
            "" if field is None else field.description,
            is_change=change,
            choices=[] if field is None or not field.enum else [(each, each) for each in map(write_text, field.enum)],
        )


_MOST: Final = 100_000
"""Characters of a value that a form holds; a longer one stays as it is."""


def kind_of(text: str) -> FieldKind:
    return "kept" if len(text) > _MOST else "lines" if "\n" in text or "\r" in text else "text"


def read_inputs(
    declared: Mapping[str, InputField] | None, fields: Mapping[str, str], values: Mapping[str, Any] = EMPTY
) -> dict[str, Any]:
    """The inputs as filled in: what stands there as it was is the value of the run, a file too.

    What is left empty is left out, where it need not be there or is no text.
    """
    inputs: dict[str, Any] = {}
    for name in list(values) if declared is None else [*declared]:
        field = None if declared is None else declared[name]
        text = normalise_posted(fields.get(f"input.{name}", ""))
        is_same = f"input.{name}" not in fields or text == normalise_posted(write_text(values.get(name)))
        if name in values and is_same:
            inputs[name] = values[name]
        elif text or (field is not None and field.default is REQUIRED and field.type == "string"):
            inputs[name] = parse_text(name, text, field)
    return inputs


def normalise_posted(text: str) -> str:
    """The text of an unchanged form as it comes back: browsers send CR LF, and pages are well-formed."""
    return whole(text).replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
