"""Reads the project file, and what it allows: code that flows may call, environment that they may read, MCP servers,
scripts without a sandbox.

`[tool.flowengine]` in the nearest pyproject.toml that has it, else flowengine.toml; its folder is the
root, and paths in flows stay under it. Without one, the flow's folder is the root, and only modules in
it may be called. `problem_with` looks at code without running it; `import_object` and `import_callable` run it.
"""

from __future__ import annotations

import importlib
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from flowengine.core import FileRules, RefusedPathError, describe_error, is_map, resolve_path, unprefixed_name
from flowengine.errors import DefinitionError, Diagnostic, ProjectError, did_you_mean
from flowengine.flowfile.project.code_names import (
    CodeDefinition,
    CodeName,
    code_name,
    definition_of,
    find_syntax_problem,
    home_of,
    names_in,
)
from flowengine.flowfile.project.imports import load_module
from flowengine.flowfile.project.toml_positions import TellProblem, TomlPath, find_key_positions, nearest_position
from flowengine.models import ModelDefinition, Price, ProviderSettings, is_planted

if TYPE_CHECKING:
    # Read where a project file has the table.
    from flowengine.core import Schedule
    from flowengine.flowfile.project.masking_table import MaskingRules
    from flowengine.flowfile.project.webhook_tables import WebhookRule
    from flowengine.nodes.notify import NotifySettings


class ProjectProblem(NamedTuple):
    """The reason why a reference to code cannot be used."""

    code: str
    message: str
    hint: str = ""

    def error(self) -> ProjectError:
        return ProjectError(f"{self.message}{self.hint}", self.code)


