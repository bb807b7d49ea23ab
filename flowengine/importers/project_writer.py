"""Writes an imported project: flows, stubs, carried files, the project file, a test for each flow, and IMPORT.md.

The flow files are written as `flowengine.builder` writes them, by the format's own YAML writer. When all is written the
flows are validated as `flowengine validate` does it, and what is wrong is given back. Nothing of the source is imported
or run, neither here nor by the checks. No file is written outside of the target's folder or through a link.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple, cast

from flowengine.core import dumps, is_withheld, write_output
from flowengine.errors import Diagnostic, InputError
from flowengine.flowfile import check_file
from flowengine.flowfile.project import find_project
from flowengine.flowfile.yaml import to_yaml
from flowengine.importers.form import GIVE, CarriedFile, FlowStep, ImportedFlow, ImportedProject, Stub
from flowengine.importers.import_report import format_report
from flowengine.importers.sample_values import Shapes, sample_of_schema

OWN_FILES: Final = frozenset({"flowengine.toml", "IMPORT.md", "tests", "pyproject.toml"})
"""Names that no carried file may have."""
_SAMPLE_IMAGE: Final = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d4944415478da63fcffffff7f0009fb03fd"
    "05434bca0000000049454e44ae426082"
)
_SAMPLE_PATH: Final = "tests/sample.png"

_GIVING_MODULE: Final = '''\
"""Gives values as they are: for nodes that only make a value of a template."""

from __future__ import annotations

from typing import Any


def give(value: Any) -> Any:
    """The value."""
    return value
'''


class Written(NamedTuple):
    """The files that were written, and the result of their validation."""

    files: Sequence[str]
    """Paths below the target, sorted."""
    problems: Sequence[Diagnostic]

    @property
    def errors(self) -> list[Diagnostic]:
        return [each for each in self.problems if each.severity == "error"]


Check = Callable[[Path], Sequence[Diagnostic]]


def write_project(
    project: ImportedProject,
    target: Path,
    *,
    force: bool = False,
    check: Check | None = None,
    grant: bool = False,
) -> Written:
    """Write the project into a folder, which must be empty unless `force`, and validate it.

    `grant`: whether what the source asks for (`find_asks`) is allowed at once; else it stands in the project file as
    comments, and the validation alone goes by it. `check` gives the problems of a flow file; None: those that do not
    depend on where it runs.
    """
    try:
        _check_target(target, force)
        files: dict[str, bytes | str] = {}
        for path, data in _list_files(project):
            files.setdefault(path, data)  # What the import writes itself stands before a file of the source.
        for path, data in files.items():
            _write(target, path, data, force)
        try:
            problems = _validate(project, target, check or _check)
        finally:
            if not grant:
                _write(target, "flowengine.toml", _format_project_file(project, grant=False), force=True)
        report = format_report(project, sorted([*files, "IMPORT.md"]), problems)
        _write(target, "IMPORT.md", report, force)
    except OSError as error:
        raise InputError(f"{error.filename or target} cannot be written: {error.strerror or error}") from error
    return Written(sorted([*files, "IMPORT.md"]), problems)


def _check_target(target: Path, force: bool) -> None:
    if target.exists() and not target.is_dir():
        raise InputError(f"{target} is no folder")
    if target.is_dir() and any(target.iterdir()) and not force:
        raise InputError(f"{target} is not empty; name another folder, or give --force to overwrite what is in it")
    target.mkdir(parents=True, exist_ok=True)


def _write(target: Path, path: str, data: bytes | str, force: bool) -> None:
    file = target / path
    if not file.parent.resolve().is_relative_to(target.resolve()):
        raise InputError(f"{file} would be written outside of {target}: a link leads there")
    file.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(file) and (not force or file.is_symlink()):
        raise InputError(f"{file} cannot be written: it is {'a link' if force else 'there already'}")
    write_output(file, [data], follows_link=False)


def _check(file: Path) -> list[Diagnostic]:
    return check_file(file, project=find_project(file))


def _validate(project: ImportedProject, target: Path, check: Check) -> list[Diagnostic]:
    diagnostics: list[Diagnostic] = []
    for flow in project.flows:
        diagnostics += check(target / f"{flow.name}.yaml")
    return list(dict.fromkeys(diagnostics))


def _list_files(project: ImportedProject) -> Iterator[tuple[str, bytes | str]]:
    for flow in project.flows:
        yield f"{flow.name}.yaml", format_flow(flow)
        yield f"tests/{flow.name}.flowtest.yaml", _format_test(flow, project)
    yield from _stub_modules(project.stubs)
    if any(step.call == GIVE for flow in project.flows for step in flow.every_step()):
        yield f"{GIVE.partition(':')[0]}.py", _GIVING_MODULE
    for carried in project.files:
        if _is_safe(carried):
            yield carried.path, carried.data
    yield "flowengine.toml", _format_project_file(project, grant=True)
    if any(each.get("type") == "file" for flow in project.flows for each in flow.inputs.values()):
        yield _SAMPLE_PATH, _SAMPLE_IMAGE


def _is_safe(file: CarriedFile) -> bool:
    parts = PurePosixPath(file.path).parts
    is_own = parts[:1] == () or parts[0] in OWN_FILES
    return not (is_own or file.path.startswith("/") or any(is_withheld(each) for each in parts))


# --- Flow files


def format_flow(flow: ImportedFlow) -> str:
    """The flow as a file, a blank line before each part and each node."""
    head: dict[str, Any] = {"flowengine": "v1", "name": flow.name}
    if flow.description:
        head["description"] = flow.description
    parts: dict[str, Any] = {
        "inputs": flow.inputs,
        "shared_state": flow.shared_state,
        **flow.keys,
        "agents": flow.agents,
        "nodes": {each.id: each.to_node() for each in flow.steps},
        "outputs": flow.outputs,
    }
    text = [f"# Imported from {_clean_line(flow.origin.file)}; IMPORT.md says what became of each of its parts.\n"]
    text.append(to_yaml(head))
    for key, value in parts.items():
        if value:
            text.append(f"\n{_space_nodes(to_yaml({key: value})) if key == 'nodes' else to_yaml({key: value})}")
    return "".join(text)


def _space_nodes(text: str) -> str:
    """A blank line before each node but the first: a line of two blanks and a key."""
    return re.sub(r"(?<=\n)(?=  [a-z]\w*:)", "\n", text).replace("\n\n", "\n", 1)


# --- Stubs


def _stub_modules(stubs: Sequence[Stub]) -> Iterator[tuple[str, str]]:
    modules: dict[str, dict[str, Stub]] = {}
    for stub in stubs:
        module, _, name = stub.call.partition(":")
        modules.setdefault(module, {}).setdefault(name, stub)
    for module, functions in modules.items():
        text = '"""Functions that the import could not bring along: write their bodies."""\n\n'
        text += "from __future__ import annotations\n"
        text += "".join(f"\n\n{_format_stub(name, stub)}" for name, stub in functions.items())
        yield f"{module.replace('.', '/')}.py", text


def _format_stub(name: str, stub: Stub) -> str:
    why = f"{stub.why} ({stub.origin})" if stub.origin.file else stub.why
    returns = f" -> {stub.returns}" if stub.returns else ""
    head = f"def {name}({', '.join(stub.parameters)}){returns}:"
    head = head if "\n" not in head and _parses(f"{head}\n    ...") else f"def {name}(**arguments):"
    message = f"{name} is a stub of the import: {_clean_line(why)}"
    lines = stub.original.expandtabs(4).splitlines()[:400]
    quoted = "".join(f"# {line}".rstrip() + "\n" for line in lines if line.isprintable())
    original = f"# What it was:\n#\n{quoted}" if quoted else ""
    return f"{original}{head}\n    {dumps(_clean_line(why))}\n    raise NotImplementedError({dumps(message)})\n"


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _clean_line(text: str) -> str:
    """One line without anything that a terminal or a comment could take for more."""
    return "".join(each if each.isprintable() else " " for each in text)[:300]


# --- The project file


def find_asks(project: ImportedProject) -> Mapping[str, Sequence[str]]:
    """The source's requests: key of the project file → its entries. Functions that the import wrote are its own."""
    modules = {each.path.partition("/")[0].removesuffix(".py") for each in project.files}
    requests = {
        "allow_calls": [each for each in _modules_of(project) if each.partition(".")[0] in modules],
        **{key: sorted(project.settings.get(key, ())) for key in ("allow_env", "allow_http", "allow_mcp")},
    }
    return {key: entries for key, entries in requests.items() if entries}


