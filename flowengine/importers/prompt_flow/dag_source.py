"""Reads what stands round the nodes of a Prompt flow: its files, the keys at the top, the environment.

Files go along as they are; what only the service reads is told as known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from flowengine.core import is_map, is_withheld
from flowengine.errors import DefinitionError
from flowengine.importers.form import CarriedFile, ImportedProject, ImportLedger, SourcePlace
from flowengine.importers.import_names import Names
from flowengine.importers.option_values import is_secret
from flowengine.importers.project_writer import OWN_FILES
from flowengine.importers.prompt_flow.dag_code import PromptFlowCode
from flowengine.importers.prompt_flow.promptflow_stand_in import PARTS
from flowengine.importers.read_keys import watch
from flowengine.importers.source_tree import SourceError, SourceTree, YamlSource, as_list, as_map

_MAX_CARRIED: Final = 10_000_000
_MOST_CARRIED: Final = 300
_LEFT: Final = frozenset({"flow.tools.json", "requirements.txt"})
_NOTES: Final = {
    "$schema": "the file has a schema of its own",
    "name": "the name of the flow",
    "display_name": "a name for people",
    "description": "the description",
    "id": "an id of the service",
    "tags": "labels of the service",
    "type": "which sort of flow it is",
    "language": "the code is Python",
    **dict.fromkeys(("inputs", "outputs", "nodes", "node_variants", "path", "version"), ""),
    **dict.fromkeys(("environment_variables", "additional_includes"), ""),
}
"""Key at the top → what becomes of it; without words it is read elsewhere, or says nothing."""


class PromptFlowSource:
    """State shared by the readers of one flow: its source, its files, its project."""

    code: PromptFlowCode
    names: Names
    templates: dict[str, str]

    def __init__(self, tree: SourceTree, file: str) -> None:
        self.tree = tree
        self.source: YamlSource = tree.read_yaml(file)
        if not is_map(self.source.data):
            raise DefinitionError(f"{file}:1: a flow is a map with inputs, outputs and nodes")
        self.data: Mapping[str, Any] = watch(self.source.data)
        self.base = PurePosixPath(file).parent.as_posix()
        self.ledger = ImportLedger()
        self.project = ImportedProject("Prompt flow", self.ledger)
        self.paths: dict[str, str] = {}
        """Path in the flow's folder → path in the tree."""

    def _collect_files(self) -> None:
        below = self.base
        for each in self.tree.files(below):
            name = PurePosixPath(each).relative_to(below).as_posix() if below != "." else each
            if each != self.source.file:
                self.paths[name] = each
        for number, include in self._list("additional_includes"):
            origin = self.source.origin("additional_includes", number)
            what = f"additional include {str(include)[:100]}"
            try:
                path = self.tree.join(self.base, str(include))
                paths = [path] if self.tree.has(path) else list(self.tree.files(path))
                if not paths:
                    raise SourceError("there is nothing at that path")
                for each in paths:
                    name = PurePosixPath(each).relative_to(PurePosixPath(path).parent).as_posix()
                    self.paths.setdefault(name, each)
                self.ledger.note_mapped(what, origin, "it is copied to where the flow sees it")
            except (SourceError, OSError) as error:
                by_hand = "run the import with --root and the folder that holds it"
                self.ledger.note_lost(what, origin, str(error), by_hand)

    def _carry_files(self) -> None:
        code = list(self.code.files())
        self.project.files += code
        texts = set[str]().union(*self.code.texts().values())
        names = {PurePosixPath(text).name for text in texts if len(text) < 200}
        own = {f"{each.name}.yaml" for each in self.project.flows}
        total = 0
        for name, path in self.paths.items():
            suffix = PurePosixPath(name).suffix.lower()
            parts = PurePosixPath(name).parts
            if suffix == ".py":
                if self.code.carried_path(name):
                    self.ledger.note_kept(f"file {name}", SourcePlace(path), "code")
                else:
                    why = self.code.module(name).problem or "its name is none of a module"
                    self.ledger.note_changed(f"file {name}", SourcePlace(path), f"left out: {why}")
                continue
            is_read = suffix in (".jinja2", ".jinja") or (suffix in (".yaml", ".yml") and "/" not in name)
            if parts[-1] in _LEFT or any(map(is_withheld, parts)) or (is_read and parts[-1] not in names):
                continue  # Templates are prompts; YAML at the top describes flows and runs. Code may name others.
            total += 1
            try:
                if parts[0] in {*OWN_FILES, *own}:
                    raise SourceError("the new project has a file of its own there")
                if total > _MOST_CARRIED:
                    raise SourceError(f"there are more than {_MOST_CARRIED} files")
                self.project.files.append(CarriedFile(name, self.tree.read(path, _MAX_CARRIED)))
                self.ledger.note_kept(f"file {name}", SourcePlace(path))
            except SourceError as error:
                self.ledger.note_lost(f"file {name}", SourcePlace(path), str(error), "copy it, where the code reads it")
        self.project.files += [CarriedFile(name, text) for name, text in self.templates.items()]

    def _read_top(self) -> None:
        folder = PurePosixPath(self.tree.root.name if self.base == "." else self.base).name
        names = Names()
        self.name = names.id(self.data.get("name") or folder, "flow")
        self.flow_names = names
        self.templates = {}
        for key in self.data:
            origin = self.source.origin(key)
            if key == "environment":
                self._read_environment()
            elif key in _NOTES:
                if _NOTES[key]:
                    self.ledger.note_mapped(key, origin, _NOTES[key])
            elif key == "message_format":
                self.ledger.note_changed(key, origin, "messages are texts, and files are inputs of the type file")
            else:
                self.ledger.note_lost(key, origin, "this key is not known", "see whether the flow needs it")

    def _read_environment(self) -> None:
        for key, value in as_map(self.data.get("environment")).items():
            origin = self.source.origin("environment", key)
            if key == "python_requirements_txt" and isinstance(value, str):
                try:
                    path = self.tree.join(self.base, value)
                    text = self.tree.read_text(path)
                    lines = [each for each in text.splitlines() if not each.strip().startswith("promptflow")]
                    self.project.files.append(CarriedFile("requirements.txt", "\n".join([*lines, ""])))
                    change = "requirements.txt without promptflow's own packages"
                    self.ledger.note_changed("requirements", origin, change)
                except SourceError as error:
                    self.ledger.note_lost("requirements", origin, str(error), "write a requirements.txt")
            else:
                change = "the machine that runs the flow has its own image"
                self.ledger.note_changed(f"environment {key}", origin, change)

    def _read_variables(self) -> None:
        for key, value in as_map(self.data.get("environment_variables")).items():
            origin = self.source.origin("environment_variables", key)
            what = f"environment variable {key}"
            if is_secret(key, value):
                self.project.environment[key] = "the code reads it"
                self.ledger.note_changed(what, origin, "it is a key, which the environment has", f"set {key}")
            elif isinstance(value, str | int | float) and "${" not in str(value) and self.code.uses_parts:
                self.code.variables[key] = str(value)
                self.ledger.note_changed(what, origin, f"{PARTS}.py sets it where nothing else does")
            elif isinstance(value, str) and re.fullmatch(r"\$\{[^{}]{1,200}\}", value):
                self.project.environment[key] = f"the code reads it; it was {value[2:-1]}, a value of a connection"
                change = "a value of a connection, which the environment has"
                self.ledger.note_changed(what, origin, change, f"set {key}")
            else:
                self.project.environment[key] = "the code reads it"
                why = "it has no value that can stand in a file"
                self.ledger.note_lost(what, origin, why, f"set {key} before the run")

    def _list(self, key: str) -> list[tuple[int, Any]]:
        return list(enumerate(as_list(self.data.get(key))))

    def _maps(self, key: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for name, each in as_map(self.data.get(key)).items():
            yield name, as_map(each)
