"""Gets a key from a command, such as that of a vault. It runs once a process; what it printed is kept in memory only.

The command runs without a shell. Neither what it printed nor its arguments are told in an error: only the program's
name, and how it ended.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import PurePath
from threading import Lock
from typing import Any, Final, cast

from flowengine.errors import ModelConfigError

TIME_LIMIT: Final = 30.0
"""Seconds that a command has: some vaults ask a person first."""
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")
_LONGEST: Final = 10_000
"""Characters of a key."""

_keys: Final[dict[tuple[str, ...], str]] = {}
_running: Final = Lock()


def find_key_command_problem(value: object) -> str | None:
    """Explains why a key command is invalid; None if it is valid.

    >>> find_key_command_problem("op read 'op://vault/openai/key'"), find_key_command_problem([])
    (None, 'a command as a text or a list of texts, with a program first')
    """
    texts = cast("list[Any]", value) if isinstance(value, list) else []
    if isinstance(value, str):
        try:
            texts = shlex.split(value)
        except ValueError as error:
            return f"a command whose quotes are closed ({error})"
    if texts and all(isinstance(each, str) and "\0" not in each for each in texts) and texts[0]:
        return None
    return "a command as a text or a list of texts, with a program first"


def find_variable_problem(value: object) -> str | None:
    """Explains why a variable's name is invalid; None if it is valid."""
    is_one = isinstance(value, str) and _VARIABLE.fullmatch(value)
    return None if is_one else "the name of an environment variable, not its value"


def split_command(value: str | Sequence[str]) -> tuple[str, ...]:
    """The program and its arguments, split as a shell does it.

    >>> split_command("op read 'op://vault/open ai/key'")
    ('op', 'read', 'op://vault/open ai/key')
    """
    return tuple(shlex.split(value) if isinstance(value, str) else value)


def read_key(command: tuple[str, ...], owner: str, *, limit: float = TIME_LIMIT) -> str:
    """The key that a command prints, as it did the first time. `owner`: where the command is written.

    `ModelConfigError` where there is no such program, it fails, takes longer than `limit` seconds, or prints no key.
    """
    with _running:  # A caller that comes meanwhile wants the same key, and a person is asked once.
        if command not in _keys:
            _keys[command] = _read_output(_run(command, owner, limit), command, owner)
        return _keys[command]


def _run(command: tuple[str, ...], owner: str, limit: float) -> bytes:
    program = PurePath(command[0]).name
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
    except OSError as error:
        raise ModelConfigError(f"the key command '{program}' of {owner} cannot be started: {error.strerror}") from None
    try:
        printed, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        _end(process)
        raise ModelConfigError(f"the key command '{program}' of {owner} gave no key within {limit:g} s") from None
    except BaseException:
        _end(process)
        raise
    if process.returncode != 0:
        failed = f"the key command '{program}' of {owner} failed with exit code {process.returncode}"
        raise ModelConfigError(f"{failed}; run it by hand to see why")
    return printed


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the command with all that it started; what still holds its output is not waited for."""
    with suppress(ProcessLookupError, PermissionError):
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    if process.stdout is not None:
        process.stdout.close()
    process.wait()


def _read_output(printed: bytes, command: tuple[str, ...], owner: str) -> str:
    text = printed.decode("utf-8", "replace").strip()
    if text and len(text) <= _LONGEST and text.isprintable() and " " not in text:
        return text
    output = "nothing" if not text else "more than one word"
    raise ModelConfigError(
        f"the key command '{PurePath(command[0]).name}' of {owner} printed {output}, where a key alone is expected"
    )
