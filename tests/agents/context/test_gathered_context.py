from __future__ import annotations

import json

from flowengine.agents.context.chain import brought_of, entries_of
from flowengine.agents.context.packer import PackedEntry
from flowengine.core.context import Fragment
from flowengine.core.records import ContextGathered


def test_what_was_brought_is_read_back_as_it_was():
    entries = [
        PackedEntry(Fragment("返金", "fixed_file", label="a.md", priority=-2, order=3, group="g", pinned=True)),
        PackedEntry(Fragment("Text […]", "filter"), "shortened", "by 'filter'"),
        PackedEntry(Fragment("Gone", "files"), "dropped", "taken out by 'filter'"),
    ]
    plain = json.loads(json.dumps(brought_of(entries).fragments))
    assert entries_of(ContextGathered(plain)) == entries
