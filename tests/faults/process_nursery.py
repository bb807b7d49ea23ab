"""Processes that are ready at once: a server that has everything imported forks one for each piece of work.

A new interpreter takes 0.7 s until a flow runs in it; a forked one 5 ms. What is forked is a process like any
other: it has an id, takes signals, dies of kill -9, and leaves behind what such a process leaves. The server has
one thread, so that no lock is forked in a locked state, and never runs an event loop of its own.

    with Nursery() as nursery:
        child = nursery.start(work, folder, seconds=3)   # work(seconds=3) in a process of its own
        os.kill(child.pid, signal.SIGKILL)
        assert child.ended().status == -signal.SIGKILL
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Self

__all__ = ["ROOT", "Child", "Ended", "Nursery", "command", "shared", "speak_into"]

ROOT = Path(__file__).parents[2]
SIGNALS = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED_EARLY = 71
"""Exit code of a child whose work did not yet listen to Ctrl-C."""


class Ended(NamedTuple):
    """What a process left."""

    status: int
    """Its exit code, or minus the number of the signal that ended it."""
    out: str
    err: str
    value: Any
    """What the work returned; None where it did not come to that."""


class Child:
    """A process that is doing its work."""

    def __init__(self, nursery: Nursery, pid: int, folder: Path, name: str) -> None:
        self.pid = pid
        self.name = name
        """With which the names of its files begin."""
        self._nursery = nursery
        self._file = folder / name

    def ended(self) -> Ended:
        """Wait for its end."""
        status = self._nursery.ask({"wait": self.pid})
        out, err, value = (Path(f"{self._file}.{suffix}") for suffix in ("out", "err", "json"))
        if not err.exists():  # it was ended before it had a name
            return Ended(status, "", "", None)
        told = json.loads(value.read_text() or "null") if value.exists() else None
        return Ended(status, out.read_text(errors="replace"), err.read_text(errors="replace"), told)

    def is_running(self) -> bool:
        return self._nursery.ask({"look": self.pid})


class Nursery:
    """The server; its children end with the block."""

    def __init__(self, *prepare: Callable[[], object], surroundings: Mapping[str, str] = {}) -> None:
        self._prepare = prepare
        self._surroundings = {**without_vendors(), **surroundings}
        self._count = 0
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.process_nursery", *map(_name, self._prepare)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=self._surroundings,
        )
        return self

    def __exit__(self, *exc: object) -> None:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait(60)
        self._server.stdout.close()

    def start(self, work: Callable[..., Any], folder: Path, **arguments: Any) -> Child:
        """Begin a function of a module, with arguments that JSON can carry, in that working folder."""
        self._count += 1
        name = f".child{self._count}"
        order = {"call": _name(work), "arguments": arguments, "folder": str(folder), "name": name}
        return Child(self, self.ask(order), folder, name)

    def run(self, work: Callable[..., Any], folder: Path, **arguments: Any) -> Ended:
        """The same, to its end."""
        return self.start(work, folder, **arguments).ended()

    def ask(self, order: Mapping[str, Any]) -> Any:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        with self._lock:
            self._server.stdin.write(f"{json.dumps(order)}\n")
            self._server.stdin.flush()
            answer = self._server.stdout.readline()
        assert answer, "the nursery has died"
        return json.loads(answer)


@cache
def shared(*prepare: Callable[[], object]) -> Nursery:
    """One for all tests of this process that want the same; it ends with the process."""
    nursery = Nursery(*prepare).__enter__()
    atexit.register(nursery.__exit__)
    return nursery


def command(argv: Sequence[str], environ: Mapping[str, str] = {}) -> None:
    """Work of a child: the command line `flowengine`, as its entry point calls it."""
    from flowengine.cli.main import main

    os.environ.update(environ)
    sys.argv = ["flowengine", *argv]
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def without_vendors() -> dict[str, str]:
    """This process's surroundings; no key and no address of the machine takes part."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "FLOWENGINE_"))}
    return {**kept, "FLOWENGINE_DEFAULT_MODEL": "offline", "PYTHONPATH": os.pathsep.join(sys.path)}


def _name(function: Callable[..., Any]) -> str:
    return f"{function.__module__}:{function.__qualname__}"


def _function(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


# --- the server ---------------------------------------------------------------------------------


def serve(prepare: Sequence[str]) -> None:
    import flowengine.cli.commands.run  # noqa: F401 -- so that no child has to

    orders, answers = sys.stdin, os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for name in prepare:
        _function(name)()
    for thread in threading.enumerate():
        if thread is not threading.main_thread():
            thread.join(30)  # of an event loop that has ended
    gc.freeze()  # a collection in a child would copy all that it shares
    endings: dict[int, int] = {}
    for line in orders:
        order = json.loads(line)
        if "wait" in order:
            answer = _awaited(order["wait"], endings)
        elif "look" in order:
            answer = _is_running(order["look"], endings)
        else:
            answer = _forked(order)
        answers.write(f"{json.dumps(answer)}\n")
        answers.flush()


def _awaited(pid: int, endings: dict[int, int]) -> int:
    if pid not in endings:
        endings[pid] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return endings[pid]


def _is_running(pid: int, endings: dict[int, int]) -> bool:
    if pid not in endings:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found == 0:
            return True
        endings[pid] = os.waitstatus_to_exitcode(status)
    return False


def _forked(order: Mapping[str, Any]) -> int:
    assert threading.active_count() == 1, threading.enumerate()
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until it has a name and files of its own
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        return pid
    code = 70
    try:
        _become(Path(order["folder"]), order["name"])
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        with open(f"{order['name']}.json", "w") as file:  # the work may leave the folder, or its rights
            file.write(json.dumps(_function(order["call"])(**order["arguments"])))
        code = 0
    except KeyboardInterrupt:
        code = INTERRUPTED_EARLY
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _become(folder: Path, name: str) -> None:
    """A process of its own: its own group, streams and folder."""
    os.setpgid(0, 0)
    os.chdir(folder)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    speak_into(folder / name)


def speak_into(file: Path) -> None:
    """Let this process's streams be files that begin with that name."""
    for number, suffix in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{file}.{suffix}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), number)
    # Those that Python has open may hold what was said before.
    sys.stdout = sys.__stdout__ = os.fdopen(os.dup(1), "w", encoding="utf-8")
    sys.stderr = sys.__stderr__ = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="backslashreplace")


if __name__ == "__main__":
    # Work names functions by module: this module must be the one that they know, too.
    importlib.import_module("tests.faults.process_nursery").serve(sys.argv[1:])
