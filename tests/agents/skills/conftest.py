"""Folders with skills in them."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

MakeSkill = Callable[..., Path]


@pytest.fixture
def tmp_path() -> Generator[Path]:
    """On a disk: below `/dev`, where other tests have theirs, a sandbox shows nothing, whatever it is told to hide."""
    with TemporaryDirectory(prefix="flowengine-skills-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder for skills; `make` writes into it."""
    folder = tmp_path / "skills"
    folder.mkdir()
    return folder


@pytest.fixture
def make(root: Path) -> MakeSkill:
    """Writes a skill's SKILL.md, and files beside it; gives its folder."""

    def write(name: str, description: str = "Does it.", body: str = "# Steps\n\nDo it.\n", **files: str) -> Path:
        folder = root / name
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(
            f"---\nname: {name}\ndescription: {description}\n---\n{body}", encoding="utf-8"
        )
        for path, text in files.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        return folder

    return write
