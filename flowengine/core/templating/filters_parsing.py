"""Implements the filters that take a text apart: `split`, `from_json`, `regex_replace`.

A value that is no text is printed first. A regular expression may take any time, so it works on a shorter text,
under a clock of its own, and what it took is paid for in steps. What its compiler would unroll, and what has no
bound in memory, is refused before.

Source of the names: those filters of Ansible.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from math import isfinite, prod
from time import thread_time
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from flowengine.core.templating.arguments import check_integer
from flowengine.core.templating.compare import is_true
from flowengine.core.templating.limits import FUEL, MAX_INT_BITS, MAX_ITEMS, MAX_TEXT, Meter
from flowengine.core.templating.text import excerpt, to_text
from flowengine.errors import TemplateError

if TYPE_CHECKING:
    import regex

_STRUCTURE: Final = re.compile(r"[\[{,:]")
_A_CALL: Final = 4
"""Steps that reading a text as JSON takes, however short it is."""
_LONGEST_SEARCHED: Final = 100_000
_LONGEST_PATTERN: Final = 500
_MOST_UNROLLED: Final = 10_000
_SECONDS: Final = 0.08
"""Seconds of search that the whole fuel of an evaluation is worth."""
_COUNT: Final = re.compile(r"(\)\s*)?\{\s*(\d{0,9})\s*,?\s*(\d{0,9})")
_UNBOUNDED: Final = re.compile(r"\(\?(?:R|[+-]?\d|&|P>|\(DEFINE\)|[\w-]*x)")
"""A group that calls itself, and spaces that mean nothing, behind which a count could hide."""


def split(meter: Meter, value: Any, separator: Any = None, count: Any = None) -> list[str]:
    """The parts between separators, or between runs of white space; `count`: how often it is split at most."""
    text = _text_to_search(meter, value)
    between = None if separator is None else to_text(meter, separator)
    if between == "":
        raise TemplateError("the separator of split is empty")
    times = MAX_ITEMS if count is None else check_integer(count, "count", 0, MAX_ITEMS)
    parts = text.split(between, times)
    meter.items(len(parts))
    return parts


def from_json(meter: Meter, value: Any) -> Any:
    """The value that a text holds as JSON."""
    text = _text_to_search(meter, value)
    meter.spend((len(text) >> 3) + sum(1 for _ in _STRUCTURE.finditer(text)) + _A_CALL)
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:  # Their text has all of it, so no cause repeats it.
        where = f"line {error.lineno}, column {error.colno}"
        raise TemplateError(f"from_json: {excerpt(text)} is no JSON: {error.msg} ({where})") from None
    except RecursionError:
        raise TemplateError("from_json: the lists and objects are nested too deep") from None


def regex_replace(
    meter: Meter, value: Any, pattern: Any, new: Any = "", count: Any = None, ignorecase: Any = False
) -> str:
    r"""Replaces the matches of a regular expression; `\1` and `\g<name>` in `new` are its groups."""
    text, replacement = _text_to_search(meter, value), to_text(meter, new)
    if len(text) > _LONGEST_SEARCHED:
        raise TemplateError(f"regex_replace takes a text of at most {_LONGEST_SEARCHED:,} characters")
    times = MAX_ITEMS if count is None else check_integer(count, "count", 0, MAX_ITEMS)
    compiled = _compile_pattern(meter, to_text(meter, pattern), ignorecase=is_true(ignorecase))
    references = replacement.count("\\")
    meter.text(len(text))
    size = 0

    def replaced(match: regex.Match[str]) -> str:
        nonlocal size
        longest = max(end - start for start, end in match.regs) if references else 0
        meter.spend(2 + references * len(match.regs))
        meter.text(len(replacement) + references * longest)
        piece = match.expand(replacement) if references else replacement
        size += len(piece)
        if size > MAX_TEXT:
            meter.text(size)
        return piece

    return _within_time(meter, lambda seconds: compiled.sub(replaced, text, times, timeout=seconds)) if times else text


def _text_to_search(meter: Meter, value: Any) -> str:
    text = to_text(meter, value)
    meter.text(len(text))
    return text


def _integer(digits: str) -> int:
    if len(digits) * 3 > MAX_INT_BITS:
        raise TemplateError(f"from_json: a number has {len(digits):,} digits")
    return int(digits)


def _float(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise TemplateError(f"from_json: the number {text[:40]} is too large")
    return value


def _constant(name: str) -> NoReturn:
    raise TemplateError(f"from_json: JSON has no {name}")


_DECODER: Final = json.JSONDecoder(parse_int=_integer, parse_float=_float, parse_constant=_constant)


def _compile_pattern(meter: Meter, pattern: str, *, ignorecase: bool) -> regex.Pattern[str]:
    import regex  # Slow to import, and few templates search.

    if len(pattern) > _LONGEST_PATTERN:
        raise TemplateError(f"regex_replace takes a pattern of at most {_LONGEST_PATTERN} characters")
    refused = _UNBOUNDED.search(pattern)
    if refused is not None:
        raise TemplateError(f"regex_replace takes no '{refused[0]}…' in a pattern")
    if _count_unrolled(pattern) > _MOST_UNROLLED:
        raise TemplateError(f"the counts of the pattern repeat a part more than {_MOST_UNROLLED:,} times")
    meter.spend(len(pattern) << 3)
    try:
        return regex.compile(pattern, regex.IGNORECASE if ignorecase else 0)
    except (regex.error, ValueError, OverflowError, RecursionError) as error:
        raise TemplateError(f"{excerpt(pattern)} is no regular expression: {error}") from error


def _count_unrolled(pattern: str) -> int:
    """Bounds the copies of the most repeated part; the counts of nested groups multiply.

    >>> _count_unrolled(r"(\\d{1,3}\\.){3}\\d{1,3}"), _count_unrolled("((a{100}){100}){100}")
    (9, 1000000)
    """
    counts = [(group, max(int(least or 0), int(most or 0), 1)) for group, least, most in _COUNT.findall(pattern)]
    return prod(each for group, each in counts if group) * max((each for group, each in counts if not group), default=1)


def _within_time(meter: Meter, search: Callable[[float], str]) -> str:
    import regex

    began = thread_time()
    try:
        text = search(_SECONDS * max(meter.left, 1) / FUEL)
    except TimeoutError as error:
        raise TemplateError("regex_replace: the pattern needs too long for this text") from error
    except (regex.error, IndexError) as error:
        raise TemplateError(f"regex_replace: {error}") from error
    except MemoryError as error:
        raise TemplateError("regex_replace: the pattern needs too much memory for this text") from error
    meter.spend(int((thread_time() - began) / _SECONDS * FUEL))
    return text


PARSING_FILTERS: Final = cast(
    "dict[str, Callable[..., Any]]",
    {"from_json": from_json, "regex_replace": regex_replace, "split": split},
)
