"""Finds what can be imported, by content, and asks the format's module to read it.

It is the table of the formats: a new one is a module and a line here.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple, Protocol, cast

from flowengine.errors import InputError, did_you_mean
from flowengine.importers.form import ImportedProject
from flowengine.importers.source_tree import SourceTree

FORMATS: Final[dict[str, tuple[str, str]]] = {
    "promptflow": ("flowengine.importers.prompt_flow", "Prompt flow: flow.dag.yaml with its Python, Jinja and data"),
    "crewai": ("flowengine.importers.crew_ai", "CrewAI: agents.yaml, tasks.yaml and their Python, and flows in Python"),
    "agent-framework": (
        "flowengine.importers.agent_framework",
        "Microsoft Agent Framework and Foundry: declarative workflows and agents",
    ),
    "dify": ("flowengine.importers.dify", "Dify: the DSL of workflows, chatflows and basic apps"),
}
"""Name → the module that reads it, and what it is."""
_TOLD: Final = 10
"""Elements of a source that are named where no flow comes of it."""


class FormatReader(Protocol):
    """The interface of a format's module."""

    def find(self, tree: SourceTree, files: Sequence[str]) -> list[str]:
        """Returns the files that are sources of this format, by content; never raises."""
        ...

    def read(self, tree: SourceTree, file: str) -> ImportedProject:
        """One source; `DefinitionError` where it cannot be read at all."""
        ...


class Found(NamedTuple):
    """A file that can be imported."""

    format: str
    file: str


def find_sources(tree: SourceTree, below: str, name: str | None = None) -> list[Found]:
    """Finds importable sources in a file or below a folder; `name` restricts the format."""
    if name is not None and name not in FORMATS:
        hint = did_you_mean(name, FORMATS) or f"; there are: {', '.join(FORMATS)}"
        raise InputError(f"there is no format '{name}'{hint}")
    is_folder = (tree.root / below).is_dir()
    files = list(tree.files(below)) if is_folder else [below]
    sources: list[Found] = []
    for each in [name] if name else FORMATS:
        files_in_use = {one.file for one in sources}
        sources += [Found(each, file) for file in _reader(each).find(tree, files) if file not in files_in_use]
    return sorted(sources, key=lambda each: (len(Path(each.file).parts), each.file))


def read_source(tree: SourceTree, source: Found) -> ImportedProject:
    """Read one source; `InputError` where it has nothing that a flow could do."""
    try:
        project = _reader(source.format).read(tree, source.file)
    except RecursionError:
        raise InputError(f"{source.file}: it, or a file that it names, is nested too deep to be read") from None
    project.ledger.tell_unread()
    if not any(each.steps for each in project.flows):
        read = [f"{' '.join(each.what.split()):.60} ({each.origin}{', not mapped' * (each.outcome == 'lost')})"
                for each in project.ledger.elements]  # fmt: skip
        summary = ", ".join([*read[:_TOLD], *(["…"] if len(read) > _TOLD else [])]) or "nothing"
        raise InputError(
            f"{source.file}: {project.format} without a node, so there is no flow to write; read: {summary}"
        )
    return project


def _reader(name: str) -> FormatReader:
    return cast(FormatReader, import_module(FORMATS[name][0]))
