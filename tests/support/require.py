"""Real components of tests: where one is missing the test is skipped and says why; in CI that is a failure."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec

import pytest

__all__ = ["missing", "require", "require_package"]


def require(program: str, install: str = "") -> str:
    """The path of a program on PATH."""
    path = shutil.which(program)
    if path is None:
        missing(f"`{program}` is not installed{f' ({install})' if install else ''}")
    assert path is not None
    return path


def require_package(name: str, extra: str) -> None:
    """Skips the test where a package is missing that `extra` of pyproject.toml brings, since `test` is kept light."""
    if find_spec(name) is None:
        missing(f"`{name}` is not installed (pip install '.[{extra}]')")


def missing(reason: str) -> None:
    """Skip the test for a reason, or fail where everything is required."""
    if os.environ.get("FLOWENGINE_REQUIRE_ALL") == "1":
        pytest.fail(f"{reason}, and FLOWENGINE_REQUIRE_ALL=1 allows no skip")
    pytest.skip(reason)
