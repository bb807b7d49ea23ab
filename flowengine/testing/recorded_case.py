"""Makes a case of a flow test, or a row of data, from a recorded run.

The case has the run's inputs, what its models, tools, functions and people answered, and its outputs as expected: so it
passes as long as the flow makes of them what it made then. It asks no model and reads no store.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from flowengine.agents.tools import Tool
from flowengine.core import (
    EMPTY,
    PREPARING,
    Answered,
    ModelCall,
    Retry,
    ToolCall,
    dumps,
    find_files,
    is_map,
    question_path,
    to_json_value,
)
from flowengine.engine import (
    Event,
    NodeFailed,
    NodeFinished,
    NodeRecorded,
    NodeStarted,
    RunFinished,
    RunStarted,
    patches_in,
)
from flowengine.errors import InputError
from flowengine.flow import Flow
from flowengine.flowfile.yaml import to_yaml
from flowengine.journal import mask_events
from flowengine.nodes import AgentNode, FunctionNode, HttpNode, ToolNode, file_path
from flowengine.runtime import settings_of
from flowengine.testing.fakes import Fake, server_names
from flowengine.testing.model_overrides import seat_names


class MadeTest(NamedTuple):
    """A flow test as text, and what is to be known of it."""

    text: str
    notes: Sequence[str]


class _Case:
    """A run's answers, by node."""

    def __init__(self, flow: Flow) -> None:
        self.nodes = flow.plan.all_nodes
        self.seats = set(seat_names(flow))
        self.servers = tuple(f"{each}_" for each in server_names(flow))
        self.answers: dict[str, list[Any]] = {}
        self._calls: dict[str, list[tuple[str, str, Fake]]] = {}
        """Path of a node, in the order in which they began → a fake for each of its attempts since it began last; calls
        of agents among them."""
        self._ended: set[str] = set()
        self.approvals: dict[str, Any] = {}
        self.notes: dict[str, None] = {}

    @property
    def fakes(self) -> Mapping[str, Mapping[str, Sequence[Fake]]]:
        """Kind of a fake → what it stands for → what its calls gave, one after the other."""
        fakes_by_kind: dict[str, dict[str, list[Fake]]] = {"functions": {}, "tools": {}, "http": {}}
        for kind, name, fake in chain.from_iterable(self._calls.values()):
            fakes_by_kind[kind].setdefault(name, []).append(fake)
        return fakes_by_kind

    def take(self, event: Event) -> None:
        if isinstance(event, NodeRecorded):
            self._take_record(event.node, event.record)
        elif isinstance(event, NodeStarted):
            attempts = self._calls.setdefault(event.node, [])
            if event.node in self._ended:
                attempts.clear()
                self._ended.discard(event.node)
        elif isinstance(event, NodeFailed):
            self._take_attempt(event.node, Fake("fails", event.error.message))
            self._ended.add(event.node)
        elif isinstance(event, NodeFinished):
            self._take_attempt(event.node, Fake("returns", event.result.output))
            self._ended.add(event.node)

    def _take_record(self, path: str, record: Any) -> None:
        name = file_path(path)
        if isinstance(record, Retry):
            self._take_attempt(path, Fake("fails", record.error))
        elif isinstance(record, ModelCall) and record.error is None:
            if record.purpose in PREPARING:
                self.notes["calls that prepare a prompt (summaries, embeddings) have no answers here"] = None
                return
            part = f"{name}.{record.purpose}"  # The judge or the router inside of an agent's node.
            self.answers.setdefault(part if part in self.seats else name, []).extend(_answers_of(record))
        elif isinstance(record, ToolCall) and not record.started and isinstance(self.nodes.get(name), AgentNode):
            if record.effect != "none" or record.name.startswith(self.servers):
                failed, value = Fake("fails", str(record.result)), _plain_value(record.value, record.result)
                fake = failed if record.is_error else Fake("returns", value)
                self._calls[f"{path}:{len(self._calls)}"] = [("tools", record.name, fake)]
        elif isinstance(record, Answered) and record.by != "expired":
            approval: dict[str, Any] = {"choice": record.choice}
            approval |= {"comment": record.comment} if record.comment else {}
            approval |= {"form": _plain_value(record.form)} if record.form is not None else {}
            self.approvals[question_path(name, record)] = approval if len(approval) > 1 else record.choice

    def _take_attempt(self, path: str, fake: Fake) -> None:
        kind, name = self._find_fake(file_path(path)) or ("", "")
        output = fake.value
        if kind == "http" and fake.kind == "returns":
            fields: Mapping[str, Any] = cast("Mapping[str, Any]", output) if isinstance(output, Mapping) else EMPTY
            output = {key: fields[key] for key in ("status", "body") if key in fields}
        if kind:
            self._calls.setdefault(path, []).append((kind, name, Fake(fake.kind, _plain_value(output))))

    def _find_fake(self, path: str) -> tuple[str, str] | None:
        """Where a fake of the node stands among `fakes`; None for a node that needs none."""
        node = self.nodes.get(path)
        if isinstance(node, HttpNode):
            return "http", path
        if isinstance(node, ToolNode) and (node.effect != "none" or not isinstance(node.tool, Tool)):
            return "tools", node.tool.name
        if isinstance(node, FunctionNode) and node.effect != "none":
            return "functions", path
        return None


