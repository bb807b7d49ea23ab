"""How often a run's worker has died while it loaded the code of the flow, which may crash as any code.

No journal says so: nothing of the run has begun. So it is noted beside the run before, and taken back after. Who loads
notes one run at a time, and only where its turn has come.
"""

from __future__ import annotations

from typing import Any, Final

from flowengine.engine.ports import JournalStore

__all__ = ["begin", "deaths_while_loading", "end"]

_KIND: Final = "queue.loading"


def deaths_while_loading(store: JournalStore, run_id: str) -> int:
    """How often loading began and did not end."""
    known = store.recall(_KIND, run_id)
    return known if isinstance(known, int) else 0


def begin(store: JournalStore, run_id: str) -> None:
    """The code is loaded now."""

    def change(known: Any) -> Any:
        return known + 1 if isinstance(known, int) else 1

    store.revise(_KIND, run_id, change)


def end(store: JournalStore, run_id: str) -> None:
    """It was loaded, or could not be, and this process lives."""
    store.revise(_KIND, run_id, lambda known: None)
