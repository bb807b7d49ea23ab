"""Takes the files that an agent's model is asked about, beside the text.

What no model, or not this one, can be shown is refused. How a file becomes a part of a request is the model's matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

from flowengine.core import FileKeeper, FileRules, FileValue, RefusedFileError, describe_value
from flowengine.errors import ModelConfigError, RunError
from flowengine.models import Message, Model, attachment_kind, definition_of, innermost_models, listed_vision


def files_of(value: Any) -> tuple[FileValue, ...]:
    """The files of a value: one, several in lists, or none; `RunError` for what is no file or is shown to no model.

    Text is never taken for a path: it may be a model's.
    """
    if value is None:
        return ()
    if isinstance(value, FileValue):
        if attachment_kind(value.media_type) is None:
            raise RunError(
                f"'{value.name}' is {value.media_type} by its content, which no model is shown: "
                "attach images, PDF, sound (WAV, MP3) and text in UTF-8, and save other documents as PDF"
            )
        return (value,)
    if isinstance(value, list | tuple):
        return tuple(file for each in cast("list[Any]", value) for file in files_of(each))
    description = describe_value(value)
    raise RunError(f"`attach` takes files, found {description}: give an input of type `file`, or what is bytes")


async def open_files(values: Sequence[Any]) -> tuple[FileValue, ...]:
    """Files for an agent that stands alone: paths, bytes, and files of runs; nothing is stored."""
    keeper = FileKeeper(None, "", FileRules())
    try:
        return files_of([await keeper.take(each) for each in values])
    except RefusedFileError as error:
        raise RunError(f"`attach`: {error}") from error


def check_files(model: Model, files: Iterable[FileValue]) -> None:
    """`ModelConfigError` for an image and a model that may answer and is known to take none."""
    images = [each.name for each in files if attachment_kind(each.media_type) == "image"]
    for each in innermost_models(model) if images else ():
        takes_images = None if (definition := definition_of(each)) is None else definition.images
        if (listed_vision(each.provider, each.name) if takes_images is None else takes_images) is False:
            raise ModelConfigError(f"model '{each.provider}/{each.name}' takes no images, and '{images[0]}' is one")


def attach_files(messages: tuple[Message, ...], files: tuple[FileValue, ...], after: int = 0) -> tuple[Message, ...]:
    """The messages, with the files at the question: the last one, but for so many that came after it."""
    at = len(messages) - 1 - after
    return (*messages[:at], messages[at]._replace(attachments=files), *messages[at + 1 :])
