"""Numbers of a worker and of the queues, in the text format that Prometheus reads (version 0.0.4). Pure.

The format is written here: it is three kinds of lines, and a client library would bring a registry of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from flowengine.context import EMPTY
from flowengine.runners.queue_status import QueueStatus
from flowengine.runners.queue_vitals import Vitals
from flowengine.version import __version__

__all__ = ["Metric", "metrics_of", "text_of"]


class Metric(NamedTuple):
    name: str
    kind: Literal["gauge", "counter"]
    help: str
    samples: Sequence[tuple[Mapping[str, str], float]]
    """Labels and value of each."""


_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def text_of(metrics: Iterable[Metric]) -> str:
    r"""The metrics as text.

    >>> print(text_of([Metric("a", "gauge", "How many.", [({"queue": 'x"'}, 2), ({}, 0.5)])]), end="")
    # HELP a How many.
    # TYPE a gauge
    a{queue="x\""} 2
    a 0.5
    """
    return "".join(f"{line}\n" for metric in metrics for line in _lines(metric))


def _lines(metric: Metric) -> Iterator[str]:
    yield f"# HELP {metric.name} {metric.help}"
    yield f"# TYPE {metric.name} {metric.kind}"
    for labels, value in metric.samples:
        inside = ",".join(f'{name}="{each.translate(_ESCAPES)}"' for name, each in labels.items())
        yield f"{metric.name}{f'{{{inside}}}' if inside else ''} {value:.12g}"


def metrics_of(vitals: Vitals, queues: Sequence[QueueStatus] | None) -> Iterator[Metric]:
    """The numbers of a worker; and those of the store's queues, None where the store did not answer."""
    info = {"version": __version__, "queue": vitals.queue}
    yield Metric("flowengine_worker_info", "gauge", "The worker's version and queue.", [(info, 1)])
    is_ready = vitals.unreadiness is None
    yield Metric("flowengine_worker_ready", "gauge", "Whether it takes runs.", [(EMPTY, is_ready)])
    held = len(vitals.in_hand)
    yield Metric("flowengine_worker_runs", "gauge", "Runs that it holds.", [(EMPTY, held)])
    yield Metric("flowengine_worker_concurrency", "gauge", "Runs that it may hold.", [(EMPTY, vitals.concurrency)])
    told = [({"event": event}, count) for event, count in sorted(vitals.counts.items())]
    yield Metric("flowengine_worker_events_total", "counter", "What happened to runs in it, by event.", told)
    is_up = queues is not None
    yield Metric("flowengine_store_up", "gauge", "Whether the store answered just now.", [(EMPTY, is_up)])
    if queues is None:
        return
    yield Metric("flowengine_orphaned_runs", "gauge", "Runs of the store without a job.", [(EMPTY, vitals.orphans)])
    runs = [({"queue": each.queue, "state": state}, count) for each in queues for state, count in _states(each)]
    yield Metric("flowengine_queue_runs", "gauge", "Runs of a queue, by how they stand.", runs)
    ages = [({"queue": each.queue}, each.oldest or 0.0) for each in queues]
    yield Metric("flowengine_queue_oldest_seconds", "gauge", "For how long its first run has been due.", ages)
    workers = [({"queue": each.queue}, each.workers) for each in queues]
    yield Metric("flowengine_queue_workers", "gauge", "Workers that are alive and take from it.", workers)


def _states(queue: QueueStatus) -> Iterator[tuple[str, int]]:
    """Each run is in one state."""
    yield "due", queue.due
    yield "later", queue.later
    yield "asking", queue.asking
    yield "lacking", queue.lacking
    yield "taken", queue.taken - queue.lost
    yield "lost", queue.lost
