"""Resumes, repeats, forks and cancels runs as the forms of their pages ask for it, by `RunService`.

What is filled in is read by the rules of the command line: inputs, labels, limits and values of shared state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from flowengine.core import EMPTY, parse_value
from flowengine.engine import NodeRecorded, RunStarted
from flowengine.errors import FlowEngineError
from flowengine.journal import labels_of, name_calls, pending_calls
from flowengine.nodes import RunLimits
from flowengine.runtime import RunOptions, higher_limit, limits_under, settings_of
from flowengine.web.gate import ProblemError
from flowengine.web.pages.run_actions import ActionHandler, AskedAction
from flowengine.web.pages.run_fields import (
    input_fields,
    kind_of,
    model_and_limits,
    normalise_posted,
    read_inputs,
    read_limits,
    read_start,
    start_fields,
)
from flowengine.web.service import CatalogEntry
from visualize.viewer import LIMIT_OPTIONS, ActionField, ActionForm, Reading, run_url, top_node, write_text


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


# --- The actions


def _find_start(action: AskedAction) -> RunStarted:
    started = action.run.progress.started
    if started is None:
        raise ProblemError(422, "The run's record is damaged", "it does not begin with its start")
    return started


def _entry_of(action: AskedAction) -> CatalogEntry | None:
    return action.parts.library.of_run(_find_start(action))


async def _find_entry(action: AskedAction) -> CatalogEntry:
    entry = await action.parts.shelf.do(_entry_of, action)
    if entry is None:
        raise ProblemError(409, "Its flow is not here", _refuse_without(entry, action))
    return entry


def _refuse_without(entry: object, action: AskedAction) -> str:
    if entry is not None:
        return ""
    return f"This server does not have the flow '{_find_start(action).flow}': use the command."


class _Resume:
    """Goes on with a run, under other limits where some are said."""

    def __init__(self, *, repeats_items: bool = False) -> None:
        self._repeats_items = repeats_items

    def make_form(self, action: AskedAction, fields: Mapping[str, str]) -> ActionForm:
        run, entry = action.run, _entry_of(action)
        base = ["flowengine", "resume", *(["--failed-items"] if self._repeats_items else []), action.run_id]
        limits = model_and_limits(fields, "Model and limits", **self._higher_limit(action, entry))
        changed = ActionField(
            "allow_changed", "Although the flow was edited since", fields.get("allow_changed", ""), "--allow-changed",
            "switch", "What has finished stays; the rest runs as the flow is now.",
        )  # fmt: skip
        title = "Repeat failed items" if self._repeats_items else f"Go on with run {run.run_id}"
        about = "What has finished is not run again and not paid again."
        return ActionForm(title, "Go on", base, [*self._effects(action, fields), *limits, changed],
                          action.parts.options, about, _refuse_without(entry, action))  # fmt: skip

    def _higher_limit(self, action: AskedAction, entry: CatalogEntry | None) -> Mapping[str, str]:
        """The limit at which the run ended, with what it needs."""
        finished = action.run.progress.finished
        error = None if finished is None else finished.error
        if error is None or error.part or error.limit not in LIMIT_OPTIONS:
            return EMPTY
        settings = settings_of(action.run.events)
        own = RunLimits()
        if settings.get(error.limit) is None and entry is not None:
            with suppress(FlowEngineError):  # Told when the run is to go on.
                own = entry.flow(settings.get("model")).plan.limits
        return {error.limit: higher_limit(error, limits_under(own, settings))}

    def _effects(self, action: AskedAction, fields: Mapping[str, str]) -> Iterator[ActionField]:
        for path, name in [*_pending_effects(action.run)]:
            for kind, label, option in (
                ("retry", f"Call {name} of {path} again", "--retry-effect"),
                ("done", f"Take the call of {name} of {path} as done", "--assume-done"),
            ):
                key = f"{kind}.{path}"
                yield ActionField(key, label, fields.get(key, ""), f"{option} {path}", "switch",
                                  "Its end was not recorded.")  # fmt: skip

    async def act(self, action: AskedAction, fields: Mapping[str, str]) -> str:
        limits = read_limits(fields)
        options = RunOptions(
            allow_changed=fields.get("allow_changed") == "true",
            retry_effects=_read_choices(fields, "retry."),
            assume_done=_read_choices(fields, "done."),
            settings=limits,
            repeat_failed_items=self._repeats_items,
        )
        await action.parts.acts.resume(action.run_id, options)
        return run_url(action.run_id)


def _pending_effects(run: Reading) -> Iterator[tuple[str, str]]:
    """Path and tool of the calls whose end was not seen."""
    for row in run.rows:
        if row.status != "succeeded":
            records = [event.record for _, event in run.part(row.id) if isinstance(event, NodeRecorded)]
            yield from ((path, call.name) for path, call in name_calls(row.id, pending_calls(records)).items())


def _read_choices(fields: Mapping[str, str], begin: str) -> list[str]:
    return [name.removeprefix(begin) for name, value in fields.items() if name.startswith(begin) and value == "true"]


class _Again:
    """Starts the run's flow as it is now, with its inputs filled in."""

    def make_form(self, action: AskedAction, fields: Mapping[str, str]) -> ActionForm:
        started, entry = _find_start(action), _entry_of(action)
        about = None if entry is None else entry.about()
        declared = None if about is None else about.inputs
        path = about.path if about is not None else started.path or started.flow
        settings = settings_of(action.run.events)
        labels = "\n".join(f"{name}={value}" for name, value in labels_of(started).items())
        before = {"session": str(settings.get("session", "")), "labels": labels, **_said_settings(settings)}
        reuse = ActionField(
            "reuse",
            "Take results of this run that still hold",
            fields.get("reuse", ""),
            f"--reuse {action.run_id}",
            "switch",
            "Nodes with the same definition and data do not run.",
        )
        more = [reuse, *start_fields(action.parts, {**before, **fields})]  # fmt: skip
        inputs = input_fields(declared, started.inputs, fields)
        return ActionForm(f"Run {started.flow} again", "Run", ["flowengine", "run", path], [*inputs, *more],
                          action.parts.options, None, _refuse_without(entry, action))  # fmt: skip

    async def act(self, action: AskedAction, fields: Mapping[str, str]) -> str:
        parts, started, entry = action.parts, _find_start(action), await _find_entry(action)
        about = await parts.shelf.do(entry.about)
        inputs = read_inputs(about.inputs, fields, started.inputs)
        reuse = action.run_id if fields.get("reuse") == "true" else None
        run_id = await parts.acts.start_entry(entry, inputs, reuse=reuse, **read_start(fields))
        return run_url(run_id)


