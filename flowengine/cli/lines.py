"""Lines of JSON that are a command's result: into the file that was named, else to stdout."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flowengine.cli.terminal import Results
from flowengine.errors import StoreUnavailableError

__all__ = ["put_lines"]


def put_lines(lines: Sequence[str], output: str | None) -> bool:
    """Whether they went into a file."""
    if output is None:
        results = Results()
        for line in lines:
            results.json(line)
        return False
    try:
        Path(output).write_text("\n".join([*lines, ""]), "utf-8")
    except OSError as error:
        raise StoreUnavailableError(f"{output} cannot be written: {error.strerror}") from error
    return True
