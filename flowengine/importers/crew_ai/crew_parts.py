"""Finds what belongs to a crew in the folder of a CrewAI project, and holds what all readers of its parts share.

Which file of agents goes with which of tasks, and where imports start, is told from the files alone.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, Final, NamedTuple

from flowengine.core import is_map
from flowengine.errors import DefinitionError
from flowengine.importers.carried_code import CarriedCode
from flowengine.importers.crew_ai.crew_classes import CrewClass, Entry, PythonFiles, config_key, crew_classes
from flowengine.importers.crew_ai.crew_tools import ToolCode
from flowengine.importers.crew_ai.crewai_stand_in import PARTS, STAND_IN
from flowengine.importers.flow_text import fill_text, literal, to_tag
from flowengine.importers.form import CarriedFile, Element, ImportedFlow, ImportedProject, Outcome, SourcePlace
from flowengine.importers.import_names import Names
from flowengine.importers.project_writer import OWN_FILES
from flowengine.importers.python_code import literal_of
from flowengine.importers.source_tree import SourceError, SourceTree, YamlSource

TASKS_MARK: Final = re.compile(r"^[ \t]++expected_output[ \t]*+:", re.MULTILINE)
AGENTS_MARK: Final = re.compile(r"^[ \t]++backstory[ \t]*+:", re.MULTILINE)
_NAMED: Final = re.compile(r"[\w-][\w. /-]{0,100}\.\w{1,8}")
"""A file, as code names one beside it."""
_PLACEHOLDER: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_\-]*)\}")
_PROJECT: Final = ("pyproject.toml", "requirements.txt", "setup.py", "setup.cfg", "uv.lock")


def _beside(tree: SourceTree, file: str) -> list[str]:
    folder = PurePosixPath(file).parent
    entries = (tree.root / folder).iterdir()
    names = sorted(each.name for each in entries if each.suffix in (".yaml", ".yml"))
    return [(folder / each).as_posix() for each in names if tree.has((folder / each).as_posix())]


def agents_of(tree: SourceTree, tasks: str) -> str | None:
    """The file of agents that goes with a file of tasks."""
    return _partner(tree, tasks, "task", "agent", AGENTS_MARK)


def tasks_of(tree: SourceTree, agents: str) -> str | None:
    return _partner(tree, agents, "agent", "task", TASKS_MARK)


def _partner(tree: SourceTree, file: str, word: str, other: str, mark: re.Pattern[str]) -> str | None:
    path = PurePosixPath(file)
    path_of_partner = path.with_name(path.name.replace(word, other)).as_posix()
    beside = _beside(tree, file)
    candidates = dict.fromkeys([path_of_partner, *(each for each in beside if other in each), *beside, file])
    others = (each for each in candidates if each != file)
    matches = (each for each, text in tree.yaml_texts([*others, file]) if mark.search(text))
    return next(matches, None)


def project_base(tree: SourceTree, file: str) -> str:
    """The folder of the project that a file belongs to: the nearest above it that has a project's files."""
    folder = PurePosixPath(file).parent
    for each in [folder, *list(folder.parents)[:5]]:
        if any((tree.root / each / name).is_file() for name in _PROJECT):
            return each.as_posix()
    above = folder.parent if folder.name in ("config", "configs") else folder
    return above.as_posix()


def text_with_inputs(text: str, expression: Callable[[str], str | None]) -> str:
    """The text as a template of ours; `expression` says what a placeholder is, or that it is none.

    >>> text_with_inputs("About {topic}: {{topic}} {% x", lambda name: f"inputs.{name}")
    'About {{ inputs.topic }}: {{ "{" }}{{ inputs.topic }}} {{ "{%" }} x'
    """

    def meaning(match: re.Match[str]) -> str | None:
        value = expression(match[1])
        return None if value is None else to_tag(value)

    return fill_text(text, _PLACEHOLDER, meaning, escape=lambda before: literal(before, is_end=False))


class CrewSetting(NamedTuple):
    """One thing that is said of an agent or a task, in its file or in code."""

    key: str
    value: Any
    """The literal, or the node where it is none."""
    node: ast.expr | None
    """None: the file says it."""
    what: str
    place: SourcePlace


