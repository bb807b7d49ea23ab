"""Reads declarative workflows and agents of Microsoft Agent Framework and Foundry.

A workflow is a list of actions on variables. The variables become shared state, the actions nodes that run one after
the other, jumps back loops; what is shown to the user is the output `messages`. An agent is asked with the messages of
its conversation, which the state holds as well. Agents themselves stand in Foundry or in files beside the workflow:
those beside it are taken along, the others are told as lost.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from flowengine.errors import DefinitionError, FlowError
from flowengine.flowfile.yaml.parser import ParsedYaml, parse_yaml
from flowengine.flowfile.yaml.positions import SourceText
from flowengine.importers.agent_framework.prompt_agents import PromptAgent, as_list, as_map, read_agent
from flowengine.importers.agent_framework.workflow_reader import WorkflowReader
from flowengine.importers.form import ImportedProject
from flowengine.importers.source_tree import SourceError, SourceTree, YamlSource

__all__ = ["find", "read"]

_KINDS = re.compile(r"(?i)\bkind[\"']?[ ]*:[ ]*[\"']?(Workflow|AdaptiveDialog|Prompt)|\bactions[\"']?[ ]*:")
_FORMULA = re.compile(r"^([ ]*(?:- )?[\w.]+:[ ]+)(=.*)$", re.MULTILINE)
_MOST_BESIDE = 200


def find(tree: SourceTree, files: Sequence[str]) -> list[str]:
    """The files that hold a workflow or an agent."""
    return [each for each in files if each.endswith((".yml", ".yaml")) and _kind(tree, each)]


def _kind(tree: SourceTree, file: str) -> str:
    try:
        text = tree.read_text(file)
        if not _KINDS.search(text):
            return ""
        data = as_map(_parse(file, text).data)
    except DefinitionError:
        return ""
    kind = str(data.get("kind") or "").lower()
    if kind in {"prompt", "promptagent"}:
        return "agent"
    for each in (data, as_map(data.get("trigger")), as_map(data.get("beginDialog"))):
        if any("kind" in as_map(row) for row in as_list(each.get("actions"))):
            return "workflow"
    return "workflow" if kind == "workflow" and "trigger" in data else ""


def read(tree: SourceTree, file: str) -> ImportedProject:
    """The workflow, or the agent, of one file."""
    source = _parse(file, tree.read_text(file))
    if not isinstance(source.data, dict):
        raise SourceError(f"{file}: there is neither a workflow nor an agent")
    if _kind(tree, file) == "agent":
        return PromptAgent(source).read()
    return WorkflowReader(source, _agents_beside(tree, file)).read()


def _parse(file: str, text: str) -> YamlSource:
    parsed = parse_yaml(text, file)
    if parsed.problems:
        quoted = _FORMULA.sub(lambda found: found[1] + "'" + found[2].strip().replace("'", "''") + "'", text)
        again: ParsedYaml = parse_yaml(quoted, file)
        if again.problems:
            raise FlowError(parsed.problems)
        parsed, text = again, quoted
    return YamlSource(file, parsed.data, SourceText(text, Path(file), parsed.place))


def _agents_beside(tree: SourceTree, file: str) -> dict[str, YamlSource]:
    """The agents of the same folder, by their names in small letters."""
    found: dict[str, YamlSource] = {}
    folder = str(Path(file).parent)
    for at, each in enumerate(tree.files(folder)):
        if at >= _MOST_BESIDE:
            break
        if each != file and each.endswith((".yml", ".yaml")) and _kind(tree, each) == "agent":
            try:
                source = _parse(each, tree.read_text(each))
            except DefinitionError:
                continue
            if isinstance(source.data, dict):
                found.setdefault(read_agent(source).lower(), source)
    return found
