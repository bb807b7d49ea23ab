"""Reads the crews of a CrewAI project, each into a flow: agents, tasks, what the tasks see of each other.

It reads `agents.yaml`, `tasks.yaml` and the class that makes agents and tasks of them; where the Python is not
there, the YAML alone.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final, cast

from flowengine.errors import DefinitionError
from flowengine.flowfile.analysis.shapes import is_map
from flowengine.importers.carried_code import CarriedCode
from flowengine.importers.crew_ai_classes import CrewClass, PythonFiles, config_key, crew_classes
from flowengine.importers.crew_ai_parts import PARTS, PARTS_MODULE, lead_import
from flowengine.importers.crew_ai_settings import (
    AGENT_NOTES,
    CREW_NOTES,
    OWN_FIELDS,
    TASK_NOTES,
    read_model,
    seconds_of,
)
from flowengine.importers.crew_ai_texts import schema_of_class, text_with_inputs
from flowengine.importers.crew_ai_tools import ToolCode, tool_elements
from flowengine.importers.form import (
    CarriedFile,
    FlowStep,
    ImportedFlow,
    ImportedProject,
    Names,
    SourcePlace,
    literal,
)
from flowengine.importers.python_code import call_name, literal_of
from flowengine.importers.source_tree import SourceError, SourceTree, YamlSource

__all__ = ["AGENTS_MARK", "TASKS_MARK", "CrewReader", "agents_of", "project_base", "tasks_of"]

TASKS_MARK: Final = re.compile(r"^[ \t]++expected_output[ \t]*+:", re.MULTILINE)
AGENTS_MARK: Final = re.compile(r"^[ \t]++backstory[ \t]*+:", re.MULTILINE)
_PROJECT: Final = ("pyproject.toml", "requirements.txt", "setup.py", "setup.cfg", "uv.lock")
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


def _beside(tree: SourceTree, file: str) -> list[str]:
    folder = PurePosixPath(file).parent
    listed = (tree.root / folder).iterdir()
    names = sorted(each.name for each in listed if each.suffix in (".yaml", ".yml"))
    return [(folder / each).as_posix() for each in names if tree.has((folder / each).as_posix())]


def agents_of(tree: SourceTree, tasks: str) -> str | None:
    """The file of agents that goes with a file of tasks."""
    return _partner(tree, tasks, "task", "agent", AGENTS_MARK)


def tasks_of(tree: SourceTree, agents: str) -> str | None:
    return _partner(tree, agents, "agent", "task", TASKS_MARK)


def _partner(tree: SourceTree, file: str, word: str, other: str, mark: re.Pattern[str]) -> str | None:
    path = PurePosixPath(file)
    wanted = path.with_name(path.name.replace(word, other)).as_posix()
    candidates = [wanted, *(each for each in _beside(tree, file) if other in each), *_beside(tree, file)]
    for each in candidates:
        if each != file and tree.has(each) and mark.search(tree.read_text(each)):
            return each
    return file if mark.search(tree.read_text(file)) else None


def project_base(tree: SourceTree, file: str) -> str:
    """The folder of the project that a file belongs to: the nearest above it that has a project's files."""
    folder = PurePosixPath(file).parent
    for each in [folder, *list(folder.parents)[:5]]:
        if any((tree.root / each / name).is_file() for name in _PROJECT):
            return each.as_posix()
    above = folder.parent if folder.name in ("config", "configs") else folder
    return above.as_posix()


