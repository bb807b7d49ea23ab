r"""Parses the part of Power Fx that declarative workflows use, and writes it as expressions and templates of ours.

Values are JSON; a message is its text, and a blank is the empty text, none, or what is not there. What cannot be said
is an `FxError` that says what. Nothing is evaluated.

    >>> Fx(lambda path: "shared_state." + path[-1].lower()).expression('Upper(Local.A) & "!" = "B!"')
    '(shared_state.a | string | upper) ~ "!" == "B!"'
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any, Final, NamedTuple

from flowengine.importers.flow_text import key_path, quote

_TOKEN: Final = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/
    |(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    |(?P<text>"(?:[^"]|"")*")
    |(?P<filled>\$"(?:[^"{]|""|\{[^{}]*\})*")
    |(?P<quoted>'(?:[^']|'')*')
    |(?P<name>[^\W\d]\w*)
    |(?P<sign><>|<=|>=|&&|\|\||/(?!\*)|[-+*^%&=<>!.,;:()\[\]{}@])""",
    re.VERBOSE | re.DOTALL,
)
_LONGEST: Final = 20_000
_LONGEST_NUMBER: Final = 300
_MOST_PARTS: Final = 200
_DEEPEST: Final = 60
_LEVELS: Final[tuple[dict[str, str], ...]] = (
    {"||": "or", "Or": "or", "or": "or"},
    {"&&": "and", "And": "and", "and": "and"},
    {"=": "==", "<>": "!=", "<": "<", ">": ">", "<=": "<=", ">=": ">=", "in": "in", "exactin": "in"},
    {"&": "~"},
    {"+": "+", "-": "-"},
    {"*": "*", "/": "/"},
    {"^": "**"},
)


class FxError(Exception):
    """A Power Fx formula that cannot be translated; the message gives the reason."""


class FxNode(NamedTuple):
    """One part of a formula."""

    kind: str
    """`value`, `name`, `field`, `call`, `binary`, `not`, `minus`, `list`, `record`, `filled`."""
    value: Any = None
    parts: tuple[FxNode, ...] = ()


def parse_fx(text: str) -> FxNode:
    """The tree of a formula, without the `=` before it."""
    if len(text) > _LONGEST:
        raise FxError(f"a formula of more than {_LONGEST:,} characters")
    parser = _Parser(text)
    if parser.operators > _MOST_PARTS:
        raise FxError(f"a formula of more than {_MOST_PARTS} operators")
    return parser.whole()


def names_in(node: FxNode) -> list[tuple[str, ...]]:
    """The dotted names of a formula."""
    path = path_of(node)
    if path is not None:
        return [path]
    return [each for part in node.parts for each in names_in(part)]


