"""Reads CrewAI flows: Python classes whose methods start, listen and route.

A method that only asks a crew with values of the state becomes a `subflow` node; every other one is called as a
function node, by the class that goes along with its file, and the crews that it asks are flows of the new project.
Fields of the state that methods write are shared state, all others are inputs. What a router says decides by `when`;
methods that wait for each other in a circle are a loop.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any, Final

from flowengine.errors import DefinitionError
from flowengine.importers.carried_code import CarriedModule, Wrapper, module_name
from flowengine.importers.crew_ai.class_fields import StateField, fields_of, written_fields
from flowengine.importers.crew_ai.crew_classes import CrewClass, PythonFiles, crew_classes
from flowengine.importers.crew_ai.crew_parts import project_base
from flowengine.importers.crew_ai.crew_reader import CrewReader
from flowengine.importers.crew_ai.crewai_stand_in import PARTS
from flowengine.importers.crew_ai.flow_edges import EdgeReader
from flowengine.importers.crew_ai.flow_methods import FlowMethod, methods_of
from flowengine.importers.flow_text import key_path, to_tag
from flowengine.importers.form import FlowStep, ImportedFlow, ImportedProject, ImportLedger, SourcePlace, Stub
from flowengine.importers.import_names import Names
from flowengine.importers.python_code import PythonFunction, PythonSource, call_name, last_name, parse_python
from flowengine.importers.source_tree import SourceTree

_ASKING: Final = frozenset({"Agent", "Crew", "LLM", "Task"})


def read_flow(tree: SourceTree, file: str) -> ImportedProject:
    """The flows of one Python file, with their crews."""
    project = ImportedProject("CrewAI", ImportLedger())
    files = PythonFiles(tree, project_base(tree, file))
    source = files.parse_file(file)
    if source is None:
        parse_python(file, tree.read_text(file))
        raise DefinitionError(f"{file}: it cannot be read")
    crews = CrewReader(tree, project, files, Names())
    flow_classes = [each for each in source.classes() if _is_flow(each)]
    if not flow_classes:
        raise DefinitionError(f"{file}: it has no class of a flow")
    flows = [reader.read() for each in flow_classes if (reader := _FlowReader(crews, source, each)).methods]
    for each in flow_classes:
        if not any(methods_of(each)):
            crews.tell(
                "lost",
                f"flow {each.name}",
                SourcePlace(file, each.lineno),
                "no method of it starts or listens",
                "import the file of the class that its methods come from",
            )
    if not flows:
        raise DefinitionError(
            f"{file}:{flow_classes[0].lineno}: no method of the flow '{flow_classes[0].name}' starts or listens"
        )
    project.flows[:] = [*flows, *(each for each in project.flows if each not in flows)]
    crews.finish()
    return project


def _is_flow(definition: ast.ClassDef) -> bool:
    bases = [each.value if isinstance(each, ast.Subscript) else each for each in definition.bases]
    return any(last_name(each) == "Flow" for each in bases)


class _FlowReader(EdgeReader):
    """Reads one flow."""

    def read(self) -> ImportedFlow:
        self.flow.description = ast.get_docstring(self.definition)
        self.ledger.note_mapped(f"flow {self.definition.name}", self.source.place(self.definition))
        self._read_state()
        self._read_crews()
        steps = {name: self._read_method(method) for name, method in self.methods.items()}
        self._connect(steps)
        return self.flow

    def _read_state(self) -> None:
        self.fields = fields_of(self.definition, self.source, self.crews.files)
        self.written = {name: written_fields(each.node) for name, each in self.methods.items()}
        helpers = [
            each for each in self.definition.body if isinstance(each, PythonFunction) and each.name not in self.methods
        ]
        by_helpers = set[str]().union(*(written_fields(each) for each in helpers))
        everywhere = by_helpers.union(*self.written.values())
        for name in sorted(everywhere):
            self.fields.setdefault(name, StateField(name, None, None, self.definition.lineno, self.source.file))
        self.helpers = by_helpers
        names = Names()
        self.keys = {name: names.id(name, "field") for name in self.fields}
        for name, field in self.fields.items():
            place = SourcePlace(field.file, field.line)
            key = self.keys[name]
            kind: dict[str, Any] = {"schema": {}} if field.type is None else {"type": field.type}
            if name in everywhere:
                self.flow.shared_state[key] = {"default": field.default, "merge": "replace"}
                note = f"shared state {key}"
            else:
                if field.has_default and field.default is None:
                    kind = {"schema": {}}
                self.flow.inputs[key] = {**kind, "default": field.default} if field.has_default else kind
                note = f"input {key}: no method writes it"
            change = f"{note}; code makes its default, which is left out" if field.is_made else ""
            self.ledger.note_done(f"state {name}", place, change, note=note)

    def _read_crews(self) -> None:
        """The flows of the crews that the code asks, and modules that run them in the place of theirs."""
        self.crew_flows = {}
        code = self.crews.code
        path = self.crews.new_paths[self.source.file]
        code.need(path)
        old = {new: name for name, new in self.crews.new_paths.items()}
        for each in list(code.closure(path)):
            source = code.module(each).source
            if "CrewBase" not in source.text or each == path:
                continue
            classes = crew_classes(source, self.crews.files)
            crew_flows = [(one, flow) for one in classes if (flow := self._crew_flow(one, old[each])) is not None]
            if crew_flows:
                code.replace(each, _crew_module(source, crew_flows, self.crews))
                self.crews.runs_crews = True
        code.need(path)

    def _crew_flow(self, crew: CrewClass, file: str) -> ImportedFlow | None:
        path = crew.find_config_path("tasks_config")
        tasks = self.crews.tasks_file_of(file, path) if path else None
        if tasks is None:
            return None
        flow = self.crews.read_crew(tasks, crew, typed=False)
        self.crew_flows[crew.name] = flow
        return flow

    def _read_method(self, method: FlowMethod) -> FlowStep:
        place = self.source.place(method.node)
        step = FlowStep(self.ids[method.name], "function", place)
        what = f"method {method.name}"
        call = None if method.is_router else self._only_asks(method)
        if call is not None:
            crew, inputs, texts = call
            flow = self.crew_flows[crew]
            names = self.crews.input_ids.get(flow.name, {})
            step.kind = "subflow"
            step.keys["flow"] = f"./{flow.name}.yaml"
            step.arguments = {names[key]: value for key, value in inputs.items() if key in names}
            if texts:
                step.keys["set"] = {self.keys[field]: text for field, text in texts.items()}
            self.ledger.note_mapped(what, place, f"the crew is the subflow {flow.name}.yaml")
            return step
        module = module_name(self.crews.new_paths[self.source.file])
        problem = self.crews.code.problem_of(self.crews.new_paths[self.source.file])
        asks = self._asks_models(method)
        if module is None or problem or asks:
            self._add_stub(step, method, problem or asks or "its file has no name of a module")
            return step
        body = f"return run_method(original, {method.name!r}, state, given)"
        first = f"from {PARTS} import run_method\n"
        wrapper = Wrapper(["state: dict", "given: Any = None"], module, self.definition.name, body, first)
        step.call = self.crews.code.add_wrapper(step.id, wrapper)
        self.crews.runs_crews = True
        step.arguments["state"] = {name: to_tag(self._value(name)) for name in self.fields}
        source_method = next((each for each in method.waits_for if each in self.methods), None)
        if source_method is not None and len(method.node.args.args) > 1:
            step.arguments["given"] = to_tag(f"nodes.{self.ids[source_method]}.output.result | default(none)")
        fields = self.written[method.name] | (self.helpers if self._calls_helpers(method) else set[str]())
        texts = {self.keys[each]: to_tag(key_path("output.state", [each])) for each in sorted(fields)}
        if texts:
            step.keys["set"] = texts
        result = method.labels[0] if method.labels else "made up"
        step.sample = {"result": result, "state": dict.fromkeys(sorted(fields))}
        note = "a function node calls it"
        note += ", and it runs its crews" if "kickoff" in ast.unparse(method.node) else ""
        self.ledger.note_changed(what, place, note)
        return step

    def _calls_helpers(self, method: FlowMethod) -> bool:
        names = {call_name(each) for each in ast.walk(method.node) if isinstance(each, ast.Call)}
        return any(each.startswith("self.") and each[5:] not in self.methods for each in names)

    def _asks_models(self, method: FlowMethod) -> str:
        """Explains by which class of crewai, other than the project's crews, a method asks models; else empty."""
        for each in ast.walk(method.node):
            if isinstance(each, ast.Call) and call_name(each) in _ASKING:
                home, _, _ = self.crews.files.home_of(self.source, call_name(each))
                if home.partition(".")[0] == "crewai":
                    return f"it makes a model's part in code: {call_name(each)}"
        return ""

    def _add_stub(self, step: FlowStep, method: FlowMethod, why: str) -> None:
        step.call = f"imported_stubs:{step.id}"
        step.arguments = {"state": {name: to_tag(self._value(name)) for name in self.fields}}
        original = self.source.segment(method.node)
        self.crews.project.stubs.append(Stub(step.call, ["state: dict"], why, step.origin, original=original))
        step.sample = {"result": method.labels[0] if method.labels else "made up", "state": {}}
        by_hand = f"write {step.id} in imported_stubs.py, or as nodes"
        self.ledger.note_lost(f"method {method.name}", step.origin, why, by_hand)