@dataclass(frozen=True)
class Project:
    """The contents of a project file."""

    root: Path
    """Paths in flows stay under this folder."""
    file: Path | None = None
    """The project file; None where there is none."""
    allow_calls: tuple[str, ...] = ()
    """Modules that may be called, with everything below them."""
    allow_env: tuple[str, ...] = ()
    """Environment variables that flows may read."""
    allow_mcp: tuple[str, ...] = ()
    """MCP servers that flows may use: beginnings of command lines and of URLs."""
    allow_http: tuple[str, ...] = ()
    """Addresses that nodes of the type `http` may ask: beginnings, and what goes with each (`address_rules`)."""
    allow_callbacks: tuple[str, ...] = ()
    """Which addresses `flowengine serve` tells of runs: beginnings of addresses (`address_rules`)."""
    webhooks: tuple[WebhookRule, ...] = ()
    """Which other services start flows of `flowengine serve`."""
    mcp_servers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """MCP servers of the project, by name, with their settings: every flow of the project may call their tools."""
    allow_unconfined_scripts: bool = False
    """Whether scripts of skills run where there is no sandbox, with the rights of the process."""
    http_proxy: bool = False
    """Whether requests of nodes go through the proxy that the environment names."""
    approve_external: bool = False
    """Whether a person is asked before each call of a tool whose effect is `external`."""
    pythonpath: tuple[Path, ...] = ()
    """Folders where modules are looked for, before the installed ones."""
    store: str | None = None
    """The address of the store that records runs."""
    providers: Mapping[str, ProviderSettings] = field(default_factory=dict[str, ProviderSettings])
    """Provider → its address and limits."""
    default_provider: str | None = None
    """The provider of models whose names no table knows."""
    prices: Mapping[str, Price] = field(default_factory=dict[str, Price])
    """Model → what it costs."""
    models: Mapping[str, ModelDefinition] = field(default_factory=dict[str, ModelDefinition])
    """Name of the project's own → the model that it stands for, and what is said of it."""
    memory: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Settings of memory."""
    files: FileRules = field(default_factory=FileRules)
    """Rules for the files that runs may take in."""
    masking: MaskingRules | None = None
    """Rules for masking texts that leave, beside those that are built in."""
    schedules: Sequence[Schedule] = ()
    """Flows that run by the clock."""
    notify: NotifySettings | None = None
    """How people are told of questions; None: they are not."""

    def resolve(self, path: str | os.PathLike[str], base: Path | None = None) -> Path:
        """A path of a flow, from `base` (the root, if not given); `ProjectError` where a flow may not name it."""
        try:
            return resolve_path(path, self.root, base)
        except RefusedPathError as error:
            raise ProjectError(str(error)) from None

    @property
    def _folders(self) -> tuple[Path, ...]:
        """The folders of the project's modules."""
        return self.pythonpath or (self.root,)

    def module_file(self, module: str) -> Path | None:
        """The file of a module that lies in the project; None where it is an installed one, or is not there."""
        relative = module.replace(".", os.sep)
        for folder in self._folders:
            base = os.path.join(folder, relative)
            for candidate in (os.path.join(base, "__init__.py"), f"{base}.py"):
                if os.path.isfile(candidate):
                    return Path(candidate)
        return None

    def has_module(self, module: str) -> bool:
        """Tells whether a module of the project finds a module by its name: beside itself or among the installed
        ones.
        """
        first = module.partition(".")[0]
        return (
            self.module_file(first) is not None
            or any((each / first).is_dir() for each in self._folders)
            or _is_installed(first)
        )

    def problem_with(self, target: str) -> ProjectProblem | None:
        """Explains why `module:name` cannot be used, without running code; None if no problem was found."""
        code = code_name(target)
        if code is None:
            return _no_name(target)
        refusal = self.refusal(code)
        if refusal is not None:
            return refusal
        file = self.module_file(code.module)
        if file is None:
            return None if self.file is not None and _is_installed(code.module) else self._not_found(code.module)
        names = names_in(file)
        if names is None:
            problem = find_syntax_problem(file)
            return None if problem is None else _no_import(code.module, problem)
        if code.name not in names:
            hint = did_you_mean(code.name, names)
            return ProjectProblem("FE506", f"the module '{code.module}' defines no '{code.name}'", hint)
        source = names[code.name]
        return None if source is None or self._is_ours(source) else _explain_borrowed(code, source)

    def definition_of(self, target: str) -> CodeDefinition | None:
        """The object that `module:name` stands for, read without running code; None where that cannot be seen."""
        code = code_name(target)
        file = None if code is None else self.module_file(code.module)
        return None if code is None or file is None else definition_of(file, code.name)

    def refusal(self, code: CodeName) -> ProjectProblem | None:
        """Explains why code of that name must not be used; None if it may."""
        module = code.module
        if self.file is None and self.module_file(module) is None:
            return self._not_found(module)
        if self.file is not None and not self._is_allowed(module):
            hint = did_you_mean(module, self.allow_calls) or f"; list it in `allow_calls` of {self.file.name}"
            return ProjectProblem("FE504", f"the module '{module}' is not allowed", hint)
        if code.is_private and (code.name.startswith("_") or module not in self.allow_calls):
            return ProjectProblem("FE504", f"'{module}:{code.name}' is private: parts of it begin with an underscore")
        return None

    def _is_allowed(self, module: str) -> bool:
        return any(module == allowed or module.startswith(allowed + ".") for allowed in self.allow_calls)

    def _is_ours(self, module: str) -> bool:
        """Tells whether what comes from a module may be handed on by one that may be called."""
        return module.startswith(".") or self._is_allowed(module) or self.module_file(module) is not None

    def import_callable(self, target: str) -> Callable[..., Any]:
        """The function or class of `module:name`; `ProjectError` says what is in the way."""
        value = self.import_object(target)
        if not callable(value):
            raise ProjectProblem("FE508", f"'{target}' is {type(value).__name__}, which cannot be called").error()
        return value

    def import_object(self, target: str) -> Any:
        """Whatever `module:name` is. Imports the module; `ProjectError` says what is in the way."""
        code = code_name(target)
        refusal = _no_name(target) if code is None else self.refusal(code)
        if code is None or refusal is not None:
            raise cast(ProjectProblem, refusal).error()
        module = self._module(code.module)
        try:
            value = getattr(module, code.name)
        except AttributeError:
            hint = did_you_mean(code.name, vars(module))
            raise ProjectProblem(
                "FE506", f"the module '{code.module}' defines no '{code.name}'", hint
            ).error() from None
        source = self._foreign_source(code, module, value)
        if source is not None:
            raise _explain_borrowed(code, source).error()
        return value

    def _foreign_source(self, code: CodeName, module: ModuleType, value: object) -> str | None:
        """Returns the module that an object really comes from, if this module must not pass it on; else None."""
        if isinstance(value, ModuleType):
            return unprefixed_name(value.__name__)
        file = self.module_file(code.module)
        names = None if file is None else names_in(file)
        source = None if names is None else names.get(code.name, code.module)
        if source is not None and not self._is_ours(source):
            return source
        if (names is not None and source is None) or code.name in getattr(module, "__all__", ()):
            return None
        home = home_of(value)
        return None if home is None or home == code.module or self._is_ours(home) else home

    def _module(self, name: str) -> ModuleType:
        file = self.module_file(name)
        if file is None and not _is_installed(name):
            raise self._not_found(name).error()
        try:
            return importlib.import_module(name) if file is None else load_module(name, self._folders)
        except (Exception, SystemExit) as error:  # Foreign code: whatever it raises is its module's failure.
            raise _no_import(name, describe_error(error)).error() from error

    def _not_found(self, module: str) -> ProjectProblem:
        where = self._folders
        names = [each.stem for folder in where for each in folder.glob("*.py")] if "." not in module else []
        places = ", ".join(str(each) for each in where)
        also = "; without a project file only modules there may be called" if self.file is None else ""
        return ProjectProblem(
            "FE505", f"there is no module '{module}' in {places}", did_you_mean(module, names) or also
        )


