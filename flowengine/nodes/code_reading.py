"""Reads what functions, classes and objects do, as a text that is the same in every process, and tells what of it
cannot be read.

Theory of operation:

1. Code of the author's is read to the bottom: bytecode, constants, defaults, what its closure holds, what it wraps,
   the bodies of classes, and the values of the module's names that it uses. Each piece has one record; where a record
   speaks of another piece, it gives that one's number.
2. Installed packages, Python itself and FlowEngine are known by the names of what is used of them. Of their closures
   (a decorator's inside) it is read what they hold.
3. A value is read as what a copy of it would be made from. What gives no such thing (a lock, a connection, an open
   file), and code that finds its parts only when it runs (`eval`), is a gap: nothing that depends on it can be told
   to be the same another time.
4. What changes while the program runs (a list that a function fills) is read as it was when it was first seen, so
   that the text stays the same; it is a gap from then on.

Files, clocks, the network and the environment are no code, and are not read.
"""

from __future__ import annotations

import copyreg
import hashlib
import inspect
import marshal
import os
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cached_property, partial
from pathlib import PurePath
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, Final, NamedTuple, cast
from weakref import ref

from flowengine.core import unprefixed_text
from flowengine.nodes.bytecode import (
    NameUse,
    body_of,
    imported_module,
    is_authors_function,
    is_authors_module,
    is_filled_only,
    names_in_code,
    qualified_name,
)


class CodeReading(NamedTuple):
    """What some code does."""

    text: str
    gaps: Sequence[str]
    """What of it cannot be read: where it is, and why."""


def read_code(values: Iterable[Any]) -> CodeReading:
    """Reads functions, classes and other values, with all that they lead to."""
    reader = _Reader()
    text = reader.read(values)
    return CodeReading(text, [unprefixed_text(each) for each in reader.gaps])


# --- Values that change while the program runs

_REMEMBERED: Final = 4_096
_MOST_HELD: Final = 1_000
"""Entries of a value that is held so that a change of it is seen; a larger one is read as it is."""


class _Lead(NamedTuple):
    """A piece of code in a value."""

    where: str
    value: Any

    @property
    def name(self) -> str:
        return qualified_name(self.value)


class _Seen(NamedTuple):
    find: Callable[[], Any]
    parts: Sequence[str | _Lead]


_SEEN: Final[OrderedDict[int, _Seen]] = OrderedDict()
"""By the value's `id`, which is its own while the value is there."""


def _first_parts(value: Any, parts: Sequence[str | _Lead]) -> tuple[Sequence[str | _Lead], bool]:
    """What a value consisted of when it was first seen, and whether it has changed since."""
    entry = _SEEN.get(id(value))
    if entry is not None and entry.find() is value:
        _SEEN.move_to_end(id(value))
        return entry.parts, _without_leads(entry.parts) != _without_leads(parts)
    try:
        find: Callable[[], Any] = ref(value)
    except TypeError:
        if hasattr(value, "__len__") and len(value) > _MOST_HELD:
            return parts, False
        find = partial(_same, value)
    _SEEN[id(value)] = _Seen(find, parts)
    while len(_SEEN) > _REMEMBERED:
        _SEEN.popitem(last=False)
    return parts, False


def _same(value: Any) -> Any:
    return value


def _without_leads(parts: Iterable[str | _Lead]) -> list[str]:
    return [each if isinstance(each, str) else each.name for each in parts]


# --- Reads