def _said_settings(settings: Mapping[str, Any]) -> Mapping[str, str]:
    """Returns the run's settings, for its form fields."""
    return {name: write_text(settings[name]) for name in ("model", *LIMIT_OPTIONS) if settings.get(name) is not None}


class _Fork:
    """Begins a new run at a node, with other values of inputs and shared state where some were changed."""

    def __init__(self, *, changes: bool) -> None:
        self._changes = changes

    def make_form(self, action: AskedAction, fields: Mapping[str, str]) -> ActionForm:
        node = _node_of(action)
        entry = _entry_of(action)
        base = ["flowengine", "resume", action.run_id, "--from", node]
        form_fields = [*self._value_fields(action, entry, node, fields)] if self._changes else []
        about = (
            f"A new run shares what this one has done before '{node}', and pays none of it again. "
            f"'{node}' and all that is behind it run, with their effects outside. This run stays as it is."
        )
        title = f"Fork at {node} with other values" if self._changes else f"Retry from {node}"
        form_fields += model_and_limits(fields, "Model and limits")
        return ActionForm(title, "Fork" if self._changes else "Retry", base, form_fields,
                          action.parts.options, about, _refuse_without(entry, action))  # fmt: skip

    def _value_fields(
        self, action: AskedAction, entry: CatalogEntry | None, node: str, fields: Mapping[str, str]
    ) -> Iterator[ActionField]:
        started = _find_start(action)
        for key, value in _state_at(action, node).items():
            text = write_text(value)
            yield ActionField(f"state.{key}", f"Shared state {key}", fields.get(f"state.{key}", text), f"--set {key}=",
                              kind_of(text), is_change=True)  # fmt: skip
        declared = None if entry is None else entry.about().inputs
        yield from input_fields(declared, started.inputs, fields, change=True)

    async def act(self, action: AskedAction, fields: Mapping[str, str]) -> str:
        parts, started, node = action.parts, _find_start(action), _node_of(action)
        entry = await _find_entry(action)
        state: dict[str, Any] = {}
        inputs: Mapping[str, Any] | None = None
        if self._changes:
            before = await parts.shelf.do(_state_at, action, node)
            texts = {key: normalise_posted(fields[f"state.{key}"]) for key in before if f"state.{key}" in fields}
            state = {
                key: parse_value(text)
                for key, text in texts.items()
                if text != normalise_posted(write_text(before[key]))
            }
            declared = (await parts.shelf.do(entry.about)).inputs
            values = read_inputs(declared, fields, started.inputs)
            inputs = values if values != dict(started.inputs) else None
        run_id = await parts.acts.fork(action.run_id, node, state=state, inputs=inputs, limits=read_limits(fields))
        return run_url(run_id)


def _node_of(action: AskedAction) -> str:
    if action.node is None:
        raise ProblemError(400, "A node is needed", "say from which node the new run begins: ?node=NAME")
    return top_node(action.node)


def _state_at(action: AskedAction, node: str) -> Mapping[str, Any]:
    return action.run.states.read_seen(node)


class _Cancel:
    """Stops a run, be it in a queue."""

    def make_form(self, action: AskedAction, fields: Mapping[str, str]) -> ActionForm:
        base = ["flowengine", "cancel", action.run_id]
        about = "A run in a queue is taken out of it; a worker that has it is asked to stop."
        return ActionForm(f"Cancel run {action.run_id}", "Cancel the run", base, (), action.parts.options, about)

    async def act(self, action: AskedAction, fields: Mapping[str, str]) -> str:
        await action.parts.acts.cancel(action.run_id)
        return run_url(action.run_id)
