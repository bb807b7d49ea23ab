"""Parses source text to Jinja's syntax tree, and nothing further: Jinja's code generator is never called.

Jinja's parser carries a line number from each token to the nodes it makes. Here that number is the
token's *offset* in the source, so every node and every error knows its column. The tokens are counted and
their nesting is measured before the parser sees them, so a hostile source is refused early.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from jinja2 import Environment, nodes
from jinja2.exceptions import TemplateSyntaxError as JinjaSyntaxError
from jinja2.lexer import TokenStream, newline_re
from jinja2.parser import Parser

from flowengine.core.templating.filters import FILTERS, TESTS, find_misfit
from flowengine.core.templating.frame import Loop
from flowengine.core.templating.limits import MAX_BRACKETS, MAX_DEPTH, MAX_SOURCE, MAX_TOKENS
from flowengine.errors import TemplateSyntaxError, did_you_mean

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
            self._starts = [0, *(match.end() for match in newline_re.finditer(self.text))]
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def error(self, message: str, offset: int) -> TemplateSyntaxError:
        return TemplateSyntaxError(message, *self.place(offset))


def has_tags(text: str) -> bool:
    """Tells whether a template has anything but text."""
    return "{{" in text or "{%" in text or "{#" in text


def template_tree(source: Source) -> nodes.Template:
    """The tree of a template, which has nothing in it that is not allowed."""
    return _plain_tree(source) or _parse(source, None)


def expression_tree(source: Source) -> nodes.Expr:
    """The tree of a bare expression, which has nothing in it that is not allowed."""
    return _parse(source, "variable")


_PATH: Final = re.compile(r"\{\{\s*([A-Za-z_]\w*)((?:\.[A-Za-z_]\w*){0,9})\s*\}\}", re.ASCII)
_NO_NAMES: Final = frozenset({"true", "false", "none", "True", "False", "None", "not"})


def _plain_tree(source: Source) -> nodes.Template | None:
    """The tree of text with nothing but paths in braces (`{{ inputs.order.id }}`), as most templates are, with the
    offsets that the parser would give; None for all others. The lexer would take ten times as long."""
    text = source.text.removesuffix("\n")  # One newline at the end is dropped, as Jinja does for every template.
    if len(text) > MAX_TOKENS and has_tags(text):
        return None
    parts: list[nodes.Expr] = []
    end = 0
    for match in _PATH.finditer(text):
        before, name, at = text[end : match.start()], match[1], match.end(1)
        if name in _NO_NAMES or has_tags(f"{before}{{"):
            return None
        if before:
            parts.append(nodes.TemplateData(before, lineno=end))
        tree: nodes.Expr = nodes.Name(name, "load", lineno=match.start(1))
        for field in match[2].split(".")[1:]:
            tree = nodes.Getattr(tree, field, "load", lineno=at)
            at += len(field) + 1
        parts.append(tree)
        end = match.end()
    if has_tags(text[end:]):
        return None
    if text[end:]:
        parts.append(nodes.TemplateData(text[end:], lineno=end))
    return nodes.Template([nodes.Output(parts)] if parts else [])


def _parse(source: Source, state: str | None) -> Any:
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
    _check_tree(source, tree)
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


# --- What a template may contain

METHODS: Final = {"get": (1, 2), "items": (0, 0), "keys": (0, 0), "values": (0, 0)}
"""The calls that read a mapping, with the fewest and most arguments of each."""
_NAMED_IN_ARGUMENT: Final = {"map": 0, "select": 0, "reject": 0, "selectattr": 1, "rejectattr": 1}

_ALLOWED: Final = frozenset(
    {
        *("Template", "Output", "TemplateData", "For", "If", "Assign", "AssignBlock", "With"),
        *("Const", "Name", "List", "Tuple", "Dict", "Pair", "Keyword", "Getattr", "Getitem", "Slice"),
        *("Add", "Sub", "Mul", "Div", "FloorDiv", "Mod", "Pow", "Concat", "Neg", "Pos"),
        *("And", "Or", "Not", "Compare", "Operand", "CondExpr", "Filter", "Test", "Call"),
    }
)
_WRITTEN: Final = {
    "Block": "{% block %}",
    "CallBlock": "{% call %}",
    "Extends": "{% extends %}",
    "FilterBlock": "{% filter %}",
    "FromImport": "{% from %}",
    "Import": "{% import %}",
    "Include": "{% include %}",
    "Macro": "{% macro %}",
    "NSRef": "setting a field",
    "Scope": "{% autoescape %}",
}


def _check_tree(source: Source, tree: nodes.Node) -> None:
    """Raise `TemplateSyntaxError` at the first thing that is not allowed."""
    waiting: list[tuple[nodes.Node, int]] = [(tree, 0)]
    try:
        while waiting:
            node, depth = waiting.pop()
            _check_node(node, depth)
            waiting.extend((child, depth + 1) for child in node.iter_child_nodes())
        _check_loops(tree)
    except _RefusedError as refused:
        raise source.error(str(refused), refused.offset) from None


class _RefusedError(TemplateSyntaxError):
    """The message, and the offset of the node."""

    def __init__(self, message: str, node: nodes.Node) -> None:
        super().__init__(message)
        self.offset = _offset(node)


def _offset(node: Any) -> int:
    """Returns the position of a node; Jinja gives none for the block around `{% autoescape %}`."""
    return next((each.lineno for each in (node, *node.iter_child_nodes()) if each.lineno is not None), 0)


def _check_node(node: nodes.Node, depth: int) -> None:
    name = type(node).__name__
    if name not in _ALLOWED:
        raise _RefusedError(f"{_WRITTEN.get(name, name)} is not allowed here", node)
    if depth > MAX_DEPTH:
        raise _RefusedError(f"the template is nested more than {MAX_DEPTH} deep", node)
    if check := _CHECKS.get(name):
        check(node)


def _check_for(node: nodes.For) -> None:
    if node.recursive:
        raise _RefusedError("a recursive loop is not allowed here", node)


def _check_loops(tree: nodes.Node) -> None:
    """Refuses a field that `loop` does not have, inside of a loop: elsewhere the name may be that of an item."""
    wrong = {
        each
        for each in tree.find_all(nodes.Getattr)
        if isinstance(each.node, nodes.Name) and each.node.name == "loop" and each.attr not in Loop._fields
    }
    if not wrong or any(each.name == "loop" and each.ctx == "store" for each in tree.find_all(nodes.Name)):
        return
    inside = (each for loop in tree.find_all(nodes.For) for part in loop.body for each in part.find_all(nodes.Getattr))
    for each in inside:
        if each in wrong:
            raise _RefusedError(f"`loop` has no '{each.attr:.60}'{did_you_mean(each.attr[:60], Loop._fields)}", each)


def _check_set_block(node: nodes.AssignBlock) -> None:
    if node.filter is not None:
        raise _RefusedError("{% set %} with a filter is not allowed here", node)


def _check_filter(node: nodes.Filter) -> None:
    _check_known(node, "filter", node.name, FILTERS, _keywords(node))
    at = _NAMED_IN_ARGUMENT.get(node.name)
    if at is None or len(node.args) <= at or not isinstance(argument := node.args[at], nodes.Const):
        return
    table, what = (FILTERS, "filter") if node.name == "map" else (TESTS, "test")
    if not isinstance(argument.value, str) or argument.value not in table:
        raise _RefusedError(
            f"unknown {what} '{argument.value!s:.60}'{did_you_mean(str(argument.value)[:60], table)}", argument
        )


def _check_test(node: nodes.Test) -> None:
    _check_known(node, "test", node.name, TESTS, _keywords(node))


def _check_known(
    node: Any, what: str, name: str, table: Mapping[str, Callable[..., Any]], keywords: tuple[str, ...]
) -> None:
    if name not in table:
        raise _RefusedError(f"unknown {what} '{name[:60]}'{did_you_mean(name[:60], table)}", node)
    if problem := find_misfit(table[name], len(node.args), keywords):
        raise _RefusedError(f"{what} '{name}' {problem}", node)


def _check_call(node: nodes.Call) -> None:
    keywords = _keywords(node)
    if isinstance(node.node, nodes.Getattr) and node.node.attr in METHODS:
        name, (fewest, most) = f".{node.node.attr}()", METHODS[node.node.attr]
    elif isinstance(node.node, nodes.Name) and node.node.name == "range":
        name, fewest, most = "range()", 1, 3
    else:
        raise _RefusedError(f"only range() and the mappings' {', '.join(METHODS)} can be called", node)
    if keywords or not fewest <= len(node.args) <= most:
        count = str(most) if fewest == most else f"{fewest} to {most}"
        raise _RefusedError(f"{name} takes {count} arguments without names", node)


def _keywords(node: nodes.Filter | nodes.Test | nodes.Call) -> tuple[str, ...]:
    if node.dyn_args is not None or node.dyn_kwargs is not None:
        raise _RefusedError("`*` and `**` in arguments are not allowed here", node)
    keywords = tuple(each.key for each in node.kwargs if isinstance(each, nodes.Keyword))
    if len(set(keywords)) < len(keywords):
        raise _RefusedError("an argument is given twice", node)
    return keywords


_CHECKS: Final[dict[str, Callable[[Any], None]]] = {
    "AssignBlock": _check_set_block,
    "Call": _check_call,
    "Filter": _check_filter,
    "For": _check_for,
    "Test": _check_test,
}
