"""Carries the Python of a Prompt flow: what it imports of promptflow is led to a module of the new project."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from flowengine.importers.carried_code import CarriedCode, Wrapper, argument_name, module_name, wrap_function
from flowengine.importers.form import CarriedFile
from flowengine.importers.prompt_flow.promptflow_stand_in import CONNECTIONS, PARTS, STAND_IN
from flowengine.importers.python_code import PythonFunction, PythonSource, call_name, decorators_of, parameters_of
from flowengine.importers.source_tree import SourceTree


class Function(NamedTuple):
    """A function of the source, as a node can call it."""

    call: str
    parameters: tuple[str, ...]
    """Names; `**` where it takes any."""
    required: frozenset[str]
    connections: frozenset[str]
    """Parameters that take a connection."""
    needs: tuple[str, ...]
    """Packages that have to be installed."""
    asks_models: bool
    """Whether it asks a model by itself."""


class PromptFlowCode(CarriedCode):
    """The Python files of a Prompt flow."""

    def __init__(self, tree: SourceTree, paths: Mapping[str, str]) -> None:
        super().__init__(tree, paths, STAND_IN)
        self.variables: dict[str, str] = {}
        """Variables of the environment that are set before the code is imported."""

    def function(self, name: str) -> Function | str:
        """The tool of a file, or why it cannot be called."""
        if name not in self.paths:
            return f"there is no file '{name}'"
        module = self.module(name)
        if module.source.text == "" and module.problem:
            return module.problem
        function = _tool_of(module.source)
        if isinstance(function, str):
            return function
        problem = self.problem_of(name)
        if problem:
            return problem
        path = module_name(name)
        if path is None:
            return f"'{name}' is no name of a module"
        needs = self.needs_of(name)
        call = f"{path}:{function.name}"
        parameters = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        if len({argument_name(each.arg) for each in parameters}) < len(parameters):
            return "two of its parameters differ by signs that arguments of a node do not have"
        if needs or function.name.startswith("_") or any(argument_name(each.arg) != each.arg for each in parameters):
            call = self.add_wrapper(argument_name(function.name), wrap_function(path, function))
        defaults = function.args.defaults
        optional = {
            each.arg for each in [*function.args.posonlyargs, *function.args.args][-len(defaults) :] if defaults
        }
        keywords = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
        optional |= {each.arg for each, default in keywords if default is not None}
        connected = {
            each.arg
            for each in parameters
            if each.annotation and CONNECTIONS & set(re.findall(r"\w+", ast.unparse(each.annotation)))
        }
        imports = (each for one in self.closure(name) for each in self.module(one).source.imports)
        return Function(
            call,
            (*(each.arg for each in parameters), *(["**"] if function.args.kwarg else [])),
            frozenset({each.arg for each in parameters} - optional),
            frozenset(connected),
            tuple(needs),
            any(each.module.startswith("promptflow.tools.") for each in imports),
        )

    def stub_of(self, name: str) -> tuple[list[str], str]:
        """Parameters and text of a file's tool, for a stub."""
        source = self.module(name).source if name in self.paths else None
        function = "" if source is None else _tool_of(source)
        if source is None or isinstance(function, str):
            return [], ""
        return parameters_of(function), source.segment(function)

    def files(self) -> Iterator[CarriedFile]:
        """Yields the files to copy: the used part of promptflow, the wrappers, and all files without a problem."""
        if self.uses_parts:
            lines = [f"os.environ.setdefault({key!r}, {value!r})\n" for key, value in self.variables.items()]
            text = "".join(["\n\n# What the flow said of the environment\n\n", *lines]) if lines else ""
            yield CarriedFile(f"{PARTS}.py", STAND_IN.text + text)
        yield from self.carried_files()

    def add_package_tool(self, parts: Sequence[str], names: Sequence[str]) -> str:
        """A function that calls one of a package when it is called."""
        head = [f"{each}: Any = None" for each in names]
        body = f"return original({', '.join(f'{each}={each}' for each in names)})"
        return self.add_wrapper(parts[-1], Wrapper(head, ".".join(parts[:-1]), parts[-1], body))


def _tool_of(source: PythonSource) -> PythonFunction | str:
    functions = source.functions()
    tools = [each for each in functions if any(name.rpartition(".")[2] == "tool" for name, _ in decorators_of(each))]
    candidates = tools or ([] if len(functions) != 1 else functions)
    if candidates:
        return candidates[0]
    for each in source.classes():
        if any(call_name(base).endswith("ToolProvider") for base in each.bases):
            return f"the tool is a method of the class '{each.name}', which promptflow makes"
    return "no function in it is marked with @tool"
