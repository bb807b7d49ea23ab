"""The figures of the house: its rooms, their faces and doors, sizes of files, words, and names that stand twice.

`python -m tests.bench house` prints them and fails where a bound is passed. A bound is the goal where that is reached,
else what the house had at last: it may only sink.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import networkx as nx

from tests.bench.measure import Row

__all__ = [
    "ROWS",
    "Module",
    "circles",
    "classes_that_stand_twice",
    "doors",
    "face_of",
    "files_that_stand_twice",
    "floors",
    "house_participles",
    "modules",
    "rooms",
    "uses_of_faces",
]

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("flowengine", "visualize")

COUNT_FILES: Final = """
import sys
entered = set()
def note(frame, event, arg):
    if frame.f_code.co_flags & 1:  # CO_OPTIMIZED: a function's, not that of a module or a class.
        entered.add(frame.f_code.co_filename)
sys.setprofile(note)
{work}
sys.setprofile(None)
ours = {{each for each in entered if "/flowengine/" in each or "/visualize/" in each}}
print(len({{each for each in ours if not each.endswith("__init__.py")}}), file=sys.stderr)
"""
FROM_PYTHON: Final = """
from flowengine import Flow, FunctionNode
flow = Flow.sequential({"a": FunctionNode(lambda context: 1), "b": FunctionNode(lambda context: 2)})
flow.run_sync()
entered.clear()
flow.run_sync()
"""
FROM_COMMAND_LINE: Final = """
import tempfile
from flowengine.cli.main import main
with tempfile.TemporaryDirectory() as folder:
    store = f"sqlite:///{folder}/runs.db"
    assert 0 == main(["run", "flows/support_triage.yaml", "-i", "message=I was charged twice", "--store", store])
"""
PARTICIPLES: Final = frozenset(
    [
        "told",
        "given",
        "kept",
        "asked",
        "found",
        "made",
        "heard",
        "said",
        "shown",
        "known",
        "meant",
        "wanted",
        "brought",
        "left",
        "held",
        "chosen",
        "begun",
        "gone",
        "lost",
        "opened",
        "written",
        "seen",
        "named",
        "sent",
        "listed",
        "answered",
        "tried",
        "got",
        "built",
        "drawn",
        "filled",
        "broken",
        "taken",
    ]
)
"""What happened to a thing, and never what it is: no names."""
_EXPORT: Final = re.compile(r"^from \.([.\w]+) import (\w+) as \2$", re.MULTILINE)


class Module(NamedTuple):
    """One file of the product, parsed."""

    name: str
    lines: int
    tree: ast.Module
    is_package: bool

    @property
    def room(self) -> str:
        return room_of(self.name)


def room_of(module: str) -> str:
    """The folder at the top in which a module stands; the module itself where it stands in none."""
    return "visualize" if module.split(".")[0] == "visualize" else ".".join(module.split(".")[:2])


@cache
def modules() -> tuple[Module, ...]:
    found: list[Module] = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).glob("**/*.py")):
            text = path.read_text(encoding="utf-8")
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            found.append(Module(name, len(text.splitlines()), ast.parse(text), path.name == "__init__.py"))
    return tuple(found)


@cache
def rooms() -> frozenset[str]:
    """Those of the wheel: what makes the site's pages is not in it, and nothing imports it."""
    return frozenset(each.room for each in modules() if each.is_package) - {"flowengine", "flowengine.docs"}


@cache
def face_of(package: str) -> dict[str, str]:
    """The names that a package's face exports → the modules that have them."""
    stub = ROOT.joinpath(*package.split("."), "__init__.pyi")
    text = stub.read_text(encoding="utf-8") if stub.exists() else ""
    return {name: f"{package}.{module}" for module, name in _EXPORT.findall(text)}


