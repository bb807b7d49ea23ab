"""Reads Dify's DSL: workflows, chatflows, and the basic chat, agent and completion apps.

The graph of a workflow becomes a flow whose nodes run under the same conditions: edges behind a choice become its
routes where the target has no other edge, else the target says in `when` which of its edges must have been taken.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any, Final

from flowengine.errors import DefinitionError, FlowError
from flowengine.flowfile.yaml.parser import parse_yaml
from flowengine.flowfile.yaml.positions import SourceText
from flowengine.importers.dify.graph_levels import Graph, GraphEdge, Place, plain_handle
from flowengine.importers.dify.node_converters import NodeConverters, plain_words
from flowengine.importers.dify.selectors import UnknownValueError, Value, as_mapping, as_rows, quote, words_of
from flowengine.importers.form import CarriedFile, ImportedFlow, ImportedProject, ImportLedger, Names, SourcePlace, FlowStep
from flowengine.importers.source_tree import SourceError, SourceTree, YamlSource

__all__ = ["find", "read"]

_TITLE: Final = "Dify"
_CHAT_MODES: Final = frozenset({"advanced-chat", "chat", "agent-chat"})
_MODES: Final = frozenset({*_CHAT_MODES, "workflow", "completion"})
_MOST_NODES: Final = 1_000
_PAIR: Final = re.compile(r"\\u[dD]([89abAB][0-9a-fA-F]{2})\\u[dD]([c-fC-F][0-9a-fA-F]{2})")
_INPUT_TYPES: Final = {"number": "number", "checkbox": "boolean", "json_object": "object", "file": "file", "file-list": "file"}
_STATE_TYPES: Final = {"string": "string", "secret": "string", "number": "number", "boolean": "boolean", "object": "object"}
_SYSTEM: Final = {
    "user_id": ("user_id", "string", ""),
    "conversation_id": ("conversation_id", "string", ""),
    "app_id": ("app_id", "string", ""),
    "workflow_id": ("workflow_id", "string", ""),
    "dialogue_count": ("dialogue_count", "integer", 0),
    "timestamp": ("timestamp", "integer", 0),
}
_FEATURES: Final = {
    "opening_statement": ("the first words of a chat", "the page that talks to users says them"),
    "suggested_questions": ("suggested questions", "the page that talks to users shows them"),
    "suggested_questions_after_answer": ("suggested questions after an answer", "add an agent that suggests them"),
    "speech_to_text": ("speech to text", "turn speech into text before the run"),
    "text_to_speech": ("text to speech", "speak the answer behind the run"),
    "sensitive_word_avoidance": ("moderation", "set guardrails at the agents"),
}


def find(tree: SourceTree, files: Sequence[str]) -> list[str]:
    """The files that hold an app of Dify."""
    return [each for each in files if each.endswith((".yml", ".yaml")) and _is_app(tree, each)]


def _is_app(tree: SourceTree, file: str) -> bool:
    try:
        text = tree.read_text(file)
    except DefinitionError:
        return False
    return bool(
        re.search(r"""(?m)^["'{\s]*(app|data["']\s*:\s*["']app)["']?\s*:""", text)
        and re.search(r"""\bmode["']?\s*:\s*["']?(advanced-chat|chat|agent-chat|workflow|completion)\b""", text)
        and re.search(r"""\b(graph|model_config)["']?\s*:""", text)
    )


def read(tree: SourceTree, file: str) -> ImportedProject:
    """The app of one file; of an answer of Dify's server, the text in its `data`."""
    source = _parse(file, tree.read_text(file))
    inner = as_mapping(source.data).get("data")
    if isinstance(inner, str):
        source = _parse(file, inner)
    return _App(source).read()


def _parse(file: str, text: str) -> YamlSource:
    text = _PAIR.sub(_join_surrogates, text)
    parsed = parse_yaml(text, file)
    if parsed.problems:
        raise FlowError(parsed.problems)
    return YamlSource(file, parsed.data, SourceText(text, Path(file), parsed.place))


def _join_surrogates(found: re.Match[str]) -> str:
    """A character that JSON wrote as two escapes, as YAML writes it."""
    high, low = int(f"d{found[1]}", 16), int(f"d{found[2]}", 16)
    return f"\\U{0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00):08X}"


