"""Loads the modules of a project, each once, under a package of the project's own.

So two flows in different folders may each have a `tools.py`, and whatever imports a module gets the same one: a flow
by `call: helper:f`, another module by `import helper`, at the top or inside a function. Source is compiled as it
stands; compiled files are neither read nor written. A module that the program around has imported by itself from the
same file is taken as it is. It knows no project file: whether a module may be loaded is decided before.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, ExtensionFileLoader, FileFinder, ModuleSpec
from importlib.machinery import SourceFileLoader as PythonSourceLoader
from importlib.util import resolve_name
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final, NamedTuple

from flowengine.core import ROOT_PREFIX, unprefixed_name

# --- Rewrites the imports of a project's module, so that `import helper` finds the helper of the same project


def rewrite_imports(tree: ast.Module, root: str, package: str, is_own: Callable[[str], bool]) -> frozenset[str]:
    """Changes the tree, and gives the full names that it may import of its own project.

    `is_own` says of a first name whether a module of the project has it; `root` is the project's package, `package`
    that of the module. Of `from pack import x` both `pack` and `pack.x` are given, since `x` may be a module.

    >>> tree = ast.parse("import helper, json, pack.deep; from pack import near; from . import x")
    >>> sorted(rewrite_imports(tree, "R", "R", {"helper", "pack"}.__contains__))
    ['R', 'R.helper', 'R.pack', 'R.pack.deep', 'R.pack.near', 'R.x']
    >>> print(ast.unparse(tree))
    import R.helper as helper, json, R.pack.deep as pack, R.pack as pack
    from R.pack import near
    from . import x
    """
    imports: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            node.names = [new for alias in node.names for new in _rename_alias(alias, root, is_own)]
            modules = [alias.name for alias in node.names if alias.name.startswith(f"{root}.")]
        elif isinstance(node, ast.ImportFrom):
            modules = _source(node, root, package, is_own)
        else:
            continue
        imports.update(each for name in modules for each in _with_packages(name))
    return frozenset(imports)


def _rename_alias(alias: ast.alias, root: str, is_own: Callable[[str], bool]) -> Iterator[ast.alias]:
    top = alias.name.partition(".")[0]
    if not is_own(top):
        yield alias
        return
    yield ast.copy_location(ast.alias(f"{root}.{alias.name}", alias.asname or top), alias)
    if alias.asname is None and top != alias.name:  # `import pack.deep` binds `pack`.
        yield ast.copy_location(ast.alias(f"{root}.{top}", top), alias)


def _source(node: ast.ImportFrom, root: str, package: str, is_own: Callable[[str], bool]) -> list[str]:
    """The project's modules of a `from … import …`, which is rewritten."""
    if node.level:
        try:
            source = resolve_name("." * node.level + (node.module or ""), package)
        except ImportError:  # It leads out of the project, and fails where it runs.
            return []
    elif node.module and is_own(node.module.partition(".")[0]):
        source = node.module = f"{root}.{node.module}"
    else:
        return []
    return [source, *(f"{source}.{alias.name}" for alias in node.names)]


def _with_packages(name: str) -> Iterator[str]:
    """The packages above a name, and the name.

    >>> list(_with_packages("R.pack.deep"))
    ['R', 'R.pack', 'R.pack.deep']
    """
    parts = name.split(".")
    return (".".join(parts[:depth]) for depth in range(1, len(parts) + 1))


_LOCK: Final = threading.RLock()
_FOLDERS: Final[dict[str, tuple[str, ...]]] = {}
"""A project's package → the folders in which its modules lie."""
_LOADED: Final[dict[str, _LoadedModule]] = {}
"""Full name → what a module was loaded from."""
_ENGINE: Final = __name__.partition(".")[0]


class _LoadedModule(NamedTuple):
    file: Path
    version: tuple[int, ...] | None
    imports: frozenset[str]
    """Full names of the project's modules that it imports, at the top or inside functions."""
    is_ready: bool


def load_module(name: str, folders: Sequence[Path]) -> ModuleType:
    """The module of a dotted name, as flows write it, in the first of the folders that has it.

    It is loaded again if its file or that of a module which it imports has changed. Whatever the module raises
    passes through, and then it counts as not loaded.
    """
    places = tuple(str(each.resolve()) for each in folders)
    root = ROOT_PREFIX + hashlib.sha256("\0".join(places).encode()).hexdigest()[:12]
    own = f"{root}.{name}"
    with _LOCK:
        if root not in sys.modules:
            _add_root(root, places)
        _forget(
            {
                each
                for each in _find_reachable(own)
                if (entry := _LOADED.get(each)) and _version(entry.file) != entry.version
            }
        )
        return importlib.import_module(own)


def imported_files(module: str) -> tuple[Path, ...]:
    """The files of a project that make up a module: its own, and those of all that it imports, also inside functions.

    `module` is the name that Python knows it by, as in `function.__module__`; nothing for one of no project.
    """
    files: dict[str, Path] = {}
    names = {module}
    while names:
        name = names.pop()
        entry = _LOADED.get(name) or _read(name)
        if entry is not None:
            files[name] = entry.file
            names |= entry.imports - files.keys()
    return tuple(sorted(files.values()))


