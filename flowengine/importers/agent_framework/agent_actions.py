"""Converts the actions that speak: messages to the user, questions, conversations, agents."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from flowengine.importers.agent_framework.action_flow import Action, ActionLevel, Exits
from flowengine.importers.agent_framework.prompt_agents import agent_settings
from flowengine.importers.agent_framework.variable_actions import VariableActions
from flowengine.importers.agent_framework.workflow_values import ROW, inner, split_name
from flowengine.importers.flow_text import literal, plain_words, quote, status_test, to_tag
from flowengine.importers.form import FlowStep, SourcePlace
from flowengine.importers.import_names import Names
from flowengine.importers.source_tree import as_list, as_map


class AgentActions(VariableActions):
    """The actions by the names of their kinds."""

    # --- Messages

    def _messages(self) -> str:
        """The key of the state that holds what is shown to the user."""
        if not self._messages_key:
            self._messages_key = self._state_names.id("messages")
            self._flow.shared_state[self._messages_key] = {"type": "array", "default": [], "merge": "append"}
            self._flow.outputs[self._output_names.id("messages")] = to_tag(f"shared_state.{self._messages_key}")
        return self._messages_key

    def _do_send_activity(self, action: Action, level: ActionLevel, exits: Exits | None) -> Exits:
        text = self._text(action.data.get("activity", action.data.get("message")))
        step = level.give(action.id, text, action.origin, {self._messages(): "{{ [output] }}"})
        return level.add(step, exits)

    _do_send_message = _do_send_activity

    def _do_question(self, action: Action, level: ActionLevel, exits: Exits | None) -> Exits:
        data = action.data
        prompt = data.get("prompt", data.get("question", data.get("message")))
        message = self._text(as_map(prompt).get("text", prompt)) if prompt else "Please answer."
        answer: dict[str, Any] = {"type": "string"}
        if isinstance(data.get("default"), str):
            answer["default"] = data["default"]
        step = self._ask_user(action.id, message or "Please answer.", answer, action.origin)
        target = data.get("property") or data.get("variable") or data.get("output")
        if target:
            step.keys["set"][self._variable(as_map(target).get("property", target))] = "{{ output.form.answer }}"
        entity = as_map(data.get("entity"))
        if entity and entity.get("kind") not in {"StringPrebuiltEntity", None}:
            self._changes.append("the answer is a text; its kind is not checked")
        return level.add(step, exits)

    def _ask_user(self, id: str, message: str, answer: dict[str, Any], origin: SourcePlace) -> FlowStep:
        """A node that waits for what the user says, and keeps it where a formula reads it."""
        step = FlowStep(self._names.id(id), "approval", origin, sample=self._answer())
        step.keys["message"] = message
        step.keys["form"] = {"type": "object", "properties": {"answer": answer}, "required": ["answer"]}
        step.keys["routes"] = {"answer": {}}
        step.keys["set"] = {self._last_message(): "{{ output.form.answer }}"} if self._hears else {}
        return step

    _do_request_external_input = _do_question
    _do_wait_for_input = _do_question
    _do_confirmation = _do_question

    # --- Conversations

    def _conversation(self, value: object) -> str | None:
        """The key of the state that holds a conversation; None for one that is new each time."""
        if value is None:
            return None
        text = str(as_map(value).get("path", value) or "").removeprefix("=").strip()
        path = tuple(text.split("."))
        if path[:1] == ("System",):
            path = ("System", "ConversationId")
        if len(path) < 2 or not all(re.fullmatch(r"\w+", each) for each in path):
            return None
        if path not in self._conversations:
            name = "conversation" if path[0] == "System" else f"{path[-1].removesuffix('Id')}_messages"
            key = self._state_names.id(name, "conversation")
            self._conversations[path] = key
            self._flow.shared_state[key] = {"type": "array", "default": [], "merge": "append"}
        return self._conversations[path]

    def _list_of(self, data: Mapping[str, Any]) -> str:
        """The key of the conversation that an action names; without one, the user's."""
        return (
            self._conversation(data.get("conversationId"))
            or self._conversation("System.ConversationId")
            or "conversation"
        )

    def _do_create_conversation(self, action: Action, level: ActionLevel, exits: Exits | None) -> Exits:
        conversation = self._conversation(action.data.get("conversationId"))
        key = self._variable(action.data.get("conversationId"))
        return self._set(action, level, exits, {key: conversation or key})

    def _do_add_conversation_message(self, action: Action, level: ActionLevel, exits: Exits | None) -> Exits:
        data = action.data
        conversation = self._list_of(data)
        parts = [self._text(as_map(each).get("value")) for each in as_list(data.get("content"))]
        text = (
            "\n".join(parts)
            if parts
            else self._text(data.get("message") if not data.get("content") else data["content"])
        )
        value = {"Id": f"{{{{ run.id }}}}-{action.id}", "Role": str(data.get("role") or "User"), "Text": text}
        step = level.give(action.id, value, action.origin, {conversation: "{{ [output] }}"})
        if data.get("message") and parts:
            step.keys["set"][self._variable(data["message"])] = "{{ output }}"
        self._spoken.add(conversation)
        return level.add(step, exits)

    def _do_retrieve_conversation_message(self, action: Action, level: ActionLevel, exits: Exits | None) -> Exits:
        data = action.data
        conversation = self._list_of(data)
        message_id = inner(self._value(data.get("messageId")))
        key = self._variable(data.get("message"))
        first_match = (
            f'(shared_state.{conversation} | selectattr("Id", "==", {message_id}) | list | first | default(""))'
        )
        return self._set(action, level, exits, {key: to_tag(first_match)})

    def _do_retrieve_conversation_messages(self, action: Action, level: ActionLevel, exits: Exits | None) -> Exits:
        value = to_tag(f"shared_state.{self._list_of(action.data)}")
        return self._set(action, level, exits, {self._variable(action.data.get("messages")): value})

    def _do_copy_conversation_messages(self, action: Action, level: ActionLevel, exits: Exits | None) -> Exits:
        conversation = self._list_of(action.data)
        more = "{{ output if output is sequence and output is not string else [output] }}"
        step = level.give(action.id, self._value(action.data.get("messages")), action.origin, {conversation: more})
        self._spoken.add(conversation)
        return level.add(step, exits)

    # --- Agents

    def _do_invoke_azure_agent(self, action: Action, level: ActionLevel, exits: Exits | None) -> Exits:
        data = action.data
        raw: Any = data.get("input")
        inputs, output = as_map({"messages": raw} if isinstance(raw, str) else raw), as_map(data.get("output"))
        outer = as_map(inputs.get("externalLoop")).get("when")
        if outer:
            return self._agent_with_user(action, level, exits, str(outer))
        step = FlowStep(self._names.id(action.id), "agent", action.origin)
        self._fill_agent(action, step, inputs, output, in_loop=level.parent is not None)
        return level.add(step, exits)

    _do_invoke_agent = _do_invoke_azure_agent
    _do_invoke_prompt_agent = _do_invoke_azure_agent

    def _fill_agent(
        self, action: Action, step: FlowStep, inputs: Mapping[str, Any], output: Mapping[str, Any], *, in_loop: bool
    ) -> None:
        agent = action.data.get("agent")
        name = str(
            as_map(agent).get("name")
            or action.data.get("agentName")
            or action.data.get("agentId")
            or (agent if isinstance(agent, str) else "")
            or "agent"
        )
        step.keys["agent"] = self._agent(name, action.origin)
        conversation = self._conversation(action.data.get("conversationId"))
        prompt = self._text(inputs["messages"]) if inputs.get("messages") else ""
        parts: list[str] = []
        if conversation is not None:
            if conversation == "conversation" or not prompt:
                self._take_message()
            user = "{{ inputs.message }}"
            if (conversation == "conversation" or not prompt) and prompt != user:
                parts.append(user)
            if conversation in self._spoken or in_loop:
                turns = f"{{% for turn in shared_state.{conversation} %}}"
                parts.append(turns + "{{ turn.Role }}: {{ turn.Text }}\n{% endfor %}")
        elif not prompt:
            self._take_message()
            parts.append("{{ inputs.message }}")
        if prompt:
            parts.append(prompt)
        arguments = {str(key): self._value(each) for key, each in as_map(inputs.get("arguments")).items()}
        texts = {key: each if isinstance(each, str) else to_tag(inner(each)) for key, each in arguments.items()}
        parts += [f"{literal(key)}: {each}" for key, each in texts.items()]
        step.prompt = "\n\n".join(parts)
        if arguments:
            self._changes.append("its arguments are lines of the prompt")
        sets: dict[str, Any] = {}
        if conversation is not None:
            messages = (
                []
                if not prompt or prompt == "{{ inputs.message }}"
                else [f"{{'Role': 'User', 'Text': {inner(prompt)}}}"]
            )
            messages.append(f"{{'Role': {quote(name.removeprefix('='))}, 'Text': output }}")
            sets[conversation] = "{{ [" + ", ".join(each.replace("}}", "} }") for each in messages) + "] }}"
            self._spoken.add(conversation)
            self._changes.append("what was said before is a part of the prompt")
        shape = output.get("responseObject")
        if shape:
            key = self._variable(shape)
            sets[key] = "{{ output }}"
            schema = self._schema_of(tuple(str(as_map(shape).get("path", shape)).split(".")))
            if schema is not None and schema["type"] == "object":
                step.keys["output"] = schema
                self._changes.append("the shape of its answer is made of the fields that are read")
        for each in ("messages", "response", "result"):
            if output.get(each):
                sets[self._variable(output[each])] = (
                    "{{ output }}" if "output" not in step.keys else "{{ output | tojson }}"
                )
        if output.get("autoSend", True):
            sets[self._messages()] = "{{ [output] }}"
        if sets:
            step.keys["set"] = sets

    def _agent(self, name: str, origin: SourcePlace) -> str:
        """The agent of the flow that a name means; its definition is an element of its own."""
        if name in self._agent_names:
            return self._agent_names[name]
        plain = name.removeprefix("=Env.").removeprefix("=")
        is_known = not name.startswith("=") or name.startswith("=Env.")
        id = Names({*self._flow.agents}).id(plain if is_known else "chosen_agent", "agent")
        self._agent_names[name] = id
        beside = self._beside.get(name.lower())
        if beside is not None:
            settings = agent_settings(beside, self.project, self._stub_names)
            self._flow.agents[id] = settings
            return id
        if not is_known:
            agent = self._fx.expression(name[1:])
            self._flow.agents[id] = {"instructions": f"You are the agent {{{{ {agent} }}}}."}
            self._ledger.note_lost(
                "agent that a formula names",
                origin,
                "which agent it is shows in a run alone",
                "add a condition with a node for each agent",
            )
            return id
        self._flow.agents[id] = {"instructions": f"You are {literal(plain_words(plain, 100))}."}
        self._ledger.note_changed(
            f"agent '{plain_words(plain, 60)}'",
            origin,
            "an agent that is told its name alone: what else it is told, its model and its tools are not in the file",
            f"write them at `agents.{id}`",
        )
        return id

    def _schema_of(self, path: tuple[str, ...]) -> dict[str, Any] | None:
        """The shape of an answer, of the fields that formulas read; None where they read none."""
        fields = self._fields.get(split_name(path)[0], {})
        return _shape_of(fields, "any") if fields else None

    def _agent_with_user(self, action: Action, level: ActionLevel, exits: Exits | None, outer: str) -> Exits:
        """An agent that is asked again with what the user says to its answer, while a condition holds."""
        conversation_id = action.data.get("conversationId") or f"Local.{action.id}"
        conversation = self._conversation(conversation_id)
        inputs = {key: each for key, each in as_map(action.data.get("input")).items() if key != "externalLoop"}
        agent = Action(action.kind, {**action.data, "conversationId": conversation_id}, action.origin, action.id)
        again = self._condition(outer)
        step = FlowStep(self._names.id(action.id), "agent", action.origin)
        self._take_message()
        self._fill_agent(agent, step, inputs, as_map(action.data.get("output")), in_loop=True)
        answer = to_tag(f"nodes.{step.id}.output")
        ask = self._ask_user(f"{action.id}_answer", answer, {"type": "string"}, action.origin)
        ask.needs = [step.id]
        ask.when = again
        if conversation is not None:
            ask.keys["set"][conversation] = "{{ [{'Role': 'User', 'Text': output.form.answer }] }}"
        turn = FlowStep(self._names.id(f"{action.id}_talk"), "loop", action.origin)
        turn.keys |= {"max_iterations": 100, "until": status_test(ask.id, "!=")}
        turn.body = [step, ask]
        return level.add(turn, exits)


def _shape_of(fields: Mapping[tuple[str, ...], str], kind: str) -> dict[str, Any]:
    """The JSON Schema of a value by the kinds of its fields; `ROW` stands for each row of a table."""
    inner: dict[str, dict[tuple[str, ...], str]] = {}
    for (first, *rest), each in sorted(fields.items()):
        inner.setdefault(first, {})[tuple(rest)] = each
    shapes = {
        name: _shape_of({path: each for path, each in kinds.items() if path}, kinds.get((), "any"))
        for name, kinds in inner.items()
    }
    if ROW in shapes:
        return {"type": "array", "items": shapes[ROW]}
    if shapes:
        return {"type": "object", "properties": shapes, "required": list(shapes)}
    return {"type": kind if kind in {"boolean", "number"} else "string"}
