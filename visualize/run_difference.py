"""Tells what two runs differ in, with the likely causes first: what was chosen or edited, before what followed from it.

Pure. A difference is a cause where a person made it (model, file, inputs, options, code), or where it stands first in
the flow and nothing before it explains it. A prompt that differs behind another output is what followed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple, cast, get_args

from flowengine.core import ModelCall, ToolCall
from flowengine.engine import Event, NodeRecorded, RunResumed, patches_in
from visualize.definition_lines import find_definition
from visualize.edge_states import in_order
from visualize.plain import format_value, jsonable
from visualize.progress import NodeRow, Progress, fold_events
from visualize.run_times import RunTimes, times_of
from visualize.style import cut

CauseKind = Literal["model", "prompt", "options", "file", "tools", "inputs", "person", "settings", "answer"]
CAUSES: Final[tuple[CauseKind, ...]] = get_args(CauseKind)
"""In the order in which they are told. `person`: somebody who was asked; `answer`: a model that said something else."""

MOST_RUNS: Final = 10
"""Runs that are compared at once."""
_MAX_CALLS: Final = 20
"""Calls of one node that are compared."""
_OWN_SETTINGS: Final = frozenset(
    {
        *("folder", "forked", "from", "set", "patches", "edited", "session", "run_id", "labels", "reuse"),
        *("queue", "priority"),
    }
)
"""Settings of a run that are no choice of how it answers."""


class LikelyCause(NamedTuple):
    """Something that a person changed, or that changed by itself."""

    kind: CauseKind
    title: str
    before: Any = None
    after: Any = None
    node: str = ""
    """Path of the node that it is about; empty: the run."""


class NodeDifference(NamedTuple):
    """A node of either run, and in what the two differ."""

    path: str
    a: NodeRow | None
    b: NodeRow | None
    differs: tuple[str, ...] = ()
    """`status`, `route`, `output`, `model`, `prompt`, `options`, `tools`; empty where nothing that was told differs."""


class RunSide:
    """One run, read for a comparison."""

    def __init__(self, events: Sequence[Event], progress: Progress | None = None) -> None:
        self.events = events
        self.progress = fold_events(events) if progress is None else progress
        self.calls: defaultdict[str, list[ModelCall]] = defaultdict(list)
        self.tool_calls: defaultdict[str, list[ToolCall]] = defaultdict(list)
        started = self.progress.started
        self.fingerprints: Mapping[str, str] = {} if started is None else started.fingerprints
        self.first_fingerprints = self.fingerprints
        """Fingerprints of the source that the run keeps; it may have gone on with an edited one."""
        self.code: Mapping[str, str] = {} if started is None else started.code
        self.settings: dict[str, Any] = {} if started is None else dict(started.settings)
        for event in events:
            if isinstance(event, NodeRecorded):
                if isinstance(event.record, ModelCall):
                    self.calls[event.node].append(event.record)
                elif isinstance(event.record, ToolCall) and not event.record.started:
                    self.tool_calls[event.node].append(event.record)
            elif isinstance(event, RunResumed):
                self.fingerprints = event.fingerprints or self.fingerprints
                self.code = event.code or self.code
                self.settings |= event.settings

    @property
    def run_id(self) -> str:
        return "" if self.progress.started is None else self.progress.started.run_id

    @property
    def inputs(self) -> Mapping[str, Any]:
        return {} if self.progress.started is None else self.progress.started.inputs

    @property
    def source(self) -> str:
        return "" if self.progress.started is None else self.progress.started.source or ""

    @cached_property
    def times(self) -> RunTimes:
        return times_of(self.events)


class RunDifference(NamedTuple):
    """The difference between two runs."""

    causes: Sequence[LikelyCause]
    """Likely causes, by `CAUSES`."""
    nodes: Sequence[NodeDifference]
    """Every node of either run, in the order of the flow."""
    first: NodeDifference | None
    """The first node in that order in which they differ; a container only where nothing inside it does."""


class Figures(NamedTuple):
    """The usage of a run or a node."""

    seconds: float | None = None
    worked: float | None = None
    """Without waits, queues and what was made again."""
    cost_usd: float | None = None
    tokens: int | None = None
    calls: int = 0


def figures_of(side: RunSide, path: str | None = None) -> Figures:
    """Returns the figures of the run, or of one node; they are None where nothing ran or they are not known."""
    progress = side.progress
    row = None if path is None else progress.nodes.get(path)
    if path is not None and (row is None or not row.has_run):
        return Figures()
    usage = progress.usage if row is None else row.usage
    seconds = progress.seconds(progress.last_at) if row is None else row.seconds(progress.last_at)
    parts = side.times.parts if path is None else side.times.parts_of(path)
    has_usage = usage.calls > 0
    return Figures(
        seconds,
        parts["worked"],
        usage.cost_usd if has_usage else None,
        usage.tokens if has_usage else None,
        usage.calls,
    )


def delta_text(before: float | None, after: float | None, tell: Callable[[float], str]) -> str:
    """Formats a difference with its share; empty if a value is unknown or both are equal.

    >>> delta_text(2.0, 3.0, "{:.1f} s".format), delta_text(0, 3, str), delta_text(4, 1, str), delta_text(None, 1, str)
    ('+1.0 s (+50 %)', '+3', '−3 (−75 %)', '')
    """
    if before is None or after is None or before == after:
        return ""
    sign = "+" if after > before else "−"
    share = abs(after - before) / before * 100 if before else None
    ratio = "" if share is None else f" ({sign}{share:,.0f} %)" if share < 1_000 else f" (×{after / before:,.0f})"
    return f"{sign}{tell(abs(after - before))}{ratio}"


def outputs_of(side: RunSide) -> Any:
    """Returns a run's outputs, or None."""
    finished = side.progress.finished
    return None if finished is None or finished.outputs is None else jsonable(finished.outputs)


