"""Rewrites the imports of a project's module, so that `import helper` finds the helper of the same project. Pure.

Statements are rewritten wherever they stand, also inside functions. `importlib.import_module("helper")` is not.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from importlib.util import resolve_name

__all__ = ["rewrite_imports"]


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
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            node.names = [new for alias in node.names for new in _renamed(alias, root, is_own)]
            named = [alias.name for alias in node.names if alias.name.startswith(f"{root}.")]
        elif isinstance(node, ast.ImportFrom):
            named = _source(node, root, package, is_own)
        else:
            continue
        found.update(each for name in named for each in _with_packages(name))
    return frozenset(found)


def _renamed(alias: ast.alias, root: str, is_own: Callable[[str], bool]) -> Iterator[ast.alias]:
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
