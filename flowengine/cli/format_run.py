"""Formats a run from its progress, as lines of text (head, nodes, failures, outputs) or as JSON. It reads no store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from flowengine.cli.terminal import format_clock, format_dollars, format_span, format_table, format_tokens
from flowengine.core import CAUSE_TEXTS, EMPTY, NodeStatus, Notified, dumps, format_value
from flowengine.engine import RunStarted, patches_in
from flowengine.journal import digest_of, fields_of, labels_of
from visualize.edge_states import in_order
from visualize.progress import NodeRow, Progress, UsageTotals

MAX_VALUE_TEXT: Final = 2000
"""Characters of one value that are shown."""


_MOST_UNITS: Final = 10
"""Items of a map, or rounds of a loop, that ended well and are listed one by one."""


def format_run(
    progress: Progress, status: str = "", now: float | None = None, *, is_whole: bool = False
) -> Iterator[str]:
    """The lines of `runs show`. `status`: instead of the record's, which does not know that a run was left.
    `now`: until when a run is told of that goes on or waits. `is_whole`: every item and round is listed."""
    yield from _format_head(progress, status or progress.status, now)
    yield ""
    rows = in_order(progress)
    folded = {} if is_whole else _find_folded(rows)
    hidden = {unit for units in folded.values() for unit in units}
    lines: list[list[str]] = []
    for row in rows:
        if hidden.isdisjoint(_units_around(progress, row)):
            lines.append(_format_row(row, now))
            if row.id in folded:
                lines.append(_format_folded(row, len(folded[row.id])))
    yield from format_table(lines, right=(3, 4, 5))
    for row in rows:
        if row.error is not None:
            yield ""
            yield f"{row.id}: {row.error.type}"
            yield from indent_lines(shorten(row.error.message))
    for row in rows:
        for path, question in row.questions.items() if row.status == "waiting" else ():
            yield ""
            goes_with = f" (for {' or '.join(question.form_for)})" if question.form_for else ""
            form = (
                f", and a form with: {fields_of(question.form)}{goes_with}"
                if question.form is not None and not question.tool
                else ""
            )
            yield f"{path} asks for one of: {', '.join(question.choices)}{form}"
            yield from indent_lines(shorten(question.message))
            yield from (f"  {choice}: {shorten(means)}" for choice, means in question.describe.items())
            if question.approvers:
                yield f"  to be answered by {' or '.join(question.approvers)}"
        yield from (f"  {format_told(notice)}" for notice in row.deliveries)
    finished = progress.finished
    if finished is not None and finished.error is not None and finished.node is None:
        yield ""
        yield f"error: {shorten(finished.error.message)}"
    if finished is not None and finished.unkept:
        run_id = "" if progress.started is None else progress.started.run_id
        yield ""
        yield from (shorten(each) for each in finished.unkept)
        yield f"flowengine resume {run_id} tries again to keep them"
    if finished is not None and finished.outputs:
        yield ""
        yield from _format_values("outputs", finished.outputs)


def _units_around(progress: Progress, row: NodeRow) -> Iterator[str]:
    """The prefixes of the items and rounds that a row is in, from the nearest on."""
    while row.spot.container is not None:
        yield row.spot.unit
        row = progress.nodes[row.spot.container]


def _find_folded(rows: Sequence[NodeRow]) -> dict[str, set[str]]:
    """Container → the prefixes of its items or rounds that ended well, where those are many."""
    eventful = {row.id for row in rows if row.error is not None or row.status not in ("succeeded", "skipped")}
    units: dict[str, set[str]] = {}
    eventful_units: set[str] = set()
    for row in reversed(rows):  # What is inside a container comes behind it.
        if row.spot.container is not None and row.spot.number is not None:
            units.setdefault(row.spot.container, set()).add(row.spot.unit)
        if row.id in eventful and row.spot.container is not None:
            eventful_units.add(row.spot.unit)
            eventful.add(row.spot.container)
    ended = {name: names - eventful_units for name, names in units.items()}
    return {name: names for name, names in ended.items() if len(names) > _MOST_UNITS}


def _format_folded(row: NodeRow, count: int) -> list[str]:
    what = "rounds" if row.kind == "loop" else "items"
    return [f"{row.id}[…]", "", "succeeded", "", "", "", f"{count:,} {what} without a failure: --all lists them"]


def format_told(notice: Notified) -> str:
    """Formats the result of a notification."""
    whom = f"{notice.channel} ({notice.to})" if notice.to and notice.to != notice.channel else notice.channel
    return f"told: {whom}" if notice.error is None else f"not told: {whom}: {notice.error}"


def _format_head(progress: Progress, status: str, now: float | None) -> Iterator[str]:
    started = progress.started
    if started is None:
        return
    facts = [["run", started.run_id], ["flow", started.flow]]
    if started.path is not None:
        facts.append(["file", started.path])
    labels = labels_of(started)
    if labels:
        facts.append(["labels", " ".join(f"{name}={value}" for name, value in labels.items())])
    facts += _format_origins(started)
    facts += [["status", status], ["started", format_clock(started.at)]]
    facts.append(["took", format_span(progress.seconds(now or progress.last_at))])
    if progress.idle:
        facts.append(["at work", format_span(progress.working_seconds(progress.last_at))])
    if progress.usage.calls:
        facts.append(["models", format_usage(progress.usage)])
    nodes, of = progress.count_reused()
    if nodes:
        facts.append(["re-used", f"{nodes:,} of {of:,} nodes"])
    yield from format_table(facts)
    if started.inputs:
        yield ""
        yield from _format_values("inputs", started.inputs)


def _format_origins(started: RunStarted) -> Iterator[list[str]]:
    """Formats the runs that this run was derived from."""
    digest = digest_of([started])
    if digest.forked:
        yield ["forked", f"from {digest.forked}, at {digest.forked_at}"]
        for node, state in patches_in(started.settings).items():
            yield ["set", f"{node} finds {', '.join(f'{key}={dumps(each)}' for key, each in state.items())}"]
        edited = started.settings.get("edited", ())
        if edited:
            yield ["taken as it was", f"{', '.join(edited)} (made with other inputs, or edited since)"]
    elif digest.reuses:
        yield ["re-uses", ", ".join(digest.reuses)]
    if digest.session:
        yield ["session", digest.session]


def _to_origins(started: RunStarted) -> dict[str, Any]:
    """Describes the run that a fork came from; empty for any other run."""
    settings = started.settings
    if "forked" not in settings:
        return {}
    state = {node: dict(each) for node, each in patches_in(settings).items()}
    edited = list(settings.get("edited", ()))
    return {"forked": {"run": settings["forked"], "from": settings["from"], "set": state, "taken_as_it_was": edited}}


def format_usage(usage: UsageTotals) -> str:
    calls = f"{usage.calls} call{'s' * (usage.calls != 1)}"
    return ", ".join(
        each
        for each in (calls, format_tokens(usage.tokens), format_dollars(usage.cost_usd, is_whole=usage.is_whole))
        if each
    )


def _format_row(row: NodeRow, now: float | None) -> list[str]:
    usage = row.usage
    remark = CAUSE_TEXTS[row.cause] if row.cause else ""
    if row.result is not None and row.result.route is not None:
        remark = f"→ {row.result.route}"
    if row.reused is not None:
        remark = f"{remark} re-used from {row.reused.run_id}".strip()
    if row.retries:
        remark = f"{remark} ({row.retries} retried)".strip()
    waited = row.sum_waiting() if row.answered is not None else None
    if waited is not None:
        remark = f"{remark} (waited {format_span(waited)})".strip()
    if row.earlier_errors:
        remark = f"{remark} (resumed after {row.earlier_errors[-1].type})".strip()
    return [
        row.id,
        row.kind,
        row.status,
        format_span(row.seconds(now if row.status in ("running", "waiting") else None)) if row.has_run else "",
        format_tokens(usage.tokens) if usage.calls else "",
        format_dollars(usage.cost_usd, is_whole=usage.is_whole) if usage.calls else "",
        remark,
    ]


def _format_values(title: str, values: Mapping[str, Any]) -> Iterator[str]:
    yield title
    for name, value in values.items():
        text = shorten(format_value(value))
        if "\n" in text:
            yield f"  {name}:"
            yield from indent_lines(text, "    ")
        else:
            yield f"  {name}: {text}"


def shorten(text: str) -> str:
    """The text, or the beginning of a long one with a word on how long it is."""
    return (
        text
        if len(text) <= MAX_VALUE_TEXT
        else f"{text[:MAX_VALUE_TEXT]}… ({len(text):,} characters; --json has them all)"
    )


def indent_lines(text: str, by: str = "  ") -> Iterator[str]:
    for line in text.splitlines():
        yield f"{by}{line}" if line else ""


# --- A run as an object of JSON


def to_run_json(
    progress: Progress, outputs: Mapping[str, Any] | None, statuses: Mapping[str, NodeStatus] = EMPTY
) -> str:
    """`to_run_object` as text."""
    return dumps(to_run_object(progress, outputs, statuses), indent=2)


def to_run_object(
    progress: Progress, outputs: Mapping[str, Any] | None, statuses: Mapping[str, NodeStatus] = EMPTY
) -> dict[str, Any]:
    """The run as one object. `statuses` are the walk's, which also knows what an `on_error` made of a failure."""
    started, finished, usage = progress.started, progress.finished, progress.usage
    error: dict[str, Any] | None = None
    if finished is not None and finished.error is not None:
        error = {"type": finished.error.type, "message": finished.error.message, "node": finished.node}
    return {
        "run_id": "" if started is None else started.run_id,
        "flow": progress.flow,
        "status": progress.status,
        "labels": {} if started is None else labels_of(started),
        **({} if started is None else _to_origins(started)),
        "outputs": outputs,
        "error": error,
        **({"unkept": list(finished.unkept)} if finished is not None and finished.unkept else {}),
        "nodes": {name: to_node_object(row, statuses.get(name)) for name, row in progress.nodes.items()},
        "seconds": progress.seconds(),
        "idle_seconds": progress.idle,
        "reused": progress.count_reused()._asdict(),
        "tokens": usage.tokens,
        "cost_usd": usage.cost_usd,
    }


def to_node_object(row: NodeRow, status: NodeStatus | None = None) -> Mapping[str, Any]:
    """One node as an object."""
    return {
        **row.to_object(),
        "status": status or row.status,
        "error": None if row.error is None else row.error._asdict(),
        "earlier_errors": [each._asdict() for each in row.earlier_errors],
    }
