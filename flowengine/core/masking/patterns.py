"""Defines the built-in patterns: what mail addresses, numbers, IP addresses, keys and tokens look like.

They read folded text (`folded_text`), so each is written once. Their borders name the ASCII letters and digits that may
not touch a value; all other letters may.

Sources of the forms: RFC 5322 (addresses, the part of it that is in use), E.164 and the numbering plans of Japan,
China and North America, ISO/IEC 7812 (card numbers and their check digit), ISO 13616-1 (bank accounts), RFC 4291,
RFC 7468, RFC 7519, and the documented prefixes of vendors' keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv6Address
from typing import Final, NamedTuple, Protocol

# --- Spans and recognizers


class FoundSpan(NamedTuple):
    """One value's place in a text."""

    start: int
    end: int
    kind: str
    """The kind of value: upper-case ASCII letters, digits and `_`; it stands in the token."""


class Recognizer(Protocol):
    """Something that finds values. It is given a text of bounded length and may be slow."""

    def find(self, text: str) -> Iterator[FoundSpan]:
        """The values of a text, in any order; they may overlap."""
        ...


_LONGEST: Final = 1_100


@dataclass(frozen=True, slots=True)
class Pattern:
    r"""Values that a regular expression finds, and that stand up to a check.

    Where the expression has a group called `value`, that is the value; the rest is context. Do not use `\b` and `\w`:
    Japanese and Chinese letters count as letters to them, so a value that touches one would be missed.

    >>> employee = Pattern("EMPLOYEE", re.compile("E-[0-9]{5}"))
    >>> list(employee.find("社員E-00123です"))
    [FoundSpan(start=2, end=9, kind='EMPLOYEE')]
    """

    kind: str
    regex: re.Pattern[str]
    check: Callable[[re.Match[str]], bool] | None = None
    """Whether what was found is one: a checksum, a range, what stands before it."""
    mark: re.Pattern[str] | None = None
    """Found in each that stands up to the check. What is far from one is left out, and no match with one may have more
    than `_LONGEST` characters."""

    def find(self, text: str) -> Iterator[FoundSpan]:
        group: int | str = "value" if "value" in self.regex.groupindex else 0
        start = 0
        mark: re.Match[str] | None = None
        while match := self.regex.search(text, start):
            start = match.start() + 1  # One that stands up may begin inside what does not.
            if self.mark is not None and (mark is None or mark.start() < match.start()):
                mark = self.mark.search(text, match.start())
                if mark is None:
                    return
                if mark.end() > match.end():
                    start = max(start, mark.end() - _LONGEST)
            is_marked = mark is None or mark.end() <= match.end()
            if is_marked and match.end() > match.start() and (self.check is None or self.check(match)):
                yield FoundSpan(*match.span(group), self.kind)
                start = match.end()


# --- Mail addresses

_LETTERS: Final = "A-Za-z0-9À-ÖØ-öø-ɏͰ-ϿЀ-ӿԱ-ևא-תء-يऀ-ॿก-๎"
"""Letters of scripts that leave blanks between words: with others an address would take in the text before it."""
_LOCAL: Final = _LETTERS + "._%+'’-"
_DOMAIN: Final = (
    rf"(?:[{_LETTERS}](?:[{_LETTERS}-]{{0,62}}[{_LETTERS}])?\.){{1,8}}"
    r"(?:xn--[A-Za-z0-9-]{2,59}|[A-Za-z]{2,24}|[Ͱ-ϿЀ-ӿԱ-ևא-תء-يऀ-ॿก-๎]{2,24})(?![A-Za-z0-9])"
)


def _is_no_clone(match: re.Match[str]) -> bool:
    """None of the names under which servers give out code."""
    return not match[0].startswith(("git@", "hg@", "svn@"))


MAIL: Final = (
    Pattern("MAIL", re.compile(rf"(?<![{_LOCAL}])[{_LETTERS}_][{_LOCAL}]{{0,127}}@{_DOMAIN}"), _is_no_clone),
    Pattern("MAIL", re.compile(rf'"[^"@\n]{{1,64}}"@{_DOMAIN}')),
)

# --- Phone numbers


def _digits(match: re.Match[str]) -> str:
    return re.sub("[^0-9]", "", match[0])


def _is_japanese(match: re.Match[str]) -> bool:
    digits = _digits(match)
    return len(digits) == (11 if re.match("0[2-9]0|0800", digits) and not digits.startswith("0570") else 10)


def _is_international(match: re.Match[str]) -> bool:
    return 8 <= len(_digits(match)) <= 15


_BEFORE: Final = r"(?:(?<![0-9A-Za-z])|(?<=[Tt][Ee][Ll])|(?<=[Ff][Aa][Xx]))(?<![0-9][-./])"
_AFTER: Final = r"(?![0-9]|[-][0-9]|[A-Za-z])"

