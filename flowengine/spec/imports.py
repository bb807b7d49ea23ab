"""Loads a module of a project from its file, under a name of its own.

So two flows in different folders may each have a `tools.py`. What such a module imports by itself is
found in its folder for as long as it loads, and is forgotten afterwards, so that no other project gets it.
It knows no project file: whether a module may be loaded is decided before.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Final

__all__ = ["load_module", "plain_name"]

_LOCK: Final = threading.RLock()
_ROOTS: Final = "_flowengine_"
"""How the names begin under which project modules are known to Python."""


def load_module(name: str, file: Path) -> ModuleType:
    """The module of a file, loaded once a version of it; `name` is its dotted name as flows write it.

    Whatever the module raises passes through, and then it counts as not loaded.
    """
    folder = _folder_of(name, file)
    own = f"{_root(folder)}.{name}"
    with _LOCK:
        known = sys.modules.get(own)
        changed = file.stat().st_mtime_ns
        if known is not None and known.__dict__.get("__flowengine_changed__") == changed:
            return known
        _ensure_packages(name, folder)
        module = _load(own, file, folder)
        module.__dict__["__flowengine_changed__"] = changed
        return module


def plain_name(name: str) -> str:
    """A module's name as flows and its own project write it.

    >>> plain_name("_flowengine_0123456789ab.tools"), plain_name("os")
    ('tools', 'os')
    """
    return name.partition(".")[2] if name.startswith(_ROOTS) else name


def _folder_of(name: str, file: Path) -> Path:
    """The folder that the module's dotted name counts from."""
    inner = file.parent if file.name == "__init__.py" else file
    return inner.parents[name.count(".")]


def _root(folder: Path) -> str:
    return _ROOTS + hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]


def _ensure_packages(name: str, folder: Path) -> None:
    """The packages above a module, so that its relative imports find their way."""
    root = _root(folder)
    if root not in sys.modules:
        _namespace(root, folder)
    parts = name.split(".")[:-1]
    for depth in range(1, len(parts) + 1):
        above, place = ".".join(parts[:depth]), folder.joinpath(*parts[:depth])
        if (place / "__init__.py").is_file():
            load_module(above, place / "__init__.py")
        elif f"{root}.{above}" not in sys.modules:
            _namespace(f"{root}.{above}", place)


def _namespace(name: str, folder: Path) -> None:
    """A package without a file of its own."""
    spec = ModuleSpec(name, None, is_package=True)
    spec.submodule_search_locations = [str(folder)]
    sys.modules[name] = importlib.util.module_from_spec(spec)


def _load(own: str, file: Path, folder: Path) -> ModuleType:
    places = [str(file.parent)] if file.name == "__init__.py" else None
    spec = importlib.util.spec_from_file_location(own, file, submodule_search_locations=places)
    assert spec is not None  # The file is there and ends in .py.
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[own] = module
    try:
        with _first_on_path(folder):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[own]
        raise
    return module


@contextmanager
def _first_on_path(folder: Path) -> Generator[None]:
    before = set(sys.modules)
    entry = str(folder)
    sys.path.insert(0, entry)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(entry)
        for name in set(sys.modules) - before:
            origin = getattr(getattr(sys.modules[name], "__spec__", None), "origin", None)
            if not name.startswith(_ROOTS) and origin and Path(origin).is_relative_to(folder):
                del sys.modules[name]
