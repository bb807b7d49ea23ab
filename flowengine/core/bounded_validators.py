"""Makes validators of JSON Schemas whose cost is bounded, and bounds what is told of a value.

Schemas are written by authors, values by strangers. So the cost of a check grows with the size of the value and no
faster, and what is told of it is bounded:

1. Of each part of a schema there is one validator, and not one for each value that it is asked about (`_Parts`).
2. Messages quote the beginning of a value: lists, objects and texts are handed over as ones that know no more of
   themselves (`quote_briefly`).
3. A part tells the first of a value's violations (`_MOST_OF_PART`).
4. Keywords that would compare each item with each other one have texts or sets to look in (`_check_unique`,
   `_make_unevaluated`).
5. What a part says of a list or an object is worked out once (`descend_once`), and all the work of a check is counted
   (`_Meter`): where parts refer to each other, or a `pattern` is of the slow kind, it ends with a `TooMuchWorkError`.

It knows the library that validates, and one or two of its parts that it does not promise.
"""

from __future__ import annotations

import math
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from functools import lru_cache
from importlib import import_module
from itertools import islice
from time import thread_time
from types import FunctionType, SimpleNamespace
from typing import Any, Final, cast

from jsonschema import FormatChecker, ValidationError, validators
from jsonschema.protocols import Validator
from referencing import Registry

from flowengine.core.values import brief_repr, number_key

_LONGEST_QUOTE: Final = 100
"""Characters, and so more than the items that are looked at."""
_MOST_OF_PART: Final = 20
_STEPS: Final = 2_000
_STEPS_OF_VALUE: Final = 50
"""Looks at a value that is in another one, on average: for as many alternatives there is room."""
_STEPS_OF_CLOCK: Final = 256
_SECONDS: Final = 0.05
_SECONDS_OF_VALUE: Final = 2e-4
_LEAST: Final = 1e-3
_LONGEST: Final = 60.0


class TooMuchWorkError(Exception):
    """A check was given up; the message says why."""


def find_violations(check: Validator, value: Any, most: int) -> list[Any]:
    """The first violations of a schema, in its order. `TooMuchWorkError` where the check would take too long.

    >>> from jsonschema import Draft202012Validator
    >>> check = bounded_validator(Draft202012Validator, {"pattern": "^(a|a)*$"})
    >>> find_violations(check, "a" * 40 + "!", 1)
    Traceback (most recent call last):
    ...
    flowengine.core.bounded_validators.TooMuchWorkError: the pattern '^(a|a)*$' takes too long on it
    """
    before = _METERS.meter
    _METERS.meter = _Meter(_count_values(value))
    try:
        return list(islice(check.iter_errors(quote_briefly(value)), most))
    finally:
        _METERS.meter = before


def _count_values(value: Any) -> int:
    count, level = 1, [value]
    while level:
        level = [each for part in level for each in _parts_of(part)]
        count += len(level)
    return count


