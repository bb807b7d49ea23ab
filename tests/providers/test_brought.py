from __future__ import annotations

import json

from flowengine.context import Fragment
from flowengine.providers.brought import brought_of, entries_of
from flowengine.providers.packer import Entry
from flowengine.records import Brought


def test_what_was_brought_is_read_back_as_it_was():
    entries = [
        Entry(Fragment("返金", "fixed_file", label="a.md", priority=-2, order=3, group="g", pinned=True)),
        Entry(Fragment("Text […]", "filter"), "shortened", "by 'filter'"),
        Entry(Fragment("Gone", "files"), "dropped", "taken out by 'filter'"),
    ]
    plain = json.loads(json.dumps(brought_of(entries).fragments))
    assert entries_of(Brought(plain)) == entries
