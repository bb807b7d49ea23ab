"""Holds what the converters of one Dify app share: its graph, its values, and the project that is being made.

What a node gives is said here once (`outputs`), and so are the labels that a node can take.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files as package_files
from typing import Any, Final

from flowengine.importers.dify.graph_levels import DifyGraph, DifyNode
from flowengine.importers.dify.selectors import Selectors, UnknownValueError, Value, words_of
from flowengine.importers.flow_text import key_path, quote
from flowengine.importers.form import CarriedFile, FlowStep, ImportedFlow, ImportedProject, SourcePlace, Stub
from flowengine.importers.import_names import Names
from flowengine.importers.jinja_text import convert, rendering_module
from flowengine.importers.option_values import drop_refused, fits_option
from flowengine.importers.source_tree import as_list, as_map, as_maps

_VENDORS: Final = {
    **{each: each for each in ("openai", "anthropic", "google", "vertex_ai", "openrouter", "groq", "ollama")},
    **{each: each for each in ("deepseek", "moonshot", "bedrock", "cohere", "perplexity")},
    "gemini": "google",
    "azure_openai": "azure",
    "tongyi": "dashscope",
    "mistralai": "mistral",
    "nvidia": "nvidia_nim",
    "togetherai": "together_ai",
    "fireworks": "fireworks_ai",
    "x": "xai",
    "zhipuai": "zai",
}
_ADDRESSES: Final = {
    "siliconflow": "https://api.siliconflow.cn/v1",
    "volcengine_maas": "https://ark.cn-beijing.volces.com/api/v3",
    "yi": "https://api.lingyiwanwu.com/v1",
    "stepfun": "https://api.stepfun.com/v1",
    "baichuan": "https://api.baichuan-ai.com/v1",
}
SAMPLES: Final[dict[str, Any]] = {
    "number": 1,
    "boolean": True,
    "object": {},
    "array[string]": ["text"],
    "array[number]": [1],
    "array[object]": [],  # An object without the fields that a template reads would fail the test.
}
"""Answers of nodes in flow tests, by the type of the source."""
_LONGEST_LABEL: Final = 60
EMPTY: Final[Mapping[str, Any]] = {"number": 0, "boolean": False, "array": [], "object": {}}
"""Type of a state or an input → its value where none is given; a text's is empty."""
_OPTIONS: Final = ("temperature", "top_p", "presence_penalty", "frequency_penalty")


def state_type(kind: str) -> str:
    """The JSON type of a variable of the source."""
    return "array" if kind.startswith("array") else kind if kind in ("number", "boolean", "object") else "string"


