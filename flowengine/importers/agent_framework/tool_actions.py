"""Converts the actions that reach outside: functions, tools of servers, requests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from flowengine.importers.agent_framework.action_flow import Action, ActionLevel, Exits
from flowengine.importers.agent_framework.agent_actions import AgentActions
from flowengine.importers.agent_framework.power_fx import FxError
from flowengine.importers.flow_text import plain_words, to_tag
from flowengine.importers.form import FlowStep, Stub
from flowengine.importers.import_names import FieldNames, Names
from flowengine.importers.option_values import KEYS_OUTSIDE, SECRET_HEADER
from flowengine.importers.sample_values import sample_of_schema
from flowengine.importers.source_tree import as_map

_ADDRESS: Final = re.compile(
    r"=?\s*(?:\$?\"|Concatenate\(\s*\"|Concat\(\s*\")?(https?://[^/?#{}\"\s@]+)(?=[/?#\"]|\Z)", re.ASCII
)
"""An address, or a formula that begins with one, with its host."""


class ToolActions(AgentActions):
    """The actions by the names of their kinds."""

    # --- Tools and requests

    def _do_invoke_function_tool(self, action: Action, level: ActionLevel, exits: Exits | None) -> Exits:
        data = action.data
        name = str(data.get("functionName") or action.id)
        step = FlowStep(self._names.id(action.id), "function", action.origin)
        function = self._stub_names.id(name, "tool")
        step.call = f"stubs:{function}"
        step.sample = "made up"
        names = FieldNames()
        for key, value in self._arguments(step, data.get("arguments")).items():
            if re.fullmatch(r"[A-Za-z_]\w*", key, re.ASCII):
                step.arguments[names.id(key, "argument")] = value
            else:
                self._changes.append(f"the argument '{plain_words(key, 40)}' is left out: Python has no such name")
        what = f"function '{plain_words(name, 60)}'"
        stub = Stub(step.call, list(step.arguments), f"The function {plain_words(name, 60)}.", action.origin)
        if self.project.add_stub(stub):
            by_hand = f"write {function} in stubs.py"
            self._ledger.note_lost(what, action.origin, "its code is not in the file", by_hand)
        self._take_result(step, data)
        return self._add_tool(action, step, level, exits)

    def _arguments(self, step: FlowStep, arguments: object) -> dict[str, Any]:
        """The arguments of a call, whose keys come from the environment."""
        values: dict[str, Any] = {}
        for key, value in as_map(arguments).items():
            placeholder = self.project.hide_secret(key, value, step.id)
            self._changes += [KEYS_OUTSIDE] if placeholder else []
            values[str(key)] = placeholder or self._value(value)
        return values

    def _take_result(self, step: FlowStep, data: Mapping[str, Any]) -> None:
        """Put what a tool gives where its action says: into variables, messages, a conversation."""
        output, sets = as_map(data.get("output")), dict[str, Any]()
        for key in ("result", "messages"):
            if output.get(key):
                sets[self._variable(output[key])] = "{{ output }}"
        if output.get("autoSend"):
            sets[self._messages()] = "{{ [output] }}"
        conversation = self._conversation(data.get("conversationId"))
        if conversation is not None:
            sets[conversation] = "{{ [{'Role': 'Tool', 'Text': output }] }}"
            self._spoken.add(conversation)
        if sets:
            step.keys["set"] = sets

    def _add_tool(self, action: Action, step: FlowStep, level: ActionLevel, exits: Exits | None) -> Exits:
        """Add a tool's node, behind one that asks a person where the action wants it."""
        approval = action.data.get("requireApproval")
        if not approval or str(approval).lower() == "false":
            return level.add(step, exits)
        ask = FlowStep(self._names.id(f"approve_{action.id}"), "approval", action.origin)
        ask.keys["message"] = f"Call {plain_words(action.data.get('toolName') or action.data.get('functionName'), 80)}?"
        ask.keys["routes"] = {"yes": {"to": step.id}, "no": {}}
        if isinstance(approval, str) and approval.startswith("="):
            ask.keys["routes"] = {"yes": {}, "no": {}}
            ask.when = self._condition(approval)
            step.when = f'nodes.{ask.id}.status == "skipped" or {ask.test_of("yes")}'
            step.needs = [ask.id]
            step.keys["join"] = "always"
            self._changes.append("who refuses the call ends this way of the flow")
        level.add(ask, exits)
        return level.add(step, None)

    def _do_invoke_mcp_tool(self, action: Action, level: ActionLevel, exits: Exits | None) -> Exits:
        data = action.data
        raw, tool = str(data.get("serverUrl") or ""), str(data.get("toolName") or "")
        step = FlowStep(self._names.id(action.id), "tool", action.origin)
        if tool.startswith("=") or not re.fullmatch(r"[\w.-]+", tool, re.ASCII):
            raise FxError("a tool whose name is in the file")
        if not re.fullmatch(r"https?://[^\s{}\"'@]+", raw) and not raw.startswith("=Env."):
            raise FxError("a server whose address is a formula")
        step.arguments = self._arguments(step, data.get("arguments"))
        for key in step.arguments:
            if not re.fullmatch(r"[a-z][a-z0-9_]*", key):
                raise FxError(f"an argument called '{plain_words(key, 60)}', which is no name of the format")
        if raw.startswith("=Env."):
            self._by_hand = f"put the address of {plain_words(raw, 60)} in the place of https://mcp.example.com/"
            raw = "https://mcp.example.com/"
        servers: list[dict[str, Any]] = self._flow.keys.setdefault("mcp_servers", [])
        server = next((each for each in servers if each["url"] == raw), None)
        if server is None:
            label = str(data.get("serverLabel") or "server")
            name = Names(each["name"] for each in servers).id(label if not label.startswith("=") else "server")
            server = dict[str, Any](name=name, url=raw)
            servers.append(server)
            self.project.allow_mcp(raw)
        for header in as_map(data.get("headers")):
            why = f"the header {plain_words(header, 40)} of the server {server['name']}"
            variable = self.project.add_variable(f"{server['name']}_{header}".upper(), why)
            server.setdefault("headers_env", {})[str(header)] = variable
        step.keys["tool"] = f"{server['name']}.{tool}"
        step.sample = "made up"
        self._take_result(step, data)
        return self._add_tool(action, step, level, exits)

    def _do_http_request_action(self, action: Action, level: ActionLevel, exits: Exits | None) -> Exits:
        data = action.data
        step = FlowStep(self._names.id(action.id), "http", action.origin)
        method = str(data.get("method") or "GET").upper()
        if method not in {"GET", "HEAD", "PUT", "DELETE", "POST", "PATCH"}:
            raise FxError(f"the method '{plain_words(method, 20)}'")
        if method != "GET":
            step.keys["method"] = method
        url = str(data.get("url") or "")
        host = _ADDRESS.match(url)
        if host is None:
            raise FxError("an address whose host is a formula, or has a password")
        step.keys["url"] = self._text(url)
        variables: list[str] = []
        for key, value in as_map(data.get("headers")).items():
            if not SECRET_HEADER.search(key):
                step.keys.setdefault("headers", {})[key] = self._text(value)
                continue
            why = f"the header {plain_words(key, 40)} of `{step.id}`"
            variables.append(self.project.add_variable(f"{step.id}_{key}".upper(), why))
            step.keys.setdefault("headers_env", {})[key] = variables[-1]
            self._changes.append(KEYS_OUTSIDE)
        query = self._arguments(step, data.get("queryParameters"))
        if query:
            step.keys["query"] = query
        body = as_map(data.get("body"))
        if body and method not in {"GET", "HEAD"}:
            content = body.get("content", body.get("value", body))
            is_json = "json" in str(body.get("kind") or "json").lower()
            step.keys["json" if is_json else "body"] = self._value(content) if is_json else self._text(content)
        if not self.project.allow_http(f"{host[1]}/", variables):
            raise FxError(f"the address {plain_words(host[1], 60)}")
        shape = self._schema_of(tuple(str(as_map(data.get("response")).get("path", data.get("response"))).split(".")))
        step.sample = "made up" if shape is None else sample_of_schema(shape)
        sets: dict[str, Any] = {}
        for key, field in (("response", "body"), ("responseHeaders", "headers"), ("statusCode", "status")):
            if data.get(key):
                sets[self._variable(data[key])] = to_tag(f"output.{field}")
        conversation = self._conversation(data.get("conversationId"))
        if conversation is not None:
            sets[conversation] = "{{ [{'Role': 'Response', 'Text': output.body }] }}"
            self._spoken.add(conversation)
        if sets:
            step.keys["set"] = sets
        return level.add(step, exits)

    _do_http_request = _do_http_request_action
