"""Source text to Jinja's syntax tree, and nothing further: Jinja's code generator is never called.

Jinja's parser carries a line number from each token to the nodes it makes. Here that number is the
token's *offset* in the source, so every node and every error knows its column. The tokens are counted and
their nesting is measured before the parser sees them, so a hostile source is refused early.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, Final

from jinja2 import Environment, nodes
from jinja2.exceptions import TemplateSyntaxError as JinjaSyntaxError
from jinja2.lexer import TokenStream, newline_re
from jinja2.parser import Parser

from flowengine.errors import TemplateSyntaxError
from flowengine.templating.limits import MAX_BRACKETS, MAX_DEPTH, MAX_SOURCE, MAX_TOKENS

__all__ = ["Source", "expression_tree", "has_tags", "template_tree"]

_ENVIRONMENT: Final = Environment(autoescape=False, optimized=False, cache_size=0)
_DIGITS: Final = re.compile(r"[0-9_]+")
_SPACE: Final = re.compile(r"\s*")
_LONGEST_NUMBER: Final = 400
_LONGEST_RUN: Final = 20_000
_MOST_ESCAPES: Final = 100_000
_LONGEST_LINE_SHOWN: Final = 200

Raw = tuple[int, str, str]


class Source:
    """A template's text with its line ends made alike, and how to say where something is."""

    __slots__ = ("_starts", "text")

    def __init__(self, source: str) -> None:
        if len(source) > MAX_SOURCE:
            raise TemplateSyntaxError(f"the template has more than {MAX_SOURCE:,} characters")
        self.text = newline_re.sub("\n", source) if "\r" in source else source
        self._starts: list[int] | None = None

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column, both from 1."""
        if self._starts is None:
            self._starts = [0, *(found.end() for found in newline_re.finditer(self.text))]
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def error(self, message: str, offset: int) -> TemplateSyntaxError:
        return TemplateSyntaxError(message, *self.place(offset))


def has_tags(text: str) -> bool:
    """Whether a template has anything but text."""
    return "{{" in text or "{%" in text or "{#" in text


def template_tree(source: Source) -> nodes.Template:
    """The tree of a template."""
    return _parsed(source, None)


def expression_tree(source: Source) -> nodes.Expr:
    """The tree of a bare expression."""
    return _parsed(source, "variable")


def _parsed(source: Source, state: str | None) -> Any:
    _check_patterns(source)
    tokens = _Tokens(source, state)
    try:
        parser = Parser(_ENVIRONMENT, "")
        parser.stream = TokenStream(_ENVIRONMENT.lexer.wrap(iter(tokens)), None, None)
        tree = parser.parse() if state is None else parser.parse_expression()
        if state is not None and not parser.stream.eos:
            parser.fail(f"unexpected {str(parser.stream.current)!r:.40} after the expression")
    except JinjaSyntaxError as error:
        at = tokens.offset if tokens.lexing else error.lineno
        raise source.error(_message(error), at) from error
    except (RecursionError, ValueError, OverflowError) as error:
        raise source.error(f"the template cannot be read: {error}", tokens.offset) from error
    return tree


def _check_patterns(source: Source) -> None:
    """Jinja's patterns for numbers and strings need memory for every digit and every escape."""
    if len(source.text) < _LONGEST_RUN:
        return
    if source.text.count("\\") > _MOST_ESCAPES:
        raise TemplateSyntaxError(f"the template has more than {_MOST_ESCAPES:,} backslashes")
    for run in _DIGITS.finditer(source.text):
        if run.end() - run.start() > _LONGEST_RUN:
            raise source.error(f"more than {_LONGEST_RUN:,} digits in a row", run.start())


def _message(error: JinjaSyntaxError) -> str:
    message = (error.message or "").split(" at ")[0] if "unexpected char" in str(error.message) else error.message
    return (message or "syntax error").rstrip(".")[:_LONGEST_LINE_SHOWN]


class _Tokens:
    """The lexer's tokens with offsets for lines, within the limits on number and nesting."""

    def __init__(self, source: Source, state: str | None) -> None:
        self._source = source
        self._raw = _ENVIRONMENT.lexer.tokeniter(source.text, None, None, state)
        self.offset = 0
        self.lexing = False
        """True while the lexer itself is at work: its errors carry real line numbers."""

    def __iter__(self) -> Iterator[Raw]:
        brackets = prefixes = count = 0
        while (raw := self._next()) is not None:
            _, kind, value = raw
            self._locate(value)
            if kind != "whitespace":
                count += 1
                brackets += _NESTING.get(value, 0) if kind == "operator" else 0
                prefixes = prefixes + 1 if value in _PREFIXES else 0
                self._check(kind, value, count, brackets, prefixes)
            yield self.offset, kind, value
            self.offset += len(value)

    def _next(self) -> Raw | None:
        self.lexing = True
        raw = next(self._raw, None)
        self.lexing = False
        return raw

    def _locate(self, value: str) -> None:
        """Jinja drops the space before `{{-`; step over it."""
        if not self._source.text.startswith(value, self.offset):
            space = _SPACE.match(self._source.text, self.offset)
            self.offset = space.end() if space else self.offset

    def _check(self, kind: str, value: str, count: int, brackets: int, prefixes: int) -> None:
        if count > MAX_TOKENS:
            raise self._source.error(f"the template has more than {MAX_TOKENS:,} parts", self.offset)
        if brackets > MAX_BRACKETS:
            raise self._source.error(f"brackets are nested more than {MAX_BRACKETS} deep", self.offset)
        if prefixes > MAX_DEPTH:
            raise self._source.error(f"more than {MAX_DEPTH} operators in a row", self.offset)
        if kind in ("integer", "float") and len(value) > _LONGEST_NUMBER:
            raise self._source.error(f"a number of more than {_LONGEST_NUMBER} digits", self.offset)


_NESTING: Final = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}
_PREFIXES: Final = frozenset({"not", "-", "+"})
