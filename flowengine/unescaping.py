"""The letters that escapes stand for: `%40`, `\\u0040`, `\\x40`, `&#64;`, `&#x40;`. It decodes one layer of them."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["BEGUN", "ESCAPE", "unescaped"]

ESCAPE: Final = re.compile(
    r"%(?P<a>[0-9A-Fa-f]{2})|\\+u\{?(?P<b>[0-9A-Fa-f]{4})\}?|\\+x(?P<c>[0-9A-Fa-f]{2})"
    r"|&#(?P<d>[0-9]{2,6});|&#[xX](?P<e>[0-9A-Fa-f]{2,5});"
)
BEGUN: Final = re.compile(
    r"(?:%[0-9A-Fa-f]?|\\+(?:u\{?[0-9A-Fa-f]{0,4}|x[0-9A-Fa-f]?)?|&(?:#[0-9]{0,6}|#[xX][0-9A-Fa-f]{0,5})?)\Z"
)
"""An escape at the end of a text that may go on."""


def unescaped(found: re.Match[str]) -> str:
    """What an escape stands for; nothing where there is no such letter."""
    base = 10 if found["d"] else 16
    code = int(next(each for each in found.groups() if each), base)
    return chr(code) if code < 0x11_0000 else ""
