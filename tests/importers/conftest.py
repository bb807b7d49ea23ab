"""Gives folders with sources that were written for these tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from flowengine.importers.form import ImportedProject
from flowengine.importers.formats import find_sources, read_source
from flowengine.importers.project_writer import Written, write_project
from flowengine.importers.source_tree import SourceTree


@pytest.fixture
def write_files(tmp_path: Path) -> Callable[[Mapping[str, str]], Path]:
    """Writes files and gives their folder."""

    def write(files: Mapping[str, str]) -> Path:
        folder = tmp_path / "source"
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        return folder

    return write


@pytest.fixture
def import_files(write_files: Callable[[Mapping[str, str]], Path], tmp_path: Path):
    """Imports the first source of some files; gives the project, what was written, and its folder."""

    def run(files: Mapping[str, str]) -> tuple[ImportedProject, Written, Path]:
        tree = SourceTree(write_files(files))
        project = read_source(tree, find_sources(tree, ".")[0])
        target = tmp_path / "target"
        return project, write_project(project, target, force=True, grant=True), target

    return run
