"""Makes the list of runs, and filters it by flow, status, time and text. It reads no store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Final, NamedTuple
from urllib.parse import urlencode

from flowengine.core.context import EMPTY
from flowengine.engine.ports import RunInfo
from flowengine.journal.run_lookup import STATUS_WORDS, RunQuery
from visualize.viewer.html import Child, Markup, compare_form_url, element, run_url, runs_url
from visualize.viewer.page import page
from visualize.viewer.parts import badge, clock, note, table, took

__all__ = ["Filters", "filters_of", "matching", "run_before", "runs_page"]

_PAGE_SIZE: Final = 100


class Filters(NamedTuple):
    """What is asked for; what is empty asks for nothing."""

    flow: str = ""
    status: str = ""
    text: str = ""
    """Somewhere in the run's id, its flow's name, its file or its labels."""
    since: date | None = None
    until: date | None = None
    """Days on which runs started, both included; in local time."""
    page: int = 1
    labels: Mapping[str, str] = EMPTY
    """The runs have all of these."""


def filters_of(query: Mapping[str, str], labels: Mapping[str, str] = EMPTY) -> Filters:
    """What an address asks for; a day or a page that is none asks for nothing.

    `labels`: those that it names, of which it may have several.

    >>> filters_of({"status": "failed", "since": "2026-03-01", "page": "x"})
    Filters(flow='', status='failed', text='', since=datetime.date(2026, 3, 1), until=None, page=1, labels={})
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
    )


def _parse_day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def matching(infos: Sequence[RunInfo], filters: Filters, standing: Mapping[str, str] = EMPTY) -> list[RunInfo]:
    """The runs that are asked for, on all pages, in the order given.

    `standing`: run → its status in a word, where there is a better one than that on record.
    """
    query = RunQuery(
        filters.flow,
        filters.status,
        filters.labels,
        None if filters.since is None else _midnight_of(filters.since),
        None if filters.until is None else _midnight_of(filters.until + timedelta(days=1)),
    )
    words = filters.text.lower().split()
    return [info for info in query.select(infos, standing) if _has_words(info, words)]


def _midnight_of(day: date) -> float:
    return datetime(day.year, day.month, day.day).astimezone().timestamp()


def _has_words(info: RunInfo, words: Sequence[str]) -> bool:
    if not words:
        return True
    labels = " ".join(_list_label_pairs(info.labels))
    text = f"{info.run_id} {info.flow} {info.path or ''} {labels}".lower()
    return all(word in text for word in words)


def run_before(infos: Sequence[RunInfo], run_id: str) -> str | None:
    """The run of the same flow that started last before a run; None where there is none."""
    mine = next((info for info in infos if info.run_id == run_id), None)
    if mine is None:
        return None
    earlier = [each for each in infos if each.flow == mine.flow and each.started < mine.started]
    return max(earlier, key=lambda each: each.started).run_id if earlier else None


def runs_page(
    infos: Sequence[RunInfo],
    filters: Filters = Filters(),  # noqa: B008 - a frozen default
    standing: Mapping[str, str] = EMPTY,
) -> str:
    """The page at `/`: `infos` are all runs of the store, the newest first; `standing` as for `matching`."""
    found = matching(infos, filters, standing)
    pages = max(1, -(-len(found) // _PAGE_SIZE))
    number = min(filters.page, pages)
    shown = found[(number - 1) * _PAGE_SIZE : number * _PAGE_SIZE]
    listed = (
        _make_list(shown, standing) if shown else note("No run is like that." if infos else "There are no runs yet.")
    )
    count = f"{len(found):,} of {len(infos):,} runs" if len(found) != len(infos) else f"{len(infos):,} runs"
    main = element(
        "main",
        element("h1", "Runs"),
        _make_form(infos, filters),
        element(
            "div", element("p", count, class_="note"), listed, _link_pages(filters, number, pages), data_list="live"
        ),
        class_="wide",
    )
    return page("Runs", main)


def _make_form(infos: Sequence[RunInfo], filters: Filters) -> Markup:
    flows = sorted({info.flow for info in infos} | ({filters.flow} - {""}))
    day = {"type": "date"}
    return element(
        "form",
        _label_control("Flow", _make_select("flow", flows, filters.flow)),
        _label_control("Status", _make_select("status", STATUS_WORDS, filters.status)),
        _label_control("From", element("input", name="since", value=_format_day(filters.since), **day)),
        _label_control("To", element("input", name="until", value=_format_day(filters.until), **day)),
        _label_control("Text  ( / )", element("input", type="search", name="q", value=filters.text)),
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


def _make_select(name: str, options: Sequence[str], chosen: str) -> Markup:
    every = element("option", "all", value="")
    return element(
        "select", every, [element("option", each, value=each, selected=each == chosen) for each in options], name=name
    )


def _make_list(infos: Sequence[RunInfo], standing: Mapping[str, str]) -> Markup:
    rows = [
        [
            element("a", info.run_id, href=run_url(info.run_id)),
            [info.flow, _link_labels(info.labels)],
            badge(standing.get(info.run_id, info.status)),
            clock(info.started),
            took(None if info.finished is None else info.finished - info.started),
            f"{info.events:,}",
            element("input", type="radio", name="a", value=info.run_id, aria_label=f"Compare {info.run_id}"),
            element("input", type="radio", name="b", value=info.run_id, aria_label=f"with {info.run_id}"),
        ]
        for info in infos
    ]
    titles = ["Run", "Flow", "Status", "Started", "Took", "Events", "A", "B"]
    button = element("button", "Compare A with B")
    return element(
        "form", table(titles, rows, numbers=(4, 5), class_="runs"), button, method="get", action=compare_form_url()
    )


def _link_labels(labels: Mapping[str, str]) -> Sequence[Markup]:
    """Each label as a link to the runs that have it too."""
    return [
        element("a", each, href=f"{runs_url()}?{urlencode({'label': each})}", class_="label")
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
    said = {
        "flow": filters.flow,
        "status": filters.status,
        "since": _format_day(filters.since),
        "until": _format_day(filters.until),
        "q": filters.text,
        "page": str(number),
    }
    given = [(name, text) for name, text in said.items() if text]
    given += [("label", each) for each in _list_label_pairs(filters.labels)]
    return f"{runs_url()}?{urlencode(given, errors='replace')}"
