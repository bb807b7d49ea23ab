"""Puts a token in the place of each value that a recognizer finds.

The same value has the same token for as long as the masker lives, so a reader of the masked text can still see that two
places speak of one address. A token is a keyed hash: without the key the value cannot be found by trying all phone
numbers. The masker keeps no value.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, cast

from flowengine.core.masking import MORE_RECOGNIZERS, patterns
from flowengine.core.masking.folded_text import fold_text
from flowengine.core.masking.patterns import (
    MAX_PRIVATE_KEY,
    MAY_HOLD,
    PRIVATE_KEY,
    PRIVATE_KEY_BEGINS,
    FoundSpan,
    Recognizer,
)
from flowengine.core.user_code import find_entry_points, load_entry_point
from flowengine.errors import DefinitionError, did_you_mean

__all__ = ["DEFAULT", "HELD", "MaskedStream", "Masker", "PresidioRecognizer"]

# --- Microsoft Presidio as a recognizer


class PresidioRecognizer:
    """Finds personal data in texts of one language with Presidio, from a minimum score."""

    def __init__(
        self,
        language: str = "en",
        entities: Sequence[str] | None = None,
        threshold: float = 0.5,
        analyzer: Any = None,
    ) -> None:
        """`entities`: Presidio's names, None for all. `analyzer`: an `AnalyzerEngine` that is set up already."""
        if not 0.0 <= threshold <= 1.0:
            raise DefinitionError(f"threshold must be between 0.0 and 1.0, not {threshold!r}")
        self._language = language
        self._entities = None if entities is None else list(entities)
        self._threshold = threshold
        self._analyzer = analyzer
        self._lock = threading.Lock()

    def find(self, text: str) -> Iterator[FoundSpan]:
        with self._lock:
            if self._analyzer is None:
                self._analyzer = _engine()
        results = self._analyzer.analyze(
            text=text, language=self._language, entities=self._entities, score_threshold=self._threshold
        )
        for each in results:
            yield FoundSpan(each.start, each.end, re.sub("[^A-Z0-9_]", "_", str(each.entity_type).upper()))


def _engine() -> Any:
    try:
        return import_module("presidio_analyzer").AnalyzerEngine()
    except ImportError as error:
        raise DefinitionError(
            "masking with 'presidio' needs the package presidio-analyzer and a spaCy model: "
            "pip install presidio-analyzer && python -m spacy download en_core_web_lg"
        ) from error


# --- Recognizers by name

BUILT_IN: Final[dict[str, tuple[Recognizer, ...]]] = {
    "private_key": (patterns.PRIVATE_KEY,),
    "jwt": (patterns.JWT,),
    "key": patterns.KEY,
    "mail": patterns.MAIL,
    "ip": patterns.IP,
    "card": patterns.CARD,
    "iban": patterns.IBAN,
    "phone": patterns.PHONE,
}
"""The built-in recognizers by name; where two find the same text, the earlier one names it."""

DEFAULT: Final[tuple[Recognizer, ...]] = tuple(each for recognizers in BUILT_IN.values() for each in recognizers)

_GROUP: Final = "flowengine.masking"
_made: Final[dict[str, Callable[[], Recognizer]]] = {}


def register(name: str, make: Callable[[], Recognizer]) -> None:
    """Make a recognizer known by name, for this process: every masker that is made from then on has it.

    A name that is taken is a `DefinitionError`.
    """
    if name in BUILT_IN or name in _made:
        raise DefinitionError(f"there is a recognizer named '{name}' already")
    _made[name] = make


def recognizers(names: Sequence[str]) -> tuple[Recognizer, ...]:
    """The recognizers of these names, in this order; an unknown one is a `DefinitionError`.

    >>> len(recognizers(["jwt"]))
    1
    """
    return tuple(each for name in names for each in _recognizers_of(name))


def list_recognizers() -> list[str]:
    """All names that `recognizers` takes."""
    return [*BUILT_IN, "presidio", *_made, *find_entry_points(_GROUP)]


def _recognizers_of(name: str) -> tuple[Recognizer, ...]:
    if name in BUILT_IN:
        return BUILT_IN[name]
    if name == "presidio":
        return (PresidioRecognizer(),)
    if name in _made:
        return (_made[name](),)
    point = find_entry_points(_GROUP).get(name)
    if point is None:
        raise DefinitionError(f"there is no recognizer '{name}'{did_you_mean(name, list_recognizers())}")
    return (load_entry_point(point, f"the recognizer '{name}'")(),)