_ATOMS: Final = frozenset({type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented)})
_NAMED: Final[Any] = (
    WrapperDescriptorType,
    MethodDescriptorType,
    MemberDescriptorType,
    GetSetDescriptorType,
    MethodWrapperType,
    type(dict.__dict__["fromkeys"]),
)
_CODE: Final[Any] = (
    *(FunctionType, type, ModuleType, MethodType, BuiltinFunctionType, partial, property, cached_property),
    *(staticmethod, classmethod, type(names_in_code), *_NAMED),
)
"""What is read piece by piece; any other is a value."""
_DYNAMIC: Final = frozenset({"eval", "exec", "globals", "__import__", "compile"})
_NOT_MEANT: Final = frozenset(
    {
        *("__dict__", "__weakref__", "__module__", "__qualname__", "__abstractmethods__", "_abc_impl"),
        *("__firstlineno__", "__static_attributes__", "__signature__", "__subclasshook__", "__slotnames__"),
        "__annotations__",  # They are resolved as they are used; what is made of them is read where it is kept.
        "_value2member_map_",  # Combinations of flags come into it as they are used.
    }
)
_ADDRESS: Final = "cls_ref"
"""Where pydantic's decorators keep the address of their class, another one in each process."""
_OF_PYDANTIC: Final = frozenset({"__pydantic_fields__", "__pydantic_decorators__", "__pydantic_custom_init__"})
_MOST_PIECES: Final = 100_000
_MOST_SHOWN: Final = 200


