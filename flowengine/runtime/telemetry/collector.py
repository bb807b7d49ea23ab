"""Sends spans and metrics to a collector of OTLP over HTTP, and tells what it answered. Needs the extra `otel`.

Everything of a run is gathered first and sent in batches, in the caller's thread: nothing is dropped because a queue is
full, and what the collector answers is known before it is reported.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any, Final

import requests
from google.protobuf.message import DecodeError
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricExportResult
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult

from flowengine.core import Secrets, find_secret_values, find_url_secrets, is_random
from flowengine.version import __version__

_BATCH: Final = 512
"""Spans of one request."""
_NAME: Final = "flowengine"
_LONGEST: Final = 300
"""Characters of what a collector said."""


class Collector:
    """Sends spans and metrics to a collector; a context manager.

    `endpoint`: the base address; None: where the standard variables say.
    """

    def __init__(self, endpoint: str | None) -> None:
        base = None if endpoint is None else endpoint.rstrip("/")
        self._traces, self._metrics = _Session(), _Session()
        self._span_exporter = OTLPSpanExporter(base and f"{base}/v1/traces", session=self._traces)
        self._metric_exporter: Any = OTLPMetricExporter(base and f"{base}/v1/metrics", session=self._metrics)
        self._gathered = _Gathered()
        self._reader = InMemoryMetricReader()
        self.problem = ""
        """Why spans did not arrive, or were not taken; empty while all were."""
        self.is_lost = False
        """Whether spans did not arrive at all, so that they may be sent again."""
        self.metrics_problem = ""
        """Why metrics did not arrive; empty while they did."""

    def __enter__(self) -> Collector:
        # The exporters log what we report ourselves; without a handler of the program's that would go to stderr.
        logging.getLogger("opentelemetry").addHandler(_SILENT)
        return self

    def __exit__(self, *exc: object) -> None:
        logging.getLogger("opentelemetry").removeHandler(_SILENT)
        self._span_exporter.shutdown()
        self._metric_exporter.shutdown()

    @contextmanager
    def run(self, instance: str) -> Generator[tuple[TracerProvider, MeterProvider]]:
        """Providers that gather what one run has. Its metrics are those of an instance of its own."""
        shared = {"service.name": _NAME, "service.version": __version__}
        self._gathered, self._reader = _Gathered(), InMemoryMetricReader()
        tracers = TracerProvider(resource=Resource.create(shared))
        tracers.add_span_processor(self._gathered)
        meters = MeterProvider([self._reader], Resource.create({**shared, "service.instance.id": instance}))
        yield tracers, meters

    def send_spans(self) -> int:
        """Send the gathered spans; how many the collector took. It stops at the first batch that does not arrive."""
        spans, arrived = self._gathered.spans, 0
        for begin in range(0, len(spans), _BATCH):
            batch = spans[begin : begin + _BATCH]
            if not _export(self._span_exporter, batch) or self._traces.is_elsewhere():
                self.problem, self.is_lost = self._traces.problem(), True
                break
            rejected, why = self._traces.count_rejected()
            arrived += len(batch) - rejected
            if rejected:
                self.problem = f"the collector rejected {rejected} spans{f': {why}' if why else ''}"
        return arrived

    def send_metrics(self) -> None:
        data = self._reader.get_metrics_data()
        if data is None:
            return
        if not _export(self._metric_exporter, data) or self._metrics.is_elsewhere():
            self.metrics_problem = self._metrics.problem()


def _export(exporter: Any, data: Any) -> bool:
    """Sends data; tells whether it arrived. Until OpenTelemetry 1.40 an exporter lets the error of a request out."""
    try:
        return exporter.export(data) in (SpanExportResult.SUCCESS, MetricExportResult.SUCCESS)
    except requests.RequestException:
        return False


class _Gathered(SpanProcessor):
    """Spans that have ended."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)


class _Session(requests.Session):
    """Remembers how the last request ended. It follows no redirect: what it would send there has no body any more."""

    def __init__(self) -> None:
        super().__init__()
        self._answer: requests.Response | None = None
        self._error: Exception | None = None
        self._secrets = Secrets(())

    def request(self, method: str, url: str, *args: Any, **options: Any) -> requests.Response:
        headers: dict[str, Any] = {**self.headers, **(options.get("headers") or {})}
        header_texts = {name: str(value) for name, value in headers.items()}
        self._secrets = Secrets(
            [*find_secret_values(header_texts), *filter(is_random, header_texts.values()), *find_url_secrets(url)]
        )
        limit = options.get("timeout")
        if isinstance(limit, int | float) and limit <= 0:  # The exporter tries again when its time is used up.
            self._error = self._error or requests.Timeout("no time is left")
            raise self._error
        self._answer = self._error = None
        try:
            self._answer = super().request(method, url, *args, **{**options, "allow_redirects": False})
        except Exception as error:
            self._error = error
            raise
        return self._answer

    def is_elsewhere(self) -> bool:
        """Tells whether something else than a collector took the last request: a redirect, or a page such as a
        login.
        """
        answer = self._answer
        if answer is None:
            return False
        is_page = "html" in answer.headers.get("Content-Type", "") and answer.content.lstrip().startswith(b"<")
        return 300 <= answer.status_code < 400 or is_page

    def problem(self) -> str:
        """Explains why the last request failed."""
        return self._hide(self._explain())

    def _hide(self, text: str) -> str:
        """A collector's words without the keys in the headers and the address, which it may repeat."""
        return self._secrets.hide(text)[:_LONGEST]

    def _explain(self) -> str:
        if self._answer is not None and self.is_elsewhere():
            place = self._answer.headers.get("Location", "")
            if place:
                led = f", which leads {_shown_place(place)}"
            else:
                led = " with a page, as no collector does" if self._answer.status_code < 300 else ""
            return f"what is there answered {_status_of(self._answer)}{led}"
        if self._answer is not None:
            text = " ".join(self._answer.text[: 10 * _LONGEST].split())
            reason = f": {text}" if text and text.isprintable() else ""
            return f"the collector answered {_status_of(self._answer)}{reason}"
        if isinstance(self._error, requests.Timeout):
            return "the collector did not answer in time"
        if isinstance(self._error, requests.ConnectionError):
            return "nothing answers there"
        if isinstance(self._error, requests.exceptions.InvalidSchema | requests.exceptions.MissingSchema):
            return "a collector's address begins with http:// or https://"
        return f"the request could not be made: {self._error}"

    def count_rejected(self) -> tuple[int, str]:
        """Returns the number of spans that the collector rejected, and why."""
        with suppress(DecodeError):  # An answer of another form says nothing.
            if self._answer is not None and "protobuf" in self._answer.headers.get("Content-Type", ""):
                partial = ExportTraceServiceResponse.FromString(self._answer.content).partial_success
                return partial.rejected_spans, self._hide(partial.error_message)
        return 0, ""


def _status_of(answer: requests.Response) -> str:
    reason = answer.reason or ""
    return f"{answer.status_code} {reason}".rstrip() if reason.isprintable() else str(answer.status_code)


def _shown_place(address: str) -> str:
    """Returns where a redirect leads, without its password and query, which may repeat a key."""
    address = re.split(r"[?#]", address)[0]
    address = re.sub(r"//[^/]*@", "//", address)
    return f"to {address}" if address and address.isprintable() else "elsewhere"


_SILENT: Final = logging.NullHandler()