def _answers_of(call: ModelCall) -> list[Any]:
    """Returns a model's answers in the form of scripts: each tool call separately."""
    if call.tool_calls:
        return [{"tool": each["name"], "arguments": _parse(str(each.get("arguments", "")))} for each in call.tool_calls]
    parsed = _parse(call.content)
    # With this key an object would be the wish to call a tool.
    return [parsed if is_map(parsed) and "tool" not in parsed else call.content]


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _plain_value(value: Any, otherwise: Any = None) -> Any:
    return to_json_value(otherwise if value is None else value)


def _fake_of(fakes: Sequence[Fake]) -> Any:
    """Writes fakes for a file of tests: one value where every call gave the same, else one for each call."""
    entries = [
        {each.kind: each.value} if each.kind == "fails" or is_map(each.value) else each.value for each in fakes
    ]  # A map could mean a failure.
    return entries[0] if len({dumps(each) for each in fakes}) == 1 else {"each": entries}


# --- From a run


def _ends_of(events: Sequence[Event], run_id: str) -> tuple[RunStarted, RunFinished]:
    started, ended = events[0] if events else None, events[-1] if events else None
    if not isinstance(started, RunStarted) or not isinstance(ended, RunFinished):
        raise InputError(f"run {run_id} has not ended: a test is made of one that has")
    if ended.status not in ("succeeded", "failed"):
        raise InputError(f"run {run_id} is {ended.status}: a test is made of one that succeeded or failed")
    _refuse_mixed(started, run_id)
    return started, ended


def _refuse_mixed(started: RunStarted, run_id: str) -> None:
    """`InputError` for a fork whose outputs do not follow from the flow and its inputs alone."""
    patches = patches_in(started.settings).items()
    changes = ", ".join(f"{node}: {key}={value}" for node, each in patches for key, value in each.items())
    if changes:
        raise InputError(f"run {run_id} is a fork that was given shared state ({changes}), which no test can give")
    edited = started.settings.get("edited", ())
    if edited:
        raise InputError(
            f"run {run_id} is a fork that took {', '.join(edited)} as they were, of other inputs or before an edit: "
            "run the flow with its inputs, and make a test of that run"
        )


_LIMITS: Final = ("cost_usd", "tokens", "model_calls", "timeout", "on_limit")


def make_test(
    events: Sequence[Event],
    run_id: str,
    *,
    mask: bool,
    folder: Path | None = None,
    name: str = "",
    lacking: Sequence[str] = (),
) -> MadeTest:
    """A flow test with one case. `folder`: that of the file that it will be in; `name`: of the case.
    `events`: with what led to re-used results (`unfold_reused`); `lacking`: why some of that is missing.

    `InputError` for a run that has not ended, or one of a flow without a file.
    """
    started, ended = _ends_of(events, run_id)
    if started.source is None or started.path is None:
        raise InputError(f"run {run_id} is of a flow without a file, and a test names one")
    flow = Flow.from_text(started.source, started.path)
    case = _Case(flow)
    case.notes.update(dict.fromkeys(lacking))
    limits = [name for name in _LIMITS if settings_of(events).get(name) is not None]
    if limits:
        case.notes[f"limits that were chosen for the run are not in the test: {', '.join(limits)}"] = None
    for event in events:
        case.take(event)
    if any(True for _ in find_files([dict(started.inputs)])):
        case.notes["files among the inputs are named by their hashes: write paths there"] = None
    expect: dict[str, Any] = {} if ended.status == "succeeded" else {"status": ended.status}
    outputs = {} if ended.outputs is None else {key: _plain_value(each) for key, each in ended.outputs.items()}
    expect |= {"outputs": {key: {"equals": each} for key, each in outputs.items()}} if outputs else {}
    sections: dict[str, Any] = {
        "inputs": _plain_value(dict(started.inputs)),
        "answers": {name: each[0] if len(each) == 1 else each for name, each in case.answers.items()},
        "fakes": {
            kind: {name: _fake_of(each) for name, each in fakes.items()} for kind, fakes in case.fakes.items() if fakes
        },
        "approvals": case.approvals,
        "expect": expect,
    }
    sections = {key: each for key, each in sections.items() if each}
    test_case = {"name": name or f"as in run {run_id}", **(_hide(sections) if mask else sections)}
    path = started.path if folder is None else os.path.relpath(started.path, folder)
    notes = list(case.notes)
    head = "".join(f"# {each}\n" for each in notes)
    return MadeTest(head + to_yaml({"flow": path.replace(os.sep, "/"), "cases": [test_case]}), notes)


def make_row(events: Sequence[Event], run_id: str, *, mask: bool) -> str:
    """A line of JSON for a file of data: the inputs, with what the run gave as `expected` (see `name_columns`)."""
    started, ended = _ends_of(events, run_id)
    expected, run = name_columns(started.inputs)
    row = {**started.inputs, expected: dict(ended.outputs or EMPTY)}
    return dumps({**(_hide(row) if mask else row), run: run_id})


def name_columns(inputs: Collection[str]) -> tuple[str, str]:
    """The names of the columns that hold a run's outputs and its id, beside those of inputs.

    >>> name_columns(["text"]), name_columns(["text", "expected"])
    (('expected', 'run'), ('recorded_expected', 'run'))
    """
    expected, run = "expected", "run"
    while expected in inputs:
        expected = f"recorded_{expected}"
    while run in inputs:
        run = f"recorded_{run}"
    return expected, run


def _hide(value: Mapping[str, Any]) -> dict[str, Any]:
    """The same without personal data and secrets; equal texts stay equal."""
    [event] = mask_events([RunFinished(0.0, "succeeded", value)])
    hidden = event.outputs if isinstance(event, RunFinished) else None
    return dict(hidden or EMPTY)