def path_of(node: FxNode) -> tuple[str, ...] | None:
    """The dotted name that a part is; None where it is something else."""
    if node.kind == "name":
        return (str(node.value),)
    if node.kind == "field":
        before = path_of(node.parts[0])
        return None if before is None else (*before, str(node.value))
    return None


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(text):
            token = _TOKEN.match(text, at)
            if token is None:
                raise FxError(f"the formula at '{text[at : at + 20]}'")
            if token.lastgroup is not None:
                self._tokens.append((token.lastgroup, token[0]))
            at = token.end()
        self._at = 0
        self._depth = 0
        self.operators = sum(kind == "sign" and text not in ".,;:)]}" for kind, text in self._tokens)

    def whole(self) -> FxNode:
        tree = self._level(0)
        if self._at < len(self._tokens):
            raise FxError(f"the formula at '{self._tokens[self._at][1][:20]}'")
        return tree

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("", "")

    def _take(self, sign: str) -> bool:
        kind, text = self._peek()
        if kind == "sign" and text == sign:
            self._at += 1
            return True
        return False

    def _want(self, sign: str) -> None:
        if not self._take(sign):
            raise FxError(f"a formula without its '{sign}'")

    def _level(self, level: int) -> FxNode:
        self._depth += 1
        if self._depth > _DEEPEST * 10:
            raise FxError("a formula that is nested too deeply")
        if level == len(_LEVELS):
            tree = self._unary()
        else:
            tree = self._level(level + 1)
            while (operator := _LEVELS[level].get(self._peek()[1])) and self._peek()[0] in {"sign", "name"}:
                self._at += 1
                tree = FxNode("binary", operator, (tree, self._level(level + 1)))
        self._depth -= 1
        return tree

    def _unary(self) -> FxNode:
        if self._take("!"):
            return FxNode("not", None, (self._level(len(_LEVELS)),))
        if self._take("-"):
            return FxNode("minus", None, (self._level(len(_LEVELS)),))
        tree = self._single()
        while True:
            if self._take("."):
                kind, text = self._peek()
                if kind not in {"name", "quoted"}:
                    raise FxError("a formula with a dot and no name behind it")
                self._at += 1
                tree = FxNode("field", _unquote(text), (tree,))
            elif self._take("%"):
                tree = FxNode("binary", "/", (tree, FxNode("value", 100)))
            else:
                return tree

    def _single(self) -> FxNode:
        kind, text = self._peek()
        self._at += 1
        if kind == "number":
            if len(text) > _LONGEST_NUMBER or not isfinite(number := float(text)):
                raise FxError(f"the number {text[:40]}")
            return FxNode("value", number if re.search(r"[.eE]", text) else int(text))
        if kind == "text":
            return FxNode("value", text[1:-1].replace('""', '"'))
        if kind == "filled":
            return FxNode("filled", None, tuple(_filled_parts(text[2:-1].replace('""', '"'))))
        if kind in {"name", "quoted"}:
            return self._name(_unquote(text), kind == "name")
        if text == "(":
            tree = self._level(0)
            self._want(")")
            return tree
        if text == "[":
            return FxNode("list", None, tuple(self._rows("]")))
        if text == "{":
            return self._record()
        raise FxError(f"the formula at '{text[:20]}'" if text else "a formula that ends too early")

    def _name(self, name: str, is_plain: bool) -> FxNode:
        if is_plain and self._take("("):
            parts = tuple(self._rows(")"))
            if name in {"And", "Or"} and parts:
                return FxNode("binary", name.lower(), parts)
            return FxNode("not", None, parts) if name == "Not" and len(parts) == 1 else FxNode("call", name, parts)
        if is_plain and name.lower() in {"true", "false"}:
            return FxNode("value", name.lower() == "true")
        return FxNode("name", name)

    def _rows(self, end: str) -> list[FxNode]:
        rows: list[FxNode] = []
        while not self._take(end):
            if rows:
                self._want(",")
            rows.append(self._level(0))
        return rows

    def _record(self) -> FxNode:
        names: list[str] = []
        values: list[FxNode] = []
        while not self._take("}"):
            if names:
                self._want(",")
            kind, text = self._peek()
            if kind not in {"name", "quoted", "text"}:
                raise FxError("a record with a key that is no name")
            self._at += 1
            self._want(":")
            names.append(_unquote(text))
            values.append(self._level(0))
        return FxNode("record", tuple(names), tuple(values))


def _unquote(text: str) -> str:
    return text[1:-1] if text[:1] in {"'", '"'} else text


def _filled_parts(text: str) -> list[FxNode]:
    parts: list[FxNode] = []
    for at, part in enumerate(re.split(r"\{([^{}]*)\}", text)):
        if at % 2:
            parts.append(parse_fx(part))
        elif part:
            parts.append(FxNode("value", part))
    return parts


# --- Writing