def _no_name(target: str) -> ProjectProblem:
    return ProjectProblem("FE409", f"expected 'module:function', found {target!r:.80}")


def _no_import(module: str, problem: str) -> ProjectProblem:
    return ProjectProblem("FE507", f"the module '{module}' cannot be imported: {problem}")


def _explain_borrowed(code: CodeName, source: str) -> ProjectProblem:
    text = f"the module '{code.module}' only imports '{code.name}', from '{source}', which may not be called"
    return ProjectProblem("FE504", text, f"; define a function in '{code.module}', or list it in its `__all__`")


def find_project(path: str | os.PathLike[str] | None = None) -> Project:
    """The project of a flow file or a folder; `ProjectError` lists what is wrong with its file."""
    project, problems = project_of(None if path is None else Path(path))
    if problems:
        raise ProjectError("\n".join(str(each) for each in problems))
    return project


def project_of(path: Path | None) -> tuple[Project, list[Diagnostic]]:
    """The project of a flow file (or a folder, or the current one) and what is wrong with its file.

    A file that somebody else may have put there, as into /tmp, is passed over.
    """
    start = (path or Path()).absolute()
    folder = start if os.path.isdir(start) else start.parent
    for each in (folder, *folder.parents):
        for file in (each / "pyproject.toml", each / "flowengine.toml"):
            if os.path.isfile(file) and not is_planted(file):
                text, settings, problems = _settings(file)
                if settings is not None or problems:
                    problems += _find_unread(file)
                    return _project(file, text, settings or {}, problems)
    return Project(folder), []


def _settings(file: Path) -> tuple[str, Mapping[str, Any] | None, list[Diagnostic]]:
    """A TOML file's text and FlowEngine's part of it; None where the file has none."""
    text = ""
    try:
        text = file.read_text(encoding="utf-8-sig")
        content = tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        return text, None, [Diagnostic("FE501", f"cannot read the project file: {error}", str(file))]
    if file.name == "flowengine.toml":
        inner: Any = content.get("tool", {}).get("flowengine") if is_map(content.get("tool")) else None
        if not is_map(inner):
            return text, content, []
        stray = [f"'{key}'" for key in content if key != "tool"]
        message = f"outside of [tool.flowengine], {', '.join(stray)} would not be read: {_MOVE}"
        return text, inner, [Diagnostic("FE502", message, str(file))] if stray else []
    tool: Any = content.get("tool")
    own: Any = tool.get("flowengine") if is_map(tool) else None
    if own is not None and not is_map(own):
        return text, None, [Diagnostic("FE502", "[tool.flowengine] is a table", str(file))]
    return text, own, []


_MOVE: Final = "move it into the table, or take the table's head away"


def _find_unread(file: Path) -> Iterator[Diagnostic]:
    """Tells of a second project file of the same folder."""
    other = file.with_name("flowengine.toml")
    if other != file and os.path.isfile(other) and not is_planted(other):
        message = (
            "is not read, since pyproject.toml beside it has [tool.flowengine]: put its keys there, or take one away"
        )
        yield Diagnostic("FE502", f"flowengine.toml {message}", str(other))


