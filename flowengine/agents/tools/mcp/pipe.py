"""Runs a local MCP server: its process, and the messages over its standard streams.

The `mcp` library brings a transport like this one. Ours gives the process no more of the environment
than it is meant to have, bounds what a broken server can make us hold in memory, reads past noise
without a traceback a line, and keeps the last of stderr for the message that says how it ended.
It knows no session, no tool and no call.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeAlias, cast

import anyio
import anyio.lowlevel
import mcp_types
from anyio.abc import ByteReceiveStream, ByteSendStream, Process
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from flowengine.core import MAX_VALUES, ValueCounter

Incoming: TypeAlias = SessionMessage | Exception
Streams: TypeAlias = tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]

_MAX_LINE: Final = 32 * 1024 * 1024
"""Bytes of one message; more ends the connection."""
_PART: Final = 16_384
"""Bytes that are looked at before others have their turn."""
_MAX_NOISE: Final = 64 * 1024 * 1024
"""Bytes on stdout that are no messages; more ends the connection."""
_LAST_WORDS: Final = 2_000
_GRACE: Final = 1.0
"""Seconds to end by itself once stdin is closed, and again once it is told to."""
_GONE = (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError)


class Pipe:
    """One process for as long as `open` is entered. Made anew for each start."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._command = command
        self._environment = environment
        self._process: Process | None = None
        self._errors = bytearray()
        self._fault = ""
        self._arrival = anyio.Event()
        self.ended = anyio.Event()
        """Set when no message will come any more."""

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Streams]:
        """Start the process; leaving ends it, within seconds, whatever it does."""
        process = await anyio.open_process(self._command, env=self._environment, start_new_session=True)
        self._process = process
        inbox, incoming = anyio.create_memory_object_stream[Incoming]()
        outgoing, outbox = anyio.create_memory_object_stream[SessionMessage]()
        stdin, stdout, stderr = _pipes_of(process)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read, stdout, inbox)
            tasks.start_soon(self._listen, stderr)
            tasks.start_soon(self._write, outbox, stdin)
            try:
                yield incoming, outgoing
            finally:
                incoming.close()
                outgoing.close()
                with anyio.CancelScope(shield=True):
                    await _end_process(process)
                    with anyio.move_on_after(_GRACE):
                        await self._arrival.wait()
                    with anyio.move_on_after(_GRACE):
                        await process.aclose()
                tasks.cancel_scope.cancel()

    def how_it_ended(self) -> str:
        """Explains why no more messages arrive."""
        code = None if self._process is None else self._process.returncode
        return self._fault or ("it closed its stdout" if code is None else f"its process ended with exit code {code}")

    def last_words(self, hide: Callable[[str], str]) -> str:
        """The last that it wrote to stderr, without secrets, as the end of a message; the empty string for none."""
        words = "".join(c if c.isprintable() else " " for c in hide(self._errors.decode("utf-8", "replace")))
        words = " ".join(words.split())[-_LAST_WORDS:]
        return f"; last on stderr: {words}" if words else ""

    async def _read(self, stdout: ByteReceiveStream, inbox: MemoryObjectSendStream[Incoming]) -> None:
        """Hand on every message; without a reader, read on, so that the process can end."""
        lines = BufferedByteReceiveStream(stdout)
        noise = 0
        with inbox:
            with suppress(anyio.IncompleteRead, anyio.EndOfStream, *_GONE):
                while not self._fault:
                    try:
                        line = await lines.receive_until(b"\n", _MAX_LINE)
                    except anyio.DelimiterNotFound:
                        self._fault = f"it wrote a line of more than {_MAX_LINE:,} bytes to stdout"
                        break
                    if await _has_too_many_values(line):
                        self._fault = f"it wrote a message of more than {MAX_VALUES:,} values to stdout"
                        break
                    message = _parse_message(line)
                    if message is None:
                        noise += len(line) + 1
                        self._fault = "" if noise <= _MAX_NOISE else "it floods its stdout with what is no JSON-RPC"
                    else:
                        with suppress(*_GONE):
                            await inbox.send(message)
            self.ended.set()
        with suppress(anyio.EndOfStream, *_GONE):
            while True:
                await stdout.receive()

    async def _listen(self, stderr: ByteReceiveStream) -> None:
        """Keep the last of stderr, and drop the rest, so that a flood neither blocks nor grows."""
        try:
            while True:
                self._errors += await stderr.receive()
                del self._errors[: -2 * _LAST_WORDS]
        except (anyio.EndOfStream, *_GONE):
            pass
        finally:
            self._arrival.set()

    async def _write(self, outbox: MemoryObjectReceiveStream[SessionMessage], stdin: ByteSendStream) -> None:
        with outbox, suppress(*_GONE):
            async for each in outbox:
                line = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                await stdin.send(line.encode() + b"\n")


async def _has_too_many_values(line: bytes) -> bool:
    counter = ValueCounter()
    for start in range(0, len(line) if len(line) > MAX_VALUES else 0, _PART):
        if counter.feed(line[start : start + _PART]) > MAX_VALUES:
            return True
        await anyio.lowlevel.checkpoint()
    return False


def _parse_message(line: bytes) -> SessionMessage | None:
    """The message of a line; None for noise, most of which is told by its first character."""
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        return SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        return None


def _pipes_of(process: Process) -> tuple[ByteSendStream, ByteReceiveStream, ByteReceiveStream]:
    """stdin, stdout and stderr; `open_process` makes a pipe of each unless told otherwise."""
    return cast(Any, (process.stdin, process.stdout, process.stderr))


async def _end_process(process: Process) -> None:
    """Close its stdin; then ask it to end; then kill it with all that it started."""
    stdin, _, _ = _pipes_of(process)
    with suppress(*_GONE):
        await stdin.aclose()
    with anyio.move_on_after(_GRACE):
        await process.wait()
    if process.returncode is None:
        _signal(process, signal.SIGTERM)
        with anyio.move_on_after(_GRACE):
            await process.wait()
    _signal(process, signal.SIGKILL)


def _signal(process: Process, number: signal.Signals) -> None:
    """Sends a signal to the process and its children: it was started as the leader of a group of its own."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
