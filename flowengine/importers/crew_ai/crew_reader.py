"""Reads the crews of a CrewAI project, each into a flow: agents, tasks, what the tasks see of each other.

It reads `agents.yaml`, `tasks.yaml` and the class that makes agents and tasks of them; where the Python is not there,
the YAML alone. Each task is a node; files that it writes and people that it asks are nodes behind it.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final, cast

from flowengine.core.values import is_map
from flowengine.importers.crew_ai.agent_reader import AgentReader, config_field
from flowengine.importers.crew_ai.class_fields import schema_of_class
from flowengine.importers.crew_ai.crew_classes import CrewClass, config_key, crew_classes
from flowengine.importers.crew_ai.crew_parts import text_with_inputs
from flowengine.importers.crew_ai.crew_settings import CREW_NOTES, OWN_FIELDS, TASK_NOTES
from flowengine.importers.form import FlowStep, ImportedFlow, Names, SourcePlace, literal
from flowengine.importers.python_code import call_name, literal_of
from flowengine.importers.source_tree import as_map

__all__ = ["CrewReader"]

_FILES_MODULE: Final = '''\
"""Writes what tasks give into files of the project."""

from __future__ import annotations

from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent


def write_text(path: str, text: Any) -> str:
    """Write a text into a file below the project's folder; gives its path."""
    file = (ROOT / path).resolve()
    if not file.is_relative_to(ROOT):
        raise ValueError(f"{path} leaves the project")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text if isinstance(text, str) else str(text), "utf-8")
    return str(file.relative_to(ROOT))
