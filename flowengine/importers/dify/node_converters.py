"""Converts the nodes of a Dify workflow, a function a type. Each gives a step of ours, or raises that it cannot.

What a function notes with `self.note` is a change; an `UnknownValueError` makes the node a stub that is filled by hand.
Nothing here knows how nodes are connected.
"""

from __future__ import annotations

import ast
import json
import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast
from urllib.parse import urlsplit

from flowengine.importers.dify.app_parts import CLOCK, SAMPLES, AppParts, is_clock
from flowengine.importers.dify.graph_levels import DifyNode
from flowengine.importers.dify.selectors import (
    UnknownValueError,
    Value,
    as_mapping,
    as_rows,
    escape_values,
    quote_value,
    words_of,
)
from flowengine.importers.form import FlowStep, Names, quote

__all__ = ["NodeConverters", "plain_words"]

_TYPES: Final = {
    "string": {"type": "string"},
    "number": {"type": "number"},
    "boolean": {"type": "boolean"},
    "bool": {"type": "boolean"},
    "object": {"type": "object"},
    "array[string]": {"type": "array", "items": {"type": "string"}},
    "array[number]": {"type": "array", "items": {"type": "number"}},
    "array[boolean]": {"type": "array", "items": {"type": "boolean"}},
    "array[object]": {"type": "array", "items": {"type": "object"}},
}
_SECRET_HEADER: Final = re.compile(r"authori[sz]ation|cookie|token|secret|password|api-?key|^x-.*-?key$", re.IGNORECASE)
_REFERENCE: Final = re.compile(r"\{\{#([\w$.\-]{1,200})#\}\}")
_NETWORK: Final = frozenset({"requests", "httpx", "urllib", "aiohttp", "socket", "http", "ftplib", "smtplib"})
_LONGEST_LABEL: Final = 60
_TAVILY: Final = {
    "search_depth": str,
    "topic": str,
    "days": int,
    "time_range": str,
    "max_results": int,
    "include_answer": bool,
    "include_raw_content": bool,
    "include_images": bool,
    "include_domains": list,
    "exclude_domains": list,
}
"""What Dify's search by Tavily takes, which its service takes under the same names."""


def plain_words(text: object, longest: int = 400) -> str:
    """A text for readers: on one line, without what looks like a template."""
    words = " ".join(str("" if text is None else text).split())[:longest]
    return re.sub(r"\{(?=[{%#])", "{ ", words)


