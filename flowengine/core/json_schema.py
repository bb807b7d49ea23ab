"""Checks JSON Schemas themselves, and values against them.

It knows the library that validates and keeps it off the network: a schema may refer to its own
parts only. It knows no model and no answer. Imported where a schema is used, since the library
is slow to load.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple, cast

from jsonschema import SchemaError, exceptions
from jsonschema.protocols import Validator
from jsonschema.validators import Draft202012Validator, validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from flowengine.core.bounded_validators import TooMuchWorkError, bounded_validator, find_violations
from flowengine.core.values import describe_value
from flowengine.errors import DefinitionError

_LONGEST: Final = 300
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
        violations = find_violations(bounded_validator(kind, schema), value, _MOST_READ)
    except SchemaError as error:
        return [Misfit("$", f"its schema is no JSON Schema: {error.message[:_LONGEST]}")]
    except Unresolvable as error:
        return [Misfit("$", f"its schema refers to '{error.ref}', which is no part of it")]
    except TooMuchWorkError as error:
        return [Misfit("$", f"it cannot be checked: {error}")]
    except RecursionError:
        return [Misfit("$", "it is nested too deeply, or its schema refers to itself without end")]
    except Exception as error:  # The library fails in many ways over schemas that make no sense.
        return [Misfit("$", f"its schema cannot be used: {str(error)[:_LONGEST]}")]
    if not violations:
        return []
    first: Any = cast(Any, exceptions).best_match(violations)
    misfits = dict.fromkeys(Misfit(*_tell(each)) for each in (first, *violations))
    return list(islice(misfits, _MOST_MISFITS))


def make_validator(schema: Mapping[str, Any]) -> Validator:
    """The validator of a schema; what is no schema is a `DefinitionError`.

    >>> make_validator({"name": "string"})
    Traceback (most recent call last):
    flowengine.errors.DefinitionError: this is no JSON Schema: none of its keys (name) is a keyword; ...
    """
    draft = check_keywords(schema)
    try:
        draft.check_schema(dict(schema))
    except SchemaError as error:
        raise DefinitionError(f"this is no JSON Schema: at {error.json_path}: {error.message[:_LONGEST]}") from error
    _check_references(schema)
    check = bounded_validator(draft, schema)
    try:
        find_violations(check, None, 1)
    except TooMuchWorkError as error:
        raise DefinitionError(f"this JSON Schema cannot be used: {error}") from error
    except RecursionError as error:
        raise DefinitionError("the JSON Schema refers to itself without end") from error
    return check


def check_keywords(schema: Mapping[str, Any]) -> type[Validator]:
    """The draft that a schema follows; `DefinitionError` where none of its own keys says anything of a value. What is
    inside of it is not looked at."""
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
    return draft


def describe_problems(check: Validator, value: Any) -> list[str]:
    """Describes how a value violates its schema, in a few lines; empty if it does not."""
    try:
        return [": ".join(_tell(each)) for each in find_violations(check, value, _MOST_PROBLEMS)]
    except TooMuchWorkError as error:
        return [f"$: it cannot be checked: {error}"]
    except RecursionError:
        return ["$: it is nested too deeply"]


def _tell(error: Any) -> tuple[str, str]:
    """Returns the path of an error, and its message."""
    return error.json_path[:_LONGEST], error.message[:_LONGEST]


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
        except (Unresolvable, TypeError, ValueError) as error:
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
