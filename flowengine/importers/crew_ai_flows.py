"""Reads CrewAI flows: Python classes whose methods start, listen and route.

A method that only asks a crew with values of the state becomes a `subflow` node; every other one is called as a
function node, by the class that goes along with its file, and the crews that it asks are flows of the new project.
Fields of the state that methods write are shared state, all others are inputs. What a router says decides by `when`;
methods that wait for each other in a circle are a loop.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from flowengine.errors import DefinitionError
from flowengine.importers.carried_code import CarriedModule, format_import, module_name
from flowengine.importers.crew_ai_classes import CrewClass, Method, PythonFiles, crew_classes
from flowengine.importers.crew_ai_crews import CrewReader
from flowengine.importers.crew_ai_parts import PARTS
from flowengine.importers.crew_ai_project import project_base
from flowengine.importers.crew_ai_state import StateField, fields_of, written_fields
from flowengine.importers.form import (
    FlowStep,
    ImportedFlow,
    ImportedProject,
    ImportLedger,
    Names,
    SourcePlace,
    Stub,
    literal,
)
from flowengine.importers.python_code import PythonSource, call_name, decorators_of, literal_of, parse_python
from flowengine.importers.source_tree import SourceTree

__all__ = ["read_flow"]

_ASKING: Final = frozenset({"Agent", "Crew", "LLM", "Task"})
_MOST_ROUNDS: Final = 100


class Trigger(NamedTuple):
    """What a method waits for."""

    kind: str
    """`start`, `listen` or `router`."""
    names: tuple[str, ...]
    is_all: bool
    line: int


class FlowMethod(NamedTuple):
    """A method of a flow."""

    name: str
    node: Method
    triggers: tuple[Trigger, ...]
    labels: tuple[str, ...]
    """What a router may say."""

    @property
    def waits_for(self) -> list[str]:
        return [each for trigger in self.triggers for each in trigger.names]

    @property
    def is_router(self) -> bool:
        return any(each.kind == "router" for each in self.triggers)


def read_flow(tree: SourceTree, file: str) -> ImportedProject:
    """The flows of one Python file, with their crews."""
    project = ImportedProject("CrewAI", ImportLedger())
    files = PythonFiles(tree, project_base(tree, file))
    source = files.parsed(file)
    if source is None:
        parse_python(file, tree.read_text(file))
        raise DefinitionError(f"{file}: it cannot be read")
    crews = CrewReader(tree, project, files, Names())
    found = [each for each in source.classes() if _is_flow(each)]
    if not found:
        raise DefinitionError(f"{file}: it has no class of a flow")
    flows = [reader.read() for each in found if (reader := _FlowReader(crews, source, each)).methods]
    for each in found:
        if not any(_methods_of(each)):
            crews.tell(
                "lost",
                f"flow {each.name}",
                SourcePlace(file, each.lineno),
                "no method of it starts or listens",
                "import the file of the class that its methods come from",
            )
    if not flows:
        raise DefinitionError(f"{file}:{found[0].lineno}: no method of the flow '{found[0].name}' starts or listens")
    project.flows[:] = [*flows, *(each for each in project.flows if each not in flows)]
    crews.finish()
    return project


def _is_flow(found: ast.ClassDef) -> bool:
    bases = [each.value if isinstance(each, ast.Subscript) else each for each in found.bases]
    return any(call_name(each).rpartition(".")[2] == "Flow" for each in bases)


class _FlowReader:
    def __init__(self, crews: CrewReader, source: PythonSource, found: ast.ClassDef) -> None:
        self.crews = crews
        self.source = source
        self.found = found
        self.ledger = crews.ledger
        self.methods = {each.name: each for each in _methods_of(found)}
        self.names = Names()
        self.ids = {each: self.names.id(each) for each in self.methods}
        self.flow = ImportedFlow(crews.names.id(found.name, "flow"), SourcePlace(source.file, found.lineno))
        self.loops: dict[str, str] = {}
        """Method in a loop → the loop's id."""

    def read(self) -> ImportedFlow:
        self.flow.description = ast.get_docstring(self.found)
        self.ledger.mapped(f"flow {self.found.name}", self._place(self.found))
        self._read_state()
        self._read_crews()
        steps = {name: self._read_method(method) for name, method in self.methods.items()}
        self._connect(steps)
        return self.flow

    def _place(self, node: ast.AST) -> SourcePlace:
        return SourcePlace(self.source.file, getattr(node, "lineno", 1))

    # --- State

    def _read_state(self) -> None:
        self.fields: dict[str, StateField] = fields_of(self.found, self.source, self.crews.files)
        self.written = {name: written_fields(each.node) for name, each in self.methods.items()}
        helpers = [each for each in self.found.body if isinstance(each, Method) and each.name not in self.methods]
        by_helpers = set[str]().union(*(written_fields(each) for each in helpers))
        for name in {*by_helpers, *(one for each in self.written.values() for one in each)}:
            self.fields.setdefault(name, StateField(name, None, None, True, self.found.lineno, self.source.file))
        self.helpers = by_helpers
        everywhere = set[str]().union(by_helpers, *self.written.values())
        names = Names()
        self.keys = {name: names.id(name, "field") for name in self.fields}
        for name, field in self.fields.items():
            place = SourcePlace(field.file, field.line)
            key = self.keys[name]
            kind: dict[str, Any] = {"schema": {}} if field.type is None else {"type": field.type}
            if name in everywhere:
                self.flow.shared_state[key] = {"default": field.default, "merge": "replace"}
                self.ledger.mapped(f"state {name}", place, f"shared state {key}")
            else:
                if field.has_default and field.default is None:
                    kind = {"schema": {}}
                self.flow.inputs[key] = {**kind, "default": field.default} if field.has_default else kind
                self.ledger.mapped(f"state {name}", place, f"input {key}: no method writes it")

    def _value(self, field: str) -> str:
        """A field of the state as an expression."""
        key = self.keys[field]
        return f"shared_state.{key}" if key in self.flow.shared_state else f"inputs.{key}"

    # --- Crews

    def _read_crews(self) -> None:
        """The flows of the crews that the code asks, and modules that run them in the place of theirs."""
        self.crew_flows: dict[str, ImportedFlow] = {}
        code = self.crews.code
        path = self.crews.new_paths[self.source.file]
        code.need(path)
        old = {new: name for name, new in self.crews.new_paths.items()}
        for each in list(code.closure(path)):
            source = code.modules[each].source
            if "CrewBase" not in source.text or each == path:
                continue
            classes = crew_classes(source, self.crews.files)
            made = [(one, flow) for one in classes if (flow := self._crew_flow(one, old[each])) is not None]
            if made:
                code.modules[each] = _crew_module(source, made, self.crews)
                self.crews.runs_crews = True
        code.need(path)

    def _crew_flow(self, crew: CrewClass, file: str) -> ImportedFlow | None:
        path = crew.configured("tasks_config")
        tasks = self.crews.tasks_file_of(file, path) if path else None
        if tasks is None:
            return None
        flow = self.crews.read_crew(tasks, crew, typed=False)
        self.crew_flows[crew.name] = flow
        return flow

    # --- Methods

    def _read_method(self, method: FlowMethod) -> FlowStep:
        place = self._place(method.node)
        step = FlowStep(self.ids[method.name], "function", place)
        what = f"method {method.name}"
        asked = None if method.is_router else self._only_asks(method)
        if asked is not None:
            crew, inputs, kept = asked
            flow = self.crew_flows[crew]
            names = self.crews.input_ids.get(flow.name, {})
            step.kind = "subflow"
            step.keys["flow"] = f"./{flow.name}.yaml"
            step.arguments = {names[key]: value for key, value in inputs.items() if key in names}
            step.keys["set"] = {self.keys[field]: text for field, text in kept.items()}
            if not kept:
                del step.keys["set"]
            self.ledger.mapped(what, place, f"the crew is the subflow {flow.name}.yaml")
            return step
        module = module_name(self.crews.new_paths[self.source.file])
        problem = self.crews.code.problem_of(self.crews.new_paths[self.source.file])
        asks = self._asks_models(method)
        if module is None or problem or asks:
            self._add_stub(step, method, problem or asks or "its file has no name of a module")
            return step
        step.call = self.crews.code.add_wrapper(step.id, self._format_step(method, module))
        step.arguments["state"] = {name: f"{{{{ {self._value(name)} }}}}" for name in self.fields}
        given = next((each for each in method.waits_for if each in self.methods), None)
        if given is not None and len(method.node.args.args) > 1:
            step.arguments["given"] = f"{{{{ nodes.{self.ids[given]}.output.result | default(none) }}}}"
        changed = self.written[method.name] | (self.helpers if self._calls_helpers(method) else set[str]())
        kept = {self.keys[each]: f"{{{{ output.state.{each} }}}}" for each in sorted(changed)}
        if kept:
            step.keys["set"] = kept
        sets = ", ".join(f"{name}: none" for name in changed) and dict.fromkeys(sorted(changed))
        step.sample = {"result": method.labels[0] if method.labels else "made up", "state": sets or {}}
        note = "a function node calls it"
        note += ", and it runs its crews" if "kickoff" in ast.unparse(method.node) else ""
        self.ledger.changed(what, place, note)
        return step

    def _calls_helpers(self, method: FlowMethod) -> bool:
        names = {call_name(each) for each in ast.walk(method.node) if isinstance(each, ast.Call)}
        return any(each.startswith("self.") and each[5:] not in self.methods for each in names)

    def _asks_models(self, method: FlowMethod) -> str:
        """What of crewai a method asks that is no crew of the project; empty where nothing."""
        for each in ast.walk(method.node):
            if isinstance(each, ast.Call) and call_name(each) in _ASKING:
                home, _, _ = self.crews.files.home_of(self.source, call_name(each))
                if home.partition(".")[0] == "crewai":
                    return f"it makes a model's part in code: {call_name(each)}"
        return ""

    def _format_step(self, method: FlowMethod, module: str) -> Any:
        def write(name: str) -> str:
            return (
                f"\n\ndef {name}(state: dict, given: Any = None) -> Any:\n"
                f"    from {PARTS} import run_method\n\n"
                f"{format_import(module, self.found.name)}"
                f"    return run_method(original, {method.name!r}, state, given)\n"
            )

        self.crews.runs_crews = True
        return write

    def _add_stub(self, step: FlowStep, method: FlowMethod, why: str) -> None:
        step.call = f"imported_stubs:{step.id}"
        step.arguments = {"state": {name: f"{{{{ {self._value(name)} }}}}" for name in self.fields}}
        original = self.source.segment(method.node)
        self.crews.project.stubs.append(Stub(step.call, ["state: dict"], why, step.origin, original=original))
        step.sample = {"result": method.labels[0] if method.labels else "made up", "state": {}}
        self.ledger.lost(
            f"method {method.name}", step.origin, why, f"write {step.id} in imported_stubs.py, or as nodes"
        )

    # --- A method that only asks a crew

    def _only_asks(self, method: FlowMethod) -> tuple[str, dict[str, str], dict[str, str]] | None:
        """Crew, inputs and fields that are kept of its answer; None where the method does more."""
        asked: tuple[str, dict[str, str]] | None = None
        answer = ""
        texts: dict[str, str] = {}
        kept: dict[str, str] = {}
        for statement in method.node.body:
            if _says_nothing(statement):
                continue
            if isinstance(statement, ast.Return):
                is_answer = statement.value is None or self._answer_of(statement.value, answer) is not None
                if not is_answer or asked is None:
                    return None
                continue
            value = statement.value if isinstance(statement, ast.Assign | ast.Expr) else None
            targets = statement.targets if isinstance(statement, ast.Assign) else []
            if value is None or len(targets) > 1:
                return None
            found = self._kickoff(value, texts)
            if found is not None and asked is None:
                asked = found
                if targets and not isinstance(targets[0], ast.Name):
                    return None
                answer = call_name(targets[0]) if targets else ""
                continue
            if not targets:
                return None
            field = _state_field(targets[0])
            if field is not None and asked is not None:
                text = self._answer_of(value, answer)
                if text is None:
                    return None
                kept[field] = text
            elif isinstance(targets[0], ast.Name) and asked is None:
                text = self._text_of(value, texts)
                if text is None:
                    return None
                texts[targets[0].id] = text
            else:
                return None
        return None if asked is None else (*asked, kept)

    def _kickoff(self, value: ast.expr, texts: Mapping[str, str]) -> tuple[str, dict[str, str]] | None:
        node = value.value if isinstance(value, ast.Await) else value
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return None
        if node.func.attr not in ("kickoff", "kickoff_async", "akickoff"):
            return None
        making = node.func.value
        while isinstance(making, ast.Call | ast.Attribute):
            if isinstance(making, ast.Call) and isinstance(making.func, ast.Name):
                break
            making = making.func if isinstance(making, ast.Call) else making.value
        name = making.func.id if isinstance(making, ast.Call) and isinstance(making.func, ast.Name) else ""
        if name not in self.crew_flows or (isinstance(making, ast.Call) and (making.args or making.keywords)):
            return None
        given = next(
            (each.value for each in node.keywords if each.arg == "inputs"), node.args[0] if node.args else None
        )
        if given is None:
            return name, {}
        if not isinstance(given, ast.Dict):
            return None
        inputs: dict[str, str] = {}
        for key, each in zip(given.keys, given.values, strict=True):
            text = self._text_of(each, texts)
            if not isinstance(key, ast.Constant) or text is None:
                return None
            inputs[str(key.value)] = text
        wanted = set(self.crews.input_ids.get(self.crew_flows[name].name, {}))
        return (name, inputs) if wanted <= inputs.keys() else None

    def _text_of(self, node: ast.expr, texts: Mapping[str, str]) -> str | None:
        """A value as a template: a literal, a field of the state, or a text with these in it."""
        field = _state_field(node)
        if field is not None and field in self.keys:
            return f"{{{{ {self._value(field)} }}}}"
        if isinstance(node, ast.Name):
            return texts.get(node.id)
        if isinstance(node, ast.JoinedStr):
            parts: list[str | None] = [
                self._text_of(each.value, texts)
                if isinstance(each, ast.FormattedValue) and each.format_spec is None and each.conversion == -1
                else literal(str(literal_of(each)))
                if isinstance(each, ast.Constant)
                else None
                for each in node.values
            ]
            return None if None in parts else "".join(each or "" for each in parts)
        value = literal_of(node)
        return literal(value) if isinstance(value, str) else None

    def _answer_of(self, node: ast.expr, answer: str) -> str | None:
        """What is read of a crew's answer, as a template of `output`."""
        if not answer:
            return None
        if isinstance(node, ast.Name) and node.id == answer:
            return "{{ output.result }}"
        written = ast.unparse(node)
        if written in (f"{answer}.raw", f"str({answer})", f"{answer}.to_dict()", f"{answer}.json_dict"):
            return "{{ output.result }}"
        found = re.fullmatch(rf"{re.escape(answer)}(?:\.pydantic\.([a-z]\w*)|\[['\"]([a-z]\w*)['\"]\])", written)
        if found is not None:
            return f"{{{{ output.result.{found[1] or found[2]} }}}}"
        return "{{ output.result }}" if written == f"{answer}.pydantic" else None

    # --- Edges

    def _connect(self, steps: Mapping[str, FlowStep]) -> None:
        order = list(self.methods)
        circles = _find_circles({name: self._sources(name) for name in order})
        members = {name: number for number, circle in enumerate(circles) for name in circle}
        for number, circle in enumerate(circles):
            entry = min(circle, key=order.index)
            self.loops |= dict.fromkeys(circle, self.names.id(f"until_{entry}_is_done"))
            assert members[entry] == number
        for name in order:
            self._set_triggers(steps[name], self.methods[name], members)
        done: set[int] = set()
        for name in order:
            if name not in members:
                self.flow.steps.append(steps[name])
            elif members[name] not in done:
                done.add(members[name])
                self.flow.steps.append(self._make_loop(circles[members[name]], steps, order))
        heard = {each for name in order for each in self._sources(name)}
        for name in order:
            if name not in heard and name not in members:
                self.flow.outputs[self.ids[name]] = f"{{{{ nodes.{self.ids[name]}.output.result | default(none) }}}}"
        if not self.flow.outputs:
            last = self.flow.steps[-1]
            self.flow.outputs["status"] = f"{{{{ nodes.{last.id}.status }}}}"

    def _sources(self, name: str) -> list[str]:
        """The methods that a method waits for, also as routers of its labels."""
        found: list[str] = []
        for each in self.methods[name].waits_for:
            found += [each] if each in self.methods else self._routers_of(each)
        return found

    def _routers_of(self, label: str) -> list[str]:
        routers = [each.name for each in self.methods.values() if each.is_router]
        named = [each for each in routers if label in self.methods[each].labels]
        unsure = [each for each in routers if not self.methods[each].labels]
        return named or unsure

    def _set_triggers(self, step: FlowStep, method: FlowMethod, members: Mapping[str, int]) -> None:
        terms: list[str] = []
        needs: list[str] = []
        is_all = False
        has_labels = False
        for trigger in method.triggers:
            what = f"{method.name}: {trigger.kind}({', '.join(trigger.names)})"
            place = SourcePlace(self.source.file, trigger.line)
            is_all = is_all or trigger.is_all
            outcome, note = "mapped", ""
            for each in trigger.names:
                sources = [each] if each in self.methods else self._routers_of(each)
                if not sources:
                    outcome, note = "changed", f"nothing says '{each}'"
                for source in sources:
                    if (
                        source in members
                        and members.get(method.name) == members[source]
                        and self._is_back(source, method.name)
                    ):
                        outcome, note = "changed", f"the loop {self.loops[source]} begins another round"
                        continue
                    needs.append(self._node_of(source, method.name, members))
                    if each in self.methods:
                        terms.append(f'nodes.{needs[-1]}.status == "succeeded"')
                    else:
                        has_labels = True
                        terms.append(f"{self._said(source, method.name, members)} == {_quote(each)}")
            if len(trigger.names) > 1 and not trigger.is_all and outcome == "mapped":
                outcome, note = "changed", "it runs once, when all that may lead to it are settled"
            if outcome == "mapped":
                self.ledger.mapped(what, place)
            else:
                self.ledger.changed(what, place, note)
        step.needs = list(dict.fromkeys(needs))
        if not needs and not any(each.kind == "start" for each in method.triggers):
            step.when = "false"
        elif has_labels:
            step.when = (" and " if is_all else " or ").join(dict.fromkeys(terms))
        elif is_all and len(step.needs) > 1:
            step.keys["join"] = "all"

    def _is_back(self, source: str, target: str) -> bool:
        order = list(self.methods)
        return order.index(target) <= order.index(source)

    def _node_of(self, source: str, target: str, members: Mapping[str, int]) -> str:
        """The node that stands for a method where another one waits for it."""
        inside = source in members and members.get(target) == members[source]
        return self.ids[source] if inside or source not in members else self.loops[source]

    def _said(self, router: str, target: str, members: Mapping[str, int]) -> str:
        """What a router said, as an expression."""
        if router in members and members.get(target) != members[router]:
            return f"shared_state.{self._route_key(router)}"
        return f"nodes.{self.ids[router]}.output.result"

    def _route_key(self, router: str) -> str:
        key = f"route_of_{self.ids[router]}"
        self.flow.shared_state.setdefault(key, {"default": "", "merge": "replace"})
        return key

    def _make_loop(self, circle: Sequence[str], steps: Mapping[str, FlowStep], order: Sequence[str]) -> FlowStep:
        loop = FlowStep(self.loops[circle[0]], "loop", steps[circle[0]].origin)
        body = [steps[name] for name in order if name in circle]
        again: list[str] = []
        for name in circle:
            for each in self.methods[name].waits_for:
                routers = [] if each in self.methods else self._routers_of(each)
                back = [one for one in routers if one in circle and self._is_back(one, name)]
                again += [f"nodes.{self.ids[one]}.output.result != {_quote(each)}" for one in back]
        for name in circle:
            key = f"route_of_{self.ids[name]}"
            if key in self.flow.shared_state:
                steps[name].keys.setdefault("set", {})[key] = "{{ output.result }}"
        outer = {each for step in body for each in step.needs} - {each.id for each in body}
        for step in body:
            step.needs = [each for each in step.needs if each not in outer]
        loop.needs = sorted(outer)
        entry = body[0]
        if outer and entry.when:
            loop.when, entry.when = entry.when, None
        loop.body = body
        loop.keys = {"max_iterations": _MOST_ROUNDS, "until": " and ".join(dict.fromkeys(again)) or "true"}
        for step in body:
            if step.sample is not None and again:
                step.sample = {**step.sample, "result": self._last_word(circle)}
        return loop

    def _last_word(self, circle: Sequence[str]) -> str:
        """A label that ends the loop, for the flow test."""
        inner = {each for name in circle for each in self.methods[name].waits_for}
        said = [each for name in circle for each in self.methods[name].labels]
        return next((each for each in said if each not in inner), "done")


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _says_nothing(statement: ast.stmt) -> bool:
    """Whether a statement only prints, or says what the method is."""
    if isinstance(statement, ast.Pass | ast.Import | ast.ImportFrom):
        return True
    if not isinstance(statement, ast.Expr):
        return False
    if isinstance(statement.value, ast.Constant):
        return True
    name = call_name(statement.value) if isinstance(statement.value, ast.Call) else ""
    return name == "print" or re.fullmatch(r"(logger|logging|log|console)\.\w+", name) is not None


