"""What a server counts for Prometheus."""

from __future__ import annotations

from flowengine.journal.memory import MemoryStore
from flowengine.web.api.serving_metrics import ServingMetrics
from flowengine.web.service.flow_service import FlowService


def test_a_queue_that_is_gone_has_neither_runs_nor_workers() -> None:
    metrics = ServingMetrics(FlowService(MemoryStore(), ()))
    metrics.note_queues([("gpu", "due", 2)], [("gpu", 1)])
    assert b'flowengine_queue_workers{queue="gpu"} 1' in metrics.text()
    metrics.note_queues([], [])
    assert b'queue="gpu"' not in metrics.text()
