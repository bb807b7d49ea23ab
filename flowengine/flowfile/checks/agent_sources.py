"""Checks what agents draw on (context, memory, skills, attached files) and the models that they ask: which vendors
these go to, which of their names no vendor is known to have, and what they refuse.

What is right here may be wrong elsewhere: it depends on the environment and the project, which the caller hands in.
Nothing is asked and no key is looked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from flowengine.core import EMPTY, allows_media_type, is_map
from flowengine.errors import DefinitionError, Diagnostic, ModelConfigError, ProjectError
from flowengine.flowfile.analysis import (
    agent_of,
    agent_path,
    flows_in,
    is_asking,
    key_path,
    named_input,
    node_at,
    nodes_of,
    options_of,
    settings_in,
    settings_of,
)
from flowengine.flowfile.checks.report import Report
from flowengine.flowfile.project import Project, ProjectProblem
from flowengine.flowfile.schema import (
    AgentSettings,
    AgentSpec,
    FlowSpec,
    InputSpec,
    MemorySpec,
    ModelSettings,
    NodeSpec,
)
from flowengine.flowfile.yaml import KeyPath
from flowengine.models import IMAGES, is_stand_in, normalize_options

if TYPE_CHECKING:
    from flowengine.models import KnownModel, ModelFacts

# --- Checks of what agents draw on


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
    for path, agent in settings_in(spec):
        if not isinstance(agent, AgentSettings):
            continue
        for number, entry in enumerate(agent.context or ()):
            yield (*path, "context", number), entry
        if agent.memory is not None:
            yield (*path, "memory"), agent.memory
        for number, folder in enumerate(agent.skills or ()):
            yield (*path, "skills", number), folder


def _check_memory(memory: MemorySpec, path: KeyPath, project: Project, report: Report) -> None:
    from flowengine.agents.context import ParameterError
    from flowengine.flowfile.compile import memory_of

    try:
        memory_of(memory, project)
    except ParameterError as error:
        at = (*path, error.parameter) if error.parameter in memory.model_fields_set else path
        report.at_value(_code_of(error), str(error), cast(KeyPath, at))


def _check_folder(folder: str, path: KeyPath, project: Project, report: Report) -> None:
    try:
        directory = project.resolve(folder)
    except ProjectError as error:
        report.at_value("FE503", error.message, path)
        return
    if not directory.is_dir():
        report.at_value("FE510", f"there is no folder '{folder}'", path)


def _check(entry: Any, path: KeyPath, project: Project, report: Report) -> None:
    # Imported here: providers come with the event loop's library, and most flows name none.
    from flowengine.agents.context import ParameterError, UnknownParameterError, make_provider, parse_entry

    problems: list[ProjectProblem] = []

    def load(target: str) -> Any:
        problem = project.problem_with(target)
        problems.extend([problem] if problem is not None else [])
        return _stand_in

    try:
        make_provider(parse_entry(entry), project.root, load)
    except DefinitionError as error:
        parameter = error.parameter if isinstance(error, ParameterError) else None
        tell = report.at_key if isinstance(error, UnknownParameterError) else report.at_value
        tell(_code_of(error), str(error), _place(entry, path, parameter))
    for problem in problems:
        report.at_value(problem.code, problem.message, path, problem.hint)


def _stand_in(*arguments: Any, **keywords: Any) -> None:
    """Stands where the code of a flow's author will be."""


def _code_of(error: DefinitionError) -> str:
    from flowengine.agents.context import MissingFileError, OutsideError

    return {MissingFileError: "FE510", OutsideError: "FE503"}.get(cast(Any, type(error)), "FE412")


def _place(entry: Any, path: KeyPath, parameter: str | None) -> KeyPath:
    """Returns the position of a parameter in an entry of either notation; else that of the entry."""
    if not isinstance(entry, Mapping):
        return path
    keys = cast("Mapping[str, Any]", entry)
    inner: Any = next(iter(keys.values()), None)
    if "type" not in keys and isinstance(inner, Mapping) and parameter in inner:
        return (*path, next(iter(keys)), cast(str, parameter))
    return (*path, cast(str, parameter)) if parameter in keys else path


