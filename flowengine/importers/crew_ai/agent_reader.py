"""Reads the agents of a crew: who they are, their models, their tools.

An agent that no task names is left out, and told.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from flowengine.core.values import is_map
from flowengine.importers.crew_ai.crew_classes import CrewClass, config_key, crew_classes
from flowengine.importers.crew_ai.crew_parts import CrewParts
from flowengine.importers.crew_ai.crew_settings import AGENT_NOTES, OWN_FIELDS, read_model
from flowengine.importers.crew_ai.crew_tools import tool_elements
from flowengine.importers.form import SourcePlace
from flowengine.importers.python_code import call_name, literal_of
from flowengine.importers.source_tree import as_list

__all__ = ["AgentReader", "config_field"]


def config_field(node: ast.expr) -> str | None:
    """`role` of `self.agents_config["x"]["role"]`."""
    if isinstance(node, ast.Subscript) and config_key(node.value) is not None:
        found = literal_of(node.slice)
        return found if isinstance(found, str) else None
    return None


class AgentReader(CrewParts):
    """Reads the agents of a crew into entries of `agents`."""

    def _read_agents(self, crew: CrewClass | None) -> None:
        data: Mapping[str, Any] = self.agents_source.data if self.agents_source is not None else {}
        used = self._agents_in_use(crew)
        done: set[str] = set()
        if crew is not None:
            for name, entry in crew.agents.items():
                key = config_key(entry.keywords.get("config")) or (name if "config" in entry.keywords else None)
                held = data.get(key) if key is not None else None
                done.add(key or name)
                if name not in used:
                    self.tell("changed", f"agent {name}", entry.place, "left out: no task names it")
                    self._tell_left_agent(key, held)
                    continue
                self._read_agent(name, key, held if is_map(held) else {}, entry.keywords, entry.place)
        for name, held in data.items():
            if name in done or not is_map(held):
                continue
            if crew is None and (name in used or not used):
                self._read_agent(name, name, held, {}, None)
            elif crew is None or name not in self._keys_of_others(crew):
                self._tell_left_agent(name, held)

    def _keys_of_others(self, crew: CrewClass) -> set[str]:
        others = crew_classes(crew.source, self.files)
        return {
            config_key(entry.keywords.get("config")) or name for each in others for name, entry in each.agents.items()
        }

    def _tell_left_agent(self, key: str | None, held: Any) -> None:
        if key is not None and is_map(held) and self.agents_source is not None:
            place = self.agents_source.origin(key)
            self.tell("changed", f"agent {key}", place, "left out: no task of the crew names it")

    def _agents_in_use(self, crew: CrewClass | None) -> set[str]:
        data: Mapping[str, Any] = self.tasks_source.data
        found: set[str] = set()
        if crew is None:
            return {str(each.get("agent")) for each in data.values() if is_map(each) and each.get("agent")}
        for name, entry in crew.tasks.items():
            found.add(self._agent_of(name, entry.keywords, crew) or "")
        manager = crew.crew.keywords.get("manager_agent") if crew.crew is not None else None
        return found | ({call_name(manager).removeprefix("self.")} if manager is not None else set())

    def _agent_of(self, name: str, keywords: Mapping[str, ast.expr], crew: CrewClass) -> str | None:
        """The method of the agent that does a task."""
        node = keywords.get("agent")
        if node is not None:
            bare = call_name(node).removeprefix("self.")
            if bare in crew.agents:
                return bare
        key = config_key(keywords.get("config")) or name
        held = self.tasks_source.data.get(key)
        named = held.get("agent") if is_map(held) else None
        if isinstance(named, str):
            if named in crew.agents:
                return named
            keyed = [each for each, entry in crew.agents.items() if config_key(entry.keywords.get("config")) == named]
            if keyed:
                return keyed[0]
        return next(iter(crew.agents), None) if len(crew.agents) == 1 else None

    def _read_agent(
        self,
        name: str,
        key: str | None,
        held: Mapping[str, Any],
        keywords: Mapping[str, ast.expr],
        place: SourcePlace | None,
    ) -> None:
        agent: dict[str, Any] = {}
        texts: dict[str, str] = {}
        if place is not None:
            self.tell("mapped", f"agent {name}", place)
        for each, value in held.items():
            assert key is not None
            assert self.agents_source is not None
            at = self.agents_source.origin(key, each)
            what = f"agent {key}: {each}"
            if each in ("role", "goal", "backstory"):
                texts[each] = self._text(value)
                self.tell("mapped", what, at, "part of the system message")
            else:
                self._read_agent_setting(agent, what, each, value, None, at)
        for each, node in keywords.items():
            crew = self.crew
            assert crew is not None
            at = crew.place(node)
            what = f"agent {name}: {each}"
            if each in ("role", "goal", "backstory"):
                value = literal_of(crew.resolve(node))
                if isinstance(value, str):
                    texts[each] = self._text(value)
                    self.tell("mapped", what, at, "part of the system message")
                elif config_field(node) is None:
                    self.tell("lost", what, at, "it is made by code", "write it into the system message")
                else:
                    self.tell("mapped", what, at)
            elif each == "config":
                outcome = "mapped" if held else "lost"
                self.tell(outcome, what, at, "" if held else "there is no such agent in the file", "write the agent")
            else:
                self._read_agent_setting(agent, what, each, literal_of(crew.resolve(node), node), node, at)
        lines = [f"You are {texts['role']}." if texts.get("role") else "", texts.get("backstory", "")]
        lines.append(f"Your goal: {texts['goal']}" if texts.get("goal") else "")
        agent["system_message"] = "\n".join(each for each in lines if each) or "You help with the task."
        if "memory" in self.settings and "memory" not in agent:
            agent["memory"] = {}
        agent = {each: agent[each] for each in ("model", "system_message") if each in agent} | agent
        if "timeout" in agent:
            self.timeouts[name] = agent.pop("timeout")
        identifier = self.step_names.id(name, "agent")
        self.agent_ids[name] = identifier
        self.flow.agents[identifier] = agent

    def _read_agent_setting(
        self, agent: dict[str, Any], what: str, key: str, value: Any, node: ast.expr | None, place: SourcePlace
    ) -> None:
        if key == "llm":
            found = read_model(value if node is None else node, self.crew)
            if found.model is not None:
                agent["model"] = found.model
            agent |= found.keys
            self.tell(found.outcome, what, place, found.note, found.by_hand)
        elif key == "tools":
            self._read_tools(agent, what, value, node, place)
        elif key in ("max_iter", "max_iterations") and isinstance(value, int) and 1 <= value <= 1000:
            agent["max_tool_rounds"] = value
            self.tell("mapped", what, place)
        elif key == "max_execution_time" and type(value) is int and value > 0:
            agent["timeout"] = f"{value}s"
            self.tell("changed", what, place, f"the tasks of it have `timeout: {value}s`")
        elif key == "memory" and value is True:
            agent["memory"] = {}
            self.tell("changed", what, place, "`memory` of the agent")
        elif key == "allow_delegation" and value is True:
            self.tell("lost", what, place, "agents do not hand tasks to each other", "let a `routing` node choose")
        elif key == "reasoning" and value is True:
            agent["reasoning_effort"] = "medium"
            self.tell("changed", what, place, "`reasoning_effort: medium`, where the model has it")
        elif key in AGENT_NOTES:
            outcome, note = AGENT_NOTES[key] if value not in (False, None) else ("mapped", "what holds anyway")
            self.tell(outcome, what, place, note)
        elif value in (False, None, []):
            self.tell("mapped", what, place, "what holds anyway")
        elif node is None and key not in OWN_FIELDS:
            self.tell("mapped", what, place, "CrewAI leaves such a key out, too")
        else:
            self.tell("lost", what, place, "it has no counterpart")

    def _read_tools(
        self, holder: dict[str, Any], what: str, value: Any, node: ast.expr | None, place: SourcePlace
    ) -> None:
        if node is None or self.crew is None:
            names = [str(each) for each in as_list(value)]
            self._read_named_tools(holder, what, names, place)
            if not names:
                self.tell("mapped", what, place)
            return
        found, rest = tool_elements(node, self.crew)
        for each in found:
            tool = self.tools.of(each, self.crew)
            if tool.call not in holder.get("tools", []):
                holder.setdefault("tools", []).append(tool.call)
            told = f"{what}: {ast.unparse(each)[:80]}"
            at = self.crew.place(each)
            if tool.lost:
                self.tell("lost", told, at, tool.lost, f"write {tool.call.partition(':')[2]} in imported_stubs.py")
            else:
                self.tell("changed", told, at, tool.change)
        for each in rest:
            told, at = f"{what}: {ast.unparse(each)[:80]}", self.crew.place(each)
            self.tell("lost", told, at, "code makes the list", "name the tools")
        if not found and not rest:
            self.tell("mapped", what, place)

    def _read_named_tools(self, holder: dict[str, Any], what: str, names: list[str], place: SourcePlace) -> None:
        """Tools that the YAML names: methods of the crew that are marked as tools, or classes of `crewai_tools`."""
        for name in names:
            crew = self.crew
            if crew is None:
                self.tell("lost", f"{what}: {name}", place, "the code that makes it is not there", "write the tool")
                continue
            node = crew.tool_named(name)
            tool = self.tools.of(node, crew) if node is not None else None
            if tool is None or tool.lost:
                why = tool.lost if tool is not None else "the crew does not make it"
                self.tell("lost", f"{what}: {name}", place, why, "write the tool")
            else:
                holder.setdefault("tools", []).append(tool.call)
                self.tell("changed", f"{what}: {name}", place, tool.change)
