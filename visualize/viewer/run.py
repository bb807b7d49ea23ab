"""Makes the page of one run: its graph, a panel for the chosen node, the timeline and a scrubber over its events.

The server makes the frame, the graph and the panels; our script folds the feed and repaints. The same page is
served live, and written to one file with everything in it (`export_page`).
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import Any, Final

from flowengine.core import find_files
from flowengine.journal import labels_of
from visualize.plain import jsonable
from visualize.states import read_declared
from visualize.viewer.actions import action_section, command_line, list_run_actions
from visualize.viewer.feed import feed
from visualize.viewer.forms import Acting, form
from visualize.viewer.graph import graph_data, graph_markup, legend_markup
from visualize.viewer.html import (
    Child,
    Markup,
    cancel_url,
    compare_url,
    data_block,
    element,
    events_url,
    export_url,
    flow_url,
    panel_url,
    times_url,
)
from visualize.viewer.notes import RunAbout, list_origins, notes_section
from visualize.viewer.page import file_page, page
from visualize.viewer.panel import node_panel
from visualize.viewer.parts import (
    Embedded,
    badge,
    clock,
    facts,
    files_section,
    fold,
    note,
    section,
    took,
    usage_facts,
    value,
)
from visualize.viewer.reading import Reading


def run_page(
    run: Reading,
    acting: Acting | None = None,
    usual: Mapping[str, Any] | None = None,
    about: RunAbout = RunAbout(),  # noqa: B008
) -> str:
    """The page as the server sends it; panels and further events are asked for when they are needed.

    `acting`: where something can be done in it. `usual`: how long its nodes took in earlier runs. `about`: what is
    known of the run beside its record.
    """
    sources: dict[str, Any] = {"panels": panel_url(run.run_id), "events": events_url(run.run_id, len(run.events))}
    sources["times"] = times_url(run.run_id)
    sources["usual"] = usual
    return page(
        name_run(run),
        _make_head(run, links=True, acting=acting, about=about),
        _make_main(run),
        _make_data(run, sources),
        class_="run",
        status=run.progress.status,
    )


def export_page(
    run: Reading,
    read: Callable[[str], bytes] | None = None,
    about: RunAbout = RunAbout(),  # noqa: B008
) -> str:
    """The page as one file that opens from a disk. `read`: the contents of files; None: all are left out."""
    parts = export_parts(run, Embedded(read), about)
    return file_page(name_run(run), *parts, class_="run", status=run.progress.status)


def export_parts(run: Reading, embeds: Embedded, about: RunAbout) -> list[Child]:
    """Returns the parts of a run's page in a file, alone or among several."""
    panels = run.panels()
    templates = [element("template", node_panel(run, path, embeds=embeds)) for path in panels]
    return [
        _make_head(run, links=False, embeds=embeds, about=about),
        _make_main(run, embeds),
        element("div", templates, id="panels", hidden=True),
        _make_data(run, {"list": panels}),
        data_block("times", run.where_time_went.to_plain()),
    ]


def name_run(run: Reading) -> str:
    return f"{run.progress.flow} {run.run_id}"


def head_of(run: Reading) -> dict[str, Any]:
    """Returns the initial data of the script: the graph's shape, the merge rules, and the drawing."""
    picture = run.foldable_picture
    return {
        "run": run.run_id,
        "graph": run.progress.skeleton.top.to_plain(),
        "state": {key: [rule.merge, jsonable(rule.default)] for key, rule in read_declared(run.progress).items()},
        "drawn": [node.id for node in picture.nodes],
        **graph_data(picture, run.picture, is_large=run.is_large),
    }


def _format_labels(run: Reading) -> str | None:
    started = run.progress.started
    pairs = () if started is None else labels_of(started).items()
    return ", ".join(f"{name}={value}" for name, value in pairs) or None


def _make_data(run: Reading, sources: dict[str, Any]) -> list[Markup]:
    """The head, with the places where there is more, and the events so far."""
    lines = [feed(event, seq) for seq, event in enumerate(run.events)]
    return [data_block("head", {**head_of(run), **sources}), data_block("feed", lines)]