_BRACKET: Final = re.compile(r'[()]|"(?:[^"\\]|\\.)*"')
"""A bracket, or a text, whose brackets are none."""
_BLANKS: Final = '[none, "", []]'
_FIND: Final = (
    "((({inside_1} | string | split({inside_0}, 1) | first | length) + 1) if {inside_0} in {inside_1} else none)"
)
_FILTERS: Final = {
    "Upper": "string | upper",
    "Lower": "string | lower",
    "Trim": "string | trim",
    "Len": "string | length",
    "Text": "string",
    "Abs": "abs",
    "CountRows": "length",
    "Count": "length",
    "First": "first",
    "Last": "last",
    "Value": "string | from_json",
    "ParseJSON": "from_json",
    "JSON": "tojson",
    "Proper": "string | title",
    "EncodeUrl": "urlencode",
    "Int": "round(0, 'floor') | int",
    "RoundDown": "round(0, 'floor')",
    "RoundUp": "round(0, 'ceil')",
}
_AS_THEY_ARE: Final = frozenset(
    {"UserMessage", "AgentMessage", "AssistantMessage", "SystemMessage", "Float", "Decimal", "Table", "AsType"}
)
_CALLS: Final = {
    ("Blank", 0): "none",
    ("MessageText", 1): "{written_0}",
    ("Boolean", 1): '({inside_0} | string | lower) == "true"',
    ("Find", 2): _FIND,
    ("Find", 3): _FIND,
    ("StartsWith", 2): "({inside_0} | string)[:({inside_1} | length)] == {inside_1}",
    ("Left", 2): "({inside_0} | string)[:{inside_1}]",
    ("Mid", 3): "({inside_0} | string)[{number_1} - 1:{number_1} - 1 + {number_2}]",
    ("Substitute", 3): "({inside_0} | replace({written_1}, {written_2}))",
    ("Split", 2): "({inside_0} | split({written_1}))",
    ("Mod", 2): "({number_0} % {number_1})",
    ("Round", 2): "({number_0} | round({inside_1}))",
    ("Power", 2): "({number_0} ** {number_1})",
    ("Index", 2): "{inside_0}[{number_1} - 1]",
    ("FirstN", 1): "{inside_0}[:1]",
    ("FirstN", 2): "{inside_0}[:{inside_1}]",
    ("LastN", 1): "{inside_0}[-1:]",
    ("LastN", 2): "{inside_0}[-{inside_1}:]",
    ("Sort", 1): "({inside_0} | sort)",
    ("Sort", 2): "({inside_0} | sort)",
    ("Distinct", 2): "({inside_0} | map(attribute={column_1}) | unique | list)",
}
"""Function and how many arguments it has → our expression; `Fx.argument` says what the words mean."""
_COMPARISONS: Final = frozenset({"==", "!=", "<", ">", "<=", ">="})
_OF_NUMBERS: Final = frozenset({"+", "-", "*", "/", "**", "<", ">", "<=", ">="})


class _Written(dict[str, str]):
    """The arguments of a call, each written once, where its place is."""

    def __init__(self, fx: Fx, parts: Sequence[FxNode]) -> None:
        super().__init__()
        self._fx = fx
        self._parts = parts

    def __missing__(self, key: str) -> str:
        how, _, number = key.partition("_")
        self[key] = self._fx.argument(how, self._parts[int(number)])
        return self[key]


