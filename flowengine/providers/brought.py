"""What providers brought, as a record, and back: a run that is resumed asks them no second time.

What they bring may be another thing by then, or have cost something; the prompt that was paid for stays the prompt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from flowengine.context import Fragment
from flowengine.providers.packer import Entry
from flowengine.records import Brought

__all__ = ["brought_of", "entries_of"]

_DEFAULTS: Final = Fragment("", "")._asdict()


def brought_of(entries: Iterable[Entry]) -> Brought:
    """The record; what is as it is by default is left out of it.

    >>> brought_of([Entry(Fragment("Refunds.", "fixed_file"))]).fragments
    [{'text': 'Refunds.', 'source': 'fixed_file'}]
    """
    return Brought([_row(each) for each in entries])


def entries_of(record: Brought) -> list[Entry]:
    """What the record was made of."""
    return [_entry(each) for each in record.fragments]


def _row(entry: Entry) -> dict[str, Any]:
    fragment = {name: value for name, value in entry.fragment._asdict().items() if value != _DEFAULTS[name]}
    state = {} if entry.state == "kept" else {"state": entry.state, "why": entry.why}
    return fragment | state


def _entry(row: Mapping[str, Any]) -> Entry:
    fragment = Fragment(**{name: row.get(name, default) for name, default in _DEFAULTS.items()})
    return Entry(fragment, row.get("state", "kept"), row.get("why", ""))
