"""Collects the findings of checks: a code, a message and a path, made into diagnostics with positions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from flowengine.errors import Diagnostic, did_you_mean
from flowengine.flowfile.analysis import NodePath, Text, Use, node_at
from flowengine.flowfile.schema import FlowSpec, shorten_message
from flowengine.flowfile.yaml import KeyPath

# --- The nearest known name, for as long as that costs little

_COMPARISONS: Final = 50_000
_LONGEST: Final = 80


@dataclass(slots=True, eq=False)
class Nearest:
    """The hints of one file.

    >>> Nearest()("publsh", ["publish", "improve"])
    "; did you mean 'publish'?"
    """

    _budget: int = _COMPARISONS

    def __call__(self, name: str, names: Collection[str]) -> str:
        self._budget -= len(names)
        return did_you_mean(name, names) if self._budget >= 0 and len(name) <= _LONGEST else ""

    def of(self, name: str, names: Collection[str]) -> str | None:
        """The nearest name itself."""
        hint = self(name, names)
        return hint.split("'")[1] if hint else None


_ENOUGH: Final = 200


@dataclass(slots=True, eq=False)
class Report:
    """The findings of one spec, each told once."""

    spec: FlowSpec
    diagnostics: list[Diagnostic] = field(default_factory=list[Diagnostic], init=False)
    is_enough: bool = field(default=False, init=False)
    """Whether so much is wrong already that files and packages need not be looked through for more."""
    nearest: Nearest = field(default_factory=Nearest, init=False)
    """The nearest known name, as a hint."""
    _wrong: int = field(default=0, init=False)
    _unique: set[Diagnostic] = field(default_factory=set[Diagnostic], init=False)

    @property
    def errors(self) -> set[str]:
        """The codes of what is wrong."""
        return {each.code for each in self.diagnostics if each.severity == "error"}

    @property
    def failed(self) -> bool:
        return any(each.severity == "error" for each in self.diagnostics)

    def at_key(self, code: str, message: str, path: KeyPath, hint: str = "") -> None:
        """A finding about a key, or about what is missing below it."""
        self._tell(code, message, self.spec.source.key_position(path), node_at(path), hint)

    def at_value(self, code: str, message: str, path: KeyPath, hint: str = "") -> None:
        """A finding about a value."""
        self._tell(code, message, self.spec.source.position(path), node_at(path), hint)

    def in_text(self, code: str, message: str, text: Text, line: int, column: int, hint: str = "") -> None:
        """A finding inside of a text."""
        source = self.spec.source
        place = source.inside(text.path, text.text, line, column)
        self._tell(code, message, place, text.node or (), hint, source.file_of(text.path))

    def at_use(self, code: str, message: str, use: Use, hint: str = "") -> None:
        """A finding about a name that a text reads."""
        self.in_text(code, message, use.text, use.reference.line, use.reference.column, hint)

    def at_place(
        self, code: str, message: str, place: tuple[str | None, int, int], node: NodePath, hint: str = ""
    ) -> None:
        """A finding whose file, line and column are known, be it another file than the spec's."""
        file, *position = place
        self._tell(code, message, (position[0], position[1]), node, hint, None if file is None else Path(file))

    def _tell(
        self, code: str, message: str, place: tuple[int, int], node: NodePath, hint: str, file: Path | None = None
    ) -> None:
        severity = "warning" if code.startswith("FE9") else "error"
        beside = self.spec.path if file is None else file
        name = None if beside is None else str(beside)
        each = Diagnostic(code, shorten_message(message), name, *place, ".".join(node) or None, hint, severity)
        if each not in self._unique:
            self._unique.add(each)
            self.diagnostics.append(each)
            self._wrong += severity == "error"
            self.is_enough = self._wrong >= _ENOUGH
