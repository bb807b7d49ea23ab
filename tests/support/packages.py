"""Installs a package into a folder of `sys.path`, as pip leaves one there: modules and a `.dist-info`."""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

__all__ = ["installed_package"]


@contextmanager
def installed_package(
    folder: Path, module: str, code: str, entry_points: Mapping[str, Mapping[str, str]]
) -> Generator[None]:
    """A package of one module, installed while the context is open; `entry_points` are group → name → object."""
    (folder / f"{module}.py").write_text(dedent(code), encoding="utf-8")
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(
        "\n".join(
            f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in named.items())
            for group, named in entry_points.items()
        ),
        encoding="utf-8",
    )
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop(module, None)