class CrewPart(NamedTuple):
    """An agent or a task: its method, and the entry of its file."""

    entry: Entry
    key: str | None
    """The entry of the file; None where there is none."""
    settings: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.entry.name


class CrewParts:
    """State shared by the readers of a crew: its project, its names, and its notices."""

    # Of the crew that is being read:
    crew: CrewClass | None
    flow: ImportedFlow
    tasks_source: YamlSource
    agents_source: YamlSource | None
    settings: dict[str, Any]
    agent_ids: dict[str, str]
    timeouts: dict[str, str]
    """Agent → how long each of its tasks may take."""
    input_names: Names
    inputs: dict[str, str]
    step_names: Names
    typed: bool

    def __init__(self, tree: SourceTree, project: ImportedProject, files: PythonFiles, names: Names) -> None:
        self.tree = tree
        self.project = project
        self.ledger = project.ledger
        self.files = files
        self.names = names
        self.paths = {each: each for each in files.names}
        self._report_keys: set[tuple[str, int, str]] = set()
        root = import_root(files)
        self.new_paths = {each: _below(each, root) for each in files.names}
        self.code = CarriedCode(tree, {new: old for old, new in self.new_paths.items()}, STAND_IN)
        self.code.need_nothing()
        self.tools = ToolCode(self.code, self.new_paths, files)
        self.runs_crews = False
        self.input_ids: dict[str, dict[str, str]] = {}
        """Flow → placeholder → its input."""
        self.made: dict[tuple[str, str], ImportedFlow] = {}

    def classes_of(self, tasks_file: str) -> list[CrewClass]:
        """The crews whose tasks stand in a file."""
        classes: list[CrewClass] = []
        for name in self.files.names:
            source = self.files.parse_file(name, "CrewBase")
            if source is None:
                continue
            for each in crew_classes(source, self.files):
                path = each.find_config_path("tasks_config")
                if path is not None and _same(name, path, tasks_file):
                    classes.append(each)
        return classes

    def tasks_file_of(self, python: str, path: str) -> str | None:
        """The file of tasks that a class of a Python file names."""
        try:
            joined = self.tree.join(PurePosixPath(python).parent.as_posix(), path)
        except SourceError:
            return None
        return joined if self.tree.has(joined) else None

    def finish(self) -> None:
        """Put the code and the stubs into the project."""
        if self.code.uses_parts or self.runs_crews or self.tools.uses_parts:
            self.project.files.append(CarriedFile(f"{PARTS}.py", STAND_IN.text))
        self.project.files += [*self.code.carried_files(), *self._named_files()]
        self.project.stubs += self.tools.stubs

    def _named_files(self) -> Iterator[CarriedFile]:
        """The files beside copied code that the code names, such as its data; not those that became nodes."""
        paths: dict[str, str] = {}
        for name, texts in self.code.texts().items():
            folder = PurePosixPath(self.code.carried_path(name) or name).parent
            for text in texts:
                path = PurePosixPath(self.code.module(name).source.file).parent / text
                if not _NAMED.fullmatch(text) or path.suffix == ".py" or ".." in path.parts:
                    continue
                if self.tree.has(path.as_posix()):
                    paths[(folder / text).as_posix()] = path.as_posix()
        own = {*OWN_FILES, *(f"{each.name}.yaml" for each in self.project.flows)}
        for new, path in sorted(paths.items()):
            try:
                data = self.tree.read(path)
            except SourceError as error:
                self.ledger.note_lost(f"file {new}", SourcePlace(path), str(error), "copy it")
                continue
            if path.endswith((".yaml", ".yml")) and _is_configuration(data):
                continue
            if new.partition("/")[0] in own:
                why = "the new project has a file of its own there"
                self.ledger.note_lost(f"file {new}", SourcePlace(path), why, "copy it to another place, and name that")
            else:
                self.ledger.note_kept(f"file {new}", SourcePlace(path), "the code names it")
                yield CarriedFile(new, data)

    def tell(self, outcome: Outcome, what: str, place: SourcePlace, note: str = "", by_hand: str = "") -> None:
        """Tell an element once, whichever crews of a file use it."""
        key = (place.file, place.line, what)
        if key in self._report_keys:
            return
        self._report_keys.add(key)
        todo = {"lost": by_hand or "see whether the flow needs it", "changed": by_hand}.get(outcome, "")
        self.ledger.elements.append(Element(what, place, outcome, note, todo))

    def _tell_of(self, setting: CrewSetting, outcome: Outcome, note: str = "", by_hand: str = "") -> None:
        self.tell(outcome, setting.what, setting.place, note, by_hand)

    def _settings_of(self, kind: str, part: CrewPart, source: YamlSource | None) -> list[CrewSetting]:
        """All that is said of an agent or a task: what its file says, then what the code does."""
        settings: list[CrewSetting] = []
        if part.key is not None and source is not None:
            for each, value in part.settings.items():
                place = source.origin(part.key, each)
                settings.append(CrewSetting(each, value, None, f"{kind} {part.key}: {each}", place))
        if self.crew is not None:
            for each, node in part.entry.keywords.items():
                value = literal_of(self.crew.resolve(node), node)
                what, place = f"{kind} {part.name}: {each}", self.crew.source.place(node)
                settings.append(CrewSetting(each, value, node, what, place))
        return settings

    def _keys_of_others(self, crew: CrewClass, kind: str) -> set[str]:
        """The entries of a file that some crew of the same Python file names."""
        every = ((each.agents if kind == "agent" else each.tasks) for each in crew_classes(crew.source, self.files))
        return {config_key(each.keywords.get("config")) or name for one in every for name, each in one.items()}

    def _yaml(self, file: str) -> YamlSource:
        source = self.tree.read_yaml(file)
        if not is_map(source.data):
            raise DefinitionError(f"{file}:1: a map of agents or tasks is expected")
        return source

    def _agents_file(self, tasks_file: str, crew: CrewClass | None) -> str | None:
        path = crew.find_config_path("agents_config") if crew is not None else None
        if crew is not None and path is not None:
            for name in (path, f"config/{PurePosixPath(path).name}"):
                try:
                    joined = self.tree.join(PurePosixPath(crew.source.file).parent.as_posix(), name)
                except SourceError:
                    continue
                if self.tree.has(joined):
                    return joined
        return agents_of(self.tree, tasks_file)

    def _input(self, name: str) -> str:
        if name not in self.inputs:
            self.inputs[name] = self.input_names.id(name, "input")
            self.flow.inputs[self.inputs[name]] = {"type": "string"} if self.typed else {"schema": {}}
        return f"inputs.{self.inputs[name]}"

    def _text(self, value: Any) -> str:
        return text_with_inputs(str(value).strip(), self._input) if value is not None else ""


