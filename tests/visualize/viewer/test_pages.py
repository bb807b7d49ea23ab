"""The other pages: lists, comparison, flows, plots, forms, and the page that says what went wrong."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from datetime import date, datetime
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.core.context import NodeResult
from flowengine.core.records import ApprovalRequested
from flowengine.engine.events import Event, NodeFinished
from flowengine.engine.ports import RunInfo
from flowengine.errors import (
    Diagnostic,
)
from flowengine.journal.run_digest import RunDigest, RunMark, RunNotes, RunScore
from flowengine.journal.run_index import ListedRuns, RunLine
from flowengine.journal.run_lookup import RunQuery
from tests.support.sample_run import FORM, GRAPH, research_run
from visualize.draw import render
from visualize.picture import picture_of_skeleton
from visualize.progress import fold_events
from visualize.usual_times import RunPoint, point_of
from visualize.viewer.comparison import compare_page
from visualize.viewer.flows import FlowLine, flow_page, flows_page, plot_svg
from visualize.viewer.forms import Acting, FormAnswer, answer_of, approval_form
from visualize.viewer.html import approve_url, panel_url, run_url
from visualize.viewer.page import asset, style_sheet
from visualize.viewer.parts import difference
from visualize.viewer.reading import Reading
from visualize.viewer.run import export_page, run_page
from visualize.viewer.runs import (
    Filters,
    ListFrame,
    filters_of,
    forget_page,
    presets_of,
    query_of,
    run_before,
    runs_page,
)
from visualize.viewer.scripts import script

DAY = 86_400.0


def at(text: str) -> float:
    return datetime.fromisoformat(text).astimezone().timestamp()


INFOS = [
    RunInfo("c3", "triage", "running", at("2026-03-03T09:00"), None, 4, "flows/triage.yaml"),
    RunInfo("b2", "<b>", "failed", at("2026-03-02T23:59"), at("2026-03-02T23:59") + 2, 40, None),
    RunInfo("a1", "triage", "succeeded", at("2026-03-01T00:00"), at("2026-03-01T00:01"), 9, "flows/triage.yaml"),
]


# --- runs


def listed(infos: Sequence[RunInfo], **more: Any) -> ListedRuns:
    return ListedRuns([RunLine(info, info.status, **more) for info in infos[:100]], len(infos), len(infos))


def test_the_filters_of_an_address_are_what_the_store_is_asked_for():
    query = query_of(
        filters_of({"flow": "f", "status": "failed", "q": " a b ", "mark": "golden", "mine": "1"}, {"a": "b"}, "ann")
    )
    assert query == RunQuery("f", "failed", {"a": "b"}, None, None, "a b", "golden", "ann")
    query = query_of(filters_of({"since": "2026-03-02", "until": "2026-03-02"}))
    assert query.started_before is not None
    assert query.started_from is not None
    assert query.started_before - query.started_from == 86_400
    ended = query_of(filters_of({"ended": "2026-03-02"}))
    assert ended == RunQuery(ended_from=query.started_from)
    assert query_of(filters_of({"ended": "x", "since": "yesterday", "page": "-1"})) == RunQuery()
    assert query_of(filters_of({"since": "0001-01-01", "until": "9999-12-31"})) == RunQuery()


def test_labels_are_shown_lead_to_their_runs_and_stay_while_pages_are_turned():
    labelled = [INFOS[2]._replace(run_id=f"r{number}", labels={"team": "<b>"}) for number in range(120)]
    text = runs_page(listed(labelled), filters_of({"page": "1"}, {"team": "<b>"}))
    assert 'href="/?label=team%3D%3Cb%3E" class="label">team=&lt;b&gt;</a>' in text
    assert 'href="/?page=2&amp;label=team%3D%3Cb%3E"' in text
    assert '<input type="hidden" name="label" value="team=&lt;b&gt;">' in text
    assert 'href="/?label=team%3D%3F"' in runs_page(listed([INFOS[2]._replace(labels={"team": "\udcff"})]))


def test_the_list_tells_what_runs_cost_ask_and_failed_with_and_leaves_out_what_no_run_has():
    digest = RunDigest(9, 2, 1234, 0.5, False, "gpt-4o +1", "<i>why</i>?", "broken <pipe>", "ann")
    notes = RunNotes(marks=[RunMark("golden", "ann", 1.0)], scores=[RunScore("quality", 0.5, "ann", 1.0)])
    text = runs_page(listed(INFOS, digest=digest, notes=notes, excerpt="error: a <b>"))
    for told in (
        "$0.50 +",
        "1,234",
        "gpt-4o +1",
        "broken &lt;pipe&gt;",
        'href="/?session=ann"',
        "golden",
        "quality 0.5",
        "error: a &lt;b&gt;",
    ):
        assert told in text, told
    bare = runs_page(listed(INFOS))
    assert [
        title for title in ("Cost", "Tokens", "Model", "Input", "Error", "Session", "Marks") if f"<th>{title}" in bare
    ] == []


def test_presets_lead_to_their_runs_and_say_how_many():
    acting, before = Acting("secret"), date.today()
    frame = ListFrame(
        ["triage"], [each._replace(runs=3 if each.is_counted else None) for each in presets_of("ann")], acting
    )
    text = runs_page(listed(INFOS), Filters(is_mine=True, answerer="ann"), frame)
    assert '<a href="/?mine=1" aria-current="true">Waits for me<span class="count">3</span></a>' in text
    today = next(each.filters.ended for each in frame.presets if each.name == "Failed today")
    assert today in (before, date.today())
    assert f'href="/?status=failed&amp;ended={today}">Failed today<span class="count">3</span>' in text
    assert '<a href="/">All</a>' in text
    failed = runs_page(listed(INFOS), Filters(status="failed", ended=date.today(), answerer="ann"), frame)
    assert f'href="/?status=failed&amp;ended={date.today()}" aria-current="true">Failed today' in failed
    assert ('value="forget"' in text, 'value="forget"' in runs_page(listed(INFOS))) == (True, False)
    assert text.count('name="run"') == 3
    assert "Forget 2 runs?" in forget_page(["a", "<b>"], acting)


def test_the_list_escapes_what_it_shows_and_leads_to_the_runs():
    text = runs_page(listed(INFOS))
    assert 'href="/runs/c3"' in text
    assert "&lt;b&gt;" in text
    assert "<b>" not in text
    assert "✗</span> failed" in text


def test_a_long_list_has_pages_that_keep_the_filters():
    infos = [INFOS[2]._replace(run_id=f"r{number}") for number in range(250)]
    text = runs_page(listed(infos), Filters(flow="triage", page=2))
    assert "page 2 of 3" in text
    assert 'href="/?flow=triage&amp;page=3"' in text
    assert text.count("<tr>") == 101
    assert "page 3 of 3" in runs_page(listed(infos), Filters(page=99))


def test_an_empty_list_says_why():
    assert "There are no runs yet." in runs_page(listed([]))
    assert "No run is like that." in runs_page(listed([])._replace(every=3), Filters(flow="x"))
    assert "7 older runs are still being read" in runs_page(listed([])._replace(unread=7))


def test_the_run_before_is_the_last_one_of_the_same_flow():
    assert run_before(INFOS, "c3") == "a1"
    assert run_before(INFOS, "a1") is None
    assert run_before(INFOS, "zz") is None


# --- comparison


def with_output(output: object) -> list[Event]:
    return [
        event._replace(result=NodeResult(output))
        if isinstance(event, NodeFinished) and event.node == "draft"
        else event
        for event in research_run()
    ]


def test_two_runs_are_told_apart_node_by_node():
    a, b = Reading(research_run()), Reading(with_output("Bees\nuse <landmarks>."))
    text = compare_page(a, b)
    assert "Nodes: 1 of 20 differ" in text
    assert "<ins>&lt;</ins>landmarks<ins>&gt;</ins>." in text
    assert "Inputs: the same" in text
    assert text.count('class="graph overlay"') == 1
    half = Reading(research_run()[:30])
    assert "Nodes: 0 of 20 differ" in compare_page(a, a)
    assert 'class="differs"' in compare_page(a, half)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("a", "a", "a"),
        ("a\nb", "b", "[-a|-]b"),
        ("0", "17", "[-0-] {+17+}"),
        (None, {"x": 1}, "[-null-]|{+{|  \"x\": 1|}+}"),
        ("\n".join("abcdefghij"), "\n".join("abcdefghiX"), "… 7 equal lines|h|i|[-j-] {+X+}"),
        ("\n".join("abcdefghij"), "\n".join("Xbcdefghij"), "[-a-] {+X+}|b|c|… 7 equal lines|"),
    ],
)  # fmt: skip
def test_a_difference_marks_words_and_leaves_out_what_stayed(before: object, after: object, told: str):
    text = difference(before, after)
    for tag, (begin, end) in {"del": ("[-", "-]"), "ins": ("{+", "+}")}.items():
        text = text.replace(f"<{tag}>", f"<{tag}>{begin}").replace(f"</{tag}>", f"{end}</{tag}>")
    assert "".join(ElementTree.fromstring(text).itertext()).replace("\n", "|") == told


def test_very_long_texts_are_compared_in_part():
    assert "more characters removed" in difference("\n".join(map(str, range(5000))), "x")


# --- flows and plots


def test_a_flow_has_picture_source_marks_and_plot():
    problems = [
        Diagnostic("FE203", "unknown target '<x>'", "f.yaml", 2, 5, node="pick", hint="; did you mean 'y'?"),
        Diagnostic("FE310", "never read", "f.yaml", 2, 1, severity="warning"),
        Diagnostic("FE999", "somewhere"),
    ]
    points = [RunPoint("r1", "succeeded", 2.0, 0.01), RunPoint("r2", "failed", 3.0, None)]
    text = flow_page("f", "a: <1>\n  b: 2", picture_of_skeleton("f", GRAPH), problems, points, "What it is for")
    assert '<span class="line error" id="L2">  b: 2</span><span class="mark">    ^ FE203' in text
    assert "a: &lt;1&gt;" in text
    assert "investigate" in text
    assert 'class="plot"' in text
    assert "FE999 somewhere" in text
    assert "Nothing is wrong with it." in flow_page("f", None, None)


def test_the_list_of_flows_counts_problems_and_names_the_last_run():
    lines = [FlowLine("a", "a.yaml", "For <this>", 2, 1, ("r1", "failed")), FlowLine("b", "b.yaml")]
    text = flows_page(lines)
    assert "✗ 2 errors, ⚠ 1 warning" in text
    assert 'href="/flows/a"' in text
    assert "For &lt;this&gt;" in text
    assert "There are no flows." in flows_page([])


@pytest.mark.parametrize("seconds", [[], [None], [0.0], [1.0, None, 3.0], [-1.0, 2.0]])
def test_a_plot_is_drawn_whatever_is_known(seconds: list[float | None]):
    points = [RunPoint(f"r{at}<", "failed" if at else "succeeded", each, each) for at, each in enumerate(seconds)]
    root = ElementTree.fromstring(plot_svg(points))
    known = [each for each in seconds if each is not None]
    assert len(root.findall("a")) == 2 * len(known)
    assert len(root.findall("a/path")) == 2 * sum(each is not None for each in seconds[1:])
    assert ("$0.50" in [each.text for each in root.findall("text")]) is False, "no scale of what was not spent"


def test_a_point_is_made_of_a_runs_fold():
    point = point_of(fold_events(research_run()))
    assert (point.run_id, point.status) == ("2f6c41d09b", "waiting")
    assert point.seconds == pytest.approx(6.1)
    assert point.cost_usd == pytest.approx(0.0152)


# --- records that make no sense


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000), st.integers(0, 70))
def test_a_record_in_any_order_and_of_any_length_makes_pages(seed: int, count: int):
    events = research_run()
    random.Random(seed).shuffle(events)
    run = Reading(events[:count])
    assert run_page(run).endswith("</html>\n")
    assert export_page(run).endswith("</html>\n")
    assert compare_page(run, Reading(research_run())).endswith("</html>\n")
    render(run.whole_picture, "mermaid")


# --- approvals


def test_a_form_has_a_field_for_each_simple_property():
    text = approval_form("r/1", "a[0].ask", ApprovalRequested("<Pay>?", ["yes", "no"], FORM), Acting("t", "csrf"))
    for part in (
        "&lt;Pay&gt;?", 'action="/runs/r%2F1/approve/a%5B0%5D.ask"', '<input type="hidden" name="csrf" value="t">',
        '<select name="form.channel" required>', '<input type="number" value="1" min="1" step="1" name="form.copies">',
        '<input type="checkbox" name="form.urgent" value="true">',
        '<textarea rows="4" maxlength="500" name="form.remark">',
        '<button type="submit" name="choice" value="yes" class="primary">yes</button>',
    ):  # fmt: skip
        assert part in text, part


def test_a_question_says_what_each_choice_means_and_asks_for_the_form_where_it_is_needed():
    asked = ApprovalRequested("Pay?", ["yes", "no"], FORM, 9e9, "no", describe={"yes": "<now>"}, form_for=["yes"])
    text = approval_form("r", "n", asked, Acting("t"), ways={"yes": "pay"})
    assert "<small>&lt;now&gt; → pay</small>" in text
    assert 'value="no" formnovalidate>no</button>' in text
    assert 'value="yes" class="primary" data-form>yes</button>' in text
    assert "To be filled in for yes" in text
    assert 'data-until="9000000000.0"' in text
    assert "<strong>no</strong> counts." in text
    assert answer_of(asked, {"choice": "no", "form.channel": "mail"}) == FormAnswer("no", "", None)
    assert "flowengine approve r n --choice yes" in text


def test_what_was_posted_is_read_by_the_types_of_the_form():
    asked = ApprovalRequested("Pay?", ["yes", "no"], FORM)
    posted = {"choice": "yes", "comment": " fine ", "form.channel": "mail", "form.copies": "3", "form.urgent": "true"}
    assert answer_of(asked, posted) == FormAnswer("yes", "fine", {"channel": "mail", "copies": 3, "urgent": True})
    assert answer_of(ApprovalRequested("?", ["yes"]), {"choice": "yes"}) == FormAnswer("yes")
    numbers = {"type": "object", "properties": {"size": {"enum": [1, 2.5, None]}, "count": {"type": "integer"}}}
    posted = {"choice": "yes", "form.size": "2.5", "form.count": "9" * 400}
    assert answer_of(ApprovalRequested("?", ["yes"], numbers), posted).form == {"size": 2.5, "count": int("9" * 400)}
    nested = ApprovalRequested("?", ["yes"], {"type": "object", "properties": {"a": {"type": "array"}}})
    assert answer_of(nested, {"choice": "yes", "form": '{"a": [1]}'}).form == {"a": [1]}
    assert '<span>Answer, as JSON</span><textarea name="form"' in approval_form("r", "n", nested, Acting("t"))


@pytest.mark.parametrize(
    ("posted", "message"),
    [
        ({}, "choose one of yes, no"),
        ({"choice": "maybe"}, "choose one of yes, no"),
        ({"choice": "yes", "form.copies": "many"}, "'copies' takes a whole number, found 'many'"),
    ],
)
def test_an_answer_that_cannot_be_read_says_why(posted: dict[str, str], message: str):
    with pytest.raises(ValueError, match=message):
        answer_of(ApprovalRequested("Pay?", ["yes", "no"], FORM), posted)


def test_an_answer_that_is_no_json_says_so():
    nested = ApprovalRequested("?", ["yes"], {"type": "array"})
    with pytest.raises(ValueError, match="no JSON"):
        answer_of(nested, {"choice": "yes", "form": "{"})


# --- frame


def test_script_and_style_are_files_that_fit_into_a_page():
    assert asset("viewer.js") == (script().encode(), "text/javascript; charset=utf-8")
    assert ".badge.s-failed" in style_sheet()
    assert "</script" not in script()
    assert "<!--" not in script()
    assert "</style" not in style_sheet()
    assert not re.search(r"https?://", script() + style_sheet())
    with pytest.raises(KeyError):
        asset("../viewer.js")


def test_addresses_carry_any_name():
    assert run_url("a b", "x/y?#[1]") == "/runs/a%20b#node=x%2Fy%3F%23%5B1%5D"
    assert panel_url("r", "日本") == "/runs/r/nodes/%E6%97%A5%E6%9C%AC"
    assert approve_url("r", "a.b") == "/runs/r/approve/a.b"
