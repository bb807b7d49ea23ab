"""Emits spans and metrics through OpenTelemetry's API, which is the extra `otel` with its SDK and exporter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from flowengine.errors import DefinitionError
from flowengine.runtime.telemetry import conventions as names
from flowengine.runtime.telemetry.spans import Span
from flowengine.version import __version__, install_hint

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

_NAME: Final = "flowengine"


def emit(spans: Sequence[Span], tracers: TracerProvider | None = None, meters: MeterProvider | None = None) -> None:
    """Hand the spans of a run, and the metrics that follow from them, to OpenTelemetry.

    None: the providers that the program has set. A span that never ended ends where its last child does. With the SDK's
    own tracers the ids are those of the run.
    """
    emit_spans(spans, tracers)
    measure(spans, meters)


def emit_spans(spans: Sequence[Span], tracers: TracerProvider | None = None) -> None:
    """Hand spans to OpenTelemetry. One whose parent is not among them belongs to it by its id."""
    try:
        from opentelemetry import trace
    except ImportError as error:
        raise DefinitionError(f"OpenTelemetry is not installed: {install_hint('otel')}") from error
    tracer: Any = trace.get_tracer(_NAME, __version__, tracers)
    ids = _Given()
    if hasattr(tracer, "id_generator"):
        tracer.id_generator = ids
    otel_spans: dict[int, Any] = {}
    for span in spans:
        ids.span = span
        context = None if span.parent is None else trace.set_span_in_context(_made_or_remote(span.parent, otel_spans))
        links = None if span.link is None else [trace.Link(_made_or_remote(span.link, otel_spans).get_span_context())]
        kind = trace.SpanKind.CLIENT if span.is_call else trace.SpanKind.INTERNAL
        name, attributes = _whole(span.name), _whole(span.attributes)
        one = tracer.start_span(name, context, kind, attributes, links, _nanoseconds(span.start))
        for mark in span.marks:
            one.add_event(mark.name, _whole(mark.attributes), _nanoseconds(mark.at))
        if span.error is not None:
            one.set_status(trace.Status(trace.StatusCode.ERROR, _whole(span.error)))
        otel_spans[id(span)] = one
    for span in reversed(spans):  # Children end before their parents do.
        otel_spans[id(span)].end(_nanoseconds(_end(span, spans)))


def _made_or_remote(span: Span, otel_spans: Mapping[int, Any]) -> Any:
    """OpenTelemetry's own span, or a stand-in for one that was sent before, or will be."""
    from opentelemetry import trace

    if id(span) in otel_spans:
        return otel_spans[id(span)]
    sampled = trace.TraceFlags(trace.TraceFlags.SAMPLED)
    return trace.NonRecordingSpan(trace.SpanContext(int(span.trace_id, 16), int(span.id, 16), False, sampled))


def _whole(value: Any) -> Any:
    """The value with `?` for half of a surrogate pair, with which no span could be sent."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, Mapping):
        return {key: _whole(each) for key, each in cast("Mapping[str, Any]", value).items()}
    return [_whole(each) for each in cast("list[Any]", value)] if isinstance(value, list) else value


def _end(span: Span, spans: Sequence[Span]) -> float:
    if span.end is not None:
        return span.end
    inside = [each.end or each.start for each in spans if each.parent is span]
    return max([span.start, *inside])


def measure(spans: Sequence[Span], meters: MeterProvider | None = None) -> None:
    """Hand the metrics that follow from the spans of a run to OpenTelemetry."""
    from opentelemetry import metrics

    meter: Any = metrics.get_meter(_NAME, __version__, meters)
    tokens = meter.create_histogram(names.TOKEN_USAGE_METRIC, "{token}", "Tokens of a model call")
    duration = meter.create_histogram(names.DURATION_METRIC, "s", "Time that a model or tool call took")
    nodes = meter.create_histogram(names.NODE_DURATION_METRIC, "s", "Time that a node took")
    costs = meter.create_counter(names.COST_METRIC, "USD", "Known cost of model calls")
    for span in spans:
        shared = {key: span.attributes[key] for key in _DIMENSIONS if key in span.attributes}
        seconds = _end(span, spans) - span.start
        if span.is_call:
            duration.record(seconds, shared)
        elif names.NODE_STATUS in span.attributes:
            nodes.record(seconds, shared)
        for key, kind in ((names.INPUT_TOKENS, "input"), (names.OUTPUT_TOKENS, "output")):
            if key in span.attributes:
                tokens.record(span.attributes[key], {**shared, names.TOKEN_TYPE: kind})
        if names.COST in span.attributes:
            costs.add(span.attributes[names.COST], shared)


_DIMENSIONS: Final = (
    names.OPERATION,
    names.PROVIDER_NAME,
    names.REQUEST_MODEL,
    names.RESPONSE_MODEL,
    names.TOOL_NAME,
    names.NODE_KIND,
    names.NODE_STATUS,
    names.ERROR_TYPE,
)


class Delivery(NamedTuple):
    """The result of an export."""

    spans: int
    """Spans that were to be sent."""
    arrived: int
    """Spans that the collector took."""
    problem: str
    """Why others did not arrive; empty where all did."""
    metrics_problem: str
    """Why the metrics did not arrive; empty where they did. Many collectors of traces take none."""


def send(runs: Sequence[Sequence[Span]], endpoint: str | None = None) -> Delivery:
    """Send the spans of runs, and the metrics that follow from them, to a collector over HTTP.

    None: where the standard variables say (`OTEL_EXPORTER_OTLP_ENDPOINT`), else port 4318 of this machine. A run that
    is sent again gives the same spans, by their ids, and the same values of the run's own instance of the metrics.
    """
    try:
        from flowengine.runtime.telemetry.collector import Collector
    except ImportError as error:
        raise DefinitionError(f"OTLP needs the extra `otel`: {install_hint('otel')} ({error})") from error
    arrived = 0
    with Collector(endpoint) as collector:
        for spans in runs:
            with collector.run(spans[0].trace_id if spans else "") as (tracers, meters):
                emit(spans, tracers, meters)
            arrived += collector.send_spans()
            if not collector.problem:
                collector.send_metrics()
    return Delivery(sum(map(len, runs)), arrived, collector.problem, collector.metrics_problem)


class _Given:
    """Gives OpenTelemetry the ids of our spans, where its SDK would draw some."""

    def __init__(self) -> None:
        self.span = Span("", 0.0)

    def generate_span_id(self) -> int:
        return int(self.span.id, 16)

    def generate_trace_id(self) -> int:
        return int(self.span.trace_id, 16)

    def is_trace_id_random(self) -> bool:
        return False


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1_000_000_000)
