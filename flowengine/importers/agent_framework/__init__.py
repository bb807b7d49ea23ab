"""Reads declarative workflows and agents of Microsoft Agent Framework and Foundry.

A workflow is a list of actions on variables. The variables become shared state, the actions nodes that run one after
the other, jumps back loops; what is shown to the user is the output `messages`. An agent is asked with the messages of
its conversation, which the state holds as well. Agents themselves stand in Foundry or in files beside the workflow:
those beside it are taken along, the others are told as lost.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from flowengine.core import is_map
from flowengine.errors import DefinitionError, FlowError
from flowengine.importers.agent_framework.prompt_agents import PromptAgent, read_agent
from flowengine.importers.agent_framework.workflow_reader import WorkflowReader
from flowengine.importers.form import ImportedProject
from flowengine.importers.source_tree import SourceError, SourceTree, YamlSource, as_list, as_map, parse_source

__all__ = ["find", "read"]

_KINDS = re.compile(r"(?i)\bkind[\"']?[ ]*:[ ]*[\"']?(Workflow|AdaptiveDialog|Prompt)|\bactions[\"']?[ ]*:")
_FORMULA = re.compile(r"^([ ]*(?:- )?[\w.]+:[ ]+)(=.*)$", re.MULTILINE)
_MOST_BESIDE = 200


def find(tree: SourceTree, files: Sequence[str]) -> list[str]:
    """The files that hold a workflow or an agent."""
    return [file for file, text in tree.yaml_texts(files) if _kind(file, text)]


def _kind(file: str, text: str) -> str:
    try:
        data = as_map(_parse(file, text).data if _KINDS.search(text) else None)
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
    text = tree.read_text(file)
    source = _parse(file, text)
    if not is_map(source.data):
        raise SourceError(f"{file}: there is neither a workflow nor an agent")
    if _kind(file, text) == "agent":
        return PromptAgent(source).read()
    return WorkflowReader(source, _agents_beside(tree, file)).read()


def _parse(file: str, text: str) -> YamlSource:
    """The YAML, where need be with the formulas quoted that are no YAML."""
    try:
        return parse_source(file, text)
    except FlowError as error:
        quoted = _FORMULA.sub(lambda match: match[1] + "'" + match[2].strip().replace("'", "''") + "'", text)
        try:
            return parse_source(file, quoted)
        except FlowError:
            raise error from None


def _agents_beside(tree: SourceTree, file: str) -> dict[str, YamlSource]:
    """The agents of the same folder, by their names in small letters."""
    agents: dict[str, YamlSource] = {}
    folder = str(Path(file).parent)
    for each, text in tree.yaml_texts(list(islice(tree.files(folder), _MOST_BESIDE))):
        if each != file and _kind(each, text) == "agent":
            source = _parse(each, text)
            agents.setdefault(read_agent(source).lower(), source)
    return agents
