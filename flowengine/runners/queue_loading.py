"""How often a run's worker has died while it loaded the code of the flow, which may crash as any code.

No journal says so: nothing of the run has begun. So it is noted beside the run before, and taken back after.
"""

from __future__ import annotations

from typing import Any, Final

from flowengine.engine.ports import JournalStore

__all__ = ["begin", "end"]

_KIND: Final = "queue.loading"


def begin(store: JournalStore, run_id: str) -> int:
    """The code is loaded now; how often that began before and did not end."""
    before = 0

    def change(known: Any) -> Any:
        nonlocal before
        before = known if isinstance(known, int) else 0
        return before + 1

    store.revise(_KIND, run_id, change)
    return before


def end(store: JournalStore, run_id: str) -> None:
    """It was loaded, or could not be, and this process lives."""
    store.revise(_KIND, run_id, lambda known: None)