def _make_head(
    run: Reading,
    *,
    links: bool,
    acting: Acting | None = None,
    embeds: Embedded | None = None,
    about: RunAbout,
) -> Markup:
    progress = run.progress
    started, finished = progress.started, progress.finished
    rows: list[tuple[str, Child]] = [
        ("Run", element("code", run.run_id)),
        ("Started", clock(None if started is None else started.at)),
        ("Took", element("span", took(progress.seconds(progress.last_at)), id="took")),
        ("At work", took(progress.working_seconds(progress.last_at)) if progress.idle else None),
        *[(name, element("span", child, id=f"run-{name.split()[-1].lower()}")) for name, child in _list_usage(run)],
        ("File", started.path if started is not None else None),
        ("Labels", _format_labels(run)),
        ("Left", element("span", " ", id="left") if run.is_live and links else None),
        *list_origins(run, about, links=links),
    ]
    name: Child = element("a", progress.flow, href=flow_url(progress.flow)) if links else progress.flow
    error = None if finished is None or finished.error is None else note(finished.error.message, kind="bad")
    return element(
        "header",
        element("h1", element("bdi", name), " ", element("span", badge(progress.status), id="status")),
        facts(rows),
        element("div", error, id="error"),
        element(
            "div",
            _make_values(run, embeds),
            notes_section(run, about.notes, acting),
            [_make_compare_link(run), " ", _make_export_link(run)] if links else None,
            _make_cancel_form(run, acting),
            action_section([*list_run_actions(run, acting)], run.run_id, None, acting),
            class_="folds",
        ),
        class_="run-head",
    )


def _list_usage(run: Reading) -> list[tuple[str, Child]]:
    return usage_facts(run.progress.usage) or [("Model calls", "0"), ("Tokens", "0"), ("Cost", "$0")]


def _make_values(run: Reading, embeds: Embedded | None) -> list[Markup | None]:
    started, finished = run.progress.started, run.progress.finished
    outputs = None if finished is None else finished.outputs
    notices = list(run.progress.notices)
    return [
        fold("Inputs", value(started.inputs), _show_files(run, started.inputs, embeds))
        if started is not None and started.inputs
        else None,
        fold("Outputs", value(outputs), _show_files(run, outputs, embeds)) if outputs else None,
        fold(f"Notices: {len(notices)}", [note(each) for each in notices]) if notices else None,
    ]


def _show_files(run: Reading, content: Any, embeds: Embedded | None) -> Markup | None:
    return files_section(run.run_id, find_files(content), embeds=embeds)


def _make_compare_link(run: Reading) -> Markup:
    return element("a", "Compare with the run before", href=compare_url("", run.run_id), class_="button")


def _make_export_link(run: Reading) -> Markup:
    title = "One file to read, masked, as `flowengine export RUN -o FILE` writes it"
    return element("a", "Export", href=export_url(run.run_id), title=title, class_="button", download=True)


def _make_cancel_form(run: Reading, acting: Acting | None) -> Markup | None:
    """Seen for as long as the run goes on."""
    if acting is None or not acting.is_driven or not run.is_live:
        return None
    key = "Authorization: Bearer $FLOWENGINE_UI_TOKEN"
    command = f'curl -X POST -H "{key}" {shlex.quote(f"{acting.address}api/runs/{run.run_id}/cancel")}'
    how = fold("On the command line", command_line(command)) if acting.address else None
    return form(cancel_url(run.run_id), acting, element("button", "Cancel the run"), how, class_="cancel")


def _make_main(run: Reading, embeds: Embedded | None = None) -> Markup:
    parts = _make_graph(run), _make_splitter("panel"), _make_panel(run, embeds), _make_scrubber(run)
    return element("main", parts, _make_splitter("below"), _make_timeline(), class_="run-main")


def _make_splitter(name: str) -> Markup:
    """The bar between two parts of the page, which people move; double-click sets it back."""
    upright = name == "panel"
    return element(
        "div",
        role="separator",
        tabindex=0,
        class_=f"splitter {name}",
        data_size=name,
        aria_orientation="vertical" if upright else "horizontal",
        aria_label="Width of the panel" if upright else "Height of the timeline",
        aria_valuemin=0,
        aria_valuemax=100,
        aria_valuenow=40 if upright else 32,
    )


_FOLD: Final = "Fold all containers, or unfold them"


