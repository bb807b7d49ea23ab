"""Reads what an app of Dify is made of: its inputs, its variables, its features, its graph, its one agent."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from flowengine.core import is_json_type
from flowengine.importers.dify.app_parts import EMPTY, state_type
from flowengine.importers.dify.graph_levels import DifyGraph, DifyNode, GraphEdge, plain_handle
from flowengine.importers.dify.graph_writer import GraphWriter
from flowengine.importers.dify.known_keys import KNOWN_OF_APP
from flowengine.importers.dify.node_converters import NodeConverters
from flowengine.importers.dify.selectors import NUMBER
from flowengine.importers.flow_text import escape_text, fill_text, plain_words, to_tag
from flowengine.importers.form import FlowStep, ImportedFlow, ImportedProject, ImportLedger, SourcePlace
from flowengine.importers.import_names import FieldNames, Names
from flowengine.importers.option_values import whole_number
from flowengine.importers.read_keys import watch
from flowengine.importers.source_tree import SourceError, YamlSource, as_list, as_map, as_maps

_TITLE: Final = "Dify"
_CHAT_MODES: Final = frozenset({"advanced-chat", "chat", "agent-chat"})
_MODES: Final = frozenset({*_CHAT_MODES, "workflow", "completion"})
_MOST_NODES: Final = 1_000
_INPUT_TYPES: Final = {
    "number": "number",
    "checkbox": "boolean",
    "json_object": "object",
    "file": "file",
    "file-list": "file",
}
_SYSTEM: Final = {
    **dict.fromkeys(("user_id", "conversation_id", "app_id", "workflow_id"), ("string", "")),
    **dict.fromkeys(("dialogue_count", "timestamp"), ("integer", 0)),
}
_FILE: Final = {"type": "file", "default": None, "description": "A file of the user"}
_FEATURES: Final = {
    "opening_statement": ("the first words of a chat", "the page that talks to users says them"),
    "suggested_questions": ("suggested questions", "the page that talks to users shows them"),
    "suggested_questions_after_answer": ("suggested questions after an answer", "add an agent that suggests them"),
    "speech_to_text": ("speech to text", "turn speech into text before the run"),
    "text_to_speech": ("text to speech", "speak the answer behind the run"),
    "sensitive_word_avoidance": ("moderation", "set guardrails at the agents"),
}


class AppReader:
    """One file on its way into the form."""

    def __init__(self, source: YamlSource) -> None:
        self._source = source
        data = watch(as_map(source.data))
        self._app = as_map(data.get("app"))
        self._data = data
        self._mode = str(self._app.get("mode") or "workflow")
        if self._mode not in _MODES:
            raise SourceError(f"{source.file}: '{self._mode[:40]}' is no mode of an app of Dify that can be imported")
        self._ledger = ImportLedger()
        self._project = ImportedProject(_TITLE, self._ledger)
        self._names = Names({"steps", "stubs", "rendering", "imported_values"})
        stem = Path(source.file).stem
        self._flow = ImportedFlow(
            Names().id(self._app.get("name") or stem, Names().id(stem, "imported_app")),
            source.origin("app"),
            plain_words(self._app.get("description")) or plain_words(self._app.get("name")) or None,
        )
        self._project.flows.append(self._flow)
        self._values: dict[tuple[str, str], str] = {}
        self._constants: dict[str, str] = {}
        self._inputs = FieldNames()

    def read(self) -> ImportedProject:
        if self._mode in _CHAT_MODES or self._mode == "completion":
            self._add_input("query", {"type": "string", "description": "What the user writes"}, ("sys", "query"))
        workflow = as_map(self._data.get("workflow"))
        if workflow:
            self._read_workflow(workflow)
        elif as_map(self._data.get("model_config")):
            self._read_basic(as_map(self._data["model_config"]))
        else:
            raise SourceError(f"{self._source.file}: there is neither a workflow nor a model_config")
        self._ledger.note_unread("the app", self._data, self._source.origin("app"), KNOWN_OF_APP)
        return self._project

    # --- Values of the app

    def _add_input(self, name: str, field: dict[str, Any], *keys: tuple[str, str]) -> str:
        if any(key in self._values for key in keys):
            return self._values[keys[0]]
        id = self._inputs.id(name, "input")
        self._flow.inputs[id] = field
        for key in keys:
            self._values[key] = f"inputs.{id}"
        return id

    def _read_variables(self, place: DifyNode, path: tuple[str | int, ...]) -> None:
        """The variables of a start node."""
        for at, each in enumerate(as_maps(place.data.get("variables"))):
            self._read_variable(each, self._source.origin(*path, "data", "variables", at))

    def _read_variable(self, row: Mapping[str, Any], origin: SourcePlace) -> None:
        name = str(row.get("variable") or "")
        if not name:
            return
        kind = str(row.get("type") or "text-input")
        what = f"input '{name[:60]}'"
        if ("start", name) in self._values:
            self._ledger.note_changed(what, origin, "it is there twice; the first one counts")
            return
        if kind in {"external_data_tool", "api"}:
            self._ledger.note_lost(what, origin, "its value comes from a service of Dify", "give it as an input")
        field: dict[str, Any] = {"type": _INPUT_TYPES.get(kind, "string")}
        options = [str(each) for each in as_list(row.get("options"))]
        default = row.get("default")
        if kind == "number" and isinstance(default, str) and NUMBER.fullmatch(default):
            default = float(default) if "." in default else int(default)
        if kind == "select" and options:
            field["enum"] = list(dict.fromkeys(options))
        if kind in {"file", "file-list"}:
            if not row.get("required"):
                field["default"] = None
        elif self._fits(default, field):
            field["default"] = default
        elif not row.get("required"):
            field["default"] = EMPTY.get(field["type"], "")
            if "enum" in field and "" not in field["enum"]:
                field["enum"].append("")
        label = plain_words(row.get("label"), 200)
        if label and label != name:
            field["description"] = label
        id = self._add_input(name, field, ("start", name))
        if self._mode in _CHAT_MODES and name == "query":
            self._values["start", name] = "inputs.query"
        if kind == "file-list":
            self._values["start", name] = _write_list(id, "default" in field)
            self._ledger.note_changed(what, origin, f"`{id}`: one file instead of a list of files")
        else:
            self._ledger.note_done(what, origin, f"it is called `{id}`" if id != name else "")

    def _fits(self, default: Any, field: Mapping[str, Any]) -> bool:
        return default in field["enum"] if "enum" in field else is_json_type(default, field["type"])

    def _read_environment(self, workflow: Mapping[str, Any]) -> None:
        for at, each in enumerate(as_maps(workflow.get("environment_variables"))):
            name, value = str(each.get("name") or ""), each.get("value")
            origin = self._source.origin("workflow", "environment_variables", at)
            what = f"environment variable '{name[:60]}'"
            if each.get("value_type") == "secret" or not isinstance(value, str | int | float | bool):
                why = plain_words(each.get("description"), 200) or "a secret of the app"
                variable = self._project.add_variable(name, why, is_read=True)
                self._values["env", name] = f'(env.{variable} | default(""))'
                self._ledger.note_changed(what, origin, "it comes from the environment", f"set {variable}")
            else:
                self._constants[f"env.{name}"] = str(value)
                kind = "boolean" if isinstance(value, bool) else "string" if isinstance(value, str) else "number"
                id = self._add_input(name, {"type": kind, "default": value}, ("env", name))
                self._ledger.note_changed(what, origin, f"the input `{id}` with its value as the default")

    def _read_conversation(self, workflow: Mapping[str, Any]) -> None:
        states = FieldNames()
        for at, each in enumerate(as_maps(workflow.get("conversation_variables"))):
            name, kind = str(each.get("name") or ""), str(each.get("value_type") or "string")
            origin = self._source.origin("workflow", "conversation_variables", at)
            id = states.id(name, "variable")
            state: dict[str, Any] = {"type": state_type(kind)}
            default = each.get("value")
            state["default"] = default if self._fits(default, state) else EMPTY.get(state["type"], "")
            state["merge"] = "replace"
            self._flow.shared_state[id] = state
            self._values["conversation", name] = f"shared_state.{id}"
            self._ledger.note_changed(
                f"conversation variable '{name[:60]}'",
                origin,
                f"the state `{id}`, which lasts for one run",
                "hand its value to the next run of the conversation, where that is wanted",
            )

    def _read_features(self, features: Mapping[str, Any], *path: str) -> None:
        for key, (what, by_hand) in _FEATURES.items():
            setting: Any = features.get(key)
            if as_map(setting).get("enabled", setting):
                self._ledger.note_lost(what, self._source.origin(*path, key), "a flow has no page of its own", by_hand)

    def _converters(self, graph: DifyGraph) -> NodeConverters:
        is_chat = self._mode in _CHAT_MODES
        return NodeConverters(
            self._project, self._flow, graph, self._names, self._values, self._constants, is_chat=is_chat
        )

    # --- Workflows

    def _read_workflow(self, workflow: Mapping[str, Any]) -> None:
        graph = self._read_graph(as_map(workflow.get("graph")))
        self._read_environment(workflow)
        self._read_conversation(workflow)
        text = json.dumps(as_map(self._source.data).get("workflow"), ensure_ascii=False, default=str)
        sees = self._mode in _CHAT_MODES and '"vision": {' in text and '"enabled": true' in text
        if sees or "sys.files" in text or '["sys", "files"]' in text:
            self._add_input("files", dict(_FILE), ("sys", "files"))
            self._values["sys", "files"] = _write_list("files", True)
        for name, (kind, default) in _SYSTEM.items():
            if f"sys.{name}" in text or f'"sys", "{name}"' in text:
                self._add_input(name, {"type": kind, "default": default}, ("sys", name))
        self._values["sys", "workflow_run_id"] = "run.id"
        parts = self._converters(graph)
        GraphWriter(parts, self._ledger).write()
        self._read_features(as_map(workflow.get("features")), "workflow", "features")
        for edge in graph.dropped:
            one, other = graph.places.get(edge.source), graph.places.get(edge.target)
            if one is not None and other is not None:
                what = f"edge from '{one.title}' to '{other.title}'"
                self._ledger.note_lost(what, edge.origin, "it leads back or to another level", "use a loop")
        parts.carry_steps()

    def _read_graph(self, graph: Mapping[str, Any]) -> DifyGraph:
        rows = as_list(graph.get("nodes"))
        if len(rows) > _MOST_NODES:
            raise SourceError(f"{self._source.file}: the graph has more than {_MOST_NODES} nodes")
        places: dict[str, DifyNode] = {}
        notes: list[str] = []
        for at, row in enumerate(map(as_map, rows)):
            data = as_map(row.get("data"))
            kind, id = str(data.get("type") or ""), str(row.get("id") or "")
            origin = self._source.origin("workflow", "graph", "nodes", at)
            if kind in {"", "custom-note"} or row.get("type") == "custom-note":
                notes.append(_note_text(data.get("text")))
                self._ledger.note_mapped("note", origin, "a line of `x-notes`")
            elif id in places:
                why = "another node has the same id"
                self._ledger.note_lost(f"node '{id[:60]}'", origin, why, "give it another id")
            elif id:
                parent = row.get("parentId") or data.get("iteration_id") or data.get("loop_id")
                places[id] = DifyNode(id, kind, data, origin, str(parent) if parent else None)
                if kind == "start":
                    self._read_variables(places[id], ("workflow", "graph", "nodes", at))
        if any(notes):
            self._flow.keys["x-notes"] = [each for each in notes if each]
        _mend_parents(places)
        _mark_beginnings(places)
        edges = [
            GraphEdge(
                str(each.get("source")),
                str(each.get("target")),
                plain_handle(each.get("sourceHandle")),
                self._source.origin("workflow", "graph", "edges", at),
            )
            for at, each in enumerate(as_maps(graph.get("edges")))
        ]
        return DifyGraph(places, edges)

    # --- Basic apps

    def _read_basic(self, config: Mapping[str, Any]) -> None:
        origin = self._source.origin("model_config")
        for at, each in enumerate(as_maps(config.get("user_input_form"))):
            place = self._source.origin("model_config", "user_input_form", at)
            for kind, row in each.items():
                self._read_variable({"type": kind, **as_map(row)}, place)
        parts = self._converters(DifyGraph({}, []))
        step = FlowStep(self._names.id("answer"), "agent", origin)
        parts.set_model(step, as_map(config.get("model")))
        prompt = config.get("pre_prompt")
        if config.get("prompt_type") == "advanced":
            chat = as_map(config.get("chat_prompt_config"))
            prompt = "\n\n".join(str(as_map(each).get("text") or "") for each in as_list(chat.get("prompt")))
            parts.note("the messages of the prompt are one text")
        step.instructions = self._simple_text(str(prompt or "")).strip() or None
        step.prompt = "{{ inputs.query }}"
        if self._mode == "completion" and "query" not in str(config.get("user_input_form")):
            self._flow.inputs.pop("query", None)
            step.prompt, step.instructions = step.instructions or "Answer.", None
        mode = as_map(config.get("agent_mode"))
        if mode.get("enabled"):
            tools = [each for each in as_maps(mode.get("tools")) if each.get("enabled", True) and "dataset" not in each]
            parts.add_tools(step, tools, origin)
            rounds = whole_number(mode.get("max_iteration"), 1, 1000)
            step.keys |= {} if rounds is None else {"max_tool_rounds": rounds}
        if as_list(as_map(as_map(config.get("dataset_configs")).get("datasets")).get("datasets")):
            step.keys["context"] = [{"retrieval": {"documents": "knowledge", "max_results": 4}}]
            self._project.carry("knowledge/README.md", "Put the documents of the knowledge base here.\n")
            place, change = self._source.origin("model_config", "dataset_configs"), "the texts of the folder knowledge"
            self._ledger.note_changed("knowledge bases", place, change, "put the documents there")
        upload = as_map(as_map(config.get("file_upload")).get("image"))
        if upload.get("enabled"):
            self._add_input("files", dict(_FILE), ("sys", "files"))
            step.keys["attach"] = ["{{ inputs.files }}"]
        self._flow.steps.append(step)
        self._flow.outputs["answer"] = to_tag(f"nodes.{step.id}.output")
        what = f"app '{plain_words(self._app.get('name'), 60)}'"
        self._ledger.note_done(what, origin, "; ".join(parts.notes), note=f"the agent `{step.id}`")
        self._read_features(config, "model_config")
        parts.carry_steps()

    def _simple_text(self, text: str) -> str:
        """A prompt whose variables stand in plain braces."""

        def meaning(match: re.Match[str]) -> str | None:
            expression = self._values.get(("start", match[1].strip()))
            return None if expression is None else to_tag(expression)

        return fill_text(text, re.compile(r"\{\{([^{}#]{1,100})\}\}"), meaning, last=escape_text)


def _write_list(id: str, is_optional: bool) -> str:
    return f"([inputs.{id}] if inputs.{id} is not none else [])" if is_optional else f"[inputs.{id}]"


def _note_text(text: object) -> str:
    """The words of a note, which is a tree of an editor."""
    texts: list[str] = []

    def walk(value: Any, depth: int) -> None:
        if depth > 40 or len(texts) > 500:
            return
        row = as_map(value)
        if isinstance(row.get("text"), str):
            texts.append(row["text"])
        for each in as_list(row.get("children")) or ([row["root"]] if "root" in row else []):
            walk(each, depth + 1)

    try:
        walk(json.loads(str(text)), 0)
    except (ValueError, RecursionError, TypeError):
        texts.append(str(text or ""))
    return plain_words(" ".join(texts), 2000)


def _mark_beginnings(places: Mapping[str, DifyNode]) -> None:
    """Mark the nodes that containers name as their first: in older files these are nodes like any other."""
    for place in places.values():
        first = places.get(str(place.data.get("start_node_id")))
        if first is not None and first.parent == place.source:
            first.begins = True


def _mend_parents(places: dict[str, DifyNode]) -> None:
    """Take nodes out of containers that are none, or that contain themselves."""
    for place in places.values():
        chain = {place.source}
        at = place.parent
        while at is not None:
            parent = places.get(at)
            if parent is None or at in chain or parent.type not in {"iteration", "loop"}:
                place.parent = None
                break
            chain.add(at)
            at = parent.parent
