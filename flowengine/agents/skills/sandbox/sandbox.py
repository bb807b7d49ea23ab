"""Runs scripts of skills where they can do no harm, and refuses where that cannot be had.

Whether the sandbox holds is tried out once a process, by a script that attempts what scripts must not do. It knows
scripts and outcomes; how they are confined is written in `flowengine.agents.skills.sandbox.confinement`.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, Final, NamedTuple

from anyio import CancelScope, get_cancelled_exc_class, to_thread

from flowengine.agents.skills.sandbox.confinement import (
    PROGRAMS,
    SCRATCH,
    confine_command,
    limit_arguments,
    make_readable,
)
from flowengine.agents.skills.sandbox.process import Command, run_command
from flowengine.agents.skills.sandbox.script import PATH, Outcome, ScriptLimits, interpreter_of, python_program
from flowengine.agents.skills.sandbox.seccomp import MACHINES, make_filter
from flowengine.agents.skills.skill_files import SKILL, VISIBLE, RefusedError
from flowengine.core import call_abandonable, open_regular
from flowengine.errors import DefinitionError, refuse_other_kind

_HEAD_BYTES: Final = 200
"""Bytes of a script that are looked at."""
_VENV_FILE: Final = "pyvenv.cfg"
_MAX_FILES_TRIED: Final = 200
"""Files of the project that are looked for in the sandbox."""


class Verdict(NamedTuple):
    """Whether scripts are confined here, and if not, why."""

    holds: bool
    reason: str = ""


class Sandbox:
    """The sandbox of an agent's scripts."""

    def __init__(
        self, limits: ScriptLimits | None = None, allow_unconfined: bool = False, *, root: Path | None = None
    ) -> None:
        """`allow_unconfined`: where there is no sandbox, run scripts with the rights of this process. They can then
        read its files and reach the network; only the limits of time, memory and output are left.
        `root`: of the project, whose files scripts do not see wherever it lies; None: the current folder."""
        refuse_other_kind(limits, (ScriptLimits, NoneType), "limits of scripts are ScriptLimits", DefinitionError)
        refuse_other_kind(allow_unconfined, bool, "allow_unconfined is True or False", DefinitionError)
        self.limits = ScriptLimits() if limits is None else limits
        self.allow_unconfined = allow_unconfined
        self.root = Path.cwd() if root is None else root

    async def run(self, folder: Path, path: str, arguments: Sequence[str] = (), stdin: str = "") -> Outcome:
        """Run the script at this path below a skill's folder; a `RefusedError` where that cannot be."""
        stop, ended, turn = threading.Event(), threading.Event(), threading.Lock()
        has_begun = False

        def work() -> Outcome:
            nonlocal has_begun
            with turn:
                if stop.is_set():
                    raise RefusedError("refused", reason="it was cancelled before it began")
                has_begun = True
            try:
                return self._run(folder, path, arguments, stdin.encode("utf-8", "replace"), stop)
            finally:
                ended.set()

        try:
            return await call_abandonable(work)
        except get_cancelled_exc_class():
            with turn:
                stop.set()
            if has_begun:
                with CancelScope(shield=True):  # Nothing may be left running after a cancellation.
                    await to_thread.run_sync(ended.wait)
            raise

    def _run(self, folder: Path, path: str, arguments: Sequence[str], stdin: bytes, stop: threading.Event) -> Outcome:
        confinement = verdict(self.root)
        if not confinement.holds and not self.allow_unconfined:
            raise RefusedError("refused", reason=confinement.reason)
        with open_regular(folder / path) as file:
            program = interpreter_of(path, file.read(_HEAD_BYTES).decode("utf-8", "replace"))
        if not confinement.holds:
            return _run_unconfined([*program, str(folder / path), *arguments], stdin, self.limits, stop)
        with make_readable(folder) if _is_root() else nullcontext(folder) as place:
            line = [*program, f"{SKILL}/{path}", *arguments]
            return _run_confined(line, place, self.root, stdin, self.limits, stop)


@cache
def verdict(root: Path | None = None) -> Verdict:
    """Checks whether the sandbox holds on this machine, for a project at this root; tried out when first asked."""
    missing = [each for each in (*PROGRAMS, *(["setpriv"] if _is_root() else [])) if shutil.which(each) is None]
    if missing:
        return Verdict(False, f"{', '.join(missing)} is not installed")
    if sys.platform != "linux" or platform.machine() not in MACHINES:
        return Verdict(False, f"there is no sandbox for {sys.platform} on {platform.machine()}")
    if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        return Verdict(False, "the kernel does not tell the children of a process")
    return _try_out(root)