class _Reader:
    """Reads one set of values."""

    def __init__(self) -> None:
        self.gaps: dict[str, None] = {}
        self._numbers: dict[int, int] = {}
        self._referents: list[Any] = []
        """The values with a number: they live on, so that nothing else comes to have their `id`."""
        self._modules: set[tuple[int, frozenset[str] | None]] = set()
        """The modules that were read, with the names that were looked up in them: they may lead to one another."""
        self._waiting: deque[_Lead] = deque()
        self._pieces = 0

    def read(self, values: Iterable[Any]) -> str:
        records = [" ".join(self._token("", each) for each in values)]
        while self._waiting:
            where, value = self._waiting.popleft()
            number = self._numbers[id(value)]
            records.append(f"#{number} {qualified_name(value)} {' '.join(self._describe(where, value))}")
        return unprefixed_text("\n".join(records))

    def _tell_gap(self, where: str, why: str) -> None:
        self.gaps[f"{where or 'it'}: {why}"] = None

    def _token(self, where: str, value: Any) -> str:
        """The text of a value; of a piece of code its number."""
        if type(value) in _ATOMS:
            return _atom(value)
        if _is_code(value):
            return self._number(_Lead(where, value))
        gaps, plain = len(self.gaps), _plain(value)
        token_parts: list[str | _Lead] = []
        if plain is not None:
            token_parts.append(plain)
        else:
            try:
                self._write(where, value, token_parts, {})
            except RecursionError:
                self._tell_gap(where, "it is nested too deep")
        parts, has_changed = _first_parts(value, token_parts)
        if has_changed and len(self.gaps) == gaps:
            self._tell_gap(where, "it has changed while the program runs")
        return "".join(each if isinstance(each, str) else self._number(each) for each in parts)

    def _number(self, lead: _Lead) -> str:
        value = lead.value
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self._numbers)
            self._referents.append(value)
            self._waiting.append(lead)
        return f"#{number}"

    # --- Code

    def _describe(self, where: str, value: Any) -> Iterator[str]:
        """Yields the texts of a piece of code."""
        if isinstance(value, FunctionType):
            yield from self._function(value)
        elif isinstance(value, type):
            yield from self._class(value)
        elif isinstance(value, ModuleType):
            yield from self._module(value, None)
        elif isinstance(value, MethodType):
            yield self._token(where, value.__func__)
            yield self._token(where or f"the object of `{value.__name__}`", value.__self__)
        elif isinstance(value, BuiltinFunctionType):
            if not isinstance(value.__self__, ModuleType | type(None)):
                yield self._token(where, value.__self__)
        elif isinstance(value, partial):
            inner = cast("partial[Any]", value)
            for each in (inner.func, inner.args, inner.keywords):
                yield self._token(where or "`partial`", each)
        elif isinstance(value, property):
            for each in (value.fget, value.fset, value.fdel):
                yield self._token(where, each)
        elif isinstance(value, cached_property):
            yield self._token(where, cast("cached_property[Any]", value).func)
        elif not isinstance(value, _NAMED):
            yield self._token(where, getattr(value, "__func__", None) or value.__wrapped__)

    def _function(self, function: FunctionType) -> Iterator[str]:
        code, is_authors = function.__code__, is_authors_function(function)
        if is_authors:
            yield body_of(code)
        name = f"`{function.__qualname__}`"
        wrapped = {key: each for key, each in vars(function).items() if key != "__wrapped__"}
        if is_authors or function.__closure__ or wrapped:
            yield self._token(f"a default of {name}", function.__defaults__)
            yield self._token(f"a default of {name}", function.__kwdefaults__)
            yield self._token(f"an attribute of {name}", wrapped or None)
        for key, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
            try:
                content = cell.cell_contents
            except ValueError:  # It gets its value later, or never.
                continue
            if not is_filled_only(names_in_code(code), key, content):
                yield f"{key}={self._token(f'`{key}`, which {name} holds', content)}"
        if hasattr(function, "__wrapped__"):
            yield self._token("", cast(Any, function).__wrapped__)
        if is_authors:
            yield from self._globals(function, name)

    def _globals(self, function: FunctionType, name: str) -> Iterator[str]:
        names, namespace = names_in_code(function.__code__), function.__globals__
        module = str(namespace.get("__name__", ""))
        for key in sorted(names.used):
            where = f"`{key}` of {module}"
            if key in names.stores:
                self._tell_gap(where, f"{name} changes it")
            elif key not in namespace:
                if key in _DYNAMIC:
                    self._tell_gap(name, f"it calls `{key}`")
            elif isinstance(value := namespace[key], ModuleType):
                only = None if names.used[key] is NameUse.ALONE else names.attributes
                yield f"{key}={' '.join(self._module(value, only))}"
            elif not is_filled_only(names, key, value):
                yield f"{key}={self._token(where, _relative(value, namespace.get('__file__')))}"
        for imported, level in names.imports:
            target = imported_module(imported, level, str(namespace.get("__package__") or ""))
            if isinstance(target, ModuleType):
                yield f"{imported}={' '.join(self._module(target, names.attributes))}"
            elif target is not None:
                self._tell_gap(f"`{imported}`, which {name} imports", target)
        if "import_module" in names.attributes | names.used.keys():
            self._tell_gap(name, "it calls `import_module`")

    def _module(self, module: ModuleType, only: frozenset[str] | None) -> Iterator[str]:
        """Yields the texts of what is used of a module; `only`: of its names, None for all."""
        yield module.__name__
        if not is_authors_module(module.__name__) or (id(module), only) in self._modules:
            return
        self._modules.add((id(module), only))
        self._referents.append(module)
        for key, value in sorted(vars(module).items()):
            if key.startswith("__") or (only is not None and key not in only):
                continue
            if isinstance(value, ModuleType):
                yield f"{key}={' '.join(self._module(value, only or frozenset()))}"
            else:
                file = vars(module).get("__file__")
                yield f"{key}={self._token(f'`{key}` of {module.__name__}', _relative(value, file))}"

    def _class(self, kind: type) -> Iterator[str]:
        if not is_authors_module(str(kind.__module__)):
            return
        for each in (*kind.__bases__, type(kind)):
            yield self._token("", each)
        for key, value in vars(kind).items():
            if key in _NOT_MEANT or (key.startswith("__pydantic_") and key not in _OF_PYDANTIC):
                continue
            yield f"{key}={self._token(f'`{kind.__qualname__}.{key}`', value)}"

    # --- Values

    def _write(self, where: str, value: Any, parts: list[str | _Lead], inside: dict[int, int]) -> None:
        """Appends what a value consists of."""
        self._pieces += 1
        kind = cast(Any, type(value))
        if self._pieces > _MOST_PIECES:
            self._tell_gap(where, "it is too large to be compared")
        elif kind in _ATOMS:
            parts.append(_atom(value))
        elif kind is CodeType:
            parts.append(body_of(value))
        elif _is_code(value):
            parts.append(_Lead(where, value))
        elif id(value) in inside:
            parts.append(f"^{inside[id(value)]}")
        else:
            inside[id(value)] = len(inside)
            self._referents.append(value)
            if kind in (dict, MappingProxyType):
                pairs = cast("Mapping[Any, Any]", value).items()
                self._write_all(where, "{", (part for each in pairs for part in each), parts, inside)
            elif kind in (list, tuple):
                self._write_all(where, f"{kind.__name__}(", value, parts, inside)
            elif kind in (set, frozenset):
                self._write_set(where, value, parts, inside)
            else:
                self._write_object(where, value, parts, inside)

    def _write_all(
        self, where: str, opening: str, values: Iterable[Any], parts: list[str | _Lead], inside: dict[int, int]
    ) -> None:
        parts.append(opening)
        for each in values:
            self._write(where, each, parts, inside)
            parts.append(",")
        parts.append(")")

    def _write_set(self, where: str, values: Iterable[Any], parts: list[str | _Lead], inside: dict[int, int]) -> None:
        elements: list[list[str | _Lead]] = []
        parts.append("set")
        for each in values:
            elements.append([])
            self._write(where, each, elements[-1], dict(inside))
        for each in sorted(elements, key=_without_leads):
            parts += ["{", *each, "}"]

    def _write_object(self, where: str, value: Any, parts: list[str | _Lead], inside: dict[int, int]) -> None:
        kind = cast(Any, type(value))
        parts += ["<", _Lead(where, kind)]
        try:
            reduction: Any = "environment" if value is os.environ else _reduce(value)
            if isinstance(reduction, str):
                parts.append(f" {reduction}>")
                return
            function, arguments, state, items, entries = (*reduction, None, None, None)[:5]
            rest = [list(each) if each is not None else None for each in (items, entries)]
        except Exception:  # Whatever a class does with it, it does not say what its object consists of.
            self._tell_gap(where, f"a {kind.__name__} does not say what it consists of")
            parts.append(">")
            return
        self._write_all(where, "", [function, arguments, _state(kind, state), *rest], parts, inside)


