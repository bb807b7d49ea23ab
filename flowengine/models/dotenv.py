"""Reads settings from a `.env` file, under those of the real environment.

It looks in the folder it is given and in no other, and never writes to `os.environ`: the merged
settings are a mapping that the caller passes on. `FLOWENGINE_ENV=production` names the file
`.env.production`, which is then read instead of `.env`, so that a development key is never used
in production by accident. No file can choose itself: the variable counts in the real environment only.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Final

from flowengine.core import Secrets, find_secret_values, find_url_secrets, is_random
from flowengine.errors import DefinitionError

_ASSIGNMENT: Final = re.compile(
    r"""
    ^[ \t]* (?:export[ \t]+)? (?P<name>[A-Za-z_][A-Za-z0-9_]*) [ \t]*=[ \t]*
    (?: '(?P<literal>[^']*)' | "(?P<quoted>(?:[^"\\]|\\.)*)" | (?P<plain>[^\n'"#][^\n]*?)? )
    [ \t]* (?:(?<=[ \t'"=])\#[^\n]*)? $
    """,
    re.MULTILINE | re.VERBOSE | re.DOTALL,
)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r"}


def read_environment(folder: Path, environ: Mapping[str, str]) -> Mapping[str, str]:
    """`environ` and, for the names it lacks, the folder's `.env` (or `.env.NAMESPACE`) file.

    A file that somebody else may have put there counts for nothing. It is read now; `environ` is looked at whenever
    a name is asked for.
    """
    file = find_dotenv(folder, environ)
    if file is None or is_planted(file):
        return environ
    try:
        text = file.read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise DefinitionError(f"{file} is not UTF-8") from None  # The error would hold the file's bytes.
    except OSError as error:
        raise DefinitionError(f"{file} cannot be read: {error.strerror}") from error
    return _Merged(environ, {name: value for name, value in parse_dotenv(text).items() if name != _CHOICE})


def load_environment() -> Mapping[str, str]:
    """The environment of this process, and under it the file of the working folder."""
    return read_environment(Path.cwd(), os.environ)


class ProcessEnvironment(Mapping[str, str]):
    """The environment of this process, and under it the `.env` files of the working folder and of the project above it.

    It is the environment of agents and flows that Python makes. The files are read at the first name that the process
    itself does not have, and again where the working folder or FLOWENGINE_ENV has changed.
    """

    def __init__(self) -> None:
        self._place: tuple[str, str] | None = None
        self._environment: Mapping[str, str] = os.environ

    def __getitem__(self, name: str) -> str:
        return os.environ[name] if name in os.environ else self.merged()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.merged())

    def __len__(self) -> int:
        return len(self.merged())

    def merged(self) -> Mapping[str, str]:
        """The environment with what the files of today's folder add."""
        place = os.getcwd(), os.environ.get(_CHOICE, "")
        if place != self._place:
            folder = Path(place[0])
            roots = (each for each in (folder, *folder.parents) if os.path.isfile(each / _PROJECT_FILE))
            root = next(roots, folder)
            self._environment = read_environment(root, read_environment(folder, os.environ))
            self._place = place
        return self._environment


def find_dotenv(folder: Path, environ: Mapping[str, str]) -> Path | None:
    """The file, where it is there; a name that leads to another folder is none."""
    file = folder / dotenv_name(environ)
    return file if file.parent == folder and "\\" not in file.name and os.path.isfile(file) else None


def dotenv_name(environ: Mapping[str, str]) -> str:
    """The name of the file that is read.

    >>> dotenv_name({}), dotenv_name({"FLOWENGINE_ENV": "production"})
    ('.env', '.env.production')
    """
    namespace = environ.get(_CHOICE, "")
    return f".env.{namespace}" if namespace else ".env"


def is_planted(file: Path) -> bool:
    """Tells whether somebody else may have put the file there: into a folder that everybody may write to, such as
    /tmp.
    """
    if os.name != "posix":
        return False
    return bool(file.parent.stat().st_mode & stat.S_IWOTH) and file.stat().st_uid not in (0, os.geteuid())


_CHOICE: Final = "FLOWENGINE_ENV"
_PROJECT_FILE: Final = "flowengine.toml"


def file_secrets(environ: Mapping[str, str]) -> Secrets | None:
    """Returns the secret values of the `.env` file that was read; None if there was none."""
    merged = environ.merged() if isinstance(environ, ProcessEnvironment) else environ
    return merged.secrets if isinstance(merged, _Merged) else None


_HARMLESS: Final = re.compile(
    r"^FLOWENGINE_|(?:MODEL|REGION|ZONE|TZ|VERSION|LEVEL|LOCALE|LANG|HOST|PORT|PATH|DIR|NAME)$", re.IGNORECASE
)
_NUMBERS: Final = re.compile(r"[0-9T:./ +Z-]*")
_SHORTEST: Final = 8


def _find_secrets(name: str, value: str) -> Iterator[str]:
    """Yields the secret parts of a variable's value: all of it, unless it is short, a word, a number or an address.

    >>> [[*_find_secrets(*each)] for each in (("PIN", "a1b2c3d4e5f6"), ("AI_MODEL", "gpt-4o-mini-2024"))]
    [['a1b2c3d4e5f6'], []]
    """
    secrets = find_secret_values({name: value})
    if "://" in value:
        secrets += find_url_secrets(value)
    elif is_random(value) and not (_HARMLESS.search(name) or _NUMBERS.fullmatch(value)):
        secrets.append(value)
    yield from (each for each in secrets if len(each) >= _SHORTEST)


class _Merged(Mapping[str, str]):
    """One environment over another; its values are not shown."""

    def __init__(self, over: Mapping[str, str], under: Mapping[str, str]) -> None:
        self._over = over
        self._under = under

    def __getitem__(self, name: str) -> str:
        return self._over[name] if name in self._over else self._under[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._under, **self._over})

    def __len__(self) -> int:
        return len(self._under.keys() | self._over.keys())

    def __repr__(self) -> str:
        return f"<{len(self)} variables>"

    @cached_property
    def secrets(self) -> Secrets:
        """The secrets of the lower one, the file."""
        return Secrets(each for name, value in self._under.items() for each in _find_secrets(name, value))


def parse_dotenv(text: str) -> dict[str, str]:
    r"""The assignments of a `.env` text; other lines are left to the tools they are meant for.

    `NAME=value`, with `export` before it or not; a comment starts at ` #`. Single quotes keep the
    text as it is; double quotes know \n, \t, \r, \" and \\; both may span lines. `$NAME` stays.

    >>> parse_dotenv('A=1  # one\nexport B="two words"\nC=\'#3\'')
    {'A': '1', 'B': 'two words', 'C': '#3'}
    """
    return {match["name"]: _read_value(match) for match in _ASSIGNMENT.finditer(text.replace("\r\n", "\n"))}


def _read_value(match: re.Match[str]) -> str:
    if match["literal"] is not None:
        return match["literal"]
    if match["quoted"] is not None:
        return re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[1]), match["quoted"], flags=re.DOTALL)
    return match["plain"] or ""


PROCESS_ENVIRONMENT: Final = ProcessEnvironment()
