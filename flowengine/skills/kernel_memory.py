"""How much memory the kernel may hold for the sockets of a script: no limit on a process counts it.

A script has a network of its own, so the tables of that network name each of its sockets, also those that nobody has
open any more: on their way to another process, or waiting to be accepted. Of internet sockets the tables say what is
queued; of others each counts as full, since their buffers cannot be made larger (`flowengine.skills.seccomp`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import Final

__all__ = ["queued_by_sockets"]

_INTERNET: Final = ("tcp", "tcp6", "udp", "udp6", "udplite", "udplite6", "raw", "raw6")
_QUEUES: Final = 4
"""The column of `sending:receiving`, in hexadecimal bytes."""
_FULL: Final = 212_992
"""Bytes of a socket's buffer, where the kernel does not say."""


def queued_by_sockets(pid: int) -> int:
    """Bytes, at most, in the sockets of the network that a process is in."""
    local = sum(1 for table in ("unix", "netlink") for _ in _rows(pid, table))
    return local * _buffer() + sum(_queued(row) for table in _INTERNET for row in _rows(pid, table))


def _rows(pid: int, table: str) -> Iterator[str]:
    with suppress(OSError), open(f"/proc/{pid}/net/{table}") as rows:
        next(rows, None)
        yield from rows


def _queued(row: str) -> int:
    with suppress(ValueError, IndexError):
        return sum(int(each, 16) for each in row.split()[_QUEUES].split(":"))
    return 0


@cache
def _buffer() -> int:
    """Bytes that a socket takes before its writer has to wait."""
    with suppress(OSError, ValueError), open("/proc/sys/net/core/wmem_default") as said:
        return int(said.read())
    return _FULL
