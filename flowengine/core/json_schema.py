"""Checks JSON Schemas themselves, and values against them.

It knows the library that validates and keeps it off the network: a schema may refer to its own
parts only. It knows no model and no answer. Imported where a schema is used, since the library
is slow to load.

Schemas are written by authors, values by strangers. So the cost of a check grows with the size of the value and no
faster, and what is told of it is bounded:

1. Of each part of a schema there is one validator, and not one for each value that it is asked about (`_Parts`).
2. Messages quote the beginning of a value: lists, objects and texts are handed over as ones that know no more of
   themselves (`_quote_briefly`).
3. A part tells the first of a value's violations (`_MOST_OF_PART`).
4. Keywords that would compare each item with each other one have texts or sets to look in (`_check_unique`,
   `_make_unevaluated`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from itertools import islice
from typing import Any, Final, NamedTuple, cast

from jsonschema import FormatChecker, SchemaError, ValidationError, exceptions
from jsonschema.protocols import Validator
from jsonschema.validators import Draft202012Validator, validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from flowengine.core.values import brief_repr, describe_value
from flowengine.errors import DefinitionError

__all__ = ["describe_problems", "find_misfits", "make_validator"]

_LONGEST: Final = 300
_LONGEST_QUOTE: Final = 100
_MOST_OF_PART: Final = 20
_MOST_READ: Final = 500
"""Violations among which the most important one is looked for."""
_MOST_MISFITS: Final = 20
_MOST_PROBLEMS: Final = 5

# --- Validators that read no other schema


class Misfit(NamedTuple):
    path: str
    message: str


def find_misfits(schema: Mapping[str, Any], value: Any) -> list[Misfit]:
    """Lists how a value violates its schema, the most important violation first; of very many violations the first.

    >>> find_misfits({"type": "object", "required": ["a"]}, {"b": 1})
    [Misfit(path='$', message="'a' is a required property")]
    >>> find_misfits({"$ref": "file:///etc/passwd"}, 1)
    [Misfit(path='$', message="its schema refers to 'file:///etc/passwd', which is no part of it")]
    """
    try:
        kind: Any = validator_for(dict(schema), default=Draft202012Validator)
        kind.check_schema(dict(schema))
        found = list(islice(_bounded(kind, schema).iter_errors(_quote_briefly(value)), _MOST_READ))
    except SchemaError as error:
        return [Misfit("$", f"its schema is no JSON Schema: {error.message[:_LONGEST]}")]
    except Unresolvable as error:
        return [Misfit("$", f"its schema refers to '{error.ref}', which is no part of it")]
    except RecursionError:
        return [Misfit("$", "it is nested too deeply, or its schema refers to itself without end")]
    except Exception as error:  # The library fails in many ways over schemas that make no sense.
        return [Misfit("$", f"its schema cannot be used: {str(error)[:_LONGEST]}")]
    if not found:
        return []
    first: Any = cast(Any, exceptions).best_match(found)
    told = dict.fromkeys(Misfit(*_tell(each)) for each in (first, *found))
    return list(islice(told, _MOST_MISFITS))


def make_validator(schema: Mapping[str, Any]) -> Validator:
    """The validator of a schema; what is no schema is a `DefinitionError`.

    >>> make_validator({"name": "string"})
    Traceback (most recent call last):
    flowengine.errors.DefinitionError: this is no JSON Schema: none of its keys (name) is a keyword; ...
    """
    try:
        draft = validator_for(schema, default=Draft202012Validator)
    except (TypeError, ValueError, AttributeError):
        raise DefinitionError(f"this is no JSON Schema: its $schema is {describe_value(schema['$schema'])}") from None
    keywords = cast("Mapping[str, Any]", draft.VALIDATORS)
    if not keywords.keys() & schema.keys():
        raise DefinitionError(
            f"this is no JSON Schema: none of its keys ({', '.join(map(str, schema)) or 'it has none'}) is a keyword; "
            "fields go under {type: object, properties: {...}}"
        )
    try:
        draft.check_schema(dict(schema))
    except SchemaError as error:
        raise DefinitionError(f"this is no JSON Schema: at {error.json_path}: {error.message[:_LONGEST]}") from error
    _check_references(schema)
    check = _bounded(draft, schema)
    try:
        check.is_valid(None)
    except RecursionError as error:
        raise DefinitionError("the JSON Schema refers to itself without end") from error
    return check


def describe_problems(check: Validator, value: Any) -> list[str]:
    """Describes how a value violates its schema, in a few lines; empty if it does not."""
    try:
        found = islice(check.iter_errors(_quote_briefly(value)), _MOST_PROBLEMS)
        return [": ".join(_tell(each)) for each in found]
    except RecursionError:
        return ["$: it is nested too deeply"]


def _tell(error: Any) -> tuple[str, str]:
    """Where it is, and what."""
    return error.json_path[:_LONGEST], error.message[:_LONGEST]


# --- Validators whose cost is bounded


def _bounded(draft: Any, schema: Mapping[str, Any]) -> Validator:
    """The validator of a schema that is checked already."""
    root = dict(schema)
    return _bounded_draft(draft)(root, registry=Registry[Any](), format_checker=_Parts(root))


class _Parts(FormatChecker):
    """Keeps one validator for each part of a schema, and goes with all of them; it checks no format."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        super().__init__(formats=())
        self._root = root
        self._known: dict[int, tuple[Any, Any]] = {}
        self._moves = _moves_references(root, is_root=True)

    def find(self, validator: Any, part: Mapping[str, Any]) -> Any:
        """The validator of a part; None where it depends on the way that led to the part."""
        if self._moves:
            return None
        found = self._known.get(id(part))
        if found is None:
            found = self._known[id(part)] = (
                part,
                validator.evolve(schema=part),
            )  # With the part, the id stays its own.
        return found[1]

    def look_up(self, reference: Any) -> Any:
        """The part that a JSON Pointer refers to; None for other references, and for what is not there."""
        if self._moves or not isinstance(reference, str) or not _PLAIN_POINTER.fullmatch(reference):
            return None
        part: Any = self._root
        for name in reference.split("/")[1:]:
            part = cast(Any, part).get(name) if isinstance(part, Mapping) else None
        # What is in lists, and what to say of a missing part, is left to the library.
        return cast(Any, part) if isinstance(part, Mapping) else None


