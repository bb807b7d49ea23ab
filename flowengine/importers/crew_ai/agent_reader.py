"""Reads the agents of a crew: who they are, their models, their tools.

An agent that no task names is left out, and told.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from flowengine.core import is_map
from flowengine.importers.crew_ai.crew_classes import CrewClass, Entry, config_key
from flowengine.importers.crew_ai.crew_parts import CrewPart, CrewParts, CrewSetting
from flowengine.importers.crew_ai.crew_settings import AGENT_NOTES, OWN_FIELDS, Note, read_model
from flowengine.importers.crew_ai.crew_tools import tool_elements
from flowengine.importers.form import NOWHERE
from flowengine.importers.option_values import drop_refused
from flowengine.importers.python_code import call_name, text_of
from flowengine.importers.source_tree import as_list, as_map


def config_field(node: ast.expr) -> str | None:
    """`role` of `self.agents_config["x"]["role"]`."""
    return text_of(node.slice) if isinstance(node, ast.Subscript) and config_key(node.value) is not None else None


class AgentReader(CrewParts):
    """Reads the agents of a crew into entries of `agents`."""

    def _read_agents(self, crew: CrewClass | None) -> None:
        data: Mapping[str, Any] = self.agents_source.data if self.agents_source is not None else {}
        agents_in_use = self._agents_in_use(crew)
        done: set[str] = set()
        for name, entry in crew.agents.items() if crew is not None else ():
            key = config_key(entry.keywords.get("config")) or (name if "config" in entry.keywords else None)
            entry_settings = data.get(key) if key is not None else None
            done.add(key or name)
            if name in agents_in_use:
                self._read_agent(CrewPart(entry, key, as_map(entry_settings)))
            else:
                self.tell("changed", f"agent {name}", entry.place, "left out: no task names it")
                self._tell_left_agent(key, entry_settings)
        for name, entry_settings in data.items():
            if name in done or not is_map(entry_settings):
                continue
            if crew is None and (name in agents_in_use or not agents_in_use):
                self._read_agent(CrewPart(Entry(name, {}, NOWHERE), name, entry_settings))
            elif crew is None or name not in self._keys_of_others(crew, "agent"):
                self._tell_left_agent(name, entry_settings)

    def _tell_left_agent(self, key: str | None, settings: Any) -> None:
        if key is not None and is_map(settings) and self.agents_source is not None:
            place = self.agents_source.origin(key)
            self.tell("changed", f"agent {key}", place, "left out: no task of the crew names it")

    def _agents_in_use(self, crew: CrewClass | None) -> set[str]:
        data: Mapping[str, Any] = self.tasks_source.data
        names: set[str] = set()
        if crew is None:
            return {str(each.get("agent")) for each in data.values() if is_map(each) and each.get("agent")}
        for name, entry in crew.tasks.items():
            names.add(self._agent_of(name, entry.keywords, crew) or "")
        manager = crew.crew.keywords.get("manager_agent") if crew.crew is not None else None
        return names | ({call_name(manager).removeprefix("self.")} if manager is not None else set())

    def _agent_of(self, name: str, keywords: Mapping[str, ast.expr], crew: CrewClass) -> str | None:
        """The method of the agent that does a task."""
        node = keywords.get("agent")
        if node is not None:
            bare = call_name(node).removeprefix("self.")
            if bare in crew.agents:
                return bare
        key = config_key(keywords.get("config")) or name
        task = self.tasks_source.data.get(key)
        agent = task.get("agent") if is_map(task) else None
        if isinstance(agent, str):
            if agent in crew.agents:
                return agent
            matches = [each for each, entry in crew.agents.items() if config_key(entry.keywords.get("config")) == agent]
            if matches:
                return matches[0]
        return next(iter(crew.agents), None) if len(crew.agents) == 1 else None

    def _read_agent(self, part: CrewPart) -> None:
        agent: dict[str, Any] = {}
        texts: dict[str, str] = {}
        if part.entry.place != NOWHERE:
            self.tell("mapped", f"agent {part.name}", part.entry.place)
        for setting in self._settings_of("agent", part, self.agents_source):
            if setting.key in ("role", "goal", "backstory"):
                if setting.node is None or isinstance(setting.value, str):
                    texts[setting.key] = self._text(setting.value)
                    self._tell_of(setting, "mapped", "part of the system message")
                elif config_field(setting.node) is None:
                    self._tell_of(setting, "lost", "it is made by code", "write it into the system message")
                else:
                    self._tell_of(setting, "mapped")
            elif setting.key == "config" and setting.node is not None:
                lacks = "" if part.settings else "there is no such agent in the file"
                self._tell_of(setting, "lost" if lacks else "mapped", lacks, "write the agent")
            else:
                self._read_agent_setting(agent, setting)
        lines = [f"You are {texts['role']}." if texts.get("role") else "", texts.get("backstory", "")]
        lines.append(f"Your goal: {texts['goal']}" if texts.get("goal") else "")
        agent["system_message"] = "\n".join(each for each in lines if each) or "You help with the task."
        if "memory" in self.settings and "memory" not in agent:
            agent["memory"] = {}
        agent = {each: agent[each] for each in ("model", "system_message") if each in agent} | agent
        if "timeout" in agent:
            self.timeouts[part.name] = agent.pop("timeout")
        identifier = self.step_names.id(part.name, "agent")
        self.agent_ids[part.name] = identifier
        self.flow.agents[identifier] = agent

    def _read_agent_setting(self, agent: dict[str, Any], setting: CrewSetting) -> None:
        key, value = setting.key, setting.value
        if key == "llm":
            choice = read_model(value if setting.node is None else setting.node, self.crew)
            refusals = drop_refused(choice.model, choice.keys)
            if choice.model is not None:
                agent["model"] = choice.model
            agent |= choice.keys
            outcome = "changed" if refusals and choice.outcome == "mapped" else choice.outcome
            self._tell_of(setting, outcome, "; ".join([choice.note, *refusals]), choice.by_hand)
        elif key == "tools":
            self._read_tools(agent, setting)
        elif key in ("max_iter", "max_iterations") and isinstance(value, int) and 1 <= value <= 1000:
            agent["max_tool_rounds"] = value
            self._tell_of(setting, "mapped")
        elif key == "max_execution_time" and type(value) is int and value > 0:
            agent["timeout"] = f"{value}s"
            self._tell_of(setting, "changed", f"the tasks of it have `timeout: {value}s`")
        elif key == "memory" and value is True:
            agent["memory"] = {}
            self._tell_of(setting, "changed", "`memory` of the agent")
        elif key == "allow_delegation" and value is True:
            self._tell_of(setting, "lost", "agents do not hand tasks to each other", "let a `routing` node choose")
        elif key == "reasoning" and value is True:
            agent["reasoning_effort"] = "medium"
            self._tell_of(setting, "changed", "`reasoning_effort: medium`, where the model has it")
        else:
            self._tell_other(setting, AGENT_NOTES)

    def _tell_other(self, setting: CrewSetting, notes: Mapping[str, Note], by_hand: str = "") -> None:
        """Tell of a setting that nothing here reads."""
        if setting.key in notes:
            outcome, note = (
                notes[setting.key] if setting.value not in (False, None) else ("mapped", "what holds anyway")
            )
            self._tell_of(setting, outcome, note)
        elif setting.value in (False, None, []):
            self._tell_of(setting, "mapped", "what holds anyway")
        elif setting.node is None and setting.key not in OWN_FIELDS:
            self._tell_of(setting, "mapped", "CrewAI leaves such a key out, too")
        else:
            self._tell_of(setting, "lost", "it has no counterpart", by_hand)

    def _read_tools(self, holder: dict[str, Any], setting: CrewSetting) -> None:
        if setting.node is None or self.crew is None:
            names = [str(each) for each in as_list(setting.value)]
            self._read_named_tools(holder, setting, names)
            if not names:
                self._tell_of(setting, "mapped")
            return
        elements, rest = tool_elements(setting.node, self.crew)
        for each in elements:
            tool = self.tools.of(each, self.crew)
            if tool.call not in holder.get("tools", []):
                holder.setdefault("tools", []).append(tool.call)
            what = f"{setting.what}: {ast.unparse(each)[:80]}"
            at = self.crew.source.place(each)
            if tool.problem:
                self.tell("lost", what, at, tool.problem, f"write {tool.call.partition(':')[2]} in imported_stubs.py")
            else:
                self.tell("changed", what, at, tool.change)
        for each in rest:
            what, at = f"{setting.what}: {ast.unparse(each)[:80]}", self.crew.source.place(each)
            self.tell("lost", what, at, "code makes the list", "name the tools")
        if not elements and not rest:
            self._tell_of(setting, "mapped")

    def _read_named_tools(self, holder: dict[str, Any], setting: CrewSetting, names: list[str]) -> None:
        """Tools that the YAML names: methods of the crew that are marked as tools, or classes of `crewai_tools`."""
        crew = self.crew
        for name in names:
            tool_setting = setting._replace(what=f"{setting.what}: {name}")
            if crew is None:
                self._tell_of(tool_setting, "lost", "the code that makes it is not there", "write the tool")
                continue
            node = crew.tool_named(name)
            tool = self.tools.of(node, crew) if node is not None else None
            if tool is None or tool.problem:
                why = tool.problem if tool is not None else "the crew does not make it"
                self._tell_of(tool_setting, "lost", why, "write the tool")
            else:
                holder.setdefault("tools", []).append(tool.call)
                self._tell_of(tool_setting, "changed", tool.change)
