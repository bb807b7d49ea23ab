"""Spans reach a collector while runs go on, and a collector that is lost costs a run nothing."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from flowengine import Agent, ApprovalNode, Context, Flow, FunctionNode
from flowengine.journal.stores import open_store
from flowengine.models.scripted import ScriptedModel
from flowengine.runtime.telemetry import span_sender
from flowengine.runtime.telemetry.span_sender import sending_spans
from flowengine.web.serving import listen
from tests.support.otlp_collector import Collector


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(span_sender, "_PAUSE", 0.01)
    monkeypatch.setattr(span_sender, "_RETRY_PAUSE", 0.01)


def names_of(collector: Collector) -> list[str]:
    return [span.name for span in collector.spans()]


def test_a_node_that_has_ended_arrives_while_its_run_goes_on(collector: Collector):
    arrived = threading.Event()
    collector.on_request = arrived.set

    def wait(context: Context) -> int:
        assert arrived.wait(30)
        return len(names_of(collector))

    flow = Flow("tea", {"first": FunctionNode(lambda context: 1), "second": FunctionNode(wait, needs=["first"])})
    with sending_spans(open_store("memory:"), collector.url, print) as store:
        run = flow.run_sync(store=store)
    assert run.outputs == {"second": 1}
    spans = {span.name: span for span in collector.spans()}
    assert set(spans) == {"function first", "function second", "invoke_workflow tea"}
    assert spans["function first"].parent_span_id == spans["invoke_workflow tea"].span_id
    assert len({span.trace_id for span in spans.values()}) == 1
    assert len(names_of(collector)) == 3, "each span is sent once"


def test_nothing_that_was_said_leaves_unless_it_is_asked_for(collector: Collector):
    for content in (False, True):
        agent = Agent("ask", "Be kind.", model=ScriptedModel(["Write to ada@example.jp, please"]))
        with sending_spans(open_store("memory:"), collector.url, print, content=content) as store:
            Flow("tea", {"ask": agent}).run_sync({"text": "hello"}, store=store)
        sent = b"".join(body for _, body in collector.bodies)
        assert (b"please" in sent) is content
        assert b"ada@example.jp" not in sent


async def test_a_run_that_goes_on_sends_what_is_new_into_the_same_trace(collector: Collector, tmp_path: Path):
    url = f"sqlite:///{tmp_path}/runs.db"
    flow = Flow(
        "ask",
        {
            "before": FunctionNode(lambda context: 1),
            "ask": ApprovalNode(lambda context: "Go on?", {"yes": "after"}, needs=["before"]),
            "after": FunctionNode(lambda context: 2),
        },
    )
    for step in ("run", "approve"):
        store = open_store(url)
        with sending_spans(store, collector.url, print) as sent:
            if step == "run":
                assert (await flow.run(store=sent, run_id="r1")).status == "waiting"
            else:
                assert (await flow.approve("r1", "ask", "yes", store=sent)).status == "succeeded"
        store.close()
    assert sorted(names_of(collector)) == [
        "approval ask",
        "approval ask",
        "function after",
        "function before",
        "invoke_workflow ask",
        "invoke_workflow ask",
    ]
    assert len({span.trace_id for span in collector.spans()}) == 1


def test_a_collector_that_is_lost_is_told_of_once_and_its_spans_arrive_when_it_is_back(collector: Collector):
    told: list[str] = []
    failed, back = threading.Event(), threading.Event()

    def note(text: str) -> None:
        told.append(text)
        (back if "again" in text else failed).set()

    collector.status["/v1/traces"] = 400
    flow = Flow("tea", {"one": FunctionNode(lambda context: 1)})
    with sending_spans(open_store("memory:"), collector.url, note) as store:
        assert flow.run_sync(store=store).status == "succeeded"
        assert failed.wait(30)
        assert flow.run_sync(store=store).status == "succeeded"
        collector.status.clear()
        collector.bodies.clear()
        assert back.wait(30)
    assert [text.split(":")[0] for text in told] == ["telemetry", "telemetry"]
    assert "runs go on" in told[0]
    assert sorted(set(names_of(collector))) == ["function one", "invoke_workflow tea"]
    assert [path for path, _ in collector.bodies].count("/v1/metrics") == 2, "of both runs"


def test_where_nothing_answers_a_run_ends_as_ever_and_the_end_waits_a_moment_only(monkeypatch: pytest.MonkeyPatch):
    importlib.import_module("flowengine.runtime.telemetry.collector")  # Takes longer than the moment.
    monkeypatch.setattr(span_sender, "_FAREWELL", 1.0)
    told: list[str] = []
    with closing(listen("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with sending_spans(open_store("memory:"), url, told.append) as store:
            assert Flow("tea", {"one": FunctionNode(lambda context: 1)}).run_sync(store=store).status == "succeeded"
    assert ["2 spans were not sent" in text for text in told] == [True]


def test_spans_that_a_collector_rejects_are_told_of_and_not_sent_again(collector: Collector):
    told: list[str] = []
    rejected = threading.Event()

    def note(text: str) -> None:
        told.append(text)
        rejected.set()

    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = 1
    collector.answer = answer.SerializeToString()
    with sending_spans(open_store("memory:"), collector.url, note) as store:
        Flow("tea", {"one": FunctionNode(lambda context: 1)}).run_sync(store=store)
        assert rejected.wait(30)
    assert ["rejected 1 span" in text for text in told] == [True]
    assert sorted(names_of(collector)) == ["function one", "invoke_workflow tea"]
