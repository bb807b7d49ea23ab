"""Reads the list `schedules` of a project file: which flows run when, checked. No flow is loaded."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from flowengine.core import (
    RefusedPathError,
    Schedule,
    describe_value,
    find_cron_problem,
    find_zone_problem,
    is_map,
    resolve_path,
)
from flowengine.errors import did_you_mean
from flowengine.flowfile.project.toml_positions import TellProblem, item

_KEYS: Final = ("name", "flow", "cron", "timezone", "inputs", "overlap", "catch_up", "queue")
_OVERLAPS: Final = ("skip", "queue", "cancel")
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,45}")
"""The form of a schedule's name, which goes into the ids of runs with a time behind it."""


def read_schedules(tables: Sequence[Any], root: Path, tell: TellProblem) -> tuple[Schedule, ...]:
    """The schedules without those of which something is wrong."""
    schedules: dict[str, Schedule] = {}
    for number, table in enumerate(tables):
        read = _Reader(number, table, root, tell).read()
        if read is not None and read.name in schedules:
            text = f"there are two schedules '{read.name}'"
            tell(text, "; give each a `name` of its own", ("schedules", item(number)))
        elif read is not None:
            schedules[read.name] = read
    return tuple(schedules.values())


class _Reader:
    """Reads one table."""

    def __init__(self, number: int, table: Mapping[str, Any], root: Path, tell: TellProblem) -> None:
        self._table, self._root, self._tell = table, root, tell
        self._path = ("schedules", item(number))
        name = table.get("name", Path(str(table.get("flow", ""))).stem)
        self._name = name if isinstance(name, str) else ""
        self._is_sound = True

    def read(self) -> Schedule | None:
        for key in self._table:
            if key not in _KEYS:
                hint = did_you_mean(key, _KEYS) or f"; it takes {', '.join(_KEYS)}"
                self._say(f"unknown key '{key}'", hint, key)
        if not _NAME.fullmatch(self._name):
            hint = "; a letter, then letters, digits, '-' and '_', 46 at most"
            self._say(f"{self._table.get('name', self._name)!r:.60} is no name of a schedule", hint, "name")
        self._check_flow()
        for key, check in (("cron", find_cron_problem), ("timezone", find_zone_problem)):
            value = self._table.get(key, "UTC" if key == "timezone" else None)
            if not isinstance(value, str):
                actual = "" if value is None else f", not {describe_value(value)}"
                self._say(f"'{key}' is a text such as {_EXAMPLES[key]}{actual}", "", key)
            elif (problem := check(value)) is not None:
                hint = "" if "did you mean" in problem else f"; such as {_EXAMPLES[key]}"
                self._say(f"'{key}' cannot be {value!r:.60}: {problem}", hint, key)
        if not is_map(self._table.get("inputs", {})):
            self._say("'inputs' is a table: name → value", "", "inputs")
        self._check_word("overlap", _OVERLAPS, "skip")
        self._check_word("catch_up", (True, False, "last"), False)
        if not isinstance(self._table.get("queue", ""), str):
            self._say("'queue' is the name of a queue", "", "queue")
        if not self._is_sound:
            return None
        values: dict[str, Any] = {**self._table, "name": self._name}
        return Schedule(**values)

    def _say(self, message: str, hint: str, key: str) -> None:
        self._is_sound = False
        path = (*self._path, key) if key in self._table else self._path
        self._tell(f"schedule '{self._name}': {message}" if self._name else message, hint, path)

    def _check_flow(self) -> None:
        flow = self._table.get("flow")
        if not isinstance(flow, str) or not flow:
            self._say("'flow' is the path of a flow file, from the project's root", "", "flow")
            return
        try:
            if not resolve_path(flow, self._root, None).is_file():
                self._say(f"there is no file '{flow:.200}'", "", "flow")
        except (RefusedPathError, OSError, ValueError) as error:
            self._say(f"{error}", "", "flow")

    def _check_word(self, key: str, words: Sequence[Any], default: Any) -> None:
        value = self._table.get(key, default)
        if type(value) not in (bool, str) or value not in words:
            choices = ", ".join(str(each).lower() for each in words)
            hint = (
                did_you_mean(value, [each for each in words if isinstance(each, str)]) if isinstance(value, str) else ""
            )
            self._say(f"'{key}' is one of {choices}", hint, key)


_EXAMPLES: Final = {"cron": '"0 7 * * MON-FRI"', "timezone": '"Europe/Berlin"'}