_PLAIN_POINTER: Final = re.compile(r"#(/[^/~%]*)*")
_MOVING: Final = ("$id", "id", "$schema")


def _moves_references(part: object, *, is_root: bool = False) -> bool:
    """Tells whether what a reference means may depend on where it stands, or on who refers to it."""
    if isinstance(part, Mapping):
        keys = cast("Mapping[str, Any]", part)
        if "$dynamicRef" in keys or "$recursiveRef" in keys:
            return True
        if not is_root and any(isinstance(keys.get(each), str) for each in _MOVING):
            return True
        return any(map(_moves_references, keys.values()))
    return isinstance(part, list) and any(map(_moves_references, cast("list[Any]", part)))


@lru_cache(maxsize=16)
def _bounded_draft(draft: Any) -> Any:
    """The validators of a draft, with bounds."""
    known = draft.VALIDATORS
    changed: dict[str, Any] = {
        "$ref": _make_reference(known["$ref"]),
        "type": _make_type(known["type"]),
        "uniqueItems": _check_unique,
    }
    for name in ("unevaluatedItems", "unevaluatedProperties"):
        if name in known:
            changed[name] = _make_unevaluated(name, known[name])
    bounded: Any = vars(import_module("jsonschema.validators"))["extend"](draft, changed)
    descend = bounded.descend

    def descend_once(
        self: Any, instance: Any, schema: Any, path: Any = None, schema_path: Any = None, resolver: Any = None
    ) -> Iterable[ValidationError]:
        check = self.format_checker.find(self, schema) if isinstance(schema, Mapping) else None
        if check is None:
            return islice(descend(self, instance, schema, path, schema_path, resolver), _MOST_OF_PART)
        return _place(islice(check.iter_errors(instance), _MOST_OF_PART), path, schema_path)

    bounded.descend = descend_once
    return bounded


def _place(errors: Iterable[Any], path: Any, schema_path: Any) -> Iterator[ValidationError]:
    for error in errors:
        if path is not None:
            error.path.appendleft(path)
        if schema_path is not None:
            error.schema_path.appendleft(schema_path)
        yield error


_Keyword = Callable[[Any, Any, Any, Any], Any]


def _make_reference(follow: _Keyword) -> _Keyword:
    def reference(validator: Any, name: Any, instance: Any, schema: Any) -> Any:
        part = validator.format_checker.look_up(name)
        return follow(validator, name, instance, schema) if part is None else validator.descend(instance, part)

    return reference


