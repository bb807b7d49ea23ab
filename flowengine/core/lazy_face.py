"""Makes a room's `__init__` its face: names are imported from the files behind it when they are first asked for.

The names stand once, in the stub beside the `__init__`, where type checkers and editors read them too. Nothing is
imported or read before a name is asked for: `import flowengine`, and Ctrl-C at the start of a command, wait for this.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def open_face(package: str, init: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package, by the stub beside its `__init__` file.

    Each line of the stub is `from .file import Name as Name`. A name that is not there is an `AttributeError`.
    """
    modules: dict[str, str] = {}

    def get(name: str) -> Any:
        if not modules:
            modules.update(_read_stub(init))
        if name == "__all__":
            return sorted(modules)
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(modules[name], package), name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: get("__all__")


def _read_stub(init: str) -> dict[str, str]:
    """The names that the stub beside an `__init__` exports → the modules behind it."""
    import re

    with open(f"{init.removesuffix('.py')}.pyi", encoding="utf-8") as file:
        lines = re.findall(r"^from ([.\w]+) import (\w+) as \2$", file.read(), re.MULTILINE)
    return {name: module for module, name in lines}
