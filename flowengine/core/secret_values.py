"""Takes secret values (keys, tokens, passwords) out of texts.

It knows the forms in which headers and URLs carry a value, and those in which a model or a server may write it to have
it pass: escaped (`%41`, `\\u0041`, `\\x41`, `&#65;`), in hexadecimal, in base64 at any offset, in other case, spaced
out, backwards. It does not know a value that is cut in pieces, translated, or encoded twice.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from string import ascii_lowercase, ascii_uppercase
from typing import Any, Final, NamedTuple, cast
from urllib.parse import parse_qsl, urlsplit

# --- Escapes and the letters they stand for

ESCAPE: Final = re.compile(
    r"%(?P<a>[0-9A-Fa-f]{2})|\\{1,16}u\{?(?P<b>[0-9A-Fa-f]{4})\}?|\\{1,16}x(?P<c>[0-9A-Fa-f]{2})"
    r"|&#(?P<d>[0-9]{2,6});|&#[xX](?P<e>[0-9A-Fa-f]{2,5});"
)
"""With as many backslashes as JSON in JSON has: without a bound each of a long row would be followed to its end."""
UNFINISHED_ESCAPE: Final = re.compile(
    r"(?:%[0-9A-Fa-f]?|\\{1,16}(?:u\{?[0-9A-Fa-f]{0,4}|x[0-9A-Fa-f]?)?|&(?:#[0-9]{0,6}|#[xX][0-9A-Fa-f]{0,5})?)\Z"
)
"""An escape at the end of a text that may go on."""


def replace_escape(match: re.Match[str]) -> str:
    """Returns the character of an escape sequence; empty if there is none."""
    base = 10 if match["d"] else 16
    code = int(next(each for each in match.groups() if each), base)
    return chr(code) if code < 0x11_0000 else ""


_SHORTEST: Final = 6
"""Shorter values are no secrets, and hiding them would tear words apart."""
_LONG: Final = 12
"""From so many characters on a value is looked for in all its forms; what is shorter would be found by accident."""
_SECRET_NAME: Final = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH|DSN|DATABASE_URL", re.IGNORECASE)
_HIDDEN: Final = "[hidden]"
_MAX_DEPTH: Final = 50


def find_secret_values(settings: Mapping[str, Any]) -> list[str]:
    """The values whose variables are named like secrets; a time zone or a log level is none.

    >>> find_secret_values({"API_KEY": "sk-123456", "TZ": "Asia/Tokyo"})
    ['sk-123456']
    """
    return [value for name, value in settings.items() if isinstance(value, str) and _SECRET_NAME.search(name)]


def find_url_secrets(url: str) -> list[str]:
    """The password and the query's values, in which services let keys be given.

    >>> find_url_secrets("https://ada:pass@example.org/mcp?key=abc&v=2")
    ['pass', 'abc', '2']
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return []
    return [parts.password or "", *(value for _, value in parse_qsl(parts.query))]


def is_random(value: str) -> bool:
    """Tells whether a value cannot be meant as a word: servers of one's own take anything as a key (`ollama`,
    `not-needed`).

    >>> is_random("sk-0a1b2c3d4e5f"), is_random("sk-no-key-required"), is_random("ollama")
    (True, False, False)
    """
    return len(value) >= _LONG and re.search("[0-9]|[a-z][A-Z]", value) is not None


