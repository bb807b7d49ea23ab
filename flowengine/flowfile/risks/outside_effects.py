"""Names the places where untrusted text enters a node by itself, and those where a node acts on the outside.

Only what stands in the file and in the project's modules is looked at: no code is run, no server is asked. What cannot
be seen that way is taken to be a source, or an effect, and the place says so (`why`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from flowengine.agents.context import ALIASES
from flowengine.core import TRAITS, is_map
from flowengine.errors import ProjectError
from flowengine.flowfile.analysis import (
    agent_path,
    is_agent,
    is_approval,
    is_asking,
    is_code_node,
    is_function,
    is_http,
    is_tool,
    settings_of,
)
from flowengine.flowfile.project import Project, ToolMark
from flowengine.flowfile.risks.closed_values import shape_of_annotation
from flowengine.flowfile.schema import BoundedKeys, ChannelKeys, FlowSpec, NodeSpec, is_code
from flowengine.flowfile.yaml import KeyPath

if TYPE_CHECKING:
    from flowengine.agents.tools import ApprovalRules
    from flowengine.flowfile.kinds.agent_kind import AgentNodeSpec
    from flowengine.flowfile.kinds.http_kind import HttpNodeSpec

ANY: Final = ""
"""The key of an effect that every text which the node reads has a part in."""
URL_KEYS: Final = ("url", "query", "headers")


class RiskSpot(NamedTuple):
    """A place of a node where a text enters it from outside, or where it acts on the outside."""

    key: str
    """The node's key, as `trust` names it."""
    at: KeyPath
    """The place in the file."""
    what: str
    """A phrase that goes on from "untrusted text: …" or from "it reaches …"."""
    why: str = ""
    """The fact that is not known, where it is only taken to be so."""
    reads: str = ANY
    """The one key whose text is meant; else all that the node reads."""


def can_act(node: NodeSpec) -> bool:
    """Tells whether a node could act on the outside, as far as its kind says."""
    if is_approval(node):
        return bool(node.notify)
    return is_asking(node) or (isinstance(node, BoundedKeys) and node.effect != "none") or is_code_node(node)


def can_bring(node: NodeSpec) -> bool:
    """Tells whether a node could bring untrusted text by itself, as far as its kind says."""
    if is_function(node):
        return node.untrusted
    return is_asking(node) or is_http(node) or is_tool(node) or node.type not in TRAITS


# --- what comes in


def untrusted_inputs(spec: FlowSpec, project: Project) -> Iterator[RiskSpot]:
    """The inputs whose texts come from outside: marked ones, files, and what a webhook of the project hands on."""
    hooks = {name: each for each in project.webhooks if each.flow == spec.name for name in each.call_inputs}
    for name, declared in spec.inputs.items():
        if declared.is_untrusted:
            at = ("inputs", name, "untrusted") if declared.untrusted else ("inputs", name)
            yield RiskSpot(name, at, f"{'the file' if declared.type == 'file' else 'the input'} '{name}'")
        elif declared.untrusted is None and name in hooks:
            words = f"the input '{name}', which the webhook '{hooks[name].path}' fills"
            yield RiskSpot(name, ("inputs", name), words)


def sources_in(spec: FlowSpec, project: Project, path: KeyPath, node: NodeSpec) -> Iterator[RiskSpot]:
    """The places where a node takes in untrusted text by itself; inputs are not included."""
    if is_http(node):
        yield RiskSpot("output", path, "the answer of a request")
    elif is_tool(node):
        yield RiskSpot("output", (*path, "tool"), f"the answer of the tool '{node.tool}'")
    elif is_function(node):
        if node.untrusted:
            yield RiskSpot("output", (*path, "untrusted"), f"what '{node.call}' brings")
    elif is_agent(node):
        yield from _sources_of_agent(spec, project, path, node)
    elif node.type not in TRAITS:
        yield RiskSpot("output", path, "what the node gives", f"what a '{node.type}' brings is not known")