class NamedModel(NamedTuple):
    """A model that a file names."""

    model: str
    """The model's name as the file writes it."""
    path: KeyPath

    @property
    def node(self) -> str | None:
        """The node that asks it; None where it is named for several."""
        return ".".join(node_at(self.path)) or None


def check_models(spec: FlowSpec, facts: ModelFacts, model: str | None = None) -> list[Diagnostic]:
    """Every name that goes to no vendor, and every option that a model refuses, also in the flows that run as nodes.

    `model` stands in for every model that the file names.
    """
    reports = [Report(each) for each in flows_in(spec)]
    for report in reports:
        for each in models_of(report.spec) if model is None else ():
            try:
                facts.of(each.model)
            except ModelConfigError as error:
                report.at_value("FE511", str(error), each.path)
        _check_options(report.spec, facts, model, report)
        _check_image_models(report.spec, facts, model, report)
    return list(dict.fromkeys(problem for report in reports for problem in report.diagnostics))


def _check_options(spec: FlowSpec, facts: ModelFacts, stand_in: str | None, report: Report) -> None:
    """Each option that a model which a node asks is known to refuse."""
    for node_path, node in nodes_of(spec):
        if not is_asking(node) or getattr(node, "call", None) is not None:
            continue
        settings = settings_of(spec, node)
        node_options, has_tools = (
            normalize_options(options_of(settings)) | _said_beside(settings),
            bool(settings.tools or settings.mcp_servers or settings.skills),
        )
        if not node_options and not has_tools:
            continue
        from flowengine.models import find_refusals  # Few flows set options.

        path = key_path(node_path)
        for model in _asked_models(settings, facts, stand_in):
            options, own = {**(model.options or {}), **node_options}, model.definition
            can = EMPTY if own is None else own.capabilities
            refusals = find_refusals(
                model.provider, model.name, options, can, has_tools=has_tools, adapter=facts.adapter_of(model)
            )
            for option, reason, _ in refusals:
                place = _place_of_option(spec, path, node, option)
                report.at_key("FE513", f"model '{model}' refuses `{option}`: {reason}", place)


def _asked_models(settings: AgentSpec, facts: ModelFacts, stand_in: str | None) -> Iterator[KnownModel]:
    """The models that a node asks; without those whose name goes to no vendor, which is told elsewhere."""
    for model in (settings.model, *(settings.fallbacks or ())) if stand_in is None else (stand_in,):
        try:
            facts_of_model = facts.of(model)
        except ModelConfigError:
            continue
        yield facts_of_model


def _said_beside(settings: AgentSpec) -> dict[str, Any]:
    values = {name: getattr(settings, name) for name in ("temperature", "max_tokens")}
    return {name: value for name, value in values.items() if value is not None}


def _place_of_option(spec: FlowSpec, path: KeyPath, node: Any, option: str) -> KeyPath:
    """Returns the position of an option that applies to a node: at the node, else at its agent."""
    holders: list[tuple[KeyPath, Any]] = [(path, node)]
    agent = agent_path(spec, path, node)
    if agent is not None:
        holders.append((agent, agent_of(spec, node)))
    for place, holder in holders:
        if option in holder.model_fields_set:
            return (*place, option)
        if option in (holder.model_options or ()):
            return (*place, "model_options", option)
    return path


def vendors_of(spec: FlowSpec, facts: ModelFacts) -> dict[str, KnownModel]:
    """Model as it is written → what is known of it, for those that go to a vendor; subflows' models included."""
    vendors: dict[str, KnownModel] = {}
    for each in (use for flow in flows_in(spec) for use in models_of(flow)):
        try:
            vendors[each.model] = facts.of(each.model)
        except ModelConfigError:
            continue
    return vendors


def describe_unnamed(spec: FlowSpec, facts: ModelFacts) -> str | None:
    """Tells which model the nodes ask that name none, in a file that names one for others; subflows' nodes included."""
    unnamed = [
        f"'{'.'.join(path)}'" + ("" if flow is spec else f" of {flow.name}")
        for flow in flows_in(spec)
        for path, node in nodes_of(flow)
        if is_asking(node) and getattr(node, "call", None) is None and settings_of(flow, node).model is None
    ]
    if not unnamed or not any(True for flow in flows_in(spec) for _ in models_of(flow)):
        return None
    more = f" and {len(unnamed) - _MOST_NAMED} more" if len(unnamed) > _MOST_NAMED else ""
    names = f"{', '.join(unnamed[:_MOST_NAMED])}{more}"
    try:
        default_model = facts.of(None)
    except ModelConfigError:
        return None  # Told elsewhere.
    what = (
        "the offline stand-in, which is no language model"
        if is_stand_in(default_model.provider)
        else str(default_model)
    )
    return f"no model is named for {names}, so they ask {what}"