def _is_code(value: Any) -> bool:
    return isinstance(value, _CODE)


def _atom(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else _hash(text.encode("utf-8", "surrogatepass"))


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def _state(kind: Any, state: Any) -> Any:
    """An object's state without what is worked out from the rest, or is another in each process."""
    if isinstance(state, tuple):  # What it has by names, and what in slots.
        return tuple(_state(kind, each) for each in cast("tuple[Any, ...]", state))
    if not isinstance(state, dict):
        return state
    entries = cast("dict[Any, Any]", state).items()
    return {key: each for key, each in entries if key != _ADDRESS and not _is_derived(kind, key)}


def _is_derived(kind: Any, key: Any) -> bool:
    return isinstance(key, str) and isinstance(inspect.getattr_static(kind, key, None), cached_property)


def _reduce(value: Any) -> Any:
    if isinstance(value, Enum):  # Some versions of Python tell its name alone.
        return type(value), (value.name, value.value)
    registered = copyreg.dispatch_table.get(cast(Any, type(value)))
    return value.__reduce_ex__(4) if registered is None else registered(value)


def _plain(value: Any) -> str | None:
    """The text of a value that is made of Python's own plain types; None for any other."""
    try:
        return f"={_hash(marshal.dumps(value, 0))}"  # By Python itself, where a table has a million entries.
    except ValueError:
        return None


def _relative(value: Any, file: Any) -> Any:
    """A path that lies where its module does is told from there: the same in each copy of a project."""
    if not (isinstance(file, str) and os.path.isabs(file) and (isinstance(value, PurePath) or type(value) is str)):
        return value
    folder, text = os.path.dirname(file), str(value)
    if not os.path.isabs(text) or (isinstance(value, str) and not text.startswith(os.path.join(folder, ""))):
        return value
    is_near = os.path.commonpath([folder, text]) != os.path.abspath(os.sep)
    return ("path", os.path.relpath(text, folder)) if is_near else value