def _modules_of(project: ImportedProject) -> Sequence[str]:
    return sorted({each.partition(":")[0] for flow in project.flows for each in _calls_of(flow)})


def _format_project_file(project: ImportedProject, *, grant: bool) -> str:
    asks = find_asks(project)
    own = [each for each in _modules_of(project) if each not in asks.get("allow_calls", ())]
    allowed = {"allow_calls": own, **{key: entries for key, entries in asks.items() if grant and key != "allow_calls"}}
    if grant:
        allowed["allow_calls"] = _modules_of(project)
    lines = [
        "# What the flows of this folder may do. `flowengine explain FE502` lists all keys.",
        "# allow_calls: modules that `call:` and `tools:` may import; read them before the first run.",
        *(f"{key} = {_toml(entries)}" for key, entries in allowed.items()),
    ]
    if asks and not grant:
        lines += [
            "",
            "# The source asks for what follows. None of it is allowed yet: take the `# ` from what it may have.",
        ]
        for key, entries in asks.items():
            instead = "  # in the place of the line above" if key == "allow_calls" else ""
            lines.append(f"# {key} = {_toml([*own, *entries] if instead else entries)}{instead}")
    settings = {key: value for key, value in project.settings.items() if key not in asks}
    tables: dict[str, Any] = {key: value for key, value in settings.items() if isinstance(value, Mapping)}
    lines += [f"{key} = {_toml(value)}" for key, value in settings.items() if key not in tables]
    for key, table in tables.items():
        for name, entry in cast("Mapping[str, Mapping[str, Any]]", table).items():
            lines += ["", f"[{key}.{_toml(name)}]", *(f"{each} = {_toml(value)}" for each, value in entry.items())]
    return "\n".join([*lines, ""])


