"""Bounds on what a run, or a part of it, may spend: reserved before a call, settled after it."""

from __future__ import annotations

__all__ = ["Ledger"]


class Ledger:
    """What was spent and what is reserved."""
