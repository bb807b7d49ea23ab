r"""Writes JSON values as YAML that is good to read and to compare: one line a value, texts of several lines as blocks.

YAML writers fold long lines and fall back to escapes where a line ends in a blank; prompts do, and then no
diff of them can be read. Everything written here is read back as it was by the reader of flow files.

    >>> print(to_yaml({"role": "user", "content": "Two\nlines", "count": [1, "1"]}), end="")
    role: user
    content: |-
      Two
      lines
    count:
      - 1
      - "1"
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from math import isinf, isnan
from typing import Any, Final, cast

_PLAIN: Final = re.compile(r"[A-Za-z][\w.,()/'-]*( [\w.,()/'-]+)*", re.ASCII)
"""Texts that need no quotes, unless they are one of these words."""
_WORDS: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
_UNSAFE: Final = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufe00-\ufeff\ufffe\uffff]")
"""Characters that a block may not hold, or that could not be seen in one."""
_LONG: Final = 80


def to_yaml(value: Any) -> str:
    """The value as a document; a map or a list, where it holds long texts."""
    return "".join(f"{line}\n" for line in _lines(value))


def _lines(value: Any) -> Iterator[str]:
    """The lines of a value that begins a line."""
    if isinstance(value, Mapping) and value:
        for key, each in cast("Mapping[str, Any]", value).items():
            yield from _entry(f"{_inline(key)}:", each)
    elif isinstance(value, list | tuple) and value:
        for each in cast("Sequence[Any]", value):
            yield from _item(each)
    else:
        yield _scalar(value)


def _entry(head: str, value: Any) -> Iterator[str]:
    """A key and its value: on its line if it fits there, else below it."""
    if isinstance(value, str) and _is_block(value):
        yield from _block(f"{head} ", value)
    elif isinstance(value, Mapping | list | tuple) and value:
        yield head
        yield from (f"  {line}" if line else line for line in _lines(value))
    else:
        yield f"{head} {_scalar(value)}"


def _item(value: Any) -> Iterator[str]:
    if isinstance(value, str) and _is_block(value):
        yield from _block("- ", value)
        return
    lead = "- "
    for line in _lines(value):
        yield f"{lead}{line}" if line else line
        lead = "  "


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return _inline(value)
    if isinstance(value, Mapping):
        return "{}"
    if isinstance(value, list | tuple):
        return "[]"
    if isinstance(value, float) and (isnan(value) or isinf(value)):
        return ".nan" if isnan(value) else (".inf" if value > 0 else "-.inf")
    return json.dumps(value)


def _inline(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return _UNSAFE.sub(_escape_character, json.dumps(text, ensure_ascii=False))


def _escape_character(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def _is_block(text: str) -> bool:
    last = text.rpartition("\n")[2]
    has_end = not last or not last.isspace()  # Blanks at the very end belong to no line.
    return ("\n" in text or len(text) > _LONG) and bool(text.strip()) and has_end and not _UNSAFE.search(text)


def _block(head: str, text: str) -> Iterator[str]:
    """A literal block: what stands in it stands there as it is, two columns further in."""
    body = text.rstrip("\n")
    breaks = len(text) - len(body)
    chomping = "-" if not breaks else "" if breaks == 1 else "+"
    indent = "2" if text[0] in " \n" else ""  # Else the first line would say how far the block is indented.
    yield f"{head}|{indent}{chomping}"
    for line in [*body.split("\n"), *[""] * (breaks - 1)]:
        yield f"  {line}" if line else ""
