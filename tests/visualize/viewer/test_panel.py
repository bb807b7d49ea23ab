"""The panel of a node: everything that the record says about it."""

from __future__ import annotations

import re

import pytest

from flowengine.core.context import NodeResult
from flowengine.core.records import (
    RECORDS,
    Answered,
    Decided,
    EffectDecided,
    ModelCall,
    Notice,
    ProviderFailed,
    Receipt,
    Reused,
    Round,
    SkillLoad,
    ToolCall,
)
from flowengine.engine.events import (
    ErrorInfo,
    Event,
    NodeFailed,
    NodeFinished,
    NodeRecorded,
    NodeStarted,
    RunFinished,
    RunResumed,
    RunStarted,
)
from tests.support.sample_run import mapped_run, research_run
from visualize.viewer.forms import Acting
from visualize.viewer.panel import node_panel
from visualize.viewer.reading import Reading


def words(markup: str) -> str:
    """The text of some HTML, with blanks made single."""
    text = re.sub(r"<[^>]*>", " ", markup)
    for entity, sign in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&#x27;", "'"), ("&amp;", "&")):
        text = text.replace(entity, sign)
    return " ".join(text.split())


def panel(node: str, events: list[Event] | None = None) -> str:
    return node_panel(Reading(events or research_run()), node)


def one_record(*records: object) -> list[Event]:
    graph = {"nodes": [["n", "agent"]], "edges": []}
    return [RunStarted("r", "f", 1.0, {}, {}, {}, graph=graph), *(NodeRecorded("n", 2.0, each) for each in records)]


def test_a_failure_before_the_run_was_resumed_is_folded_below_the_output_and_explained():
    failed = [NodeStarted("n", 1.0), NodeFailed("n", 2.0, ErrorInfo("ValueError", "broken"))]
    again = [
        RunFinished(2.0, "failed"),
        RunResumed(9.0),
        NodeStarted("n", 9.0),
        NodeFinished("n", 9.5, NodeResult("ok")),
    ]
    assert '<section class="bad"' in panel("n", [*one_record(), *failed])
    markup = panel("n", [*one_record(), *failed, *again])
    assert 'class="bad"' not in markup
    text = words(markup)
    assert text.index("Output ok") < text.index("Failed before the run was resumed: ValueError")
    assert "The run was resumed, and the node ran again. broken" in text
    twice = panel("n", [*one_record(), *failed, RunResumed(9.0), *failed])
    assert twice.count('<section class="bad"') == 1
    assert words(twice).count("Failed before the run was resumed") == 1


def test_the_panel_of_an_agent_has_prompt_receipt_rounds_cost_and_state():
    text = words(panel("draft"))
    for part in (
        "succeeded", "Took 2.4 s", "Model calls 3", "Tokens 1,410", "Cost $0.0064",
        "Output Bees read the sun like a compass",
        "Evaluation Score 0.86 Verdict ✓ passed clear 0.90 complete 0.82",
        "sources (union) [ \"notes.txt\" ]",
        "words (sum) 0 17",
        "Round 1 0.55 ✗ did not pass Bees find their way home by the sun.",
        "Round 2 ★ 0.86 ✓ passed",
        "Context receipt within 800 tokens source label tokens state why conversation turn 3 180 kept",
        "Prompt, 2 parts system You write for people who have little time. user Write about: bees",
        "Model call: improvement Model gpt-4o-mini (openai) Took 700 ms Tokens 410 in, 205 out Cost $0.0034",
    ):  # fmt: skip
        assert part in text, part


def test_the_panel_of_a_router_has_route_confidence_and_reasoning():
    text = words(panel("triage"))
    assert "Route → ready Confidence 0.87" in text
    assert "The text names its sources and is short." in text


def test_the_panel_of_a_failure_has_error_traceback_attempts_and_tools():
    text = words(panel("investigate[3].search"))
    for part in ("failed", "Attempts 2", "Error: ConnectionError no route to host", 'File "search.py", line 7',
                 "Tool find failed", "Attempt 1 failed, the next one after 200 ms"):  # fmt: skip
        assert part in text, part


def test_the_panel_of_a_skipped_node_has_the_cause():
    assert "skipped Kind subflow Because not selected" in words(panel("widen"))


def test_the_panel_of_a_container_lists_what_ran_inside():
    markup = panel("polish")
    text = words(markup)
    assert "Inside, ×3 of 4 Node Status Took Cost Result round[0].judge ✓ succeeded 500 ms $0.0006" in text
    assert "Round 2: stopped here, best_by 0.9" in text
    assert 'href="#node=polish.round%5B2%5D.judge"' in markup
    assert "Inside, ×4 of 4" in words(panel("investigate"))


def test_the_panel_of_a_node_that_ran_many_times_lists_the_times():
    text = words(panel("polish.judge"))
    assert "polish.judge ×3" in text
    assert "polish.round[1].judge ✓ succeeded 500 ms $0.0006 0.70" in text
    assert "It has not run." in words(panel("widen.plan"))


def test_failures_are_listed_where_there_are_too_many_times_for_a_list():
    text = words(panel("each.leaf", mapped_run(3000)))
    assert "each[1007].leaf ✗ failed" in text
    assert "each[2007].leaf ✗ failed" in text
    assert "And 2,800 more" in text


def test_a_node_that_nobody_knows_is_told_so():
    assert "The run has no such node." in words(panel("<nobody>"))


