"""Holds the recognizers that programs add to those that masking has; apart, since to load those takes a while."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

MORE_RECOGNIZERS: Final[list[Callable[[], Sequence[Any]]]] = []
"""Further sources of recognizers for every masker that is made, such as the project of the working folder."""