def _add_root(root: str, places: tuple[str, ...]) -> None:
    if not any(isinstance(each, _Finder) for each in sys.meta_path):
        sys.meta_path.insert(0, _Finder())  # Before Python's own, which would look into a package's folder.
    _FOLDERS[root] = places
    spec = ModuleSpec(root, None, is_package=True)
    spec.submodule_search_locations = list(places)
    sys.modules[root] = importlib.util.module_from_spec(spec)


# --- what changed


def _version(file: Path) -> tuple[int, ...] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _find_reachable(own: str) -> set[str]:
    """The loaded modules that a module consists of, itself among them."""
    reachable: set[str] = set()
    names = {own}
    while names:
        name = names.pop()
        if name in _LOADED:
            reachable.add(name)
            names |= _LOADED[name].imports - reachable
    return reachable


def _forget(names: Iterable[str]) -> None:
    """Counts these modules, and all that import them, as not loaded; a module that is loading now goes on."""
    changed = set(names)
    for own in [each for each in _LOADED if _LOADED[each].is_ready and not changed.isdisjoint(_find_reachable(each))]:
        sys.modules.pop(own, None)
    for own in [each for each in _LOADED if each not in sys.modules]:
        del _LOADED[own]


# --- how it is found


class _Finder(MetaPathFinder):
    """Finds what has a full name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        if not fullname.startswith(ROOT_PREFIX) or path is None:
            return None
        spec = _find(fullname, path)
        if spec is None:
            raise ModuleNotFoundError(f"No module named '{unprefixed_name(fullname)}'", name=fullname)
        return ModuleSpec(fullname, _SharedLoader()) if _is_shared(fullname, spec) else spec


class _Source(PythonSourceLoader):
    """A module whose imports of its own project are rewritten."""

    def get_code(self, fullname: str) -> CodeType:
        return self._compile_module(fullname)[0]

    def exec_module(self, module: ModuleType) -> None:
        own, file = module.__name__, Path(self.path)
        version = _version(file)  # Before it is read, so that a change in between is seen the next time.
        code, imports = self._compile_module(own)
        _LOADED[own] = _LoadedModule(file, version, imports, is_ready=False)
        try:
            exec(code, module.__dict__)
        except BaseException:
            _forget({own})
            _LOADED.pop(own, None)
            raise
        _LOADED[own] = _LOADED[own]._replace(is_ready=True)

    def _compile_module(self, own: str) -> tuple[CodeType, frozenset[str]]:
        tree, imports = _parse_module(own, Path(self.path), is_package=self.is_package(own))
        return compile(tree, self.path, "exec", dont_inherit=True), imports


class _SharedLoader(Loader):
    """A module that the program around has imported from the same file."""

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = importlib.import_module(unprefixed_name(module.__name__))


_KINDS: Final[tuple[tuple[Any, list[str]], ...]] = (
    (ExtensionFileLoader, EXTENSION_SUFFIXES),
    (_Source, SOURCE_SUFFIXES),
)


def _find(own: str, places: Iterable[str]) -> ModuleSpec | None:
    """A module or a package; where there is none, a folder without `__init__.py`. Folders are read anew."""
    folder = None
    for place in places:
        spec = FileFinder(place, *_KINDS).find_spec(own)
        if spec is not None and spec.loader is not None:
            return spec
        folder = folder or spec
    return folder


def _is_shared(own: str, spec: ModuleSpec) -> bool:
    above = own.rpartition(".")[0]
    if above in sys.modules and sys.modules[above].__name__ != above:
        return True
    file = getattr(sys.modules.get(unprefixed_name(own)), "__file__", None)
    return bool(file and spec.origin) and os.path.realpath(str(file)) == os.path.realpath(str(spec.origin))


def _is_own(root: str, top: str) -> bool:
    """Tells whether a project has a module of that first name. A mere folder gives way to what is installed."""
    if top == _ENGINE:
        return False
    spec = _find(f"{root}.{top}", _FOLDERS[root])
    if spec is None or spec.loader is not None:
        return spec is not None
    try:
        installed = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return True
    return installed is None or installed.origin is None


# --- what it holds


def _parse_module(own: str, file: Path, *, is_package: bool) -> tuple[ast.Module, frozenset[str]]:
    tree = ast.parse(file.read_bytes(), str(file))
    above = own.rpartition(".")[0]
    root = own.partition(".")[0]
    imports = rewrite_imports(tree, root, own if is_package else above, lambda top: _is_own(root, top))
    return tree, imports | set(_packages(own))


def _packages(own: str) -> Iterator[str]:
    parts = own.split(".")
    return (".".join(parts[:depth]) for depth in range(2, len(parts)))


def _read(own: str) -> _LoadedModule | None:
    """Parses a module that is not imported; None if the project has no file for it."""
    root, *parts = own.split(".")
    places: Iterable[str] = _FOLDERS.get(root, ())
    spec, name = None, root
    for part in parts:
        name = f"{name}.{part}"
        spec = _find(name, places)
        if spec is None:
            return None
        places = spec.submodule_search_locations or ()
    if spec is None or not isinstance(spec.loader, _Source):
        return None
    file = Path(spec.loader.path)
    try:
        imports = _parse_module(own, file, is_package=spec.submodule_search_locations is not None)[1]
    except (OSError, ValueError, SyntaxError):
        imports = frozenset[str]()
    return _LoadedModule(file, None, imports, is_ready=False)
