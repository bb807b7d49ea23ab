"""Makes the steps of Prompt flow's nodes: one for each node, and one more where its template is rendered by code."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from flowengine.core import is_map
from flowengine.importers.carried_code import argument_name
from flowengine.importers.flow_text import quote_value, to_tag
from flowengine.importers.form import Element, FlowStep, ImportLedger, Outcome, SourcePlace, Stub
from flowengine.importers.jinja_text import convert, rendering_module
from flowengine.importers.option_values import drop_refused
from flowengine.importers.prompt_flow.dag_rows import RowReader
from flowengine.importers.prompt_flow.dag_values import (
    SETTINGS,
    NodeReference,
    RoleText,
    is_json_format,
    read_reference,
    read_setting,
    split_roles,
    to_value,
)
from flowengine.importers.prompt_flow.promptflow_stand_in import EMBEDDING, EMBEDDING_MODULE
from flowengine.importers.python_code import is_standard
from flowengine.importers.source_tree import SourceError, as_map

_LLM_TOOLS: Final = re.compile(
    r"promptflow\.tools\.(aoai_gpt4v\.AzureOpenAI|openai_gpt4v\.OpenAI|aoai\.AzureOpenAI|openai\.OpenAI)\.(chat|completion)"
)
_EMBEDDING: Final = "promptflow.tools.embedding.embedding"
_IMAGE: Final = re.compile(r"!\[image\]\(\s*\{\{-?\s*(\w+)\s*-?\}\}\s*\)")
_READ: Final = frozenset({"name", "type", "source", "inputs", "activate", "aggregation", "reduce", "use_variants"})
_MODEL_KEYS: Final = frozenset({"connection", "provider", "module", "api"})
_OTHER_KEYS: Final[Mapping[str, tuple[Outcome, str]]] = {
    "comment": ("mapped", "a note"),
    "description": ("mapped", "a note"),
    **dict.fromkeys(_MODEL_KEYS, ("changed", "the stub's model is its own matter")),
    "enable_cache": ("changed", "`cache: true` would do it"),
}
_ENVIRONMENT: Final = "key and address are the environment's"
_NO_SETTINGS: Final = ("connection", "api", "prompt")
Expression = Callable[[NodeReference], str]
Path = tuple[str | int, ...]


class NodeReader:
    """Reads the nodes of one flow file."""

    def __init__(self, reader: RowReader, ledger: ImportLedger) -> None:
        self._reader = reader
        self._ledger = ledger
        self._project = reader.project

    def read(self, node: Mapping[str, Any], path: Path, expression: Expression, sources: set[str]) -> list[FlowStep]:
        """The steps of a node; what of it is lost is told."""
        name = str(node.get("name"))
        self._node, self._path, self._what = node, path, f"node {name}"
        self._expression, self._sources = expression, sources
        self._inputs = as_map(node.get("inputs"))
        self._where = as_map(node.get("source"))
        step = FlowStep(self._reader.ids[name], origin=self._origin())
        before: list[FlowStep] = []
        kind, tool = str(node.get("type")), str(self._where.get("tool", ""))
        if kind == "llm" or (kind in ("custom_llm", "python") and _LLM_TOOLS.fullmatch(tool)):
            before = self._read_llm(step)
        elif kind == "prompt":
            before = self._read_prompt(step)
        elif kind == "python" and self._where.get("type", "code") == "code":
            self._read_python(step)
        elif self._read_embedding(step, tool) or (kind == "python" and self._read_package(step, tool)):
            pass
        else:
            why = f"'{tool}' is a tool of a package" if tool else f"nodes of the type '{kind}' have no counterpart"
            self._add_stub(step, why, self._origin())
        self._read_activate(step)
        if node.get("aggregation") or node.get("reduce"):
            origin = self._origin("aggregation")
            self._ledger.note_changed(f"{self._what}: aggregation", origin, "it runs in the flow over all rows")
        read = _READ | _MODEL_KEYS if step.kind == "agent" else _READ
        for key in (each for each in node if each not in read):
            self._tell_other(key)
        for each in before:
            each.when, each.needs = step.when, list(step.needs)
        return [*before, step]

    def _origin(self, *path: str | int) -> SourcePlace:
        return self._reader.source.origin(*self._path, *path)

    def _tell_other(self, key: str) -> None:
        what, origin = f"{self._what}: {key}", self._origin(key)
        if key in _OTHER_KEYS:
            outcome, note = _OTHER_KEYS[key]
            self._ledger.elements.append(Element(what, origin, outcome, note))
        else:
            self._ledger.note_lost(what, origin, "this key is not known", "see whether the node needs it")

    # --- llm

    def _read_llm(self, step: FlowStep) -> list[FlowStep]:
        text = self._read_template(step)
        if text is None:
            self._read_model(step)
            return []
        bare = text.replace(" ", "")
        variables = {
            key: value
            for key, value in self._inputs.items()
            if key not in _NO_SETTINGS and (key not in SETTINGS or f"{{{{{key}" in bare)
        }
        names = dict.fromkeys(_IMAGE.findall(text))
        images = [each for each in names if read_reference(variables.get(each)) is not None]
        if images:
            text = _IMAGE.sub(lambda match: "" if match[1] in images else match[0], text)
            step.keys["attach"] = [to_tag(self._to_expression(variables[each])) for each in images]
        before, template = self._convert(step, text, {key: variables[key] for key in variables if key not in images})
        api = str(self._node.get("api") or self._inputs.get("api") or "chat")
        roles = split_roles(template) if api == "chat" and not before else RoleText("", template)
        step.system_message, step.prompt = roles.system or None, roles.prompt
        changes = [roles.change] if roles.change else []
        if api == "completion":
            changes.append("a chat model is asked, with the prompt as the user's message")
        if before:
            changes.append(f"its template is rendered by code, in '{before[0].id}'")
        self._tell_node("; ".join(changes))
        self._tell_variables(variables)
        self._read_model(step)
        return before

    def _tell_node(self, change: str) -> None:
        self._ledger.note_done(self._what, self._origin(), change)

    def _tell_input(self, key: str, outcome: Outcome, note: str = "", by_hand: str = "") -> None:
        what, origin = f"{self._what}: input {key}", self._origin("inputs", key)
        self._ledger.elements.append(Element(what, origin, outcome, note, by_hand))

    def _tell_variables(self, variables: Mapping[str, Any]) -> None:
        for key, value in variables.items():
            reference = read_reference(value)
            if reference is not None and reference.source != "inputs" and reference.source not in self._sources:
                why = f"there is no node '{reference.source}'"
                self._tell_input(key, "lost", why, "say where it comes from")
            else:
                self._tell_input(key, "mapped")

    def _read_template(self, step: FlowStep) -> str | None:
        template_path = self._where.get("path") or self._inputs.get("prompt")
        name = PurePosixPath(str(template_path).replace("\\", "/")).as_posix().removeprefix("./")
        try:
            path = self._reader.paths.get(name) or self._reader.tree.join(self._reader.base, name)
            return self._reader.tree.read_text(path)
        except SourceError as error:
            why = f"its template is missing: {error}"
            self._ledger.note_lost(self._what, self._origin("source"), why, "write the prompt")
            step.prompt = f"The prompt of the node {step.id} was not there to import."
            for key in (each for each in self._inputs if each not in SETTINGS):
                self._tell_input(key, "lost", "its template is missing", "write it into the prompt")
            return None

    def _convert(self, step: FlowStep, text: str, variables: Mapping[str, Any]) -> tuple[list[FlowStep], str]:
        """The template of ours; where there is none, a step before that renders it."""
        names = {key: self._to_expression(value) for key, value in variables.items()}
        bracketed = {key: f"({each})" if "|" in each else each for key, each in names.items()}
        converted = convert(text, bracketed, trim_blocks=True)
        if not converted.problem:
            return [], converted.text
        file = f"{step.id}.jinja2"
        self._reader.templates[f"templates/{file}"] = text
        module = rendering_module("trim_blocks=True, keep_trailing_newline=True")
        self._project.carry("imported_templates.py", module)
        values = {key: to_value(value, self._expression) for key, value in variables.items()}
        id = self._reader.names.id(f"{step.id}_text")
        rendering = FlowStep(id, "function", step.origin, call="imported_templates:render")
        rendering.arguments = {"template": file, "values": values}
        return [rendering], to_tag(f"nodes.{rendering.id}.output")

    def _to_expression(self, value: Any) -> str:
        reference = read_reference(value)
        return self._expression(reference) if reference is not None else quote_value(value)

    def _read_model(self, step: FlowStep) -> None:
        deployment, model = (str(self._inputs.get(key) or "") for key in ("deployment_name", "model"))
        provider = str(self._node.get("provider") or self._where.get("tool") or "")
        # A deployment is Azure's: of both, the one that was left over is the other vendor's.
        is_azure = "Azure" in provider or "aoai" in provider or (bool(deployment) and "OpenAI" not in provider)
        model_name = (deployment or model) if is_azure else (model or deployment)
        if model_name and re.fullmatch(r"[\w./:@-]+", model_name):
            step.model = f"azure/{model_name}" if is_azure and deployment else f"openai/{model_name}"
            vendor = "AZURE_OPENAI" if is_azure else "OPENAI"
            self._project.environment[f"{vendor}_API_KEY"] = "the key of the models"
            if is_azure:
                self._project.environment["AZURE_OPENAI_ENDPOINT"] = "the address of the models"
        step.keys.setdefault("temperature", 1.0)
        description = f"model {step.model}" if step.model else ""
        for key in sorted(_MODEL_KEYS & self._node.keys()):
            change = _ENVIRONMENT if key == "connection" else ""
            self._ledger.note_done(
                f"{self._what}: {key}", self._origin(key), change, note=description or "the default model"
            )
        for key, value in self._inputs.items():
            what, origin = f"{self._what}: {key}", self._origin("inputs", key)
            if key in ("deployment_name", "model") and value and not description:
                why, by_hand = f"no model is called {value!r:.60}: the default model is asked", "name the model"
                self._ledger.note_lost(what, origin, why, by_hand)
            elif key in ("deployment_name", "model") and value and value != model_name:
                by_hand = f"see that the node is to ask {step.model}, and not {value!r:.60}"
                self._ledger.note_changed(what, origin, f"left out: {step.model} is asked", by_hand)
            elif key in ("deployment_name", "model"):
                self._ledger.note_mapped(what, origin, description or "none is named: the default model is asked")
            elif key in _NO_SETTINGS:
                self._ledger.note_changed(what, origin, _ENVIRONMENT if key == "connection" else "it is known")
            elif key in SETTINGS:
                self._read_setting(step, key, value)

    def _read_setting(self, step: FlowStep, key: str, value: Any) -> None:
        what, origin = f"{self._what}: {key}", self._origin("inputs", key)
        if key == "response_format" and is_json_format(value):
            step.keys["output"] = {"type": "object"}
            self._ledger.note_changed(what, origin, "the answer is an object, which is handed on as JSON text")
        elif read_reference(value) is not None:
            self._ledger.note_lost(what, origin, "a setting cannot come from a value of the run", "write a value")
        else:
            setting = read_setting(key, value)
            if setting.problem:
                self._ledger.note_lost(what, origin, setting.problem, "see whether the node needs it")
                return
            options = {**step.keys.get("model_options", {}), **setting.keys.pop("model_options", {})}
            step.keys |= setting.keys | ({"model_options": options} if options else {})
            refusals = "; ".join(drop_refused(step.model, step.keys))
            self._ledger.note_done(what, origin, refusals, note="" if setting.keys or options else "what holds anyway")

    # --- prompt and python

    def _read_prompt(self, step: FlowStep) -> list[FlowStep]:
        text = self._read_template(step)
        if text is None:
            step.give(step.prompt)
            step.prompt = None
            return []
        before, template = self._convert(step, text, self._inputs)
        step.give(template)
        self._tell_node("a function gives the text of its template")
        self._tell_variables(self._inputs)
        return before

    def _read_python(self, step: FlowStep) -> None:
        step.kind = "function"
        path = PurePosixPath(str(self._where.get("path", "")).replace("\\", "/")).as_posix()
        name = path.removeprefix("./")
        function = self._reader.code.function(name)
        if isinstance(function, str):
            self._add_stub(step, function, self._origin("source"), *self._reader.code.stub_of(name))
            return
        step.call = function.call
        takes_any = "**" in function.parameters
        arguments = {key: value for key, value in self._inputs.items() if takes_any or key in function.parameters}
        step.arguments = self._arguments(step, arguments)
        step.arguments |= {argument_name(key): None for key in sorted(function.required - arguments.keys())}
        changes = [f"it needs {', '.join(function.needs)} to be installed"] if function.needs else []
        if function.asks_models:
            changes.append("it asks a model by itself: no journal and no limit knows of such a call")
        self._tell_node("; ".join(changes))
        self._tell_variables({key: value for key, value in arguments.items() if key not in function.connections})
        for key in (each for each in arguments if each in function.connections):
            prefix = re.sub(r"[^A-Za-z0-9]+", "_", str(self._inputs[key])).upper()
            self._project.environment[f"{prefix}_API_KEY"] = (
                f"the key of the connection '{self._inputs[key]}'; {prefix}_… for its other values"
            )
            change = f"the connection's values are the environment's: {prefix}_API_KEY …"
            self._tell_input(key, "changed", change)
        for key in (each for each in self._inputs if each not in arguments):
            self._tell_input(key, "changed", "left out: the function does not take it")
        for key in sorted(function.required - arguments.keys()):
            self._ledger.note_changed(f"{self._what}: argument {key}", self._origin(), "nothing gives it: it is none")

    def _arguments(self, step: FlowStep, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call, whose keys come from the environment."""
        return {
            argument_name(key): self._project.hide_secret(key, value, step.id) or to_value(value, self._expression)
            for key, value in inputs.items()
        }

    def _read_embedding(self, step: FlowStep, tool: str) -> bool:
        """Tells whether it is promptflow's embedding, with its model and its text."""
        model = str(self._inputs.get("deployment_name") or self._inputs.get("model") or "")
        if not re.fullmatch(r"[\w.:-]+", model) or "input" not in self._inputs or tool != _EMBEDDING:
            return False
        self._project.carry("imported_embedding.py", EMBEDDING_MODULE)
        name = f"azure/{model}" if self._inputs.get("deployment_name") else f"openai/{model}"
        step.kind, step.call = "function", EMBEDDING
        step.arguments = {"text": to_value(self._inputs["input"], self._expression), "model": name}
        step.sample = [0.1, 0.2]
        self._tell_node(f"a function makes the vector, with {name}")
        for key in self._inputs:
            self._tell_input(key, "changed", _ENVIRONMENT if key == "connection" else "the model's name")
        return True

    def _read_package(self, step: FlowStep, tool: str) -> bool:
        """Tells whether the tool is a function of a package that can be called where that is installed."""
        parts = tool.split(".")
        is_function = len(parts) > 1 and all(_is_plain_name(each) for each in parts)
        if not is_function or parts[0] == "promptflow" or is_standard(parts[0]):
            return False
        if any(argument_name(key) != key or "connection" in key for key in self._inputs):
            return False
        step.kind = "function"
        step.call = self._reader.code.add_package_tool(parts, list(self._inputs))
        step.arguments = self._arguments(step, self._inputs)
        self._tell_node(f"it needs the package of {parts[0]} to be installed")
        self._tell_variables(self._inputs)
        return True

    def _add_stub(
        self, step: FlowStep, why: str, origin: SourcePlace, parameters: list[str] | None = None, original: str = ""
    ) -> None:
        step.kind = "function"
        step.call = f"imported_stubs:{step.id}"
        step.arguments = self._arguments(step, self._inputs)
        names = " ".join(parameters or ())
        if parameters is None or any(argument_name(key) != key or key not in names for key in self._inputs):
            parameters = list(step.arguments)
        self._project.add_stub(Stub(step.call, parameters, why, origin, original=original))
        self._ledger.note_lost(self._what, origin, why, f"write {step.id} in imported_stubs.py")
        for key in self._inputs:
            self._tell_input(key, "mapped", "an argument of the stub")

    def _read_activate(self, step: FlowStep) -> None:
        activate = self._node.get("activate")
        if not is_map(activate):
            return
        reference = read_reference(activate.get("when"))
        what, origin = f"{self._what}: activate", self._origin("activate")
        if reference is None or (reference.source != "inputs" and reference.source not in self._sources):
            self._ledger.note_lost(what, origin, f"it asks for {activate.get('when')!r:.100}", "write `when`")
            return
        value = self._expression(reference).removesuffix(" | default(none)")
        step.when = f"{value} == {quote_value(activate.get('is'))}"
        self._ledger.note_mapped(what, origin)


def _is_plain_name(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name) and not name[:1].isupper()
