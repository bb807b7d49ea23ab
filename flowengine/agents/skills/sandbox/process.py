"""Runs one command and reads its output, within limits; whatever happens, nothing of it is left running.

It knows time, bytes and memory, and no skill. It blocks: asynchronous callers give it a thread, and end it by `stop`.
"""

from __future__ import annotations

import os
import select
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import IO, Any, Final, NamedTuple, cast

from flowengine.agents.skills.sandbox.script import Ending, Outcome, ScriptLimits

# --- Memory in a script's sockets

_SOCKET_TABLES: Final = ("tcp", "tcp6", "udp", "udp6", "udplite", "udplite6", "raw", "raw6")
_QUEUES_COLUMN: Final = 4
"""The column of `sending:receiving`, in hexadecimal bytes."""
_DEFAULT_BUFFER: Final = 212_992
"""Bytes of a socket's buffer, where the kernel does not say."""


def measure_sockets(pid: int) -> int:
    """Bytes, at most, in the sockets of the network that a process is in."""
    local = sum(1 for table in ("unix", "netlink") for _ in _read_rows(pid, table))
    return local * _read_buffer_size() + sum(
        _queued_bytes(row) for table in _SOCKET_TABLES for row in _read_rows(pid, table)
    )


def _read_rows(pid: int, table: str) -> Iterator[str]:
    with suppress(OSError), open(f"/proc/{pid}/net/{table}") as rows:
        next(rows, None)
        yield from rows


def _queued_bytes(row: str) -> int:
    with suppress(ValueError, IndexError):
        return sum(int(each, 16) for each in row.split()[_QUEUES_COLUMN].split(":"))
    return 0


@cache
def _read_buffer_size() -> int:
    """Bytes that a socket takes before its writer has to wait."""
    with suppress(OSError, ValueError), open("/proc/sys/net/core/wmem_default") as file:
        return int(file.read())
    return _DEFAULT_BUFFER


_CHECK_INTERVAL: Final = 0.05
"""Seconds between two looks at memory, files, the clock and `stop`."""
_PIPE_CHUNK: Final = 65_536
_END_TIMEOUT: Final = 2.0
"""Seconds at most to wait for a process that was killed."""
_QUIET_LOOKS: Final = 3
"""Looks for processes in a row that find no new one, after which there is none."""


class Command(NamedTuple):
    """A command to start."""

    line: Sequence[str]
    stdin: bytes = b""
    environment: Mapping[str, str] = {}
    folder: str = "/"
    files: Sequence[int] = ()
    """Open files that it gets, under their numbers."""
    scratch: str | None = None
    """The folder whose files are counted, as the command itself sees it; None: they are not."""


def run_command(command: Command, limits: ScriptLimits, stop: threading.Event) -> Outcome:
    """Run it to its end, or to the first limit."""
    start = time.monotonic()
    with subprocess.Popen(
        command.line,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(command.environment),
        cwd=command.folder,
        pass_fds=tuple(command.files),
        start_new_session=True,
    ) as process:
        try:
            conversation = _Conversation(process, command, limits)
            ending = conversation.until_end(start + limits.seconds, stop)
        finally:
            _end_process(process)
    code = process.returncode
    seconds = time.monotonic() - start
    return Outcome(code if code >= 0 else 128 - code, *conversation.texts(), seconds, ending)


def _end_process(process: subprocess.Popen[bytes]) -> None:
    """End the process and all below it, and wait until they are gone."""
    process.send_signal(signal.SIGSTOP)
    handles = _stop_below(process.pid)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for handle in handles:
        with suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    process.wait()
    for handle in handles:
        waiting = select.poll()
        waiting.register(handle, select.POLLIN)
        waiting.poll(1_000 * _END_TIMEOUT)
        os.close(handle)


def end_below(pid: int) -> None:
    """End all that runs below a process, which itself goes on; nothing waits for it."""
    for handle in _stop_below(pid):
        with suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        os.close(handle)


def _stop_below(pid: int) -> list[int]:
    """Stop all that runs below a process; their handles, each of which means that process and no later of its number.

    Each is stopped before its children are read: the kernel's list of children is whole only of processes that do
    not run (proc(5)), and one that was just started would otherwise outlive its parent unseen.
    """
    handles: list[int] = []
    processes, quiet = {pid}, 0
    while quiet < _QUIET_LOOKS:
        fresh = [each for each in _list_tree(pid) if each not in processes]
        processes.update(fresh)
        for each in fresh:
            with suppress(OSError):
                handle = os.pidfd_open(each)
                handles.append(handle)
                signal.pidfd_send_signal(handle, signal.SIGSTOP)
        quiet = 0 if fresh else quiet + 1
    return handles