def models_of(side: RunSide) -> list[str]:
    """The models that answered in a run, each once."""
    return list(dict.fromkeys(call.model for calls in side.calls.values() for call in calls if call.error is None))


def compare_runs(a: RunSide, b: RunSide) -> RunDifference:
    """Compares the second run with the first."""
    rows = {row.id: row for run in (b, a) for row in in_order(run.progress)}
    order = _merge_orders(*([row.id for row in in_order(run.progress)] for run in (a, b)))
    nodes = [
        NodeDifference(
            path, a.progress.nodes.get(path), b.progress.nodes.get(path), tuple(_list_differences(a, b, path))
        )
        for path in order
    ]
    sites = {path: rows[path].spot.site for path in order}
    containers = {row.spot.container for row in rows.values()}
    leaves = [each for each in nodes if each.path not in containers]
    edited = _changed_keys(a.fingerprints, b.fingerprints)
    if a.source != b.source:
        edited |= _changed_keys(a.first_fingerprints, b.first_fingerprints)
    causes = [
        *_compare_calls(a, b, leaves, sites, edited),
        *_compare_files(a, b, edited),
        *_compare_code(a, b),
        *_compare_inputs(a.inputs, b.inputs),
        *_compare_people(leaves),
        *_compare_settings(a, b),
    ]
    if not causes:
        causes += _find_answer(a, b, nodes)
    first = next((each for each in (*leaves, *nodes) if each.differs), None)
    return RunDifference(sorted(causes, key=lambda each: CAUSES.index(each.kind)), nodes, first)


# --- Nodes


def _merge_orders(one: Sequence[str], other: Sequence[str]) -> list[str]:
    """All paths of both: those of the other alone stand behind what they stand behind there.

    >>> _merge_orders(["start", "each", "each[0].a", "end"], ["start", "each", "each[0].a", "each[1].a", "end"])
    ['start', 'each', 'each[0].a', 'each[1].a', 'end']
    """
    paths, at = set(one), ""
    behind: dict[str, list[str]] = {}
    for path in other:
        if path in paths:
            at = path
        else:
            behind.setdefault(at, []).append(path)
    return [*behind.get("", ()), *(each for path in one for each in (path, *behind.get(path, ())))]


