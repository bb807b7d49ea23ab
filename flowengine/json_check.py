"""Whether a value fits a JSON Schema that a flow has brought, which may refer to its own parts alone.

The library that validates would fetch what a schema refers to, from a server or from the disk; here it has nothing
to fetch with. What cannot be looked up, and what refers to itself without end, is a misfit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

__all__ = ["Misfit", "misfits"]


class Misfit(NamedTuple):
    path: str
    message: str


def misfits(schema: Mapping[str, Any], value: Any) -> list[Misfit]:
    """What is wrong with a value, what matters most first; none where it fits.

    >>> misfits({"type": "object", "required": ["a"]}, {"b": 1})
    [Misfit(path='$', message="'a' is a required property")]
    >>> misfits({"$ref": "file:///etc/passwd"}, 1)
    [Misfit(path='$', message="its schema refers to 'file:///etc/passwd', which is no part of it")]
    """
    from jsonschema import (  # Half a second that most flows need not wait for.
        Draft202012Validator,
        SchemaError,
        exceptions,
    )
    from jsonschema.validators import validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    kind: Any = validator_for(dict(schema), default=Draft202012Validator)
    try:
        kind.check_schema(dict(schema))
        found: list[Any] = list(kind(dict(schema), registry=Registry[Any]()).iter_errors(value))
    except SchemaError as error:
        return [Misfit("$", f"its schema is no JSON Schema: {error.message[:300]}")]
    except Unresolvable as error:
        return [Misfit("$", f"its schema refers to '{error.ref}', which is no part of it")]
    except (RecursionError, re.error) as error:
        return [Misfit("$", f"its schema cannot be used: {error}")]
    first: Any = cast(Any, exceptions).best_match(found)
    told = [Misfit(each.json_path, each.message) for each in ([first, *found] if found else [])]
    return list(dict.fromkeys(told))