class _App:
    """One file on its way into the form."""

    def __init__(self, source: YamlSource) -> None:
        self._source = source
        data = as_mapping(source.data)
        self._app = as_mapping(data.get("app"))
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
        self._inputs = Names()

    def read(self) -> ImportedProject:
        if self._mode in _CHAT_MODES or self._mode == "completion":
            self._add_input("query", {"type": "string", "description": "What the user writes"}, ("sys", "query"))
        workflow = as_mapping(self._data.get("workflow"))
        if workflow:
            self._read_workflow(workflow)
        elif as_mapping(self._data.get("model_config")):
            self._read_basic(as_mapping(self._data["model_config"]))
        else:
            raise SourceError(f"{self._source.file}: there is neither a workflow nor a model_config")
        return self._project

    # --- Values of the app

    def _add_input(self, name: str, field: dict[str, Any], *known: tuple[str, str]) -> str:
        if any(key in self._values for key in known):
            return self._values[known[0]]
        id = self._inputs.id(name, "input")
        self._flow.inputs[id] = field
        for key in known:
            self._values[key] = f"inputs.{id}"
        return id

    def _read_variables(self, place: Place, path: tuple[str | int, ...]) -> None:
        """The variables of a start node."""
        for at, each in enumerate(map(as_mapping, as_rows(place.data.get("variables")))):
            self._read_variable(each, self._source.origin(*path, "data", "variables", at))

    def _read_variable(self, row: Mapping[str, Any], origin: SourcePlace) -> None:
        name = str(row.get("variable") or "")
        if not name:
            return
        kind = str(row.get("type") or "text-input")
        what = f"input '{name[:60]}'"
        if ("start", name) in self._values:
            self._ledger.changed(what, origin, "it is there twice; the first one counts")
            return
        if kind in {"external_data_tool", "api"}:
            self._ledger.lost(what, origin, "its value comes from a service of Dify", "give it as an input")
        field: dict[str, Any] = {"type": _INPUT_TYPES.get(kind, "string")}
        options = [str(each) for each in as_rows(row.get("options"))]
        default = row.get("default")
        if kind == "select" and options:
            field["enum"] = list(dict.fromkeys(options))
        if kind in {"file", "file-list"}:
            if not row.get("required"):
                field["default"] = None
        elif self._fits(default, field):
            field["default"] = default
        elif not row.get("required"):
            field["default"] = {"number": 0, "boolean": False, "object": {}}.get(field["type"], "")
            if "enum" in field and "" not in field["enum"]:
                field["enum"].append("")
        label = plain_words(row.get("label"), 200)
        if label and label != name:
            field["description"] = label
        id = self._add_input(name, field, ("start", name))
        if self._mode in _CHAT_MODES and name == "query":
            self._values["start", name] = "inputs.query"
        if kind == "file-list":
            self._values["start", name] = _listed(id, "default" in field)
            self._ledger.changed(what, origin, f"`{id}`: one file instead of a list of files")
        elif id == name:
            self._ledger.mapped(what, origin)
        else:
            self._ledger.changed(what, origin, f"it is called `{id}`")

    def _fits(self, default: Any, field: Mapping[str, Any]) -> bool:
        if default is None or (default == "" and field["type"] != "string"):
            return False
        if "enum" in field:
            return default in field["enum"]
        kinds: dict[str, Any] = {"string": str, "number": (int, float), "boolean": bool, "object": dict}
        return isinstance(default, kinds.get(field["type"], ())) and (default != "" or field["type"] == "string")

    def _read_environment(self, workflow: Mapping[str, Any]) -> None:
        for at, each in enumerate(map(as_mapping, as_rows(workflow.get("environment_variables")))):
            name, value = str(each.get("name") or ""), each.get("value")
            origin = self._source.origin("workflow", "environment_variables", at)
            what = f"environment variable '{name[:60]}'"
            if each.get("value_type") == "secret" or not isinstance(value, str | int | float | bool):
                variable = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_") or "SECRET"
                variable = variable if not variable[0].isdigit() else f"V_{variable}"
                self._values["env", name] = f'(env.{variable} | default(""))'
                self._project.settings.setdefault("allow_env", []).append(variable)
                self._project.environment[variable] = plain_words(each.get("description"), 200) or "a secret of the app"
                self._ledger.changed(what, origin, "it comes from the environment", f"set {variable}")
            else:
                self._constants[f"env.{name}"] = str(value)
                kind = "boolean" if isinstance(value, bool) else "string" if isinstance(value, str) else "number"
                id = self._add_input(name, {"type": kind, "default": value}, ("env", name))
                self._ledger.changed(what, origin, f"the input `{id}` with its value as the default")

    def _read_conversation(self, workflow: Mapping[str, Any]) -> None:
        states = Names()
        for at, each in enumerate(map(as_mapping, as_rows(workflow.get("conversation_variables")))):
            name, kind = str(each.get("name") or ""), str(each.get("value_type") or "string")
            origin = self._source.origin("workflow", "conversation_variables", at)
            id = states.id(name, "variable")
            state: dict[str, Any] = {"type": "array" if kind.startswith("array") else _STATE_TYPES.get(kind, "string")}
            empty: dict[str, Any] = {"array": [], "number": 0, "boolean": False, "object": {}}
            given = each.get("value")
            fits = self._fits(given, state) or (state["type"] == "array" and isinstance(given, list))
            state["default"] = given if fits else empty.get(state["type"], "")
            state["merge"] = "replace"
            self._flow.shared_state[id] = state
            self._values["conversation", name] = f"shared_state.{id}"
            self._ledger.changed(
                f"conversation variable '{name[:60]}'",
                origin,
                f"the state `{id}`, which lasts for one run",
                "hand its value to the next run of the conversation, where that is wanted",
            )

    def _read_features(self, features: Mapping[str, Any], *path: str) -> None:
        for key, (what, by_hand) in _FEATURES.items():
            given = features.get(key)
            is_on = as_mapping(given).get("enabled") if isinstance(given, Mapping) else given
            if is_on:
                self._ledger.lost(what, self._source.origin(*path, key), "a flow has no page of its own", by_hand)

    # --- Workflows

    def _read_workflow(self, workflow: Mapping[str, Any]) -> None:
        graph = self._read_graph(as_mapping(workflow.get("graph")))
        self._read_environment(workflow)
        self._read_conversation(workflow)
        text = json.dumps(self._data.get("workflow"), ensure_ascii=False, default=str)
        if "sys.files" in text or '["sys", "files"]' in text or '"vision": {' in text and self._mode in _CHAT_MODES and '"enabled": true' in text:
            self._add_input("files", {"type": "file", "default": None, "description": "A file of the user"}, ("sys", "files"))
            self._values["sys", "files"] = _listed("files", True)
        for name, (id, kind, default) in _SYSTEM.items():
            if f"sys.{name}" in text or f'"sys", "{name}"' in text:
                self._add_input(id, {"type": kind, "default": default}, ("sys", name))
        self._values["sys", "workflow_run_id"] = "run.id"
        parts = NodeConverters(
            self._project, self._flow, graph, self._names, self._values, self._constants, self._mode in _CHAT_MODES
        )
        _Writer(parts, self._ledger, self._source).write()
        self._read_features(as_mapping(workflow.get("features")), "workflow", "features")
        for edge in graph.dropped:
            one, other = graph.places.get(edge.source), graph.places.get(edge.target)
            if one is not None and other is not None:
                self._ledger.lost(
                    f"edge from '{one.title}' to '{other.title}'", edge.origin, "it leads back or to another level", "use a loop"
                )
        parts.carry_steps(_load_steps)

    def _read_graph(self, graph: Mapping[str, Any]) -> Graph:
        rows = as_rows(graph.get("nodes"))
        if len(rows) > _MOST_NODES:
            raise SourceError(f"{self._source.file}: the graph has more than {_MOST_NODES} nodes")
        places: dict[str, Place] = {}
        notes: list[str] = []
        for at, row in enumerate(map(as_mapping, rows)):
            data = as_mapping(row.get("data"))
            kind, id = str(data.get("type") or ""), str(row.get("id") or "")
            origin = self._source.origin("workflow", "graph", "nodes", at)
            if kind in {"", "custom-note"} or row.get("type") == "custom-note":
                notes.append(_note_text(data.get("text")))
                self._ledger.mapped("note", origin, "a line of `x-notes`")
            elif id in places:
                self._ledger.lost(f"node '{id[:60]}'", origin, "another node has the same id", "give it another id")
            elif id:
                parent = row.get("parentId") or data.get("iteration_id") or data.get("loop_id")
                places[id] = Place(id, kind, data, origin, str(parent) if parent else None)
                if kind == "start":
                    self._read_variables(places[id], ("workflow", "graph", "nodes", at))
        if any(notes):
            self._flow.keys["x-notes"] = [each for each in notes if each]
        _mend_parents(places)
        edges = [
            GraphEdge(
                str(each.get("source")),
                str(each.get("target")),
                plain_handle(each.get("sourceHandle")),
                self._source.origin("workflow", "graph", "edges", at),
            )
            for at, each in enumerate(map(as_mapping, as_rows(graph.get("edges"))))
        ]
        return Graph(places, edges)

    # --- Basic apps

    def _read_basic(self, config: Mapping[str, Any]) -> None:
        origin = self._source.origin("model_config")
        for at, each in enumerate(map(as_mapping, as_rows(config.get("user_input_form")))):
            for kind, row in each.items():
                self._read_variable({"type": kind, **as_mapping(row)}, self._source.origin("model_config", "user_input_form", at))
        parts = NodeConverters(
            self._project, self._flow, Graph({}, []), self._names, self._values, self._constants, self._mode in _CHAT_MODES
        )
        step = FlowStep(self._names.id("answer"), "agent", origin)
        parts.set_model(step, as_mapping(config.get("model")))
        written = config.get("pre_prompt")
        if config.get("prompt_type") == "advanced":
            chat = as_mapping(config.get("chat_prompt_config"))
            written = "\n\n".join(str(as_mapping(each).get("text") or "") for each in as_rows(chat.get("prompt")))
            parts.note("the messages of the prompt are one text")
        step.instructions = self._simple_text(str(written or "")).strip() or None
        step.prompt = "{{ inputs.query }}"
        if self._mode == "completion" and "query" not in str(config.get("user_input_form")):
            self._flow.inputs.pop("query", None)
            step.prompt, step.instructions = step.instructions or "Answer.", None
        mode = as_mapping(config.get("agent_mode"))
        if mode.get("enabled"):
            tools = [as_mapping(each) for each in as_rows(mode.get("tools"))]
            parts.add_tools(step, [each for each in tools if each.get("enabled", True) and "dataset" not in each], origin)
        sets = [each for each in as_rows(as_mapping(as_mapping(config.get("dataset_configs")).get("datasets")).get("datasets"))]
        if sets:
            step.keys["context"] = [{"retrieval": {"documents": "knowledge", "max_results": 4}}]
            self._project.files.append(CarriedFile("knowledge/README.md", "Put the documents of the knowledge base here.\n"))
            self._ledger.changed(
                "knowledge bases", self._source.origin("model_config", "dataset_configs"), "the texts of the folder knowledge", "put the documents there"
            )
        upload = as_mapping(as_mapping(config.get("file_upload")).get("image"))
        if upload.get("enabled"):
            self._add_input("files", {"type": "file", "default": None, "description": "A file of the user"}, ("sys", "files"))
            step.keys["attach"] = ["{{ inputs.files }}"]
        self._flow.steps.append(step)
        self._flow.outputs["answer"] = f"{{{{ nodes.{step.id}.output }}}}"
        what = f"app '{plain_words(self._app.get('name'), 60)}'"
        if parts.notes:
            self._ledger.changed(what, origin, "; ".join(parts.notes))
        else:
            self._ledger.mapped(what, origin, f"the agent `{step.id}`")
        self._read_features(config, "model_config")
        parts.carry_steps(_load_steps)

    def _simple_text(self, text: str) -> str:
        """A prompt whose variables stand in plain braces."""
        parts = re.split(r"\{\{([^{}#]{1,100})\}\}", text)
        found: list[str] = []
        for at, each in enumerate(parts):
            expression = self._values.get(("start", each.strip())) if at % 2 else None
            if expression is not None:
                found.append(f"{{{{ {expression} }}}}")
            else:
                found.append(re.sub(r"\{(?=[{%#]|\Z)", '{{ "{" }}', f"{{{{{each}}}}}" if at % 2 else each))
        return "".join(found)


