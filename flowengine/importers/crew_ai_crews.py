"""Reads the crews of a CrewAI project, each into a flow: agents, tasks, what the tasks see of each other.

It reads `agents.yaml`, `tasks.yaml` and the class that makes agents and tasks of them; where the Python is not
there, the YAML alone.
"""

from __future__ import annotations

import ast
from pathlib import PurePosixPath
from typing import Any

from flowengine.importers.crew_ai_classes import CrewClass
from flowengine.importers.crew_ai_settings import CREW_NOTES
from flowengine.importers.crew_ai_tasks import TaskReader
from flowengine.importers.form import ImportedFlow, Names, SourcePlace
from flowengine.importers.python_code import call_name, literal_of

__all__ = ["CrewReader"]


class CrewReader(TaskReader):
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

    def _read_hooks(self, crew: CrewClass | None) -> None:
        for mark, method in crew.hooks if crew is not None else ():
            assert crew is not None
            self.tell(
                "lost", f"{mark} {method.name}", crew.place(method), "it is code round the whole crew",
                "write it as a function node before the first task, or after the last",
            )  # fmt: skip
