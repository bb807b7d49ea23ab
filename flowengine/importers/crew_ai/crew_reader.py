"""Reads the crews of a CrewAI project, each into a flow: agents, tasks, what the tasks see of each other.

It reads `agents.yaml`, `tasks.yaml` and the class that makes agents and tasks of them; where the Python is not there,
the YAML alone. Each task is a node; files that it writes and people that it asks are nodes behind it.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final

from flowengine.core import is_map
from flowengine.importers.crew_ai.agent_reader import AgentReader, config_field
from flowengine.importers.crew_ai.class_fields import ClassShapes
from flowengine.importers.crew_ai.crew_classes import CrewClass, Entry, config_key, find_rewrites
from flowengine.importers.crew_ai.crew_parts import CrewPart, CrewSetting, text_with_inputs
from flowengine.importers.crew_ai.crew_settings import CREW_NOTES, TASK_NOTES
from flowengine.importers.flow_text import literal, to_tag
from flowengine.importers.form import FlowStep, ImportedFlow, SourcePlace
from flowengine.importers.import_names import Names
from flowengine.importers.python_code import call_name, last_name, literal_of
from flowengine.importers.source_tree import as_map, is_list

_FILES_MODULE: Final = '''\
"""Writes what tasks give into files of the project."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent


def write_text(path: str, text: Any) -> str:
    """Write a text, or a value as JSON, into a file below the project's folder; gives its path."""
    file = (ROOT / path).resolve()
    if not file.is_relative_to(ROOT):
        raise ValueError(f"{path} leaves the project")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text if isinstance(text, str) else json.dumps(text, ensure_ascii=False, indent=2), "utf-8")
    return str(file.relative_to(ROOT))
