"""Reads litellm's table of models: a file in its folder, found and read without importing litellm.

The file is large, so one model's entry is cut out of it and the rest is not looked into; all of it is read only for a
question about all names.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeAlias

__all__ = ["TableEntry", "find_entry", "whole_table"]

TableEntry: TypeAlias = Mapping[str, Any]

_START: Final = b'{\n    "'
"""How a file begins whose entries stand at an indent of four."""


@cache
def find_entry(name: str) -> TableEntry | None:
    """What the table has under a name; None where that is nothing."""
    file = _file()
    if file is None:
        return None
    try:
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if content[: len(_START)] == _START:
                return _cut_out(content, name)
    except (OSError, ValueError):
        pass
    return whole_table().get(name)


def _cut_out(content: mmap.mmap, name: str) -> TableEntry | None:
    head = f"\n    {json.dumps(name)}: ".encode()
    at = content.rfind(head)  # Of two with one name, the last counts, as everywhere in JSON.
    if at < 0:
        return None
    end = content.find(b"\n    }", at)
    return json.loads(content[at + len(head) : end + len(b"\n    }")])


@cache
def whole_table() -> Mapping[str, TableEntry]:
    """Every name with its entry; none where there is no table."""
    file = _file()
    try:
        return {} if file is None else json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}


@cache
def _file() -> Path | None:
    spec = find_spec("litellm")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).with_name("model_prices_and_context_window_backup.json")
