"""Makes the panel of one node: everything that a run's record says about it, as a fragment of HTML.

The same fragment stands in the live page, where the server makes it, and in the exported file. Parts carry
`data-seq`, the position of the event that brought them, so that the page can hide what was not known yet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from flowengine.core import CAUSE_TEXTS, EvaluationResult, ModelCall, Round, RoutingResult, find_files
from flowengine.engine import ErrorInfo, Event, NodeFailed, NodeFinished, NodeRecorded
from visualize.progress import NodeRow
from visualize.states import Change
from visualize.viewer.actions import action_section, list_node_actions
from visualize.viewer.feed import preview
from visualize.viewer.forms import Acting, approval_form
from visualize.viewer.html import Child, Markup, element, join, place, play_url, whole
from visualize.viewer.panel_input import definition_section, input_sections
from visualize.viewer.panel_records import meter, record_section, rounds_section
from visualize.viewer.parts import (
    Embedded,
    badge,
    clock,
    difference,
    facts,
    files_of_record,
    files_section,
    fold,
    format_cost,
    note,
    section,
    table,
    took,
    usage_facts,
    value,
)
from visualize.viewer.reading import Reading
from visualize.why import CodeText, NodeName, Words, edges_from, explain_edges, explain_node, rows_before

_MAX_LISTED: Final = 200
"""Rows of a node's times that are listed."""


_MAX_ABOUT: Final = 4
"""Outputs that are shown beside a question."""


def node_panel(run: Reading, node: str, acting: Acting | None = None, embeds: Embedded | None = None) -> Markup:
    """The panel of a node's path, or of a node that runs many times.

    `acting`: None where approvals cannot be answered here. `embeds`: the images of an exported page.
    """
    row = run.row(node)
    if row is not None:
        parts = list(_describe_row(run, row, acting, embeds))
    elif node in run.progress.skeleton.sites:
        parts = list(_describe_site(run, node))
    else:
        parts = [element("h2", node), note("The run has no such node.")]
    return Markup(whole(element("article", parts, class_="node-panel", data_panel=node)))


def _describe_row(
    run: Reading, row: NodeRow, acting: Acting | None, embeds: Embedded | None
) -> Iterator[Markup | None]:
    part = run.part(row.id)
    yield _make_head(row)
    yield action_section([*list_node_actions(run, row.id, acting)], run.run_id, row.id, acting)
    if row.status == "waiting" and acting is not None:
        for path, question in row.questions.items():
            ways = {label: after for after, labels in edges_from(run.progress, row) for label in labels}
            about = [fold(["About: ", each.id], value(each.result.output), is_open=True)
                     for each in rows_before(run.progress, row)
                     if each.result is not None and each.result.output is not None]  # fmt: skip
            yield approval_form(run.run_id, path, question, acting, about=about[:_MAX_ABOUT], ways=ways)
    failed = [(seq, event.error) for seq, event in part if isinstance(event, NodeFailed)]
    if row.error is not None:
        yield from [_make_error(error, seq) for seq, error in failed[-1:]]
    yield _make_why(run, row)
    panes = {
        "input": list(input_sections(run, row)),
        "calls": list(_list_records(run, part, acting, embeds)),
        "output": [*_list_outputs(run, row, part, embeds), *_list_inside(run, row)],
        "definition": [definition_section(run, row.spot.site, links=embeds is None)],
    }
    contents = {name: markups for name, parts in panes.items() if (markups := [each for each in parts if each])}
    yield _make_tabs(contents) if contents else None
    for name, parts in contents.items():
        yield element("div", parts, class_="pane", data_pane=name)
    for seq, error in failed[: -1 if row.error is not None else None]:
        yield _make_earlier_error(error, seq)


_PANES: Final = {"all": "All", "input": "Input", "calls": "Calls", "output": "Output", "definition": "Definition"}


def _make_tabs(names: Collection[str]) -> Markup:
    """One tab for each pane that has something in it; our script shows the chosen one, and remembers it."""
    tabs = [
        element("button", title, type="button", role="tab", data_open=name, aria_selected=str(name == "all").lower())
        for name, title in _PANES.items()
        if name == "all" or name in names
    ]
    return element("div", tabs, role="tablist", class_="tabs panes", aria_label="Parts of the node")