def usual_recognizers() -> tuple[Recognizer, ...]:
    """Returns the recognizers of a masker that is given none."""
    if not _made and not MORE_RECOGNIZERS:
        return DEFAULT
    more = (each for source in MORE_RECOGNIZERS for each in source())
    return (*DEFAULT, *(make() for make in _made.values()), *more)


_MAX_DEPTH: Final = 100
_LETTERS: Final = str.maketrans("0123456789abcdef", "abcdefghijklmnop")
"""A token has no digits, so that none is taken for a number when a text is masked again."""


class Masker:
    """Masks texts; made once a run.

    >>> masker = Masker(key=b"of this run")
    >>> masker.mask("連絡先はada@example.jpです。")
    '連絡先は<MAIL:mpjhklbn>です。'
    >>> masker.mask("Write to ada@example.jp!")
    'Write to <MAIL:mpjhklbn>!'
    """

    def __init__(self, recognizers: Sequence[Recognizer] | None = None, key: bytes | None = None) -> None:
        """`recognizers`: where two find the same text, the earlier one names it; None: those that are built in, those
        that this process has registered, and those of its project. `key`: a secret; processes that share it give the
        same tokens. None: a new one."""
        self.recognizers = usual_recognizers() if recognizers is None else tuple(recognizers)
        self.is_built_in = all(each in DEFAULT for each in self.recognizers)
        self._key = hashlib.sha256(secrets.token_bytes(16) if key is None else key).digest()

    def mask(self, text: str) -> str:
        """The text with a token in the place of each value. A masked text stays as it is."""
        parts: list[str] = []
        at = 0
        for span in self.spans(text):
            parts += (text[at : span.start], self._token(span.kind, text[span.start : span.end]))
            at = span.end
        return "".join([*parts, text[at:]]) if parts else text

    def spans(self, text: str) -> list[FoundSpan]:
        """Returns the positions of values, in order and without overlaps."""
        read = fold_text(text)
        if not read.text or (self.is_built_in and not MAY_HOLD.search(read.text)):
            return []
        spans = _drop_overlaps(span for each in self.recognizers for span in each.find(read.text))
        return [FoundSpan(read.start(each.start), read.end(each.end), each.kind) for each in spans]

    def value(self, value: Any) -> Any:
        """A JSON value with all its texts masked, keys included; what is none passes as it is.

        Keys that become the same are numbered, so that no entry is lost.
        """
        return self._value(value, 0)

    def _value(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self.mask(value)
        if depth >= _MAX_DEPTH:
            return "<nested too deeply>" if isinstance(value, Mapping | list | tuple) else value
        if isinstance(value, Mapping):
            entries = cast("Mapping[Any, Any]", value)
            return {
                name: self._value(each, depth + 1)
                for name, each in zip(self._name_keys(entries, depth + 1), entries.values(), strict=True)
            }
        if isinstance(value, list | tuple):
            return [self._value(each, depth + 1) for each in cast("Iterable[Any]", value)]
        return value

    def _name_keys(self, entries: Mapping[Any, Any], depth: int) -> Iterator[Any]:
        """The masked keys, each of them once."""
        used = Counter[Any]()
        for key in entries:
            name = masked = self._value(key, depth)
            while name != key and (used[name] or name in entries):
                used[masked] += 1
                name = f"{masked} ({used[masked] + 1})"
            used[name] += 1
            yield name

    def _token(self, kind: str, value: str) -> str:
        """Returns the token of the folded value: an address in full-width letters is the same address."""
        message = f"{kind}\0{fold_text(value).text}".encode("utf-8", "replace")
        digest = hashlib.blake2s(message, key=self._key, digest_size=4).hexdigest()
        return f"<{kind}:{digest.translate(_LETTERS)}>"


def _drop_overlaps(spans: Iterable[FoundSpan]) -> list[FoundSpan]:
    """The spans that no earlier found one overlaps, in the text's order."""
    free_spans: list[FoundSpan] = []
    for span in spans:
        place = bisect(free_spans, span)
        before, after = free_spans[max(place - 1, 0) : place], free_spans[place : place + 1]
        if all(each.end <= span.start for each in before) and all(span.end <= each.start for each in after):
            free_spans.insert(place, span)
    return free_spans


# --- Texts that come in pieces

HELD: Final = 50_000
"""Characters that are held back at most: a line without a place to cut that is longer is cut anywhere."""

_NAMING: Final = (
    *("phone", "mobile", "cell", "tel", "fax", "whatsapp", "number", "no", "is"),
    *("pass", "password", "passwd", "passphrase", "pwd", "api", "key", "keys", "secret", "access", "token"),
    *("auth", "refresh", "client", "account", "bearer", "basic", "version", "ver", "v.", "build", "release"),
    *("revision", "rev", "firmware", "tag"),
)
_NAMING_LETTERS: Final = "電話电话手机携帯座番号码は是为為「『パスワード暗証密碼口令钥秘牌トークンバジョ版本ー"
"""Letters of every word in the patterns that names what follows, and the mark that may stand for a dash."""

_AFTER_SPACE: Final = "(?:(?<=[a-z;!?])|(?<=[^0-9],))" + "".join(f"(?<!(?i:{word}))" for word in _NAMING) + "[ ]"
_AFTER_LETTER: Final = f"(?![{_NAMING_LETTERS}])[\u3001-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]"
_LINE_END: Final = "(?<![0-9]{4})(?<![0-9]{4}[ -])(?<![0-9]{4}\r)(?<![0-9]{4}[ -]\r)\n"
"""The line ends behind which no card number may go on."""
_CUT: Final = re.compile(f"{_LINE_END}|{_AFTER_LETTER}|{_AFTER_SPACE}")
_QUOTED: Final = re.compile(r'"[^"@\n]{0,64}(?:"(?:@|\Z)|\Z)')
_CUT_LINES: Final = re.compile("\n")
_UNCUT: Final = re.compile("[!-~]*")
"""Without any place to cut, unless an escape stands for one, which begins with one of the following."""
_ESCAPING: Final = ("%", "\\", "&#")


class MaskedStream:
    """Masks one text, piece by piece.

    >>> stream = MaskedStream(Masker(key=b"of this run"))
    >>> [stream.feed(piece) for piece in ("Write to a", "da@exam", "ple.jp, pl", "ease")] + [stream.close()]
    ['Write to ', '', '<MAIL:mpjhklbn>, ', '', 'please']
    """

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._cuts = _CUT if masker.is_built_in else _CUT_LINES
        self._buffer = ""
        self._looked = 0
        """Up to here there is no place to cut."""

    def feed(self, piece: str) -> str:
        """Returns the masked text that is complete so far; often empty."""
        self._buffer += piece
        at = self._place(piece)
        clear = self._buffer[:at]
        if at:
            self._buffer = self._buffer[at:]
        self._looked = len(self._buffer)
        return self._masker.mask(clear)

    def close(self) -> str:
        """The rest, masked. What is fed from now on is another text."""
        rest, self._buffer, self._looked = self._buffer, "", 0
        return self._masker.mask(rest)

    def _place(self, piece: str) -> int:
        """The last place to cut, 0 where there is none. It can only be in the piece that came last."""
        if _UNCUT.fullmatch(piece) and len(self._buffer) <= HELD and not any(map(self._buffer.__contains__, _ESCAPING)):
            return 0
        read = fold_text(self._buffer)
        whole = [*_find_keys(read.text), *_find_quoted(read.text)]
        places = [match.end() for match in self._cuts.finditer(read.text) if read.end(match.end()) > self._looked]
        for place in reversed(places):
            if all(place <= start or end <= place for start, end in whole):
                return read.end(place)
        return len(self._buffer) if len(self._buffer) > HELD else 0


def _find_quoted(text: str) -> Iterator[tuple[int, int]]:
    """Finds the quoted part of an address, which may contain spaces or be incomplete."""
    for match in _QUOTED.finditer(text):
        yield match.start(), match.end() + (match.end() == len(text))


def _find_keys(text: str) -> Iterator[tuple[int, int]]:
    """Finds private keys; an incomplete one has no end yet."""
    start = 0
    while beginning := PRIVATE_KEY_BEGINS.search(text, start):
        match = PRIVATE_KEY.regex.match(text, beginning.start())
        assert match is not None  # It begins as that pattern does.
        is_open = "-----END" not in match[0] and len(text) - beginning.start() <= 2 * MAX_PRIVATE_KEY
        yield beginning.start(), len(text) + 1 if is_open else match.end()
        start = match.end()
