"""What a context is told after a tool was called.

Data only: it knows neither tools nor models.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["ToolCallResult"]


class ToolCallResult(NamedTuple):
    """One tool call, of whatever tool: a function's, a server's, another context's."""

    name: str
    arguments: Mapping[str, Any]
    result: Any = None
    """What the tool gave: the raw value, or the text where there is no more than that."""
    is_error: bool = False