def _make_graph(run: Reading) -> Markup:
    buttons = [
        element("button", sign, type="button", data_zoom=how, title=title, aria_label=title)
        for sign, how, title in (("+", "in", "Zoom in"), ("−", "out", "Zoom out"), ("⤢", "fit", "Show everything (0)"))
    ]
    heats = [
        element("option", words, value=by) for by, words in (("", "status"), ("seconds", "time"), ("cost", "cost"))
    ]
    has_containers = any(node.parent is not None for node in run.foldable_picture.nodes)
    tools = element(
        "div",
        element("input", type="search", id="find", placeholder="Find a node  ( / )", aria_label="Find a node"),
        element("output", id="hits", aria_label="Nodes that were found"),
        buttons,
        element("button", "± ▤", type="button", data_foldall=True, title=_FOLD, aria_label=_FOLD)
        if has_containers
        else None,
        element("button", "Tree", type="button", data_tree=True, aria_pressed="false", title="The graph as a tree (t)"),
        element("select", heats, id="heat", aria_label="Colour the nodes by"),
        class_="tools",
    )
    graph = graph_markup(run.foldable_picture, first_view=run.picture, is_live=True, is_large=run.is_large)
    kinds = {node.kind for node in run.foldable_picture.nodes}
    view = element(
        "div", graph, id="view", role="application", aria_label="The flow's graph; arrows go along its edges"
    )
    tree = element("div", id="tree", role="tree", hidden=True, aria_label="The flow's nodes")
    return element("section", tools, view, tree, legend_markup(kinds), class_="graph-side", aria_label="Graph")


def _make_panel(run: Reading, embeds: Embedded | None) -> Markup:
    """Makes the panel before a node is chosen: the run's outputs."""
    hint = note("Choose a node in the graph or in the timeline; j and k go to the next and to the one before.")
    finished = run.progress.finished
    outputs = None if finished is None else finished.outputs
    files = _show_files(run, outputs, None) if embeds is None else None  # A file has its images once, above.
    content = section("Outputs of the run", value(outputs), files) if outputs else None
    return element("section", content, hint, id="panel", aria_live="polite", aria_label="The chosen node")


def _make_scrubber(run: Reading) -> Markup:
    last = max(0, len(run.events) - 1)

    def step(sign: str, how: str, title: str) -> Markup:
        return element("button", sign, type="button", data_step=how, title=title, aria_label=title)

    return element(
        "section",
        step("|◀", "first", "To the first event"),
        step("◀", "back", "One event back ( [ )"),
        element("input", type="range", id="scrub", min=0, max=last, value=last, aria_label="Moment of the run"),
        step("▶", "on", "One event on ( ] )"),
        step("▶|", "last", "To the newest event"),
        element("output", id="moment"),
        _make_live_buttons(run),
        class_="scrubber",
        aria_label="Moments of the run",
    )


def _make_live_buttons(run: Reading) -> list[Markup]:
    """Makes the buttons of a run that goes on: to follow it, and to be told of it."""
    finished = run.progress.finished
    if finished is not None and finished.status not in ("waiting", "paused"):
        return []
    follow = "Go along with what runs (f)"
    return [
        element("button", "Follow", type="button", data_follow=True, aria_pressed="false", title=follow),
        element("button", "Notify me", type="button", data_notify=True, aria_pressed="false"),
    ]


def _make_timeline() -> Markup:
    tabs = [
        element("button", title, type="button", role="tab", id=f"tab-{name}", data_tab=name, aria_controls="rows",
                aria_selected="true" if first else "false", tabindex=0 if first else -1)
        for name, title, first in (("timeline", "Timeline", True), ("calls", "Model calls", False),
                                   ("events", "Events", False), ("state", "State", False))
    ]  # fmt: skip
    fold_button = element("button", "▾ Hide", type="button", data_fold=True, aria_expanded="true", aria_controls="rows")
    return element(
        "section",
        element(
            "div",
            element("div", tabs, role="tablist", class_="tabs"),
            element("div", id="parts", role="group", aria_label="Where the time of the run went"),
            fold_button,
            class_="below-head",
        ),
        element("div", id="rows", role="tabpanel", aria_labelledby="tab-timeline"),
        class_="below",
    )
