"""The protocol between the server and the page."""

from __future__ import annotations

import json

from flowengine.core.context import NodeResult
from flowengine.core.records import RECORDS, Answered, EffectDecided, ModelCall, ProviderFailed, Reused, SkillLoad
from flowengine.engine.events import EVENTS, NodeFinished, NodeRecorded, RunResumed, TokenStreamed
from tests.support.sample_run import START, layered_run, research_run
from visualize.viewer.feed import feed, feed_line


def test_every_event_has_its_position_kind_and_moment():
    for seq, event in enumerate(research_run()):
        line = feed(event, seq)
        assert (line["seq"], line["at"]) == (seq, event.at)
        assert line["kind"]
        assert line.get("node") == getattr(event, "node", None)


def test_a_line_says_what_a_page_needs():
    lines = [feed(event) for event in research_run()]
    of = {(line["kind"], line.get("node")): line for line in reversed(lines)}
    assert of["begin", None] == {"kind": "begin", "at": START, "run": "2f6c41d09b", "flow": "research"}
    assert of["call", "draft"]["tokens"] == 480
    assert (of["call", "draft"]["cost"], of["call", "draft"]["purpose"]) == (0.0021, "generation")
    assert "cost" not in of["call", "investigate[0].summarise"]
    assert of["finish", "triage"]["route"] == "ready"
    assert of["finish", "draft"]["state"]["words"] == 17
    assert of["fail", "investigate[3].search"]["error"] == "no route to host"
    assert of["skip", "widen"]["cause"] == "not_selected"
    assert of["map", "investigate"]["total"] == 4
    assert of["round", "polish"]["best"] == "0.5"
    assert of["asked", "ask"]["choices"] == ["yes", "no"]
    assert of["end", None]["status"] == "waiting"


def test_every_letter_of_the_alphabet_and_every_record_has_a_line():
    told = {type(event).__name__ for event in research_run()} | {"RunResumed", "NodeCancelled"}
    assert told == set(EVENTS)
    assert feed(RunResumed(2.0), 9) == {"seq": 9, "kind": "resume", "at": 2.0}
    others = [
        Answered("yes", by="Ada"),
        Reused("r2", "draft"),
        SkillLoad("pdf", 2, 10, 0.1, 5),
        ProviderFailed("files", "gone"),
        EffectDecided("pay", {}, "k", 0, "retry"),
    ]
    kinds = [feed(NodeRecorded("n", 1.0, record))["kind"] for record in others]
    assert kinds == ["answered", "reused", "told", "told", "told"]
    assert {type(each).__name__ for each in others} <= set(RECORDS)


def test_a_piece_of_text_has_no_position():
    assert feed(TokenStreamed("n", 1.0, "Hel", True)) == {
        "kind": "token", "at": 1.0, "node": "n", "text": "Hel", "begins": True,
    }  # fmt: skip
    assert "begins" not in feed(TokenStreamed("n", 1.0, "lo"))


def test_long_values_are_cut_and_a_line_is_one_line_of_json():
    state = {"text": "x" * 10_000, "list": list(range(10_000)), "deep": {"a": ["y" * 10_000]}, "odd": float("nan")}
    event = NodeFinished("n", float("inf"), NodeResult("line\nbreak \ud800" + "z" * 10_000, state))
    line = feed_line(event, 0)
    assert len(line.encode()) < 6_000
    assert "\n" not in line
    assert json.loads(line)["state"]["odd"] == "nan"


def test_a_call_that_failed_says_why_and_costs_nothing_that_is_known():
    call = ModelCall("m", "p", "generation", [], "", error="401: no key")
    line = feed(NodeRecorded("n", 1.0, call))
    assert line["error"] == "401: no key"
    assert "tokens" not in line


def test_ten_thousand_nodes_make_a_feed_of_a_few_megabytes():
    lines = [feed_line(event, seq) for seq, event in enumerate(layered_run(1000))]
    assert sum(map(len, lines)) / len(lines) < 150
