"""Resumes, repeats, forks and cancels runs as the forms of their pages ask for it, by `RunService`.

What is filled in is read by the rules of the command line: inputs, labels, limits and values of shared state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from flowengine.core.context import EMPTY
from flowengine.core.json_values import parse_value
from flowengine.engine.events import NodeRecorded, RunStarted
from flowengine.errors import FlowEngineError
from flowengine.journal.effects import name_calls, pending_calls
from flowengine.journal.run_lookup import labels_of
from flowengine.nodes.node import RunLimits
from flowengine.runtime.run import RunOptions, higher_limit, limits_under, settings_of
from flowengine.web.gate.problems import ProblemError
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
from flowengine.web.service.flow_catalog import CatalogEntry
from visualize.viewer.actions import (
    LIMIT_OPTIONS,
    ActionField,
    ActionForm,
    top_node,
    write_text,
)
from visualize.viewer.html import run_url
from visualize.viewer.reading import Reading

__all__ = ["make_handlers"]


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


def _find_start(asked: AskedAction) -> RunStarted:
    started = asked.run.progress.started
    if started is None:
        raise ProblemError(422, "The run's record is damaged", "it does not begin with its start")
    return started


def _entry_of(asked: AskedAction) -> CatalogEntry | None:
    return asked.parts.library.of_run(_find_start(asked))


async def _find_entry(asked: AskedAction) -> CatalogEntry:
    entry = await asked.parts.shelf.do(_entry_of, asked)
    if entry is None:
        raise ProblemError(409, "Its flow is not here", _refuse_without(entry, asked))
    return entry


def _refuse_without(entry: object, asked: AskedAction) -> str:
    if entry is not None:
        return ""
    return f"This server does not have the flow '{_find_start(asked).flow}': use the command."


class _Resume:
    """Goes on with a run, under other limits where some are said."""

    def __init__(self, *, repeats_items: bool = False) -> None:
        self._repeats_items = repeats_items

    def make_form(self, asked: AskedAction, fields: Mapping[str, str]) -> ActionForm:
        run, entry = asked.run, _entry_of(asked)
        base = ["flowengine", "resume", *(["--failed-items"] if self._repeats_items else []), asked.run_id]
        limits = model_and_limits(fields, "Model and limits", **self._higher_limit(asked, entry))
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
        for path, name in [*_pending_effects(asked.run)]:
            for kind, label, option in (
                ("retry", f"Call {name} of {path} again", "--retry-effect"),
                ("done", f"Take the call of {name} of {path} as done", "--assume-done"),
            ):
                key = f"{kind}.{path}"
                yield ActionField(key, label, fields.get(key, ""), f"{option} {path}", "switch",
                                  "Its end was not recorded.")  # fmt: skip

    async def act(self, asked: AskedAction, fields: Mapping[str, str]) -> str:
        said = read_limits(fields)
        options = RunOptions(
            allow_changed=fields.get("allow_changed") == "true",
            retry_effects=_read_choices(fields, "retry."),
            assume_done=_read_choices(fields, "done."),
            settings=said,
            repeat_failed_items=self._repeats_items,
        )
        await asked.parts.acts.resume(asked.run_id, options)
        return run_url(asked.run_id)


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

    def make_form(self, asked: AskedAction, fields: Mapping[str, str]) -> ActionForm:
        started, entry = _find_start(asked), _entry_of(asked)
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
        parts, started, entry = asked.parts, _find_start(asked), await _find_entry(asked)
        about = await parts.shelf.do(entry.about)
        inputs = read_inputs(about.inputs, fields, started.inputs)
        reuse = asked.run_id if fields.get("reuse") == "true" else None
        run_id = await parts.acts.start_entry(entry, inputs, reuse=reuse, **read_start(fields))
        return run_url(run_id)


def _said_settings(settings: Mapping[str, Any]) -> Mapping[str, str]:
    """Returns the run's settings, for its form fields."""
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
        found += model_and_limits(fields, "Model and limits")
        return ActionForm(title, "Fork" if self._changes else "Retry", base, found,
                          asked.parts.options, about, _refuse_without(entry, asked))  # fmt: skip

    def _value_fields(
        self, asked: AskedAction, entry: CatalogEntry | None, node: str, fields: Mapping[str, str]
    ) -> Iterator[ActionField]:
        started = _find_start(asked)
        for key, value in _state_at(asked, node).items():
            text = write_text(value)
            yield ActionField(f"state.{key}", f"Shared state {key}", fields.get(f"state.{key}", text), f"--set {key}=",
                              kind_of(text), is_change=True)  # fmt: skip
        declared = None if entry is None else entry.about().inputs
        yield from input_fields(declared, started.inputs, fields, change=True)

    async def act(self, asked: AskedAction, fields: Mapping[str, str]) -> str:
        parts, started, node = asked.parts, _find_start(asked), _node_of(asked)
        entry = await _find_entry(asked)
        state: dict[str, Any] = {}
        inputs: Mapping[str, Any] | None = None
        if self._changes:
            before = await parts.shelf.do(_state_at, asked, node)
            texts = {key: normalise_posted(fields[f"state.{key}"]) for key in before if f"state.{key}" in fields}
            state = {
                key: parse_value(text)
                for key, text in texts.items()
                if text != normalise_posted(write_text(before[key]))
            }
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
    return asked.run.states.read_seen(node)


class _Cancel:
    """Stops a run, be it in a queue."""

    def make_form(self, asked: AskedAction, fields: Mapping[str, str]) -> ActionForm:
        base = ["flowengine", "cancel", asked.run_id]
        about = "A run in a queue is taken out of it; a worker that has it is asked to stop."
        return ActionForm(f"Cancel run {asked.run_id}", "Cancel the run", base, (), asked.parts.options, about)

    async def act(self, asked: AskedAction, fields: Mapping[str, str]) -> str:
        await asked.parts.acts.cancel(asked.run_id)
        return run_url(asked.run_id)
