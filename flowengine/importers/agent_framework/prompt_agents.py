"""Reads declarative agents (`kind: Prompt`): what an agent is told, its model, its tools, the shape of its answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from flowengine.importers.flow_text import literal, plain_words
from flowengine.importers.form import FlowStep, ImportedFlow, ImportedProject, ImportLedger, Stub
from flowengine.importers.import_names import Names
from flowengine.importers.option_values import drop_refused, fits_option
from flowengine.importers.read_keys import watch
from flowengine.importers.source_tree import YamlSource, as_list, as_map, as_maps

_TITLE: Final = "Microsoft Agent Framework"
_TYPES: Final = {
    **{each: each for each in ("number", "integer", "boolean", "array", "object")},
    **{"float": "number", "double": "number", "int": "integer", "record": "object"},
}
"""Their kind of a value → that of JSON Schema; a string where it is none of these."""
_OPTIONS: Final = {
    "temperature": "temperature",
    "topP": "top_p",
    "maxOutputTokens": "max_tokens",
    "presencePenalty": "presence_penalty",
    "frequencyPenalty": "frequency_penalty",
    "seed": "seed",
    "stopSequences": "stop",
    "allowMultipleToolCalls": "parallel_tool_calls",
}


_KNOWN: Final = frozenset({"kind", "name", "displayName", "description", "tools", "model.apiType", "model.provider"})


def read_agent(source: YamlSource) -> str:
    """The name of an agent."""
    data = as_map(source.data)
    return str(data.get("name") or Path(source.file).stem)


class PromptAgent:
    """One file with one agent, as a flow with one node."""

    def __init__(self, source: YamlSource) -> None:
        self._source = source
        self.project = ImportedProject(_TITLE, ImportLedger())

    def read(self) -> ImportedProject:
        names = Names({"stubs"})
        name = names.id(read_agent(self._source), "agent")
        flow = ImportedFlow(
            name, self._source.origin("kind"), plain_words(as_map(self._source.data).get("description")) or None
        )
        flow.inputs["message"] = {"type": "string", "description": "What the user writes"}
        self.project.flows.append(flow)
        keys = agent_settings(self._source, self.project, Names({"stubs"}))
        servers = keys.pop("mcp_servers", None)
        step = FlowStep("answer", "agent", self._source.origin("kind"), keys=keys)
        step.instructions = keys.pop("instructions", None)
        step.model = keys.pop("model", None)
        step.prompt = "{{ inputs.message }}"
        if servers:
            keys["mcp_servers"] = servers
        flow.steps.append(step)
        flow.outputs["answer"] = "{{ nodes.answer.output }}"
        return self.project


def agent_settings(source: YamlSource, project: ImportedProject, names: Names) -> dict[str, Any]:
    """The settings of an agent as the format has them; each of its parts is told to the ledger."""
    data, ledger = watch(as_map(source.data)), project.ledger
    settings: dict[str, Any] = {}
    instructions = "\n\n".join(str(data[key]) for key in ("instructions", "additionalInstructions") if data.get(key))
    if instructions.startswith("="):
        ledger.note_lost("instructions", source.origin("instructions"), "they are a formula", "write them at the agent")
    elif instructions:
        settings["instructions"] = literal(instructions)
        ledger.note_mapped("instructions", source.origin("instructions"))
    _read_model(as_map(data.get("model")), source, project, settings)
    if as_map(data.get("outputSchema")):
        settings["output"] = _schema(as_map(data["outputSchema"]))
        ledger.note_mapped("outputSchema", source.origin("outputSchema"))
    for at, each in enumerate(as_maps(data.get("tools"))):
        _read_tool(each, source, at, project, names, settings)
    ledger.note_unread("the agent", data, source.origin("kind"), _KNOWN)
    return settings


def _read_model(
    model: Mapping[str, Any], source: YamlSource, project: ImportedProject, settings: dict[str, Any]
) -> None:
    if not model:
        return
    id, origin, ledger = str(model.get("id") or ""), source.origin("model"), project.ledger
    unread: list[str] = []
    options = as_map(model.get("options"))
    for key, value in options.items():
        ours = _OPTIONS.get(key, "")
        if fits_option(ours, value) or (ours == "parallel_tool_calls" and isinstance(value, bool)):
            settings[ours] = value
        elif key != "chatToolMode" or value not in {"auto", None}:
            unread.append(str(key)[:40])
    if "parallel_tool_calls" in settings and not as_list(as_map(source.data).get("tools")):
        del settings["parallel_tool_calls"]
    notes = [f"options left out: {', '.join(unread)}"] if unread else []
    notes += ["its key and address are the environment's"] if model.get("connection") else []
    by_hand = ""
    if id.startswith("=") or not id:
        by_hand = "name the model at the agent, or set FLOWENGINE_DEFAULT_MODEL"
        notes.append("its name is not in the file")
    else:
        provider = str(model.get("provider") or "").lower()
        vendor = "azure" if "azure" in provider else "anthropic" if "anthropic" in provider else "openai"
        settings["model"] = f"{vendor}/{re.sub(r'[^A-Za-z0-9_.:/@+-]+', '-', id)}"
        variable = {"azure": "AZURE_OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}.get(vendor, "OPENAI_API_KEY")
        project.need_key(variable)
        notes += drop_refused(settings["model"], settings)
    ledger.note_done("model", origin, "; ".join(notes), by_hand, f"`{settings.get('model')}`")


def _read_tool(
    tool: Mapping[str, Any],
    source: YamlSource,
    at: int,
    project: ImportedProject,
    names: Names,
    settings: dict[str, Any],
) -> None:
    kind, name = str(tool.get("kind") or ""), str(tool.get("name") or tool.get("kind") or "tool")
    origin, ledger = source.origin("tools", at), project.ledger
    what = f"tool '{plain_words(name, 60)}'"
    url = str(tool.get("url") or tool.get("serverUrl") or "")
    if kind.lower() == "function":
        function = names.id(name, "tool")
        parameters = as_map(tool.get("parameters"))
        rows = as_map(parameters.get("properties")) or parameters
        stub = [f"{key}: str" for key in rows if str(key).isidentifier()]
        settings.setdefault("tools", []).append(f"stubs:{function}")
        words = plain_words(tool.get("description"))
        project.stubs.append(Stub(f"stubs:{function}", stub, words, origin))
        ledger.note_lost(what, origin, "its code is not in the file", f"write the function {function} in stubs.py")
    elif kind.lower() == "mcp" and re.fullmatch(r"https?://[^\s{}\"'@]+", url):
        server: dict[str, Any] = {"name": names.id(name, "server"), "url": url}
        tool_names = [str(each) for each in as_list(tool.get("allowedTools"))]
        if tool_names:
            server["allow"] = tool_names
        settings.setdefault("mcp_servers", []).append(server)
        project.allow_mcp(url)
        approval = tool.get("approvalMode")
        mode = str(as_map(approval).get("kind") or approval or "")
        if mode and mode.lower() not in {"never", "none"}:
            settings.setdefault("approve", []).append(f"{server['name']}.*")
        ledger.note_mapped(what, origin, f"the server `{server['name']}`")
    else:
        why = f"'{plain_words(kind, 40)}' is a tool that the service runs"
        ledger.note_lost(what, origin, why, "add a function or a server that does it")


def _schema(source: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """A JSON Schema of the properties of an agent's answer."""
    rows = source.get("properties")
    rows_by_name = {str(each.get("name")): each for each in as_maps(rows)}
    properties: dict[str, Any] = {}
    required: list[str] = []
    for name, row in ((key, as_map(each)) for key, each in (rows_by_name or as_map(rows)).items()):
        kind = str(row.get("kind") or row.get("type")).lower()
        shape: dict[str, Any] = {"type": _TYPES.get(kind, "string")}
        if row.get("description"):
            shape["description"] = plain_words(row["description"])
        if as_list(row.get("enum")):
            shape["enum"] = as_list(row["enum"])
        if shape["type"] == "object" and depth < 20:
            shape |= {key: each for key, each in _schema(row, depth + 1).items() if key != "type"}
        if shape["type"] == "array" and depth < 20:
            items = as_map(row.get("items"))
            shape["items"] = _schema({"properties": {"item": items}}, depth + 1)["properties"]["item"] if items else {}
        properties[name] = shape
        if row.get("required", True):
            required.append(name)
    return {"type": "object", "properties": properties, "required": required}
