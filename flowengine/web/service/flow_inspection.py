"""Tells of a flow without running it: its problems, what it can take at most, what codes mean. For other programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowengine.errors import DefinitionError, InputError, ModelConfigError, did_you_mean
from flowengine.flow import Flow
from flowengine.nodes import CompiledFlow

if TYPE_CHECKING:
    from flowengine.flowfile.project import Project


def validate_flow(flow: Flow) -> Mapping[str, Any]:
    """The problems of the flow's file as it is now, warnings included."""
    from flowengine.flowfile import check_file  # YAML only where there is a file.
    from flowengine.flowfile.project import project_of

    path = Path(_path_of(flow.plan))
    project, problems = project_of(path)
    diagnostics = [*problems, *check_file(path, project=project)]
    errors = sum(each.severity == "error" for each in diagnostics)
    return {"flow": flow.name, "errors": errors, "problems": [str(each) for each in diagnostics]}


def nodes_with_shared_memory(flow: Flow) -> Sequence[str]:
    """The agents whose memory is one for all runs, since nothing says whose it is."""
    from flowengine.agents.context import LongTermMemoryProvider  # As above.
    from flowengine.nodes import AgentNode

    paths: list[str] = []
    for path, node in flow.plan.all_nodes.items():
        if isinstance(node, AgentNode):
            sources = node.prototype.sources
            chain = () if sources is None else sources.providers
            if any(isinstance(each, LongTermMemoryProvider) and each.is_shared for each in chain):
                paths.append(path)
    return paths


def models_without_price(flow: Flow, project: Project, environ: Mapping[str, str]) -> Sequence[str]:
    """The models that agents of the flow name and whose price is not known: a key with a budget may not ask them."""
    from flowengine.models import ModelFacts  # As above.
    from flowengine.nodes import AgentNode

    facts = ModelFacts(environ, project.prices, project.default_provider, project.models, project.providers)
    models: dict[str, None] = {}
    for node in flow.plan.all_nodes.values():
        if isinstance(node, AgentNode):
            with suppress(ModelConfigError):  # It is told where the model is opened.
                model = facts.of(node.model_name or None)
                if model.price(0) is None:
                    models[str(model)] = None
    return [*models]


def plan_flow(flow: Flow, inputs: Mapping[str, Any], environ: Mapping[str, str]) -> Mapping[str, Any]:
    """Returns the maximum model calls, tokens and dollars of a run with the given inputs."""
    from flowengine.flowfile import load_flow  # As above.
    from flowengine.flowfile.estimate import bound_of, to_data
    from flowengine.flowfile.project import find_project
    from flowengine.models import ModelFacts, read_environment

    path = _path_of(flow.plan)
    project = find_project(path)
    facts = ModelFacts(
        read_environment(project.root, environ),
        project.prices,
        project.default_provider,
        project.models,
        project.providers,
    )
    spec = load_flow(path, text=flow.plan.source, project=project)
    unknown = [name for name in inputs if name not in spec.inputs]
    if unknown:
        raise InputError(f"unknown input '{unknown[0]}'{did_you_mean(unknown[0], spec.inputs)}")
    missing = [name for name, each in spec.inputs.items() if each.required and name not in inputs]
    return to_data(spec, bound_of(spec, facts, inputs=inputs), missing)


def explain_code(code: str | None) -> Mapping[str, Any]:
    """Explains a code, with text that causes it; None lists the titles of all codes."""
    from flowengine.flowfile.checks import CODES  # As above.

    if code is None:
        return {"codes": {name: each.title for name, each in CODES.items()}}
    entry = CODES.get(code.upper())
    if entry is None:
        raise InputError(f"there is no code '{code:.40}'{did_you_mean(code[:40].upper(), CODES)}")
    return {"code": code.upper(), **entry._asdict()}


def _path_of(plan: CompiledFlow) -> str:
    if plan.path is None:
        raise DefinitionError(f"flow '{plan.name}' was built in Python and has no file")
    return plan.path