def _list_outputs(
    run: Reading, row: NodeRow, part: Sequence[tuple[int, Event]], embeds: Embedded | None
) -> Iterator[Markup | None]:
    finished = [(seq, event) for seq, event in part if isinstance(event, NodeFinished)]
    for seq, event in finished[-1:]:
        result = event.result
        yield _make_routing(result.routing, seq) if isinstance(result.routing, RoutingResult) else None
        yield _make_evaluation(result.evaluation, seq) if isinstance(result.evaluation, EvaluationResult) else None
        yield _make_output(result.output, seq)
        yield files_section(run.run_id, find_files([result.output, result.state]), seq, embeds=embeds)
        yield _make_state(run.states.changes(row.id), seq)


def _list_records(
    run: Reading, part: Sequence[tuple[int, Event]], acting: Acting | None, embeds: Embedded | None
) -> Iterator[Markup | None]:
    records: list[tuple[int, Any]] = [(seq, event.record) for seq, event in part if isinstance(event, NodeRecorded)]
    yield rounds_section([(seq, each) for seq, each in records if isinstance(each, Round)])
    for seq, record in records:
        yield record_section(record, seq)
        if acting is not None and "play" in acting.does and isinstance(record, ModelCall) and not record.vectors:
            link = element("a", "Change and ask again", href=play_url(run.run_id, seq), class_="button")
            yield element("div", link, class_="actions", data_seq=seq)
        yield files_section(run.run_id, files_of_record(record), seq, embeds=embeds)


def _make_head(row: NodeRow) -> Markup:
    rows: list[tuple[str, Child]] = [
        ("Kind", row.kind),
        ("Because", CAUSE_TEXTS[row.cause] if row.cause else None),
        ("Route", f"→ {row.result.route}" if row.result is not None and row.result.route is not None else None),
        ("Started", clock(row.started)),
        ("Took", took(row.seconds()) if row.has_run else None),
        ("Of which waiting", took(row.sum_waiting()) if row.question is not None else None),
        ("Attempts", str(row.retries + 1) if row.retries else None),
        *usage_facts(row.usage),
    ]
    return join([element("h2", _make_path(row), badge(row.status)), facts(rows)])


def _make_why(run: Reading, row: NodeRow) -> Markup | None:
    """Makes the explanation why a node ran or not and where it led, with the values."""
    reasons = [element("li", _make_words(each)) for each in explain_node(run.progress, row)]
    ways = [element("li", _make_words(each)) for each in islice(explain_edges(run.progress, row), _MAX_LISTED)]
    if not reasons and not ways:
        return None
    seq = next((seq for seq, event in run.part(row.id) if not isinstance(event, NodeRecorded)), None)
    return section(
        "Why",
        element("ul", reasons, class_="why") if reasons else None,
        fold(f"Where it leads: {len(ways)}", element("ul", ways, class_="why"), seq=run.end_position(row.id))
        if ways
        else None,
        seq=seq,
    )


def _make_words(words: Words) -> list[Child]:
    return [
        link(each.path, each.text) if isinstance(each, NodeName)
        else element("code", each) if isinstance(each, CodeText) else each
        for each in words
    ]  # fmt: skip


def _make_path(row: NodeRow) -> Markup:
    """The path, with a link to the container that it is inside."""
    container = row.spot.container
    if container is None:
        return element("span", row.id, class_="path")
    return element("span", link(container), row.id[len(container) :], class_="path")


def link(node: str, text: str | None = None) -> Markup:
    """A link that our script follows: to another node of the same run."""
    return element("a", node if text is None else text, href=place(node))


def _make_error(error: ErrorInfo, seq: int) -> Markup:
    return section(
        f"Error: {error.type}",
        note("It began in ", link(error.node), ".") if error.node else None,
        value(error.message),
        fold("Traceback", value(error.detail, is_source=True)) if error.detail else None,
        seq=seq,
        class_="bad",
    )


def _make_earlier_error(error: ErrorInfo, seq: int) -> Markup:
    """A failure that is past: the run was resumed after it, and the node ran again."""
    return fold(
        f"Failed before the run was resumed: {error.type}",
        note("The run was resumed, and the node ran again."),
        value(error.message),
        value(error.detail, is_source=True) if error.detail else None,
        seq=seq,
    )