def _crew_module(
    source: PythonSource, crew_flows: Sequence[tuple[CrewClass, ImportedFlow]], crews: CrewReader
) -> CarriedModule:
    """A module that stands in the place of a crew's: its crews run flows, its pydantic classes stay."""
    keep = ("typing", "pydantic", "enum", "datetime", "decimal", "uuid", "dataclasses")
    imports = [
        source.segment(each) for each in source.tree.body if isinstance(each, ast.ImportFrom) and each.module in keep
    ]
    shapes = [
        source.segment(each)
        for each in source.classes()
        if any(last_name(base) in ("BaseModel", "Enum", "str") for base in each.bases)
    ]
    classes = [
        f"class {crew.name}(ImportedCrew):\n"
        f"    flow = {flow.name + '.yaml'!r}\n    names = {crews.input_ids[flow.name]!r}\n"
        for crew, flow in crew_flows
    ]
    head = f'"""Runs the crews of {source.file.rpartition("/")[2]}, which are flows of this project."""\n\n'
    lines = ["from __future__ import annotations\n", *imports, f"from {PARTS} import ImportedCrew"]
    text = head + "\n".join(lines) + "\n\n\n" + "\n\n\n".join([*shapes, *classes])
    return CarriedModule(parse_python(source.file, text), text, "", True)