class NodeConverters(AppParts):
    """The functions by type, and what they need of the app."""

    def __post_init__(self) -> None:
        self.converters: Mapping[str, Callable[[DifyNode, FlowStep], None]] = {
            "llm": self._llm,
            "code": self._code,
            "template-transform": self._template,
            "answer": self._answer,
            "if-else": self._if_else,
            "question-classifier": self._classifier,
            "variable-aggregator": self._aggregator,
            "variable-assigner": self._aggregator,
            "assigner": self._assigner,
            "knowledge-retrieval": self._retrieval,
            "http-request": self._http,
            "parameter-extractor": self._extractor,
            "document-extractor": self._document,
            "list-operator": self._list,
            "agent": self._agent,
            "human-input": self._human,
            "iteration": self._iteration,
            "loop": self._loop,
            "loop-end": self._loop_end,
            "tool": self._tool,
        }

    def convert(self, place: DifyNode) -> tuple[FlowStep, str]:
        """The step of a node, and why it is a stub; empty where it is none."""
        step = FlowStep(place.id, "function", place.origin)
        self.notes: list[str] = []
        why = f"there is no counterpart to '{place.type}'"
        converter = self.converters.get(place.type)
        if converter is not None:
            try:
                converter(place, step)
                self._add_retry(place, step)
                return step, ""
            except UnknownValueError as error:
                why = str(error)
        self.notes.clear()
        return self.stub(place, why), why

    # --- Models

    def _llm(self, place: DifyNode, step: FlowStep) -> None:
        step.kind = "agent"
        data = place.data
        self.set_model(step, as_mapping(data.get("model")))
        special = self._context(place)
        rows = data.get("prompt_template")
        messages = [as_mapping(each) for each in as_rows(rows) or [{"role": "user", **as_mapping(rows)}]]
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
        memory = as_mapping(data.get("memory"))
        query = memory.get("query_prompt_template")
        if memory and self.is_chat and not any(role == "user" for role, _ in turns):
            turns.append(
                (
                    "user",
                    self.text(query if isinstance(query, str) and query.strip() else "{{#sys.query#}}", place, special),
                )
            )
        if self.is_chat:
            window = as_mapping(memory.get("window"))
            size = window.get("size")
            wanted = (size if isinstance(size, int) and window.get("enabled") else 50) if memory else 0
            step.keys["history_size"] = min(max(wanted, 0), 1000)
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
        structured = as_mapping(data.get("structured_output"))
        schema = as_mapping(structured.get("schema"))
        if schema and data.get("structured_output_enabled", structured.get("enabled", True)):
            self._take_schema(place, step, schema)

    def _message(self, place: DifyNode, message: Mapping[str, Any], special: Mapping[str, str]) -> str:
        if message.get("edition_type") == "jinja2" and message.get("jinja2_text"):
            config = as_mapping(place.data.get("prompt_config"))
            return self.jinja(str(message["jinja2_text"]), as_rows(config.get("jinja2_variables")), place)
        return self.text(message.get("text"), place, special)

    def _context(self, place: DifyNode) -> dict[str, str]:
        """What `{{#context#}}` and the like stand for in the prompts of a node."""
        special = {"histories": "", "context": ""}
        context = as_mapping(place.data.get("context"))
        selector = words_of(context.get("variable_selector"))
        if context.get("enabled", True) and selector:
            value = self.value(selector, place)
            origin = self.graph.places.get(selector[0])
            if origin is not None and origin.type == "knowledge-retrieval":
                default = value.with_default("[]")
                special["context"] = f'{{{{ {default} | map(attribute="content") | join("\\n\\n") }}}}'
            else:
                special["context"] = value.printed
        return special

    def _attach(self, place: DifyNode, step: FlowStep) -> None:
        vision = as_mapping(place.data.get("vision"))
        configs = as_mapping(vision.get("configs"))
        selector = words_of(configs.get("variable_selector"))
        if vision.get("enabled") and (selector or self.is_chat):
            try:
                step.keys["attach"] = [self.value(selector or ["sys", "files"], place)._replace().printed]
            except UnknownValueError as error:
                self.note(f"no file is attached: {error}")

    def _take_schema(self, place: DifyNode, step: FlowStep, schema: Mapping[str, Any]) -> None:
        step.keys["output"] = clean_schema(schema)
        self.schemas[place.source] = step.keys["output"]

    def _classifier(self, place: DifyNode, step: FlowStep) -> None:
        step.kind = "routing"
        data = place.data
        self.set_model(step, as_mapping(data.get("model")))
        labels = self.labels(place)
        if not labels:
            raise UnknownValueError("the classes, of which there are none")
        names = {
            str(as_mapping(each).get("id")): str(as_mapping(each).get("name") or "")
            for each in as_rows(data.get("classes"))
        }
        own = self.text(data.get("instruction") or data.get("instructions"), place)
        step.keys["instruction"] = own.strip() or "Choose the class that the text belongs to."
        step.keys["target"] = self.value(words_of(data.get("query_variable_selector")), place).printed
        step.keys["routes"] = {
            label: {} if names.get(key, "").strip() == label else {"description": plain_words(names.get(key))}
            for key, label in labels.items()
        }
        self._attach(place, step)

    def _extractor(self, place: DifyNode, step: FlowStep) -> None:
        step.kind = "agent"
        data = place.data
        self.set_model(step, as_mapping(data.get("model")))
        properties: dict[str, Any] = {}
        for each in map(as_mapping, as_rows(data.get("parameters"))):
            kind = dict(_TYPES.get(str(each.get("type")), {"type": "string"}))
            if each.get("type") == "select" and as_rows(each.get("options")):
                kind = {"type": "string", "enum": [str(one) for one in as_rows(each.get("options"))]}
            words = plain_words(each.get("description"))
            if not each.get("required"):
                words = f"{words} (empty where the text does not say it)".strip()
                kind.pop("enum", None)
            properties[str(each.get("name"))] = {**kind, "description": words}
        if not properties:
            raise UnknownValueError("the parameters, of which there are none")
        own = self.text(data.get("instruction"), place).strip()
        step.instructions = (
            f"Extract the parameters from the text.\n\n{own}" if own else "Extract the parameters from the text."
        )
        step.prompt = self.value(words_of(data.get("query")), place).printed
        self._attach(place, step)
        self._take_schema(place, step, {"type": "object", "properties": properties, "required": list(properties)})

    def _agent(self, place: DifyNode, step: FlowStep) -> None:
        step.kind = "agent"
        given = {
            key: as_mapping(each).get("value") for key, each in as_mapping(place.data.get("agent_parameters")).items()
        }
        model = as_mapping(given.get("model"))
        self.set_model(step, {**model, "name": model.get("model") or model.get("name")})
        strategy = str(place.data.get("agent_strategy_name") or "")
        if strategy.lower() not in {"function_calling", "react", "functioncalling"}:
            raise UnknownValueError(f"the agent's strategy '{strategy[:60]}' of a plugin")
        step.instructions = self.text(given.get("instruction"), place).strip() or None
        step.prompt = self.text(given.get("query") or ("{{#sys.query#}}" if self.is_chat else ""), place)
        if not step.prompt.strip():
            raise UnknownValueError("a question, which is empty")
        rounds = given.get("maximum_iterations")
        if isinstance(rounds, int) and 1 <= rounds <= 1000:
            step.keys["max_tool_rounds"] = rounds
        tools = [as_mapping(each) for each in as_rows(given.get("tools")) if as_mapping(each).get("enabled", True)]
        self.add_tools(step, tools, place.origin)

    # --- Code and texts

    def _code(self, place: DifyNode, step: FlowStep) -> None:
        data = place.data
        source = str(data.get("code") or "")
        if str(data.get("code_language")) != "python3":
            raise UnknownValueError(f"code in {str(data.get('code_language'))[:20]}")
        step.arguments = {}
        given: dict[str, str] = {}
        names = Names({"main"})
        for each in map(as_mapping, as_rows(data.get("variables"))):
            name = str(each.get("variable") or "")
            if not name.isidentifier() or keyword.iskeyword(name):
                raise UnknownValueError(f"a parameter called '{name[:40]}'")
            given[name] = names.id(name, "value")
            step.arguments[given[name]] = self.known(words_of(each.get("value_selector")), place)
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise UnknownValueError("code that is no Python") from None
        if not any(isinstance(each, ast.FunctionDef) and each.name == "main" for each in tree.body):
            raise UnknownValueError("code without a function main")
        shared = sorted({name for each in ast.walk(tree) if isinstance(each, ast.Global) for name in each.names})
        imported = {
            (each.names[0].name if isinstance(each, ast.Import) else each.module or "").partition(".")[0]
            for each in ast.walk(tree)
            if isinstance(each, ast.Import | ast.ImportFrom)
        }
        if any(
            isinstance(each, ast.ImportFrom) and (each.module == "__future__" or each.names[0].name == "*")
            for each in tree.body
        ):
            raise UnknownValueError("an import that only stands at a module's top")
        if imported & _NETWORK:
            self.note("the sandbox of code has no network")
        step.kind = "code"
        head = f"global {', '.join(shared)}\n" if shared else ""
        if "json" not in imported and any(isinstance(each, ast.Name) and each.id == "json" for each in ast.walk(tree)):
            head += "import json  # Dify imports it for all code\n\n"
        call = ", ".join(f"{name}={ours}" for name, ours in given.items())
        step.sample = {
            str(name): SAMPLES.get(str(as_mapping(each).get("type")), "text")
            for name, each in as_mapping(data.get("outputs")).items()
        }
        step.keys["code"] = f"{head}{source.strip()}\n\nreturn main({call})\n"

    def _template(self, place: DifyNode, step: FlowStep) -> None:
        text = self.jinja(str(place.data.get("template") or ""), as_rows(place.data.get("variables")), place, step)
        if step.call is None:
            self.give(step, text)

    def _answer(self, place: DifyNode, step: FlowStep) -> None:
        self.give(step, self.text(place.data.get("answer"), place))

    def _aggregator(self, place: DifyNode, step: FlowStep) -> None:
        settings = as_mapping(place.data.get("advanced_settings"))
        if settings.get("group_enabled"):
            groups = [as_mapping(each) for each in as_rows(settings.get("groups"))]
            self.give(
                step,
                {
                    str(each.get("group_name")): {"output": self._first_of(as_rows(each.get("variables")), place)}
                    for each in groups
                },
            )
        else:
            self.give(step, self._first_of(as_rows(place.data.get("variables")), place))

    def _first_of(self, selectors: Sequence[Any], place: DifyNode) -> str:
        """The first value that is there, as a template."""
        found: list[Value] = []
        for each in selectors:
            try:
                found.append(self.value(words_of(each), place))
            except UnknownValueError as error:
                self.note(f"left out: {error}")
        if not found:
            raise UnknownValueError("a value to take, of which there is none")
        text = found[-1].with_default()
        for value in reversed(found[:-1]):
            text = value.with_default(text)
        return f"{{{{ {text} }}}}"

    def _assigner(self, place: DifyNode, step: FlowStep) -> None:
        data = place.data
        items = [as_mapping(each) for each in as_rows(data.get("items"))]
        if not items:
            items = [
                {
                    "variable_selector": data.get("assigned_variable_selector"),
                    "operation": data.get("write_mode") or "over-write",
                    "input_type": "variable",
                    "value": data.get("input_variable_selector"),
                }
            ]
        given: dict[str, str] = {}
        for item in items:
            key = self.state_key(words_of(item.get("variable_selector")), place)
            given[key] = self._assigned(item, key, place)
        if len(given) == 1:
            key, value = next(iter(given.items()))
            self.give(step, value)
            step.keys["set"] = {key: "{{ output }}"}
        else:
            self.give(step, given)
            step.keys["set"] = {key: f"{{{{ output.{key} }}}}" for key in given}

    def _assigned(self, item: Mapping[str, Any], key: str, place: DifyNode) -> Any:
        operation = str(item.get("operation") or "over-write")
        before = f"shared_state.{key}"
        if operation == "clear":
            return self.empty_of_state(key)
        if operation == "remove-first":
            return f"{{{{ {before}[1:] }}}}"
        if operation == "remove-last":
            return f"{{{{ {before}[:-1] }}}}"
        raw: Any = item.get("value")
        if operation == "set" or item.get("input_type") == "constant":
            if operation in {"set", "over-write"}:
                return self.text(raw, place) if isinstance(raw, str) else escape_values(raw)
            expression = quote_value(raw)
        else:
            expression = self.value(words_of(raw), place).with_default()
            if operation == "over-write":
                return self.value(words_of(raw), place).printed
        symbols = {"append": f"{before} + [{expression}]", "extend": f"{before} + {expression}"} | {
            f"{sign}=": f"{before} {sign} ({expression})" for sign in "+-*/"
        }
        if operation not in symbols:
            raise UnknownValueError(f"the operation '{operation[:40]}'")
        return f"{{{{ {symbols[operation]} }}}}"

    # --- Choices

    def _if_else(self, place: DifyNode, step: FlowStep) -> None:
        step.kind = "condition"
        labels = list(self.labels(place).items())
        cases = self.cases(place)
        expressions = [self._conditions(each, place) for each in cases]
        if not cases:
            raise UnknownValueError("cases, of which there are none")
        if len(cases) == 1:
            step.keys["if"] = expressions[0]
        else:
            step.keys["cases"] = [
                {"if": each, "label": label} for each, (_, label) in zip(expressions, labels, strict=False)
            ]
            step.keys["else"] = {}

    def _conditions(self, case: Mapping[str, Any], place: DifyNode) -> str:
        rows = [as_mapping(each) for each in as_rows(case.get("conditions"))]
        found = [self.selectors.compare(each, place) for each in rows]
        if not found:
            raise UnknownValueError("a case without conditions")
        word = " or " if str(case.get("logical_operator")) == "or" else " and "
        return found[0] if len(found) == 1 else word.join(f"({each})" for each in found)

    def _human(self, place: DifyNode, step: FlowStep) -> None:
        step.kind = "approval"
        data = place.data
        properties: dict[str, Any] = {}
        content = str(data.get("form_content") or data.get("title") or "")
        for each in map(as_mapping, as_rows(data.get("inputs"))):
            name = str(each.get("output_variable_name") or each.get("variable") or "")
            properties[name] = {"type": "string"}
        content = re.sub(r"\{\{#\$output\.[^#]{1,100}#\}\}", "", content)
        step.keys["message"] = self.text(content, place).strip() or plain_words(place.title)
        if properties:
            step.keys["form"] = {"type": "object", "properties": properties}
        labels = self.labels(place)
        step.keys["routes"] = {label: {} for label in labels.values()} or {"go_on": {}}
        amount, unit = data.get("timeout"), str(data.get("timeout_unit") or "hour")[:1]
        if isinstance(amount, int) and amount > 0 and unit in {"h", "d", "m"} and "__timeout" in labels:
            step.keys["expires"] = f"{amount * (24 if unit == 'd' else 1)}{'m' if unit == 'm' else 'h'}"
            step.keys["on_expire"] = labels["__timeout"]
        self.schemas[place.source] = {"properties": properties}

    # --- Containers

    def _iteration(self, place: DifyNode, step: FlowStep) -> None:
        step.kind = "map"
        data = place.data
        step.keys["over"] = self.value(words_of(data.get("iterator_selector")), place).with_default("[]")
        step.keys["as"] = self.item_names[place.source]
        step.keys["concurrency"] = 1
        amount = data.get("parallel_nums")
        if data.get("is_parallel"):
            step.keys["concurrency"] = amount if isinstance(amount, int) and 1 <= amount <= 10000 else 10
        handling = str(data.get("error_handle_mode") or "terminated")
        if handling == "remove-abnormal-output":
            step.keys["on_item_error"] = "skip"
        elif handling == "continue-on-error":
            step.keys["on_item_error"] = "collect"
            self.note("the place of an item that failed has its error instead of nothing")

    def _loop(self, place: DifyNode, step: FlowStep) -> None:
        step.kind = "loop"
        data = place.data
        count = data.get("loop_count")
        step.keys["max_iterations"] = min(max(count if isinstance(count, int) else 10, 1), 10000)
        step.keys["on_exhausted"] = "continue"

    def _loop_end(self, place: DifyNode, step: FlowStep) -> None:
        self.give(step, "end")

    # --- Outside

    def _retrieval(self, place: DifyNode, step: FlowStep) -> None:
        data = place.data
        multiple = as_mapping(data.get("multiple_retrieval_config"))
        limit = multiple.get("top_k") or as_mapping(data.get("retrieval_model")).get("top_k") or 4
        step.call = "steps:search_documents"
        self.needs_steps = True
        step.arguments = {
            "query": self.value(words_of(data.get("query_variable_selector")), place).printed,
            "documents": "knowledge",
            "limit": limit if isinstance(limit, int) else 4,
        }
        step.keys["untrusted"] = True
        step.sample = [{"content": "A passage", "title": "A title", "metadata": {"position": 1}}]
        self.note("it searches the texts in the folder knowledge, by words")
        count = len(as_rows(data.get("dataset_ids")))
        self.by_hand = f"put the documents of the knowledge base into the folder knowledge ({count} data sets)"

    def _document(self, place: DifyNode, step: FlowStep) -> None:
        step.call = "steps:read_document"
        self.needs_steps = True
        step.arguments = {"file": self.value(words_of(place.data.get("variable_selector")), place).printed}
        step.sample = "The text of a file."
        self.note("texts, Word documents and, with pypdf, PDF are read; other kinds of files need code in steps.py")

    def _list(self, place: DifyNode, step: FlowStep) -> None:
        data = place.data
        value = self.value(words_of(data.get("variable")), place).with_default("[]")
        filtering = as_mapping(data.get("filter_by"))
        if filtering.get("enabled"):
            for each in map(as_mapping, as_rows(filtering.get("conditions"))):
                value = self._filtered(value, each, place)
        extract = as_mapping(data.get("extract_by"))
        if extract.get("enabled"):
            at = str(extract.get("serial") or "1")
            if not at.isdigit() or at == "0":
                raise UnknownValueError("the place of the item to take")
            value = f"({value})[{int(at) - 1}:{at}]"
        order = as_mapping(data.get("order_by"))
        if order.get("enabled"):
            key = str(order.get("key") or "")
            named = f", attribute={quote(_FILE_KEYS.get(key, key))}" if key else ""
            value = f"({value}) | sort(reverse={'true' if order.get('value') == 'desc' else 'false'}{named})"
        limit = as_mapping(data.get("limit"))
        if limit.get("enabled") and isinstance(limit.get("size"), int):
            value = f"(({value}) | list)[:{limit['size']}]"
        self.give(step, f"{{{{ {value} }}}}")

    def _filtered(self, value: str, condition: Mapping[str, Any], place: DifyNode) -> str:
        key, operator, wanted = (condition.get(each) for each in ("key", "comparison_operator", "value"))
        name = _FILE_KEYS.get(str(key or ""), str(key or ""))
        symbols = {
            "is": "==",
            "=": "==",
            "is not": "!=",
            "≠": "!=",
            ">": ">",
            "<": "<",
            "≥": ">=",
            "≤": "<=",
            "in": "in",
        }
        if key == "type":
            kinds = [str(each) for each in (as_rows(wanted) or [wanted])]
            parts = {"image": _IMAGES, "document": _DOCUMENTS}
            if operator not in {"in", "is"} or not all(each in parts for each in kinds):
                raise UnknownValueError("this filter of files")
            types = [each for kind in kinds for each in parts[kind]]
            return f'({value} | selectattr("media_type", "in", {json.dumps(types)}) | list)'
        if operator not in symbols:
            raise UnknownValueError(f"the filter '{operator}'")
        is_number = operator in {">", "<", "≥", "≤", "="} and re.fullmatch(r"-?\d+(\.\d+)?", str(wanted))
        right = str(wanted) if is_number else json.dumps(wanted) if isinstance(wanted, list) else quote(str(wanted))
        named = f"selectattr({quote(name)}, " if name else "select("
        return f'({value} | {named}"{symbols[str(operator)]}", {right}) | list)'

    def _tool(self, place: DifyNode, step: FlowStep) -> None:
        data = place.data
        given = {key: as_mapping(each) for key, each in as_mapping(data.get("tool_parameters")).items()}
        settings = as_mapping(data.get("tool_configurations"))
        name = str(data.get("tool_name") or "")
        if is_clock(data):
            step.call = f"steps:{name}"
            self.needs_steps = True
            for key in CLOCK[name]:
                if key in given and given[key].get("value") not in (None, ""):
                    step.arguments[key] = f"{{{{ {self._argument(given[key], place)} }}}}"
                elif (found := self._setting(settings.get(key))) not in (None, ""):
                    step.arguments[key] = escape_values(found)
            step.sample = "2025-01-01 12:00:00"
        elif name == "webscraper" and "url" in given:
            step.kind = "http"
            step.keys["url"] = f"{{{{ {self._argument(given['url'], place)} }}}}"
            step.sample = "text"
            self._leave_open()
            self.note("what comes back is the page as it is, not its text alone")
        elif name == "jina_reader" and "url" in given:
            address = self._argument(given["url"], place)
            step.kind = "http"
            step.keys["url"] = f'{{{{ "https://r.jina.ai/" ~ {address} }}}}'
            self.project.allow_http("https://r.jina.ai/")
            step.sample = "text"
            self.note("the service is asked without a key and without further settings")
        elif name == "tavily_search" and "query" in given:
            self._ask_tavily(place, step, given, settings)
        elif name == "wikipedia_search" and "query" in given:
            self._ask_wikipedia(place, step, given, settings)
        else:
            provider = str(data.get("provider_name") or data.get("provider_id") or "")
            raise UnknownValueError(f"the tool '{name[:60]}' of '{provider[:80]}', a plugin of Dify")

    def _ask_tavily(
        self, place: DifyNode, step: FlowStep, given: Mapping[str, Mapping[str, Any]], settings: Mapping[str, Any]
    ) -> None:
        """A search of Tavily, as its service is asked by everybody."""
        wanted: dict[str, Any] = {"query": f"{{{{ {self._argument(given['query'], place)} }}}}"}
        for key, kind in _TAVILY.items():
            value = self._constant(key, given, settings)
            if value in (None, ""):
                continue
            if kind is list:
                wanted[key] = [each.strip() for each in str(value).split(",") if each.strip()]
            elif kind is bool:
                wanted[key] = value if isinstance(value, bool) else str(value).lower() in {"1", "true"}
            elif kind is int:
                wanted[key] = int(value) if str(value).isdigit() else 5
            else:
                wanted[key] = str(value)
        step.kind = "http"
        step.keys = {
            "method": "POST",
            "url": "https://api.tavily.com/search",
            "json": {key: escape_values(each) if key != "query" else each for key, each in wanted.items()},
            "headers_env": {"Authorization": "TAVILY_AUTHORIZATION"},
            "effect": "none",
        }
        self.project.allow_http("https://api.tavily.com/", ["TAVILY_AUTHORIZATION"])
        self.project.environment["TAVILY_AUTHORIZATION"] = f"the header Authorization of '{place.id}', as `Bearer …`"
        step.sample = "text"
        self.note("the service is asked itself; what it answers is its JSON, where Dify made a text of it")

    def _ask_wikipedia(
        self, place: DifyNode, step: FlowStep, given: Mapping[str, Mapping[str, Any]], settings: Mapping[str, Any]
    ) -> None:
        """The beginnings of the articles that Wikipedia finds."""
        language = str(self._constant("language", given, settings) or "en")
        host = f"https://{language if re.fullmatch(r'[a-z]{2,3}', language) else 'en'}.wikipedia.org/"
        step.kind = "http"
        step.keys["url"] = f"{host}w/api.php"
        step.keys["query"] = {
            "action": "query",
            "format": "json",
            "generator": "search",
            "gsrsearch": f"{{{{ {self._argument(given['query'], place)} }}}}",
            "gsrlimit": "3",
            "prop": "extracts",
            "exintro": "1",
            "explaintext": "1",
        }
        self.project.allow_http(host)
        step.sample = "text"
        self.note("Wikipedia is asked itself; what it answers is its JSON, where Dify made a text of it")

    def _constant(self, key: str, given: Mapping[str, Mapping[str, Any]], settings: Mapping[str, Any]) -> Any:
        """A setting of a tool that stands in the file; None where a run alone knows it."""
        value = given[key].get("value") if key in given else self._setting(settings.get(key))
        return None if isinstance(value, list | dict) or _REFERENCE.search(str(value)) else value

    def _setting(self, value: Any) -> Any:
        return as_mapping(value).get("value", value)

    def _argument(self, given: Mapping[str, Any], place: DifyNode) -> str:
        """An argument of a tool as an expression."""
        raw = given.get("value")
        if given.get("type") == "variable":
            return self.value(words_of(raw), place).with_default()
        lone = _REFERENCE.fullmatch(str(raw or "").strip())
        if lone is not None:
            return self.value(lone[1].split("."), place).with_default()
        if _REFERENCE.search(str(raw)):
            return f"({self._joined(self.text(str(raw), place))})"
        return quote(str(raw or ""))

    def _joined(self, template: str) -> str:
        """A text with templates in it as one expression."""
        pieces = [each for each in re.split(r"(\{\{.*?\}\})", template, flags=re.DOTALL) if each]
        return " ~ ".join(each[2:-2].strip() if each.startswith("{{") else quote(each) for each in pieces) or '""'

    def _http(self, place: DifyNode, step: FlowStep) -> None:
        data = place.data
        step.kind = "http"
        method = str(data.get("method") or "get").upper()
        if method not in {"GET", "HEAD", "PUT", "DELETE", "POST", "PATCH"}:
            raise UnknownValueError(f"the method '{method[:20]}'")
        if method != "GET":
            step.keys["method"] = method
        names: list[str] = []
        headers: dict[str, str] = {}
        secret: dict[str, str] = {}
        for key, text in pairs_of(data.get("headers")):
            if _SECRET_HEADER.search(key):
                secret[key] = self._secret(place, key, text)
            elif key.lower() not in {"content-length", "host"}:
                headers[key] = self.text(text, place)
        authorization = as_mapping(data.get("authorization"))
        config = as_mapping(authorization.get("config"))
        if authorization.get("type") == "api-key" and config:
            header = str(config.get("header") or "Authorization") if config.get("type") == "custom" else "Authorization"
            words = {"basic": "Basic …", "bearer": "Bearer …"}.get(str(config.get("type")), "the key")
            secret[header] = self._secret(place, header, str(config.get("api_key") or ""), words)
        names += sorted(set(secret.values()))
        step.keys["url"] = self._url(str(data.get("url") or ""), place, names)
        query = {key: self.text(text, place) for key, text in pairs_of(data.get("params"))}
        if query:
            step.keys["query"] = query
        self._body(as_mapping(data.get("body")), place, step, headers, method)
        if headers:
            step.keys["headers"] = headers
        if secret:
            step.keys["headers_env"] = secret
            self.note("keys come from the environment")
        step.keys["expect"] = {"status": ["2xx", "4xx", "5xx"]}
        wait = as_mapping(data.get("timeout")).get("max_read_timeout") or as_mapping(data.get("timeout")).get("read")
        if isinstance(wait, int) and wait > 0:
            step.keys["timeout"] = f"{wait}s"
        step.sample = "text"

    def _secret(self, place: DifyNode, header: str, text: str, words: str = "") -> str:
        """The environment variable that holds a header's value."""
        inner = _REFERENCE.search(text)
        base = inner[1].partition(".")[2] if inner and inner[1].startswith("env.") else f"{place.id}_{header}"
        name = re.sub(r"[^A-Z0-9]+", "_", base.upper()).strip("_") or "KEY"
        name = name if name[0].isalpha() else f"KEY_{name}"
        self.project.environment[name] = f"the header {header} of '{place.id}'{f', as `{words}`' if words else ''}"
        return name

    def _url(self, text: str, place: DifyNode, names: Sequence[str]) -> str:
        text = _REFERENCE.sub(lambda found: self.constants.get(found[1], found[0]), text.strip())
        lone = _REFERENCE.fullmatch(text)
        if not text:
            raise UnknownValueError("an address, which is empty")
        if lone is not None:
            self._leave_open()
            return self.value(lone[1].split("."), place).printed
        head = re.match(r"(https?://[^/?#{}\s]+)([/?]|\Z)", text)
        if head is None:
            converted = self.text(text, place)
            self._leave_open()
            if "{{" not in converted:
                raise UnknownValueError(f"the address '{text[:60]}'")
            return f"{{{{ {self._joined(converted)} }}}}"
        if urlsplit(head[1]).username or "@" in head[1]:
            raise UnknownValueError("an address with a password in it")
        self.project.allow_http(f"{head[1]}/", names)
        if _REFERENCE.search(text):
            self.note("values in the address are percent-encoded")
        return self.text(text, place)

    def _leave_open(self) -> None:
        """An address that is known in a run alone: the project file has an entry that is to be replaced."""
        self.project.allow_http("https://api.example.com/")
        self.by_hand = (
            "say in allow_http of flowengine.toml which addresses may be asked, instead of https://api.example.com/"
        )

    def _body(
        self, body: Mapping[str, Any], place: DifyNode, step: FlowStep, headers: dict[str, str], method: str
    ) -> None:
        kind = str(body.get("type") or "none")
        data = body.get("data")
        if kind == "none" or method in {"GET", "HEAD"} or not data:
            return
        if kind in {"form-data", "x-www-form-urlencoded"}:
            rows = pairs_of(data)
            if any(as_mapping(each).get("type") == "file" for each in as_rows(data)):
                raise UnknownValueError("a form with files")
            step.keys["form"] = {key: self.text(text, place) for key, text in rows}
            return
        if kind == "binary":
            raise UnknownValueError("a body that is a file")
        text = (
            "\n".join(str(as_mapping(each).get("value") or "") for each in as_rows(data))
            if as_rows(data)
            else str(data)
        )
        if kind == "json":
            found = self._json(text, place)
            if found is not None:
                step.keys["json"] = found
                for key in [each for each in headers if each.lower() == "content-type"]:
                    del headers[key]
                return
            headers.setdefault("Content-Type", "application/json")
        if text.strip():
            step.keys["body"] = self.text(text, place)

    def _json(self, text: str, place: DifyNode) -> Any:
        """The JSON of a body with its references as templates; None where it is not JSON around them."""
        marked: list[str] = []

        def mark(found: re.Match[str]) -> str:
            marked.append(found[0])
            return f"\x02{len(marked) - 1}\x03"

        text = _REFERENCE.sub(mark, text)
        bare = re.sub(
            r'("(?:[^"\\]|\\[\s\S]?)*+(?:"|\Z))|(\x02\d+\x03)', lambda found: found[1] or f'"{found[2]}"', text
        )
        try:
            value = json.loads(bare.replace("\x02", "\\u0002").replace("\x03", "\\u0003"))
        except (ValueError, RecursionError):
            return None

        def restore(value: Any) -> Any:
            if isinstance(value, dict):
                return {str(key): restore(each) for key, each in cast("dict[Any, Any]", value).items()}
            if isinstance(value, list):
                return [restore(each) for each in cast("list[Any]", value)]
            if isinstance(value, str):
                return self.text(re.sub("\x02(\\d+)\x03", lambda found: marked[int(found[1])], value), place)
            return value

        return restore(value)

    # --- What all have

    def _add_retry(self, place: DifyNode, step: FlowStep) -> None:
        retry = as_mapping(place.data.get("retry_config"))
        most = retry.get("max_retries")
        if not (retry.get("retry_enabled", retry.get("enabled")) and isinstance(most, int) and most > 0):
            return
        if step.kind == "http" and step.keys.get("method") in {"POST", "PATCH"}:
            self.note("a request that changes something is not repeated; `effect: idempotent` allows it")
        elif step.kind not in {"condition", "approval", "map", "loop"}:
            wait = retry.get("retry_interval")
            step.keys["retry"] = {
                "attempts": min(most + 1, 100),
                "backoff": "fixed",
                "initial": f"{wait if isinstance(wait, int) and wait > 0 else 100}ms",
            }


