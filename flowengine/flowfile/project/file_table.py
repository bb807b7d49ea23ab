"""Reads the table `files` of a project file: what files a run may take in, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

from flowengine.core import FileRules, is_media_pattern, read_rule
from flowengine.errors import did_you_mean
from flowengine.flowfile.project.toml_positions import TellProblem

_MOST: Final = 256 * 2**20
"""Bytes of one file, whatever a project says: a store takes no more."""
_UNITS: Final = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_SIZE: Final = re.compile(r"(\d{1,15}) ?([a-z]*)", re.IGNORECASE)
_KEYS: Final = ("max_file", "max_run", "media_types", "allow_urls")


def read_file_rules(table: Mapping[str, Any], tell: TellProblem) -> FileRules:
    """The rules; what is wrong is told, and has its default."""
    rules: dict[str, Any] = {}
    for key, value in table.items():
        at = ("files", key)
        if key not in _KEYS:
            hint = did_you_mean(key, _KEYS) or f"; it takes {', '.join(_KEYS)}"
            tell(f"unknown key '{key}' of `files`", hint, at)
        elif key.startswith("max_"):
            size = _bytes_of(value)
            if size is None or (key == "max_file" and size > _MOST):
                tell(f"'{key}' of `files` is a size like \"20MB\", and at most 256MiB for one file", "", at)
            else:
                rules[key] = size
        elif not isinstance(value, list) or not all(isinstance(each, str) for each in cast("list[Any]", value)):
            tell(f"'{key}' of `files` is a list of strings", "", at)
        else:
            rules[key] = tuple(cast("list[str]", value))
    for each in rules.get("media_types", ()):
        if not is_media_pattern(each):
            message = f"'{each}' in 'media_types' of `files` is no media type like image/png, image/* or */*"
            tell(message, "", ("files", "media_types"))
    for each in rules.get("allow_urls", ()):
        if read_rule(each) is None:
            message = f"'{each:.100}' in 'allow_urls' of `files` is no beginning of an address like https://host/path/"
            tell(message, "", ("files", "allow_urls"))
    return FileRules(**rules)


def _bytes_of(value: Any) -> int | None:
    """
    >>> [_bytes_of(each) for each in ("20MB", "1 KiB", 5, "0", True, "x", -1)]
    [20000000, 1024, 5, None, None, None, None]
    """
    match = _SIZE.fullmatch(str(value)) if isinstance(value, int | str) and not isinstance(value, bool) else None
    unit = None if match is None else _UNITS.get(match[2].upper())
    return None if match is None or unit is None else int(match[1]) * unit or None