class CrewReader:
    """Reads the crews of one project, each into a flow."""

    def __init__(self, tree: SourceTree, project: ImportedProject, files: PythonFiles, names: Names) -> None:
        self.tree = tree
        self.project = project
        self.ledger = project.ledger
        self.files = files
        self.names = names
        self.paths = {each: each for each in files.names}
        self._told: set[tuple[str, int, str]] = set()
        root = import_root(files)
        self.new_paths = {each: _below(each, root) for each in files.names}
        self.code = CarriedCode(tree, {new: old for old, new in self.new_paths.items()}, "crewai", lead_import)
        self.code.need_nothing()
        self.tools = ToolCode(self.code, self.new_paths, files)
        self.runs_crews = False
        self.input_ids: dict[str, dict[str, str]] = {}
        """Flow → placeholder → its input."""
        self.made: dict[tuple[str, str], ImportedFlow] = {}

    def classes_of(self, tasks_file: str) -> list[CrewClass]:
        """The crews whose tasks stand in a file."""
        found: list[CrewClass] = []
        for name in self.files.names:
            source = self.files.parsed(name)
            if source is None or "CrewBase" not in source.text:
                continue
            for each in crew_classes(source, self.files):
                path = each.configured("tasks_config")
                if path is not None and _same(name, path, tasks_file):
                    found.append(each)
        return found

    def tasks_file_of(self, python: str, path: str) -> str | None:
        """The file of tasks that a class of a Python file names."""
        try:
            joined = self.tree.join(PurePosixPath(python).parent.as_posix(), path)
        except SourceError:
            return None
        return joined if self.tree.has(joined) else None

    def finish(self) -> None:
        """Put the code and the stubs into the project."""
        self.project.files += list(self.code.carried_files())
        self.project.stubs += self.tools.stubs
        if self.code.uses_parts or self.runs_crews or self.tools.uses_parts:
            self.project.files.append(CarriedFile(f"{PARTS}.py", PARTS_MODULE))

    def tell(self, outcome: str, what: str, place: SourcePlace, note: str = "", by_hand: str = "") -> None:
        """Tell an element once, whichever crews of a file use it."""
        key = (place.file, place.line, what)
        if key in self._told:
            return
        self._told.add(key)
        if outcome == "lost":
            self.ledger.lost(what, place, note, by_hand or "see whether the flow needs it")
        elif outcome == "changed":
            self.ledger.changed(what, place, note, by_hand)
        else:
            self.ledger.mapped(what, place, note)

    # --- A crew

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
        self.inputs: dict[str, str] = {}
        self.typed = typed
        self.step_names = Names()
        self.agent_ids: dict[str, str] = {}
        self.settings = self._read_settings(crew)
        self._read_agents(crew)
        self._read_tasks(crew)
        self._read_hooks(crew)
        self.made[key] = flow
        self.input_ids[flow.name] = dict(self.inputs)
        self.project.flows.append(flow)
        return flow

    def _yaml(self, file: str) -> YamlSource:
        found = self.tree.read_yaml(file)
        if not is_map(found.data):
            raise DefinitionError(f"{file}:1: a map of agents or tasks is expected")
        return found

    def _agents_file(self, tasks_file: str, crew: CrewClass | None) -> str | None:
        path = crew.configured("agents_config") if crew is not None else None
        if crew is not None and path is not None:
            for name in (path, f"config/{PurePosixPath(path).name}"):
                try:
                    joined = self.tree.join(PurePosixPath(crew.source.file).parent.as_posix(), name)
                except SourceError:
                    continue
                if self.tree.has(joined):
                    return joined
        return agents_of(self.tree, tasks_file)

    def _input(self, name: str) -> str:
        if name not in self.inputs:
            self.inputs[name] = self.input_names.id(name, "input")
            self.flow.inputs[self.inputs[name]] = {"type": "string"} if self.typed else {"schema": {}}
        return f"inputs.{self.inputs[name]}"

    def _text(self, value: Any) -> str:
        return text_with_inputs(str(value).strip(), self._input) if value is not None else ""

    def _read_settings(self, crew: CrewClass | None) -> dict[str, Any]:
        """What the crew says for all: process, memory, planning."""
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
                self.tell(
                    "lost",
                    what,
                    place,
                    "nothing plans the tasks before they begin",
                    "put an agent before the first task",
                )
            elif key in CREW_NOTES:
                outcome, note = CREW_NOTES[key] if value is not False else ("mapped", "")
                self.tell(outcome, what, place, note)
            elif value in (False, None) and isinstance(crew.resolve(node), ast.Constant):
                self.tell("mapped", what, place)
            else:
                self.tell("lost", what, place, "it has no counterpart")
        return found

    # --- Agents

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
                elif _config_field(node) is None:
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
        order = ("model", "system_message")
        agent = {each: agent[each] for each in order if each in agent} | agent
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
        elif key in ("max_execution_time",) and isinstance(value, int) and value > 0:
            self.tell("changed", what, place, f"the tasks of it have `timeout: {seconds_of(value)}`")
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
            names = [str(each) for each in cast("list[Any]", value)] if isinstance(value, list) else []
            if names:
                self._read_named_tools(holder, what, names, place)
            else:
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
            self.tell(
                "lost",
                f"{what}: {ast.unparse(each)[:80]}",
                self.crew.place(each),
                "code makes the list",
                "name the tools",
            )
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

    # --- Tasks

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
            after = self._read_task(step, name, key, held if is_map(held) else {}, keywords, place, ids, done, waiting)
            self.flow.steps += [step, *after]
        others = set[str]() if crew is None else self._task_keys_of_others(crew)
        for name in data:
            if name not in keyed and name not in others:
                self.tell(
                    "changed", f"task {name}", self.tasks_source.origin(name), "left out: the crew does not do it"
                )
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
                    field = _config_field(value)
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
        for one in after:
            if one.kind == "approval":
                step.keys.setdefault("description", "")
                del step.keys["description"]
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
            self.tell(
                "lost", what, place, "a field of it has a type that is not known", "write `output`, a JSON Schema"
            )
            return
        step.keys["output"] = shape
        if unknown:
            self.tell(
                "changed", what, place, f"`output`: its JSON Schema, open where it says {', '.join(unknown)[:100]}"
            )
        else:
            self.tell("mapped", what, place, "`output`: its JSON Schema")

    def _read_guardrail(self, step: FlowStep, value: Any, node: ast.expr | None, what: str, place: SourcePlace) -> None:
        """A text judges the answer and has it improved; a function may refuse it, and the node is tried again."""
        if isinstance(value, str):
            step.keys["improve"] = {"instructions": literal(value.strip())}
            self.tell(
                "changed", what, place, "`improve`: the answer is judged by this text, and improved until it passes"
            )
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
        if not any(each.path == "imported_files.py" for each in self.project.files):
            self.project.files.append(CarriedFile("imported_files.py", _FILES_MODULE))
        writing = FlowStep(self.step_names.id(f"{step.id}_file"), "function", place, call="imported_files:write_text")
        writing.arguments = {"path": text_with_inputs(path, self._input), "text": f"{{{{ nodes.{step.id}.output }}}}"}
        writing.keys["effect"] = "idempotent"
        self.tell("mapped", what, place, f"the node {writing.id} writes it, below the project's folder")
        return [writing]

    def _ask_person(self, step: FlowStep) -> FlowStep:
        asking = FlowStep(self.step_names.id(f"{step.id}_review"), "approval", step.origin)
        asking.keys = {"message": f"{{{{ nodes.{step.id}.output }}}}", "routes": {"accept": {}, "stop": {}}}
        return asking

    def _read_hooks(self, crew: CrewClass | None) -> None:
        for mark, method in crew.hooks if crew is not None else ():
            assert crew is not None
            self.tell(
                "lost", f"{mark} {method.name}", crew.place(method), "it is code round the whole crew",
                "write it as a function node before the first task, or after the last",
            )  # fmt: skip