@dataclass
class AppParts:
    """State shared by the converters of one app."""

    project: ImportedProject
    flow: ImportedFlow
    graph: DifyGraph
    names: Names
    values: dict[tuple[str, str], str]
    """The inputs, the state and the environment, by (scope, name of the source), as expressions."""
    constants: dict[str, str]
    """`env.NAME` → its value, of those that are no secrets."""
    is_chat: bool
    schemas: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, "Mapping[str, Any]"])
    item_names: dict[str, str] = field(default_factory=dict[str, str])
    loop_states: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    notes: list[str] = field(default_factory=list[str])
    by_hand: str = ""
    _labels: dict[str, dict[str, str]] = field(default_factory=dict[str, "dict[str, str]"])
    stub_names: Names = field(default_factory=Names)
    needs_steps: bool = False

    @cached_property
    def selectors(self) -> Selectors:
        return Selectors(self.graph, self.outputs, self.values, self.inside)

    # --- Values

    def note(self, change: str) -> None:
        """A change, told once."""
        if change not in self.notes:
            self.notes.append(change)

    def value(self, selector: Sequence[str], place: DifyNode) -> Value:
        """Returns the value of a selector at a node."""
        return self.selectors.find(selector, place)

    def to_template(self, selector: Sequence[str], place: DifyNode) -> str:
        """Returns a selector as a template; an unknown one is empty, and noted."""
        try:
            return self.value(selector, place).printed
        except UnknownValueError as error:
            self.note(f"empty instead of {error}")
            return ""

    def text(self, text: object, place: DifyNode | None, special: Mapping[str, str] | None = None) -> str:
        """A text of the source as a template."""
        template, unknown = self.selectors.convert_text(text, place, special)
        for each in unknown:
            self.note(f"empty instead of {each}")
        return template

    def jinja(self, text: str, variables: Sequence[Any], place: DifyNode, step: FlowStep | None = None) -> str:
        """A Jinja template of the source as one of ours; where ours cannot say it, by code that `step` calls."""
        values: dict[str, Value] = {}
        for each in map(as_map, variables):
            try:
                values[str(each.get("variable"))] = self.value(words_of(each.get("value_selector")), place)
            except UnknownValueError as error:
                self.note(f"empty instead of {error}")
        conversion = convert(text, {name: each.with_default() for name, each in values.items()})
        if not conversion.problem:
            return conversion.text
        if step is None:
            raise UnknownValueError(f"a template: {conversion.problem}")
        file = f"{place.id}.jinja"
        self.project.files.append(CarriedFile(f"templates/{file}", text))
        self.project.carry("rendering.py", rendering_module())
        step.call = "rendering:render"
        step.arguments = {"template": file, "values": {name: each.printed for name, each in values.items()}}
        step.sample = "A text."
        self.note(f"the template is rendered by code, since {conversion.problem}")
        return ""

    def outputs(self, place: DifyNode, fields: Sequence[str]) -> Value:
        """Returns a node's outputs under the source's names."""
        base = f"nodes.{place.id}.output"
        first, rest = fields[0], list(fields[1:])
        match place.type:
            case "llm" | "agent":
                return self._output_of_model(place, base, first, rest)
            case "template-transform" | "answer" | "document-extractor" | "iteration" | "knowledge-retrieval":
                return Value(key_path(base, rest))
            case "variable-aggregator" | "variable-assigner":
                grouped = as_map(place.data.get("advanced_settings")).get("group_enabled")
                return Value(key_path(base, [first, *rest] if grouped else rest))
            case "list-operator":
                if first in {"first_record", "last_record"}:
                    at = 0 if first == "first_record" else -1
                    return Value(key_path(f"(({base} | default([]))[{at}] | default(none))", rest))
                return Value(key_path(base, rest))
            case "question-classifier":
                labels = self.labels(place)
                names = {str(each.get("id")): str(each.get("name")) for each in as_maps(place.data.get("classes"))}
                if all(names.get(key, label).strip() == label for key, label in labels.items()):
                    return Value(f"{base}.next_route")
                pairs = ", ".join(f"{quote(label)}: {quote(names.get(key, label))}" for key, label in labels.items())
                return Value(f"({{ {pairs} }})[{base}.next_route]", is_plain=False)
            case "http-request":
                if first == "body":
                    return Value(f"({base}.body if {base}.body is string else {base}.body | tojson)", is_plain=False)
                if first in {"status_code", "headers"}:
                    return Value(key_path(f"{base}.{'status' if first == 'status_code' else first}", rest))
                raise UnknownValueError(f"the {first[:40]} of an answer")
            case "tool" if self._is_known_tool(place):
                if is_clock(place.data):
                    return Value(base)
                if first == "json":
                    return Value(key_path(f"[{base}.body]", rest), is_plain=False)
                return Value(f"({base}.body if {base}.body is string else {base}.body | tojson)", is_plain=False)
            case "human-input":
                return Value(f"{base}.choice" if first == "__action_id" else key_path(f"{base}.form", fields))
            case "loop":
                key = self.loop_states.get((place.source, first))
                if key is None:
                    raise UnknownValueError(f"the variable {first[:40]} of a loop")
                return Value(key_path(f"shared_state.{key}", rest))
            case "parameter-extractor" if first.startswith("__"):
                return Value('""' if first == "__reason" else "1")
            case _:
                return Value(key_path(base, self._check_fields(place, list(fields))))

    def _output_of_model(self, place: DifyNode, base: str, first: str, rest: list[str]) -> Value:
        is_structured = place.source in self.schemas
        if first == "structured_output" and is_structured:
            return Value(key_path(base, self._check_fields(place, rest)))
        if first in {"text", "output"}:
            return Value(f"({base} | tojson)", is_plain=False) if is_structured else Value(base)
        raise UnknownValueError(f"the {first[:40]} of a model's answer")

    def _check_fields(self, place: DifyNode, fields: list[str]) -> list[str]:
        """The fields, which must be in the shape of the output where that is known."""
        schema: Any = self.schemas.get(place.source)
        for each in fields:
            properties = as_map(as_map(schema).get("properties"))
            if not properties:
                break
            if each not in properties:
                raise UnknownValueError(f"the field {each[:40]}, which '{place.title}' does not give")
            schema = properties[each]
        return fields

    def _is_known_tool(self, place: DifyNode) -> bool:
        return is_clock(place.data) or (
            place.data.get("tool_name") in KNOWN_TOOLS
            and bool({"url", "query"} & as_map(place.data.get("tool_parameters")).keys())
        )

    def inside(self, container: DifyNode, place: DifyNode, fields: Sequence[str]) -> Value | None:
        """Returns the value of a name that only nodes inside an iteration or a loop see; None if it is no such name."""
        if container.type == "loop":
            key = self.loop_states.get((container.source, fields[0]))
            if key is not None:
                return Value(key_path(f"shared_state.{key}", fields[1:]))
            return Value("round.index") if fields[0] == "index" else None
        if fields[0] == "item":
            return Value(key_path(self.item_names[container.source], fields[1:]))
        nearest = next(iter(self.graph.containers_of(place)), None)
        return Value("each.index") if fields[0] == "index" and nearest == container.source else None

    # --- Choices

    def cases(self, place: DifyNode) -> list[Mapping[str, Any]]:
        """The cases of an if-else; older files have but one."""
        rows = as_maps(place.data.get("cases"))
        return rows or ([place.data] if as_list(place.data.get("conditions")) else [])

    def labels(self, place: DifyNode) -> dict[str, str]:
        """Handle of the source → label, for a node that chooses; empty for others."""
        if place.source not in self._labels:
            self._labels[place.source] = self._read_labels(place)
        return self._labels[place.source]

    def _read_labels(self, place: DifyNode) -> dict[str, str]:
        labels: dict[str, str] = {}
        match place.type:
            case "if-else":
                cases = self.cases(place)
                if len(cases) <= 1:
                    handle = str(cases[0].get("case_id") or cases[0].get("id") or "true") if cases else "true"
                    return {handle if cases and cases[0] is not place.data else "true": "then", "false": "else"}
                for at, each in enumerate(cases, 1):
                    handle = str(each.get("case_id") or each.get("id"))
                    # A handle that stands twice, or means the other way, is that of the first: none leads here.
                    labels[f"\0{at}" if handle in labels or handle in {"false", "None"} else handle] = f"case_{at}"
                return {**labels, "false": "else"}
            case "question-classifier":
                rows, word = as_maps(place.data.get("classes")), "class"
                names = [(str(each.get("id")), str(each.get("name") or "")) for each in rows]
            case "human-input":
                rows, word = as_maps(place.data.get("user_actions")), "action"
                names = [(id := str(each.get("id")), str(each.get("title") or id)[:_LONGEST_LABEL]) for each in rows]
                if any(edge.handle == "__timeout" for edge in self.graph.targets.get(place.source, [])):
                    names.append(("__timeout", "timeout"))
            case _:
                return {}
        other_labels: set[str] = set()
        for at, (id, name) in enumerate(names, 1):
            label = name.strip()
            is_fit = 0 < len(label) <= _LONGEST_LABEL and not set("\n{") & set(label)
            label = label if is_fit and label not in other_labels else f"{word}_{at}"
            while label in other_labels:
                label += "_2"
            labels[id] = label
            other_labels.add(label)
        return labels

    # --- State

    def state_key(self, selector: Sequence[str], place: DifyNode) -> str:
        """The key of the state that an assignment writes."""
        if len(selector) >= 2:
            if tuple(selector[:2]) in self.loop_states:
                return self.loop_states[selector[0], selector[1]]
            expression = self.values.get((selector[0], selector[1]), "")
            if expression.startswith("shared_state."):
                return expression.removeprefix("shared_state.")
        raise UnknownValueError(f"the variable {'.'.join(selector)[:80]}, which cannot be written")

    def empty_of_state(self, key: str) -> Any:
        """The empty value of a key's type."""
        kind = str(self.flow.shared_state.get(key, {}).get("type", ""))
        return "{{ [] }}" if kind == "array" else EMPTY.get(kind, "")

    # --- Models, tools, stubs

    def set_model(self, step: FlowStep, model: Mapping[str, Any]) -> None:
        """The model of a step and its options."""
        name = str(model.get("name") or "").strip()
        provider = str(model.get("provider") or "").strip("/").rsplit("/", 1)[-1]
        if name:
            step.model = self._model_name(provider, name)
        parameters = as_map(model.get("completion_params"))
        for key in _OPTIONS:
            value: Any = parameters.get(key)
            if fits_option(key, value) and not (key == "top_p" and value == 1):
                step.keys[key] = value
        if step.kind == "routing":
            for key in ("top_p", "presence_penalty", "frequency_penalty"):
                step.keys.pop(key, None)
        longest = next(
            (parameters[key] for key in ("max_tokens", "max_output_tokens", "num_predict") if key in parameters), None
        )
        if fits_option("max_tokens", longest):
            step.keys["max_tokens"] = longest
        if fits_option("seed", parameters.get("seed")):
            step.keys["seed"] = parameters["seed"]
        stop = [str(each) for each in as_list(parameters.get("stop")) if each]
        if stop and step.kind == "agent":
            step.keys["stop"] = stop
        for reason in drop_refused(step.model, step.keys):
            self.note(reason)
        keys = {*_OPTIONS, "max_tokens", "max_output_tokens", "num_predict", "seed", "stop"}
        unread = sorted(
            key[:40] for key, value in parameters.items() if key not in keys and value not in (None, "", [], {})
        )
        if unread:
            self.note(f"options left out: {', '.join(unread)}")

    def _model_name(self, provider: str, name: str) -> str:
        vendor = _VENDORS.get(provider)
        if vendor is not None and re.fullmatch(r"[\w.:/@-]+", name, re.ASCII):
            return f"{vendor}/{name}"
        key = re.sub(r"[^A-Za-z0-9_.-]+", "-", f"{provider}-{name.rsplit('/', 1)[-1]}").strip("-.") or "model"
        models: dict[str, Any] = self.project.settings.setdefault("models", {})
        why = f"models of {provider or 'a provider without a name'}"
        variable = self.project.add_variable(f"{provider.upper() or 'MODEL'}_API_KEY", why)
        models[key] = {
            "model": "openai/" + (re.sub(r"[^A-Za-z0-9_.:/@+-]+", "-", name).strip("-/") or "model"),
            "base_url": _ADDRESSES.get(provider, "http://localhost:8000/v1"),
            "key_env": variable,
        }
        self.note(f"the model is '{key}' of flowengine.toml, where its address stands")
        return key

    def add_tools(self, step: FlowStep, tools: Sequence[Mapping[str, Any]], origin: SourcePlace) -> None:
        """The tools of an agent as stubs, each told to the ledger."""
        for tool in tools:
            name = str(tool.get("tool_name") or tool.get("name") or "tool")
            provider = str(tool.get("provider_name") or tool.get("provider_id") or "")
            what = f"tool '{name[:60]}' of '{step.id}'"
            if is_clock({"tool_name": name, "provider_id": provider}):
                step.keys.setdefault("tools", []).append(f"steps:{name}")
                self.needs_steps = True
                self.project.ledger.note_mapped(what, origin, f"the function {name} of steps.py")
                continue
            function = self.stub_names.id(f"{name}_tool", "tool")
            extra = as_map(tool.get("extra"))
            words = extra.get("description") or tool.get("tool_description") or tool.get("tool_label") or ""
            words = " ".join(str(words).split())[:400] or f"The tool {name} of {provider}."
            step.keys.setdefault("tools", []).append(f"stubs:{function}")
            names = [str(each.get("name")) for each in as_maps(tool.get("schemas")) if each.get("form") == "llm"]
            parameters = [f"{each}: str" for each in dict.fromkeys(names) if each.isidentifier()]
            self.project.stubs.append(Stub(f"stubs:{function}", parameters, words, origin))
            why, by_hand = f"it is a plugin of Dify, of '{provider[:80]}'", f"write the function {function} in stubs.py"
            self.project.ledger.note_lost(what, origin, why, by_hand)

    def stub(self, place: DifyNode, why: str) -> FlowStep:
        """A step that calls a function which is to be written."""
        function = self.stub_names.id(place.id, "stub")
        step = FlowStep(place.id, "function", place.origin, call=f"stubs:{function}")
        data = place.data
        original = str(data.get("code") or "") if place.type == "code" else ""
        for key, value in self._stub_arguments(place).items():
            name = re.sub(r"\W+", "_", key, flags=re.ASCII).strip("_").lower()
            if name.isidentifier() and name not in step.arguments and name not in {"self", "lambda", "def", "class"}:
                step.arguments[name] = value
        kinds = _output_kinds(place)
        step.sample = {name: SAMPLES.get(kind, "text") for name, kind in kinds.items()}
        gives = f"; it gives a map with {', '.join(kinds)}" if kinds else ""
        returns = "dict[str, object]" if kinds else ""
        why = f"{place.title}: {why}{gives}"
        stub = Stub(f"stubs:{function}", list(step.arguments), why, place.origin, returns=returns, original=original)
        self.project.stubs.append(stub)
        return step

    def _stub_arguments(self, place: DifyNode) -> dict[str, Any]:
        data = place.data
        arguments: dict[str, Any] = {
            str(each.get("variable")): self.to_template(words_of(each.get("value_selector")), place)
            for each in as_maps(data.get("variables"))
            if each.get("variable")
        }
        for key, entry in as_map(data.get("tool_parameters")).items():
            row = as_map(entry)
            raw: Any = row.get("value") if row else entry
            if as_list(raw):
                arguments[key] = self.to_template(words_of(raw), place)
            else:
                placeholder = self.project.hide_secret(key, raw, place.id)
                arguments[key] = placeholder or (self.text(raw, place) if isinstance(raw, str) else raw)
        for key in ("variable_selector", "query_variable_selector", "variable", "query"):
            if isinstance(data.get(key), list) and key not in arguments:
                name = key.removesuffix("_variable_selector").removesuffix("_selector")
                arguments[name] = self.to_template(words_of(data[key]), place)
        return {key: value for key, value in arguments.items() if value is not None}

    def carry_steps(self) -> None:
        """Put the functions along that steps call."""
        if self.needs_steps:
            steps = package_files("flowengine.importers.dify").joinpath("carried_steps.py")
            self.project.carry("steps.py", steps.read_text("utf-8"))