class Secrets:
    """Values that must not be seen.

    >>> hidden = Secrets(["Bearer abcdef123456"])
    >>> hidden.hide("Bearer token abcdef123456 refused")
    'Bearer token [hidden] refused'
    >>> hidden.hide("it ends with 3 4 5 6, in base64 it is YWJjZGVmMTIzNDU2")
    'it ends with 3 4 5 6, in base64 it is [hidden]'
    """

    def __init__(self, values: Iterable[str]) -> None:
        # Servers echo a token without the scheme before it, which is no secret.
        pieces = {piece for value in values for piece in (value, *value.split()[1:]) if len(piece) >= _SHORTEST}
        self._pieces = sorted(pieces, key=len, reverse=True)
        forms = {form for piece in self._pieces if len(piece) >= _LONG for form in _list_forms(piece)}
        self.forms: Final = sorted(forms, key=len, reverse=True)
        """The forms of the secrets in a flat text, longest first."""

    def holds(self, text: str) -> bool:
        """Tells whether a value is in the text, in any of its forms."""
        if any(piece in text for piece in self._pieces):
            return True
        flat = _flatten(text) if self.forms else ""
        return any(form in flat for form in self.forms)

    def hide(self, text: str) -> str:
        """The text with `[hidden]` in the place of each value."""
        if not self.holds(text):
            return text
        for piece in self._pieces:
            text = text.replace(piece, _HIDDEN)
        parts: list[str] = []
        at = 0
        for start, end in self.spans(text):
            parts += (text[at:start], _HIDDEN)
            at = end
        return "".join([*parts, text[at:]])

    def hide_in(self, value: Any, depth: int = 0) -> Any:
        """The same of every text in a value of JSON's types."""
        if not self._pieces:
            return value
        if isinstance(value, str):
            return self.hide(value)
        if depth > _MAX_DEPTH:
            return _HIDDEN if isinstance(value, dict | list) else value
        if isinstance(value, dict):
            entries = cast("dict[str, Any]", value)
            return {self.hide(key): self.hide_in(each, depth + 1) for key, each in entries.items()}
        if isinstance(value, list):
            return [self.hide_in(each, depth + 1) for each in cast("list[Any]", value)]
        return value

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Returns the positions of long values, in any encoding, in order and without overlaps."""
        letters = list(_split_letters(text))
        flat = "".join(each.letter for each in letters)
        spans = sorted(
            (letters[at].start, letters[at + len(form) - 1].end)
            for form in self.forms
            for at in _find_places(form, flat)
        )
        joined: list[tuple[int, int]] = []
        for start, end in spans:
            if joined and start < joined[-1][1]:
                joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
            else:
                joined.append((start, end))
        return joined


class HiddenStream:
    """Takes values out of a text that comes in pieces: what may be the beginning of one is held back.

    >>> stream = HiddenStream(Secrets(["abcdef123456"]))
    >>> [stream.feed(piece) for piece in ("It is abc", "def1234", "56, yes a")] + [stream.close()]
    ['It is ', '', '[hidden], yes ', 'a']
    """

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._buffer = ""

    def feed(self, piece: str) -> str:
        """Returns the text that is known to be clean so far."""
        if not self._secrets.forms:
            return piece
        self._buffer += piece
        at = self._find_clear_end()
        clear, self._buffer = self._buffer[:at], self._buffer[at:]
        return self._secrets.hide(clear)

    def close(self) -> str:
        """The rest."""
        rest, self._buffer = self._buffer, ""
        return self._secrets.hide(rest)

    def _find_clear_end(self) -> int:
        """Up to where no value can begin any more that is not whole."""
        text = self._buffer
        escape = UNFINISHED_ESCAPE.search(text)
        at = len(text) if escape is None else escape.start()
        flat = _flatten(text[:at])
        begun_letters = max((_count_begun(form, flat) for form in self._secrets.forms), default=0)
        if begun_letters:
            at = _find_last_letters(text[:at], begun_letters)
        if not self._secrets.holds(text):
            return at
        return next((start for start, end in self._secrets.spans(text) if start < at < end), at)


# --- Texts and values without their disguises


class _Letter(NamedTuple):
    """A letter of a flat text, and where it stands in the text."""

    letter: str
    start: int
    end: int


_BLANKS: Final = (
    *(*range(0x21), 0x7F, 0xA0, 0xAD, *range(0x2000, 0x2010), *range(0x2028, 0x2030), 0x2060, 0x3000, 0xFEFF),
)
_FLAT: Final = {**dict.fromkeys(_BLANKS), **str.maketrans(f"+/{ascii_uppercase}", f"-_{ascii_lowercase}")}
"""Blanks and what is not seen are left out; base64 has two alphabets; letters are small."""


def _flatten(text: str) -> str:
    """The text as values are looked for in it."""
    if "%" in text or "\\" in text or "&" in text:
        text = ESCAPE.sub(replace_escape, text)
    return text.translate(_FLAT)


def _split_letters(text: str) -> Iterator[_Letter]:
    """The letters of the flat text, with their places."""
    at = 0
    for match in ESCAPE.finditer(text):
        yield from _plain_letters(text, at, match.start())
        for letter in replace_escape(match).translate(_FLAT):
            yield _Letter(letter, *match.span())
        at = match.end()
    yield from _plain_letters(text, at, len(text))


def _plain_letters(text: str, start: int, end: int) -> Iterator[_Letter]:
    for at in range(start, end):
        for letter in text[at].translate(_FLAT):
            yield _Letter(letter, at, at + 1)


def _find_last_letters(text: str, count: int) -> int:
    """Returns where the last so many letters of the flat text begin. Letters with their places cost a thousand times
    what the flat text does, and a server may send half a million at once: only these are looked at.

    >>> _find_last_letters("abc d %41e", 3)
    4
    """
    at = len(text)
    for match in (*reversed([*ESCAPE.finditer(text)]), None):
        before = 0 if match is None else match.end()
        while at > before:
            at -= 1
            count -= len(text[at].translate(_FLAT))
            if not count:
                return at
        if match is not None:
            at = match.start()
            count -= len(replace_escape(match).translate(_FLAT))
            if not count:
                return at
    return 0


def _find_places(form: str, flat: str) -> Iterator[int]:
    at = flat.find(form)
    while at >= 0:
        yield at
        at = flat.find(form, at + 1)


def _count_begun(form: str, flat: str) -> int:
    """Returns how many letters at the end of a flat text may be the beginning of a form."""
    end = flat[1 - len(form) :]
    return next((len(end) - at for at in _find_places(form[0], end) if form.startswith(end[at:])), 0)


def _list_forms(value: str) -> Iterator[str]:
    """All that a value may look like in a flat text."""
    plain = _flatten(value)
    data = value.encode("utf-8", "replace")
    yield from (plain, plain[::-1], data.hex())
    for offset, shared in enumerate((0, 2, 3)):  # Letters that also say something of what stands before.
        whole = (offset + len(data)) * 8 // 6
        yield _flatten(b64encode(bytes(offset) + data).decode()[shared:whole])
