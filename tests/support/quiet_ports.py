"""Ports of loopback where nothing listens, and where nobody comes to listen by chance.

A port that the system chose and that was given back may be chosen again at once, for a server or a connection of
another test, before the process that it was meant for has begun to listen.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path
from typing import Final

__all__ = ["quiet_port"]

_FIRST: Final = 15_000
_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")


def quiet_port() -> int:
    """A port that is free, of those that the system gives to nobody who does not ask for it by its number."""
    last = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32_768
    choice = random.SystemRandom()
    for _ in range(100):
        port = choice.randrange(min(_FIRST, last - 1_000), last)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("100 ports are taken")
