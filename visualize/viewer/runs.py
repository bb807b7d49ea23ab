"""Makes the list of runs with its filters, presets and what can be done with chosen runs. It reads no store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Final, NamedTuple
from urllib.parse import urlencode

from flowengine.core import EMPTY, cost_text
from flowengine.engine import RunInfo
from flowengine.journal import STATUS_WORDS, ListedRuns, RunLine, RunQuery
from visualize.viewer.forms import Acting, form
from visualize.viewer.html import (
    Child,
    Markup,
    bundle_url,
    element,
    join,
    run_url,
    runs_url,
    selection_url,
    session_url,
)
from visualize.viewer.notes import chips
from visualize.viewer.page import page
from visualize.viewer.parts import badge, clock, note, table, took

PAGE_SIZE: Final = 100


class Filters(NamedTuple):
    """The filters of the list; empty fields do not restrict it."""

    flow: str = ""
    status: str = ""
    text: str = ""
    """Words in the run's id, its flow's name, its file or its labels, or in its inputs, outputs or errors."""
    since: date | None = None
    until: date | None = None
    """Days on which runs started, both included; in local time."""
    page: int = 1
    labels: Mapping[str, str] = EMPTY
    """The runs have all of these."""
    mark: str = ""
    is_mine: bool = False
    """They wait for an answer that `answerer` may give."""
    answerer: str = ""
    """Who looks at the page."""
    ended: date | None = None
    """They stopped on that day or later."""
    session: str = ""
    """The runs belong to it."""


def filters_of(query: Mapping[str, str], labels: Mapping[str, str] = EMPTY, answerer: str = "") -> Filters:
    """Reads the filters from an address; invalid days and pages are ignored.

    `labels`: those that it names, of which it may have several.

    >>> filters_of({"status": "failed", "since": "2026-03-01", "page": "x"})[:6]
    ('', 'failed', '', datetime.date(2026, 3, 1), None, 1)
    """
    number = query.get("page", "")
    return Filters(
        query.get("flow", ""),
        query.get("status", ""),
        query.get("q", "").strip(),
        _parse_day(query.get("since", "")),
        _parse_day(query.get("until", "")),
        max(1, int(number)) if number.isdecimal() and len(number) < 9 else 1,
        labels,
        query.get("mark", "").strip(),
        query.get("mine") == "1",
        answerer,
        _parse_day(query.get("ended", "")),
        query.get("session", "").strip(),
    )


def _parse_day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def query_of(filters: Filters) -> RunQuery:
    """Makes the query to the store."""
    return RunQuery(
        filters.flow,
        filters.status,
        filters.labels,
        None if filters.since is None else _midnight_of(filters.since),
        None if filters.until is None else _midnight_of(filters.until, 1),
        filters.text,
        filters.mark,
        filters.answerer if filters.is_mine else None,
        None if filters.ended is None else _midnight_of(filters.ended),
        filters.session,
    )


def _midnight_of(day: date, later: int = 0) -> float | None:
    """When a day begins; None at the ends of the calendar, which leave no run out."""
    try:
        day += timedelta(days=later)
        return datetime(day.year, day.month, day.day).astimezone().timestamp()
    except (OverflowError, ValueError):
        return None


def run_before(infos: Sequence[RunInfo], run_id: str) -> str | None:
    """The run of the same flow that started last before a run; None where there is none."""
    mine = next((info for info in infos if info.run_id == run_id), None)
    if mine is None:
        return None
    earlier = [each for each in infos if each.flow == mine.flow and each.started < mine.started]
    return max(earlier, key=lambda each: each.started).run_id if earlier else None


class Preset(NamedTuple):
    """A choice of runs that people make often."""

    name: str
    filters: Filters
    runs: int | None = None
    """How many there are; None: not counted."""
    is_counted: bool = False
    """Whether its number is to be shown."""


class ListFrame(NamedTuple):
    """The frame around the runs of a page."""

    flows: Sequence[str] = ()
    """Names of the flows that have runs."""
    presets: Sequence[Preset] = ()
    acting: Acting | None = None
    """What the forms of the page need; None where runs cannot be cancelled and forgotten in it."""


def presets_of(answerer: str) -> Sequence[Preset]:
    """The presets of somebody, none of them counted yet."""
    today = date.today()
    return [
        Preset("All", Filters()),
        Preset("Waits for me", Filters(is_mine=True, answerer=answerer), is_counted=True),
        Preset("Failed today", Filters(status="failed", ended=today), is_counted=True),
        Preset("Running", Filters(status="running")),
        Preset("Today", Filters(since=today)),
    ]


def runs_page(result: ListedRuns, filters: Filters = Filters(), frame: ListFrame = ListFrame()) -> str:  # noqa: B008
    """The page at `/`: `result` are the runs of this page."""
    pages = max(1, -(-result.total // PAGE_SIZE))
    number = min(filters.page, pages)
    count = f"{result.total:,} of {result.every:,} runs" if result.total != result.every else f"{result.every:,} runs"
    unread = f"{result.unread:,} older runs are still being read for searches." if result.unread else None
    content = (
        _make_list(result.lines, frame)
        if result.lines
        else note("No run is like that." if result.every else "There are no runs yet.")
    )
    main = element(
        "main",
        element("h1", "Runs"),
        _link_presets(frame.presets, filters),
        _make_form(frame.flows, filters),
        element(
            "div",
            element("p", count, class_="note"),
            note(unread) if unread else None,
            content,
            _link_pages(filters, number, pages),
            data_list="live",
        ),
        class_="wide",
    )
    return page("Runs", main)


def _link_presets(presets: Sequence[Preset], filters: Filters) -> Markup | None:
    """Links with the numbers of runs; the one that is shown is marked."""
    if not presets:
        return None
    links = [
        element(
            "a",
            each.name,
            element("span", f"{each.runs:,}", class_="count") if each.runs else None,
            href=_make_address(each.filters, 0),
            aria_current="true" if filters._replace(page=1, answerer=each.filters.answerer) == each.filters else None,
        )
        for each in presets
    ]
    return element("nav", links, class_="presets", aria_label="Often wanted", id="presets")


def _make_form(names: Sequence[str], filters: Filters) -> Markup:
    flows = sorted({*names} | ({filters.flow} - {""}))
    day = {"type": "date"}
    return element(
        "form",
        _label_control("Flow", _make_select("flow", flows, filters.flow)),
        _label_control("Status", _make_select("status", STATUS_WORDS, filters.status)),
        _label_control("Session", element("input", name="session", value=filters.session, size=10, maxlength=200)),
        _label_control("From", element("input", name="since", value=_format_day(filters.since), **day)),
        _label_control("To", element("input", name="until", value=_format_day(filters.until), **day)),
        _label_control("Ended from", element("input", name="ended", value=_format_day(filters.ended), **day)),
        _label_control(
            "Search  ( / )",
            element(
                "input",
                type="search",
                name="q",
                value=filters.text,
                placeholder="inputs, outputs, errors, ids, labels",
                maxlength=400,
            ),
        ),
        element("input", type="hidden", name="mark", value=filters.mark) if filters.mark else None,
        element("input", type="hidden", name="mine", value="1") if filters.is_mine else None,
        [element("input", type="hidden", name="label", value=each) for each in _list_label_pairs(filters.labels)],
        element("button", "Filter"),
        method="get",
        action=runs_url(),
        class_="filters",
    )


def _format_day(day: date | None) -> str:
    return "" if day is None else day.isoformat()


def _label_control(name: str, child: Child) -> Markup:
    return element("label", name, child)


def _make_select(name: str, options: Sequence[str], value: str) -> Markup:
    every = element("option", "all", value="")
    return element(
        "select", every, [element("option", each, value=each, selected=each == value) for each in options], name=name
    )


def _make_list(lines: Sequence[RunLine], frame: ListFrame) -> Markup:
    """The table, in a form whose buttons act on the runs that are checked."""
    acting = frame.acting
    hidden = None if acting is None else element("input", type="hidden", name=acting.field, value=acting.token)
    parts = hidden, _make_table(lines, in_file=False), _make_bar(acting)
    how = "get" if acting is None else "post"  # Where nothing is changed, nothing is posted.
    return element("form", parts, method=how, action=selection_url(), class_="selecting")


def file_list(lines: Sequence[RunLine]) -> Markup:
    """The table of the runs of one file, each of which is a place in it."""
    return _make_table(lines, in_file=True)


def _make_table(lines: Sequence[RunLine], *, in_file: bool) -> Markup:
    """The runs; columns that are empty are left out, and in a file the boxes."""
    titles = ["", "Run", "Flow", "Status", "Started", "Took", "Cost", "Tokens", "Model", "Input", "Error", "Session",
              "Marks"]  # fmt: skip
    rows = [_make_row(line, in_file) for line in lines]
    always = (*([] if in_file else [""]), "Run", "Flow", "Status", "Started", "Took")
    columns = [
        column
        for column, title in enumerate(titles)
        if title in always or (title and any(join(row[column]) for row in rows))
    ]
    numbers = [at for at, column in enumerate(columns) if titles[column] in ("Took", "Cost", "Tokens")]
    every = element("input", type="checkbox", id="choose-all", aria_label="Choose all runs of this page")
    titled: list[Child] = [titles[column] or every for column in columns]
    return table(titled, [[row[column] for column in columns] for row in rows], numbers=numbers, class_="runs")


def _make_row(line: RunLine, in_file: bool) -> list[Child]:
    info, digest = line.info, line.digest
    has_calls = digest is not None and digest.calls > 0
    cost, tokens = None, None
    if digest is not None and has_calls:
        cost = "unknown" if digest.cost_usd is None else cost_text(digest.cost_usd) + " +" * (not digest.is_whole)
        tokens = "unknown" if digest.tokens is None else f"{digest.tokens:,}"
    excerpt = line.excerpt or ("" if digest is None else digest.first_input)
    return [
        None
        if in_file
        else element("input", type="checkbox", name="run", value=info.run_id, aria_label=f"Choose {info.run_id}"),
        element("a", info.run_id, href=bundle_url(info.run_id) if in_file else run_url(info.run_id)),
        [info.flow, _link_labels(info.labels, in_file)],
        badge(line.word),
        clock(info.started),
        took(None if info.finished is None else info.finished - info.started),
        cost,
        tokens,
        _cut(digest.model) if digest is not None else None,
        _cut(excerpt, "found" if line.excerpt else ""),
        _cut(digest.error, "bad") if digest is not None else None,
        _name_session(digest.session, in_file) if digest is not None and digest.session else None,
        [chips(line.notes), f" {len(line.notes.notes)} ✎" if line.notes.notes else None] if any(line.notes) else None,
    ]


def _name_session(session: str, in_file: bool) -> Markup | None:
    if in_file:
        return _cut(session)
    return element("a", session, href=session_url(session), title=session, class_="cut")


def _cut(text: str, class_: str = "") -> Markup | None:
    """A text on one line, as much as there is room for; all of it is its title."""
    return element("span", text, title=text, class_=f"cut {class_}".strip()) if text else None


def _make_bar(acting: Acting | None) -> Markup:
    """Makes the bar of actions on chosen runs; the script shows it once runs are chosen."""

    def button(name: str, words: str, title: str) -> Markup:
        return element("button", words, name="do", value=name, title=title)

    return element(
        "div",
        element("output", "With the chosen runs:", id="chosen-count"),
        button("compare", "Compare", "Beside each other, the older ones first"),
        button(
            "export", "Export", "As lines of JSON, as `flowengine runs export` writes them and `runs import` reads them"
        ),
        button("page", "As a page", "As one file to read, masked, as `flowengine runs export --format html` writes it"),
        None if acting is None else button("cancel", "Cancel", "Stop those that go on here or wait in a queue"),
        None if acting is None else button("forget", "Forget…", "Remove them with all that is on record"),
        element("button", "Choose none", type="button", data_choose="none"),
        class_="selection",
        role="region",
        aria_label="Chosen runs",
    )


def forget_page(run_ids: Sequence[str], acting: Acting) -> str:
    """The question whether these runs are to be forgotten."""
    runs = [element("li", element("a", each, href=run_url(each))) for each in run_ids]
    hidden = [element("input", type="hidden", name="run", value=each) for each in run_ids]
    title = f"Forget {len(run_ids):,} run{'s' * (len(run_ids) != 1)}?"
    ask = form(
        selection_url(),
        acting,
        hidden,
        element("input", type="hidden", name="sure", value="yes"),
        element("button", "Forget them", name="do", value="forget", class_="danger"),
        " ",
        element("a", "No, go back", href=runs_url()),
    )
    explanation = note("Their events, files, answers and notes are removed for good. What has not ended is left.")
    return page(title, element("main", element("h1", title), explanation, element("ul", runs), ask, class_="narrow"))


def _link_labels(labels: Mapping[str, str], in_file: bool) -> Sequence[Markup]:
    """Each label as a link to the runs that have it too; in a file there is no such list."""
    return [
        element("span", each, class_="label")
        if in_file
        else element("a", each, href=f"{runs_url()}?{urlencode({'label': each}, errors='replace')}", class_="label")
        for each in _list_label_pairs(labels)
    ]


def _list_label_pairs(labels: Mapping[str, str]) -> Sequence[str]:
    return [f"{name}={value}" for name, value in labels.items()]


def _link_pages(filters: Filters, number: int, pages: int) -> Markup | None:
    if pages == 1:
        return None

    def link(to: int, words: str) -> Markup | None:
        return element("a", words, href=_make_address(filters, to)) if 1 <= to <= pages else None

    return element(
        "nav", link(number - 1, "← newer"), f"page {number} of {pages}", link(number + 1, "older →"), class_="pages"
    )


def _make_address(filters: Filters, number: int) -> str:
    fields = {
        "flow": filters.flow,
        "status": filters.status,
        "since": _format_day(filters.since),
        "until": _format_day(filters.until),
        "ended": _format_day(filters.ended),
        "q": filters.text,
        "mark": filters.mark,
        "session": filters.session,
        "mine": "1" if filters.is_mine else "",
        "page": str(number) if number else "",
    }
    pairs = [(name, text) for name, text in fields.items() if text]
    pairs += [("label", each) for each in _list_label_pairs(filters.labels)]
    return f"{runs_url()}{'?' if pairs else ''}{urlencode(pairs, errors='replace')}"
