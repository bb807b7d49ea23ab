"""Lists the definitions of a source file: Python by its own parser, any other language line by line.

It knows texts and lines. It runs nothing of what it reads, and opens no file.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final, NamedTuple, TypeAlias

# --- Definitions with their lines

Lines = Sequence[str]


class Definition(NamedTuple):
    """A function, a class, a section; or what of a file is outside of them, which has no name."""

    name: str
    """Qualified within its file: `Cart.total`."""
    start: int
    """Its first line, counted from 1."""
    end: int
    """Its last line."""
    holes: tuple[tuple[int, int], ...] = ()
    """Lines inside of it that belong to definitions of their own."""


def own_lines(definition: Definition, lines: Lines) -> list[tuple[int, str]]:
    """(number, text) of the lines that are a definition's own.

    >>> own_lines(Definition("Cart", 1, 4, ((3, 3),)), ["class Cart:", " def total(self):", "  return 1", " x = 2"])
    [(1, 'class Cart:'), (2, ' def total(self):'), (4, ' x = 2')]
    """
    numbered: list[tuple[int, str]] = []
    at = definition.start
    for first, last in (*definition.holes, (definition.end + 1, definition.end + 1)):
        numbered += [(number, lines[number - 1]) for number in range(at, first)]
        at = max(at, last + 1)
    return numbered


def language_of(path: str) -> str:
    """Returns the language name for quoted code, by the file's extension in lower case.

    >>> language_of("src/app.PY"), language_of("Makefile")
    ('py', '')
    """
    return PurePosixPath(path).suffix.removeprefix(".").lower()


# --- Python by its own parser

_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

_FILE_NAME: Final = "<outline of source code>"
"""Stands for the file in warnings about other people's code, so that just these can be kept quiet."""


def python_outline(lines: Lines) -> list[Definition] | None:
    """The definitions of a file in their order; None where it is no Python that this Python reads."""
    _keep_quiet()
    try:
        tree = ast.parse("\n".join(lines), _FILE_NAME)
        defined = list(_list_definitions(tree.body, ""))
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # The last two: nested too deeply.
        return None
    tops = [(each.start, each.end) for each in defined if "." not in each.name]
    return [Definition("", 1, len(lines), tuple(tops)), *defined] if lines else []


def _list_definitions(body: Iterable[ast.stmt], scope: str) -> Iterator[Definition]:
    for statement in body:
        if isinstance(statement, _Function):
            yield Definition(scope + statement.name, _first_line(statement), statement.end_lineno or statement.lineno)
        elif isinstance(statement, ast.ClassDef):
            yield _outline_class(statement, scope)
            yield from _list_definitions(statement.body, f"{scope}{statement.name}.")
        else:
            yield from _list_definitions(_list_inner_statements(statement), scope)


def _outline_class(statement: ast.ClassDef, scope: str) -> Definition:
    """A class without the bodies of its methods, whose first lines tell what it can do."""
    holes: list[tuple[int, int]] = []
    for member in _list_members(statement.body):
        first, last = member.body[0].lineno, member.end_lineno or member.lineno
        if isinstance(member, ast.ClassDef):
            holes.append((member.lineno + 1, last))
        elif first > member.lineno:
            holes.append((first, last))
    spans = tuple(span for span in holes if span[0] <= span[1])
    return Definition(scope + statement.name, _first_line(statement), statement.end_lineno or statement.lineno, spans)


def _list_members(body: Iterable[ast.stmt]) -> Iterator[_Function | ast.ClassDef]:
    for statement in body:
        if isinstance(statement, _Function | ast.ClassDef):
            yield statement
        else:
            yield from _list_members(_list_inner_statements(statement))


def _list_inner_statements(statement: ast.stmt) -> Iterator[ast.stmt]:
    """The statements of an `if`, a `try` or a `with`, in their order."""
    for name in ("body", "handlers", "orelse", "finalbody"):
        parts: list[ast.AST] = getattr(statement, name, [])
        for each in parts:
            if isinstance(each, ast.ExceptHandler):
                yield from each.body
            elif isinstance(each, ast.stmt):
                yield each


def _first_line(statement: _Function | ast.ClassDef) -> int:
    return min(statement.lineno, *(each.lineno for each in statement.decorator_list), statement.lineno)