class _Conversation:
    """The input and output of a running process."""

    def __init__(self, process: subprocess.Popen[bytes], command: Command, limits: ScriptLimits) -> None:
        self._process = process
        self._limits = limits
        self._scratch = command.scratch
        self._pending = memoryview(command.stdin)
        self._streams: dict[int, bytearray] = {}
        self._selector = selectors.DefaultSelector()
        self._stdout = self._register(process.stdout, selectors.EVENT_READ)
        self._stderr = self._register(process.stderr, selectors.EVENT_READ)
        self._register(process.stdin, selectors.EVENT_WRITE)

    def _register(self, pipe: IO[bytes] | None, event: int) -> int:
        assert pipe is not None
        os.set_blocking(pipe.fileno(), False)
        self._selector.register(pipe, event)
        if event == selectors.EVENT_READ:
            self._streams[pipe.fileno()] = bytearray()
        return pipe.fileno()

    def until_end(self, deadline: float, stop: threading.Event) -> Ending:
        looked = time.monotonic()
        with self._selector:
            while self._is_talking():
                for key, _ in self._selector.select(_CHECK_INTERVAL):
                    self._serve(cast("IO[bytes]", key.fileobj))
                if sum(map(len, self._streams.values())) > self._limits.output:
                    return "output"
                now = time.monotonic()
                if now > deadline or stop.is_set():
                    return "time"
                if now - looked >= _CHECK_INTERVAL:
                    looked = now
                    exceeded = _find_exceeded(self._process.pid, self._limits, self._scratch)
                    if exceeded is not None:
                        return exceeded
        return "exit"

    def _is_talking(self) -> bool:
        """Until all its outputs are closed; where it has ended and others hold them, until they fall silent."""
        if not any(key.events == selectors.EVENT_READ for key in self._selector.get_map().values()):
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_CHECK_INTERVAL)
                return False
            return True
        return self._process.poll() is None or bool(self._selector.select(0))

    def _serve(self, pipe: IO[bytes]) -> None:
        if pipe is self._process.stdin:
            self._give(pipe)
            return
        piece = pipe.read(_PIPE_CHUNK)
        if piece:
            self._streams[pipe.fileno()] += piece
        elif piece == b"":
            self._selector.unregister(pipe)

    def _give(self, pipe: IO[bytes]) -> None:
        try:
            if self._pending:
                self._pending = self._pending[os.write(pipe.fileno(), self._pending[:_PIPE_CHUNK]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._pending = memoryview(b"")
        if not self._pending:
            self._selector.unregister(pipe)
            with suppress(BrokenPipeError):
                pipe.close()

    def texts(self) -> tuple[str, str]:
        """Output and messages, together no longer than the limit."""
        out, err = self._streams[self._stdout], self._streams[self._stderr]
        output = bytes(out[: self._limits.output])
        return _decode(output), _decode(bytes(err[: self._limits.output - len(output)]))


def _decode(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _find_exceeded(pid: int, limits: ScriptLimits, scratch: str | None) -> Ending | None:
    """Bounds the memory of all processes together, which the kernel does not for unprivileged users."""
    pids = list(_list_tree(pid))
    queued = 0 if scratch is None else measure_sockets(pids[-1])
    if sum(map(_read_memory, pids)) + queued > limits.memory:
        return "memory"
    if scratch is not None:
        with suppress(OSError):
            usage = os.statvfs(f"/proc/{pids[-1]}/root{scratch}")
            return "files" if usage.f_files - usage.f_ffree > limits.files else None
    return None


def _list_tree(pid: int) -> Iterator[int]:
    """The process and all below it, those that were left by their parents included."""
    yield pid
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{task}/children") as file:
                for child in file.read().split():
                    yield from _list_tree(int(child))


def _read_memory(pid: int) -> int:
    """Bytes of memory that are this process' own."""
    with suppress(OSError, ValueError), open(f"/proc/{pid}/status") as status:
        lines = [line.split() for line in status if line.startswith(("RssAnon", "RssShmem"))]
        return 1024 * sum(int(cast(Any, line)[1]) for line in lines)
    return 0