def _state_field(node: ast.expr) -> str | None:
    """`x` of `self.state.x` and of `self.state["x"]`."""
    if isinstance(node, ast.Attribute) and call_name(node.value) == "self.state":
        return node.attr
    if isinstance(node, ast.Subscript) and call_name(node.value) == "self.state":
        found = literal_of(node.slice)
        return found if isinstance(found, str) else None
    return None


def _methods_of(found: ast.ClassDef) -> Iterator[FlowMethod]:
    for node in found.body:
        if not isinstance(node, Method):
            continue
        triggers: list[Trigger] = []
        for name, each in decorators_of(node):
            kind = name.rpartition(".")[2]
            if kind in ("start", "listen", "router"):
                names, is_all = _trigger_names(each.args if isinstance(each, ast.Call) else [])
                triggers.append(Trigger(kind, tuple(names), is_all, each.lineno))
        if triggers:
            yield FlowMethod(node.name, node, tuple(triggers), tuple(_labels_of(node)))


def _trigger_names(nodes: Sequence[ast.expr]) -> tuple[list[str], bool]:
    names: list[str] = []
    is_all = False
    for each in nodes:
        if isinstance(each, ast.Call):
            inner, inner_all = _trigger_names(each.args)
            names += inner
            is_all = is_all or inner_all or call_name(each).rpartition(".")[2] == "and_"
        elif isinstance(each, ast.Constant) and isinstance(each.value, str):
            names.append(each.value)
        elif call_name(each):
            names.append(call_name(each).rpartition(".")[2])
    return names, is_all