PHONE: Final = (
    Pattern(
        "PHONE",
        re.compile(r"(?<![0-9A-Za-z+])(?:\(?\+|00(?=86))[1-9][0-9]{0,2}\)?(?:[ -]?\(?[0-9]{1,12}+\)?){1,6}(?![0-9])"),
        _is_international,
    ),
    Pattern(  # Japan: 03-1234-5678, (03)1234-5678, 03(1234)5678, 0120-444-444, 09012345678
        "PHONE",
        re.compile(
            _BEFORE + r"(?:\(0[0-9]{1,4}\)[ ]?[0-9]{1,4}[- ]?[0-9]{3,4}|0[0-9]{1,4}\([0-9]{1,4}\)[0-9]{3,4}"
            r"|0[0-9]{1,4}(?P<s>[- .])[0-9]{1,4}(?P=s)[0-9]{3,4}|0[1-9][0-9]{8,9})" + _AFTER
        ),
        _is_japanese,
    ),
    Pattern(  # China: mobile numbers, 010-12345678, (021)55551234, 400-800-1234
        "PHONE",
        re.compile(
            _BEFORE + r"(?:(?:86[- ])?1[3-9][0-9](?:[0-9]{8}|(?P<s>[- ])[0-9]{4}(?P=s)[0-9]{4})"
            r"|(?:\(0[1-9][0-9]{1,2}\)[ ]?|0[1-9][0-9]{1,2}[- ])[1-9][0-9]{2,3}[- ]?[0-9]{4}"
            r"|[48]00-[0-9]{3}-[0-9]{4}|[48]00-[0-9]{4}-[0-9]{3})" + _AFTER
        ),
    ),
    Pattern(  # North America: (415) 555-0132, 1-800-555-0199, 415.555.0143
        "PHONE",
        re.compile(
            _BEFORE + r"(?:1[-. ])?(?:\([2-9][0-9]{2}\)[ ]?|[2-9][0-9]{2}[-. ])[2-9][0-9]{2}[-. ][0-9]{4}" + _AFTER
        ),
    ),
    Pattern(  # Bare, after a word that says what it is.
        "PHONE",
        re.compile(
            r"(?:[Pp]hone|PHONE|[Mm]obile|[Cc]ell|[Tt]el|TEL|[Ff]ax|FAX|[Ww]hats[Aa]pp|電話|電话|电话|手机|携帯|座机)"
            r"(?:番号|号码| number| no\.?)?[\"']?(?:は|是|:| is)?[ ]{0,2}[\"']?(?P<value>[0-9]{7,15})(?![0-9.])"
        ),
    ),
)

# --- Card numbers

_BRANDS: Final = re.compile(
    "4(?:[0-9]{12}|[0-9]{15}|[0-9]{18})|5[1-5][0-9]{14}|2(?:22[1-9]|2[3-9][0-9]|[3-6][0-9]{2}|7[01][0-9]|720)[0-9]{12}"
    "|3[47][0-9]{13}|3(?:0[0-5]|[689][0-9])[0-9]{11}|3(?:52[89]|5[3-8][0-9])[0-9]{12,15}"
    "|(?:6011|64[4-9][0-9]|65[0-9]{2}|62[0-9]{2}|220[0-4])[0-9]{12,15}"
)


def _is_card(match: re.Match[str]) -> bool:
    digits = _digits(match)
    return _BRANDS.fullmatch(digits) is not None and passes_luhn(digits)


def passes_luhn(digits: str) -> bool:
    """Tells whether the last digit is the check digit of the others (ISO/IEC 7812-1, annex B).

    >>> passes_luhn("4111111111111111"), passes_luhn("4111111111111112")
    (True, False)
    """
    doubled = [2 * int(each) for each in digits[-2::-2]]
    return (sum(int(each) for each in digits[::-2]) + sum(each - 9 * (each > 9) for each in doubled)) % 10 == 0


_APART: Final = "(?P<s>[ -]|[.]|, ?)"
_ALONE: Final = r"(?<![0-9])(?<![0-9][-.])"
_GROUPS: Final = rf"{_ALONE}[0-9]{{4}}{_APART}[0-9]{{4}}(?P=s)[0-9]{{4}}(?P=s)[0-9]{{4}}"
_NO_MORE: Final = "(?![0-9A-Za-z]|-[0-9])"
_CUT: Final = r"(?:[ -]|[ -]?\r?\n[ \t]{0,8})"


def _is_cut_card(match: re.Match[str]) -> bool:
    return match[0].count("\n") == 1 and _is_card(match)


