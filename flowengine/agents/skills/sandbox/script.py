"""Decides by which program a script is run and within which limits, and says how it ended. Pure: it runs nothing."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final, Literal, NamedTuple

from flowengine.agents.skills.skill_files import SCRIPT_SUFFIXES, RefusedError
from flowengine.errors import DefinitionError

PATH: Final = os.pathsep.join(
    dict.fromkeys((f"{os.path.abspath(sys.prefix)}/bin", "/usr/local/bin", "/usr/bin", "/bin"))
)
"""The folders in which scripts find programs."""

_BY_SUFFIX: Final = {
    ".py": ("python",),
    ".sh": ("bash", "sh"),
    ".bash": ("bash",),
    ".js": ("node",),
    ".mjs": ("node",),
    ".rb": ("ruby",),
    ".pl": ("perl",),
    ".php": ("php",),
    ".lua": ("lua", "lua5.4"),
}
_FIRST_LINE: Final = re.compile(r"(?:\ufeff)?#![ \t]*(\S[^\r\n]*)")

Ending = Literal["exit", "time", "output", "memory", "files"]
"""How a script came to its end: by itself, or at a limit."""


_HIGHEST: Final = 10**15
"""The highest value of any limit: more is more than systems can count."""


@dataclass(frozen=True, slots=True)
class ScriptLimits:
    """The limits of one script execution."""

    seconds: float = 30.0
    """Seconds by the clock; of each process also on the processor."""
    memory: int = 1_000_000_000
    """Bytes: of each process' addresses, and of what all of them together hold."""
    processes: int = 64
    """Threads count."""
    open_files: int = 256
    """Open files of one process."""
    files: int = 10_000
    """Files in the scratch folder."""
    scratch: int = 100_000_000
    """Bytes of the scratch folder, which is held in memory and gone with the script."""
    output: int = 100_000
    """Bytes of output and messages that are read; then the script is stopped."""

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value, kind = getattr(self, name), (int, float) if name == "seconds" else int
            if not isinstance(value, kind) or isinstance(value, bool) or not 0 < value <= _HIGHEST:
                number = "a number" if name == "seconds" else "a whole number"
                most = f" and at most {_HIGHEST:,}" if isinstance(value, kind) and value > _HIGHEST else ""
                raise DefinitionError(f"the limit '{name}' must be {number} above 0{most}, not {value!r:.80}")


class Outcome(NamedTuple):
    """The end of an execution."""

    code: int
    """The script's exit code; 128 and the signal's number where a signal ended it."""
    stdout: str
    stderr: str
    seconds: float
    ending: Ending = "exit"


def find_installed(name: str) -> str | None:
    """Returns the path of a program that scripts may use."""
    return shutil.which(name, path=PATH)


def python_program(started_as: str | None = None) -> str:
    """The path of this Python's program, with its folder resolved and its own name kept.

    The sandbox mounts folders by their resolved paths, so a path with `..` in it would lead nowhere there. The name is
    kept because a virtual environment's program is a link that knows its environment by where it lies.

    >>> python_program("/usr/lib/../bin/python3").startswith("/usr/bin/")
    True
    """
    folder, name = os.path.split(started_as or sys.executable)
    return os.path.join(os.path.realpath(folder), name)


def interpreter_of(path: str, head: str, find: Callable[[str], str | None] = find_installed) -> tuple[str, ...]:
    """The program that runs a script of this path and beginning; a `RefusedError` where that is not clear.

    The first line says it (`#!`); where it says nothing, or what it names is not here, the path's ending does.

    >>> interpreter_of("scripts/a.sh", "#!/usr/bin/env -S perl -w", find=lambda name: f"/usr/bin/{name}")
    ('/usr/bin/perl', '-w')
    """
    command = _parse_first_line(head)
    if command and (program := _find_program(command[:1], find)):
        return (program, *command[1:])
    suffix = PurePosixPath(path).suffix.lower()
    if program := _find_program(_BY_SUFFIX.get(suffix, ()), find):
        return (program,)
    raise RefusedError("no_interpreter", path=path, reason=_explain_refusal(command, suffix))


def _parse_first_line(head: str) -> Sequence[str]:
    """The program's name and its arguments."""
    match = _FIRST_LINE.match(head)
    if match is None:
        return ()
    parts = match[1].split()
    name = Path(parts[0]).name
    if name != "env":
        return (name, *parts[1:])
    inner = [each for each in parts[1:] if not each.startswith("-") and "=" not in each]
    return parts[parts.index(inner[0]) :] if inner else ()


def _find_program(names: Sequence[str], find: Callable[[str], str | None]) -> str | None:
    if names and re.fullmatch(r"python[0-9.]*", names[0]):
        return python_program()
    return next((program for name in names if (program := find(name))), None)


def _explain_refusal(command: Sequence[str], suffix: str) -> str:
    if command:
        return f"the program '{command[0]:.60}' of its first line is not installed"
    if suffix in _BY_SUFFIX:
        return f"the program '{_BY_SUFFIX[suffix][0]}' is not installed"
    return f"it has no first line '#!…', and its ending '{suffix:.20}' is none of {', '.join(SCRIPT_SUFFIXES)}"