def _toml(value: Any) -> str:
    """JSON of texts and lists is TOML but for the one character that TOML wants escaped."""
    return dumps(value).replace("\x7f", "\\u007f")


def _calls_of(flow: ImportedFlow) -> Iterator[str]:
    """All `module:name` of a flow: functions, tools, guardrails, shapes of outputs."""
    for step in flow.every_step():
        yield from _code_names(step.to_node())
    yield from _code_names(flow.agents)


def _code_names(value: Any, key: str = "") -> Iterator[str]:
    if isinstance(value, str):
        is_code = key in ("call", "tool", "tools", "output", "guardrails", "input", "contexts", "data_source")
        if is_code and re.fullmatch(r"[\w.]+:\w+", value):
            yield value
    elif isinstance(value, Mapping):
        for name, each in cast("Mapping[str, Any]", value).items():
            yield from _code_names(each, name)
    elif isinstance(value, list):
        for each in cast("list[Any]", value):
            yield from _code_names(each, key)


# --- The test of a flow


def _format_test(flow: ImportedFlow, project: ImportedProject) -> str:
    """One case: models and functions are scripted, so it runs without a key and without the code's packages."""
    flows = {each.name: each for each in project.flows}
    answers: dict[str, Any] = {}
    fakes: dict[str, dict[str, Any]] = {"functions": {}, "http": {}, "tools": {}}
    approvals: dict[str, Any] = {}
    for path, step, shapes in _walk(flow, flows):
        value = step.sample if step.sample is not None else _sample_of(step, shapes)
        if step.kind == "approval":
            approvals[path] = step.sample or next(iter(step.keys.get("routes", {"ok": {}})))
        elif step.kind in ("agent", "routing", "evaluation") and not step.call:
            answers[path] = value
        elif step.call == GIVE:
            continue
        elif step.kind in ("function", "code") or (step.kind == "condition" and step.call):
            fakes["functions"][path] = {"returns": value}
        elif step.kind == "http":
            fakes["http"][path] = {"status": 200, "headers": {}, "body": value}
        elif step.kind == "tool":
            fakes["tools"][str(step.keys["tool"]).replace(".", "_").rpartition(":")[2]] = {"returns": value}
    inputs = {**_sample_inputs(flow), **flow.samples}
    outputs = {
        name: answers[match[1]]
        for name, text in flow.outputs.items()
        if (match := re.fullmatch(r"\{\{ nodes\.(\w+)\.output \}\}", text)) and match[1] in answers
    }
    case: dict[str, Any] = {"name": "it runs to its end with answers that are made up"}
    fakes = {key: value for key, value in fakes.items() if value}
    parts = {"inputs": inputs, "answers": answers, "fakes": fakes, "approvals": approvals}
    case |= {key: value for key, value in parts.items() if value}
    case["expect"] = {"status": "succeeded", **({"outputs": outputs} if outputs else {})}
    head = "# Made by the import: models and functions are scripted, so nothing is asked and nothing is called.\n"
    return head + to_yaml({"flow": f"../{flow.name}.yaml", "cases": [case]})


