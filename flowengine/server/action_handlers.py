"""Resumes, repeats, forks and cancels runs as the forms of their pages ask for it, by `RunCommands`.

What is filled in is read by the rules of the command line: inputs, labels, limits and values of shared state.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from math import isfinite
from typing import Any, Final

from pydantic_core import PydanticCustomError

from flowengine.core.context import EMPTY
from flowengine.engine.events import NodeRecorded, RunStarted
from flowengine.errors import FlowEngineError, InputError
from flowengine.flowfile.schema.fields import seconds
from flowengine.journal.replay import pending_calls
from flowengine.journal.run_lookup import labels_of, parse_labels
from flowengine.nodes.compiled_flow import REQUIRED, InputField, parse_text, refuse_constant
from flowengine.nodes.node import RunLimits
from flowengine.runners.queue.run_positions import has_queue
from flowengine.runners.run import higher_limit, limits_under, settings_of
from flowengine.server.flow_catalog import CatalogEntry
from flowengine.server.problems import ProblemError
from flowengine.server.requests import ServerParts
from flowengine.server.run_actions import ActionHandler, AskedAction
from visualize.viewer.actions import (
    LIMIT_OPTIONS,
    ActionField,
    ActionForm,
    FieldKind,
    input_option,
    top_node,
    write_text,
)
from visualize.viewer.html import run_url, whole
from visualize.viewer.reading import Reading

__all__ = ["input_fields", "make_handlers", "read_inputs", "read_limits", "read_start", "start_fields"]

_MORE: Final = "Model, session, labels, limits"
_LIMIT_LABELS: Final[Mapping[str, str]] = {
    "cost_usd": "Most that its models may cost, in dollars",
    "model_calls": "Most calls of models",
    "tokens": "Most tokens, in and out",
    "timeout": "Longest time: 30s, 10m, 2h",
    "concurrency": "Nodes in flight at once",
}


def make_handlers() -> dict[str, ActionHandler]:
    """Those that every viewer has, by their names."""
    return {
        "resume": _Resume(),
        "items": _Resume(repeats_items=True),
        "again": _Again(),
        "retry": _Fork(changes=False),
        "fork": _Fork(changes=True),
        "cancel": _Cancel(),
    }


# --- What is filled in


def _model_and_limits(fields: Mapping[str, str], group: str = _MORE, **given: str) -> list[ActionField]:
    """The fields of a run's model and limits. `given`: what stands in them at first."""
    model = ActionField("model", "Model, instead of all that the flow names", fields.get("model", ""), "--model",
                        group=group)  # fmt: skip
    limits = [
        ActionField(name, label, fields.get(name, given.get(name, "")), LIMIT_OPTIONS[name],
                    group="" if name in given else group)
        for name, label in _LIMIT_LABELS.items()
    ]  # fmt: skip
    return sorted([model, *limits], key=lambda each: each.group != "")


def read_limits(fields: Mapping[str, str]) -> dict[str, Any]:
    """Model and limits, by the names that a run's settings have."""
    found: dict[str, Any] = {}
    if model := fields.get("model", "").strip():
        if not model.isprintable():
            raise InputError(f"--model takes a name on one line, found {model!r:.80}")
        found["model"] = model
    for name in LIMIT_OPTIONS:
        if text := fields.get(name, "").strip():
            found[name] = _read_limit(name, text)
    return found


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
    """What may be chosen for a new run beside its inputs."""
    places = [("submit", "in a worker, by the queue 'default'"), ("run", "in this server")]
    place = ActionField("place", "Where it runs", fields.get("place", "submit"), kind="verb", choices=places)
    return [
        *([place] if has_queue(parts.shelf.store) else []),
        ActionField("session", "Session", fields.get("session", ""), "--session", group=_MORE,
                    hint="Go on with what earlier runs of this name have left."),
        ActionField("labels", "Labels, NAME=VALUE, one a line", fields.get("labels", ""), "--label", "list",
                    group=_MORE),
        *_model_and_limits(fields),
    ]  # fmt: skip


def read_start(fields: Mapping[str, str]) -> dict[str, Any]:
    """What was chosen in them, for `RunCommands.start_entry`."""
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
        known = values.get(name, None if field is None or field.default is REQUIRED else field.default)
        text = "" if known is None else write_text(known)
        yield ActionField(
            f"input.{name}",
            f"Input {name}" if change else name,
            fields.get(f"input.{name}", text),
            input_option(name, known),
            _kind_of(text),
            "" if field is None else field.description,
            is_change=change,
            choices=[] if field is None or not field.enum else [(each, each) for each in map(write_text, field.enum)],
        )


_MOST: Final = 100_000
"""Characters of a value that a form holds; a longer one stays as it is."""


def _kind_of(text: str) -> FieldKind:
    return "kept" if len(text) > _MOST else "lines" if "\n" in text or "\r" in text else "text"


