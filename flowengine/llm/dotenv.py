"""Settings from a `.env` file, under those of the real environment.

It looks in the folder it is given and in no other, and never writes to `os.environ`: the merged
settings are a mapping that the caller passes on. `FLOWENGINE_ENV=production` names the file
`.env.production`, which is then read instead of `.env`, so that a development key is never used
in production by accident.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["parse_dotenv", "read_environment"]

_ASSIGNMENT: Final = re.compile(
    r"""
    ^[ \t]* (?:export[ \t]+)? (?P<name>[A-Za-z_][A-Za-z0-9_]*) [ \t]*=[ \t]*
    (?: '(?P<literal>[^']*)' | "(?P<quoted>(?:[^"\\]|\\.)*)" | (?P<plain>[^\n'"#][^\n]*?)? )
    [ \t]* (?:(?<=[ \t'"=])\#[^\n]*)? $
    """,
    re.MULTILINE | re.VERBOSE | re.DOTALL,
)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r"}


def read_environment(folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` and, for the names it lacks, the folder's `.env` (or `.env.NAMESPACE`) file."""
    namespace = environ.get("FLOWENGINE_ENV", "")
    file = folder / (f".env.{namespace}" if namespace else ".env")
    if "/" in namespace or "\\" in namespace or not file.is_file():
        return dict(environ)
    return {**parse_dotenv(file.read_text("utf-8-sig")), **environ}


def parse_dotenv(text: str) -> dict[str, str]:
    r"""The assignments of a `.env` text; other lines are left to the tools they are meant for.

    `NAME=value`, with `export` before it or not; a comment starts at ` #`. Single quotes keep the
    text as it is; double quotes know \n, \t, \r, \" and \\; both may span lines. `$NAME` stays.

    >>> parse_dotenv('A=1  # one\nexport B="two words"\nC=\'#3\'')
    {'A': '1', 'B': 'two words', 'C': '#3'}
    """
    return {found["name"]: _value(found) for found in _ASSIGNMENT.finditer(text.replace("\r\n", "\n"))}


def _value(found: re.Match[str]) -> str:
    if found["literal"] is not None:
        return found["literal"]
    if found["quoted"] is not None:
        return re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[1]), found["quoted"], flags=re.DOTALL)
    return found["plain"] or ""