def _list_differences(a: RunSide, b: RunSide, path: str) -> Iterator[str]:
    one, other = a.progress.nodes.get(path), b.progress.nodes.get(path)
    if _status_of(one) != _status_of(other):
        yield "status"
    if _route_of(one) != _route_of(other):
        yield "route"
    if one is not None and other is not None and _output_of(one) != _output_of(other):
        yield "output"
    if a.calls[path] and b.calls[path]:
        for name, read in _READ.items():
            if _first_change(a.calls[path], b.calls[path], read) is not None:
                yield name
    if [_tool_words(each) for each in a.tool_calls[path]] != [_tool_words(each) for each in b.tool_calls[path]]:
        yield "tools"


def _status_of(row: NodeRow | None) -> str:
    return "pending" if row is None else row.status


def _route_of(row: NodeRow | None) -> str | None:
    return None if row is None or row.result is None else row.result.route


def _output_of(row: NodeRow) -> Any:
    return None if row.result is None else jsonable(row.result.output)


def _tool_words(call: ToolCall) -> tuple[str, Any]:
    return call.name, jsonable(call.arguments)


# --- Calls


def _prompt_of(call: ModelCall) -> str:
    messages = [
        f"{each.get('role', '?')}:\n{format_value(each.get('content') or each.get('tool_calls') or '')}"
        for each in call.messages
    ]
    return "\n\n".join(messages)


def _options_of(call: ModelCall) -> dict[str, Any]:
    return {name: jsonable(value) for name, value in call.request.items() if name not in ("model", "tools")}


def _list_offered(call: ModelCall) -> list[str]:
    """Names of the tools that a model may call."""
    tools = call.request.get("tools") or ()
    names: list[str] = []
    for each in cast("Sequence[Any]", tools) if isinstance(tools, list | tuple) else ():
        shape: Mapping[str, Any] = cast("Mapping[str, Any]", each) if isinstance(each, Mapping) else {}
        inner = shape.get("function")
        about: Mapping[str, Any] = cast("Mapping[str, Any]", inner) if isinstance(inner, Mapping) else shape
        names.append(str(about.get("name", "?")))
    return names


_READ: Final[Mapping[str, Callable[[ModelCall], Any]]] = {
    "model": lambda call: call.model,
    "prompt": _prompt_of,
    "options": _options_of,
}


def _first_change(
    one: Sequence[ModelCall], other: Sequence[ModelCall], read: Callable[[ModelCall], Any]
) -> tuple[Any, Any] | None:
    """Returns the difference of the first pair of calls that differ."""
    for before, after in zip(one[:_MAX_CALLS], other[:_MAX_CALLS], strict=False):
        if before.purpose == after.purpose and read(before) != read(after):
            return read(before), read(after)
    return None


def _compare_calls(
    a: RunSide, b: RunSide, nodes: Sequence[NodeDifference], sites: Mapping[str, str], edited: frozenset[str]
) -> Iterator[LikelyCause]:
    """Yields causes in the requests to models: each kind once a site. A prompt counts where its node was edited, or
    where nothing before it explains it."""
    reported: set[tuple[str, str]] = set()
    is_explained = _changed_keys(a.inputs, b.inputs) != frozenset()
    for node in nodes:
        site, calls = sites[node.path], (a.calls[node.path], b.calls[node.path])
        for kind, read in (*_READ.items(), ("tools", _list_offered)):
            change = _first_change(*calls, read)
            is_cause = kind != "prompt" or site in edited or not is_explained
            if change is None or (kind, site) in reported or not is_cause:
                continue
            reported.add((kind, site))
            yield LikelyCause(cast("CauseKind", kind), _title_of(kind, node.path, change), *change, node.path)
        is_explained = is_explained or bool(node.differs)


def _title_of(kind: str, path: str, change: tuple[Any, Any]) -> str:
    before, after = change
    if kind == "model":
        return f"{path} asks {after} in the place of {before}"
    if kind == "prompt":
        return f"The prompt of {path}"
    if kind == "tools":
        removed, new = [each for each in before if each not in after], [each for each in after if each not in before]
        words = [f"without {', '.join(removed)}"] * bool(removed) + [f"with {', '.join(new)}"] * bool(new)
        return f"The tools of {path}: {' and '.join(words) or 'in another order'}"
    changed = sorted(_changed_keys(before, after))
    words = [f"{name} {_brief(before.get(name))} → {_brief(after.get(name))}" for name in changed[:4]]
    return f"Options of {path}: {', '.join(words)}"