def _positions(text: str) -> Mapping[TomlPath, tuple[int, int]]:
    """Returns the positions of FlowEngine's keys in a TOML file, by name."""
    every_position = find_key_positions(text)
    inner = {
        path[2:]: place
        for path, place in every_position.items()
        if path[:2] == ("tool", "flowengine") and len(path) > 2
    }
    return inner or every_position


_LIST: Final = "a list of strings"
_TABLES: Final = "a list of tables: [[schedules]]"
_EXPECTED: Final = {
    "allow_calls": _LIST,
    "allow_env": _LIST,
    "allow_mcp": _LIST,
    "allow_http": _LIST,
    "allow_callbacks": _LIST,
    "webhooks": "a list of tables",
    "mcp_servers": "a table",
    "allow_unconfined_scripts": "true or false",
    "approve_external": "true or false",
    "http_proxy": "true or false",
    "pythonpath": _LIST,
    "store": "a string",
    "default_provider": "a string",
    "providers": "a table",
    "prices": "a table",
    "models": "a table",
    "memory": "a table",
    "files": "a table",
    "masking": "a table",
    "notify": "a table",
    "schedules": _TABLES,
}
_FITS: Final[Mapping[str, Callable[[Any], bool]]] = {
    _LIST: lambda value: isinstance(value, list) and all(isinstance(each, str) for each in value),  # pyright: ignore[reportUnknownVariableType] - a list of a TOML file
    _TABLES: lambda value: isinstance(value, list) and all(map(is_map, value)),  # pyright: ignore[reportUnknownArgumentType] - as above
    "a string": lambda value: isinstance(value, str),
    "true or false": lambda value: isinstance(value, bool),
    "a table": is_map,
    "a list of tables": lambda value: isinstance(value, list),
}