def _sources_of_agent(spec: FlowSpec, project: Project, path: KeyPath, node: AgentNodeSpec) -> Iterator[RiskSpot]:
    settings = settings_of(spec, node)
    for key, words in _BRINGING.items():
        if getattr(settings, key):
            yield RiskSpot(key, place_of_setting(spec, path, node, key), words)
    if not all(_answers_closed(project, target) for target in settings.tools or ()):
        yield RiskSpot("tools", place_of_setting(spec, path, node, "tools"), "the answers of its tools")
    at = place_of_setting(spec, path, node, "context")
    for number, entry in enumerate(settings.context or ()):
        name = provider_of(entry)
        if name not in _QUIET:
            summary = _PROVIDERS.get(name)
            why = "" if summary else "what the provider brings is not known"
            yield RiskSpot("context", (*at, number), summary or f"what '{name}' brings", why)


_BRINGING: Final = {
    "mcp_servers": "the answers of its servers",
    "contexts": "what its typed contexts hold",
    "memory": "what was remembered",
}
"""Setting of an agent → what comes in by it."""
_PROVIDERS: Final = {
    "fixed_file": "a file",
    "source_code": "files",
    "retrieval": "what was retrieved",
    "long_term_memory": "what was remembered",
}
_QUIET: Final = ("compressor", "cut", "filter", "conversation")
"""Providers that bring nothing of their own; what `conversation` brings was said in the flow's own agents."""


def _answers_closed(project: Project, target: str) -> bool:
    mark = mark_of(project, target)
    return mark is not None and shape_of_annotation(mark.returns) is not None


def provider_of(entry: Any) -> str:
    name = entry if isinstance(entry, str) else ""
    if is_map(entry):
        value = entry.get("type", next(iter(entry), ""))
        name = value if isinstance(value, str) else ""
    return ALIASES.get(name, name)


# --- what goes out


def effects_in(spec: FlowSpec, project: Project, path: KeyPath, node: NodeSpec) -> Iterator[RiskSpot]:
    """Lists the external effects of the node at a path of the file."""
    if is_http(node):
        yield from _effects_of_request(path, node)
    elif is_tool(node):
        rules = _rules((), project)
        effect, why = _effect_of_tool(project, node.tool) if node.effect is None else (node.effect, "")
        if effect == "external" and not _is_asked(project, node.tool, rules):
            yield RiskSpot("tool", (*path, "tool"), f"the tool '{node.tool}'", why)
    elif is_code_node(node):
        yield RiskSpot("code", (*path, "code"), "code in the sandbox", reads="with")
    elif is_approval(node):
        if any(isinstance(each, ChannelKeys) and each.to for each in node.notify or ()):
            yield RiskSpot("notify", (*path, "notify"), "the address that somebody is told at", reads="notify")
    elif isinstance(node, BoundedKeys) and node.effect == "external":
        yield RiskSpot("effect", (*path, "effect"), "an effect outside")
    if is_agent(node):
        yield from _effects_of_agent(spec, project, path, node)


def _effects_of_request(path: KeyPath, node: HttpNodeSpec) -> Iterator[RiskSpot]:
    for key in URL_KEYS:
        if key in node.model_fields_set:
            yield RiskSpot(key, (*path, key), _ADDRESS[key], reads=key)
    if node.known_effect() != "none":
        for name, key in (("json_", "json"), ("form", "form"), ("body", "body")):
            if name in node.model_fields_set:
                yield RiskSpot(key, (*path, key), f"what a {node.method} sends", reads=key)


_ADDRESS: Final = {"url": "the address of a request", "query": "the address of a request", "headers": "a header"}


