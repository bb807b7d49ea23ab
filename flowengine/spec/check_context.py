"""Checks of what agents draw on: each context provider is made once, so that what it refuses is told with its place.

Code that a provider names is checked as all code is, and not run: a stand-in takes its place. Making a provider
opens and changes nothing, so that a flow may be checked anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from flowengine.errors import DefinitionError, ProjectError
from flowengine.spec.levels import key_path, nodes_of
from flowengine.spec.positions import KeyPath
from flowengine.spec.project import Problem, Project
from flowengine.spec.report import Report
from flowengine.spec.schema import FlowSpec
from flowengine.spec.schema_agent import AgentSettings, MemorySpec
from flowengine.spec.schema_nodes import AgentNodeSpec

__all__ = ["check_context", "sources_of"]


def check_context(spec: FlowSpec, project: Project, report: Report) -> None:
    """Each provider that is unknown, wrongly set, or without its file; each folder of skills that is not there."""
    for path, entry in sources_of(spec):
        if report.is_enough:
            return
        if isinstance(entry, MemorySpec):
            _check_memory(entry, path, project, report)
        elif "skills" in path[-2:]:
            _check_folder(entry, path, project, report)
        else:
            _check(entry, path, project, report)


def sources_of(spec: FlowSpec) -> Iterator[tuple[KeyPath, Any]]:
    """Every provider, memory and folder of skills in the file, as it is written there."""
    for node_path, node in nodes_of(spec):
        path = key_path(node_path)
        if isinstance(node, AgentNodeSpec):
            yield from _of_agent(node, path)
        yield from _of_agent(getattr(node, "agent", None), (*path, "agent"))
    for name, agent in spec.agents.items():
        yield from _of_agent(agent, ("agents", name))
    yield from _of_agent(spec.defaults.agent, ("defaults", "agent"))


def _of_agent(agent: object, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    if isinstance(agent, AgentSettings):
        for number, entry in enumerate(agent.context or ()):
            yield (*path, "context", number), entry
        if agent.memory is not None:
            yield (*path, "memory"), agent.memory
        for number, folder in enumerate(agent.skills or ()):
            yield (*path, "skills", number), folder


def _check_memory(memory: MemorySpec, path: KeyPath, project: Project, report: Report) -> None:
    from flowengine.providers.parameters import ParameterError
    from flowengine.spec.sources import memory_of

    try:
        memory_of(memory, project)
    except ParameterError as error:
        at = (*path, error.parameter) if error.parameter in memory.model_fields_set else path
        report.at_value(_code_of(error), str(error), cast(KeyPath, at))


def _check_folder(folder: str, path: KeyPath, project: Project, report: Report) -> None:
    try:
        found = project.resolve(folder)
    except ProjectError as error:
        report.at_value("FE503", error.message, path)
        return
    if not found.is_dir():
        report.at_value("FE510", f"there is no folder '{folder}'", path)


def _check(entry: Any, path: KeyPath, project: Project, report: Report) -> None:
    # Imported here: providers come with the event loop's library, and most flows name none.
    from flowengine.providers.factory import configured, made
    from flowengine.providers.parameters import ParameterError, UnknownParameterError

    refused: list[Problem] = []

    def load(target: str) -> Any:
        problem = project.problem_with(target)
        refused.extend([problem] if problem is not None else [])
        return _stand_in

    try:
        made(configured(entry), project.root, load)
    except DefinitionError as error:
        parameter = error.parameter if isinstance(error, ParameterError) else None
        tell = report.at_key if isinstance(error, UnknownParameterError) else report.at_value
        tell(_code_of(error), str(error), _place(entry, path, parameter))
    for problem in refused:
        report.at_value(problem.code, problem.message, path, problem.hint)


def _stand_in(*arguments: Any, **named: Any) -> None:
    """Stands where the code of a flow's author will be."""


def _code_of(error: DefinitionError) -> str:
    from flowengine.providers.paths import MissingFileError, OutsideError

    return {MissingFileError: "FE510", OutsideError: "FE503"}.get(cast(Any, type(error)), "FE412")


def _place(entry: Any, path: KeyPath, parameter: str | None) -> KeyPath:
    """Where a parameter stands in an entry of either notation; else the entry."""
    if not isinstance(entry, Mapping):
        return path
    keys = cast("Mapping[str, Any]", entry)
    inner: Any = next(iter(keys.values()), None)
    if "type" not in keys and isinstance(inner, Mapping) and parameter in inner:
        return (*path, next(iter(keys)), cast(str, parameter))
    return (*path, cast(str, parameter)) if parameter in keys else path