CARD: Final = (
    Pattern("CARD", re.compile(rf"(?<![0-9A-Za-z])(?<![0-9][-.])[0-9]{{13,19}}{_NO_MORE}"), _is_card),
    Pattern("CARD", re.compile(rf"{_GROUPS}(?P=s)[0-9]{{1,3}}{_NO_MORE}"), _is_card),
    Pattern("CARD", re.compile(f"{_GROUPS}{_NO_MORE}"), _is_card),
    Pattern("CARD", re.compile(rf"{_ALONE}[0-9]{{4}}{_APART}[0-9]{{6}}(?P=s)[0-9]{{4,5}}{_NO_MORE}"), _is_card),
    Pattern(  # A list of digits, and no part of a longer one.
        "CARD",
        re.compile(
            rf"{_ALONE}(?<![0-9][ ,])(?<![0-9], )[0-9]{_APART}(?:[0-9](?P=s)){{11,17}}[0-9]{_NO_MORE}(?!(?P=s)[0-9])"
        ),
        _is_card,
    ),
    Pattern(  # Groups of four, of which one stands on the next line.
        "CARD", re.compile(rf"{_ALONE}[0-9]{{4}}(?:{_CUT}[0-9]{{4}}){{3}}{_NO_MORE}"), _is_cut_card
    ),
)

# --- Bank accounts


def _is_iban(match: re.Match[str]) -> bool:
    """By its check digits (ISO 13616-1, ISO/IEC 7064 MOD 97-10)."""
    text = re.sub("[ -]", "", match[0])
    return 15 <= len(text) <= 34 and int("".join(str(int(each, 36)) for each in f"{text[4:]}{text[:4]}")) % 97 == 1


IBAN: Final = (
    Pattern(
        "IBAN",
        re.compile(
            r"(?<![0-9A-Za-z])[A-Z]{2}[0-9]{2}(?P<s>[ -]?)[0-9A-Z]{4}(?:(?P=s)[0-9A-Z]{4}){1,6}(?:(?P=s)[0-9A-Z]{1,3})?"
            "(?![0-9A-Za-z])"
        ),
        _is_iban,
    ),
)

# --- IP addresses

_OCTET: Final = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_VERSION: Final = re.compile(
    r"(?:(?:[Vv]ersion|[Vv]er\.?|[Vv]\.|[Bb]uild|[Rr]elease|[Rr]ev(?:ision)?|[Ff]irmware|[Tt]ag|バージョン|版本号?|版)"
    r"(?:は|是)?[:=]?[ ]?|[=<>~!]=[ ]?|[A-Z][A-Za-z]{1,9}/|[a-z]-)\Z"
)
_NOWHERE: Final = re.compile(r"127\.|0\.0\.0\.0")
"""This machine, whichever it is."""


def _is_address(match: re.Match[str]) -> bool:
    """None that every machine has, and no version."""
    before = match.start()
    return not (_NOWHERE.match(match[0]) or _VERSION.search(match.string, max(0, before - 12), before))


def _is_ipv6(match: re.Match[str]) -> bool:
    """A real one, and none that a slice (`[1::2]`) or a name (`a::b`) could be."""
    text = match[0]
    try:
        IPv6Address(text)
    except AddressValueError:
        return False
    return any(len(group) > 2 for group in text.split(":"))


IP: Final = (
    Pattern(
        "IP",
        re.compile(rf"(?<![0-9A-Za-z])(?<![0-9]\.)(?:{_OCTET}\.){{3}}{_OCTET}(?![0-9A-Za-z]|\.[0-9]|-[A-Za-z])"),
        _is_address,
    ),
    Pattern("IP", re.compile(r"(?<![0-9A-Za-z:.])[0-9A-Fa-f:]{2,39}(?![0-9A-Za-z]|:[0-9A-Fa-f:])"), _is_ipv6),
)

# --- Keys and tokens

_PREFIXED: Final = (
    r"(?:sk|gsk|xai|rk|pk)-[A-Za-z0-9_-]{20,512}",
    r"(?:sk|pk|rk)_(?:live|test)_[A-Za-z0-9]{10,512}",
    r"whsec_[A-Za-z0-9+/=]{16,512}",
    r"fe_[A-Za-z0-9_-]{20,512}",
    r"(?:gsk|hf|npm|r8)_[A-Za-z0-9]{30,512}",
    r"(?:AKIA|ASIA)[0-9A-Z]{16}",
    r"LTAI[A-Za-z0-9]{12,30}",
    r"gh[opusr]_[A-Za-z0-9]{30,512}",
    r"github_pat_[A-Za-z0-9_]{40,512}",
    r"glpat-[A-Za-z0-9_-]{20,512}",
    r"xox[abeoprs]-[A-Za-z0-9-]{10,512}",
    r"xapp-[A-Za-z0-9-]{20,512}",
    r"AIza[A-Za-z0-9_-]{35}",
    r"ya29\.[A-Za-z0-9_-]{20,512}",
    r"SG\.[A-Za-z0-9_-]{16,512}\.[A-Za-z0-9_-]{16,512}",
    r"pypi-[A-Za-z0-9_-]{50,512}",
    r"dop_v1_[0-9a-f]{64}",
    r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}",
    r"[0-9]{8,10}:AA[A-Za-z0-9_-]{33}",
)