'''


@dataclass
class _TaskOrder:
    """The tasks of a crew that have been read."""

    ids: dict[str, str] = field(default_factory=dict[str, str])
    """Name of a task, or of its entry → its step."""
    done: list[str] = field(default_factory=list[str])
    last: list[str] = field(default_factory=list[str])
    """The steps that the next task comes after."""
    waiting: list[str] = field(default_factory=list[str])
    """The steps that run beside others."""
    files: dict[str, list[str]] = field(default_factory=dict[str, "list[str]"])
    """Step → those that write what it gave into a file, which tools of later tasks may read."""
    review: str = ""
    """The test that a person has accepted what came before."""

    def add(self, step: FlowStep, after: Sequence[FlowStep], context: list[str] | None, *, is_async: bool) -> list[str]:
        """Put a task and the steps behind it after the others; gives the steps whose outputs it sees.

        A task that names no others sees all that ran before it, but for one that runs beside others: that sees none.
        """
        if not is_async:
            self.done += self.waiting
            self.last = [*self.waiting, *([] if self.waiting else self.last)]
            self.waiting = []
        sources = context if context is not None else [] if is_async else list(self.done)
        step.needs = [each for each in self.last if each not in sources]
        step.needs += [file for each in self.last for file in self.files[each]]
        self.files[step.id] = [each.id for each in after if each.kind != "approval"]
        step.when = self.review or None
        for each in sorted(after, key=lambda one: one.kind != "approval"):
            each.when = self.review or None
            self.review = each.test_of("accept") if each.kind == "approval" else self.review
        (self.waiting if is_async else self.done).append(step.id)
        self.last = self.last if is_async else [step.id]
        return sources


class CrewReader(AgentReader):
    """Reads the crews of one project, each into a flow."""

    def read_crew(self, tasks_file: str, crew: CrewClass | None, *, typed: bool = True) -> ImportedFlow:
        """The flow of a crew; `crew` is None where only the YAML is there."""
        key = (tasks_file, crew.name if crew else "")
        if key in self.made:
            return self.made[key]
        self.crew = crew
        tasks = self._yaml(tasks_file)
        agents_file = self._agents_file(tasks_file, crew)
        agents = self._yaml(agents_file) if agents_file else None
        self.tasks_source, self.agents_source = tasks, agents
        folder = PurePosixPath(self.files.base if self.files.base != "." else self.tree.root.name).name
        flow = ImportedFlow(self.names.id(crew.name if crew else folder, "crew"), SourcePlace(tasks_file))
        flow.description = ast.get_docstring(crew.definition) if crew else None
        self.flow = flow
        self.input_names = Names()
        self.inputs = {}
        self.typed = typed
        self.step_names = Names()
        self.agent_ids = {}
        self.timeouts = {}
        self.settings = self._read_settings(crew)
        self._read_agents(crew)
        self._read_tasks(crew)
        self._read_hooks(crew)
        self.made[key] = flow
        self.input_ids[flow.name] = dict(self.inputs)
        self.project.flows.append(flow)
        return flow

    def _read_settings(self, crew: CrewClass | None) -> dict[str, Any]:
        """Reads the settings of the crew: process, memory, planning."""
        settings: dict[str, Any] = {}
        if crew is None or crew.crew is None:
            return settings
        for key, node in crew.crew.keywords.items():
            place, what = crew.source.place(node), f"crew {crew.name}: {key}"
            value = literal_of(crew.resolve(node))
            if key == "process":
                if call_name(node).endswith("hierarchical"):
                    why = "no manager hands the tasks out: each is done by its agent, in their order"
                    self.tell("lost", what, place, why, "let a `routing` node choose, as flows/handoff.yaml does")
                else:
                    self.tell("mapped", what, place, "each task sees what those before it gave")
            elif key == "memory" and value is True:
                settings["memory"] = {}
                self.tell("changed", what, place, "`memory` of each agent")
            elif key == "planning" and value is True:
                why = "nothing plans the tasks before they begin"
                self.tell("lost", what, place, why, "put an agent before the first task")
            elif key in CREW_NOTES:
                outcome, note = CREW_NOTES[key] if value is not False else ("mapped", "")
                self.tell(outcome, what, place, note)
            elif value in (False, None) and isinstance(crew.resolve(node), ast.Constant):
                self.tell("mapped", what, place)
            else:
                self.tell("lost", what, place, "it has no counterpart")
        return settings

    def _read_hooks(self, crew: CrewClass | None) -> None:
        if crew is None:
            return
        by_hand = "write it as a function node before the first task, or after the last"
        for mark, method in crew.hooks:
            place, why = crew.source.place(method), "it is code round the whole crew"
            self.tell("lost", f"{mark} {method.name}", place, why, by_hand)
        for key, place in find_rewrites(self.files):
            why = "code sets it on tasks that are made: the flow has what they say before"
            self.tell("lost", f"{key} of tasks", place, why, "write what the code makes of it into the nodes")

    def _read_tasks(self, crew: CrewClass | None) -> None:
        data: Mapping[str, Any] = self.tasks_source.data
        order = _TaskOrder()
        keyed: set[str] = set()
        for entry in self._tasks_in_order(crew, data):
            key = config_key(entry.keywords.get("config")) or (entry.name if entry.name in data else None)
            part = CrewPart(entry, key, as_map(data.get(key)) if key is not None else {})
            keyed.add(part.key or part.name)
            step = FlowStep(self.step_names.id(part.name, "task"), origin=entry.place)
            order.ids[part.name] = step.id
            if part.key is not None:
                order.ids.setdefault(part.key, step.id)
            self.flow.steps += [step, *self._read_task(step, part, order)]
        others = set[str]() if crew is None else self._keys_of_others(crew, "task")
        for name in data:
            if name not in keyed and name not in others:
                place = self.tasks_source.origin(name)
                self.tell("changed", f"task {name}", place, "left out: the crew does not do it")
        if self.flow.steps:
            last = next(each for each in reversed(self.flow.steps) if each.kind == "agent")
            self.flow.outputs["result"] = to_tag(f"nodes.{last.id}.output{' | default(none)' if order.review else ''}")

    def _tasks_in_order(self, crew: CrewClass | None, data: Mapping[str, Any]) -> list[Entry]:
        if crew is None:
            return [Entry(name, {}, self.tasks_source.origin(name)) for name, entry in data.items() if is_map(entry)]
        names = list(crew.tasks)
        node = crew.crew.keywords.get("tasks") if crew.crew is not None else None
        if isinstance(node, ast.List):
            members = [call_name(each).removeprefix("self.") for each in node.elts]
            names = [each for each in members if each in crew.tasks] or names
        for name, entry in crew.tasks.items():
            if name not in names:
                self.tell("changed", f"task {name}", entry.place, "left out: the crew does not do it")
        return [crew.tasks[name] for name in names]

    def _read_task(self, step: FlowStep, part: CrewPart, order: _TaskOrder) -> list[FlowStep]:
        self.tell("mapped", f"task {part.name}", part.entry.place)
        texts: dict[str, str] = {}
        context: list[str] | None = None
        after: list[FlowStep] = []
        is_async = False
        for setting in {each.key: each for each in self._settings_of("task", part, self.tasks_source)}.values():
            key, value = setting.key, setting.value
            if key in ("description", "expected_output"):
                if isinstance(value, ast.expr):
                    field = config_field(value)
                    value = part.settings.get(field) if field else None
                if value is None:
                    self._tell_of(setting, "lost", "it is made by code", "write it into the prompt")
                    continue
                texts[key] = self._text(value)
                self._tell_of(setting, "mapped", "part of the prompt")
            elif key == "config":
                lacks = "" if part.settings else "there is no such task in the file"
                self._tell_of(setting, "lost" if lacks else "mapped", lacks)
            elif key == "agent":
                self._tell_of(setting, "mapped")
            elif key == "context":
                context = self._read_context(setting, order.ids)
            elif key == "async_execution":
                is_async = value is True
                self._tell_of(setting, "mapped", "it runs beside the tasks that do not need it" if is_async else "")
            elif key in ("output_json", "output_pydantic", "response_model"):
                self._read_shape(step, setting)
            elif key == "output_file":
                after += self._write_file(step, setting)
            elif key == "human_input" and value is True:
                after.append(self._ask_person(step))
                self._tell_of(
                    setting, "changed", "a person accepts or stops; what they say does not go back to the agent"
                )
            elif key == "tools":
                self._read_tools(step.keys, setting)
            elif key == "markdown" and value is True:
                texts["markdown"] = "Write it as Markdown."
                self._tell_of(setting, "mapped", "a sentence of the prompt")
            elif key in ("guardrail", "guardrails") and value not in (False, None, []):
                self._read_guardrail(step, setting)
            else:
                self._tell_other(setting, TASK_NOTES, "write it as a node or a guardrail")
        self._set_agent(step, part)
        step.prompt = self._prompt(texts, order.add(step, after, context, is_async=is_async))
        return after

    def _prompt(self, texts: Mapping[str, str], context: Sequence[str]) -> str:
        parts = [texts.get("description", "Do your task.")]
        if texts.get("expected_output"):
            parts.append(f"Expected output:\n{texts['expected_output']}")
        parts += [texts["markdown"]] if "markdown" in texts else []
        if context:
            parts.append("What the tasks before gave:")
            parts += [to_tag(f"nodes.{each}.output") for each in dict.fromkeys(context)]
        return "\n\n".join(parts)

    def _set_agent(self, step: FlowStep, part: CrewPart) -> None:
        if self.crew is not None:
            agent = self._agent_of(part.name, part.entry.keywords, self.crew)
        else:
            agent_key = part.settings.get("agent")
            agent = (
                str(agent_key) if agent_key else next(iter(self.agent_ids), None) if len(self.agent_ids) == 1 else None
            )
            if agent is None and self.agent_ids:
                agent = list(self.agent_ids)[min(len(self.flow.steps), len(self.agent_ids) - 1)]
                self.tell(
                    "changed", f"task {part.name}", step.origin, f"it names no agent: {agent} does it, by their order"
                )
        if agent is not None and agent in self.agent_ids:
            step.keys = {"agent": self.agent_ids[agent], **step.keys}
            if agent in self.timeouts:
                step.keys["timeout"] = self.timeouts[agent]
        else:
            self.tell(
                "lost", f"task {part.name}: agent", step.origin, "it is not known which agent does it", "name one"
            )

    def _read_context(self, setting: CrewSetting, ids: Mapping[str, str]) -> list[str] | None:
        task_names: list[str] = []
        value = setting.value
        if is_list(value):
            task_names = [str(each) for each in value]
        elif isinstance(setting.node, ast.List):
            task_names = [call_name(each).removeprefix("self.") for each in setting.node.elts]
        elif value is None:
            self._tell_of(setting, "mapped")
            return []
        task_ids = [ids[each] for each in task_names if each in ids]
        if len(task_ids) < len(task_names) or (not task_names and value != []):
            self._tell_of(setting, "lost", "it names a task that does not come before", "name the nodes in the prompt")
        else:
            self._tell_of(setting, "mapped")
        return task_ids

    def _read_shape(self, step: FlowStep, setting: CrewSetting) -> None:
        crew, node = self.crew, setting.node
        if node is None or crew is None:
            self._tell_of(setting, "lost", "it names a class")
            return
        if isinstance(node, ast.Constant) and node.value is None:
            self._tell_of(setting, "mapped")
            return
        definition = crew.files.class_of(crew.source, last_name(node))
        if definition is None:
            self._tell_of(setting, "lost", "the class is not to be found", "write `output`, a JSON Schema")
            return
        shapes = ClassShapes(lambda name: _first(crew.files.class_of(definition[1], name)))
        shape = shapes.of_class(definition[0])
        if shape is None or shape.get("type") != "object":
            why = "a field of it has a type that is not known"
            self._tell_of(setting, "lost", why, "write `output`, a JSON Schema")
            return
        step.keys["output"] = shape
        if shapes.unknown:
            names = ", ".join(shapes.unknown)[:100]
            self._tell_of(setting, "changed", f"`output`: its JSON Schema, open where it says {names}")
        else:
            self._tell_of(setting, "mapped", "`output`: its JSON Schema")

    def _read_guardrail(self, step: FlowStep, setting: CrewSetting) -> None:
        """A text judges the answer and has it improved; a function may refuse it, and the node is tried again."""
        if isinstance(setting.value, str):
            step.keys["improve"] = {"instructions": literal(setting.value.strip())}
            self._tell_of(
                setting, "changed", "`improve`: the answer is judged by this text, and improved until it passes"
            )
            return
        call = (
            self.tools.guard_of(setting.node, self.crew) if setting.node is not None and self.crew is not None else None
        )
        if call is None:
            self._tell_of(setting, "lost", "the function is not to be found", "write it under `guardrails`")
            return
        step.keys["guardrails"] = {"output": [call]}
        step.keys["retry"] = {"attempts": 4, "on": ["error"]}
        note = "`guardrails` of the node, which is tried again; what the function makes of the answer is left out"
        self._tell_of(setting, "changed", note)

    def _write_file(self, step: FlowStep, setting: CrewSetting) -> list[FlowStep]:
        if not isinstance(setting.value, str):
            self._tell_of(setting, "lost", "its name is made by code", "write a node that keeps the output")
            return []
        path = setting.value.removeprefix("./").lstrip("/")
        if path.startswith("..") or not path:
            self._tell_of(setting, "lost", "the path leaves the project", "write a node that keeps the output")
            return []
        self.project.carry("imported_files.py", _FILES_MODULE)
        writing = FlowStep(self.step_names.id(f"{step.id}_file"), "function", setting.place)
        writing.call = "imported_files:write_text"
        writing.arguments = {"path": text_with_inputs(path, self._input), "text": to_tag(f"nodes.{step.id}.output")}
        writing.keys["effect"] = "idempotent"
        self._tell_of(setting, "mapped", f"the node {writing.id} writes it, below the project's folder")
        return [writing]

    def _ask_person(self, step: FlowStep) -> FlowStep:
        asking = FlowStep(self.step_names.id(f"{step.id}_review"), "approval", step.origin)
        asking.keys = {"message": to_tag(f"nodes.{step.id}.output"), "routes": {"accept": {}, "stop": {}}}
        return asking


def _first(pair: tuple[ast.ClassDef, Any] | None) -> ast.ClassDef | None:
    return None if pair is None else pair[0]
