"""Converts the nodes of Dify that ask services: HTTP requests, and the tools of plugins that are one request.

Keys come from the environment, and each address goes into `allow_http` of the project.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from flowengine.core import is_map
from flowengine.importers.dify.app_parts import CLOCK, AppParts, is_clock
from flowengine.importers.dify.graph_levels import DifyNode
from flowengine.importers.dify.selectors import UnknownValueError, escape_values, words_of
from flowengine.importers.flow_text import quote, to_expression, to_tag
from flowengine.importers.form import FlowStep
from flowengine.importers.option_values import KEYS_OUTSIDE, SECRET_HEADER, whole_number
from flowengine.importers.source_tree import as_list, as_map, as_maps, is_list

_REFERENCE: Final = re.compile(r"\{\{#([\w$.\-]{1,200})#\}\}")
_HEADER: Final = re.compile(r"[!-9;-z|~]+")
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
"""Settings of Dify's search by Tavily that the service takes under the same names, and their types."""


Given = Mapping[str, Mapping[str, Any]]
"""The arguments of a tool."""


class RequestNodes(AppParts):
    """The converters of nodes that ask services."""

    def _do_tool(self, place: DifyNode, step: FlowStep) -> None:
        data = place.data
        parameters = {key: as_map(each) for key, each in as_map(data.get("tool_parameters")).items()}
        settings = as_map(data.get("tool_configurations"))
        name = str(data.get("tool_name") or "")
        if is_clock(data):
            step.call = f"steps:{name}"
            self.needs_steps = True
            for key in CLOCK[name]:
                if key in parameters and parameters[key].get("value") not in (None, ""):
                    step.arguments[key] = to_tag(self._argument(parameters[key], place))
                elif (setting := self._setting(settings.get(key))) not in (None, ""):
                    step.arguments[key] = escape_values(setting)
            step.sample = "2025-01-01 12:00:00"
        elif name == "webscraper" and "url" in parameters:
            self._ask(step, to_tag(self._argument(parameters["url"], place)))
            self._leave_open()
            self.note("what comes back is the page as it is, not its text alone")
        elif name == "jina_reader" and "url" in parameters:
            address = self._argument(parameters["url"], place)
            self._ask(step, to_tag(f'"https://r.jina.ai/" ~ {address}'))
            self.project.allow_http("https://r.jina.ai/")
            self.note("the service is asked without a key and without further settings")
        elif name == "tavily_search" and "query" in parameters:
            self._ask_tavily(place, step, parameters, settings)
        elif name == "wikipedia_search" and "query" in parameters:
            self._ask_wikipedia(place, step, parameters, settings)
        else:
            provider = str(data.get("provider_name") or data.get("provider_id") or "")
            raise UnknownValueError(f"the tool '{name[:60]}' of '{provider[:80]}', a plugin of Dify")

    def _ask(self, step: FlowStep, url: str) -> None:
        step.kind, step.sample = "http", "text"
        step.keys["url"] = url

    def _ask_tavily(self, place: DifyNode, step: FlowStep, parameters: Given, settings: Mapping[str, Any]) -> None:
        """A search of Tavily, as its service is asked by everybody."""
        body: dict[str, Any] = {"query": to_tag(self._argument(parameters["query"], place))}
        for key, kind in _TAVILY.items():
            value = self._constant(key, parameters, settings)
            if value in (None, ""):
                continue
            if kind is list:
                body[key] = [each.strip() for each in str(value).split(",") if each.strip()]
            elif kind is bool:
                body[key] = value if isinstance(value, bool) else str(value).lower() in {"1", "true"}
            elif kind is int:
                body[key] = int(value) if re.fullmatch(r"[0-9]{1,4}", str(value)) else 5
            else:
                body[key] = str(value)
        self._ask(step, "https://api.tavily.com/search")
        step.keys = {
            "method": "POST",
            **step.keys,
            "json": {key: escape_values(each) if key != "query" else each for key, each in body.items()},
            "headers_env": {"Authorization": "TAVILY_AUTHORIZATION"},
            "effect": "none",
        }
        self.project.allow_http("https://api.tavily.com/", ["TAVILY_AUTHORIZATION"])
        self.project.need_key("TAVILY_AUTHORIZATION", f"the header Authorization of '{place.id}', as `Bearer …`")
        self.note("the service is asked itself; what it answers is its JSON, where Dify made a text of it")

    def _ask_wikipedia(self, place: DifyNode, step: FlowStep, parameters: Given, settings: Mapping[str, Any]) -> None:
        """The beginnings of the articles that Wikipedia finds."""
        language = str(self._constant("language", parameters, settings) or "en")
        host = f"https://{language if re.fullmatch(r'[a-z]{2,3}', language) else 'en'}.wikipedia.org/"
        self._ask(step, f"{host}w/api.php")
        step.keys["query"] = {
            "action": "query",
            "format": "json",
            "generator": "search",
            "gsrsearch": to_tag(self._argument(parameters["query"], place)),
            "gsrlimit": "3",
            "prop": "extracts",
            "exintro": "1",
            "explaintext": "1",
        }
        self.project.allow_http(host)
        self.note("Wikipedia is asked itself; what it answers is its JSON, where Dify made a text of it")

    def _constant(self, key: str, parameters: Given, settings: Mapping[str, Any]) -> Any:
        """A setting of a tool that stands in the file; None where a run alone knows it."""
        row = parameters.get(key)
        value = self._setting(settings.get(key)) if row is None else row.get("value")
        is_known = row is None or row.get("type") != "variable"
        return None if not is_known or isinstance(value, list | dict) or _REFERENCE.search(str(value)) else value

    def _setting(self, value: Any) -> Any:
        return as_map(value).get("value", value)

    def _argument(self, parameter: Mapping[str, Any], place: DifyNode) -> str:
        """An argument of a tool as an expression."""
        raw = parameter.get("value")
        if parameter.get("type") == "variable":
            return self.value(words_of(raw), place).with_default()
        lone = _REFERENCE.fullmatch(str(raw or "").strip())
        if lone is not None:
            return self.value(lone[1].split("."), place).with_default()
        if _REFERENCE.search(str(raw)):
            return f"({to_expression(self.text(str(raw), place))})"
        return quote(str(raw or ""))

    def _do_http_request(self, place: DifyNode, step: FlowStep) -> None:
        data = place.data
        step.kind = "http"
        method = str(data.get("method") or "get").upper()
        if method not in {"GET", "HEAD", "PUT", "DELETE", "POST", "PATCH"}:
            raise UnknownValueError(f"the method '{method[:20]}'")
        if method != "GET":
            step.keys["method"] = method
        headers: dict[str, str] = {}
        secret: dict[str, str] = {}
        for key, text in self._pairs("header", data.get("headers")).items():
            if SECRET_HEADER.search(key):
                secret[key] = self._secret(place, key, text)
            elif key.lower() not in {"content-length", "host"}:
                headers[key] = self.text(text, place)
        authorization = as_map(data.get("authorization"))
        config = as_map(authorization.get("config"))
        if authorization.get("type") == "api-key" and config:
            header = str(config.get("header") or "Authorization") if config.get("type") == "custom" else "Authorization"
            words = {"basic": "Basic …", "bearer": "Bearer …"}.get(str(config.get("type")), "the key")
            secret[header] = self._secret(place, header, str(config.get("api_key") or ""), words)
        step.keys["url"] = self._url(str(data.get("url") or ""), place, sorted(set(secret.values())))
        query = self._pairs("parameter", data.get("params"))
        if query:
            step.keys["query"] = {key: self._hide(key, text, place) for key, text in query.items()}
        self._body(as_map(data.get("body")), place, step, headers, method)
        if headers:
            step.keys["headers"] = headers
        if secret:
            step.keys["headers_env"] = secret
            self.note(KEYS_OUTSIDE)
        if data.get("ssl_verify") is False:
            self.note("the certificate of the service is checked")
        step.keys["expect"] = {"status": ["2xx", "4xx", "5xx"]}
        timeout = as_map(data.get("timeout"))
        wait = whole_number(timeout.get("max_read_timeout") or timeout.get("read"), 1)
        if wait is not None:
            step.keys["timeout"] = f"{wait}s"
        step.sample = "text"

    def _pairs(self, what: str, source: object) -> dict[str, str]:
        """The headers, parameters or fields of a form: lines of `key:value`, or a list of keys and values."""
        rows = [(str(each.get("key") or ""), str(each.get("value") or "")) for each in as_maps(source)]
        if not is_list(source):
            lines = (each.partition(":") for each in str(source or "").splitlines())
            rows = [(key, value.strip()) for key, _, value in lines]
        pairs: dict[str, str] = {}
        for key, value in ((key.strip(), value) for key, value in rows):
            if "{{" in key or (what == "header" and key and not _HEADER.fullmatch(key)):
                self.note(f"the {what} '{key[:40]}' is left out: its name is none that can be written")
            elif key:
                if key in pairs:
                    self.note(f"the {what} '{key[:40]}' stands twice, and the last one counts")
                pairs[key] = value
        return pairs

    def _hide(self, name: str, text: str, place: DifyNode) -> str:
        """A text of a request as a template; a key comes from the environment."""
        hidden = self.project.hide_secret(name, text, place.id)
        if hidden is None:
            return self.text(text, place)
        self.note(KEYS_OUTSIDE)
        return hidden

    def _secret(self, place: DifyNode, header: str, text: str, words: str = "") -> str:
        """The environment variable that holds a header's value."""
        inner = _REFERENCE.search(text)
        is_named = inner is not None and inner[1].startswith("env.")
        name = inner[1].removeprefix("env.") if inner is not None and is_named else f"{place.id}_{header}".upper()
        why = f"the header {header} of '{place.id}'{f', as `{words}`' if words else ''}"
        return self.project.add_variable(name, why)

    def _url(self, text: str, place: DifyNode, names: Sequence[str]) -> str:
        text = _REFERENCE.sub(lambda match: self.constants.get(match[1], match[0]), text.strip())
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
            return to_tag(to_expression(converted))
        if "@" in head[1] or not self.project.allow_http(f"{head[1]}/", names):
            raise UnknownValueError("an address whose host cannot be asked, or has a password")
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
            if any(each.get("type") == "file" for each in as_maps(data)):
                raise UnknownValueError("a form with files")
            step.keys["form"] = {key: self._hide(key, text, place) for key, text in self._pairs("field", data).items()}
            return
        if kind == "binary":
            raise UnknownValueError("a body that is a file")
        text = "\n".join(str(as_map(each).get("value") or "") for each in as_list(data)) if as_list(data) else str(data)
        if kind == "json":
            value = self._json(text, place)
            if value is not None:
                step.keys["json"] = value
                for key in [each for each in headers if each.lower() == "content-type"]:
                    del headers[key]
                return
            headers.setdefault("Content-Type", "application/json")
        if text.strip():
            step.keys["body"] = self.text(text, place)

    def _json(self, text: str, place: DifyNode) -> Any:
        """The JSON of a body with its references as templates; None where it is not JSON around them."""
        if "\x02" in text or "\x03" in text:
            return None  # They mark the references.
        matches: list[str] = []

        def mark(match: re.Match[str]) -> str:
            matches.append(match[0])
            return f"\x02{len(matches) - 1}\x03"

        text = _REFERENCE.sub(mark, text)
        bare = re.sub(
            r'("(?:[^"\\]|\\[\s\S]?)*+(?:"|\Z))|(\x02\d+\x03)', lambda match: match[1] or f'"{match[2]}"', text
        )
        try:
            value = json.loads(bare.replace("\x02", "\\u0002").replace("\x03", "\\u0003"))
        except (ValueError, RecursionError):
            return None

        def restore(value: Any, name: str = "") -> Any:
            if is_map(value):
                return {key: restore(each, key) for key, each in value.items()}
            if is_list(value):
                return [restore(each) for each in value]
            if isinstance(value, str):
                text = re.sub("\x02(\\d+)\x03", lambda match: matches[int(match[1])], value)
                return self._hide(name, text, place)
            return value

        return restore(value)
