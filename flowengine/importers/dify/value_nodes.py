"""Converts the nodes of Dify that compute: code, templates, variables, lists, documents and their search.

Code runs in the sandbox; what only picks and joins values is a node that gives a value.
"""

from __future__ import annotations

import ast
import json
import keyword
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from flowengine.importers.dify.app_parts import SAMPLES, AppParts
from flowengine.importers.dify.graph_levels import DifyNode
from flowengine.importers.dify.selectors import (
    COMPARISONS,
    NUMBER,
    UnknownValueError,
    Value,
    escape_values,
    words_of,
)
from flowengine.importers.flow_text import quote, quote_value, to_tag
from flowengine.importers.form import FlowStep
from flowengine.importers.import_names import Names
from flowengine.importers.option_values import whole_number
from flowengine.importers.python_code import is_standard
from flowengine.importers.source_tree import as_list, as_map, as_maps

_NETWORK: Final = frozenset({"requests", "httpx", "urllib", "aiohttp", "socket", "http", "ftplib", "smtplib"})
_FILE_KEYS: Final = {"extension": "name", "mime_type": "media_type"}
_IMAGES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/bmp", "image/tiff", "image/svg+xml")
_DOCUMENTS: Final = ("application/pdf", "text/plain", "text/html", "application/zip", "application/octet-stream")