def _brief(value: Any) -> str:
    return "not set" if value is None else cut(format_value(value), 40)


def _changed_keys(one: Mapping[str, Any], other: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(
        name
        for name in {*one, *other}
        if name not in one or name not in other or jsonable(one[name]) != jsonable(other[name])
    )


# --- What surrounds the run


def _compare_files(a: RunSide, b: RunSide, edited: frozenset[str]) -> Iterator[LikelyCause]:
    if a.progress.flow != b.progress.flow:
        yield LikelyCause("file", f"Runs of two flows: {a.progress.flow} and {b.progress.flow}")
    if not a.source or not b.source or a.source == b.source:
        if edited and a.source == b.source and a.settings.get("model") == b.settings.get("model"):
            yield LikelyCause("file", f"The definition of {', '.join(sorted(edited))}")
        return
    if not edited:
        yield LikelyCause("file", "The flow file, in nothing that a node depends on", a.source, b.source)
        return
    for site in sorted(edited):
        definitions = [find_definition(each.source, site.split(".")) for each in (a, b)]
        before, after = ("" if each is None else "\n".join(each[1]) for each in definitions)
        if before != after:
            yield LikelyCause("file", f"The definition of {site}", before, after, site)


def _compare_code(a: RunSide, b: RunSide) -> Iterator[LikelyCause]:
    changed = sorted(name for name in a.code.keys() & b.code.keys() if a.code[name] != b.code[name])
    if changed:
        yield LikelyCause("tools", f"The code of the functions of {', '.join(changed)}")


def _compare_inputs(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[LikelyCause]:
    for name in sorted(_changed_keys(a, b)):
        yield LikelyCause("inputs", f"Input {name}", a.get(name), b.get(name))


def _compare_people(nodes: Sequence[NodeDifference]) -> Iterator[LikelyCause]:
    """Questions that were answered in another way."""
    for node in nodes:
        one, other = (None if row is None else row.answered for row in (node.a, node.b))
        if one is not None and other is not None and (one.choice, one.form) != (other.choice, other.form):
            who = f" by {other.by}" if other.by else ""
            before, after = ({"choice": each.choice, "form": each.form} for each in (one, other))
            same = one.choice == other.choice
            how = "with another form" if same else f"not {one.choice}"
            title = f"{node.path} was answered {other.choice}{who}, {how}"
            yield LikelyCause("person", title, before if same else None, after if same else None, node.path)


def _compare_settings(a: RunSide, b: RunSide) -> Iterator[LikelyCause]:
    for name in sorted(_changed_keys(a.settings, b.settings) - _OWN_SETTINGS):
        before, after = a.settings.get(name), b.settings.get(name)
        kind: CauseKind = "model" if name == "model" else "settings"
        yield LikelyCause(kind, f"Setting {name}: {_brief(before)} → {_brief(after)}", before, after)
    before, after = patches_in(a.settings), patches_in(b.settings)
    for node in sorted(_changed_keys(before, after)):
        was, now = before.get(node), after.get(node)
        title = f"Shared state as {node} finds it: {_brief(was)} → {_brief(now)}"
        yield LikelyCause("settings", title, was, now, node)
    one, other = a.progress.started, b.progress.started
    if one is not None and other is not None:
        if one.engine != other.engine:
            yield LikelyCause("settings", f"FlowEngine {one.engine or '?'} → {other.engine or '?'}")
        names = sorted(_changed_keys(one.env, other.env))
        if names:
            yield LikelyCause("settings", f"The environment: {', '.join(names)}")


def _find_answer(a: RunSide, b: RunSide, nodes: Sequence[NodeDifference]) -> Iterator[LikelyCause]:
    """Nothing was changed: the first node whose model was asked the same and said something else."""
    for node in nodes:
        calls = a.calls[node.path], b.calls[node.path]
        if not node.differs or not all(calls):
            continue
        change = _first_change(*calls, lambda call: call.content or [jsonable(each) for each in call.tool_calls])
        if change is not None:
            yield LikelyCause(
                "answer", f"{node.path} was asked the same and answered something else", *change, node.path
            )
            return
