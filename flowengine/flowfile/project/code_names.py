"""Reads `module:name`, as flows name code: what is said, what is private, and where an object was made. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Final, NamedTuple

from flowengine.core import describe_error, unprefixed_name

_TARGET: Final = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)")


class CodeName(NamedTuple):
    module: str
    name: str

    @property
    def is_private(self) -> bool:
        """Whether a part of it begins with an underscore, which by Python's custom is for its module alone."""
        return any(part.startswith("_") for part in (*self.module.split("."), self.name))


def code_name(target: str) -> CodeName | None:
    """The two parts; None for what is no such name.

    >>> code_name("tools.search:find")
    CodeName(module='tools.search', name='find')
    >>> [code_name(each) for each in ("tools", "tools:find.__globals__", "../tools:find", "tools..x:find")]
    [None, None, None, None]
    """
    match = _TARGET.fullmatch(target)
    return None if match is None else CodeName(match[1], match[2])


def home_of(value: object) -> str | None:
    """The module in which a function or a class was defined; None where that is not to be told."""
    home: Any = getattr(value, "__module__", None) if issubclass(type(value), _TELLING) else None
    return unprefixed_name(home) if isinstance(home, str) else None


_TELLING: Final = (type, FunctionType, BuiltinFunctionType, MethodType, type(lru_cache(lambda: None)))
"""Types whose `__module__` tells who made a value; for all others it is that of the value's class."""


# --- Which names a module's file binds and where they come from, read from its syntax tree; nothing of it is run


def names_in(file: Path) -> Mapping[str, str | None] | None:
    """The names that a module binds; None where that cannot be seen (it does not parse, `import *`).

    Each with the module that it is imported from (`.near` for one beside it), or None where it is the module's own:
    defined there, or listed in `__all__`.
    """
    try:
        return _names(file, file.stat().st_mtime_ns)
    except OSError:
        return None


def find_syntax_problem(file: Path) -> str | None:
    """Why a module's file is no Python, which every import of it would say; None where it is, or cannot be read."""
    try:
        ast.parse(file.read_bytes(), str(file))
    except (SyntaxError, ValueError) as error:
        return describe_error(error)
    except (OSError, RecursionError, MemoryError):
        pass
    return None


class Parameters(NamedTuple):
    """The parameters of a function."""

    required: tuple[str, ...]
    """The parameters without a default, in their order."""
    names: tuple[str, ...]
    takes_any: bool
    """Whether it also takes names that it does not list (`**named`)."""
    by_name_only: bool
    """Whether a required one can only be given by its name."""
    nameless: tuple[str, ...]
    """The parameters that no name gives, as they are written: `a, /`, `*rest`, `**named`."""
    context: str | None
    """The first that is a `Context` of a run, by its annotation."""


class ToolMark(NamedTuple):
    """The facts about a function as a tool."""

    name: str | None
    """The tool's name for models; None where that cannot be seen, as with what follows."""
    effect: str | None
    """The effect that its `@tool` mark declares; `none` without one."""
    is_asked: bool | None
    """Whether a person is asked before each call: `@tool(approve=True)`; None where it does not say."""
    returns: ast.expr | None
    """Its return annotation."""


class CodeDefinition(NamedTuple):
    """The object that a name of a module stands for."""

    kind: str
    """`a function`, `a class` (one without bases), or the type of a constant."""
    parameters: Parameters | None = None
    """The parameters of a function."""
    mark: ToolMark | None = None
    """The facts about a function as a tool."""

    @property
    def is_callable(self) -> bool:
        return self.kind in (_FUNCTION, _CLASS)


_FUNCTION: Final = "a function"
_CLASS: Final = "a class"


def definition_of(file: Path, name: str) -> CodeDefinition | None:
    """The object that a module's name stands for in every run; None where that cannot be seen: it is bound several
    times, its value is worked out, a decorator may change it, or a class may inherit something.
    """
    try:
        return _definition(file, file.stat().st_mtime_ns, name)
    except OSError:
        return None