def _listed(id: str, is_optional: bool) -> str:
    return f"([inputs.{id}] if inputs.{id} is not none else [])" if is_optional else f"[inputs.{id}]"


def _name_of(place: Place) -> str:
    """What a node is called: by its title, or by its type where the title has few letters of ASCII."""
    title = str(place.data.get("title") or "")
    letters = [each for each in title if each.isalpha()]
    is_readable = bool(letters) and sum(each.isascii() for each in letters) * 2 >= len(letters)
    return title if is_readable else place.type.replace("-", "_") or "node"


def _load_steps() -> str:
    return package_files("flowengine.importers.dify").joinpath("carried_steps.py").read_text("utf-8")


def _note_text(text: object) -> str:
    """The words of a note, which is a tree of an editor."""
    found: list[str] = []

    def walk(value: Any, depth: int) -> None:
        if depth > 40 or len(found) > 500:
            return
        if isinstance(value, dict):
            if isinstance(value.get("text"), str):
                found.append(value["text"])
            for each in value.get("children") or [value.get("root")]:
                walk(each, depth + 1)

    try:
        walk(json.loads(str(text)), 0)
    except (ValueError, RecursionError, TypeError):
        found.append(str(text or ""))
    return plain_words(" ".join(found), 2000)


def _mend_parents(places: dict[str, Place]) -> None:
    """Take nodes out of containers that are none, or that contain themselves."""
    for place in places.values():
        seen = {place.source}
        at = place.parent
        while at is not None:
            parent = places.get(at)
            if parent is None or at in seen or parent.type not in {"iteration", "loop"}:
                place.parent = None
                break
            seen.add(at)
            at = parent.parent


