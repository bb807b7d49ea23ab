"""The command that runs a script under bubblewrap, and what a script can do.

A script sees a file system of its own: programs and this Python read-only, its skill read-only under `/skill`
(`flowengine.skills.visible`), and a scratch folder in memory. It has no network, sees no other process, and its
environment is what is written here.

Two things are easily got wrong. The kernel ignores the limit on processes for root, so root first becomes `nobody`;
and as `nobody` cannot reach folders of root's, they are mounted before that, by a first bubblewrap that confines
nothing. And a process that is to die with its parent dies with the thread that started it, which may end early; so
`timeout` stands between, which also ends scripts whose starter was killed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from flowengine.skills.script import PATH, Limits
from flowengine.skills.visible import SKILL, prefixes, visible

__all__ = ["ENVIRONMENT", "PROGRAMS", "SCRATCH", "SKILL", "confined", "limited"]

SCRATCH: Final = "/scratch"
_NOBODY: Final = "65534"
_SHARED_MEMORY: Final = 1_000_000

PROGRAMS: Final = ("bwrap", "timeout", "prlimit")
"""What has to be installed; for root `setpriv` too."""

ENVIRONMENT: Final[Mapping[str, str]] = {
    "PATH": PATH,
    "HOME": SCRATCH,
    "TMPDIR": SCRATCH,
    "USER": "nobody",
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
}
"""All that a script finds in its environment."""


def confined(
    command: Sequence[str], skill: Path, limits: Limits, seccomp: int, *, is_root: bool, root: Path | None = None
) -> list[str]:
    """The command line. `seccomp`: the number of the open file that the filter is read from. `root`: of the project."""
    seen = visible(skill, root)
    if is_root:
        outer = [*_bwrap(), *seen, *("--bind", "/proc", "/proc", "--dev", "/dev", "--dir", SCRATCH)]
        inner = [*_bwrap(), *_apart(), *("--ro-bind", "/", "/"), *_own(limits, seccomp)]
        chain = [*outer, *_short_way(), "--", *_as_nobody(), *inner]
    else:
        chain = [*_bwrap(), *_apart(), *seen, *_own(limits, seccomp)]
        chain += [*_short_way(), "--remount-ro", "/"]
    return [*_timed(limits), *chain, "--", *limited(limits), *command]


def _timed(limits: Limits) -> list[str]:
    """A little later than whoever started it would end it."""
    return ["timeout", "--signal=KILL", f"{limits.seconds + 2:g}"]


def limited(limits: Limits) -> list[str]:
    """Set inside, so that only the script's own processes count."""
    return [
        "prlimit",
        f"--as={limits.memory}",
        f"--nproc={limits.processes}",
        f"--nofile={limits.open_files}",
        f"--fsize={limits.scratch}",
        f"--cpu={max(1, round(limits.seconds))}",
        *("--core=0", "--memlock=65536", "--msgqueue=0", "--sigpending=256", "--"),
    ]


def _bwrap() -> list[str]:
    return ["bwrap", "--die-with-parent"]


def _as_nobody() -> list[str]:
    ids = ["--reuid", _NOBODY, "--regid", _NOBODY, "--clear-groups"]
    return ["setpriv", *ids, "--inh-caps=-all", "--bounding-set=-all", "--pdeathsig=keep", "--"]


def _apart() -> list[str]:
    kinds = ("user", "pid", "net", "ipc", "uts", "cgroup")
    return [
        *(f"--unshare-{kind}" for kind in kinds),
        *("--uid", _NOBODY, "--gid", _NOBODY, "--hostname", "sandbox"),
        *("--disable-userns", "--new-session", "--cap-drop", "ALL"),
        "--as-pid-1",  # Else bubblewrap's own process is there, which no filter binds and which could be taken over.
    ]


def _own(limits: Limits, seccomp: int) -> list[str]:
    """Devices, processes and a scratch folder of its own; nothing else can be written."""
    return [
        *("--proc", "/proc", "--dev", "/dev"),
        *("--size", str(_SHARED_MEMORY), "--tmpfs", "/dev/shm", "--remount-ro", "/dev"),
        *("--size", str(limits.scratch), "--tmpfs", SCRATCH, "--chdir", SCRATCH),
        "--clearenv",
        *(part for name, value in ENVIRONMENT.items() for part in ("--setenv", name, value)),
        *("--seccomp", str(seccomp)),
    ]


def _short_way() -> list[str]:
    """`/tmp` leads to the scratch folder, unless this Python itself lives below `/tmp`: then nothing else is there."""
    is_taken = any(Path(each).is_relative_to("/tmp") for each in prefixes())
    return [] if is_taken else ["--symlink", SCRATCH, "/tmp"]