def _make_type(follow: _Keyword) -> _Keyword:
    """The library's keyword, with a short way for what is nearly every value."""

    def check_type(validator: Any, wanted: Any, instance: Any, schema: Any) -> Any:
        return () if wanted in _TYPES_OF.get(instance.__class__, ()) else follow(validator, wanted, instance, schema)

    return check_type


def _check_unique(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if wanted and validator.is_type(instance, "array") and len(set(map(_canonical, instance))) < len(instance):
        yield ValidationError(f"{instance!r} has non-unique elements")


def _canonical(value: Any) -> str:
    """A text that equal values have in common: 1 is 1.0, and not true. Strangers cannot foresee the hash of a text."""
    if isinstance(value, dict):
        entries = cast("dict[Any, Any]", value).items()
        return "{" + ",".join(sorted(f"{_canonical(key)}:{_canonical(each)}" for key, each in entries)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_canonical, cast("list[Any]", value))) + "]"
    if isinstance(value, str):
        return str.__repr__(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return hex(value) if isinstance(value, int) and not isinstance(value, bool) else repr(value)


def _make_unevaluated(name: str, follow: _Keyword) -> _Keyword:
    """The library's keyword, which looks for each name or index in a list, with a set to look in."""
    finder = "find_evaluated_item_indexes" if name == "unevaluatedItems" else "find_evaluated_property_keys"
    find = vars(import_module(follow.__module__))[f"{finder}_by_schema"]

    def unevaluated(validator: Any, allowed: Any, instance: Any, schema: Any) -> Any:
        if not validator.is_type(instance, "array" if name == "unevaluatedItems" else "object"):
            return ()
        seen = set(find(validator, instance, schema))
        if isinstance(instance, dict):
            entries = cast("dict[Any, Any]", instance).items()
            left: Any = {key: each for key, each in entries if key not in seen}
        else:
            left = [each for index, each in enumerate(instance) if index not in seen]
        return follow(validator, allowed, left, {})  # By a schema without keywords none of these is evaluated.

    return unevaluated


class _BriefText(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return brief_repr(str(self), _LONGEST_QUOTE)


class _BriefList(list[Any]):
    __slots__ = ()

    def __repr__(self) -> str:
        return brief_repr(list(self), _LONGEST_QUOTE)


class _BriefDict(dict[Any, Any]):
    __slots__ = ()

    def __repr__(self) -> str:
        return brief_repr(dict(self), _LONGEST_QUOTE)


_TYPES_OF: Final[Mapping[type[Any], tuple[str, ...]]] = {
    **{str: ("string",), _BriefText: ("string",), int: ("integer", "number"), float: ("number",)},
    **{bool: ("boolean",), _BriefList: ("array",), _BriefDict: ("object",)},
}
"""Types that values have in every draft."""


def _quote_briefly(value: Any) -> Any:
    """The value with texts, lists and objects in it whose `repr` is short, however large they are."""
    if isinstance(value, str):
        return value if len(value) < _LONGEST_QUOTE else _BriefText(value)
    if isinstance(value, list):
        return _BriefList(map(_quote_briefly, cast("list[Any]", value)))
    if isinstance(value, dict):
        entries = cast("dict[Any, Any]", value).items()
        return _BriefDict({_quote_briefly(key): _quote_briefly(each) for key, each in entries})
    return value


# --- References


def _check_references(schema: Mapping[str, Any]) -> None:
    root = str(schema.get("$id", ""))
    registry: Registry[Any] = Registry[Any]().with_resource(root, DRAFT202012.create_resource(schema))
    resolver = registry.resolver(root)
    for reference in _references(schema):
        if not reference.startswith("#"):
            raise DefinitionError(
                f"the JSON Schema refers to {reference!r}; only its own parts can be referred to ('#/$defs/...')"
            )
        try:
            resolver.lookup(reference)
        except (Unresolvable, TypeError) as error:
            raise DefinitionError(f"the JSON Schema refers to {reference!r}, which it does not have") from error


def _references(part: object) -> Iterator[str]:
    if isinstance(part, Mapping):
        for key, value in cast("Mapping[str, Any]", part).items():
            if key in ("$ref", "$dynamicRef") and isinstance(value, str):
                yield value
            else:
                yield from _references(value)
    elif isinstance(part, list):
        for each in cast("list[Any]", part):
            yield from _references(each)