def _keep_quiet() -> None:
    """Odd escapes in the code that is read are not warned of. Filters are global, and others reset them."""
    newest = warnings.filters[0] if warnings.filters else None
    if newest is None or getattr(newest[3], "pattern", "") != _FILE_NAME:
        warnings.filterwarnings("ignore", module=_FILE_NAME)


# --- Other languages line by line

_MODIFIERS: Final = (
    r"(?:(?:export|default|declare|public|private|protected|internal|static|async|abstract|final|virtual|override|"
    r"sealed|partial|open|data|inline|const|unsafe|extern|pub(?:\([^)]*\))?)\s+)*"
)
_KEYWORD: Final = re.compile(
    rf"\s*{_MODIFIERS}(?:(?P<holds>class|interface|struct|enum|union|trait|impl|defmodule|module|namespace|protocol|"
    r"extension|object|record|contract)|func|fn|function\*?|def|defp|type|fun|sub|proc|macro_rules!|"
    r"(?i:create\s+(?:or\s+replace\s+)?(?:table|view|function|procedure|index)))(?:<[^>]*>)?\s+"
    r"(?:\([^)]*\)\s*)?(?P<name>[^\W\d][\w$.:]*[\w$?!]|[^\W\d])"
)
"""A word that begins a definition, its name, and Go's receivers between them. What `holds` has members."""
_ASSIGNED: Final = re.compile(
    rf"\s*{_MODIFIERS}(?:const|let|var)?\s*(?P<name>[A-Za-z_$][\w$.]*)\s*[:=]\s*(?:async\s*)?"
    r"(?:function\b|\([^()]*\)\s*(?::[^=]+)?=>|[A-Za-z_$][\w$]*\s*=>)"
)
"""A function that is given a name by assignment."""
_CALLABLE: Final = re.compile(
    r"\s*(?!(?:if|for|while|switch|catch|return|else|do|case|when|with|using|lock|foreach|elif|new|throw|await)\b)"
    r"(?:[\w<>\[\],.:*&~@?]+\s+)*[*&]*(?P<name>~?[A-Za-z_$][\w$:]*)\s*\([^;{}]*\)?[^;{}()=]*(?:\{[^}]*\}?)?\s*$"
)
"""C's functions and the methods of its heirs: a name, parentheses, and no semicolon."""
_HEADING: Final = re.compile(r"(?P<level>#{1,6})\s+(?P<name>.+?)\s*#*$")
_CLOSER: Final = re.compile(r"\s*(?:[}\])]|end\b|fi\b|done\b|esac\b)")
_CONTINUED: Final = re.compile(r"\s*(?:[{:]|where\b|throws\b)")
_ABOVE: Final = re.compile(r"\s*(?://|/\*|\*|#|--|;;|@|\[)")
"""Comments and annotations, which belong to what stands below them."""

_PROSE: Final = frozenset({"md", "markdown", "mdx"})
_MAX_LINE_LENGTH: Final = 300
"""Characters of a line that may begin a definition."""
_BLOCK_LINES: Final = 60
"""Lines of a piece where nothing is defined."""


class _Start(NamedTuple):
    line: int
    name: str
    depth: int
    """Its indentation, or its level as a heading."""
    has_members: bool


class _Extent(NamedTuple):
    """A beginning, and the lines that go with it."""

    start: _Start
    first: int
    last: int


def lines_outline(lines: Lines, language: str) -> list[Definition]:
    """Returns an outline of a file: its definitions and the code outside of them; plain pieces if it defines
    nothing.
    """
    if language in _PROSE:
        extents = _find_sections(_find_headings(lines), len(lines))
    else:
        extents = _find_extents(lines, {each.line: each for each in _find_starts(lines)})
    return _nest(extents, len(lines), is_prose=language in _PROSE) if extents else _split_pieces(lines)


# --- Where definitions begin


def _find_starts(lines: Lines) -> Iterator[_Start]:
    for number, line in enumerate(lines, 1):
        if len(line) > _MAX_LINE_LENGTH or not line.strip():
            continue
        if match := _KEYWORD.match(line):
            yield _Start(number, match["name"], _measure_indent(line), match["holds"] is not None)
        elif match := _ASSIGNED.match(line) or (_CALLABLE.match(line) if _opens_body(lines, number) else None):
            yield _Start(number, match["name"], _measure_indent(line), has_members=False)


