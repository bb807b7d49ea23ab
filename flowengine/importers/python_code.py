"""Reads Python of the source by its syntax tree, so that it can be carried along or stubbed. It runs nothing.

It also says which modules a file imports, and gives the file's text with some imports led elsewhere, all other lines
untouched.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple, cast

from flowengine.errors import DefinitionError
from flowengine.importers.form import SourcePlace

PythonFunction = ast.FunctionDef | ast.AsyncFunctionDef

_MAX_NODES: Final = 200_000
_MAX_DEPTH: Final = 200
_MAX_BITS: Final = 4_096
"""The most bits of a number: Python writes none with more than 4,300 digits."""


class Import(NamedTuple):
    """One import statement of a file."""

    module: str
    """The module's name, with leading dots where it is relative."""
    names: tuple[tuple[str, str | None], ...]
    """Name and alias of each import of `from … import`; empty for `import …`."""
    line: int
    end: int
    column: int
    is_alone: bool
    """Nothing else stands on its lines."""


class PythonSource:
    """A file that has been parsed."""

    def __init__(self, file: str, text: str, tree: ast.Module) -> None:
        self.file = file
        self.text = text
        self.tree = tree

    @cached_property
    def imports(self) -> list[Import]:
        """All imports, those inside functions too."""
        imports: list[Import] = []
        lines = self.text.split("\n")
        for node in ast.walk(self.tree):
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            end = node.end_lineno or node.lineno
            before = lines[node.lineno - 1].encode()[: node.col_offset].decode("utf-8", "replace").strip()
            after = lines[end - 1].encode()[node.end_col_offset or 0 :].decode("utf-8", "replace").strip()
            is_alone = not before and (not after or after.startswith("#"))
            place = (node.lineno, end, node.col_offset, is_alone)
            if isinstance(node, ast.Import):
                imports += [Import(each.name, (), *place) for each in node.names]
            else:
                module = "." * node.level + (node.module or "")
                imports.append(Import(module, tuple((each.name, each.asname) for each in node.names), *place))
        return imports

    def functions(self) -> list[PythonFunction]:
        """The functions at the top of the module."""
        return [each for each in self.tree.body if isinstance(each, PythonFunction)]

    @cached_property
    def every_class(self) -> dict[str, ast.ClassDef]:
        """The classes by their names, those inside others too."""
        classes = [each for each in ast.walk(self.tree) if isinstance(each, ast.ClassDef)]
        return {each.name: each for each in reversed(classes)}

    def classes(self) -> list[ast.ClassDef]:
        return [each for each in self.tree.body if isinstance(each, ast.ClassDef)]

    def place(self, node: ast.AST) -> SourcePlace:
        """The place of a part of the source."""
        return SourcePlace(self.file, getattr(node, "lineno", 1))

    def texts(self) -> set[str]:
        """The texts that stand in the code."""
        every = (each.value for each in ast.walk(self.tree) if isinstance(each, ast.Constant))
        return {each for each in every if isinstance(each, str)}

    def segment(self, node: ast.AST) -> str:
        """A part of the text, with the decorators of a function."""
        first = min((each.lineno for each in getattr(node, "decorator_list", [])), default=getattr(node, "lineno", 1))
        return "\n".join(self.text.split("\n")[first - 1 : getattr(node, "end_lineno", first)])

    def with_lines(self, instead: Mapping[int, tuple[int, str]]) -> str:
        """The text with some lines replaced: first line → last line and what stands there."""
        lines = self.text.split("\n")
        for first in sorted(instead, reverse=True):
            last, text = instead[first]
            indent = lines[first - 1][: len(lines[first - 1]) - len(lines[first - 1].lstrip())]
            lines[first - 1 : last] = [f"{indent}{text}"]
        return "\n".join(lines)


