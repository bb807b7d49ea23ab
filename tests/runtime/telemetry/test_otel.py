"""Spans and metrics at a collector: a real SDK, and a collector on loopback that reads OTLP."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

import anyio
import pytest

from flowengine.agents.agent import Agent
from flowengine.cli.commands.export import lines_of
from flowengine.core.context import Context
from flowengine.flow import Flow
from flowengine.journal.memory import MemoryStore
from flowengine.models.messages import ToolRequest
from flowengine.models.scripted import ScriptedModel
from flowengine.nodes.agent import AgentNode
from flowengine.nodes.function import FunctionNode
from flowengine.runtime.run import Run
from flowengine.runtime.telemetry import conventions as names
from flowengine.runtime.telemetry.conventions import requests_of
from flowengine.runtime.telemetry.otel import send
from flowengine.runtime.telemetry.spans import spans_of
from tests.support.otlp_collector import Collector
from tests.support.quiet_ports import quiet_port

STOP = names.REQUEST_OPTIONS["stop"]


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


def test_a_collector_gets_names_parents_and_metrics_and_nothing_that_was_said(collector: Collector):
    agent = Agent("ask", "My secret instructions.", model=ScriptedModel(["Write to ada@example.jp"]))
    run = Flow("tea", {"ask": agent}).run_sync()
    delivery = send([spans_of(run.events)], collector.url)
    assert delivery == (4, 4, "", "")
    spans = {span.name: span for span in collector.spans()}
    assert set(spans) == {"invoke_workflow tea", "agent ask", "invoke_agent ask", "chat scripted"}
    assert spans["chat scripted"].parent_span_id == spans["invoke_agent ask"].span_id
    assert spans["invoke_agent ask"].parent_span_id == spans["agent ask"].span_id
    assert spans["agent ask"].parent_span_id == spans["invoke_workflow tea"].span_id
    assert len({span.trace_id for span in spans.values()}) == 1
    attributes = {each.key: each.value for each in spans["chat scripted"].attributes}
    assert attributes[names.OPERATION].string_value == "chat"
    sent = b"".join(body for _, body in collector.bodies)
    assert b"secret instructions" not in sent
    assert b"ada@example.jp" not in sent
    assert {names.DURATION_METRIC, names.NODE_DURATION_METRIC} <= collector.metrics()


def broken(context: Context) -> None:
    raise ValueError("half a character: \ud83d")


def test_text_that_is_cut_in_the_middle_of_a_character_is_sent_with_a_mark_in_its_place(collector: Collector):
    spans = spans_of(Flow("tea", {"ask": FunctionNode(broken)}).run_sync().events)
    assert send([spans], collector.url) == (2, 2, "", "")
    assert {span.status.message for span in collector.spans()} == {"ValueError: half a character: ?"}


def test_arguments_that_are_nested_beyond_reading_stay_text():
    asked = requests_of([{"id": "1", "name": "look", "arguments": "[" * 100_000}])
    assert asked[0].arguments == "[" * 100_000


def test_with_content_what_was_said_is_masked(collector: Collector):
    agent = Agent("ask", "Be kind.", model=ScriptedModel(["Write to ada@example.jp"]))
    run = Flow("tea", {"ask": agent}).run_sync()
    send([spans_of(run.events, content=True)], collector.url)
    sent = b"".join(body for _, body in collector.bodies)
    assert b"Be kind." in sent
    assert b"ada@example.jp" not in sent


def a_run() -> Run:
    return Flow("tea", {"ask": Agent("ask", "Be kind.", model=ScriptedModel(["yes"]))}).run_sync()


def test_exporting_a_run_again_gives_the_same_spans_by_their_ids(collector: Collector):
    events = a_run().events
    send([spans_of(events)], collector.url)
    once = {(span.trace_id, span.span_id, span.parent_span_id) for span in collector.spans()}
    send([spans_of(events)], collector.url)
    assert {(span.trace_id, span.span_id, span.parent_span_id) for span in collector.spans()} == once
    rows = [json.loads(line) for line in lines_of(spans_of(events))]
    assert {(row["trace_id"], row["span_id"]) for row in rows} == {(a.hex(), b.hex()) for a, b, _ in once}


def test_the_spans_of_a_resumed_run_are_in_one_trace_and_keep_their_ids(collector: Collector):
    tries: list[int] = []

    async def second_time(context: Context) -> None:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("no")

    store, flow = MemoryStore(), Flow("f", {"a": FunctionNode(second_time)})
    first = flow.run_sync(store=store, run_id="r")
    before = [(span.trace_id, span.id) for span in spans_of(first.events)]
    again = anyio.run(partial(flow.resume, "r", store=store))
    send([spans_of(again.events)], collector.url)
    ids = [(span.trace_id, span.id) for span in spans_of(again.events)]
    assert ids[: len(before)] == before
    assert {(span.trace_id.hex(), span.span_id.hex()) for span in collector.spans()} == set(ids)
    assert len({trace for trace, _ in ids}) == 1


def one(context: Context) -> int:
    return 1


def test_runs_of_one_id_in_two_stores_are_two_traces():
    traces = {spans_of(Flow("f", {"a": FunctionNode(one)}).run_sync(run_id="r").events)[0].trace_id for _ in "ab"}
    assert len(traces) == 2


@pytest.mark.long
def test_a_large_run_arrives_whole(collector: Collector):
    nodes = {f"n{number}": FunctionNode(one) for number in range(3_000)}
    spans = spans_of(Flow("wide", nodes).run_sync().events)
    assert send([spans], collector.url) == (3_001, 3_001, "", "")
    assert len({span.span_id for span in collector.spans()}) == 3_001


@pytest.mark.parametrize(("status", "said"), [(401, "401 Unauthorized"), (405, "405 Method Not Allowed")])
def test_a_collector_that_refuses_spans_is_told_of(collector: Collector, status: int, said: str):
    collector.status["/v1/traces"] = status
    delivery = send([spans_of(a_run().events)], collector.url)
    assert (delivery.spans, delivery.arrived) == (4, 0)
    assert said in delivery.problem


def test_a_key_that_a_collector_repeats_is_not_told(collector: Collector, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=team-0a1b2c3d4e5f,authorization=secretly")
    url = collector.url.replace("//", "//ada:pass-word@")
    collector.headers = {"Content-Type": "text/plain"}
    collector.status["/v1/traces"] = 401
    collector.answer = f"{'no ' * 30}team-0a1b2c3d4e5f, secretly or pass-word{' no' * 300}".encode()
    problem = send([spans_of(a_run().events)], url).problem
    assert "no [hidden], [hidden] or [hidden] no" in problem
    assert len(problem) < 400


def test_texts_of_options_are_masked():
    model = ScriptedModel(["Hello."])
    node = AgentNode(Agent("greeter", "Greet.", model=model, stop=["ada@example.org"]))
    spans = spans_of(Flow("f", {"ask": node}).run_sync().events)
    [stops] = [span.attributes[STOP] for span in spans if STOP in span.attributes]
    assert "ada" not in str(stops)


def test_a_collector_that_takes_no_metrics_has_the_spans(collector: Collector):
    collector.status["/v1/metrics"] = 404
    delivery = send([spans_of(a_run().events)], collector.url)
    assert (delivery.arrived, delivery.problem) == (4, "")
    assert "404" in delivery.metrics_problem


def test_spans_that_the_collector_rejects_did_not_arrive(collector: Collector):
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = 3
    answer.partial_success.error_message = "quota"
    collector.answer = answer.SerializeToString()
    delivery = send([spans_of(a_run().events)], collector.url)
    assert (delivery.arrived, delivery.problem) == (1, "the collector rejected 3 spans: quota")


def test_a_redirect_and_a_page_are_no_collector(collector: Collector):
    spans = [spans_of(a_run().events)]
    collector.headers = {"Content-Type": "text/html", "Location": f"{collector.url}/login?key=s3cret"}
    collector.status = {"/v1/traces": 302, "/v1/metrics": 302}
    delivery = send(spans, collector.url)
    assert (delivery.arrived, delivery.problem) == (
        0,
        f"what is there answered 302 Found, which leads to {collector.url}/login",
    )
    assert [path for path, _ in collector.bodies] == ["/v1/traces"]
    collector.reason = "Found\x1b[2J"
    collector.headers["Location"] = "http://a.example/\x1b[2J"
    assert send(spans, collector.url).problem == "what is there answered 302, which leads elsewhere"
    del collector.headers["Location"]
    assert send(spans, collector.url).problem == "what is there answered 302"
    collector.status, collector.answer, collector.reason = {}, b"<html>Log in</html>", None
    delivery = send(spans, collector.url)
    assert (delivery.arrived, delivery.problem) == (
        0,
        "what is there answered 200 OK with a page, as no collector does",
    )


def test_an_address_without_a_scheme_says_what_it_begins_with():
    assert send([spans_of(a_run().events)], "localhost:4318").problem.endswith("begins with http:// or https://")


@pytest.mark.long
def test_a_collector_that_is_not_there_is_told_of():
    delivery = send([spans_of(a_run().events)], f"http://127.0.0.1:{quiet_port()}")
    assert (delivery.arrived, delivery.problem) == (0, "nothing answers there")


def test_with_content_messages_have_the_parts_of_the_convention():
    answers = [ToolRequest("call-7", "look", '{"what": "tea"}'), "There is tea."]
    agent = Agent("ask", "Be kind.", model=ScriptedModel(answers), tools=[look])
    run = Flow("tea", {"ask": AgentNode(agent, prompt=lambda _: "Is there tea?")}).run_sync()
    spans = spans_of(run.events, content=True)
    first, second = (span.attributes for span in spans if span.name == "chat scripted")
    assert json.loads(first[names.OUTPUT_MESSAGES]) == [
        {
            "role": "assistant",
            "parts": [{"type": "tool_call", "id": "call-7", "name": "look", "arguments": {"what": "tea"}}],
            "finish_reason": "tool_call",
        }
    ]
    asked = json.loads(second[names.INPUT_MESSAGES])
    assert asked[0]["role"] == "system"
    assert asked[1] == {"role": "user", "parts": [{"type": "text", "content": "User input: Is there tea?"}]}
    assert asked[-1]["parts"] == [{"type": "tool_call_response", "id": "call-7", "response": "tea: no"}]
    told = json.loads(second[names.OUTPUT_MESSAGES])
    assert told[0]["parts"] == [{"type": "text", "content": "There is tea."}]
    tool = next(span for span in spans if span.name == "execute_tool look")
    assert tool.attributes[names.TOOL_CALL_ID] == "call-7"


@pytest.mark.long
def test_long_contents_stay_json():
    agent = Agent("ask", "word " * 100_000, model=ScriptedModel(["\u2028" * 200_000]))
    spans = spans_of(Flow("tea", {"ask": agent}).run_sync().events, content=True)
    chat = next(span for span in spans if span.name == "chat scripted")
    for name in (names.INPUT_MESSAGES, names.OUTPUT_MESSAGES):
        assert json.loads(chat.attributes[name])
        assert len(chat.attributes[name]) < 300_000


async def look(what: str) -> str:
    """Look something up."""
    return f"{what}: no"


def test_an_answer_that_is_no_message_says_nothing_of_the_spans(collector: Collector):
    collector.answer = b"\xff\xff\xff"
    delivery = send([spans_of(a_run().events)], collector.url)
    assert (delivery.arrived, delivery.problem) == (4, "")


def test_a_failure_of_ours_while_an_answer_is_read_is_not_passed_over(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
):
    collector.answer = b""
    monkeypatch.delattr("flowengine.runtime.telemetry.collector.ExportTraceServiceResponse")
    with pytest.raises(NameError):
        send([spans_of(a_run().events)], collector.url)


def test_without_its_library_emitting_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None\nimport flowengine.runtime.telemetry.otel as o\no.emit([])\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "OpenTelemetry is not installed: pip install 'flowengine-dag[otel]'" in told.stderr