CLOCK: Final = {
    "current_time": ("format", "timezone"),
    "timestamp_to_localtime": ("timestamp", "timezone"),
    "localtime_to_timestamp": ("localtime", "timezone"),
    "timezone_conversion": ("current_time", "current_timezone", "target_timezone"),
    "weekday": ("year", "month", "day"),
}
"""Tools of Dify's clock → their parameters; functions of the same names go along."""


KNOWN_TOOLS: Final = frozenset({"webscraper", "jina_reader", "tavily_search", "wikipedia_search"})
"""Tools of plugins that an `http` node does."""


def is_clock(data: Mapping[str, Any]) -> bool:
    """Tells whether a tool is one of Dify's clock."""
    provider = str(data.get("provider_id") or data.get("provider_name") or "").rsplit("/", 1)[-1]
    return str(data.get("tool_name")) in CLOCK and provider in {"time", ""}


def _output_kinds(place: DifyNode) -> dict[str, str]:
    """Returns the outputs of a node with their types."""
    if place.type == "tool":
        return {"text": "string", "files": "array[object]", "json": "array[object]"}
    if place.type == "http-request":
        return {"status": "number", "headers": "object", "body": "string"}
    return {str(name)[:60]: str(as_map(each).get("type")) for name, each in as_map(place.data.get("outputs")).items()}
