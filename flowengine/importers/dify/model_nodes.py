"""Converts the nodes of Dify that ask a model: LLM, classifier, extractor of parameters, agent.

The shape of an answer is noted, so that what reads a field of it is checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from flowengine.core import is_map
from flowengine.importers.dify.app_parts import AppParts
from flowengine.importers.dify.graph_levels import DifyNode
from flowengine.importers.dify.selectors import UnknownValueError, words_of
from flowengine.importers.flow_text import plain_words, to_tag
from flowengine.importers.form import FlowStep
from flowengine.importers.option_values import whole_number
from flowengine.importers.source_tree import as_list, as_map, as_maps, is_list

_TYPES: Final = ("string", "number", "boolean", "object")


class ModelNodes(AppParts):
    """The converters of nodes that ask a model."""

    def _do_llm(self, place: DifyNode, step: FlowStep) -> None:
        step.kind = "agent"
        data = place.data
        self.set_model(step, as_map(data.get("model")))
        special = self._context(place)
        rows = data.get("prompt_template")
        messages = [as_map(each) for each in as_list(rows) or [{"role": "user", **as_map(rows)}]]
        system: list[str] = []
        turns: list[tuple[str, str]] = []
        for message in messages:
            text = self._message(place, message, special)
            if not text.strip():
                continue
            role = str(message.get("role") or "user")
            if role == "system":
                system.append(text)
            else:
                turns.append((role, text))
        memory = as_map(data.get("memory"))
        query = memory.get("query_prompt_template")
        if memory and self.is_chat:
            prompt = query if isinstance(query, str) and query.strip() else "{{#sys.query#}}"
            turn = ("user", self.text(prompt, place, special))
            turns += [] if turn in turns else [turn]  # Dify asks it behind the memory, whatever turns stand before.
        if self.is_chat:
            window = as_map(memory.get("window"))
            size = whole_number(window.get("size"), 0) if window.get("enabled") else None
            step.keys["history_size"] = 0 if not memory else 50 if size is None else min(size, 1000)
        if not turns and system:
            turns.append(("user", system.pop()))
            self.note("the system message is the prompt, since there is no other")
        if not turns:
            raise UnknownValueError("a prompt, which is empty")
        step.instructions = "\n\n".join(system) or None
        if len(turns) == 1:
            step.prompt = turns[0][1]
        else:
            step.prompt = "\n\n".join(f"{role}: {text}" for role, text in turns)
            self.note("the messages of several turns are one prompt")
        self._attach(place, step)
        structured = as_map(data.get("structured_output"))
        schema = as_map(structured.get("schema"))
        if schema and data.get("structured_output_enabled", structured.get("enabled", True)):
            self._take_schema(place, step, schema)

    def _message(self, place: DifyNode, message: Mapping[str, Any], special: Mapping[str, str]) -> str:
        if message.get("edition_type") == "jinja2" and message.get("jinja2_text"):
            config = as_map(place.data.get("prompt_config"))
            return self.jinja(str(message["jinja2_text"]), as_list(config.get("jinja2_variables")), place)
        return self.text(message.get("text"), place, special)

    def _context(self, place: DifyNode) -> dict[str, str]:
        """Returns the value of `{{#context#}}` and similar names in a node's prompts."""
        special = {"histories": "", "context": ""}
        context = as_map(place.data.get("context"))
        selector = words_of(context.get("variable_selector"))
        if context.get("enabled", True) and selector:
            value = self.value(selector, place)
            origin = self.graph.places.get(selector[0])
            if origin is not None and origin.type == "knowledge-retrieval":
                default = value.with_default("[]")
                special["context"] = to_tag(f'{default} | map(attribute="content") | join("\\n\\n")')
            else:
                special["context"] = value.printed
        return special

    def _attach(self, place: DifyNode, step: FlowStep) -> None:
        vision = as_map(place.data.get("vision"))
        configs = as_map(vision.get("configs"))
        selector = words_of(configs.get("variable_selector"))
        if vision.get("enabled") and (selector or self.is_chat):
            try:
                value = self.value(selector or ["sys", "files"], place)
                field = self.flow.inputs.get(value.expression.removeprefix("inputs."))
                if field is not None and field["type"] != "file":
                    raise UnknownValueError(f"the input {selector[-1][:40]}, which is no file")
                step.keys["attach"] = [value.printed]
            except UnknownValueError as error:
                self.note(f"no file is attached: {error}")

    def _take_schema(self, place: DifyNode, step: FlowStep, schema: Mapping[str, Any]) -> None:
        step.keys["output"] = clean_schema(schema)
        self.schemas[place.source] = step.keys["output"]

    def _do_question_classifier(self, place: DifyNode, step: FlowStep) -> None:
        step.kind = "routing"
        data = place.data
        self.set_model(step, as_map(data.get("model")))
        labels = self.labels(place)
        if not labels:
            raise UnknownValueError("the classes, of which there are none")
        names = {str(each.get("id")): str(each.get("name") or "") for each in as_maps(data.get("classes"))}
        own = self.text(data.get("instruction") or data.get("instructions"), place)
        step.keys["instruction"] = own.strip() or "Choose the class that the text belongs to."
        step.keys["target"] = self.value(words_of(data.get("query_variable_selector")), place).printed
        step.keys["routes"] = {
            label: {} if names.get(key, "").strip() == label else {"description": plain_words(names.get(key))}
            for key, label in labels.items()
        }
        self._attach(place, step)

    def _do_parameter_extractor(self, place: DifyNode, step: FlowStep) -> None:
        step.kind = "agent"
        data = place.data
        self.set_model(step, as_map(data.get("model")))
        properties: dict[str, Any] = {}
        for each in as_maps(data.get("parameters")):
            kind = _shape_of(str(each.get("type")))
            if each.get("type") == "select" and as_list(each.get("options")):
                kind = {"type": "string", "enum": [str(one) for one in as_list(each.get("options"))]}
            words = plain_words(each.get("description"))
            if not each.get("required"):
                words = f"{words} (empty where the text does not say it)".strip()
                kind.pop("enum", None)
            properties[str(each.get("name"))] = {**kind, "description": words}
        if not properties:
            raise UnknownValueError("the parameters, of which there are none")
        own = self.text(data.get("instruction"), place).strip()
        step.instructions = "\n\n".join(filter(None, ("Extract the parameters from the text.", own)))
        step.prompt = self.value(words_of(data.get("query")), place).printed
        self._attach(place, step)
        self._take_schema(place, step, {"type": "object", "properties": properties, "required": list(properties)})

    def _do_agent(self, place: DifyNode, step: FlowStep) -> None:
        step.kind = "agent"
        parameters = as_map(place.data.get("agent_parameters"))

        def value_of(name: str) -> Any:
            return as_map(parameters.get(name)).get("value")

        model = as_map(value_of("model"))
        self.set_model(step, {**model, "name": model.get("model") or model.get("name")})
        strategy = str(place.data.get("agent_strategy_name") or "")
        if strategy.lower() not in {"function_calling", "react", "functioncalling"}:
            raise UnknownValueError(f"the agent's strategy '{strategy[:60]}' of a plugin")
        step.instructions = self.text(value_of("instruction"), place).strip() or None
        step.prompt = self.text(value_of("query") or ("{{#sys.query#}}" if self.is_chat else ""), place)
        if not step.prompt.strip():
            raise UnknownValueError("a question, which is empty")
        rounds = whole_number(value_of("maximum_iterations"), 1, 1000)
        if rounds is not None:
            step.keys["max_tool_rounds"] = rounds
        tools = [each for each in as_maps(value_of("tools")) if each.get("enabled", True)]
        self.add_tools(step, tools, place.origin)


def _shape_of(kind: str) -> dict[str, Any]:
    """The JSON Schema of a type such as `array[number]`; a text where it is not known."""
    item = kind.removeprefix("array[").removesuffix("]")
    if kind == f"array[{item}]" and item in _TYPES:
        return {"type": "array", "items": {"type": item}}
    kind = "boolean" if kind == "bool" else kind
    return {"type": kind if kind in _TYPES else "string"}


def clean_schema(schema: Any, depth: int = 0) -> Any:
    """A schema without what only Dify's editor reads."""
    if depth > 30:
        return {}
    if is_map(schema):
        return {
            key: plain_words(each) if key == "description" else clean_schema(each, depth + 1)
            for key, each in schema.items()
            if not (key == "description" and not isinstance(each, str))
            and not (key == "properties" and not as_map(each))
        }
    return [clean_schema(each, depth + 1) for each in schema] if is_list(schema) else schema