def _effects_of_agent(spec: FlowSpec, project: Project, path: KeyPath, node: AgentNodeSpec) -> Iterator[RiskSpot]:
    settings = settings_of(spec, node)
    if not any(getattr(settings, key) for key in ("tools", "mcp_servers", "contexts", "skills")):
        return
    rules = _rules(settings.approve or (), project)
    at = place_of_setting(spec, path, node, "tools")
    for number, target in enumerate(settings.tools or ()):
        effect, why = _effect_of_tool(project, target)
        if effect == "external" and not _is_asked(project, target, rules):
            yield RiskSpot("tools", (*at, number), f"the tool '{target}'", why)
    at = place_of_setting(spec, path, node, "mcp_servers")
    for number, server in enumerate(settings.mcp_servers or ()):
        if not rules.external and not all(rules.match(f"{server.name}.{each}") for each in server.allow or _ANY_TOOL):
            why = "what a server's tools do is not known before it runs"
            yield RiskSpot("mcp_servers", (*at, number), f"the tools of the server '{server.name}'", why)
    at = place_of_setting(spec, path, node, "contexts")
    for number, target in enumerate(settings.contexts or ()):
        if not rules.external and not rules.match(_ANY_TOOL[0]) and is_mentioned(project, target, "external"):
            why = f"what the tools of '{target}' do is not seen without importing it"
            yield RiskSpot("contexts", (*at, number), f"the tools of the typed context '{target}'", why)
    at = place_of_setting(spec, path, node, "skills")
    for number, folder in enumerate(settings.skills or ()):
        has_scripts, why = _has_scripts(project, folder)
        if has_scripts:
            yield RiskSpot("skills", (*at, number), f"the scripts of the skills in '{folder}'", why)


def place_of_setting(spec: FlowSpec, path: KeyPath, node: Any, key: str) -> KeyPath:
    """Returns the position of a setting that applies to a node: at the node, else at its agent."""
    if key in node.model_fields_set:
        return (*path, key)
    agent = agent_path(spec, path, node)
    return (*path, key) if agent is None else (*agent, key)


_ANY_TOOL: Final = ("\0",)
"""Stands for a tool that is not known: only a pattern for all of them matches it."""


def _rules(names: Iterable[str], project: Project) -> ApprovalRules:
    from flowengine.agents.tools import ApprovalRules  # The event loop's library comes with it.

    return ApprovalRules(tuple(names), project.approve_external)


def _effect_of_tool(project: Project, target: str) -> tuple[str, str]:
    """The effect of a tool, and what is not known of it, where it is only taken to be external."""
    if not is_code(target):
        return "external", "what a server's tool does is not known before it runs: say `effect`"
    mark = mark_of(project, target)
    if mark is None or mark.effect is None:
        return "external", f"what '{target}' does is not seen without importing it"
    return mark.effect, ""


def _is_asked(project: Project, target: str, rules: ApprovalRules) -> bool:
    """Tells whether a person is asked before each call of a tool that is external."""
    if not is_code(target):
        return rules.external
    mark = mark_of(project, target)
    if mark is None or mark.name is None:
        return rules.match(_ANY_TOOL[0])
    return bool(mark.is_asked) or rules.match(mark.name) or (rules.external and mark.is_asked is None)


def mark_of(project: Project, target: str) -> ToolMark | None:
    """Returns what is known about a project's function as a tool."""
    definition = project.definition_of(target)
    return None if definition is None else definition.mark


def is_mentioned(project: Project, target: str, word: str) -> bool:
    """Tells whether a word stands in the module of a function or a class, or that module cannot be read."""
    file = project.module_file(target.partition(":")[0])
    try:
        return file is None or word.encode() in file.read_bytes()
    except OSError:
        return True


_MOST_FILES: Final = 5_000


def _has_scripts(project: Project, folder: str) -> tuple[bool, str]:
    """Tells whether there are scripts in a folder of skills, and what is not known."""
    from flowengine.agents.skills import SCRIPT_SUFFIXES as SUFFIXES  # Few flows name skills.

    try:
        top = project.resolve(folder)
    except ProjectError:
        return False, ""  # It cannot be named; that is told elsewhere.
    count = 0
    for here, _, files in os.walk(top):
        count += len(files)
        if count > _MOST_FILES:
            return True, "it has too many files to be looked through"
        if (files and Path(here).name == "scripts") or any(Path(each).suffix.lower() in SUFFIXES for each in files):
            return True, ""
    return False, ""