class _Writer:
    """Writes the levels of a graph as steps."""

    def __init__(self, parts: NodeConverters, ledger: ImportLedger, source: YamlSource) -> None:
        self._parts = parts
        self._graph = parts.graph
        self._ledger = ledger
        self._source = source
        self._steps: dict[str, FlowStep] = {}
        self._told: dict[str, tuple[list[str], str, str]] = {}
        """Node → changes, why it is lost, what is to do by hand."""
        self._starts: dict[str, FlowStep] = {}
        """Loop → the step that sets its variables."""

    def write(self) -> None:
        graph, parts = self._graph, self._parts
        for place in graph.places.values():
            if not place.is_start and place.type != "end" and graph.runs(place) and self._parent_runs(place):
                place.id = parts.names.id(_name_of(place), "node")
        for place in graph.places.values():
            if place.type == "iteration" and place.id:
                parts.item_names[place.source] = parts.names.id(f"{place.id}_item")
            if place.type == "loop" and place.id:
                self._declare_loop(place)
        parts.flow.steps = self._level(None)
        self._write_outputs()
        for place in graph.places.values():
            self._tell(place)
        if not parts.flow.steps:
            step = FlowStep(parts.names.id("done"), "function")
            parts.give(step, "done")
            parts.flow.steps.append(step)

    def _parent_runs(self, place: Place) -> bool:
        return all(self._graph.runs(self._graph.places[each]) for each in self._graph.containers_of(place))

    def _level(self, parent: str | None) -> list[FlowStep]:
        found: list[FlowStep] = []
        places = [each for each in self._graph.level(parent) if each.id]
        for place in places:
            self._parts.by_hand = ""
            step, why = self._parts.convert(place)
            self._steps[place.source] = step
            step.origin = place.origin
            if (title := plain_words(place.title, 120)) and title != place.id and title != place.source:
                step.keys["description"] = title
            self._told[place.source] = (list(self._parts.notes), why, self._parts.by_hand)
            if place.type in {"iteration", "loop"} and not why:
                step.body = self._level(place.source)
                found += self._finish_container(place, step)
            found.append(step)
        for place in places:
            self._connect(place, self._steps[place.source])
        return found

    # --- Containers

    def _finish_container(self, place: Place, step: FlowStep) -> list[FlowStep]:
        """What a container needs beside its body; the steps that stand before it."""
        inside = [each for each in self._graph.level(place.source) if each.id]
        notes, _, by_hand = self._told[place.source]
        if not step.body:
            filler = FlowStep(self._parts.names.id(f"{place.id}_step"), "function")
            self._parts.give(filler, "done")
            step.body.append(filler)
        if place.type == "iteration":
            self._finish_iteration(place, step, inside, notes)
            return []
        tests = []
        for each in map(as_mapping, as_rows(place.data.get("break_conditions"))):
            end = inside[-1] if inside else place
            try:
                tests.append(self._parts.selectors.compare(each, end))
            except UnknownValueError as error:
                notes.append(f"a condition to end the loop is left out: {error}")
        word = " or " if str(place.data.get("logical_operator")) == "or" else " and "
        found = [word.join(f"({each})" for each in tests) if len(tests) > 1 else each for each in tests[:1]]
        found += [f'nodes.{each.id}.status == "succeeded"' for each in inside if each.type == "loop-end"]
        if found:
            step.keys["until"] = found[0] if len(found) == 1 else " or ".join(f"({each})" for each in found)
        self._told[place.source] = (notes, "", by_hand)
        return self._start_loop(place, step)

    def _finish_iteration(self, place: Place, step: FlowStep, inside: list[Place], notes: list[str]) -> None:
        selector = words_of(place.data.get("output_selector"))
        end = Place("\0end", "end", {}, place.origin, place.source)
        end.edges = [GraphEdge(each.source, end.source, "", place.origin) for each in inside]
        try:
            inner = self._graph.places.get(selector[0]) if selector else None
            if inner is None or inner.parent != place.source or not inner.id:
                raise UnknownValueError("what each item gives")
            value = self._parts.outputs(inner, selector[1:])
            if not self._graph.is_certain(inner):
                value = value._replace(absent_without=inner.id)
            step.keys["result"] = value.printed
        except (UnknownValueError, IndexError):
            notes.append("each item gives nothing, since the output of the iteration is not known")
            step.keys["result"] = ""

    def _declare_loop(self, place: Place) -> None:
        for each in map(as_mapping, as_rows(place.data.get("loop_variables"))):
            name, kind = str(each.get("label") or each.get("variable") or ""), str(each.get("var_type") or "string")
            key = self._parts.names.id(f"{place.id}_{name}")
            self._parts.flow.shared_state[key] = {
                "type": "array" if kind.startswith("array") else _STATE_TYPES.get(kind, "string"),
                "merge": "replace",
            }
            self._parts.loop_states[place.source, name] = key

    def _start_loop(self, place: Place, step: FlowStep) -> list[FlowStep]:
        """The step that sets a loop's variables."""
        given: dict[str, Any] = {}
        for each in map(as_mapping, as_rows(place.data.get("loop_variables"))):
            key = self._parts.loop_states[place.source, str(each.get("label") or each.get("variable") or "")]
            raw = each.get("value")
            if each.get("value_type") == "variable":
                given[key] = self._parts.known(words_of(raw), place)
            else:
                given[key] = _constant(raw, str(self._parts.flow.shared_state[key]["type"]))
        if not given:
            return []
        first = FlowStep(self._parts.names.id(f"{place.id}_start"), "function", place.origin)
        self._parts.give(first, given)
        first.keys["set"] = {key: f"{{{{ output.{key} }}}}" for key in given}
        self._starts[place.source] = first
        return [first]

    # --- Edges

    def _connect(self, place: Place, step: FlowStep) -> None:
        """Say under which conditions a node runs."""
        entry = self._starts.get(place.source, step)
        if entry is not step:
            step.needs = [entry.id]
        live = [each for each in place.edges if self._runs(each.source)]
        if not live or any(self._graph.places[each.source].is_start for each in live):
            return
        references = {self._graph.places[each].id for each in self._parts.selectors.references.get(place.source, ())}
        routes = [each for each in live if each.handle]
        plain = [each for each in live if not each.handle]
        if not plain and all(self._is_only_target(each) for each in routes):
            for each in routes:
                self._lead(each, entry.id)
            return
        sources = list(dict.fromkeys(self._graph.places[each.source].id for each in live))
        entry.needs = [*entry.needs, *(each for each in sources if entry is not step or each not in references)]
        if routes or (not self._graph.is_certain(place) and references - set(sources)):
            tests = list(dict.fromkeys(self._taken(each) for each in live))
            entry.when = tests[0] if len(tests) == 1 else " or ".join(f"({each})" if " or " in each else each for each in tests)

    def _runs(self, source: str) -> bool:
        place = self._graph.places[source]
        return self._graph.runs(place) and (place.is_start or bool(place.id))

    def _is_only_target(self, edge: GraphEdge) -> bool:
        same = [each for each in self._graph.targets.get(edge.source, []) if each.handle == edge.handle]
        is_end = self._graph.places[edge.target].type == "end"
        return len([each for each in same if self._graph.places[each.target].id]) == 1 and not is_end

    def _lead(self, edge: GraphEdge, target: str) -> None:
        """Make a label of a node lead to a target."""
        place = self._graph.places[edge.source]
        step = self._steps[edge.source]
        label = self._parts.labels(place).get(edge.handle)
        if step.kind == "condition" and label is not None:
            if "if" in step.keys or label == "else":
                step.keys[label] = target
            else:
                next(each for each in step.keys["cases"] if each["label"] == label)["then"] = target
        elif step.kind in {"routing", "approval"} and label is not None:
            step.keys["routes"][label]["to"] = target
        elif edge.handle == "fail-branch":
            step.keys["on_error"] = {"then": target}

    def _taken(self, edge: GraphEdge) -> str:
        """The expression that says whether an edge was taken."""
        place = self._graph.places[edge.source]
        label = self._parts.labels(place).get(edge.handle) if edge.handle else None
        if label is not None and self._steps[edge.source].kind in {"condition", "routing", "approval"}:
            return self._parts.test_of(place, label)
        if edge.handle == "fail-branch":
            self._steps[edge.source].keys.setdefault("on_error", "skip")
            return f'nodes.{place.id}.status != "succeeded"'
        return f'nodes.{place.id}.status == "succeeded"'

    # --- What a run gives

    def _write_outputs(self) -> None:
        graph, flow, parts = self._graph, self._parts.flow, self._parts
        answers = [each for each in graph.level(None) if each.type == "answer" and each.id]
        if answers:
            values = [Value(f"nodes.{each.id}.output", None if graph.is_certain(each) else each.id) for each in answers]
            flow.outputs["answer"] = "".join(each.printed for each in values)
        ends = [each for each in graph.level(None) if each.type == "end"]
        found: dict[str, list[tuple[str, str]]] = {}
        outputs = Names()
        ids: dict[str, str] = {}
        for place in ends:
            parts.notes = []
            taken = " or ".join(dict.fromkeys(self._taken(each) for each in place.edges if self._runs(each.source) and not graph.places[each.source].is_start))
            for each in map(as_mapping, as_rows(place.data.get("outputs"))):
                name = str(each.get("variable") or "")
                try:
                    value = parts.selectors.find(words_of(each.get("value_selector")), place)
                except UnknownValueError as error:
                    parts.note(f"the output '{name[:40]}' is left out: {error}")
                    continue
                ids.setdefault(name, outputs.id(name, "output"))
                if ids[name] != name:
                    parts.note(f"the output '{name[:40]}' is called `{ids[name]}`")
                found.setdefault(ids[name], []).append((value.with_default(), taken))
            self._told[place.source] = (parts.notes, "", "")
        for id, rows in found.items():
            if len(rows) == 1 and (len(ends) == 1 or not rows[0][1]):
                flow.outputs[id] = f"{{{{ {rows[0][0]} }}}}"
            else:
                text = "none"
                for expression, taken in reversed(rows):
                    text = f"{expression} if {taken or 'true'} else ({text})" if text != "none" else f"{expression} if {taken or 'true'} else none"
                flow.outputs[id] = f"{{{{ {text} }}}}"

    def _tell(self, place: Place) -> None:
        ledger = self._ledger
        what = f"{place.type or 'node'} '{plain_words(place.title, 60)}'"
        if place.is_start:
            if place.type.startswith("trigger-"):
                ledger.lost(what, place.origin, "a trigger starts a run", "use a webhook or a schedule of the project file")
            elif place.type == "start":
                ledger.mapped(what, place.origin, "the inputs of the flow")
            return
        if not place.id and place.type != "end" or not self._graph.runs(place):
            ledger.changed(what, place.origin, "left out, since nothing leads to it")
            return
        notes, why, by_hand = self._told.get(place.source, ([], "", ""))
        if place.type == "answer" and place.parent is not None:
            notes = [*notes, "its text is the step's output, and no part of the answer while the iteration is at work"]
        if why:
            ledger.lost(what, place.origin, f"it needs {why}" if not why.startswith("there is") else why, f"write the function of the step `{place.id}` in stubs.py")
        elif notes or by_hand:
            ledger.changed(what, place.origin, "; ".join(notes) or f"the step `{place.id}`", by_hand)
        else:
            ledger.mapped(what, place.origin, f"the step `{place.id}`" if place.id else "outputs of the flow")


def _constant(raw: Any, kind: str) -> Any:
    """A constant of a loop's variable, which the editor may have written as text."""
    if isinstance(raw, str) and kind != "string":
        try:
            raw = json.loads(raw)
        except (ValueError, RecursionError):
            raw = {"number": 0, "boolean": False, "array": [], "object": {}}.get(kind, "")
    if isinstance(raw, str):
        return f"{{{{ {quote(raw)} }}}}" if "{" in raw else raw
    return raw if raw is not None else {"number": 0, "boolean": False, "array": [], "object": {}}.get(kind, "")