def _labels_of(node: Method) -> list[str]:
    """The texts that a method returns."""
    found: list[str] = []
    for each in ast.walk(node):
        if isinstance(each, ast.Return) and each.value is not None:
            values = [each.value.body, each.value.orelse] if isinstance(each.value, ast.IfExp) else [each.value]
            found += [one.value for one in values if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return list(dict.fromkeys(found))


def _find_circles(sources: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """The methods that lead to themselves, in groups."""
    reach: dict[str, set[str]] = {}
    for name in sources:
        seen: set[str] = set()
        waiting = list(sources[name])
        while waiting:
            at = waiting.pop()
            if at not in seen:
                seen.add(at)
                waiting += sources.get(at, [])
        reach[name] = seen
    groups: list[list[str]] = []
    for name in sources:
        if name in reach[name] and not any(name in group for group in groups):
            groups.append([each for each in sources if each in reach[name] and name in reach.get(each, set())])
    return groups


def _crew_module(
    source: PythonSource, made: Sequence[tuple[CrewClass, ImportedFlow]], crews: CrewReader
) -> CarriedModule:
    """A module that stands in the place of a crew's: its crews run flows, its pydantic classes stay."""
    keep = ("typing", "pydantic", "enum", "datetime", "decimal", "uuid", "dataclasses")
    imports = [
        source.segment(each) for each in source.tree.body if isinstance(each, ast.ImportFrom) and each.module in keep
    ]
    shapes = [
        source.segment(each)
        for each in source.classes()
        if any(call_name(base).rpartition(".")[2] in ("BaseModel", "Enum", "str") for base in each.bases)
    ]
    classes = [
        f"class {crew.name}(ImportedCrew):\n"
        f"    flow = {flow.name + '.yaml'!r}\n    names = {crews.input_ids[flow.name]!r}\n"
        for crew, flow in made
    ]
    head = f'"""Runs the crews of {source.file.rpartition("/")[2]}, which are flows of this project."""\n\n'
    lines = ["from __future__ import annotations\n", *imports, f"from {PARTS} import ImportedCrew"]
    text = head + "\n".join(lines) + "\n\n\n" + "\n\n\n".join([*shapes, *classes])
    return CarriedModule(parse_python(source.file, text), text, "", True)
