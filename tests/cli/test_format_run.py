"""What `runs show` prints of a run."""

from __future__ import annotations

from flowengine import Flow
from flowengine.cli.format_run import format_run
from flowengine.journal.memory import MemoryStore
from visualize.progress import fold_events

MANY = """
flowengine: v1
name: many
nodes:
  each:
    type: map
    over: range(40)
    concurrency: 1
    nodes:
      one: {prompt: "{{ 1 // (item - 30) }}", model: offline}
      two: {prompt: "{{ nodes.one.output }}", model: offline}
"""


def test_of_many_items_only_those_are_listed_where_something_happened():
    store = MemoryStore()
    run = Flow.from_text(MANY, "many.yaml").run_sync(store=store)
    progress = fold_events(store.events(run.id))
    lines = list(format_run(progress))
    listed = [" ".join(line.split()) for line in lines[: lines.index("", lines.index("") + 1)]]
    assert [line.split()[0] for line in listed if line.startswith("each")] == [
        *("each", "each[…]", "each[30].one", "each[30].two")
    ]
    assert "each[…] succeeded 30 items without a failure: --all lists them" in listed
    assert "each[3].two" in "\n".join(format_run(progress, is_whole=True))
