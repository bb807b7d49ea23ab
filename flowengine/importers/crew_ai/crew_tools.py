"""Makes functions that agents can call of a crew's tools.

Tools of `crewai_tools` and of packages are made when they are called, where the package is installed; tools that the
source defines go along with their files, and what those import of crewai is led to a module of the new project. What is
neither is a stub.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from flowengine.importers.carried_code import CarriedCode, Wrapper, argument_name, module_name, wrap_function
from flowengine.importers.crew_ai.crew_classes import CrewClass, PythonFiles
from flowengine.importers.crew_ai.crewai_stand_in import PARTS
from flowengine.importers.form import Stub
from flowengine.importers.import_names import Names
from flowengine.importers.python_code import (
    PythonFunction,
    PythonSource,
    call_name,
    decorators_of,
    literal_of,
    method_of,
    parameters_of,
    targets_of,
    text_of,
)

_KNOWN: Final[Mapping[str, tuple[str, ...]]] = {
    "SerperDevTool": ("search_query: str",),
    "ScrapeWebsiteTool": ("website_url: str",),
    "FileReadTool": ("file_path: str",),
    "FileWriterTool": ("filename: str", "content: str", 'directory: str = "./"', "overwrite: bool = True"),
    "DirectoryReadTool": ("directory: str",),
    "WebsiteSearchTool": ("search_query: str", "website: str"),
    "PDFSearchTool": ("query: str", "pdf: str"),
    "TXTSearchTool": ("search_query: str", "txt: str"),
    "CSVSearchTool": ("search_query: str", "csv: str"),
    "JSONSearchTool": ("search_query: str", "json_path: str"),
    "MDXSearchTool": ("search_query: str", "mdx: str"),
    "DOCXSearchTool": ("search_query: str", "docx: str"),
    "XMLSearchTool": ("search_query: str", "xml: str"),
    "DirectorySearchTool": ("search_query: str", "directory: str"),
    "CodeDocsSearchTool": ("search_query: str", "docs_url: str"),
    "YoutubeVideoSearchTool": ("search_query: str", "youtube_video_url: str"),
    "YoutubeChannelSearchTool": ("search_query: str", "youtube_channel_handle: str"),
    "EXASearchTool": ("search_query: str",),
    "TavilySearchTool": ("query: str",),
    "BraveSearchTool": ("search_query: str",),
    "SeleniumScrapingTool": ("website_url: str", 'css_element: str = ""'),
    "SerperScrapeWebsiteTool": ("url: str",),
    "FirecrawlScrapeWebsiteTool": ("url: str",),
    "FirecrawlSearchTool": ("query: str",),
    "GithubSearchTool": ("search_query: str", "github_repo: str"),
    "RagTool": ("query: str",),
    "DallETool": ("image_description: str",),
    "VisionTool": ("image_path_url: str",),
    "CodeInterpreterTool": ("code: str", "libraries_used: list"),
}
"""Class of `crewai_tools` → what a call of it takes; those given to its constructor are left out."""


_DEEPEST: Final = 8


class ToolFound(NamedTuple):
    """A tool as an agent names it, and what is to be said of it."""

    call: str
    change: str = ""
    problem: str = ""


class _OwnTool(NamedTuple):
    """A tool that the source defines."""

    run: PythonFunction
    source: PythonSource
    imported: str
    """The name of its file that a call imports."""
    name: str
    called: str
    """The expression that is called."""
    text: str
    is_method: bool


class ToolCode:
    """The tools of one source; each is made once."""

    def __init__(self, code: CarriedCode, paths: Mapping[str, str], files: PythonFiles) -> None:
        """`paths`: path in the tree → path in the new project."""
        self._code = code
        self._paths = paths
        self._files = files
        self._names = Names()
        self._tool_by_key: dict[str, ToolFound] = {}
        self.stubs: list[Stub] = []
        self.uses_parts = False
        """Whether a function needs what stands in for crewai."""

    def of(self, node: ast.expr, crew: CrewClass) -> ToolFound:
        """The tool that an element of a list of tools is."""
        key = f"{crew.source.file}:{crew.name}:{ast.unparse(node)}"
        if key not in self._tool_by_key:
            self._tool_by_key[key] = self._read(node, crew)
        return self._tool_by_key[key]

    def guard_of(self, node: ast.expr, crew: CrewClass) -> str | None:
        """A function that says whether an answer passes; None where the source's own is not to be found."""
        name = call_name(node)
        bare = name.removeprefix("self.")
        method = method_of(crew.definition, bare)
        function = (method, crew.source) if method is not None else self._files.function_of(crew.source, name)
        if function is None or "." in bare:
            return None
        definition, source = function
        path = self._paths.get(source.file, "")
        module = module_name(path) if path in self._code.paths else None
        if module is None or self._code.problem_of(path):
            return None
        self._code.need(path)
        imported, called = definition.name, "original"
        if method is not None:
            imported, called = crew.name, f"object.__new__(original).{definition.name}"
        body = f"found = {called}(CrewResult(value))\n    return bool(found[0] if isinstance(found, tuple) else found)"
        first = f"from {PARTS} import CrewResult\n"
        self.uses_parts = True
        wrapper = Wrapper(["value: Any"], module, imported, body, first, "bool")
        return self._code.add_wrapper(argument_name(f"{definition.name}_passes"), wrapper)

    def _read(self, node: ast.expr, crew: CrewClass) -> ToolFound:
        resolved = crew.resolve(node) or node
        source = crew.source
        if isinstance(resolved, ast.Call):
            name = call_name(resolved)
            home, original, file = self._files.home_of(source, name.partition(".")[0])
            if home.partition(".")[0] in ("crewai_tools",) and "." not in name:
                return self._package_tool(home, original, resolved, node, crew)
            definition = self._files.class_of(source, name) if "." not in name else None
            if definition is not None:
                return self._own_class(definition[0], definition[1], resolved, node, crew)
            return self._stub(
                node, crew, f"{name or 'it'} of {home or 'the source'} makes it" + (f" ({file})" if file else "")
            )
        name = call_name(resolved)
        first, _, rest = name.partition(".")
        if rest and not name.startswith("self."):
            definition = self._files.class_of(source, first)
            method = None if definition is None else method_of(definition[0], rest)
            if definition is not None and method is not None:
                return self._own_function(method, definition[1], node, crew, first)
        elif name:
            function = self._files.function_of(source, name)
            if function is not None:
                return self._own_function(function[0], function[1], node, crew)
        home, _, _ = self._files.home_of(source, first)
        return self._stub(node, crew, f"{ast.unparse(node)[:80]} comes from {home or 'code that is not there'}")

    def _package_tool(self, home: str, name: str, call: ast.Call, node: ast.expr, crew: CrewClass) -> ToolFound:
        arguments = _constructor(call)
        if arguments is None:
            return self._stub(node, crew, f"{name} is made with values of the code")
        fixed = {each.arg for each in call.keywords}
        parameters = [each for each in _KNOWN.get(name, ("query: str",)) if each.partition(":")[0] not in fixed]
        passed = ", ".join(f"{each}={each}" for each in (each.partition(":")[0] for each in parameters))
        first, body = _format_docstring(f"Use the tool {name}."), f"return original({arguments}).run({passed})"
        tool_name = self._code.add_wrapper(argument_name(name), Wrapper(parameters, home, name, body, first))
        return ToolFound(tool_name, "it needs the package crewai-tools to be installed")

    def _own_class(
        self, definition: ast.ClassDef, source: PythonSource, call: ast.Call, node: ast.expr, crew: CrewClass
    ) -> ToolFound:
        run = method_of(definition, "_run", "run", "_arun")
        if run is None:
            return self._stub(node, crew, f"the class {definition.name} has no method _run")
        arguments = _constructor(call)
        if arguments is None:
            return self._stub(node, crew, f"{definition.name} is made with values of the code", run, source)
        descriptions = (
            text_of(each.value)
            for each in definition.body
            if isinstance(each, ast.AnnAssign | ast.Assign)
            and any(isinstance(one, ast.Name) and one.id == "description" for one in targets_of(each))
        )
        description = next(descriptions, None)
        text = description if description is not None else ast.get_docstring(definition) or ""
        own = _OwnTool(
            run, source, definition.name, definition.name, f"original({arguments}).{run.name}", text, is_method=True
        )
        return self._carry(own, node, crew)

    def _own_function(
        self, definition: PythonFunction, source: PythonSource, node: ast.expr, crew: CrewClass, holder: str = ""
    ) -> ToolFound:
        is_static = any(name.endswith("staticmethod") for name, _ in decorators_of(definition))
        is_method = (
            bool(holder) and not is_static and [each.arg for each in definition.args.args[:1]] in (["self"], ["cls"])
        )
        called = f"original.{definition.name}" if holder else "original"
        text = ast.get_docstring(definition) or ""
        own = _OwnTool(
            definition, source, holder or definition.name, definition.name, called, text, is_method=is_method
        )
        return self._carry(own, node, crew)

    def _carry(self, own: _OwnTool, node: ast.expr, crew: CrewClass) -> ToolFound:
        path = self._paths.get(own.source.file, "")
        module = module_name(path) if path in self._code.paths else None
        problem = self._code.problem_of(path) if module is not None else "its file cannot go along"
        if module is None or problem:
            return self._stub(node, crew, problem, own.run, own.source)
        self._code.need(path)
        text = _format_docstring(own.text or f"Use the tool {own.name}.")
        wrapper = wrap_function(module, own.run, own.called, is_method=own.is_method)
        head = [each for each in wrapper.parameters if not each.startswith("*")]
        if len({_bare(each) for each in head}) < len(head):
            return self._stub(node, crew, "two of its parameters differ by signs alone", own.run, own.source)
        wrapper = wrapper._replace(parameters=head, imported=own.imported, first=text)
        needs = self._code.needs_of(path)
        is_other = own.source.file != crew.source.file
        change = "its file goes along, without crewai" if is_other else "the crew's file goes along for it"
        change += f"; it needs {', '.join(needs)} to be installed" if needs else ""
        return ToolFound(self._code.add_wrapper(argument_name(own.name), wrapper), change)

    def _stub(
        self,
        node: ast.expr,
        crew: CrewClass,
        why: str,
        run: PythonFunction | None = None,
        source: PythonSource | None = None,
    ) -> ToolFound:
        code = ast.unparse(node)
        short_name = code.partition("(")[0].rpartition(".")[2] or "tool"
        name = self._names.id(short_name, "tool")
        parameters: Sequence[str] = ["query: str"]
        if run is not None:
            parameters = [each for each in parameters_of(run) if _bare(each) not in ("self", "cls")]
        original = source.segment(run) if run is not None and source is not None else code
        call = f"imported_stubs:{name}"
        self.stubs.append(Stub(call, parameters, why, crew.source.place(node), original=original))
        return ToolFound(call, problem=why)


