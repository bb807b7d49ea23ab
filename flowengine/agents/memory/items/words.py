"""Makes the words by which a memory is found, of what is remembered and of what is asked. Pure functions.

The terms are those of every retrieval here (`flowengine.agents.retrieval.terms`). Memories are short and asked for in
other words than they were told in, so words are coarser: one of Latin script counts by its beginning (`allergy`,
`allergic`), a Chinese character also by itself (住む, 住んで), and a pair of characters only where both are of one
script, since others straddle two words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from flowengine.agents.retrieval import asked_terms, stem
from flowengine.agents.retrieval import terms as retrieval_terms
from flowengine.agents.retrieval.terms import terms

# --- Times that a question names


class Period(NamedTuple):
    """A stretch of time from `begin` on, up to and without `end`."""

    begin: datetime
    end: datetime


class Timed(NamedTuple):
    """A question, read for the time that it names."""

    period: Period | None
    rest: str
    """The text beside the time."""
    phrase: str = ""
    """How it names the time."""


def find_time(question: str, now: datetime) -> Timed:
    """The first time that a question names; days are those of the zone of `now`.

    >>> from datetime import UTC
    >>> found = find_time("Where did Mika live in March 2024?", datetime(2025, 7, 1, tzinfo=UTC))
    >>> found.period.begin.date().isoformat(), found.period.end.date().isoformat(), found.rest
    ('2024-03-01', '2024-04-01', 'Where did Mika live  ?')
    """
    for pattern, read in _FORMS:
        for match in re.finditer(pattern, question):
            period = _find_existing(read, match, now)
            if period is not None:
                return Timed(period, f"{question[: match.start()]} {question[match.end() :]}", match[0])
    return Timed(None, question)


Read = Callable[[re.Match[str], datetime], Period]

_MONTHS: Final = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_MONTH: Final = "(?P<name>January|February|March|April|May|June|July|August|September|October|November|December)"


def _find_existing(read: Read, match: re.Match[str], now: datetime) -> Period | None:
    try:
        return read(match, now)
    except (ValueError, OverflowError):  # 31 February is no day, and year 0 no year.
        return None


def _absolute(match: re.Match[str], now: datetime) -> Period:
    """A day, a month or a year; where no year is named, the last one that is not ahead."""
    parts = match.groupdict()
    month = _MONTHS.index(parts["name"].lower()) + 1 if parts.get("name") else _number(parts.get("month"))
    day, year = _number(parts.get("day")), _number(parts.get("year"))
    begin = _midnight(now).replace(year=now.year if year is None else year, month=month or 1, day=day or 1)
    if year is None and begin > now:
        begin = begin.replace(year=now.year - 1)
    if day:
        return Period(begin, begin + timedelta(days=1))
    return Period(begin, _next_month(begin) if month else begin.replace(year=begin.year + 1))


def _number(text: str | None) -> int | None:
    return int(text) if text else None


def _next_month(begin: datetime) -> datetime:
    return begin.replace(year=begin.year + begin.month // 12, month=begin.month % 12 + 1)


def _day(back: int) -> Read:
    def read(match: re.Match[str], now: datetime) -> Period:
        begin = _midnight(now) - timedelta(days=back)
        return Period(begin, begin + timedelta(days=1))

    return read


def _week(back: int) -> Read:
    def read(match: re.Match[str], now: datetime) -> Period:
        begin = _midnight(now) - timedelta(days=now.weekday() + 7 * back)
        return Period(begin, begin + timedelta(days=7))

    return read


def _month(back: int) -> Read:
    def read(match: re.Match[str], now: datetime) -> Period:
        months = now.year * 12 + now.month - 1 - back
        begin = _midnight(now).replace(year=months // 12, month=months % 12 + 1, day=1)
        return Period(begin, _next_month(begin))

    return read


def _year(back: int) -> Read:
    def read(match: re.Match[str], now: datetime) -> Period:
        begin = _midnight(now).replace(year=now.year - back, month=1, day=1)
        return Period(begin, begin.replace(year=begin.year + 1))

    return read


def _midnight(now: datetime) -> datetime:
    return now.replace(hour=0, minute=0, second=0, microsecond=0)


_FORMS: Final = (
    (r"\b(?P<year>\d{4})[-/](?P<month>\d{1,2})[-/](?P<day>\d{1,2})\b", _absolute),
    (r"(?P<year>\d{4})\s*年\s*(?P<month>\d{1,2})\s*月\s*(?P<day>\d{1,2})\s*[日号]", _absolute),
    (r"(?P<year>\d{4})\s*年\s*(?P<month>\d{1,2})\s*月份?", _absolute),
    (r"(?P<year>\d{4})\s*年", _absolute),
    (r"(?<!\d)(?P<month>\d{1,2})\s*月\s*(?P<day>\d{1,2})\s*[日号]", _absolute),
    (r"(?<!\d)(?P<month>\d{1,2})\s*月(?!間)份?", _absolute),
    (rf"\b(?:on )?(?:the )?(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? {_MONTH}(?:,? (?P<year>\d{{4}}))?\b", _absolute),
    (rf"\b(?:on )?{_MONTH} (?P<day>\d{{1,2}})(?:st|nd|rd|th)?\b(?:,? (?P<year>\d{{4}}))?", _absolute),
    (rf"\b(?:in |of |since |during |from )?{_MONTH},? (?P<year>\d{{4}})\b", _absolute),
    # Alone a month needs its preposition: May and March are words as well.
    (rf"\b(?:in|of|since|during|from|last) {_MONTH}\b", _absolute),
    (r"\b(?:in|of|since|during|from) (?P<year>(?:19|20)\d{2})\b", _absolute),
    (r"(?i)\byesterday\b|昨日|昨天", _day(1)),
    (r"(?i)\btoday\b|今日|今天", _day(0)),
    (r"(?i)\blast week\b|先週|上周|上个?星期", _week(1)),
    (r"(?i)\bthis week\b|今週|这周|本周|这个?星期", _week(0)),
    (r"(?i)\blast month\b|先月|上个?月", _month(1)),
    (r"(?i)\bthis month\b|今月|这个?月|本月", _month(0)),
    (r"(?i)\blast year\b|去年|昨年", _year(1)),
    (r"(?i)\bthis year\b|今年", _year(0)),
)
"""Forms of naming a time; those that say more come first."""


VERSION: Final = 1000 * retrieval_terms.VERSION + 1
"""Raised when the words of any text change: an index that was made with other words is made anew."""

_HAN: Final = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
_HIRAGANA: Final = "\u3041-\u309f"
_KATAKANA: Final = "\u30a1-\u30ff"
_RUN: Final = re.compile(
    f"(?P<han>[{_HAN}]+)|(?P<hiragana>[{_HIRAGANA}]+)|(?P<katakana>[{_KATAKANA}]+)"
    f"|(?P<word>[^\\s{_HAN}{_HIRAGANA}{_KATAKANA}]+)"
)
_HAN_CHARACTER: Final = re.compile(f"[{_HAN}]")
_MIXED: Final = re.compile(f"[{_HAN}][^{_HAN}]|[{_HIRAGANA}][^{_HIRAGANA}]|[{_KATAKANA}][^{_KATAKANA}]")
"""A pair that straddles two scripts."""

_QUESTION: Final = re.compile(
    "什么时候|什么|哪里|哪儿|哪个|哪种|哪家|哪天|哪|怎么样?|多少|请?告诉我|请|谁|吗|呢|吧"
    "|何人|何|誰|どこ|どちら|どの|どれ|どんな|どうやって|どう|いつ|いくつ|いくら|だれ|なぜ|教えて|ください"
    "|でしょうか?|ですか|ますか|ましたか|ませんか|について|のこと"
)
"""The endings that make a question of a sentence in Chinese or Japanese, and are in no answer."""

_ADDRESS: Final = re.compile(f"(?<=[{_HAN}{_KATAKANA}])(?:さん|さま|くん|ちゃん)")
"""The titles that follow a name in Japanese; the forms that are written in Chinese characters end its run."""

_TITLES: Final = ("先生", "様", "氏", "君")


_EMPTY: Final = frozenset(
    "的了着过得地在是和跟与给对把被让从到向往为以于而且但或也都就才还又再很太更最不没有要会能可该应想用"
    "我你您他她它们这那个些上下里中时候事物時所様為方"
)
"""Characters that, standing alone, say nothing about a subject."""

_CHINESE_NAME: Final = re.compile(
    "[王李张刘陈杨赵吴徐孙朱胡郭罗郑梁邓冯彭肖袁潘蒋蔡魏吕沈姚卢崔谭汪廖贾邹秦邱尹薛黎].{1,2}"
    "|(?:欧阳|诸葛|司徒|慕容|上官|令狐).{1,2}"
)
"""By surnames that seldom begin another word."""


class WordPiece(NamedTuple):
    """A part of a question: a word, or a run of characters of one script."""

    words: tuple[str, ...]
    """The words under which items are found: one, or the pairs of a run."""
    characters: str = ""
    """The run of Chinese characters, where it may hold several words."""
    is_name: bool = False
    is_grammar: bool = False
    """A run of hiragana, which mostly is an ending or a particle."""


def words_of(text: str) -> frozenset[str]:
    """The words of something to remember.

    >>> sorted(words_of("Mika lives in Oslo")) == sorted(words_of("mika living in oslo"))
    True
    >>> sorted(words_of("緑茶を飲む"))
    ['緑', '緑茶', '茶', '飲']
    """
    return frozenset(word for term in terms(text) for word in _words(term))


def pieces_of(question: str) -> list[WordPiece]:
    """The parts of a question that say what it is about, in their order, each once.

    >>> [piece.words for piece in pieces_of("Which city does Mika live in?")]
    [('citi',), ('mika',), ('liv',)]
    >>> [(piece.words, piece.is_name) for piece in pieces_of("田中さんはどこに住んでいますか。")][:2]
    [(('田中',), True), (('住',), False)]
    """
    plain = unicodedata.normalize("NFKC", question)
    names = {match.start() for match in _ADDRESS.finditer(plain)}
    text = _ADDRESS.sub(_blank, _QUESTION.sub(_blank, plain))
    query_terms = frozenset(asked_terms(text))
    return list(dict.fromkeys(piece for run in _RUN.finditer(text) for piece in _pieces(run, names, query_terms)))


def is_chinese_name(pairs: tuple[str, ...]) -> bool:
    """Tells whether characters that stand together, given by their pairs, look like somebody's full name.

    >>> is_chinese_name(("陈静",)), is_chinese_name(("欧阳", "阳震", "震华")), is_chinese_name(("电话",))
    (True, True, False)
    """
    return _CHINESE_NAME.fullmatch(pairs[0] + "".join(pair[1:] for pair in pairs[1:])) is not None


@lru_cache(maxsize=65_536)
def _words(term: str) -> tuple[str, ...]:
    """The words under which a term is found: itself or its beginning, and its Chinese characters."""
    if len(term) == 1 or term.isascii():
        return (_beginning_of(stem(term)),)
    characters = _HAN_CHARACTER.findall(term)
    return tuple(characters) if _MIXED.fullmatch(term) else (term, *characters)


def is_empty(characters: str) -> bool:
    """Tells whether characters that stand alone say nothing about a subject: 的, 了, 事."""
    return characters in _EMPTY


def _blank(match: re.Match[str]) -> str:
    """Spaces, so that what is left stays where it was."""
    return " " * len(match[0])


def _pieces(run: re.Match[str], names: set[int], query_terms: frozenset[str]) -> Iterator[WordPiece]:
    text = run[0]
    if run.lastgroup == "word":
        yield from _of_words(text, query_terms, _is_capital_inside(run))
        return
    title = next((each for each in _TITLES if text.endswith(each) and len(text) > len(each)), "")
    text = text.removesuffix(title)
    is_name = bool(title) or run.end() in names
    pairs = tuple(dict.fromkeys(first + second for first, second in pairwise(text)))
    if run.lastgroup == "han":
        yield WordPiece(pairs or (text,), "" if is_name else text, is_name)
    elif pairs:
        yield WordPiece(pairs, is_name=is_name, is_grammar=run.lastgroup == "hiragana")


def _of_words(text: str, query_terms: frozenset[str], is_name: bool) -> Iterator[WordPiece]:
    """Words of other scripts; of those without spaces the pairs of a run belong together."""
    words = [
        word
        for word in map(stem, terms(text))
        if word in query_terms and not (len(word) == 1 and word.isalpha() and word.isascii())
    ]
    if text.isascii() or not all(len(word) == 2 for word in words):
        yield from (WordPiece((_beginning_of(word),), is_name=is_name) for word in words)
    elif words:
        yield WordPiece(tuple(dict.fromkeys(words)))


def _is_capital_inside(run: re.Match[str]) -> bool:
    """Tells whether it begins with a capital letter that no beginning of a sentence explains."""
    end = run.start()
    while end and run.string[end - 1].isspace():
        end -= 1
    return run[0].lstrip("\"'([").strip()[:1].isupper() and end > 0 and run.string[end - 1] not in ".!?:。！？"


def _beginning_of(term: str) -> str:
    if len(term) < 4 or not (term.isascii() and term.isalpha()):
        return term
    base = term.removesuffix("e")
    base = base[:-1] + "i" if base.endswith("y") else base
    return base[:6]