def _statements(module: Module) -> Iterator[list[tuple[str, str]]]:
    """Our own that each import statement names, wherever it stands: the module that is named, and the name."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in PACKAGES:
            yield [(node.module, each.name) for each in node.names]
        elif isinstance(node, ast.Import):
            names = [each.name for each in node.names if each.name.split(".")[0] in PACKAGES]
            if names:
                yield [(name, "") for name in names]


def _imported(module: Module) -> Iterator[str]:
    """The modules that a module imports, those behind faces too."""
    names = {each.name for each in modules()}
    for statement in _statements(module):
        yield from {
            face_of(source).get(name) or (f"{source}.{name}" if f"{source}.{name}" in names else source)
            for source, name in statement
        }


def doors() -> list[str]:
    """Files that another room imports by their own name."""
    behind = {each.name for each in modules() if not each.is_package and each.room in rooms()}
    return sorted(
        {
            name
            for module in modules()
            for statement in _statements(module)
            for source, export in statement
            for name in (source, f"{source}.{export}")
            if name in behind and room_of(name) != module.room
        }
    )


def uses_of_faces() -> set[tuple[str, str]]:
    """Faces and the names of theirs that files of other folders import."""
    return {
        (source, name)
        for module in modules()
        for statement in _statements(module)
        for source, name in statement
        if name in face_of(source) and module.name.rpartition(".")[0] != source
    }


def floors() -> int:
    """Rooms on the longest way down from room to room."""
    graph = nx.DiGraph((module.room, room_of(other)) for module in modules() for other in _imported(module))
    graph.remove_edges_from([(one, other) for one, other in graph.edges if one == other])
    graph.remove_nodes_from([each for each in graph if each not in rooms()])
    return len(nx.dag_longest_path(graph))


def circles() -> list[list[str]]:
    """Groups of modules that import each other, counting imports inside functions and under TYPE_CHECKING."""
    edges = [(module.name, other) for module in modules() for other in _imported(module) if other != module.name]
    packages = {each.name for each in modules() if any(other.name.startswith(f"{each.name}.") for other in modules())}
    graph = nx.DiGraph((one, other) for one, other in edges if one not in packages and other not in packages)
    return [sorted(group) for group in nx.strongly_connected_components(graph) if len(group) > 1]


def classes_that_stand_twice() -> dict[str, list[str]]:
    """Public class names that several modules define, with those modules."""
    places: dict[str, list[str]] = defaultdict(list)
    for module in modules():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(module.name)
    return {name: where for name, where in places.items() if len(where) > 1}


def files_that_stand_twice() -> list[str]:
    """File names that stand in several folders, `__init__` aside."""
    counted = Counter(path.stem for package in PACKAGES for path in (ROOT / package).glob("**/*.py"))
    return sorted(name for name, count in counted.items() if count > 1 and name != "__init__")


def _entered(work: str) -> int:
    code = COUNT_FILES.format(work=work)
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return int(told.stderr.splitlines()[-1])


def house_rooms() -> Row:
    return Row("house: rooms", len(rooms()), 16, "rooms")


def house_floors() -> Row:
    return Row("house: floors", floors(), 11, "floors")


def house_faceless() -> Row:
    without = [each for each in modules() if each.name in rooms() and len(ast.get_docstring(each.tree) or "") < 40]
    return Row("house: rooms whose face says nothing", len(without), 0, "rooms")


def house_doors() -> Row:
    return Row("house: doors, per cent of files", 100 * len(doors()) / len(modules()), 10, "%")


def house_median() -> Row:
    return Row("house: lines of a file, the median", median(each.lines for each in modules()), 180, "lines")


def house_longest_file() -> Row:
    return Row("house: lines of the longest file", max(each.lines for each in modules()), 640, "lines")


def house_longest_function() -> Row:
    longest = max(
        (node.end_lineno or 0) - node.lineno + 1
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return Row("house: lines of the longest function", longest, 137, "lines")


def house_imports() -> Row:
    """The goal is 25."""
    total = sum(1 for module in modules() for _ in _statements(module))
    return Row("house: imports of our own a thousand lines", 1000 * total / _lines(), 28, "a 1,000")


def house_exports() -> Row:
    total = sum(
        (node.end_lineno or 0) - node.lineno + 1
        for module in modules()
        for node in module.tree.body
        if isinstance(node, ast.Assign) and any(getattr(each, "id", "") == "__all__" for each in node.targets)
    )
    return Row("house: lines of `__all__`", total, 300, "lines")


def house_participles() -> Row:
    names = [name for module in modules() for name in _bound_names(module.tree)]
    counted = sum(name in PARTICIPLES for name in names)
    return Row("house: participles a thousand names bound", 1000 * counted / len(names), 8, "a 1,000")


def _bound_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr.lstrip("_")


def house_lines() -> Row:
    """The goal is 120."""
    return Row("house: lines of the product", _lines() / 1000, 138, "k")


def house_entered_from_python() -> Row:
    return Row("house: files whose code a run from Python calls", _entered(FROM_PYTHON), 30, "files")


def house_entered_from_command_line() -> Row:
    """With the store that a user has; the goal is 95."""
    return Row("house: files whose code a command calls", _entered(FROM_COMMAND_LINE), 135, "files")


def house_classes() -> Row:
    return Row("house: public class names in two modules", len(classes_that_stand_twice()), 0, "names")


def house_names() -> Row:
    return Row("house: file names in two folders", len(files_that_stand_twice()), 12, "names")


def house_circles() -> Row:
    return Row("house: circles of imports", len(circles()), 0, "circles")


def _lines() -> int:
    return sum(each.lines for each in modules())


ROWS: Final[tuple[Callable[[], Row], ...]] = (
    house_rooms,
    house_floors,
    house_faceless,
    house_doors,
    house_imports,
    house_exports,
    house_participles,
    house_median,
    house_longest_file,
    house_longest_function,
    house_lines,
    house_entered_from_python,
    house_entered_from_command_line,
    house_classes,
    house_names,
    house_circles,
)
