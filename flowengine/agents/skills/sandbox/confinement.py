"""Builds the command that runs a script under bubblewrap, and makes a skill's folder readable for it.

A script sees a file system of its own: programs and this Python read-only, its skill read-only under `/skill`
(`flowengine.agents.skills.skill_files`), and a scratch folder in memory. It has no network, sees no other process, and
its environment is what is written here.

Two things are easily got wrong. The kernel ignores the limit on processes for root, so root first becomes `nobody`;
and as `nobody` cannot reach folders of root's, they are mounted before that, by a first bubblewrap that confines
nothing. And a process that is to die with its parent dies with the thread that started it, which may end early; so
`timeout` stands between, which also ends scripts whose starter was killed.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from flowengine.agents.skills.sandbox.script import PATH, ScriptLimits
from flowengine.agents.skills.skill_files import RefusedError, python_prefixes, visible_arguments

# --- A skill's folder, readable for the script

MAX_COPY: Final = 100_000_000
"""Bytes of a skill that is copied."""


@contextmanager
def make_readable(folder: Path) -> Generator[Path]:
    """The folder, or a copy of it that everybody can read."""
    if _is_readable_by_all(folder):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="flowengine-skill-") as place:
        os.chmod(place, 0o755)
        copy = Path(place, "skill")
        _copy(folder, copy)
        yield copy


def _is_readable_by_all(folder: Path) -> bool:
    for path, status in _list_entries(folder):
        mode = 0o005 if path.is_dir() else 0o004
        if not stat.S_ISLNK(status.st_mode) and status.st_mode & mode != mode:
            return False
    return True


def _list_entries(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    yield folder, folder.stat()
    for here, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(here, name)
            yield path, path.lstat()


def _copy(folder: Path, copy: Path) -> None:
    size = sum(status.st_size for _, status in _list_entries(folder))
    if size > MAX_COPY:
        reason = f"the user that they run as may not read the skill, and it is too large to be copied ({size:,} bytes)"
        raise RefusedError("refused", reason=reason)
    # Links stay links: what they lead to outside the folder is not there for the script.
    shutil.copytree(folder, copy, symlinks=True, ignore=_list_special)
    for path, status in _list_entries(copy):
        if not stat.S_ISLNK(status.st_mode):
            os.chmod(path, status.st_mode | (0o055 if path.is_dir() else 0o044))


def _list_special(folder: str, names: list[str]) -> list[str]:
    """Pipes, sockets and devices, which cannot be copied."""
    kinds = (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)
    return [each for each in names if stat.S_IFMT(os.lstat(os.path.join(folder, each)).st_mode) not in kinds]


SCRATCH: Final = "/scratch"
_NOBODY_ID: Final = "65534"
_SHARED_MEMORY: Final = 1_000_000

_BWRAP: Final = ("bwrap", "--die-with-parent")
_BECOME_NOBODY: Final = (
    *("setpriv", "--reuid", _NOBODY_ID, "--regid", _NOBODY_ID, "--clear-groups"),
    *("--inh-caps=-all", "--bounding-set=-all", "--pdeathsig=keep", "--"),
)
_ISOLATION: Final = (
    *("--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup"),
    *("--uid", _NOBODY_ID, "--gid", _NOBODY_ID, "--hostname", "sandbox"),
    *("--disable-userns", "--new-session", "--cap-drop", "ALL"),
    "--as-pid-1",  # Else bubblewrap's own process is there, which no filter binds and which could be taken over.
)

PROGRAMS: Final = ("bwrap", "timeout", "prlimit")
"""The programs that have to be installed; for root `setpriv` too."""

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


def confine_command(
    command: Sequence[str], skill: Path, limits: ScriptLimits, seccomp: int, *, is_root: bool, root: Path | None = None
) -> list[str]:
    """The command line. `seccomp`: the number of the open file that the filter is read from. `root`: of the project."""
    visible = visible_arguments(skill, root)
    if is_root:
        outer = [*_BWRAP, *visible, *("--bind", "/proc", "/proc", "--dev", "/dev", "--dir", SCRATCH)]
        inner = [*_BWRAP, *_ISOLATION, *("--ro-bind", "/", "/"), *_device_arguments(limits, seccomp)]
        chain = [*outer, *_tmp_arguments(), "--", *_BECOME_NOBODY, *inner]
    else:
        chain = [*_BWRAP, *_ISOLATION, *visible, *_device_arguments(limits, seccomp)]
        chain += [*_tmp_arguments(), "--remount-ro", "/"]
    late = ("timeout", "--signal=KILL", f"{limits.seconds + 2:g}")  # A little later than its starter would end it.
    return [*late, *chain, "--", *limit_arguments(limits), *command]


def limit_arguments(limits: ScriptLimits) -> list[str]:
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


def _device_arguments(limits: ScriptLimits, seccomp: int) -> list[str]:
    """Devices, processes and a scratch folder of its own; nothing else can be written."""
    return [
        *("--proc", "/proc", "--dev", "/dev"),
        *("--size", str(_SHARED_MEMORY), "--tmpfs", "/dev/shm", "--remount-ro", "/dev"),
        *("--size", str(limits.scratch), "--tmpfs", SCRATCH, "--chdir", SCRATCH),
        "--clearenv",
        *(part for name, value in ENVIRONMENT.items() for part in ("--setenv", name, value)),
        *("--seccomp", str(seccomp)),
    ]


def _tmp_arguments() -> list[str]:
    """`/tmp` leads to the scratch folder, unless this Python itself lives below `/tmp`: then nothing else is there."""
    is_taken = any(Path(each).is_relative_to("/tmp") for each in python_prefixes())
    return [] if is_taken else ["--symlink", SCRATCH, "/tmp"]
