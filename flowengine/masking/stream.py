"""Masks a text that comes in pieces, as if it came whole: a value may be split over any number of them.

What may still become part of a value is held back until that is clear. It knows where a text can be cut so that
no built-in pattern would have looked across the cut, and nothing of what is found on either side:

1. after the end of a line;
2. after a Japanese, Chinese or Korean letter or mark that is part of no word which names what follows (電話, 密码);
3. after a space behind `,`, `;`, `!`, `?` or a small letter, unless the word there names what follows (`token`);
4. never inside a private key, which runs over lines, or inside quotes that may be those of an address.

With other recognizers than the built-in ones only the first holds, so their values must not run over lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from flowengine.masking.folding import folded
from flowengine.masking.masker import Masker
from flowengine.masking.patterns import MAX_PRIVATE_KEY, PRIVATE_KEY, PRIVATE_KEY_BEGINS
from flowengine.masking.registry import DEFAULT

__all__ = ["HELD", "MaskedStream"]

HELD: Final = 50_000
"""Characters that are held back at most: a line without a place to cut that is longer is cut anywhere."""

_NAMING: Final = (
    *("phone", "mobile", "cell", "tel", "fax", "whatsapp", "number", "no", "is"),
    *("pass", "password", "passwd", "passphrase", "pwd", "api", "key", "keys", "secret", "access", "token"),
    *("auth", "refresh", "client", "account", "bearer", "basic", "version", "ver", "v.", "build", "release"),
    *("revision", "rev", "firmware", "tag"),
)
_NAMING_LETTERS: Final = "電話电话手机携帯座番号码は是为為「『パスワード暗証密碼口令钥秘牌トークンバジョ版本ー"
"""Of every word in the patterns that names what follows, and the mark that may stand for a dash."""

_AFTER_SPACE: Final = "(?:(?<=[a-z;!?])|(?<=[^0-9],))" + "".join(f"(?<!(?i:{word}))" for word in _NAMING) + "[ ]"
_AFTER_LETTER: Final = f"(?![{_NAMING_LETTERS}])[\u3001-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]"
_CUT: Final = re.compile(f"\n|{_AFTER_LETTER}|{_AFTER_SPACE}")
_QUOTED: Final = re.compile(r'"[^"@\n]{0,64}(?:"(?:@|\Z)|\Z)')
_CUT_LINES: Final = re.compile("\n")


class MaskedStream:
    """Masks one text, piece by piece.

    >>> stream = MaskedStream(Masker(key=b"of this run"))
    >>> [stream.feed(piece) for piece in ("Write to a", "da@exam", "ple.jp, pl", "ease")] + [stream.close()]
    ['Write to ', '', '<MAIL:mpjhklbn>, ', '', 'please']
    """

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._cuts = _CUT if all(each in DEFAULT for each in masker.recognizers) else _CUT_LINES
        self._held = ""
        self._looked = 0
        """Up to here there is no place to cut."""

    def feed(self, piece: str) -> str:
        """What is clear by now, masked; often nothing."""
        self._held += piece
        at = self._place()
        clear, self._held = self._held[:at], self._held[at:]
        self._looked = len(self._held)
        return self._masker.mask(clear)

    def close(self) -> str:
        """The rest, masked. What is fed from now on is another text."""
        rest, self._held, self._looked = self._held, "", 0
        return self._masker.mask(rest)

    def _place(self) -> int:
        """The last place to cut, 0 where there is none."""
        read = folded(self._held)
        whole = [*_keys(read.text), *_quoted(read.text)]
        places = [found.end() for found in self._cuts.finditer(read.text) if read.end(found.end()) > self._looked]
        for place in reversed(places):
            if all(place <= start or end <= place for start, end in whole):
                return read.end(place)
        return len(self._held) if len(self._held) > HELD else 0


def _quoted(text: str) -> Iterator[tuple[int, int]]:
    """Where the quoted part of an address stands, which holds blanks, or may still come."""
    for found in _QUOTED.finditer(text):
        yield found.start(), found.end() + (found.end() == len(text))


def _keys(text: str) -> Iterator[tuple[int, int]]:
    """Where private keys stand; one whose end may still come has no end yet."""
    start = 0
    while begun := PRIVATE_KEY_BEGINS.search(text, start):
        found = PRIVATE_KEY.regex.match(text, begun.start())
        assert found is not None  # It begins as that pattern does.
        is_open = "-----END" not in found[0] and len(text) - begun.start() <= 2 * MAX_PRIVATE_KEY
        yield begun.start(), len(text) + 1 if is_open else found.end()
        start = found.end()
