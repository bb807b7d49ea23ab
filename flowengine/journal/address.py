"""A store's address as it may be shown: on a terminal, in a log, in a command that somebody pastes elsewhere."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["without_password"]

_IN_FRONT: Final = re.compile(r"(://[^:/@]*):.*@")
_BEHIND: Final = re.compile(r"([?&])(?:password|sslpassword|passfile)=[^&]*&?", re.IGNORECASE)


def without_password(url: str) -> str:
    """The address with its password left out: it can still be used where PGPASSWORD or ~/.pgpass has that.

    >>> without_password("postgresql://ann:x:y@z@host:5432/runs")
    'postgresql://ann@host:5432/runs'
    >>> without_password("postgresql://host/runs?user=ann&password=x&sslmode=require")
    'postgresql://host/runs?user=ann&sslmode=require'
    >>> without_password("postgresql:///runs?password=x"), without_password("runs.db")
    ('postgresql:///runs', 'runs.db')
    """
    return _BEHIND.sub(r"\1", _IN_FRONT.sub(r"\1@", url)).rstrip("?&") if "://" in url else url
