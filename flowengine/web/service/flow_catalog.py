"""Lists the flows that a server has: objects, files, and folders that are searched again at each request.

Only these are shown, started and taken up again; a run's record cannot name another file. Nothing of a flow's code
is imported until the flow is run or drawn.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

from flowengine.engine import RunStarted
from flowengine.errors import Diagnostic, FlowEngineError, FlowError, FlowNotFoundError, did_you_mean
from flowengine.flow import Flow
from flowengine.flowfile import find_flow_files
from flowengine.nodes import REQUIRED, InputField
from flowengine.web.service.placed_schemas import join_properties
from visualize.picture import Picture, picture_of_skeleton


class About(NamedTuple):
    """Facts about a flow that need none of its code."""

    name: str
    path: str
    """The path as it is shown; a word that says so for a flow built in Python."""
    description: str = ""
    source: str | None = None
    problems: Sequence[Diagnostic] = ()
    inputs: Mapping[str, InputField] | None = None
    """None where it takes any."""

    @property
    def errors(self) -> int:
        return sum(each.severity == "error" for each in self.problems)


class CatalogEntry(Protocol):
    """One flow; its methods may be slow and are called on threads."""

    def about(self) -> About: ...

    def flow(self, model: str | None = None) -> Flow:
        """Ready to run; raises what is wrong with it."""
        ...

    def is_of(self, started: RunStarted) -> bool:
        """Tells whether a run was started from it."""
        ...


class _Object:
    """A flow built in Python, or loaded by the program that made the app."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        plan = flow.plan
        path = plan.path or "(built in Python)"
        self._about = About(plan.name, path, plan.description, plan.source, (), plan.inputs)

    def about(self) -> About:
        return self._about

    def flow(self, model: str | None = None) -> Flow:
        return self._flow

    def is_of(self, started: RunStarted) -> bool:
        return started.path == self._flow.plan.path


_Stamps: TypeAlias = tuple[tuple[int, int], ...]


class _File:
    """A flow file, read anew when it, or a file that a text of it stands in, has changed."""

    def __init__(self, path: Path, environ: Mapping[str, str]) -> None:
        self.path = path
        self._environ = environ
        self._beside: Sequence[Path] = ()
        """The files that texts of it stand in."""
        self._cached: tuple[_Stamps, About] | None = None

    def about(self) -> About:
        stamps = self._stamps()
        if self._cached is None or self._cached[0] != stamps:
            own = _read_stamp(self.path)
            self._beside = _list_text_files(self.path)
            stamps = (own, *map(_read_stamp, self._beside))
            self._cached = stamps, self._read()
        return self._cached[1]

    def _stamps(self) -> _Stamps:
        return (_read_stamp(self.path), *map(_read_stamp, self._beside))

    def flow(self, model: str | None = None) -> Flow:
        return Flow.from_yaml(self.path, model=model, environ=self._environ)

    def is_of(self, started: RunStarted) -> bool:
        if started.path is None:
            return False
        folder = str(started.settings.get("folder", ""))
        return os.path.realpath(os.path.join(folder, started.path)) == os.path.realpath(self.path)

    def _read(self) -> About:
        from flowengine.flowfile import check_file, load_flow  # YAML only where there are files.
        from flowengine.flowfile.project import project_of

        project, problems = project_of(self.path)
        diagnostics = [*problems, *check_file(self.path, project=project)]
        source = self.path.read_text("utf-8-sig", "replace") if self.path.is_file() else None
        try:
            spec = load_flow(self.path, project=project)
        except FlowError:
            name = re.search(r"^name:\s*[\"']?([^\"'#\n]+)", source or "", re.MULTILINE)
            return About(name[1].strip() if name else self.path.stem, str(self.path), "", source, diagnostics)
        inputs = {
            key: InputField(
                each.type,
                REQUIRED if each.required else each.default,
                each.enum,
                each.schema_,
                each.description,
                each.media_types,
            )
            for key, each in spec.inputs.items()
        }
        return About(spec.name, str(self.path), spec.description, source, diagnostics, inputs)


