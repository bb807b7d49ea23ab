"""Spans and metrics through OpenTelemetry's API; the SDK and the OTLP exporter are the extra `otel`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from flowengine.errors import DefinitionError
from flowengine.telemetry import names
from flowengine.telemetry.spans import Span
from flowengine.version import __version__

if TYPE_CHECKING:
    from collections.abc import Generator

    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = ["emit", "otlp"]

_NAME: Final = "flowengine"


def emit(spans: Sequence[Span], tracers: TracerProvider | None = None, meters: MeterProvider | None = None) -> None:
    """Hand the spans of a run, and the metrics that follow from them, to OpenTelemetry.

    None: the providers that the program has set. A span that never ended ends where its last child does.
    """
    from opentelemetry import metrics, trace

    tracer = trace.get_tracer(_NAME, __version__, tracers)
    made: dict[int, Any] = {}
    for span in spans:
        parent = made.get(id(span.parent)) if span.parent is not None else None
        context = None if parent is None else trace.set_span_in_context(parent)
        links = [trace.Link(made[id(span.link)].get_span_context())] if span.link is not None else None
        kind = trace.SpanKind.CLIENT if span.is_call else trace.SpanKind.INTERNAL
        one = tracer.start_span(span.name, context, kind, span.attributes, links, _nanoseconds(span.start))
        for mark in span.marks:
            one.add_event(mark.name, dict(mark.attributes), _nanoseconds(mark.at))
        if span.error is not None:
            one.set_status(trace.Status(trace.StatusCode.ERROR, span.error))
        made[id(span)] = one
    for span in reversed(spans):  # Children end before their parents do.
        made[id(span)].end(_nanoseconds(_end(span, spans)))
    _measure(spans, metrics.get_meter(_NAME, __version__, meters))


def _end(span: Span, spans: Sequence[Span]) -> float:
    if span.end is not None:
        return span.end
    inside = [each.end or each.start for each in spans if each.parent is span]
    return max([span.start, *inside])


def _measure(spans: Sequence[Span], meter: Any) -> None:
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


@contextmanager
def otlp(endpoint: str | None = None) -> Generator[tuple[TracerProvider, MeterProvider]]:
    """Providers that send to a collector over HTTP, flushed at the end of the block.

    None: where the standard variables say (`OTEL_EXPORTER_OTLP_ENDPOINT`), else port 4318 of this machine.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise DefinitionError(f"OTLP needs the extra `otel`: pip install 'flowengine[otel]' ({error})") from error
    resource = Resource.create({"service.name": _NAME, "service.version": __version__})
    base = None if endpoint is None else endpoint.rstrip("/")
    tracers = TracerProvider(resource=resource)
    tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(base and f"{base}/v1/traces")))
    reader = PeriodicExportingMetricReader(OTLPMetricExporter(base and f"{base}/v1/metrics"))
    meters = MeterProvider([reader], resource)
    try:
        yield tracers, meters
    finally:
        tracers.shutdown()
        meters.shutdown()


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1_000_000_000)
