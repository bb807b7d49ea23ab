"""Implements the filters that make text. Their meaning is Jinja's; a value that is no text is printed first."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, cast
from urllib.parse import quote, quote_plus

from flowengine.core.templating.access import each_of, kind_of, read_sequence
from flowengine.core.templating.arguments import check_integer, check_number, field_reader
from flowengine.core.templating.limits import MAX_TEXT, Meter
from flowengine.core.templating.text import to_json, to_text
from flowengine.errors import TemplateError

_MOST_CHARS: Final = 100
_WORD: Final = re.compile(r"\w+")
_TITLE: Final = re.compile(r"[^-\s({\[<]+")
_ESCAPES: Final = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("'", "&#39;"), ('"', "&#34;"))
_SPEC: Final = re.compile(r"%(?:(%)|([-+0 ]{0,3})(\d{0,3})(?:\.(\d{1,3}))?([sdf]))|%")


def _print_value(meter: Meter, value: Any) -> str:
    """The text that a filter works on, paid for."""
    text = to_text(meter, value)
    meter.text(len(text))
    return text


def string(meter: Meter, value: Any) -> str:
    return to_text(meter, value)


def upper(meter: Meter, value: Any) -> str:
    return _spend_on_text(meter, _print_value(meter, value).upper())


def lower(meter: Meter, value: Any) -> str:
    return _spend_on_text(meter, _print_value(meter, value).lower())


def capitalize(meter: Meter, value: Any) -> str:
    return _spend_on_text(meter, _print_value(meter, value).capitalize())


def title(meter: Meter, value: Any) -> str:
    """Every word with a capital first and small letters after it."""
    text = _print_value(meter, value)
    meter.spend(len(text) >> 2)
    return _spend_on_text(meter, _TITLE.sub(lambda word: word[0][:1].upper() + word[0][1:].lower(), text))


def _spend_on_text(meter: Meter, text: str) -> str:
    """Changing case makes some letters longer."""
    meter.text(len(text))
    return text


def trim(meter: Meter, value: Any, chars: Any = None) -> str:
    """Without white space, or without any of `chars`, at both ends."""
    text, unwanted = _print_value(meter, value), None if chars is None else to_text(meter, chars)
    if unwanted and len(unwanted) > _MOST_CHARS:
        raise TemplateError(f"trim takes at most {_MOST_CHARS} different characters")
    return text.strip(unwanted)


def replace(meter: Meter, value: Any, old: Any, new: Any, count: Any = None) -> str:
    text, old_text, new_text = _print_value(meter, value), to_text(meter, old), to_text(meter, new)
    times = text.count(old_text)
    if count is not None:
        times = min(times, check_integer(count, "count"))
    meter.text(len(text) + times * (len(new_text) - len(old_text)))
    return text.replace(old_text, new_text, times)


def join(meter: Meter, value: Any, d: Any = "", attribute: Any = None) -> str:
    """The items as text, with `d` between them."""
    separator = to_text(meter, d)
    parts: list[str] = []
    size = 0
    read = field_reader(attribute, optional=True)
    for each in each_of(meter, value):
        part = to_text(meter, read(meter, each))
        size += len(part) + (len(separator) if parts else 0)
        if size > MAX_TEXT:
            break
        parts.append(part)
    meter.text(size)
    return separator.join(parts)


def indent(meter: Meter, value: Any, width: Any = 4, first: Any = False, blank: Any = False) -> str:
    """Every line but the first moved right."""
    text = _print_value(meter, value)
    size = len(to_text(meter, width)) if isinstance(width, str) else check_integer(width, "width", 0, MAX_TEXT)
    lines = text.count("\n") + 1
    meter.spend(lines)
    meter.text(len(text) + size * lines)
    margin = to_text(meter, width) if isinstance(width, str) else " " * size
    rows = text.split("\n")
    moved = [margin + row if row or blank else row for row in rows[1:]]
    return "\n".join([margin + rows[0] if first else rows[0], *moved])


def truncate(
    meter: Meter, value: Any, length: Any = 255, killwords: Any = False, end: Any = "...", leeway: Any = 5
) -> str:
    """The start of a text that is longer than `length` (and the leeway), ending in `end`."""
    text, tail = _print_value(meter, value), to_text(meter, end)
    size = check_integer(length, "length", 0, MAX_TEXT)
    if len(text) <= size + check_integer(leeway, "leeway", 0, MAX_TEXT):
        return text
    if len(tail) > size:
        raise TemplateError(f"length must be at least {len(tail)}, the length of `end`")
    head = text[: size - len(tail)]
    return head + tail if killwords else head.rsplit(" ", 1)[0] + tail


def wordcount(meter: Meter, value: Any) -> int:
    text = _print_value(meter, value)
    meter.spend(len(text) >> 3)
    return sum(1 for _ in _WORD.finditer(text))


def center(meter: Meter, value: Any, width: Any = 80) -> str:
    text, size = _print_value(meter, value), check_integer(width, "width", 0, MAX_TEXT)
    meter.text(max(len(text), size))
    return text.center(size)


def tojson(meter: Meter, value: Any, indent: Any = None) -> str:
    """JSON as it is, without the escapes for HTML that Jinja adds."""
    return to_json(meter, value, None if indent is None else check_integer(indent, "indent", 0, 16))


def escape(meter: Meter, value: Any) -> str:
    """The text with the five characters of HTML escaped."""
    text = _print_value(meter, value)
    meter.text(len(text) + sum(text.count(char) * (len(entity) - 1) for char, entity in _ESCAPES))
    for char, entity in _ESCAPES:
        text = text.replace(char, entity)
    return text


def urlencode(meter: Meter, value: Any) -> str:
    """A text quoted for a path, or a mapping or a list of pairs as a query string."""
    kind = kind_of(value)
    if kind not in ("mapping", "list"):
        return _quote(meter, value, quote)
    pairs: Sequence[Any] = list(value.items()) if kind == "mapping" else read_sequence(meter, value)
    meter.items(len(pairs))
    if any(kind_of(pair) != "list" or len(pair) != 2 for pair in pairs):
        raise TemplateError("urlencode takes a text, a mapping or a list of pairs")
    query = [f"{_quote(meter, key, quote_plus)}={_quote(meter, each, quote_plus)}" for key, each in pairs]
    return join(meter, query, "&")


def _quote(meter: Meter, value: Any, escaped: Callable[[bytes], str]) -> str:
    text = _print_value(meter, value)
    meter.text(12 * len(text))  # four bytes a character, three characters a byte
    return escaped(text.encode(errors="replace"))


def format_(meter: Meter, value: Any, *values: Any) -> str:
    """`%s`, `%d` and `%f` with widths and precisions below 1,000, filled from the arguments in order."""
    pattern = _print_value(meter, value)
    rest = list(values)
    size = 0

    def fill(spec: re.Match[str]) -> str:
        nonlocal size
        meter.spend(2)
        text = "%" if spec[1] else _format_argument(meter, spec, rest)
        size += len(text)
        meter.text(size if size > MAX_TEXT else len(text))
        return text

    text = _SPEC.sub(fill, pattern)
    if rest:
        raise TemplateError(f"format was given {len(rest)} more values than its text has places")
    return _spend_on_text(meter, text)


def _format_argument(meter: Meter, spec: re.Match[str], rest: list[Any]) -> str:
    if spec[5] is None:
        raise TemplateError("format knows %s, %d, %f and %% only, with widths below 1,000")
    if not rest:
        raise TemplateError("format was given fewer values than its text has places")
    value, kind, flags, digits = rest.pop(0), spec[5], spec[2], spec[4]
    width = check_integer(int(spec[3] or 0), "the width of a place in format", 0, 999)
    if kind == "s":
        text = to_text(meter, value)[: None if digits is None else int(digits)]
        return text.ljust(width) if "-" in flags else text.rjust(width)
    amount = check_number(value, f"the value of %{kind} in format")
    try:
        return f"%{flags}{width or ''}{'.' + digits if digits else ''}{kind}" % amount
    except (ArithmeticError, ValueError) as error:
        raise TemplateError(f"format: {error}") from error


TEXT_FILTERS: Final = cast(
    "dict[str, Callable[..., Any]]",
    {
        "capitalize": capitalize,
        "center": center,
        "e": escape,
        "escape": escape,
        "format": format_,
        "indent": indent,
        "join": join,
        "lower": lower,
        "replace": replace,
        "string": string,
        "title": title,
        "tojson": tojson,
        "trim": trim,
        "truncate": truncate,
        "upper": upper,
        "urlencode": urlencode,
        "wordcount": wordcount,
    },
)