@lru_cache(maxsize=256)
def _definition(file: Path, modified_at: int, name: str) -> CodeDefinition | None:
    tree = _tree(file, modified_at)
    if tree is None:
        return None
    sources = [*_find_bound_names(tree.body)]
    bound = [each for each, _ in sources]
    if bound.count(name) != 1 or "*" in bound:
        return None
    for each in tree.body:
        match each:
            case ast.FunctionDef(name=bound_name) | ast.AsyncFunctionDef(name=bound_name) if bound_name == name:
                return _read_function(each, dict(sources))
            case ast.ClassDef(name=bound_name, bases=[], keywords=[], decorator_list=[]) if bound_name == name:
                return CodeDefinition(_CLASS)
            case (
                ast.Assign(targets=[ast.Name(id=bound_name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=bound_name), value=ast.expr() as value)
            ) if bound_name == name:
                return _read_constant(value, name, tree)
            case _:
                pass
    return None


def _read_constant(value: ast.expr, name: str, tree: ast.Module) -> CodeDefinition | None:
    for each in ast.walk(tree):  # Code may give it another value later.
        if isinstance(each, ast.Global) and name in each.names:
            return None
        if isinstance(each, ast.Name) and each.id in ("exec", "globals", "setattr"):
            return None
    if isinstance(value, ast.Constant):
        return CodeDefinition("None" if value.value is None else type(value.value).__name__)
    kind = next((kind for node, kind in _LITERALS.items() if isinstance(value, node)), None)
    return None if kind is None else CodeDefinition(kind)


_LITERALS: Final = {ast.JoinedStr: "str", ast.List: "list", ast.Tuple: "tuple", ast.Dict: "dict", ast.Set: "set"}


def _read_function(
    function: ast.FunctionDef | ast.AsyncFunctionDef, sources: Mapping[str, str | None]
) -> CodeDefinition | None:
    marks = [each.func if isinstance(each, ast.Call) else each for each in function.decorator_list]
    if not all(isinstance(each, ast.Name) and _is_mark(each.id, sources.get(each.id)) for each in marks):
        return None
    signature = function.args
    first = [each.arg for each in signature.posonlyargs]
    plain = [*first, *(each.arg for each in signature.args)]
    by_name = {each.arg: default for each, default in zip(signature.kwonlyargs, signature.kw_defaults, strict=True)}
    needed = [each for each, default in by_name.items() if default is None]
    arguments = [*signature.posonlyargs, *signature.args, *signature.kwonlyargs]
    nameless = [f"{', '.join(first)}, /"] if first else []
    nameless += [f"*{signature.vararg.arg}"] if signature.vararg is not None else []
    nameless += [f"**{signature.kwarg.arg}"] if signature.kwarg is not None else []
    parameters = Parameters(
        required=(*plain[: len(plain) - len(signature.defaults)], *needed),
        names=(*plain, *by_name),
        takes_any=signature.kwarg is not None,
        by_name_only=bool(needed),
        nameless=tuple(nameless),
        context=next((each.arg for each in arguments if _is_context(each.annotation, sources)), None),
    )
    return CodeDefinition(_FUNCTION, parameters, _read_mark(function))


def _read_mark(function: ast.FunctionDef | ast.AsyncFunctionDef) -> ToolMark:
    marks = [mark for mark in function.decorator_list if isinstance(mark, ast.Call)]
    keywords = {word.arg: word.value for mark in marks for word in mark.keywords}
    approval = keywords.get("approve", ast.Constant(None))
    is_asked = approval.value is True if isinstance(approval, ast.Constant) and approval.value is not None else None
    if not isinstance(approval, ast.Constant):
        is_asked = False
    if None in keywords:  # `**options`
        return ToolMark(None, None, is_asked, function.returns)
    name, effect = _text(keywords.get("name"), function.name), _text(keywords.get("effect"), "none")
    return ToolMark(name, effect, is_asked, function.returns)


def _text(expression: ast.expr | None, otherwise: str) -> str | None:
    """The text that is given; None for what is no literal."""
    if expression is None:
        return otherwise
    return expression.value if isinstance(expression, ast.Constant) and isinstance(expression.value, str) else None


def _is_mark(name: str, source: str | None) -> bool:
    """Tells whether a decorator is `@tool`, which leaves the function as it is."""
    return name == "tool" and source is not None and source.partition(".")[0] == "flowengine"


def _is_context(annotation: ast.expr | None, sources: Mapping[str, str | None]) -> bool:
    """Tells whether an annotation has FlowEngine's `Context` in it, by itself or as an attribute of its module, also
    where it is written as a text."""
    for each in _types_in(annotation):
        root: ast.expr = each
        while isinstance(root, ast.Attribute):
            root = root.value
        name = each.attr if isinstance(each, ast.Attribute) else each.id
        source = sources.get(root.id) if isinstance(root, ast.Name) else None
        if name == "Context" and (source or "").partition(".")[0] == "flowengine":
            return True
    return False


def _types_in(annotation: ast.expr | None) -> Iterator[ast.Name | ast.Attribute]:
    """The types that an annotation names, its own and those inside of it (`Context | None`, `"list[Context]"`)."""
    match annotation:
        case ast.Name() | ast.Attribute():
            yield annotation
        case ast.Constant(value=str(text)):
            try:
                yield from _types_in(ast.parse(text.strip(), mode="eval").body)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                return
        case ast.BinOp(left=one_side, right=other_side):
            yield from _types_in(one_side)
            yield from _types_in(other_side)
        case ast.Subscript(value=ast.Name(id="Literal") | ast.Attribute(attr="Literal")):
            return
        case ast.Subscript(value=ast.Name(id="Annotated") | ast.Attribute(attr="Annotated"), slice=ast.Tuple(elts=of)):
            yield from _types_in(of[0])
        case ast.Subscript(slice=inside):
            for each in inside.elts if isinstance(inside, ast.Tuple) else [inside]:
                yield from _types_in(each)
        case _:
            return


def imports_in(file: Path, name: str) -> tuple[str, ...]:
    """The modules that a function or class of a module's file is sure to import: at the module's top, and in the
    function before anything branches. Imports inside of `try` and `if` are meant to be able to fail."""
    try:
        tree = _tree(file, file.stat().st_mtime_ns)
    except OSError:
        return ()
    body = [] if tree is None else tree.body
    certain = [each for each in body if isinstance(each, ast.Import | ast.ImportFrom)]
    for each in body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name == name:
            straight = takewhile(lambda step: isinstance(step, _STRAIGHT), each.body)
            certain += [step for step in straight if isinstance(step, ast.Import | ast.ImportFrom)]
    return tuple(dict.fromkeys(module for each in certain for module in _modules_of(each)))


_STRAIGHT: Final = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Pass)


