"""Finds the skills below a folder, with what is odd about the folders, and ranks skills by what they are for.

It reads folders and no file. Links are followed where they stay inside the root and lead to nothing that is kept from
flows (`flowengine.core.flow_paths`), so nothing outside of what was named is ever taken; what is not followed is
reported. What lies inside a skill's folder is that skill's, and is not looked into.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from flowengine.agents.retrieval import Document, FtsRetriever, Retriever
from flowengine.agents.skills.skill import Skill, SkillStamp, make_irregularity
from flowengine.core import RefusedPathError, check_path
from flowengine.errors import Diagnostic
from flowengine.models import CallSlots

SKILL_FILE: Final = "SKILL.md"
MAX_DEPTH: Final = 8
MAX_FOLDERS: Final = 20_000
_SKIPPED_FOLDERS: Final = frozenset({".git", ".hg", ".svn", "__pycache__", "node_modules"})
_SKILL_SUBFOLDERS: Final = frozenset({"scripts", "references", "assets"})


class SkillPlace(NamedTuple):
    """One SKILL.md."""

    file: Path
    stamp: SkillStamp
    has_files: bool
    diagnostics: tuple[Diagnostic, ...] = ()


def find_places(root: Path, *, hidden: bool = True) -> tuple[list[SkillPlace], list[Diagnostic]]:
    """All skills of a root, which may be a skill's own folder, in the order of their paths; and what is odd about it.

    `hidden`: those in folders whose names begin with a dot too.
    """
    walk = _Walk(root, hidden)
    walk.folder(root, 0)
    return walk.places, walk.diagnostics


class _Walk:
    """One look through a root."""

    def __init__(self, root: Path, hidden: bool) -> None:
        self._inside = _resolve(root)
        self._hidden = hidden
        self._visited: set[Path] = set()
        self.places: list[SkillPlace] = []
        self.diagnostics: list[Diagnostic] = []

    def folder(self, folder: Path, depth: int) -> bool:
        """Tells whether there is a skill in it or below."""
        if len(self._visited) >= MAX_FOLDERS or depth > MAX_DEPTH:
            if len(self._visited) <= MAX_FOLDERS:
                limit = f"{MAX_FOLDERS:,} folders" if len(self._visited) >= MAX_FOLDERS else f"{MAX_DEPTH} levels"
                self._note("SK404", f"more than {limit}; what is further is not looked through", folder)
            self._visited.add(folder)
            return True
        if (real := _resolve(folder)) in self._visited:
            return True
        self._visited.add(real)
        try:
            entries = sorted(os.scandir(folder), key=lambda each: each.name)
        except OSError as error:
            self._note("SK106", f"the folder cannot be read: {error.strerror}", folder)
            return True
        if skill_files := [each for each in entries if each.name.lower() == SKILL_FILE.lower()]:
            return self._skill(folder, skill_files, len(entries) > 1)
        return self._below(folder, entries, depth)

    def _skill(self, folder: Path, skill_files: list[os.DirEntry[str]], has_files: bool) -> bool:
        entry = next((each for each in skill_files if each.name == SKILL_FILE), skill_files[0])
        file = folder / entry.name
        if self._leaves(entry):
            self._note(
                "SK402", "the file is a link that leaves the root, or leads to what is hidden; it is not followed", file
            )
            return True
        odd = (
            ()
            if entry.name == SKILL_FILE
            else (make_irregularity("SK105", f"the file is named '{entry.name}', not {SKILL_FILE}", file),)
        )
        try:
            status = entry.stat()
        except OSError as error:
            self._note("SK106", f"the file cannot be read: {error.strerror}", file)
            return True
        stamp = SkillStamp(status.st_mtime_ns, status.st_size, status.st_ino)
        self.places.append(SkillPlace(file, stamp, has_files, odd))
        return True

    def _below(self, folder: Path, entries: list[os.DirEntry[str]], depth: int) -> bool:
        inner = list(self._folders(entries))
        results = [self.folder(each, depth + 1) for each in inner]
        if (
            not any(results)
            and depth
            and any(each.name in _SKILL_SUBFOLDERS or each.name.endswith(".md") for each in entries)
        ):
            self._note("SK401", f"the folder looks like a skill's and has no {SKILL_FILE}", folder)
        return any(results)

    def _folders(self, entries: list[os.DirEntry[str]]) -> Iterator[Path]:
        for each in entries:
            if each.name in _SKIPPED_FOLDERS or (each.name.startswith(".") and not self._hidden):
                continue
            if each.is_symlink() and self._leaves(each):
                if os.path.isdir(each.path):
                    message = "the folder is a link that leaves the root; name its target as a root of its own"
                    self._note("SK402", message, Path(each.path))
            elif os.path.isdir(each.path):
                yield Path(each.path)

    def _leaves(self, entry: os.DirEntry[str]) -> bool:
        if not entry.is_symlink():
            return False
        try:
            check_path(_resolve(entry.path), self._inside, entry.name)
        except RefusedPathError:
            return True
        return False

    def _note(self, code: str, message: str, place: Path) -> None:
        self.diagnostics.append(make_irregularity(code, message, place))


def _resolve(path: str | Path) -> Path:
    """With all links resolved; links in a circle stay as they are."""
    return Path(os.path.realpath(path))


# --- Skills ranked by a query


class SkillIndex:
    """The skills of one store."""

    def __init__(self, retriever: Retriever | None = None) -> None:
        """`retriever`: one of one's own, for a meaning that words do not show; by default an index in memory."""
        self._retriever: Retriever = FtsRetriever() if retriever is None else retriever
        self._indexed: dict[str, str | None] = {}
        """Name → text; None: the retriever failed, and may have any text, or none."""
        self._turn = CallSlots(1)

    async def rank_skills(self, skills: Sequence[Skill], query: str, limit: int = 5) -> list[Skill]:
        """The skills that fit best, best first; none where nothing fits."""
        by_name = {each.name: each for each in skills}
        await self._follow({each.name: searchable_text(each) for each in skills})
        hits = await self._retriever.search(query, limit)
        return [by_name[hit.id] for hit in hits if hit.id in by_name]

    async def _follow(self, texts: Mapping[str, str]) -> None:
        async with self._turn.take():
            removed = [name for name in self._indexed if name not in texts]
            new = [Document(name, text) for name, text in texts.items() if self._indexed.get(name) != text]
            self._indexed |= dict.fromkeys([*removed, *(each.id for each in new)])
            if removed:
                await self._retriever.remove(removed)
            if new:
                await self._retriever.add(new)
            self._indexed = dict(texts)


def searchable_text(skill: Skill) -> str:
    """Returns the searchable text of a skill: its name, also split into words, and its description."""
    metadata = skill.metadata or {}
    keywords = (metadata[key] for key in ("keywords", "tags", "category") if key in metadata)
    return "\n".join([skill.name, skill.name.replace("-", " "), skill.description, *keywords])
