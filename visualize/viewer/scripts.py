"""Joins the modules of the pages' script into one text: served as one file, and written into pages that are one file.

A browser would ask for each module by itself, and a page that is opened from a disk may import none. The modules are
plain enough to be joined without a parser, and `tests/visualize/scripts/eslint.config.mjs` keeps them so: each import
names what it takes, on one line; no two modules declare the same name; no text has a line break in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from typing import Final

_IMPORT: Final = re.compile(r'^import \{ \w+(?:, \w+)* \} from "\./([a-z_]+\.js)";\n', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=(?:async )?(?:function|class|const|let)\b)", re.MULTILINE)
_COMMENT: Final = re.compile(r"/\*\*(?s:.*?)\*/[ \n]?|^ *//.*\n", re.MULTILINE)
_BLANK: Final = re.compile(r"^\s*\n", re.MULTILINE)


@cache
def script() -> str:
    """The whole script, in a scope of its own."""
    return "\n".join(["(() => {", '"use strict";', join_modules(["main.js"]), "})();", ""])


def join_modules(names: Iterable[str]) -> str:
    """These modules and all that they import, each once and behind those that it imports, without comments."""
    return _BLANK.sub("", "\n".join(_strip_module(text) for text in _in_order(names, {}, ())))


def read_static(name: str) -> str:
    """The text of a file of the script or the style sheet."""
    return files("visualize").joinpath("static", name).read_text(encoding="utf-8")


def _in_order(names: Iterable[str], order: dict[str, None], path: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        if name in path:
            raise ValueError(f"modules import each other: {' → '.join([*path, name])}")
        if name not in order:
            text = read_static(name)
            yield from _in_order(_IMPORT.findall(text), order, (*path, name))
            order[name] = None
            yield text


def _strip_module(text: str) -> str:
    return _COMMENT.sub("", _EXPORT.sub("", _IMPORT.sub("", text)))