def _parts_of(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return cast("dict[Any, Any]", value).values()
    return cast("list[Any]", value) if isinstance(value, list) else ()


class _Meter:
    """The work of one check."""

    def __init__(self, values: float) -> None:
        self.steps = _STEPS + _STEPS_OF_VALUE * values
        self.memo: dict[tuple[int, int], list[ValidationError]] = {}
        """The errors that a part finds in a list or an object, by their ids. Both live as long as the check, so no
        other gets their ids."""
        self.deadline = thread_time() + _SECONDS + _SECONDS_OF_VALUE * values
        """The end, in this thread's own time, so that a busy machine changes nothing."""


@lru_cache(maxsize=512)
def _compile(pattern: str) -> Any:
    import regex  # Slow to import, and few schemas have patterns.

    if len(pattern) > _LONGEST_PATTERN:
        raise TooMuchWorkError(f"its schema has a pattern of more than {_LONGEST_PATTERN:,} characters")
    return regex.compile(pattern)


_LONGEST_PATTERN: Final = 10_000


class _Meters(threading.local):
    """The meter of the check that goes on in this thread; outside of `find_violations` one without a bound."""

    def __init__(self) -> None:
        self.meter = _Meter(math.inf)


_METERS: Final = _Meters()


def _take_step() -> None:
    meter = _METERS.meter
    meter.steps -= 1
    if meter.steps < 0 or (meter.steps % _STEPS_OF_CLOCK == 0 and thread_time() > meter.deadline):
        raise TooMuchWorkError("its schema has too many ways to look at it")


def _search(pattern: str, text: str) -> bool:
    seconds = _METERS.meter.deadline - thread_time()
    try:
        return _compile(pattern).search(text, timeout=min(max(seconds, _LEAST), _LONGEST)) is not None
    except TimeoutError:
        raise TooMuchWorkError(f"the pattern {brief_repr(pattern, _LONGEST_QUOTE)} takes too long on it") from None


def bounded_validator(draft: Any, schema: Mapping[str, Any]) -> Validator:
    """The validator of a schema that is checked already."""
    root = dict(schema)
    return _bounded_draft(draft)(root, registry=Registry[Any](), format_checker=_Parts(root))


class _Parts(FormatChecker):
    """Keeps one validator for each part of a schema, and goes with all of them; it checks no format."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        super().__init__(formats=())
        self._root = root
        self._validators: dict[int, tuple[Any, Any]] = {}
        self._moves = _moves_references(root, is_root=True)

    def find(self, validator: Any, part: Mapping[str, Any]) -> Any:
        """The validator of a part; None where it depends on the way that led to the part."""
        if self._moves:
            return None
        pair = self._validators.get(id(part))
        if pair is None:  # It is kept with the part, so that no other part gets its id.
            pair = self._validators[id(part)] = (part, validator.evolve(schema=part))
        return pair[1]

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
    checks = draft.VALIDATORS
    changed: dict[str, Any] = {
        "$ref": _make_reference(checks["$ref"]),
        "additionalProperties": _make_additional(checks["additionalProperties"]),
        "pattern": _check_pattern,
        "patternProperties": _check_named,
        "type": _make_type(checks["type"]),
        "uniqueItems": _check_unique,
    }
    for name in ("unevaluatedItems", "unevaluatedProperties"):
        if name in checks:
            changed[name] = _make_unevaluated(name, checks[name])
    bounded: Any = cast(Any, validators).extend(draft, changed)
    descend, evolve = bounded.descend, bounded.evolve

    def descend_once(
        self: Any, instance: Any, schema: Any, path: Any = None, schema_path: Any = None, resolver: Any = None
    ) -> Iterable[ValidationError]:
        _take_step()
        check = self.format_checker.find(self, schema) if isinstance(schema, Mapping) else None
        if check is None:
            return islice(descend(self, instance, schema, path, schema_path, resolver), _MOST_OF_PART)
        errors = islice(check.iter_errors(instance), _MOST_OF_PART)
        if instance.__class__ not in _HOLDING:
            return _place(errors, path, schema_path)
        memo, place = _METERS.meter.memo, (id(cast(Any, schema)), id(instance))
        if place not in memo:
            memo[place] = list(errors)
        violations = memo[place]
        return _place(map(_copy, violations), path, schema_path) if violations else ()

    def evolve_counted(self: Any, **changes: Any) -> Any:
        _take_step()
        return evolve(self, **changes)

    def is_valid(self: Any, instance: Any) -> bool:
        if instance.__class__ in _HOLDING:
            return next(iter(descend_once(self, instance, self.schema)), None) is None
        _take_step()
        return next(self.iter_errors(instance), None) is None

    bounded.descend, bounded.evolve, bounded.is_valid = descend_once, evolve_counted, is_valid
    return bounded


def _copy(error: Any) -> Any:
    """One whose place can be told anew: there is one for each place of the same part and value."""
    duplicate = copy(error)
    duplicate.path = duplicate.relative_path = deque(error.path)
    duplicate.schema_path = duplicate.relative_schema_path = deque(error.schema_path)
    return duplicate


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

    def check_type(validator: Any, types: Any, instance: Any, schema: Any) -> Any:
        return () if types in _TYPES_OF.get(instance.__class__, ()) else follow(validator, types, instance, schema)

    return check_type


def _check_pattern(validator: Any, pattern: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and not _search(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _check_named(validator: Any, patterns: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "object"):
        for pattern, part in patterns.items():
            for name, value in instance.items():
                if _search(pattern, name):
                    yield from validator.descend(value, part, path=name, schema_path=pattern)


def _make_additional(follow: _Keyword) -> _Keyword:
    """The library's keyword, asked about the names that no `patternProperties` has."""

    def additional(validator: Any, allowed: Any, instance: Any, schema: Any) -> Any:
        patterns = schema.get("patternProperties")
        if not patterns or not validator.is_type(instance, "object"):
            return follow(validator, allowed, instance, schema)
        rest = {name: each for name, each in instance.items() if not any(_search(one, name) for one in patterns)}
        return follow(validator, allowed, rest, {"properties": schema.get("properties", {})})

    return additional


def _check_unique(validator: Any, is_required: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if is_required and validator.is_type(instance, "array") and len(set(map(_canonical, instance))) < len(instance):
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
    return number_key(value) if isinstance(value, int | float) and not isinstance(value, bool) else repr(value)


def _make_unevaluated(name: str, follow: _Keyword) -> _Keyword:
    """The library's keyword, which looks for each name or index in a list, with a set to look in."""
    finder = "find_evaluated_item_indexes" if name == "unevaluatedItems" else "find_evaluated_property_keys"
    find: Any = getattr(import_module(follow.__module__), f"{finder}_by_schema", None)
    if find is None:  # The library promises no such function: without it, its own keyword does.
        return follow
    names = {**find.__globals__, "re": SimpleNamespace(search=_search)}
    find = names[find.__name__] = FunctionType(find.__code__, names)  # It asks itself, and searches with a bound.

    def unevaluated(validator: Any, allowed: Any, instance: Any, schema: Any) -> Any:
        if not validator.is_type(instance, "array" if name == "unevaluatedItems" else "object"):
            return ()
        evaluated_parts = set(find(validator, instance, schema))
        if isinstance(instance, dict):
            entries = cast("dict[Any, Any]", instance).items()
            rest: Any = {key: each for key, each in entries if key not in evaluated_parts}
        else:
            rest = [each for index, each in enumerate(instance) if index not in evaluated_parts]
        return follow(validator, allowed, rest, {})  # By a schema without keywords none of these is evaluated.

    return unevaluated


class _BriefText(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return brief_repr(self[: _LONGEST_QUOTE + 1], _LONGEST_QUOTE)


class _BriefList(list[Any]):
    __slots__ = ()

    def __repr__(self) -> str:
        return brief_repr(list(islice(self, _LONGEST_QUOTE)), _LONGEST_QUOTE)


class _BriefDict(dict[Any, Any]):
    __slots__ = ()

    def __repr__(self) -> str:
        return brief_repr(dict(islice(self.items(), _LONGEST_QUOTE)), _LONGEST_QUOTE)


_HOLDING: Final = frozenset({_BriefList, _BriefDict})
"""Classes of the lists and objects in the values that `find_violations` asks about."""
_TYPES_OF: Final[Mapping[type[Any], tuple[str, ...]]] = {
    **{str: ("string",), _BriefText: ("string",), int: ("integer", "number"), float: ("number",)},
    **{bool: ("boolean",), _BriefList: ("array",), _BriefDict: ("object",)},
}
"""Types that values have in every draft."""


def quote_briefly(value: Any) -> Any:
    """The value with texts, lists and objects in it whose `repr` is short, however large they are."""
    if isinstance(value, str):
        return value if len(value) < _LONGEST_QUOTE else _BriefText(value)
    if isinstance(value, list):
        return _BriefList(map(quote_briefly, cast("list[Any]", value)))
    if isinstance(value, dict):
        entries = cast("dict[Any, Any]", value).items()
        return _BriefDict({quote_briefly(key): quote_briefly(each) for key, each in entries})
    return value