def _walk(
    flow: ImportedFlow, flows: Mapping[str, ImportedFlow], prefix: str = "", depth: int = 0
) -> Iterator[tuple[str, FlowStep, Shapes]]:
    """All steps with their paths, those of subflows too."""
    shapes = Shapes(flow)

    def inside(steps: Sequence[FlowStep], before: str) -> Iterator[tuple[str, FlowStep, Shapes]]:
        for step in steps:
            path = f"{before}{step.id}"
            yield path, step, shapes
            yield from inside(step.body, f"{path}.")
            inner = flows.get(PurePosixPath(str(step.keys.get("flow", ""))).stem)
            if step.kind == "subflow" and inner is not None and depth < 8:
                yield from _walk(inner, flows, f"{path}.", depth + 1)

    yield from inside(flow.steps, prefix)


def _sample_of(step: FlowStep, shapes: Shapes) -> Any:
    if step.kind == "routing":
        return {"next_route": next(iter(step.keys.get("routes", {"": 0}))), "confidence": 0.9, "reasoning": "made up"}
    if step.kind == "evaluation":
        return {"score": 0.9, "passed": True, "feedback": "made up"}
    if step.kind == "condition":
        return next(iter(step.keys.get("routes", {"": 0})))
    path = ("nodes", step.id, "output", *(("body",) if step.kind == "http" else ()))
    schema = step.keys.get("output")
    if step.kind == "agent" and isinstance(schema, Mapping):
        return sample_of_schema(schema)
    if step.kind == "agent" and isinstance(schema, str):
        return shapes.of(*path, otherwise={})
    return shapes.of(*path, otherwise=f"made up by {step.id}")


def _sample_inputs(flow: ImportedFlow) -> dict[str, Any]:
    shapes = Shapes(flow)
    samples: dict[str, Any] = {}
    for name, spec in flow.inputs.items():
        if "default" in spec:
            continue
        kind = spec.get("type")
        if kind == "file":
            samples[name] = _SAMPLE_PATH
        elif "schema" in spec:
            samples[name] = sample_of_schema(spec["schema"], name)
        elif kind in ("array", "object"):
            sample = shapes.of("inputs", name, otherwise=None)
            fits = isinstance(sample, list if kind == "array" else dict)
            samples[name] = sample if fits else ["sample"] if kind == "array" else {"sample": "value"}
        else:
            text = shapes.of("inputs", name, otherwise=None) if kind is None else None
            samples[name] = text or sample_of_schema({"type": "string", **spec}, name)
    return samples
