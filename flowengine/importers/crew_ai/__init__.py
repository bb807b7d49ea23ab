"""Reads CrewAI: crews of `agents.yaml` and `tasks.yaml` with the Python that makes them, and CrewAI flows in Python.

A crew becomes a flow (`crew_reader`): each agent of it an entry of `agents`, each task a node that names one, with
what the tasks before it gave; `{placeholders}` are inputs. Tools go along or are stubs (`crew_tools`). Flows are read
by `class_flows`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Final

from flowengine.importers.crew_ai.class_flows import read_flow
from flowengine.importers.crew_ai.crew_classes import PythonFiles, crew_classes
from flowengine.importers.crew_ai.crew_parts import AGENTS_MARK, TASKS_MARK, agents_of, project_base, tasks_of
from flowengine.importers.crew_ai.crew_reader import CrewReader
from flowengine.importers.form import ImportedProject, ImportLedger
from flowengine.importers.import_names import Names
from flowengine.importers.source_tree import SourceError, SourceTree

__all__ = ["find", "read"]

_FLOW: Final = re.compile(r"^[ \t]*+from crewai(\.flow(\.flow)?)? import (\(|.*\bFlow\b)", re.M)
_FLOW_CLASS: Final = re.compile(r"^class \w++\([^()]{0,300}?\bFlow\b", re.MULTILINE)


def find(tree: SourceTree, files: Sequence[str]) -> list[str]:
    """Files of tasks that have a file of agents, and Python files with a flow."""
    paths: dict[str, None] = {}
    for each in files:
        try:
            if each.endswith((".yaml", ".yml")):
                text = tree.read_text(each)
                if TASKS_MARK.search(text) and agents_of(tree, each):
                    paths[each] = None
                elif AGENTS_MARK.search(text) and len(files) == 1 and (tasks := tasks_of(tree, each)):
                    paths[tasks] = None
            elif each.endswith(".py"):
                text = tree.read_text(each)
                if _FLOW.search(text) and _FLOW_CLASS.search(text):
                    paths[each] = None
                elif len(files) == 1 and "@CrewBase" in text:
                    paths |= dict.fromkeys(_find_task_files(tree, each))
        except SourceError:
            continue
    return list(paths)


def _find_task_files(tree: SourceTree, file: str) -> Iterator[str]:
    """The files of tasks that the crews of a Python file name."""
    files = PythonFiles(tree, PurePosixPath(file).parent.as_posix())
    source = files.parse_file(file)
    for each in crew_classes(source, files) if source is not None else ():
        path = each.find_config_path("tasks_config")
        try:
            path_from_root = tree.join(PurePosixPath(file).parent.as_posix(), path) if path else ""
        except SourceError:
            continue
        if path_from_root and tree.has(path_from_root):
            yield path_from_root


def read(tree: SourceTree, file: str) -> ImportedProject:
    """One crew, or one flow with its crews."""
    if file.endswith(".py"):
        return read_flow(tree, file)
    project = ImportedProject("CrewAI", ImportLedger())
    base = project_base(tree, file)
    reader = CrewReader(tree, project, PythonFiles(tree, base), Names())
    classes = reader.classes_of(file)
    for each in classes or [None]:
        reader.read_crew(file, each)
    reader.finish()
    return project
