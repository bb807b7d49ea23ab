"""Real components of tests: where one is missing the test is skipped and says why; in CI that is a failure."""

from __future__ import annotations

import os
import shutil

import pytest

__all__ = ["missing", "require"]


def require(program: str, install: str = "") -> str:
    """The path of a program on PATH."""
    path = shutil.which(program)
    if path is None:
        missing(f"`{program}` is not installed{f' ({install})' if install else ''}")
    assert path is not None
    return path


def missing(reason: str) -> None:
    """Skip the test for a reason, or fail where everything is required."""
    if os.environ.get("FLOWENGINE_REQUIRE_ALL") == "1":
        pytest.fail(f"{reason}, and FLOWENGINE_REQUIRE_ALL=1 allows no skip")
    pytest.skip(reason)
