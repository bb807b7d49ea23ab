"""The figures of the house: files, their sizes, imports between them, and names that stand twice."""

from __future__ import annotations

import ast
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

__all__ = ["ROWS", "Module", "circles", "classes_that_stand_twice", "files_that_stand_twice", "modules"]

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
from flowengine.cli.main import main
assert 0 == main(["run", "flows/support_triage.yaml", "-i", "message=I was charged twice", "--store", "memory:"])
"""


class Module(NamedTuple):
    """One file of the product, parsed."""

    name: str
    lines: int
    tree: ast.Module


@cache
def modules() -> tuple[Module, ...]:
    found: list[Module] = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).glob("**/*.py")):
            text = path.read_text(encoding="utf-8")
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            found.append(Module(name, len(text.splitlines()), ast.parse(text)))
    return tuple(found)


def _imported(module: Module) -> Iterator[str]:
    """Our modules that a module imports, wherever the statement stands, once a statement and module."""
    names = {each.name for each in modules()}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in PACKAGES:
            full = {f"{node.module}.{each.name}" for each in node.names}
            yield from full & names or {node.module}
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in names)


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


def house_files() -> Row:
    return Row("house: files of the product", len(modules()), 300, "files")


def house_median() -> Row:
    return Row("house: lines of a file, the median", median(each.lines for each in modules()), 180, "lines")


def house_imports() -> Row:
    total = sum(1 for module in modules() for _ in _imported(module))
    return Row("house: imports of our own a thousand lines", 1000 * total / _lines(), 25, "a 1,000")


def house_lines() -> Row:
    return Row("house: lines of the product", _lines() / 1000, 60.4, "k")


def house_entered_from_python() -> Row:
    return Row("house: files whose code a run from Python calls", _entered(FROM_PYTHON), 30, "files")


def house_entered_from_command_line() -> Row:
    return Row("house: files whose code a command calls", _entered(FROM_COMMAND_LINE), 100, "files")


def house_classes() -> Row:
    return Row("house: public class names in two modules", len(classes_that_stand_twice()), 0, "names")


def house_names() -> Row:
    return Row("house: file names in two folders", len(files_that_stand_twice()), 12, "names")


def house_circles() -> Row:
    return Row("house: circles of imports", len(circles()), 0, "circles")


def _lines() -> int:
    return sum(each.lines for each in modules())


ROWS: Final[tuple[Callable[[], Row], ...]] = (
    house_files,
    house_median,
    house_imports,
    house_lines,
    house_entered_from_python,
    house_entered_from_command_line,
    house_classes,
    house_names,
    house_circles,
)
