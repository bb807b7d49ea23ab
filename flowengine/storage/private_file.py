"""Makes files that only their owner can read. Opens none of them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

__all__ = ["make_private"]


def make_private(path: Path) -> None:
    """A new file, and the folder that it needs, for the owner alone; what is there already stays as it is.

    `OSError` where the folder cannot be made. Whatever else is in the way is told by whoever opens the file.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