'''


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
        flow.description = ast.get_docstring(crew.found) if crew else None
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
        found: dict[str, Any] = {}
        if crew is None or crew.crew is None:
            return found
        for key, node in crew.crew.keywords.items():
            place, what = crew.place(node), f"crew {crew.name}: {key}"
            value = literal_of(crew.resolve(node))
            if key == "process":
                if call_name(node).endswith("hierarchical"):
                    why = "no manager hands the tasks out: each is done by its agent, in their order"
                    self.tell("lost", what, place, why, "let a `routing` node choose, as flows/handoff.yaml does")
                else:
                    self.tell("mapped", what, place, "each task sees what those before it gave")
            elif key == "memory" and value is True:
                found["memory"] = {}
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
        return found

    def _read_hooks(self, crew: CrewClass | None) -> None:
        if crew is None:
            return
        by_hand = "write it as a function node before the first task, or after the last"
        for mark, method in crew.hooks:
            place, why = crew.place(method), "it is code round the whole crew"
            self.tell("lost", f"{mark} {method.name}", place, why, by_hand)

    def _read_tasks(self, crew: CrewClass | None) -> None:
        data: Mapping[str, Any] = self.tasks_source.data
        ids: dict[str, str] = {}
        done: list[str] = []
        waiting: list[str] = []
        listed = self._tasks_in_order(crew, data)
        keyed: set[str] = set()
        for name, keywords, place in listed:
            key = config_key(keywords.get("config")) or (name if name in data else None)
            held = data.get(key) if key is not None else None
            keyed.add(key or name)
            step = FlowStep(self.step_names.id(name, "task"), origin=place)
            ids[name] = step.id
            if key is not None:
                ids.setdefault(key, step.id)
            after = self._read_task(step, name, key, as_map(held), keywords, place, ids, done, waiting)
            self.flow.steps += [step, *after]
        others = set[str]() if crew is None else self._task_keys_of_others(crew)
        for name in data:
            if name not in keyed and name not in others:
                place = self.tasks_source.origin(name)
                self.tell("changed", f"task {name}", place, "left out: the crew does not do it")
        if self.flow.steps:
            last = next(each for each in reversed(self.flow.steps) if each.kind == "agent")
            self.flow.outputs["result"] = f"{{{{ nodes.{last.id}.output }}}}"

    def _task_keys_of_others(self, crew: CrewClass) -> set[str]:
        others = crew_classes(crew.source, self.files)
        return {
            config_key(entry.keywords.get("config")) or name for each in others for name, entry in each.tasks.items()
        }

    def _tasks_in_order(
        self, crew: CrewClass | None, data: Mapping[str, Any]
    ) -> list[tuple[str, Mapping[str, ast.expr], SourcePlace]]:
        if crew is None:
            return [(name, {}, self.tasks_source.origin(name)) for name, held in data.items() if is_map(held)]
        names = list(crew.tasks)
        node = crew.crew.keywords.get("tasks") if crew.crew is not None else None
        if isinstance(node, ast.List):
            chosen = [call_name(each).removeprefix("self.") for each in node.elts]
            names = [each for each in chosen if each in crew.tasks] or names
        for name, entry in crew.tasks.items():
            if name not in names:
                self.tell("changed", f"task {name}", entry.place, "left out: the crew does not do it")
        return [(name, crew.tasks[name].keywords, crew.tasks[name].place) for name in names]

    def _read_task(
        self,
        step: FlowStep,
        name: str,
        key: str | None,
        held: Mapping[str, Any],
        keywords: Mapping[str, ast.expr],
        place: SourcePlace,
        ids: Mapping[str, str],
        done: list[str],
        waiting: list[str],
    ) -> list[FlowStep]:
        self.tell("mapped", f"task {name}", place)
        texts: dict[str, str] = {}
        values: dict[str, tuple[Any, ast.expr | None, SourcePlace, str]] = {}
        for each, value in held.items():
            assert key is not None
            at = self.tasks_source.origin(key, each)
            values[each] = (value, None, at, f"task {key}: {each}")
        for each, node in keywords.items():
            assert self.crew is not None
            at = self.crew.place(node)
            values[each] = (literal_of(self.crew.resolve(node), node), node, at, f"task {name}: {each}")
        context: list[str] | None = None
        after: list[FlowStep] = []
        is_async = False
        for each, (value, node, at, what) in values.items():
            if each in ("description", "expected_output"):
                if isinstance(value, ast.expr):
                    field = config_field(value)
                    value = held.get(field) if field else None
                if value is None:
                    self.tell("lost", what, at, "it is made by code", "write it into the prompt")
                    continue
                texts[each] = self._text(value)
                self.tell("mapped", what, at, "part of the prompt")
            elif each == "config":
                self.tell("mapped" if held else "lost", what, at, "" if held else "there is no such task in the file")
            elif each == "agent":
                self.tell("mapped", what, at)
            elif each == "context":
                context = self._read_context(value, node, ids, what, at)
            elif each == "async_execution":
                is_async = value is True
                self.tell("mapped", what, at, "it runs beside the tasks that do not need it")
            elif each in ("output_json", "output_pydantic", "response_model"):
                self._read_shape(step, node, what, at)
            elif each == "output_file":
                after += self._write_file(step, value, what, at)
            elif each == "human_input" and value is True:
                after.append(self._ask_person(step))
                self.tell("changed", what, at, "a person accepts or stops; what they say does not go back to the agent")
            elif each == "tools":
                self._read_tools(step.keys, what, value, node, at)
            elif each == "markdown" and value is True:
                texts["markdown"] = "Write it as Markdown."
                self.tell("mapped", what, at, "a sentence of the prompt")
            elif each in TASK_NOTES:
                outcome, note = TASK_NOTES[each] if value not in (False, None) else ("mapped", "what holds anyway")
                self.tell(outcome, what, at, note)
            elif value in (False, None, []):
                self.tell("mapped", what, at, "what holds anyway")
            elif each in ("guardrail", "guardrails"):
                self._read_guardrail(step, value, node, what, at)
            elif node is None and each not in OWN_FIELDS:
                self.tell("mapped", what, at, "CrewAI leaves such a key out, too")
            else:
                self.tell("lost", what, at, "it has no counterpart", "write it as a node or a guardrail")
        if context is None:
            context = list(done) if is_async else [*done, *waiting]
        if is_async:
            waiting.append(step.id)
        else:
            done += [*waiting, step.id]
            waiting.clear()
        self._set_agent(step, name, held, keywords)
        step.prompt = self._prompt(texts, context)
        return after

    def _prompt(self, texts: Mapping[str, str], context: Sequence[str]) -> str:
        parts = [texts.get("description", "Do your task.")]
        if texts.get("expected_output"):
            parts.append(f"Expected output:\n{texts['expected_output']}")
        parts += [texts["markdown"]] if "markdown" in texts else []
        if context:
            parts.append("What the tasks before gave:")
            parts += [f"{{{{ nodes.{each}.output }}}}" for each in dict.fromkeys(context)]
        return "\n\n".join(parts)

    def _set_agent(self, step: FlowStep, name: str, held: Mapping[str, Any], keywords: Mapping[str, ast.expr]) -> None:
        if self.crew is not None:
            found = self._agent_of(name, keywords, self.crew)
        else:
            named = held.get("agent")
            found = str(named) if named else next(iter(self.agent_ids), None) if len(self.agent_ids) == 1 else None
            if found is None and self.agent_ids:
                found = list(self.agent_ids)[min(len(self.flow.steps), len(self.agent_ids) - 1)]
                self.tell("changed", f"task {name}", step.origin, f"it names no agent: {found} does it, by their order")
        if found is not None and found in self.agent_ids:
            step.keys = {"agent": self.agent_ids[found], **step.keys}
            if found in self.timeouts:
                step.keys["timeout"] = self.timeouts[found]
        else:
            self.tell("lost", f"task {name}: agent", step.origin, "it is not known which agent does it", "name one")

    def _read_context(
        self, value: Any, node: ast.expr | None, ids: Mapping[str, str], what: str, place: SourcePlace
    ) -> list[str] | None:
        named: list[str] = []
        if isinstance(value, list):
            named = [str(each) for each in cast("list[Any]", value)]
        elif isinstance(node, ast.List):
            named = [call_name(each).removeprefix("self.") for each in node.elts]
        elif value is None:
            self.tell("mapped", what, place)
            return []
        known = [ids[each] for each in named if each in ids]
        if len(known) < len(named) or (not named and value != []):
            self.tell("lost", what, place, "it names a task that does not come before", "name the nodes in the prompt")
        else:
            self.tell("mapped", what, place)
        return known

    def _read_shape(self, step: FlowStep, node: ast.expr | None, what: str, place: SourcePlace) -> None:
        crew = self.crew
        if node is None or crew is None or (isinstance(node, ast.Constant) and node.value is None):
            self.tell("mapped", what, place) if node is not None else self.tell("lost", what, place, "it names a class")
            return
        found = crew.files.class_of(crew.source, call_name(node).rpartition(".")[2])
        if found is None:
            self.tell("lost", what, place, "the class is not to be found", "write `output`, a JSON Schema")
            return
        unknown: list[str] = []
        shape = schema_of_class(found[0], lambda name: _first(crew.files.class_of(found[1], name)), unknown)
        if shape is None or shape.get("type") != "object":
            why = "a field of it has a type that is not known"
            self.tell("lost", what, place, why, "write `output`, a JSON Schema")
            return
        step.keys["output"] = shape
        if unknown:
            change = f"`output`: its JSON Schema, open where it says {', '.join(unknown)[:100]}"
            self.tell("changed", what, place, change)
        else:
            self.tell("mapped", what, place, "`output`: its JSON Schema")

    def _read_guardrail(self, step: FlowStep, value: Any, node: ast.expr | None, what: str, place: SourcePlace) -> None:
        """A text judges the answer and has it improved; a function may refuse it, and the node is tried again."""
        if isinstance(value, str):
            step.keys["improve"] = {"instructions": literal(value.strip())}
            change = "`improve`: the answer is judged by this text, and improved until it passes"
            self.tell("changed", what, place, change)
            return
        call = self.tools.guard_of(node, self.crew) if node is not None and self.crew is not None else None
        if call is None:
            self.tell("lost", what, place, "the function is not to be found", "write it under `guardrails`")
            return
        step.keys["guardrails"] = {"output": [call]}
        step.keys["retry"] = {"attempts": 4, "on": ["error"]}
        note = "`guardrails` of the node, which is tried again; what the function makes of the answer is left out"
        self.tell("changed", what, place, note)

    def _write_file(self, step: FlowStep, value: Any, what: str, place: SourcePlace) -> list[FlowStep]:
        if not isinstance(value, str):
            self.tell("lost", what, place, "its name is made by code", "write a node that keeps the output")
            return []
        path = value.removeprefix("./").lstrip("/")
        if path.startswith("..") or not path:
            self.tell("lost", what, place, "the path leaves the project", "write a node that keeps the output")
            return []
        self.project.carry("imported_files.py", _FILES_MODULE)
        writing = FlowStep(self.step_names.id(f"{step.id}_file"), "function", place, call="imported_files:write_text")
        writing.arguments = {"path": text_with_inputs(path, self._input), "text": f"{{{{ nodes.{step.id}.output }}}}"}
        writing.keys["effect"] = "idempotent"
        self.tell("mapped", what, place, f"the node {writing.id} writes it, below the project's folder")
        return [writing]

    def _ask_person(self, step: FlowStep) -> FlowStep:
        asking = FlowStep(self.step_names.id(f"{step.id}_review"), "approval", step.origin)
        asking.keys = {"message": f"{{{{ nodes.{step.id}.output }}}}", "routes": {"accept": {}, "stop": {}}}
        return asking


def _first(found: tuple[ast.ClassDef, Any] | None) -> ast.ClassDef | None:
    return None if found is None else found[0]