def parse_python(file: str, text: str) -> PythonSource:
    """A file's syntax tree; `DefinitionError` where it does not parse."""
    try:
        tree = ast.parse(text, file)
        _check_size(file, tree)
    except SyntaxError as error:
        raise DefinitionError(f"{file}:{error.lineno or 1}: not Python: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        raise DefinitionError(f"{file}: not Python that can be read: {error}") from None
    return PythonSource(file, text, tree)


def _check_size(file: str, tree: ast.Module) -> None:
    """Refuse what is too large, nested too deep, or has numbers too long to be written again.

    Texts lose halves of characters, which no file can hold.
    """
    count, depth = 0, 0
    level: list[ast.AST] = [tree]
    while level:
        count, depth = count + len(level), depth + 1
        if count > _MAX_NODES or depth > _MAX_DEPTH:
            raise DefinitionError(f"{file}: more than {_MAX_NODES:,} parts, or nested deeper than {_MAX_DEPTH}")
        for node in (each for each in level if isinstance(each, ast.Constant)):
            if isinstance(node.value, int) and node.value.bit_length() > _MAX_BITS:
                raise DefinitionError(f"{file}:{node.lineno}: a number with more than {_MAX_BITS:,} bits")
            if isinstance(node.value, str) and not node.value.isascii():
                node.value = node.value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        level = [each for node in level for each in ast.iter_child_nodes(node)]


def parameters_of(function: PythonFunction) -> list[str]:
    """The parameters as they are written, without what has to be imported: annotations of built-in types stay.

    >>> parameters_of(ast.parse("def f(a: str, b: Tool = 3, *, c=None): pass").body[0])
    ['a: str', 'b=3', '*', 'c=None']
    """
    signature = function.args
    every = [*signature.posonlyargs, *signature.args]
    defaults: list[ast.expr | None] = [None] * (len(every) - len(signature.defaults)) + list(signature.defaults)
    parameters = [_parameter(each, default) for each, default in zip(every, defaults, strict=True)]
    if signature.vararg:
        parameters.append(f"*{signature.vararg.arg}")
    elif signature.kwonlyargs:
        parameters.append("*")
    parameters += [
        _parameter(each, default) for each, default in zip(signature.kwonlyargs, signature.kw_defaults, strict=True)
    ]
    return [*parameters, f"**{signature.kwarg.arg}"] if signature.kwarg else parameters


_BUILT_IN: Final = frozenset({"str", "int", "float", "bool", "list", "dict", "object", "bytes", "None", "tuple", "set"})


def _parameter(parameter: ast.arg, default: ast.expr | None) -> str:
    names = (
        {each.id for each in ast.walk(parameter.annotation) if isinstance(each, ast.Name)}
        if parameter.annotation
        else {""}
    )
    plain = names <= _BUILT_IN and not any(isinstance(each, ast.Attribute | ast.Call) for each in ast.walk(parameter))
    annotation = f": {ast.unparse(parameter.annotation)}" if plain and parameter.annotation else ""
    if default is None:
        return f"{parameter.arg}{annotation}"
    text = "None" if literal_of(default, _NOTHING) is _NOTHING else ast.unparse(default)
    return f"{parameter.arg}{annotation} = {text}" if annotation else f"{parameter.arg}={text}"


_NOTHING: Final = object()


def text_of(node: ast.expr | None) -> str | None:
    """The text that a literal is; None for anything else."""
    value = literal_of(node)
    return value if isinstance(value, str) else None


def literal_of(node: ast.expr | None, otherwise: Any = None) -> Any:
    """The value of a literal; nothing is evaluated."""
    if node is None:
        return otherwise
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return otherwise


def plain_value(value: Any) -> Any:
    """The value of a literal as JSON has it: tuples and sets are lists; None for what JSON does not have.

    >>> plain_value({1: ("a", b"b"), "c": {3, 2}})
    {'1': ['a', None], 'c': [2, 3]}
    """
    if isinstance(value, dict):
        return {str(key): plain_value(each) for key, each in cast("dict[Any, Any]", value).items()}
    if isinstance(value, set):
        return [plain_value(each) for each in sorted(cast("set[Any]", value), key=repr)]
    if isinstance(value, list | tuple):
        return [plain_value(each) for each in cast("list[Any]", value)]
    return value if isinstance(value, str | int | float) else None


def call_name(node: ast.expr) -> str:
    """Returns a dotted name, as in `crewai.Agent`; empty if the expression is not a name.

    >>> call_name(ast.parse("self.agents.x(1)").body[0].value)
    'self.agents.x'
    """
    at: ast.expr = node.func if isinstance(node, ast.Call) else node
    parts: list[str] = []
    while isinstance(at, ast.Attribute):
        parts.append(at.attr)
        at = at.value
    return ".".join([at.id, *reversed(parts)]) if isinstance(at, ast.Name) else ""


def last_name(node: ast.expr) -> str:
    """The last part of a dotted name: `Agent` of `crewai.Agent`."""
    return call_name(node).rpartition(".")[2]


def targets_of(node: ast.AST) -> list[ast.expr]:
    """Returns the targets of an assignment; none of another node."""
    return (
        list(node.targets)
        if isinstance(node, ast.Assign)
        else [node.target]
        if isinstance(node, ast.AnnAssign | ast.AugAssign)
        else []
    )


def method_of(definition: ast.ClassDef, *names: str) -> PythonFunction | None:
    """The first method of a class that has one of these names."""
    return next((each for each in definition.body if isinstance(each, PythonFunction) and each.name in names), None)


def is_standard(module: str) -> bool:
    """Tells whether Python brings a module."""
    return module.partition(".")[0] in sys.stdlib_module_names


def decorators_of(node: Any) -> Iterator[tuple[str, ast.expr]]:
    """The names of a definition's decorators, without their arguments."""
    expressions: Sequence[ast.expr] = node.decorator_list
    for each in expressions:
        yield call_name(each), each