def _try_out(root: Path | None) -> Verdict:
    """Runs a script that attempts what must be impossible, and returns its report."""
    line = [python_program(), "-I", "-c", _PROBE, *([] if root is None else _list_files(root))]
    # Much time: what a busy machine does not end counts as no sandbox for as long as the process lives.
    limits = ScriptLimits(seconds=60, memory=300_000_000, processes=24)
    with tempfile.TemporaryDirectory(prefix="flowengine-probe-") as folder:
        os.chmod(folder, 0o755)
        outcome = _run_confined(line, Path(folder), root, b"", limits, threading.Event())
    try:
        checks: dict[str, Any] = json.loads(outcome.stdout)
    except ValueError:
        first = (outcome.stderr.strip() or f"the trial ended with code {outcome.code}").splitlines()[0]
        return Verdict(False, f"bubblewrap cannot make one here: {first:.300}")
    failed = [name for name, holds in checks.items() if not holds]
    return Verdict(False, f"it does not hold: {', '.join(failed)}") if failed else Verdict(True)


def _list_files(root: Path) -> list[str]:
    """Files right in a project's folder, of which none may be seen. A virtual environment has one that Python needs."""
    try:
        files = [each.path for each in os.scandir(os.path.realpath(root)) if each.is_file() and each.name != _VENV_FILE]
    except OSError:
        return []
    return sorted(each for each in files if each not in VISIBLE)[:_MAX_FILES_TRIED]


def _run_confined(
    line: Sequence[str], skill: Path, root: Path | None, stdin: bytes, limits: ScriptLimits, stop: threading.Event
) -> Outcome:
    reading, writing = os.pipe()
    try:
        os.write(writing, make_filter(platform.machine()))
        os.close(writing)
        chain = confine_command(line, skill, limits, reading, is_root=_is_root(), root=root)
        # Nothing of our own environment: a process can read that of the one that started its sandbox.
        command = Command(chain, stdin, {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}, files=[reading], scratch=SCRATCH)
        return run_command(command, limits, stop)
    finally:
        os.close(reading)


def _run_unconfined(line: Sequence[str], stdin: bytes, limits: ScriptLimits, stop: threading.Event) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="flowengine-script-", ignore_cleanup_errors=True) as scratch:
        environment = {"PATH": PATH, "HOME": scratch, "TMPDIR": scratch, "LANG": "C.UTF-8"}
        bounded = [*limit_arguments(limits), *line] if shutil.which("prlimit") else line
        return run_command(Command(bounded, stdin, environment, scratch), limits, stop)


def _is_root() -> bool:
    return os.geteuid() == 0


_PROBE: Final = """
import ctypes, json, mmap, os, signal, socket, sys, time

def refused(attempt):
    try:
        attempt()
    except Exception:
        return True
    return False

def connect():
    with socket.socket() as caller:
        caller.settimeout(1)
        caller.connect(("192.0.2.1", 9))

def network():
    with open("/proc/net/dev") as file:
        return all(line.split(":")[0].strip() == "lo" for line in file.readlines()[2:])

def processes():
    made = []
    try:
        for _ in range(60):
            made.append(os.fork())
            if made[-1] == 0:
                time.sleep(30)
                os._exit(0)
    except OSError:
        return 4 < len(made) < 30
    finally:
        for each in made:
            os.kill(each, signal.SIGKILL)
    return False

def unshare():
    if ctypes.CDLL(None).unshare(0x10000000):
        raise OSError

def pages():
    mmap.mmap(-1, 600_000_000)

KNOWN = {"ld.so.cache", "alternatives"}
held = {
    "the network can be reached": refused(connect) and network(),
    "files of the machine can be read": not os.path.exists("/etc/passwd") and set(os.listdir("/etc")) <= KNOWN,
    "the project's files can be seen": not [each for each in sys.argv[1:] if os.path.lexists(each)],
    "the skill can be written": refused(lambda: open("/skill/x", "w")),
    "the root can be written": refused(lambda: open("/x", "w")) and refused(lambda: open("/dev/x", "w")),
    "the scratch folder cannot be written": not refused(lambda: open("/scratch/x", "w")),
    "the environment is visible": not [each for each in os.environ if each.startswith("FLOWENGINE")],
    "the privileges are not dropped": os.getuid() != 0 and refused(lambda: os.setuid(0)),
    "namespaces can be nested": refused(unshare),
    "other processes are visible": sum(each.isdigit() for each in os.listdir("/proc")) < 10,
    "the limit on processes is not kept": processes(),
    "the limit on memory is not kept": refused(pages),
}
print(json.dumps(held))
"""