_FILE_KEYS: Final = {"extension": "name", "mime_type": "media_type"}
_IMAGES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/bmp", "image/tiff", "image/svg+xml")
_DOCUMENTS: Final = ("application/pdf", "text/plain", "text/html", "application/zip", "application/octet-stream")


def pairs_of(source: object) -> list[tuple[str, str]]:
    """The pairs of headers, parameters or a form: lines of `key:value`, or a list of keys and values."""
    if isinstance(source, list):
        rows = [as_mapping(each) for each in cast("list[Any]", source)]
        return [(str(each.get("key") or ""), str(each.get("value") or "")) for each in rows if each.get("key")]
    found: list[tuple[str, str]] = []
    for line in str(source or "").splitlines():
        key, colon, value = line.partition(":")
        if colon and re.fullmatch(r"[!-9;-z|~]+", key.strip()):
            found.append((key.strip(), value.strip()))
    return found


def clean_schema(schema: Any, depth: int = 0) -> Any:
    """A schema without what only Dify's editor reads."""
    if depth > 30:
        return {}
    if isinstance(schema, Mapping):
        rows = cast("Mapping[str, Any]", schema)
        return {
            key: plain_words(each) if key == "description" else clean_schema(each, depth + 1)
            for key, each in rows.items()
            if not (key == "description" and not isinstance(each, str))
            and not (key == "properties" and not as_mapping(each))
        }
    if isinstance(schema, list):
        return [clean_schema(each, depth + 1) for each in cast("list[Any]", schema)]
    return schema
