"""Seconds, tokens, money and moments as people read them."""

from __future__ import annotations

from datetime import datetime

__all__ = ["clock", "dollars", "span", "tokens"]


def span(seconds: float | None) -> str:
    """A duration in at most two units; nothing for None.

    >>> span(0.0412), span(3.14159), span(75), span(7322)
    ('41 ms', '3.1 s', '1 m 15 s', '2 h 2 m')
    """
    if seconds is None:
        return ""
    seconds = max(seconds, 0.0)
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} m {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} m"


def tokens(count: int | None) -> str:
    """
    >>> tokens(1234)
    '1,234 tokens'
    """
    return "" if count is None else f"{count:,} token{'s' * (count != 1)}"


def dollars(cost: float | None, *, is_whole: bool = True) -> str:
    """A cost in US dollars; `is_whole` is False where some calls have no known price.

    >>> dollars(0.001234), dollars(12.5), dollars(0.01, is_whole=False)
    ('$0.0012', '$12.50', '$0.0100+')
    """
    if cost is None:
        return ""
    if not cost and is_whole:
        return "$0"
    return f"${cost:.{2 if cost >= 1 else 4}f}{'' if is_whole else '+'}"


def clock(at: float) -> str:
    """A moment in local time."""
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