_NAMES: Final = {
    "allow_calls": (re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"), "name of a module like shop.tools"),
    "allow_env": (re.compile(r"[^\s=*?\[\]]+"), "name of a variable"),
}
"""Key → what each of its texts looks like, and is called."""
_MOST_BITS: Final = 4_096


def _holds_huge_number(value: Any) -> bool:
    """Tells whether a whole number in a value is too long to be shown in a message, as Python has it."""
    if isinstance(value, list):
        return any(map(_holds_huge_number, cast("list[Any]", value)))
    if is_map(value):
        return any(map(_holds_huge_number, value.values()))
    return isinstance(value, int) and value.bit_length() > _MOST_BITS


def _project(
    file: Path, text: str, settings: Mapping[str, Any], problems: list[Diagnostic]
) -> tuple[Project, list[Diagnostic]]:
    @cache
    def positions() -> Mapping[TomlPath, tuple[int, int]]:
        return _positions(text)

    def position_of(path: TomlPath) -> tuple[int, int] | tuple[None, None]:
        place = nearest_position(positions(), path) if path else None
        return (None, None) if place is None else place

    def tell(message: str, hint: str = "", path: TomlPath = ()) -> None:
        problems.append(Diagnostic("FE502", message, str(file), *position_of(path), hint=hint))

    def place_of(path: TomlPath) -> str:
        return ":".join(str(each) for each in (file.name, *position_of(path)) if each is not None)

    sound: dict[str, Any] = {}
    for key, value in settings.items():
        expected = _EXPECTED.get(key)
        if expected is None:
            tell(f"unknown key '{key}'", did_you_mean(key, _EXPECTED), (key,))
        elif _holds_huge_number(value):
            tell(f"'{key}' holds a whole number of more than {_MOST_BITS:,} bits", "", (key,))
        elif not _FITS[expected](value):
            tell(f"'{key}' is {expected}", "", (key,))
        else:
            sound[key] = tuple(value) if expected is _LIST else value

    for key, (is_name, kind) in _NAMES.items():
        for each in (each for each in sound.get(key, ()) if not is_name.fullmatch(each)):
            tell(f"'{each:.100}' in `{key}` is no {kind}; there are no patterns", "", (key,))
    _read_tables(sound, file.parent, tell, place_of)
    folders = {each: _find_inside(file.parent, each) for each in sound.get("pythonpath", ())}
    for each, folder in folders.items():
        if folder is None or not folder.is_dir():
            problem = "is no folder" if folder is not None else "leaves the project's root"
            fault = f"'{each}' in `pythonpath` {problem}"
            problems.append(Diagnostic("FE503", fault, str(file), *position_of(("pythonpath",))))
    sound["pythonpath"] = tuple(folder for folder in folders.values() if folder is not None)
    return Project(file.parent, file, **sound), problems


def _read_tables(sound: dict[str, Any], root: Path, tell: TellProblem, place_of: Callable[[TomlPath], str]) -> None:
    """Put what the tables of a project file mean in their place; what reads one is imported where there is one."""
    if sound.keys() & {"default_provider", "providers", "prices"}:
        from flowengine.flowfile.project.vendor_tables import read_default_provider, read_prices, read_providers

        sound["default_provider"] = read_default_provider(sound.get("default_provider"), tell)
        sound["providers"] = read_providers(sound.get("providers", {}), tell)
        sound["prices"] = read_prices(sound.get("prices", {}), tell)
    if "masking" in sound:
        from flowengine.flowfile.project.masking_table import read_masking

        sound["masking"] = read_masking(sound["masking"], tell)
    if "memory" in sound:
        from flowengine.agents.context import ParameterError, check_settings

        try:
            check_settings(sound["memory"])
        except ParameterError as error:
            tell(f"`memory`: {str(error).removeprefix('memory: ')}", "", ("memory", error.parameter or ""))
            sound["memory"] = {}
    if "files" in sound:
        from flowengine.flowfile.project.file_table import read_file_rules

        sound["files"] = read_file_rules(sound["files"], tell)
    for key in sorted(sound.keys() & {"allow_http", "allow_callbacks"}):
        from flowengine.core import read_rule

        for each in sound[key]:
            if read_rule(each) is None or "*" in each:
                text = "is no beginning of an address like https://host/path/, with variables or networks behind it"
                proposal = "; there are no patterns: an entry allows what lies below it" if "*" in each else ""
                tell(f"'{each:.100}' in `{key}` {text}{proposal}", "", (key,))
    if "webhooks" in sound:
        from flowengine.flowfile.project.webhook_tables import read_webhooks

        sound["webhooks"] = read_webhooks(sound["webhooks"], tell)
    if "mcp_servers" in sound:
        sound["mcp_servers"] = _read_servers(sound["mcp_servers"], tell)
    if "schedules" in sound:
        from flowengine.flowfile.project.schedule_table import read_schedules

        sound["schedules"] = read_schedules(sound["schedules"], root, tell)
    if "notify" in sound:
        from flowengine.flowfile.project.notify_table import read_notify

        sound["notify"] = read_notify(sound["notify"], sound.get("allow_http", ()), tell)
    if "models" in sound:
        from flowengine.flowfile.project.model_tables import read_models

        sound["models"] = read_models(sound["models"], tell, place_of)


def _read_servers(table: Mapping[str, Any], tell: TellProblem) -> dict[str, Mapping[str, Any]]:
    """Name → settings of each server that can be asked as it is written."""
    sound: dict[str, Mapping[str, Any]] = {}
    for name, settings in table.items():
        from flowengine.agents.tools.mcp import server_of  # The event loop's library comes with it.
        from flowengine.flowfile.schema import seconds

        own: dict[str, Any] = {**settings} if is_map(settings) else {}
        try:
            for key in own.keys() & {"timeout", "start_timeout"}:  # As in a flow file: "30s".
                own[key] = seconds(own[key]) if isinstance(own[key], str) else own[key]
            server_of({"name": name, **own})
        except (DefinitionError, TypeError, ValueError) as error:
            tell(f"`mcp_servers.{name}`: {error}", "", ("mcp_servers", name))
        else:
            sound[name] = own
    return sound


def _find_inside(root: Path, path: str) -> Path | None:
    """A folder of `pythonpath`; None for one outside of the root, or that leads nowhere."""
    try:
        folder = (root / path).resolve()
    except (OSError, ValueError, RuntimeError):  # Links that lead to each other are a RuntimeError.
        return None
    return folder if folder.is_relative_to(root.resolve()) else None


def _is_installed(module: str) -> bool:
    """Tells whether Python finds the module. Packages above it are not imported: only the first name is looked for."""
    try:
        return find_spec(module.partition(".")[0]) is not None
    except (ImportError, ValueError):
        return False