class Library:
    """Flows by name; a name that several have is followed by the file."""

    def __init__(self, flows: Iterable[Flow | str | PathLike[str]], environ: Mapping[str, str]) -> None:
        flows = list(flows)
        self._objects: list[CatalogEntry] = [_Object(each) for each in flows if isinstance(each, Flow)]
        self._places = [Path(each) for each in flows if not isinstance(each, Flow)]
        self.environ = environ
        self._files: dict[Path, _File] = {}
        self._pictures: dict[str, tuple[About, Picture | None]] = {}
        self._lock = threading.Lock()

    def entries(self) -> Mapping[str, CatalogEntry]:
        """All flows as they are now, in the order given; those of a folder by their paths. Call it on a thread."""
        with self._lock:
            paths = dict.fromkeys(file for place in self._places for file in find_flow_files(place))
            self._files = {path: self._files.get(path) or _File(path, self.environ) for path in paths}
            every = [(each.about(), each) for each in (*self._objects, *self._files.values())]
        entries: dict[str, CatalogEntry] = {}
        for about, entry in every:
            name = about.name if about.name not in entries else f"{about.name} ({about.path})"
            entries[name] = entry
        return entries

    def find(self, name: str) -> CatalogEntry:
        """Call it on a thread."""
        entries = self.entries()
        if name not in entries:
            raise FlowNotFoundError(f"there is no flow '{name}' here{did_you_mean(name, entries)}")
        return entries[name]

    def of_run(self, started: RunStarted) -> CatalogEntry | None:
        """The flow that a run goes on with: the one from whose file it came, else the only one of its name."""
        entries = self.entries()
        same = [entry for entry in entries.values() if entry.is_of(started) and entry.about().name == started.flow]
        namesakes = [entry for entry in entries.values() if entry.about().name == started.flow]
        return same[0] if same else namesakes[0] if len(namesakes) == 1 else None

    def picture(self, name: str, entry: CatalogEntry) -> Picture | None:
        """None where the flow cannot be built. Call it on a thread."""
        about = entry.about()
        drawing = self._pictures.get(name)
        if drawing is None or drawing[0] is not about:
            drawing = self._pictures[name] = about, _draw_entry(entry)
        return drawing[1]


def _draw_entry(entry: CatalogEntry) -> Picture | None:
    try:
        flow = entry.flow()
    except FlowEngineError:  # Told among the problems, or when somebody runs it.
        return None
    return picture_of_skeleton(flow.name, flow.plan.skeleton)


def _list_text_files(path: Path) -> Sequence[Path]:
    """The files that texts of a flow file stand in, be they there or not."""
    from flowengine.core import is_map  # As above.
    from flowengine.flowfile import named_text_files
    from flowengine.flowfile.yaml import parse_yaml

    try:
        data = parse_yaml(path.read_text("utf-8-sig")).data
    except (OSError, UnicodeDecodeError):
        return ()
    return [path.parent / name for name in named_text_files(data)] if is_map(data) else ()


def _read_stamp(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except (OSError, ValueError):  # A name that no file can have.
        return 0, 0
    return status.st_mtime_ns, status.st_size


def make_input_schema(inputs: Mapping[str, InputField] | None) -> Mapping[str, Any]:
    """A flow's inputs as a JSON Schema."""
    if inputs is None:
        return {"type": "object"}
    required = [name for name, field in inputs.items() if field.default is REQUIRED]
    properties = {name: _property_schema(field) for name, field in inputs.items()}
    return {"type": "object", **join_properties(properties), "required": required, "additionalProperties": False}


def _property_schema(field: InputField) -> Mapping[str, Any]:
    schema: dict[str, Any] = dict(field.schema) if field.schema is not None else {}
    if field.type == "file":
        schema["type"], schema["format"] = "string", "file"  # Its path, or an address.
    elif field.type is not None:
        schema["type"] = field.type
    if field.enum is not None:
        schema["enum"] = list(field.enum)
    if field.description:
        schema["description"] = field.description
    if field.default is not REQUIRED:
        schema["default"] = field.default
    return schema