def _bare(parameter: str) -> str:
    """The name of a parameter as it is written."""
    return parameter.partition(":")[0].partition("=")[0].strip()


def _constructor(call: ast.Call) -> str | None:
    """The arguments of a constructor as they are written; None where one of them is no literal."""
    nothing = object()
    arguments = [*call.args, *(each.value for each in call.keywords)]
    if any(literal_of(each, nothing) is nothing for each in arguments) or any(
        each.arg is None for each in call.keywords
    ):
        return None
    parts = [ast.unparse(each) for each in call.args]
    return ", ".join([*parts, *(f"{each.arg}={ast.unparse(each.value)}" for each in call.keywords)])


def _format_docstring(text: str) -> str:
    """A text as the docstring of a function that is written."""
    flat = " ".join(text.split())[:1000]
    return json.dumps(flat, ensure_ascii=False)


def tool_elements(node: ast.expr | None, crew: CrewClass, depth: int = 0) -> tuple[list[ast.expr], list[ast.expr]]:
    """The tools of a list, and parts of it that are no list, or made of the list itself."""
    expression = crew.resolve(node) if depth < _DEEPEST else node
    if expression is None or (isinstance(expression, ast.Constant) and expression.value is None):
        return [], []
    if isinstance(expression, ast.List | ast.Tuple):
        elements: list[ast.expr] = []
        rest: list[ast.expr] = []
        for each in expression.elts:
            inner, others = (
                tool_elements(each.value, crew, depth + 1) if isinstance(each, ast.Starred) else ([each], [])
            )
            elements, rest = [*elements, *inner], [*rest, *others]
        return elements, rest
    if isinstance(expression, ast.BinOp) and isinstance(expression.op, ast.Add):
        first, second = (tool_elements(each, crew, depth + 1) for each in (expression.left, expression.right))
        return [*first[0], *second[0]], [*first[1], *second[1]]
    return [], [expression]