def _make_output(output: Any, seq: int) -> Markup | None:
    """Makes the node's output; judgements and decisions are shown elsewhere."""
    if output is None:
        return None
    if isinstance(output, (EvaluationResult, RoutingResult)):
        return fold("Output", value(output), seq=seq)
    return section("Output", value(output), seq=seq)


def _make_routing(routing: RoutingResult, seq: int) -> Markup:
    rows: list[tuple[str, Child]] = [("Route", f"→ {routing.next_route}"), ("Confidence", meter(routing.confidence))]
    return section("Routing", facts(rows), value(routing.reasoning) if routing.reasoning else None, seq=seq)


def _make_evaluation(result: EvaluationResult, seq: int) -> Markup:
    rows: list[tuple[str, Child]] = [("Score", meter(result.score)), ("Verdict", _format_verdict(result.passed))]
    criteria: list[tuple[str, Child]] = [(name, meter(score)) for name, score in result.criteria_scores.items()]
    return section(
        "Evaluation",
        facts([*rows, *criteria]),
        value(result.feedback) if result.feedback else None,
        element("ul", [element("li", each) for each in result.suggestions]) if result.suggestions else None,
        seq=seq,
    )


def _format_verdict(passed: bool) -> str:
    return "✓ passed" if passed else "✗ did not pass"


def _make_state(changes: Sequence[Change], seq: int) -> Markup | None:
    """Makes the list of the node's writes to shared state, before and after."""
    return section("Shared state that it wrote", [_make_change(each) for each in changes], seq=seq) if changes else None


def _make_change(change: Change) -> Markup:
    rule = f" ({change.rule})" if change.rule not in ("", "error") else ""
    title = element("h4", element("code", change.key), rule)
    if not change.had:
        return join([title, value(change.after, class_="new")])
    return join([title, difference(change.before, change.after)])


def _list_inside(run: Reading, container: NodeRow) -> Iterator[Markup]:
    """The nodes that ran inside a container, newest item or round last."""
    rows = (
        [row for row in run.progress.nodes.values() if row.spot.container == container.id] if container.inside else []
    )
    if rows:
        total = f" of {container.total:,}" if container.total is not None else ""
        count = f", ×{len(container.units):,}{total}" if container.units else ""
        yield section(f"Inside{count}", _list_times(run, rows, len(container.id)))


def _describe_site(run: Reading, site: str) -> Iterator[Markup]:
    rows = run.times(site)
    yield element("h2", element("span", site, class_="path"), f" ×{len(rows):,}")
    yield facts([("Kind", run.progress.skeleton.sites[site].kind)])
    yield section("Times", _list_times(run, rows, 0)) if rows else note("It has not run.")


def _list_times(run: Reading, rows: Sequence[NodeRow], prefix: int) -> Markup:
    """A table of rows: those that did not succeed first where there are too many to list."""
    selection = rows
    if len(rows) > _MAX_LISTED:
        ids = {row.id for row in sorted(rows, key=lambda row: row.status in ("succeeded", "skipped"))[:_MAX_LISTED]}
        selection = [row for row in rows if row.id in ids]
    cells = [
        [
            link(row.id, row.id[prefix:].lstrip(".")),
            badge(row.status),
            took(row.seconds()) if row.has_run else "",
            format_cost(row.usage) if row.usage.calls else "",
            _make_gist(row),
        ]
        for row in selection
    ]
    more = len(rows) - len(selection)
    return join(
        [
            table(
                ["Node", "Status", "Took", "Cost", "Result"],
                cells,
                numbers=(2, 3),
                seqs=[run.end_position(row.id) for row in selection],
                class_="times",
            ),
            note(f"And {more:,} more: choose one in the timeline.") if more else None,
        ]
    )


def _make_gist(row: NodeRow) -> Child:
    if row.error is not None:
        return preview(row.error.message)
    if row.cause is not None:
        return CAUSE_TEXTS[row.cause]
    if row.result is None:
        return None
    evaluation = row.result.evaluation
    score = meter(evaluation.score) if isinstance(evaluation, EvaluationResult) else None
    return [score, " " if score else None, preview(row.result.output) if row.result.output is not None else None]
