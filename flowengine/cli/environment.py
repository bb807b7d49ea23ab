"""Reads the environment of a command: the real one, and under it the `.env` file of the working folder.

A flow's project adds the file of its root under both. `os.environ` is never written to.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from flowengine.models.dotenv import read_environment

__all__ = ["load_environment"]


def load_environment() -> Mapping[str, str]:
    return read_environment(Path.cwd(), os.environ)