class ValueNodes(AppParts):
    """The converters of nodes that compute."""

    def _do_code(self, place: DifyNode, step: FlowStep) -> None:
        data = place.data
        source = str(data.get("code") or "")
        if str(data.get("code_language")) != "python3":
            raise UnknownValueError(f"code in {str(data.get('code_language'))[:20]}")
        step.arguments = {}
        parameter_names: dict[str, str] = {}
        names = Names({"main"})
        for each in as_maps(data.get("variables")):
            name = str(each.get("variable") or "")
            if not name.isidentifier() or keyword.iskeyword(name):
                raise UnknownValueError(f"a parameter called '{name[:40]}'")
            parameter_names[name] = names.id(name, "value")
            step.arguments[parameter_names[name]] = self.to_template(words_of(each.get("value_selector")), place)
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise UnknownValueError("code that is no Python") from None
        if not any(isinstance(each, ast.FunctionDef) and each.name == "main" for each in tree.body):
            raise UnknownValueError("code without a function main")
        shared = sorted({name for each in ast.walk(tree) if isinstance(each, ast.Global) for name in each.names})
        imported = {
            name.partition(".")[0]
            for each in ast.walk(tree)
            if isinstance(each, ast.Import | ast.ImportFrom)
            for name in ([one.name for one in each.names] if isinstance(each, ast.Import) else [each.module or ""])
        }
        if any(
            isinstance(each, ast.ImportFrom) and (each.module == "__future__" or each.names[0].name == "*")
            for each in tree.body
        ):
            raise UnknownValueError("an import that only stands at a module's top")
        if needs := sorted(each for each in imported if each and not is_standard(each)):
            self.note(f"it needs {', '.join(needs)} to be installed")
        if imported & _NETWORK:
            self.note("the sandbox of code has no network")
        step.kind = "code"
        head = f"global {', '.join(shared)}\n" if shared else ""
        if "json" not in imported and any(isinstance(each, ast.Name) and each.id == "json" for each in ast.walk(tree)):
            head += "import json  # Dify imports it for all code\n\n"
        call = ", ".join(f"{name}={ours}" for name, ours in parameter_names.items())
        step.sample = {
            str(name): SAMPLES.get(str(as_map(each).get("type")), "text")
            for name, each in as_map(data.get("outputs")).items()
        }
        step.keys["code"] = f"{head}{source.strip()}\n\nreturn main({call})\n"

    def _do_template_transform(self, place: DifyNode, step: FlowStep) -> None:
        text = self.jinja(str(place.data.get("template") or ""), as_list(place.data.get("variables")), place, step)
        if step.call is None:
            step.give(text)

    def _do_answer(self, place: DifyNode, step: FlowStep) -> None:
        step.give(self.text(place.data.get("answer"), place))

    def _do_variable_aggregator(self, place: DifyNode, step: FlowStep) -> None:
        settings = as_map(place.data.get("advanced_settings"))
        if settings.get("group_enabled"):
            groups = {
                str(each.get("group_name")): {"output": self._first_of(as_list(each.get("variables")), place)}
                for each in as_maps(settings.get("groups"))
            }
            step.give(groups)
        else:
            step.give(self._first_of(as_list(place.data.get("variables")), place))

    _do_variable_assigner = _do_variable_aggregator

    def _first_of(self, selectors: Sequence[Any], place: DifyNode) -> str:
        """The first value that is there, as a template."""
        values: list[Value] = []
        for each in selectors:
            try:
                values.append(self.value(words_of(each), place))
            except UnknownValueError as error:
                self.note(f"left out: {error}")
        if not values:
            raise UnknownValueError("a value to take, of which there is none")
        text = values[-1].with_default()
        for value in reversed(values[:-1]):
            text = value.with_default(text)
        return to_tag(text)

    def _do_assigner(self, place: DifyNode, step: FlowStep) -> None:
        data = place.data
        items = as_maps(data.get("items"))
        if not items:
            items = [
                {
                    "variable_selector": data.get("assigned_variable_selector"),
                    "operation": data.get("write_mode") or "over-write",
                    "input_type": "variable",
                    "value": data.get("input_variable_selector"),
                }
            ]
        assignments: dict[str, str] = {}
        for item in items:
            key = self.state_key(words_of(item.get("variable_selector")), place)
            assignments[key] = self._convert_assignment(item, key, place)
        step.write_state(assignments)

    def _convert_assignment(self, item: Mapping[str, Any], key: str, place: DifyNode) -> Any:
        operation = str(item.get("operation") or "over-write")
        before = f"shared_state.{key}"
        if operation == "clear":
            return self.empty_of_state(key)
        if operation == "remove-first":
            return to_tag(f"{before}[1:]")
        if operation == "remove-last":
            return to_tag(f"{before}[:-1]")
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
        return to_tag(symbols[operation])

    def _do_knowledge_retrieval(self, place: DifyNode, step: FlowStep) -> None:
        data = place.data
        multiple = as_map(data.get("multiple_retrieval_config"))
        limit = multiple.get("top_k") or as_map(data.get("retrieval_model")).get("top_k") or 4
        step.call = "steps:search_documents"
        self.needs_steps = True
        step.arguments = {
            "query": self.value(words_of(data.get("query_variable_selector")), place).printed,
            "documents": "knowledge",
            "limit": whole_number(limit, 1) or 4,
        }
        step.keys["untrusted"] = True
        step.sample = [{"content": "A passage", "title": "A title", "metadata": {"position": 1}}]
        self.note("it searches the texts in the folder knowledge, by words")
        count = len(as_list(data.get("dataset_ids")))
        self.by_hand = f"put the documents of the knowledge base into the folder knowledge ({count} data sets)"

    def _do_document_extractor(self, place: DifyNode, step: FlowStep) -> None:
        step.call = "steps:read_document"
        self.needs_steps = True
        step.arguments = {"file": self.value(words_of(place.data.get("variable_selector")), place).printed}
        step.sample = "The text of a file."
        self.note("texts, Word documents and, with pypdf, PDF are read; other kinds of files need code in steps.py")

    def _do_list_operator(self, place: DifyNode, step: FlowStep) -> None:
        data = place.data
        value = self.value(words_of(data.get("variable")), place).with_default("[]")
        filtering = as_map(data.get("filter_by"))
        if filtering.get("enabled"):
            for each in as_maps(filtering.get("conditions")):
                value = self._convert_filter(value, each, place)
        extract = as_map(data.get("extract_by"))
        if extract.get("enabled"):
            at = str(extract.get("serial") or "1")
            if re.fullmatch(r"[1-9][0-9]{0,8}", at) is None:
                raise UnknownValueError("the place of the item to take")
            value = f"({value})[{int(at) - 1}:{at}]"
        order = as_map(data.get("order_by"))
        if order.get("enabled"):
            key = str(order.get("key") or "")
            attribute = f", attribute={quote(_FILE_KEYS.get(key, key))}" if key else ""
            value = f"({value}) | sort(reverse={'true' if order.get('value') == 'desc' else 'false'}{attribute})"
        limit = as_map(data.get("limit"))
        size = whole_number(limit.get("size"), 0)
        if limit.get("enabled") and size is not None:
            value = f"(({value}) | list)[:{size}]"
        step.give(to_tag(value))

    def _convert_filter(self, value: str, condition: Mapping[str, Any], place: DifyNode) -> str:
        key, operator, operand = (condition.get(each) for each in ("key", "comparison_operator", "value"))
        name = _FILE_KEYS.get(str(key or ""), str(key or ""))
        symbols = {key: COMPARISONS[key] for key in ("is", "=", "is not", "≠", ">", "<", "≥", "≤")} | {"in": "in"}
        if key == "type":
            kinds = [str(each) for each in (as_list(operand) or [operand])]
            parts = {"image": _IMAGES, "document": _DOCUMENTS}
            if operator not in {"in", "is"} or not all(each in parts for each in kinds):
                raise UnknownValueError("this filter of files")
            types = [each for kind in kinds for each in parts[kind]]
            return f'({value} | selectattr("media_type", "in", {json.dumps(types)}) | list)'
        if operator not in symbols:
            raise UnknownValueError(f"the filter '{operator}'")
        is_number = operator in {">", "<", "≥", "≤", "="} and NUMBER.fullmatch(str(operand))
        right = (
            str(operand) if is_number else quote_value(operand) if isinstance(operand, list) else quote(str(operand))
        )
        test = f"selectattr({quote(name)}, " if name else "select("
        return f'({value} | {test}"{symbols[str(operator)]}", {right}) | list)'
