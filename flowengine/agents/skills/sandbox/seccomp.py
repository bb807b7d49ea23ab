"""Writes a filter of system calls for scripts, as the kernel takes it: a program for its packet filter. Pure.

The sandbox holds without it against all that namespaces and limits cover. This closes what they leave open: memory
that no limit counts (System V, `memfd_create`, sockets with buffers of megabytes), address families that no network
namespace bounds (`AF_VSOCK` reaches the host of a virtual machine), and calls that are there for administrators and
have been ways out of sandboxes before.

Sources: linux/seccomp.h, linux/audit.h, and the kernel's tables of system calls (x86-64; arm64 has the generic one).
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Mapping
from typing import Final, NamedTuple


class _Machine(NamedTuple):
    """A processor's numbers."""

    audit: int
    clone: int
    clone3: int
    socket: int
    setsockopt: int
    forbidden: tuple[int, ...]
    x32: int | None = None
    """From this number on the calls are those of another table."""


_NEW_CALLS: Final = (425, 426, 427, 428, 429, 430, 431, 432, 433, 442, 443, 447)
"""The same everywhere: io_uring_*, open_tree, move_mount, fs*, mount_setattr, quotactl_fd, memfd_secret."""

_X86_64: Final = _Machine(
    audit=0xC000003E,
    clone=56,
    clone3=435,
    socket=41,
    setsockopt=54,
    x32=0x40000000,
    forbidden=(
        *(29, 30, 31, 64, 65, 66, 67, 68, 69, 70, 71, 220),  # shm*, sem*, msg*
        *(101, 103, 155, 159, 161, 163, 164, 227, 305),  # ptrace, syslog, pivot_root, chroot, acct, clocks
        *(165, 166, 167, 168, 169, 170, 171, 172, 173, 175, 176, 179),  # mounts, swap, reboot, names, ports, modules
        *(212, 240, 246, 248, 249, 250, 272, 279, 298, 300, 303, 304),  # mq_open, kexec, keys, unshare, perf, handles
        *(308, 310, 311, 312, 313, 319, 320, 321, 323),  # setns, process_vm_*, kcmp, modules, memfd, bpf, userfaultfd
        *_NEW_CALLS,
    ),
)

_AARCH64: Final = _Machine(
    audit=0xC00000B7,
    clone=220,
    clone3=435,
    socket=198,
    setsockopt=208,
    forbidden=(
        *range(186, 198),  # msg*, sem*, shm*
        *(117, 116, 41, 171, 51, 89, 170, 112, 266),  # ptrace, syslog, pivot_root, clocks, chroot, acct
        *(40, 39, 224, 225, 142, 161, 162, 105, 106, 60),  # mounts, swap, reboot, names, modules, quotactl
        *(18, 180, 104, 217, 218, 219, 97, 239, 241, 262, 264, 265),  # mq_open, kexec, keys, unshare, perf, handles
        *(268, 270, 271, 272, 273, 279, 294, 280, 282),  # setns, process_vm_*, kcmp, modules, memfd, bpf, userfaultfd
        *_NEW_CALLS,
    ),
)

MACHINES: Final[Mapping[str, _Machine]] = {"x86_64": _X86_64, "aarch64": _AARCH64}
"""By the name that `platform.machine()` gives."""

_ALLOWED_FAMILIES: Final = (1, 2, 10, 16)
"""Unix, IPv4, IPv6, netlink: all of them are bounded by the network namespace."""
_NAMESPACES: Final = 0x7E020000
"""`CLONE_NEW*`, of all that fit into `clone`."""

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _SECOND_ARGUMENT, _THIRD_ARGUMENT = 0, 4, 16, 24, 32
"""Offsets in `struct seccomp_data`; of an argument its lower half."""
_OF_SOCKETS: Final = 1
_BUFFERS: Final = (7, 8)
"""`SO_SNDBUF` and `SO_RCVBUF` of the level `SOL_SOCKET`."""
_IGNORED: Final = 0x00050000
"""The call is not made, and its caller is told that it was."""
_ALLOW: Final = 0x7FFF0000
_KILL: Final = 0x80000000


def _refusal_code(number: int) -> int:
    return 0x00050000 | number


def make_filter(machine: str) -> bytes:
    """The program for a processor of `MACHINES`.

    >>> len(make_filter("x86_64")) % 8
    0
    """
    numbers = MACHINES[machine]
    program = [
        _encode_step(_LOAD, _ARCHITECTURE),
        *_end_unless(_EQUAL, numbers.audit, _KILL),
        _encode_step(_LOAD, _NUMBER),
        *([] if numbers.x32 is None else _end_where(_AT_LEAST, numbers.x32, _refusal_code(errno.EPERM))),
        *_end_where(
            _EQUAL, numbers.clone3, _refusal_code(errno.ENOSYS)
        ),  # Its flags cannot be seen; libraries use clone then.
        *(step for number in numbers.forbidden for step in _end_where(_EQUAL, number, _refusal_code(errno.EPERM))),
        *_branch_on_call(
            numbers.clone,
            [
                _encode_step(_LOAD, _FIRST_ARGUMENT),
                *_end_where(_ANY_BIT, _NAMESPACES, _refusal_code(errno.EPERM)),
                _encode_step(_RETURN, _ALLOW),
            ],
        ),
        *_branch_on_call(
            numbers.setsockopt,
            [
                _encode_step(_LOAD, _SECOND_ARGUMENT),
                *_end_unless(_EQUAL, _OF_SOCKETS, _ALLOW),
                _encode_step(_LOAD, _THIRD_ARGUMENT),
                *(step for option in _BUFFERS for step in _end_where(_EQUAL, option, _IGNORED)),
                _encode_step(_RETURN, _ALLOW),
            ],
        ),
        *_branch_on_call(
            numbers.socket,
            [
                _encode_step(_LOAD, _FIRST_ARGUMENT),
                *(step for family in _ALLOWED_FAMILIES for step in _end_where(_EQUAL, family, _ALLOW)),
                _encode_step(_RETURN, _refusal_code(errno.EAFNOSUPPORT)),
            ],
        ),
        _encode_step(_RETURN, _ALLOW),
    ]
    return b"".join(program)


def _encode_step(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("=HBBI", code, then, otherwise, value)


def _end_where(test: int, value: int, result: int) -> list[bytes]:
    """Ends with the result where the test holds."""
    return [_encode_step(test, value, 0, 1), _encode_step(_RETURN, result)]


def _end_unless(test: int, value: int, result: int) -> list[bytes]:
    return [_encode_step(test, value, 1, 0), _encode_step(_RETURN, result)]


def _branch_on_call(number: int, steps: list[bytes]) -> list[bytes]:
    """Steps for one system call, which always end."""
    return [_encode_step(_EQUAL, number, 0, len(steps)), *steps]