def _looks_random(match: re.Match[str]) -> bool:
    """Words with hyphens have no digits and no capitals inside."""
    return _is_mixed(match[0].partition("-")[2] or match[0])


_MIXED: Final = re.compile("[0-9]|[a-z][A-Z]")


def _is_mixed(text: str) -> bool:
    return _MIXED.search(text) is not None


_NAMED: Final = re.compile(
    r"(?i:(?P<word>pass(?:word|wd|phrase)?|pwd|パスワード|暗証番号|密码|密碼|口令)"
    r"|api[_ -]?keys?|secret(?:[_ -]?access)?(?:[_ -]?key)?|access[_ -]?key|account[_ -]?key|client[_ -]?secret"
    r"|(?:auth|access|refresh|bearer)?[_ -]?token|密钥|秘钥|令牌|トークン)"
    r"[\"']?[ ]{0,3}(?:[:=]|は|是|为|為|(?<= )is )[ ]{0,3}[\"'“‘「『]?(?P<value>[A-Za-z0-9!#$%&*+./@^_~=-]{6,512})"
)


def _is_mixed_value(match: re.Match[str]) -> bool:
    return _is_mixed(match["value"])


def _is_of_aws(match: re.Match[str]) -> bool:
    """Forty letters at random: no digest, no path, no words that are written together."""
    counts = [len(re.findall(kind, match[0])) for kind in ("[A-Z]", "[a-z]", "[0-9]", "/")]
    return min(counts[:2]) >= 5 and counts[2] >= 2 and counts[3] <= 4


def _is_named_secret(match: re.Match[str]) -> bool:
    value = match["value"]
    if match["word"]:
        return _is_mixed(value)
    return _is_mixed(value) and re.search("[A-Za-z]", value) is not None and len(value) >= 12


KEY: Final = (
    Pattern("KEY", re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(_PREFIXED)})"), _looks_random, _MIXED),
    Pattern("KEY", re.compile(r"(?i:bearer|basic)[ ]{1,3}(?P<value>[A-Za-z0-9._~+/-]{16,}=*)"), _looks_random),
    Pattern("KEY", _NAMED, _is_named_secret, _MIXED),
    Pattern("KEY", re.compile(r"(?<![A-Za-z0-9+/=_.-])[A-Za-z0-9+/]{40}(?![A-Za-z0-9+/=_-])"), _is_of_aws),
    Pattern(
        "KEY",
        re.compile(
            r"(?:hooks\.slack\.com/(?:services|workflows|triggers)|discord(?:app)?\.com/api/webhooks)/"
            r"(?P<value>[A-Za-z0-9/_-]{20,512})"
        ),
    ),
    Pattern("KEY", re.compile(r"/answer/(?P<value>[A-Za-z0-9._~-]{20,1000})"), _is_mixed_value),  # Answers by itself.
    Pattern("KEY", re.compile(r"(?i:cookie)[\"']?: ?[\"']?(?P<value>[!-:<-~]{1,64}=[!-:<-~]{6,512})"), _is_mixed_value),
    Pattern("KEY", re.compile(r"://[^\s/:@<]{0,64}:(?P<value>[^\s/@<][^\s/@]{2,255})@")),
)

JWT: Final = Pattern("JWT", re.compile(r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"))

MAX_PRIVATE_KEY: Final = 20_000
"""Characters between the two lines that mark a private key."""

_LABEL: Final = "(?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----"

PRIVATE_KEY_BEGINS: Final = re.compile(f"-----BEGIN {_LABEL}")

PRIVATE_KEY: Final = Pattern(  # Where its end is missing, as far as its lines go.
    "PRIVATE_KEY",
    re.compile(
        PRIVATE_KEY_BEGINS.pattern + rf"(?:(?:(?!-----)[\s\S]){{0,{MAX_PRIVATE_KEY}}}-----END {_LABEL}"
        rf"|(?:(?!-----)[A-Za-z0-9+/=\s\\:,.-]){{0,{MAX_PRIVATE_KEY}}})"
    ),
)

MAY_HOLD: Final = re.compile("[0-9@:]|[a-z][A-Z]|-----|hooks")
"""Stands in each text in which one of these patterns finds something; most of what is said has nothing of it."""