def _modules_of(statement: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """Absolute names alone: what lies beside is the package's own matter."""
    if isinstance(statement, ast.Import):
        yield from (alias.name for alias in statement.names)
    elif not statement.level and statement.module:
        yield statement.module


@lru_cache(maxsize=64)
def _tree(file: Path, modified_at: int) -> ast.Module | None:
    try:
        return ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


@lru_cache(maxsize=256)
def _names(file: Path, modified_at: int) -> Mapping[str, str | None] | None:
    tree = _tree(file, modified_at)
    if tree is None:
        return None
    names: dict[str, str | None] = {}
    for name, source in _find_bound_names(tree.body):
        names[name] = names.get(name) or source  # Imported in one branch is imported.
    if names.keys() & {"*", "__getattr__"}:
        return None
    return names | dict.fromkeys(names.keys() & set(_declared_names(tree.body)))


def _find_bound_names(body: Iterable[ast.AST]) -> Iterator[tuple[str, str | None]]:
    """Names bound by the statements of a module, in their order, also inside `if`, `try`, `with`, `match` and loops."""
    waiting = [*reversed([*body])]
    while waiting:
        match waiting.pop():
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, None
            case ast.Import(names=names):
                yield from ((each.asname or each.name.partition(".")[0], each.name) for each in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                source = "." * level + (module or "")
                yield from ((each.asname or each.name, source) for each in names)
            case ast.Name(id=name, ctx=ast.Store()):
                yield name, None
            case ast.Lambda():
                pass  # Its names are its own, as those of a comprehension.
            case ast.comprehension(ifs=conditions):
                waiting += reversed(conditions)
            case inner:
                match inner:
                    case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                        yield name, None
                    case _:
                        pass
                waiting += reversed([*ast.iter_child_nodes(inner)])


def _declared_names(body: list[ast.stmt]) -> Iterator[str]:
    """Yields the strings in `__all__`."""
    for statement in body:
        if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if any(isinstance(each, ast.Name) and each.id == "__all__" for each in targets):
                expressions = ast.walk(statement.value) if statement.value is not None else ()
                yield from (str(each.value) for each in expressions if isinstance(each, ast.Constant))
