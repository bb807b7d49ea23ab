"""Which runs of a store are asked for: by flow, status, labels and start. One rule for Python, commands and pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, get_args

from flowengine.context import EMPTY, RunStatus
from flowengine.engine.ports import RunInfo

__all__ = ["STATUS_WORDS", "RunQuery"]

STATUS_WORDS: Final[tuple[str, ...]] = (*get_args(RunStatus), "queued", "interrupted")
"""How a run may stand; the last two are said of the store, not of the record."""


class RunQuery(NamedTuple):
    """What is asked for; what is None or empty asks for nothing."""

    flow: str = ""
    status: str = ""
    """A status of a record, or `queued` or `interrupted`."""
    labels: Mapping[str, str] = EMPTY
    """The run has all of them, with these values."""
    started_from: float | None = None
    started_before: float | None = None
    """Unix seconds."""

    def matches(self, info: RunInfo, status: str) -> bool:
        """Whether a run is asked for; `status` is the word for how it stands now."""
        return (
            (not self.flow or info.flow == self.flow)
            and (not self.status or status == self.status)
            and (self.started_from is None or info.started >= self.started_from)
            and (self.started_before is None or info.started < self.started_before)
            and all(info.labels.get(name) == value for name, value in self.labels.items())
        )

    def select(self, infos: Iterable[RunInfo], statuses: Mapping[str, str] = EMPTY) -> list[RunInfo]:
        """The runs that are asked for, in the order given; `statuses`: run → its word, where record has another."""
        return [info for info in infos if self.matches(info, statuses.get(info.run_id, info.status))]