def _opens_body(lines: Lines, number: int) -> bool:
    """Tells whether a body begins on a line, or alone on the next one."""
    following = lines[number] if number < len(lines) else ""
    return lines[number - 1].rstrip().endswith(("{", "}")) or following.strip() == "{"


def _find_headings(lines: Lines) -> Iterator[_Start]:
    is_code = False
    for number, line in enumerate(lines, 1):
        is_code ^= line.lstrip().startswith(("```", "~~~"))
        if not is_code and len(line) <= _MAX_LINE_LENGTH and (match := _HEADING.match(line)):
            yield _Start(number, match["name"], len(match["level"]), has_members=True)


def _measure_indent(line: str) -> int:
    expanded = line.expandtabs(4)
    return len(expanded) - len(expanded.lstrip())


# --- How far they go


def _find_extents(lines: Lines, starts: Mapping[int, _Start]) -> list[_Extent]:
    """A definition goes on for as long as lines are indented more than its first one, and to what closes it."""
    ends: dict[int, int] = {}
    stack: list[_Start] = []
    last = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        indent = _measure_indent(line)
        while stack and stack[-1].depth >= indent:
            is_level = stack[-1].depth == indent and number not in starts
            if is_level and _CONTINUED.match(line):
                break
            ends[stack.pop().line] = number if is_level and _CLOSER.match(line) else last
        if number in starts:
            stack.append(starts[number])
        last = number
    return [_Extent(each, _find_comment_start(lines, each.line), ends.get(each.line, last)) for each in starts.values()]


def _find_comment_start(lines: Lines, line: int) -> int:
    """Returns the start of the comments right above a definition."""
    while line > 1 and _ABOVE.match(lines[line - 2]):
        line -= 1
    return line


def _find_sections(headings: Iterable[_Start], last: int) -> list[_Extent]:
    """A section goes on to the next heading of its level or above."""
    starts = list(headings)
    ends: dict[int, int] = {}
    stack: list[_Start] = []
    for heading in starts:
        while stack and stack[-1].depth >= heading.depth:
            ends[stack.pop().line] = heading.line - 1
        stack.append(heading)
    return [_Extent(each, each.line, ends.get(each.line, last)) for each in starts]


# --- What is inside of what


class _Scope(NamedTuple):
    extent: _Extent
    name: str
    inner: list[_Extent]


def _nest(extents: Iterable[_Extent], count: int, *, is_prose: bool) -> list[Definition]:
    """The file itself, and its definitions. What is defined inside of a function is part of that."""
    whole = _Extent(_Start(1, "", -1, has_members=True), 1, count)
    scopes = [_Scope(whole, "", [])]
    around = list(scopes)
    for extent in extents:
        while len(around) > 1 and around[-1].extent.last < extent.start.line:
            around.pop()
        outer = around[-1]
        if not outer.extent.start.has_members:
            continue
        outer.inner.append(extent)
        scope = _Scope(extent, f"{outer.name}.{extent.start.name}".removeprefix("."), [])
        scopes.append(scope)
        around.append(scope)
    return [
        Definition(each.name, each.extent.first, each.extent.last, tuple(_find_holes(each, is_prose or not each.name)))
        for each in scopes
    ]


def _find_holes(scope: _Scope, is_all: bool) -> Iterator[tuple[int, int]]:
    """The lines of what is inside; but for the lines that begin it, which tell what a class can do."""
    for start, first, last in scope.inner:
        parts = ((first, last),) if is_all else ((first, start.line - 1), (start.line + 1, last))
        yield from (part for part in parts if part[0] <= part[1])


def _split_pieces(lines: Lines) -> list[Definition]:
    """So many lines each, or fewer where a blank line comes near the end."""
    pieces: list[Definition] = []
    start = 1
    while start <= len(lines):
        end = min(start + _BLOCK_LINES - 1, len(lines))
        blank = next((at for at in range(end, start + _BLOCK_LINES // 2, -1) if not lines[at - 1].strip()), end)
        end = blank if end < len(lines) else end
        pieces.append(Definition("", start, end))
        start = end + 1
    return pieces


def outline(path: str, lines: Lines) -> list[Definition]:
    """The definitions of a file, its own one without a name included. Python that cannot be parsed is read by lines."""
    language = language_of(path)
    parsed = python_outline(lines) if language in ("py", "pyi", "pyw") else None
    return lines_outline(lines, language) if parsed is None else parsed