def read_inputs(
    declared: Mapping[str, InputField] | None, fields: Mapping[str, str], values: Mapping[str, Any] = EMPTY
) -> dict[str, Any]:
    """The inputs as filled in: what stands there as it was is the value of the run, a file too.

    What is left empty is left out, where it need not be there or is no text.
    """
    found: dict[str, Any] = {}
    for name in list(values) if declared is None else [*declared]:
        field = None if declared is None else declared[name]
        text = posted(fields.get(f"input.{name}", ""))
        is_same = f"input.{name}" not in fields or text == posted(write_text(values.get(name)))
        if name in values and is_same:
            found[name] = values[name]
        elif text or (field is not None and field.default is REQUIRED and field.type == "string"):
            found[name] = parse_text(name, text, field)
    return found


def posted(text: str) -> str:
    """A text as it comes back from a form that nobody changed: browsers send CR LF, and pages are well-formed."""
    return whole(text).replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")


def _parse_value(text: str) -> Any:
    """JSON, or else text: as `--set` takes it."""
    try:
        return json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        return text


# --- The actions


def _started(asked: AskedAction) -> RunStarted:
    started = asked.run.progress.started
    if started is None:
        raise ProblemError(422, "The run's record is damaged", "it does not begin with its start")
    return started


def _entry_of(asked: AskedAction) -> CatalogEntry | None:
    return asked.parts.library.of_run(_started(asked))


def _refuse_without(entry: object, asked: AskedAction) -> str:
    if entry is not None:
        return ""
    return f"This server does not have the flow '{_started(asked).flow}': use the command."


class _Resume:
    """Goes on with a run, under other limits where some are said."""

    def __init__(self, *, repeats_items: bool = False) -> None:
        self._repeats_items = repeats_items

    def make_form(self, asked: AskedAction, fields: Mapping[str, str]) -> ActionForm:
        run, entry = asked.run, _entry_of(asked)
        base = ["flowengine", "resume", *(["--failed-items"] if self._repeats_items else []), asked.run_id]
        limits = _model_and_limits(fields, "Model and limits", **self._higher_limit(asked, entry))
        changed = ActionField(
            "allow_changed", "Although the flow was edited since", fields.get("allow_changed", ""), "--allow-changed",
            "switch", "What has finished stays; the rest runs as the flow is now.",
        )  # fmt: skip
        title = "Repeat failed items" if self._repeats_items else f"Go on with run {run.run_id}"
        about = "What has finished is not run again and not paid again."
        return ActionForm(title, "Go on", base, [*self._effects(asked, fields), *limits, changed], asked.parts.options,
                          about, _refuse_without(entry, asked))  # fmt: skip

    def _higher_limit(self, asked: AskedAction, entry: CatalogEntry | None) -> Mapping[str, str]:
        """The limit at which the run ended, with what it needs."""
        finished = asked.run.progress.finished
        error = None if finished is None else finished.error
        if error is None or error.part or error.limit not in LIMIT_OPTIONS:
            return EMPTY
        settings = settings_of(asked.run.events)
        own = RunLimits()
        if settings.get(error.limit) is None and entry is not None:
            with suppress(FlowEngineError):  # Told when the run is to go on.
                own = entry.flow(settings.get("model")).plan.limits
        return {error.limit: higher_limit(error, limits_under(own, settings))}

    def _effects(self, asked: AskedAction, fields: Mapping[str, str]) -> Iterator[ActionField]:
        for node, name in [*_pending_effects(asked.run)]:
            for kind, label, option in (
                ("retry", f"Call {name} of {node} again", "--retry-effect"),
                ("done", f"Take the call of {name} of {node} as done", "--assume-done"),
            ):
                key = f"{kind}.{node}"
                yield ActionField(key, label, fields.get(key, ""), f"{option} {node}", "switch",
                                  "Nobody saw how it ended.")  # fmt: skip

    async def act(self, asked: AskedAction, fields: Mapping[str, str]) -> str:
        said = read_limits(fields)
        await asked.parts.acts.resume(
            asked.run_id,
            allow_changed=fields.get("allow_changed") == "true",
            retry_effects=_chosen(fields, "retry."),
            assume_done=_chosen(fields, "done."),
            limits=said,
            repeat_failed_items=self._repeats_items,
        )
        return run_url(asked.run_id)


def _pending_effects(run: Reading) -> Iterator[tuple[str, str]]:
    """Node and tool of the calls of which nobody saw the end."""
    for row in run.rows:
        if row.status != "succeeded":
            records = [event.record for _, event in run.part(row.id) if isinstance(event, NodeRecorded)]
            yield from ((row.id, call.name) for call in pending_calls(records))


def _chosen(fields: Mapping[str, str], begin: str) -> list[str]:
    return [name.removeprefix(begin) for name, value in fields.items() if name.startswith(begin) and value == "true"]