class Fx:
    """Writes formulas; `resolve` gives the expression of a dotted name, or raises `FxError`."""

    def __init__(self, resolve: Callable[[Sequence[str]], str]) -> None:
        self._resolve = resolve

    def expression(self, text: str) -> str:
        """A formula as an expression."""
        return self._write(parse_fx(text))

    def condition(self, text: str) -> str:
        """A formula as an expression that gives true or false."""
        return self._truth(parse_fx(text))

    def template(self, text: str) -> str:
        """A formula as a template that keeps the type of its value."""
        node = parse_fx(text)
        rows = self._rows(node)
        return rows if rows is not None else f"{{{{ {self._write(node)} }}}}"

    def _truth(self, node: FxNode) -> str:
        if node.kind == "binary" and node.value in {"or", "and"}:
            return f" {node.value} ".join(self._truth_inside(each, str(node.value)) for each in node.parts)
        if node.kind == "not":
            return self._translate_negation(node.parts[0])
        if node.kind == "call" and node.value in {"IsBlank", "IsEmpty", "IsMatch", "StartsWith", "EndsWith"}:
            return self._write(node)
        if node.kind == "binary" and node.value in _COMPARISONS | {"in"}:
            return self._write(node)
        if node.kind == "value" and isinstance(node.value, bool):
            return "true" if node.value else "false"
        path = path_of(node)
        if path is not None:
            return f"({self._resolve(path)} | default(false, true)) == true"
        return f"({self._write(node)}) == true"

    def _translate_negation(self, node: FxNode) -> str:
        if node.kind == "call" and node.value == "IsBlank" and len(node.parts) == 1:
            return self._blank(node.parts[0], "not in")
        return f"not ({self._truth(node)})"

    def _blank(self, node: FxNode, word: str) -> str:
        """Returns the test whether a value is blank (`in`) or not (`not in`)."""
        if node.kind == "call" and node.value == "Find" and len(node.parts) >= 2:
            return f"{self._inside(node.parts[0])} {'not in' if word == 'in' else 'in'} {self._inside(node.parts[1])}"
        return f"{self._there(node)} {word} {_BLANKS}"

    def _truth_inside(self, node: FxNode, word: str) -> str:
        expression = self._truth(node)
        is_plain = node.kind == "not" or (node.kind == "call" and node.value == "IsBlank")
        return expression if is_plain or (node.kind == "binary" and node.value == word) else f"({expression})"

    def _write(self, node: FxNode) -> str:
        expression = self._write_part(node)
        # Some functions write an argument twice: calls inside one another would grow without end.
        if len(expression) > _LONGEST:
            raise FxError(f"an expression of more than {_LONGEST:,} characters")
        return expression

    def _write_part(self, node: FxNode) -> str:
        match node.kind:
            case "value":
                return quote(node.value) if isinstance(node.value, str) else json.dumps(node.value)
            case "name" | "field":
                path = path_of(node)
                if path is not None:
                    return self._resolve(path)
                field = key_path(self._inside(node.parts[0]), [str(node.value)])
                return f'({field} | default(""))'  # The row may not be there: its fields are blank.
            case "list":
                return "[" + ", ".join(self._write(each) for each in node.parts) + "]"
            case "record":
                pairs = zip(node.value, node.parts, strict=True)
                return "{" + ", ".join(f"{quote(key)}: {self._write(each)}" for key, each in pairs) + " }"
            case "filled":
                return " ~ ".join(self._inside(each) for each in node.parts) or '""'
            case "minus":
                return f"-{self._inside(node.parts[0])}"
            case "not":
                return self._truth(node)
            case "binary":
                return self._binary(node)
            case _:
                return self._call(str(node.value), node.parts)

    def _inside(self, node: FxNode) -> str:
        expression = self._write(node)
        is_plain = (
            node.kind in {"value", "name", "list", "record"} or path_of(node) is not None or _is_closed(expression)
        )
        return expression if is_plain else f"({expression})"

    def _binary(self, node: FxNode) -> str:
        operator = str(node.value)
        if operator in {"and", "or"}:
            return self._truth(node)
        first, second = node.parts
        if operator in {"==", "!="} and second.kind == "call" and second.value == "Blank":
            word = "in" if operator == "==" else "not in"
            return f"{self._there(first)} {word} {_BLANKS}"
        if operator in _OF_NUMBERS:
            return f"{self._number(first)} {operator} {self._number(second)}"
        if operator == "~":
            return " ~ ".join(
                self._write(each) if each.kind == "binary" and each.value == "~" else self._inside(each)
                for each in node.parts
            )
        return f"{self._translate_comparison(first)} {operator} {self._translate_comparison(second)}"

    def _translate_comparison(self, node: FxNode) -> str:
        return self._write(node) if node.kind == "binary" and node.value == "~" else self._inside(node)

    def _number(self, node: FxNode) -> str:
        if path_of(node) is not None:
            return f"({self._write(node)} | default(0, true))"
        return self._inside(node)

    def _there(self, node: FxNode) -> str:
        return f"({self._inside(node)} | default(none))" if path_of(node) is not None else self._inside(node)

    def argument(self, how: str, node: FxNode) -> str:
        """An argument as `_CALLS` wants it: alone, inside another expression, as a number, as a column."""
        ways = {"written": self._write, "inside": self._inside, "number": self._number, "column": self._column}
        return ways[how](node)

    def _call(self, name: str, parts: Sequence[FxNode]) -> str:
        if name in _AS_THEY_ARE and parts:
            return self._write(parts[0])
        if name in _FILTERS and len(parts) >= 1:
            return f"({self._inside(parts[0])} | {_FILTERS[name]})"
        if (name, len(parts)) in _CALLS:
            return _CALLS[name, len(parts)].format_map(_Written(self, parts))
        match name, len(parts):
            case "IsBlank" | "IsEmpty", 1:
                return self._blank(parts[0], "in")
            case "If", count if count >= 2:
                return self._if(parts)
            case "Coalesce", count if count >= 1:
                tests = [f"{self._inside(each)} if {self._there(each)} not in {_BLANKS} else " for each in parts[:-1]]
                return f"({''.join(tests)}{self._inside(parts[-1])})"
            case "Concatenate", _:
                return " ~ ".join(self._inside(each) for each in parts) or '""'
            case "Concat", _:
                return self._concat(parts)
            case "Filter" | "LookUp", count if count >= 2:
                return self._filter(name, parts)
            case "CountIf", 2:
                return f"({self._filter('Filter', parts)} | length)"
            case "ForAll", 2 if path_of(parts[1]) is not None:
                return f"({self._inside(parts[0])} | map(attribute={self._column(parts[1])}) | list)"
            case "Sum" | "Max" | "Min" | "Average", count if count >= 1:
                return self._translate_reduction(name, parts)
            case "Char", 1 if parts[0].value in {9, 10, 13}:
                return {9: '"\\t"', 10: '"\\n"', 13: '"\\r"'}[parts[0].value]
            case _:
                raise FxError(f"the function {name[:40]} of Power Fx")

    def _if(self, parts: Sequence[FxNode]) -> str:
        tests = "".join(
            f"{self._inside(parts[at + 1])} if {self._truth(parts[at])} else " for at in range(0, len(parts) - 1, 2)
        )
        last = self._inside(parts[-1]) if len(parts) % 2 else '""'
        return f"({tests}{last})"

    def _concat(self, parts: Sequence[FxNode]) -> str:
        """Texts that are put together, or the rows of a table by one column."""
        if len(parts) < 2 or len(path_of(parts[1]) or ()) != 1:
            return " ~ ".join(self._inside(each) for each in parts) or '""'
        between = self._write(parts[2]) if len(parts) > 2 else '""'
        column = "" if parts[1].value == "Value" else f" | map(attribute={self._column(parts[1])})"
        return f"({self._inside(parts[0])}{column} | join({between}))"

    def _column(self, node: FxNode) -> str:
        path = path_of(node)
        if path is None:
            raise FxError("a calculation for each row")
        return quote(".".join(each for each in path if each != "ThisRecord"))

    def _filter(self, name: str, parts: Sequence[FxNode]) -> str:
        rows = self._inside(parts[0])
        for each in parts[1:2] if name == "LookUp" else parts[1:]:
            for test in _both(each):
                rows += f" | {self._row_test(test)}"
        if name == "Filter":
            return f"({rows} | list)"
        path = path_of(parts[2]) if len(parts) > 2 else None
        column = f".{path[-1]}" if path else ""
        return f"({rows} | list)[0]{column}"

    def _row_test(self, node: FxNode) -> str:
        if node.kind == "binary" and node.value in _COMPARISONS and path_of(node.parts[0]) is not None:
            return f'selectattr({self._column(node.parts[0])}, "{node.value}", {self._write(node.parts[1])})'
        if path_of(node) is not None:
            return f"selectattr({self._column(node)})"
        raise FxError("a condition on rows that is no comparison of a column")

    def _translate_reduction(self, name: str, parts: Sequence[FxNode]) -> str:
        if len(parts) == 2 and len(path_of(parts[1]) or ()) == 1:
            rows = f"{self._inside(parts[0])} | map(attribute={self._column(parts[1])}) | list"
        else:
            rows = f"[{', '.join(self._write(each) for each in parts)}]"
        if name == "Average":
            return f"((({rows}) | sum) / (({rows}) | length))"
        return f"(({rows}) | {name.lower()})"

    def _rows(self, node: FxNode) -> str | None:
        """A text made of each row of a table, as a loop of a template; None where the formula is no such text."""
        if node.kind != "call" or node.value != "Concat" or len(node.parts) < 2:
            return None
        table, row = node.parts[0], node.parts[1]
        if table.kind == "call" and table.value == "ForAll" and len(table.parts) == 2 and path_of(row) == ("Value",):
            table, row = table.parts
        elif row.kind not in {"binary", "filled"} or len(node.parts) > 3:
            return None
        inner = Fx(lambda path: "row" if path in {("Value",), ("ThisRecord",)} else self._in_row(path))
        between = self._write(node.parts[2]) if len(node.parts) > 2 else '""'
        return (
            f"{{% for row in {self._write(table)} %}}{{{{ {inner._write(row)} }}}}"
            f'{{{{ {between} if not loop.last else "" }}}}{{% endfor %}}'
        )

    def _in_row(self, path: Sequence[str]) -> str:
        if path[0] in {"Local", "System", "Topic", "Global", "Workflow", "Env"}:
            return self._resolve(path)
        return key_path("row", [each for each in path if each != "ThisRecord"])


def _both(node: FxNode) -> list[FxNode]:
    """The tests that all must hold."""
    is_both = node.kind == "binary" and node.value == "and"
    return [each for part in node.parts for each in _both(part)] if is_both else [node]


def _is_closed(text: str) -> bool:
    """Tells whether a bracket opens it and closes at its end."""
    if not text.startswith("("):
        return False
    depth = 0
    for bracket in _BRACKET.finditer(text):
        depth += {"(": 1, ")": -1}.get(bracket[0], 0)
        if depth == 0:
            return bracket.end() == len(text)
    return False
