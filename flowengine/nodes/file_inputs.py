"""Takes in the files among a run's inputs: what was given for an input of type `file` becomes a file of the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowengine.core.file_keeper import FileKeeper
from flowengine.core.file_values import FileValue, RefusedFileError
from flowengine.errors import InputError, OutputError
from flowengine.nodes.compiled_flow import REQUIRED, InputField

__all__ = ["keep_result_files", "take_files"]


async def take_files(
    fields: Mapping[str, InputField] | None, given: Mapping[str, Any], keeper: FileKeeper | None
) -> Mapping[str, Any]:
    """The inputs with their files taken in, defaults included; `InputError` lists those that are refused.

    Without declared fields, bytes and files are taken in wherever they stand. `keeper`: None where the store
    keeps none.
    """
    if keeper is None:
        return given
    if fields is None:
        return {name: await _take_loose(name, value, keeper) for name, value in given.items()}
    taken, problems = dict(given), list[str]()
    for name, field in fields.items():
        value = given.get(name, field.default)
        if field.type == "file" and value is not REQUIRED and value is not None:
            try:
                taken[name] = await keeper.take(value)
            except RefusedFileError as error:
                problems.append(f"input '{name}': {error}")
    if problems:
        raise InputError("\n".join(problems))
    return taken


async def keep_result_files(value: Any, name: str, keeper: FileKeeper | None) -> Any:
    """Replaces bytes in a node's output by files; raises `OutputError` if one is refused."""
    if keeper is None:
        return value
    try:
        return await keeper.keep_in(value, name)
    except RefusedFileError as error:
        raise OutputError(f"the result cannot be kept: {error}") from error


async def _take_loose(name: str, value: Any, keeper: FileKeeper) -> Any:
    try:
        return await keeper.take(value) if isinstance(value, FileValue) else await keeper.keep_in(value, name)
    except RefusedFileError as error:
        raise InputError(f"input '{name}': {error}") from error