def test_parts_carry_the_position_of_the_event_that_brought_them():
    events = research_run()
    [failed] = [seq for seq, event in enumerate(events) if isinstance(event, NodeFailed)]
    assert re.search(rf'<section class="bad" data-seq="{failed}"><h3>Error', panel("investigate[3].search"))


def test_a_person_can_answer_only_where_that_is_offered_and_waited_for():
    reading = Reading(research_run())
    assert "<form" not in node_panel(reading, "ask")
    markup = node_panel(reading, "ask", Acting("t0k3n"))
    assert 'action="/runs/2f6c41d09b/approve/ask"' in markup
    assert 'type="hidden" name="token" value="t0k3n"' in markup
    answered = [*research_run()[:-1], NodeRecorded("ask", 1.0, Answered("yes", "fine", "Ada")),
                NodeFinished("ask", 2.0, NodeResult("yes"))]  # fmt: skip
    after = node_panel(Reading(answered), "ask", Acting("t0k3n"))
    assert "<form" not in after
    assert "Choice yes By Ada Comment fine" in words(after)


HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(2)>\u202e\x00\ud800' + "日本語" * 4000


@pytest.mark.parametrize("kind", sorted(RECORDS))
def test_no_record_can_bring_in_markup(kind: str):
    fields = RECORDS[kind].__annotations__
    values = {"number": 1, "attempt": 1, "delay": 1.0, "seconds": 1.0, "score": 0.5, "total": 3, "index": 0, "level": 1,
              "tokens": 3, "memory": 1, "best": 0.5, "expires": 9.0, "budget": 9, "prompt_tokens": None,
              "occurrence": 0, "completion_tokens": None, "cached_tokens": None, "cost_usd": None,
              "unanswered": 1, "may_be_billed_tokens": 3, "may_be_billed_usd": 0.5,
              "passed": True, "stopped": False,
              "is_error": True, "started": False, "attempts": 2, "messages": [{"role": HOSTILE, "content": HOSTILE}],
              "tool_calls": [{"function": {"name": HOSTILE}}], "arguments": {HOSTILE: HOSTILE}, "choices": [HOSTILE],
              "fragments": [{HOSTILE: HOSTILE, "tokens": HOSTILE}], "request": {HOSTILE: HOSTILE}, "decision": "retry",
              "variables": {HOSTILE: HOSTILE}, "values": {HOSTILE: HOSTILE}, "form": {HOSTILE: [HOSTILE]}}  # fmt: skip
    record = RECORDS[kind](**{name: values.get(name, HOSTILE) for name in fields})
    markup = panel("n", one_record(record))
    tags = set(re.findall(r"<([a-z0-9]+)", markup))
    assert not tags & {"script", "img"}
    assert markup.count("alert(1)") == markup.count("&lt;script&gt;alert(1)")


def test_a_very_long_text_is_cut_and_says_so():
    text = words(panel("n", [*one_record(), NodeFinished("n", 2.0, NodeResult("y" * 150_000))]))
    assert "The first 100,000 of 150,000 characters;" in text


def test_the_other_records_have_words():
    text = words(
        panel(
            "n",
            one_record(
                Notice("Something to know"),
                SkillLoad("pdf", 2, 120, 0.25, 5),
                ProviderFailed("files", "no such folder"),
                Reused("r2", "n"),
                EffectDecided("pay", {"to": "Ada"}, "k", 0, "done"),
                ToolCall("pay", {"to": "Ada"}, None, effect="external", started=True),
                ToolCall("pay", {}, "paid", effect="external", seconds=0.5),
                Receipt([], None),
                Round(1, "x", None, False),
                ModelCall("m", "", "generation", [], "", [{"id": "1", "function": {"name": "add"}}]),
                ModelCall("m", "p", "generation", [], "", error="401: no key", attempts=3),
                ModelCall("e", "p", "embedding", [{"role": "user", "content": "tea"}], "", vectors=["AACAPw=="]),
            ),
        )
    )
    for part in (
        "Something to know", "Skill pdf: level 2, 120 tokens, 250 ms", "Context provider files failed no such folder",
        "Not run: the result is that of run r2", "the interrupted call of tool pay is taken as done", "Tool pay begins",
        "Tool pay answered Took 500 ms Effect external", "Context receipt", "Asks for add", "401: no key Prompt",
        "Requests 3", "Cost unknown", "Vectors 1",
    ):  # fmt: skip
        assert part in text, part
    assert "AACAPw" not in text


def test_why_a_node_does_not_run_is_told_with_a_link_to_the_node_that_decided_it():
    made = panel("widen")
    assert "<h3>Why</h3>" in made
    assert "took <code>ready</code>" in made
    assert '<a href="#node=triage">triage</a>' in made
    assert "Where it leads: 1" in words(made)


def test_a_decision_shows_its_expression_and_its_values_as_text():
    test = {"expression": "inputs.x == '<b>'", "values": {"inputs.x": '"<b>"'}, "answer": True}
    made = panel("n", [*one_record(), NodeStarted("n", 1.5), *one_record(Decided("if", "then", (test,)))[1:]])
    assert "if was true: inputs.x == '<b>' , where inputs.x = \"<b>\" , so it took then" in words(made)
    assert "<b>" not in made


def test_where_a_node_leads_is_not_told_of_a_moment_before_it_ended():
    made = panel("draft")
    begun, ended = (
        re.search(r'<section data-seq="(\d+)"><h3>Why', made),
        re.search(r'<details data-seq="(\d+)"><summary>Where', made),
    )
    assert begun is not None
    assert ended is not None
    assert int(begun[1]) < int(ended[1])
