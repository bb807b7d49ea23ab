"""Makes of what a caller gives for a run its id, its inputs, and what tells it from another."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from flowengine.core import EMPTY, RefusedFileError, is_data_address, read_data_address, to_json_value
from flowengine.errors import InputError
from flowengine.nodes import InputField, checked_inputs, refuse_paths

_MOST_KEY: Final = 255
"""Characters of a key."""


def run_id_of_key(run_key: str, flow: str, caller: str | None) -> str:
    """The id of the run that a caller's key stands for.

    >>> run_id_of_key("order-17", "triage", "ann") == run_id_of_key("order-17", "triage", "ben")
    False
    """
    if not 0 < len(run_key) <= _MOST_KEY:
        raise InputError(f"a key has 1 to {_MOST_KEY} characters, found {len(run_key)}")
    return f"k{digest([caller, flow, run_key])[:31]}"


def digest(value: Any) -> str:
    """Returns the digest of a value as JSON; the order of names does not count."""
    try:
        text = json.dumps(to_json_value(value), sort_keys=True)
    except RecursionError:
        raise InputError("the inputs are nested too deep") from None
    return hashlib.sha256(text.encode()).hexdigest()


def read_start(
    fields: Mapping[str, InputField] | None, inputs: Mapping[str, Any], session: str | None
) -> tuple[Mapping[str, Any], str]:
    """The inputs of a start with their files, and the digest that tells it from another; `InputError` for inputs that
    do not fit, before any work is done with them."""
    inputs = take_in_files(fields, inputs)
    if fields is not None:
        plain = {name: field for name, field in fields.items() if field.type != "file"}
        checked_inputs(plain, {name: each for name, each in inputs.items() if name not in fields.keys() - plain.keys()})
    return inputs, digest([inputs, session])


def take_in_files(fields: Mapping[str, InputField] | None, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The inputs, with files as contents (`data:` addresses) or addresses: a path would be of this machine."""
    refuse_paths(fields, inputs)
    names = [name for name, field in (fields or EMPTY).items() if field.type == "file"]
    values = dict(inputs)
    for name in names:
        value = inputs.get(name)
        if isinstance(value, str) and is_data_address(value):
            try:
                values[name] = read_data_address(value)
            except RefusedFileError as error:
                raise InputError(f"input '{name}': {error}") from None
    return values
