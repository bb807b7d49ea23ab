"""A small file system in memory that only the processes of one child see, and a flow that fills it.

The command line is tried in children of that child; what they say is kept outside of the disk.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from flowengine.engine.events import NodeFinished
from flowengine.journal.sqlite.store import SQLiteStore
from tests.faults.process_nursery import ROOT, command, speak_into

__all__ = [
    "NODES",
    "READ_ONLY",
    "REMOUNT",
    "can_mount",
    "executed",
    "finished",
    "give_up_rights",
    "mount",
    "own_mounts",
    "prepare",
    "problems_of",
    "small_disk",
    "told",
    "write_flow",
]

NODES: Final = 8

_NODE: Final = '  n{0}: {{type: function, call: "steps:fill", with: {{number: {0}}}, needs: [{1}]}}\n'
FLOW: Final = (
    "flowengine: v1\nname: fill\nnodes:\n"
    + "".join(_NODE.format(number, f"n{number - 1}" if number else "") for number in range(NODES))
    + f'outputs:\n  length: "{{{{ nodes.n{NODES - 1}.output | length }}}}"\n'
)
"""A chain of nodes, each of which gives much text and says on another disk that it runs."""

STEPS: Final = """
import os, time

def fill(number):
    if os.path.exists("hold") and number == 2:
        open("at two", "w").close()
        while not os.path.exists("held"):
            time.sleep(0.01)
    with open(os.environ["EXECUTED"], "a") as file:
        file.write(f"{number}\\n")
    return str(number) * 60_000
"""


def write_flow(folder: Path) -> None:
    folder.joinpath("fill.yaml").write_text(FLOW)
    folder.joinpath("steps.py").write_text(STEPS)


def prepare() -> None:
    """What every process needs is imported by running a flow."""
    from flowengine.flow import Flow

    Flow.from_yaml(ROOT / "flows" / "wider_search.yaml").run_sync({"question": "?"})


# --- a disk of one's own ------------------------------------------------------------------------

_NEW_USER, _NEW_MOUNTS = 0x10000000, 0x00020000
_PRIVATE, _RECURSIVE = 1 << 18, 1 << 14
REMOUNT, READ_ONLY = 32, 1
SIZE: Final = 4 * 2**20


def own_mounts() -> None:
    """What this process mounts is seen by itself and its children alone."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    if libc.unshare(_NEW_MOUNTS if user == 0 else _NEW_MOUNTS | _NEW_USER) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    if user != 0:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    mount("none", "/", None, _PRIVATE | _RECURSIVE)


def mount(source: str, target: str, kind: str | None, flags: int = 0, data: str = "") -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source.encode(), target.encode(), kind and kind.encode(), flags, data.encode()) != 0:
        raise OSError(ctypes.get_errno(), f"mount {target}")


def can_mount() -> bool:
    """Work of a child: whether it may have a disk."""
    try:
        own_mounts()
        mount("tmpfs", "/mnt", "tmpfs")
    except OSError:
        return False
    return True


def give_up_rights() -> None:
    """A file's mode holds for this process from now on, also where it is root's; what it may read, it still may."""
    libc = ctypes.CDLL(None, use_errno=True)
    version, this_process = 0x20080522, 0
    header, none = struct.pack("Ii", version, this_process), bytes(24)
    if libc.capset(header, none) != 0:
        raise OSError(ctypes.get_errno(), "capset")


@contextmanager
def small_disk() -> Iterator[None]:
    """A disk at `disk` in the working folder, with the flow on it, which is the working folder for a while."""
    own_mounts()
    os.environ["EXECUTED"] = os.path.abspath("executed")
    os.mkdir("disk")
    mount("tmpfs", "disk", "tmpfs", 0, f"size={SIZE}")
    os.chdir("disk")
    write_flow(Path.cwd())
    try:
        yield
    finally:
        os.chdir("..")


def told(*argv: str, first: Callable[[], None] = lambda: None) -> tuple[int, str, str]:
    """The command line in a child: exit code, stdout and stderr, which are kept on the other disk."""
    file = Path(os.environ["EXECUTED"]).with_name("told")
    pid = os.fork()
    if pid == 0:
        try:
            speak_into(file)
            first()
            command(argv)
        finally:
            os._exit(71)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return status, Path(f"{file}.out").read_text(), Path(f"{file}.err").read_text()


def executed() -> Counter[str]:
    """Node → how often it ran."""
    file = Path(os.environ["EXECUTED"])
    return Counter(f"n{number}" for number in file.read_text().split()) if file.exists() else Counter()


def finished(store: str) -> list[str] | None:
    """The nodes that the record has to the end; None where there is no run."""
    found = SQLiteStore(store)
    try:
        if not found.list():
            return None
        return [event.node for event in found.events("r1") if isinstance(event, NodeFinished)]
    finally:
        found.close()


def problems_of(store: str) -> str:
    """What SQLite's own check finds: `ok`."""
    with closing(sqlite3.connect(store)) as connection:
        return connection.execute("PRAGMA integrity_check").fetchone()[0]