def _is_configuration(data: bytes) -> bool:
    text = data.decode("utf-8", "replace")
    return bool(TASKS_MARK.search(text) or AGENTS_MARK.search(text))


def _same(python: str, path: str, tasks_file: str) -> bool:
    """Tells whether a path that a class says is the file of tasks: from its own folder, or by its end."""
    joined = posixpath.normpath(posixpath.join(posixpath.dirname(python), path))
    return joined == tasks_file or (joined.startswith("..") and tasks_file.endswith(path.lstrip("./")))


def import_root(files: PythonFiles) -> str:
    """The folder that the files' imports start in: the one below which most of them are found."""
    names = set(files.names)
    folders = {each.as_posix() for name in names for each in PurePosixPath(name).parents}
    packages = {each for each in folders if each != "."}
    modules = [
        each.module.replace(".", "/")
        for name in files.names[:400]
        if (source := files.parse_file(name)) is not None
        for each in source.imports
        if each.module and not each.module.startswith(".")
    ]
    best, score = files.base, 0
    for folder in sorted(folders | {files.base}, key=len):
        prefix = "" if folder == "." else f"{folder}/"
        count = sum(f"{prefix}{each}.py" in names or f"{prefix}{each}" in packages for each in modules)
        if count > score:
            best, score = folder, count
    return best


def _below(path: str, root: str) -> str:
    return path.removeprefix(f"{root}/") if root != "." else path