def _config_field(node: ast.expr) -> str | None:
    """`role` of `self.agents_config["x"]["role"]`."""
    if isinstance(node, ast.Subscript) and config_key(node.value) is not None:
        found = literal_of(node.slice)
        return found if isinstance(found, str) else None
    return None


def _first(found: tuple[ast.ClassDef, Any] | None) -> ast.ClassDef | None:
    return None if found is None else found[0]


def _same(python: str, path: str, tasks_file: str) -> bool:
    """Whether a path that a class says is the file of tasks: from its own folder, or by its end."""
    joined = posixpath.normpath(posixpath.join(posixpath.dirname(python), path))
    return joined == tasks_file or (joined.startswith("..") and tasks_file.endswith(path.lstrip("./")))


def import_root(files: PythonFiles) -> str:
    """The folder that the files' imports start in: the one below which most of them are found."""
    names = set(files.names)
    folders = {each.as_posix() for name in names for each in PurePosixPath(name).parents}
    packages = {each for each in folders if each != "."}
    wanted = [
        each.module.replace(".", "/")
        for name in files.names[:400]
        if (source := files.parsed(name)) is not None
        for each in source.imports()
        if each.module and not each.module.startswith(".")
    ]
    best, score = files.base, 0
    for folder in sorted(folders | {files.base}, key=len):
        prefix = "" if folder == "." else f"{folder}/"
        found = sum(f"{prefix}{each}.py" in names or f"{prefix}{each}" in packages for each in wanted)
        if found > score:
            best, score = folder, found
    return best


def _below(path: str, root: str) -> str:
    return path.removeprefix(f"{root}/") if root != "." else path
