"""The filter's program, run by a small model of the kernel's machine."""

from __future__ import annotations

import struct
from functools import cache

import pytest

from flowengine.agents.skills.sandbox.seccomp import MACHINES, make_filter

ALLOW, KILL, EPERM, ENOSYS, EAFNOSUPPORT = 0x7FFF0000, 0x80000000, 0x50001, 0x50026, 0x50061


@cache
def program_for(machine: str) -> list[tuple[int, int, int, int]]:
    return list(struct.iter_unpack("=HBBI", make_filter(machine)))


def result(machine: str, number: int, *arguments: int, audit: int | None = None) -> int:
    program = program_for(machine)
    data = {0: number, 4: MACHINES[machine].audit if audit is None else audit}
    data |= {16 + 8 * place: each & 0xFFFFFFFF for place, each in enumerate((*arguments, 0, 0, 0))}
    at = held = 0
    while True:
        code, then, otherwise, value = program[at]
        if code == 0x20:
            held = data[value]
        elif code == 0x06:
            return value
        else:
            holds = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[code]
            at += then if holds else otherwise
        at += 1


@pytest.mark.parametrize("machine", MACHINES)
def test_forbidden_calls_are_refused_and_others_allowed(machine: str) -> None:
    numbers = MACHINES[machine]
    assert {result(machine, each) for each in numbers.forbidden} == {EPERM}
    assert result(machine, numbers.clone3) == ENOSYS
    assert len(set(numbers.forbidden)) == len(numbers.forbidden)
    others = set(range(450)) - {*numbers.forbidden, numbers.clone3, numbers.socket}
    assert {result(machine, each) for each in others} == {ALLOW}


@pytest.mark.parametrize("machine", MACHINES)
def test_processes_may_be_made_and_namespaces_not(machine: str) -> None:
    clone = MACHINES[machine].clone
    assert result(machine, clone, 0x11) == ALLOW
    assert result(machine, clone, 0x3D0F00) == ALLOW  # a thread
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert result(machine, clone, flag | 0x11) == EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_sockets_are_of_families_that_stay_inside(machine: str) -> None:
    socket = MACHINES[machine].socket
    assert [result(machine, socket, family) for family in (1, 2, 10, 16)] == [ALLOW] * 4
    assert {result(machine, socket, family) for family in (0, 3, 17, 31, 38, 40)} == {EAFNOSUPPORT}


@pytest.mark.parametrize("machine", MACHINES)
def test_a_sockets_buffers_stay_as_large_as_they_are(machine: str) -> None:
    """Their options are those of SOL_SOCKET, SO_SNDBUF and SO_RCVBUF; the call seems to have worked."""
    setsockopt = MACHINES[machine].setsockopt
    assert [result(machine, setsockopt, 3, 1, option) for option in (7, 8)] == [0x50000] * 2
    assert [result(machine, setsockopt, 3, 1, option) for option in (2, 9, 15)] == [ALLOW] * 3
    assert result(machine, setsockopt, 3, 6, 7) == ALLOW


def test_calls_of_another_table_are_refused() -> None:
    assert result("x86_64", 1, audit=0x40000003) == KILL
    assert result("x86_64", 0x40000001) == EPERM
