"""Values as JSON for results on stdout: the journal's plain form, under the name that the commands know."""

from __future__ import annotations

from flowengine.journal.plain import dumps, event_line, plain, shown

__all__ = ["dumps", "event_line", "plain", "shown"]
