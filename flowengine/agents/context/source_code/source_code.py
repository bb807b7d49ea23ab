"""Provides the definitions of source code nearest to the query, quoted with their lines, of a few files.

It decides what is quoted and how. Files, the index and its ranking are the matter of `index` and `source_files`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Self
from weakref import WeakValueDictionary

from flowengine.agents.context.provider import (
    ContextProvider,
    MissingFileError,
    ParameterError,
    join_fragments,
    locate_path,
)
from flowengine.agents.context.source_code.index import CodeIndex, FoundDefinition, Searched
from flowengine.agents.context.source_code.outlines import Definition, Lines, language_of, own_lines
from flowengine.agents.context.source_code.source_files import CodeTree, lines_of
from flowengine.core import Fragment, check_arguments, load_messages

_MAX_FILE_LINES: Final = 120
"""Lines that are quoted of one file."""
_MAX_DEFINITION_LINES: Final = 60
"""Lines that are quoted of one definition."""
_LENGTH_PENALTY: Final = 0.05
"""The cost of each time that a definition is e times as long, of a score of 1: more of the shorter ones fit."""
_MAX_WIDTH: Final = 300
"""Characters that are quoted of one line."""
_GAP_MARK: Final = "…"

_indexes: Final[WeakValueDictionary[tuple[str, str], CodeIndex]] = WeakValueDictionary()
"""The indexes of the folders that are in use; providers of one folder share one."""


class SourceCodeProvider(ContextProvider):
    """The parts of a code base that a query is about: found by names, paths and content, up to date with the files.

    Hidden files, data, binaries, huge files, links, and what `.gitignore` leaves out are not looked at.
    """

    provider_name: ClassVar[str] = "source_code"
    config_description: ClassVar[str] = "The parts of a code base that the query is about, with their lines"
    config_parameters: ClassVar[Mapping[str, str]] = {
        "codebase_path": "The folder; in a flow relative to the project's root",
        "max_files": "Files of which parts are quoted, the nearest to the query",
    }
    config_example: ClassVar[str] = "- source_code: {codebase_path: ./src, max_files: 5}"

    def __init__(
        self,
        codebase_path: str | os.PathLike[str] = "./src",
        max_files: int = 5,
        *,
        folder: Path | None = None,
        root: Path | None = None,
    ) -> None:
        """`folder`: where the folder is, for a path that is not relative to the current one; `root`: of its project."""
        check_arguments(SourceCodeProvider.__init__, locals(), ParameterError)
        if max_files < 1:
            raise ParameterError(f"max_files must be at least 1, not {max_files}", "max_files")
        self.codebase_path = os.fspath(codebase_path)
        self.max_files = max_files
        self._folder = locate_path(codebase_path, None, parameter="codebase_path") if folder is None else folder
        self._check()
        self._index = _get_index(self._folder, Path.cwd() if root is None else root)

    @classmethod
    def from_config(cls, config: Mapping[str, Any], *, root: Path | None = None) -> Self:
        path = config.get("codebase_path", "./src")
        folder = locate_path(path, root, parameter="codebase_path")
        return cls(path, config.get("max_files", 5), folder=folder, root=root)

    def get_context(self, query: str, previous_context: str | None = None, **kwargs: Any) -> str:
        return join_fragments(self.fragments(query, (), **kwargs))

    def fragments(self, query: str, previous: Sequence[Fragment], **kwargs: Any) -> Sequence[Fragment]:
        """A fragment for each definition; those of the best file first, in the order of their lines."""
        self._check()
        searched = self._index.search(query)
        quoted = [each for spans in self._choose_quotations(searched.definitions) for each in spans]
        return [*quoted, *self._incomplete(searched, kwargs.get("locale", "en"))] if quoted else []

    def fresh(self) -> SourceCodeProvider:
        return self  # It remembers nothing but what the files say.

    def _check(self) -> None:
        if not os.path.isdir(self._folder):
            raise MissingFileError(f"the folder '{self.codebase_path}' is not there", "codebase_path")

    def _choose_quotations(self, definitions: Sequence[FoundDefinition]) -> Iterator[list[Fragment]]:
        """The quotations of each of the best files. A file that has gone meanwhile makes room for the next."""
        of_file: dict[str, list[FoundDefinition]] = {}
        for each in definitions:
            of_file.setdefault(each.path, []).append(each)
        file_count = 0
        for path, parts in of_file.items():
            lines = lines_of(self._folder / path) if file_count < self.max_files else None
            if lines is not None:
                best = _choose_fitting([each for each in parts if each.definition.start <= len(lines)], lines)
                ranks = {each: -file_count * _MAX_FILE_LINES - place for place, each in enumerate(best)}
                ordered = sorted(best, key=lambda each: (each.start, -each.end))
                yield [self._quotation(path, each, lines)._replace(priority=ranks[each]) for each in ordered]
                file_count += 1

    def _quotation(self, path: str, definition: Definition, lines: Lines) -> Fragment:
        display_path = path if os.path.isabs(self.codebase_path) else os.path.normpath(f"{self.codebase_path}/{path}")
        own = _current_lines(definition, lines)
        label = (
            f"{Path(display_path).as_posix()}:{own[0][0]}-{own[min(len(own), _MAX_DEFINITION_LINES) - 1][0]}"
            if own
            else display_path
        )
        title = f"{label} {definition.name}".rstrip()
        fences = (len(line) - len(line.lstrip("`")) for line in (line.lstrip() for _, line in own))
        fence = "`" * max(3, 1 + max(fences, default=0))
        code = "\n".join(_format_code(own))
        text = f"{title}\n{fence}{language_of(path)}\n{code}\n{fence}"
        return Fragment(text, self.provider_name, label=label, group=label)

    def _incomplete(self, searched: Searched, locale: str) -> list[Fragment]:
        """Makes a notice, for the model and the receipt, if not all files were searched."""
        if searched.is_whole:
            return []
        # Where the look at the folders ended early, their number is unknown.
        files = f"{searched.files}+" if searched.indexed == searched.files else searched.files
        message = load_messages(locale)("source_code.incomplete", searched=searched.indexed, files=files)
        return [Fragment(message, self.provider_name, label="not all files were searched")]


def _get_index(folder: Path, root: Path) -> CodeIndex:
    key = (os.path.realpath(folder), os.path.realpath(root))
    index = _indexes.get(key)
    return _indexes.setdefault(key, CodeIndex(CodeTree(folder, root))) if index is None else index


def _choose_fitting(definitions: Sequence[FoundDefinition], lines: Lines) -> list[Definition]:
    """The best definition of a file, and those whose lines fit in beside it; where one does not, the next may."""
    sizes = {
        each: max(1, min(len(_current_lines(each.definition, lines)), _MAX_DEFINITION_LINES)) for each in definitions
    }
    further = sorted(definitions[1:], key=lambda each: _LENGTH_PENALTY * math.log(sizes[each]) - each.score)
    fitting: list[Definition] = []
    room = _MAX_FILE_LINES
    for each in (*definitions[:1], *further):
        if sizes[each] <= room:
            fitting.append(each.definition)
            room -= sizes[each]
    return fitting


def _current_lines(definition: Definition, lines: Lines) -> list[tuple[int, str]]:
    """Its lines as they are now: the file may have become shorter."""
    return own_lines(definition._replace(end=min(definition.end, len(lines))), lines)


def _format_code(own: Sequence[tuple[int, str]]) -> Iterator[str]:
    """The lines; where some are left out stands the number of the next one."""
    before = own[0][0] - 1 if own else 0
    for number, line in own[:_MAX_DEFINITION_LINES]:
        if number != before + 1:
            yield f"{_GAP_MARK} ({number})"
        yield line if len(line) <= _MAX_WIDTH else f"{line[:_MAX_WIDTH]}{_GAP_MARK}"
        before = number
    if len(own) > _MAX_DEFINITION_LINES:
        yield _GAP_MARK