_MOST_NAMED: Final = 5


def models_of(spec: FlowSpec) -> Iterator[NamedModel]:
    """Every model that the file names, with its place."""
    for path, settings in settings_in(spec):
        yield from _of_settings(settings, path)


_JUDGES: Final = ("improve", "evaluate")
_IN_PROVIDERS: Final = ("model", "embedding")


def _of_settings(settings: ModelSettings, path: KeyPath) -> Iterator[NamedModel]:
    if settings.model is not None:
        yield NamedModel(settings.model, (*path, "model"))
    for number, each in enumerate(settings.fallbacks or ()):
        yield NamedModel(each, (*path, "fallbacks", number))
    if not isinstance(settings, AgentSettings):
        return
    for key in _JUDGES:
        judge = getattr(settings, key)
        if judge is not None and judge.model is not None:
            yield NamedModel(judge.model, (*path, key, "model"))
    for number, entry in enumerate(settings.context or ()):
        yield from _of_provider(entry, (*path, "context", number))


def _of_provider(entry: Any, path: KeyPath) -> Iterator[NamedModel]:
    """`{type: compressor, model: …}` and `{compressor: {model: …}}`."""
    if not is_map(entry):
        return
    inner = {} if "type" in entry else {(*path, name): each for name, each in entry.items() if is_map(each)}
    for place, settings in ({path: entry} if "type" in entry else inner).items():
        for key in _IN_PROVIDERS:
            if isinstance(settings.get(key), str):
                yield NamedModel(settings[key], (*place, key))


# --- Checks of what `attach` names: values that can be files, and models that take them

_LONE: Final = re.compile(r"\s*\{\{.*\}\}\s*", re.DOTALL)


class Attached(NamedTuple):
    """One entry of an `attach`."""

    node: NodeSpec
    path: KeyPath
    text: str
    declared: InputSpec | None
    """The flow's input, where it names just that."""


def _attached_in(spec: FlowSpec) -> Iterator[Attached]:
    """Every entry of every `attach` of a flow."""
    for node_path, node in nodes_of(spec):
        yield from attached_in_node(spec, node, key_path(node_path))


def attached_in_node(spec: FlowSpec, node: NodeSpec, path: KeyPath = ()) -> Iterator[Attached]:
    """The entries of one node's `attach`; `path`: where it stands."""
    for number, text in enumerate(getattr(node, "attach", ())):
        yield Attached(node, (*path, "attach", number), text, named_input(spec, text))


def check_attachments(spec: FlowSpec, report: Report) -> None:
    """Each entry that can be no file."""
    for each in _attached_in(spec):
        if not _LONE.fullmatch(each.text):
            hint = "; declare an input of type file, and name it: {{ inputs.… }}"
            report.at_value("FE230", "`attach` takes templates that give files, and no paths", each.path, hint)
        elif each.declared is not None and each.declared.type not in ("file", "array", None):
            text = f"an input of type {each.declared.type} is no file"
            report.at_value("FE230", text, each.path, "; declare it with type: file")


def _check_image_models(spec: FlowSpec, facts: ModelFacts, stand_in: str | None, report: Report) -> None:
    """Each input that may be an image and goes to a model of which it is known that it takes none."""
    for each in _attached_in(spec):
        if each.declared is None or not is_asking(each.node) or not _may_be_image(each.declared):
            continue
        for model in _asked_models(settings_of(spec, each.node), facts, stand_in):
            if model.takes_images is False:
                hint = "; choose another model, or say with `media_types` of the input that it is no image"
                report.at_value("FE514", f"model '{model}' takes no images", each.path, hint)


def _may_be_image(input_spec: InputSpec) -> bool:
    types = input_spec.media_types
    return input_spec.type == "file" and (types is None or any(allows_media_type(types, each) for each in IMAGES))
