"""The command that runs a script under bubblewrap: what it can see, and what it can do. Pure.

A script sees a file system of its own: `/usr` and this Python read-only, its skill read-only under `/skill`, and a
scratch folder in memory. It has no network, sees no other process, and its environment is what is written here.

Two things are easily got wrong. The kernel ignores the limit on processes for root, so root first becomes `nobody`;
and as `nobody` cannot reach folders of root's, they are mounted before that, by a first bubblewrap that confines
nothing. And a process that is to die with its parent dies with the thread that started it, which may end early; so
`timeout` stands between, which also ends scripts whose starter was killed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from flowengine.skills.script import PATH, Limits

__all__ = ["ENVIRONMENT", "PROGRAMS", "SCRATCH", "SKILL", "confined", "limited"]

SKILL: Final = "/skill"
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


def confined(command: Sequence[str], skill: Path, limits: Limits, seccomp: int, *, is_root: bool) -> list[str]:
    """The command line. `seccomp`: the number of the open file that the filter is read from."""
    if is_root:
        outer = [*_bwrap(), *_seen(skill), *("--bind", "/proc", "/proc", "--dev", "/dev", "--dir", SCRATCH)]
        inner = [*_bwrap(), *_apart(), *("--ro-bind", "/", "/"), *_own(limits, seccomp)]
        chain = [*outer, *_short_way(), "--", *_as_nobody(), *inner]
    else:
        chain = [*_bwrap(), *_apart(), *_seen(skill), *_own(limits, seccomp)]
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


def _seen(skill: Path) -> list[str]:
    """Of the machine's files what programs need, and the skill; read-only."""
    places = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        place = f"/{name}"
        if os.path.islink(place):
            places += ["--symlink", os.readlink(place), place]
        elif os.path.isdir(place):
            places += ["--ro-bind", place, place]
    for place in ("/etc/ld.so.cache", "/etc/alternatives", *_prefixes()):
        if os.path.exists(place):
            above = [part for each in reversed(Path(place).parents[:-1]) for part in ("--dir", str(each))]
            places += [*above, "--ro-bind", place, place]  # Folders that are made on the way would be closed to others.
    return [*places, "--ro-bind", os.path.realpath(skill), SKILL]


def _short_way() -> list[str]:
    """`/tmp` leads to the scratch folder, unless this Python itself lives below `/tmp`: then nothing else is there."""
    is_taken = any(Path(each).is_relative_to("/tmp") for each in _prefixes())
    return [] if is_taken else ["--symlink", SCRATCH, "/tmp"]


def _prefixes() -> Iterator[str]:
    """Where this Python lives, as it is named and as it is; never the whole file system or somebody's home."""
    too_wide = {Path("/"), Path.home(), *Path.home().parents}
    for prefix in dict.fromkeys((sys.prefix, sys.base_prefix, os.path.realpath(sys.base_prefix))):
        if not Path(prefix).is_relative_to("/usr") and Path(prefix) not in too_wide:
            yield prefix
