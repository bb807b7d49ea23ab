"""Finds the flow files below a folder, for all who take a folder: the servers, the viewer and `validate`.

It reads the head of a file to see whether it is a flow, and no more.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_SUFFIXES: Final = (".yaml", ".yml")
_SKIPPED_FOLDERS: Final = frozenset({"node_modules", "__pycache__", "venv", "site-packages", "build", "dist"})
_MAX_FILES: Final = 2_000
"""Flow files that one folder may have below it."""
_FLOW_MARK: Final = re.compile(rb"^\s*\{?\s*flowengine\s*:", re.MULTILINE)
_HEAD_BYTES: Final = 8_000
"""Bytes of a file in which the key `flowengine` must be, so that not every YAML file is read."""


def find_flow_files(place: Path) -> Iterator[Path]:
    """The file itself, or the flow files anywhere below a folder, sorted."""
    if not place.is_dir():
        yield place
        return
    count = 0
    for path in find_yaml_files(place):
        if says_flowengine(path):
            yield path
            count += 1
            if count >= _MAX_FILES:
                return


def find_yaml_files(folder: Path) -> Iterator[Path]:
    """The YAML files anywhere below a folder, sorted; without hidden folders and those of installed packages."""
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(each for each in folders if each not in _SKIPPED_FOLDERS and not each.startswith("."))
        for name in sorted(files):
            if name.endswith(_SUFFIXES):
                yield Path(here, name)


def says_flowengine(path: Path) -> bool:
    """Tells whether a file has the key `flowengine`, which makes it a flow."""
    try:
        with path.open("rb") as file:
            return _FLOW_MARK.search(file.read(_HEAD_BYTES)) is not None
    except OSError:
        return False