class _Again:
    """Starts the run's flow as it is now, with its inputs filled in."""

    def make_form(self, asked: AskedAction, fields: Mapping[str, str]) -> ActionForm:
        started, entry = _started(asked), _entry_of(asked)
        about = None if entry is None else entry.about()
        declared = None if about is None else about.inputs
        path = about.path if about is not None else started.path or started.flow
        settings = settings_of(asked.run.events)
        labels = "\n".join(f"{name}={value}" for name, value in labels_of(started).items())
        before = {"session": str(settings.get("session", "")), "labels": labels, **_said_settings(settings)}
        reuse = ActionField(
            "reuse",
            "Take results of this run that still hold",
            fields.get("reuse", ""),
            f"--reuse {asked.run_id}",
            "switch",
            "Nodes with the same definition and data do not run.",
        )
        more = [reuse, *start_fields(asked.parts, {**before, **fields})]  # fmt: skip
        inputs = input_fields(declared, started.inputs, fields)
        return ActionForm(f"Run {started.flow} again", "Run", ["flowengine", "run", path], [*inputs, *more],
                          asked.parts.options, None, _refuse_without(entry, asked))  # fmt: skip

    async def act(self, asked: AskedAction, fields: Mapping[str, str]) -> str:
        parts, started = asked.parts, _started(asked)
        entry = await parts.shelf.do(_entry_of, asked)
        if entry is None:
            raise ProblemError(409, "Its flow is not here", _refuse_without(entry, asked))
        about = await parts.shelf.do(entry.about)
        inputs = read_inputs(about.inputs, fields, started.inputs)
        reuse = asked.run_id if fields.get("reuse") == "true" else None
        run_id = await parts.acts.start_entry(entry, inputs, reuse=reuse, **read_start(fields))
        return run_url(run_id)


def _said_settings(settings: Mapping[str, Any]) -> Mapping[str, str]:
    """What was chosen for the run, as its fields have it."""
    return {name: write_text(settings[name]) for name in ("model", *LIMIT_OPTIONS) if settings.get(name) is not None}


class _Fork:
    """Begins a new run at a node, with other values of inputs and shared state where some were changed."""

    def __init__(self, *, changes: bool) -> None:
        self._changes = changes

    def make_form(self, asked: AskedAction, fields: Mapping[str, str]) -> ActionForm:
        node = _node_of(asked)
        entry = _entry_of(asked)
        base = ["flowengine", "resume", asked.run_id, "--from", node]
        found = [*self._value_fields(asked, entry, node, fields)] if self._changes else []
        about = (
            f"A new run shares what this one has done before '{node}', and pays none of it again. "
            f"'{node}' and all that is behind it run, with their effects outside. This run stays as it is."
        )
        title = f"Fork at {node} with other values" if self._changes else f"Retry from {node}"
        found += _model_and_limits(fields, "Model and limits")
        return ActionForm(title, "Fork" if self._changes else "Retry", base, found,
                          asked.parts.options, about, _refuse_without(entry, asked))  # fmt: skip

    def _value_fields(
        self, asked: AskedAction, entry: CatalogEntry | None, node: str, fields: Mapping[str, str]
    ) -> Iterator[ActionField]:
        started = _started(asked)
        for key, value in _state_at(asked, node).items():
            text = write_text(value)
            yield ActionField(f"state.{key}", f"Shared state {key}", fields.get(f"state.{key}", text), f"--set {key}=",
                              _kind_of(text), is_change=True)  # fmt: skip
        declared = None if entry is None else entry.about().inputs
        yield from input_fields(declared, started.inputs, fields, change=True)

    async def act(self, asked: AskedAction, fields: Mapping[str, str]) -> str:
        parts, started, node = asked.parts, _started(asked), _node_of(asked)
        entry = await parts.shelf.do(_entry_of, asked)
        if entry is None:
            raise ProblemError(409, "Its flow is not here", _refuse_without(entry, asked))
        state: dict[str, Any] = {}
        inputs: Mapping[str, Any] | None = None
        if self._changes:
            before = await parts.shelf.do(_state_at, asked, node)
            texts = {key: posted(fields[f"state.{key}"]) for key in before if f"state.{key}" in fields}
            state = {key: _parse_value(text) for key, text in texts.items() if text != posted(write_text(before[key]))}
            declared = (await parts.shelf.do(entry.about)).inputs
            given = read_inputs(declared, fields, started.inputs)
            inputs = given if given != dict(started.inputs) else None
        run_id = await parts.acts.fork(asked.run_id, node, state=state, inputs=inputs, limits=read_limits(fields))
        return run_url(run_id)


def _node_of(asked: AskedAction) -> str:
    if asked.node is None:
        raise ProblemError(400, "A node is needed", "say from which node the new run begins: ?node=NAME")
    return top_node(asked.node)


def _state_at(asked: AskedAction, node: str) -> Mapping[str, Any]:
    return asked.run.states.seen(node)


class _Cancel:
    """Stops a run, be it in a queue."""

    def make_form(self, asked: AskedAction, fields: Mapping[str, str]) -> ActionForm:
        base = ["flowengine", "cancel", asked.run_id]
        about = "A run in a queue is taken out of it; a worker that has it is asked to stop."
        return ActionForm(f"Cancel run {asked.run_id}", "Cancel the run", base, (), asked.parts.options, about)

    async def act(self, asked: AskedAction, fields: Mapping[str, str]) -> str:
        await asked.parts.acts.cancel(asked.run_id)
        return run_url(asked.run_id)
