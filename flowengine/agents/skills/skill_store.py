"""Holds the skills below some folders: finds, reads and caches them, and notices where they change.

Level 1 is read at the first request, and again of each file that changed since. Bodies and files are read when
they are used, and the latest of them are kept. Its methods touch the disk: asynchronous callers use a thread.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from flowengine.agents.retrieval import Retriever
from flowengine.agents.skills.discovery import SkillIndex, SkillPlace, find_places
from flowengine.agents.skills.frontmatter import MAX_BYTES, split_file
from flowengine.agents.skills.reading import skill_of
from flowengine.agents.skills.skill import LoadedText, Skill, SkillStamp, make_irregularity
from flowengine.agents.skills.skill_files import read_text, resolve_path
from flowengine.core import check_arguments, open_regular
from flowengine.errors import DefinitionError, Diagnostic, did_you_mean, refuse_other_kind
from flowengine.models import count_tokens

_KEPT: Final = 16_000_000
"""Characters of bodies and files that are kept, over all."""


class FolderLook(NamedTuple):
    """The contents of the folders at one moment."""

    skills: tuple[Skill, ...]
    diagnostics: tuple[Diagnostic, ...]


class SkillStore:
    """Skills by name. One store serves any number of runs at once.

    In `strict` skills that break the specification are left out, each with an error in `diagnostics`.
    """

    def __init__(
        self,
        roots: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        strict: bool = False,
        retriever: Retriever | None = None,
        *,
        hidden: bool = True,
    ) -> None:
        """`roots`: folders with skills below them, or skills' own folders. Of two skills with one name, that of the
        earlier root keeps it. A root that is no folder is a `DefinitionError`.
        `retriever`: what skills are searched with, where words alone will not do.
        `hidden`: also look into folders whose names begin with a dot, which flows may not."""
        check_arguments(SkillStore.__init__, locals())
        folders = [roots] if isinstance(roots, str | os.PathLike) else list(roots)
        self.roots = tuple(_resolve_root(each) for each in folders)
        self.strict = strict
        self._hidden = hidden
        self.index = SkillIndex(retriever)
        self._lock = threading.RLock()
        self._read: dict[Path, tuple[SkillStamp, Skill | Diagnostic]] = {}
        self._texts: OrderedDict[tuple[Path, bool, SkillStamp], LoadedText] = OrderedDict()

    def skills(self) -> tuple[Skill, ...]:
        """All skills, as they are now."""
        return self.look().skills

    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Lists the irregularities of skills and folders; everything left out is reported."""
        return self.look().diagnostics

    def find(self, name: str) -> Skill | None:
        """The skill of this name; capitals, blanks and underscores make no difference."""
        skills = self.skills()
        exact = next((each for each in skills if each.name == name.strip()), None)
        return exact or next((each for each in skills if _normalize_name(each.name) == _normalize_name(name)), None)

    def hint(self, name: str) -> str:
        """The nearest name, as the end of a message."""
        return did_you_mean(_normalize_name(name), [each.name for each in self.skills()])

    def body(self, skill: Skill) -> LoadedText:
        """Level 2: the text below the frontmatter, as it is now. `OSError` where the file has gone."""
        return self._text(skill.file, lambda: split_file(_read_beginning(skill.file)).body, is_body=True)

    def file(self, skill: Skill, path: str) -> LoadedText:
        """Level 3: a file of the skill, as it is now; a `RefusedError` where it cannot be given."""
        file = resolve_path(skill, path)
        return self._text(file, lambda: read_text(file, path[:200]))

    # --- looking ----------------------------------------------------------------------------------

    def look(self) -> FolderLook:
        """Both at once, of the same moment."""
        with self._lock:
            below = [find_places(root, hidden=self._hidden) for root in self.roots]
            places = {each.file: each for folder_places, _ in below for each in folder_places}
            results = [self._load_cached(each) for each in places.values()]
            self._read = {file: self._read[file] for file in places}
        skills = _rename_duplicates([each for each in results if isinstance(each, Skill)], self.strict)
        diagnostics = (
            *(each for _, odd in below for each in odd),
            *(each for each in results if isinstance(each, Diagnostic)),
            *(each for skill in skills for each in skill.diagnostics),
        )
        return FolderLook(tuple(each for each in skills if each.is_valid), diagnostics)

    def _load_cached(self, place: SkillPlace) -> Skill | Diagnostic:
        cached = self._read.get(place.file)
        if cached is None or cached[0] != place.stamp:
            cached = (place.stamp, self._skill(place))
            self._read[place.file] = cached
        return cached[1]

    def _skill(self, place: SkillPlace) -> Skill | Diagnostic:
        if place.stamp.size > MAX_BYTES:
            message = f"the file has {place.stamp.size:,} bytes; up to {MAX_BYTES:,} are read"
            return make_irregularity("SK107", message, place.file)
        try:
            raw = _read_beginning(place.file)
        except OSError as error:
            return make_irregularity("SK106", f"the file cannot be read: {error.strerror}", place.file)
        skill = skill_of(raw, place.file, place.stamp, has_files=place.has_files, strict=self.strict)
        return replace(skill, diagnostics=(*place.diagnostics, *skill.diagnostics))

    # --- texts ------------------------------------------------------------------------------------

    def _text(self, file: Path, read: Callable[[], str], *, is_body: bool = False) -> LoadedText:
        """`is_body`: of a SKILL.md without its frontmatter; as a file it is the whole of it."""
        start = time.perf_counter()
        status = file.stat()
        key = (file, is_body, SkillStamp(status.st_mtime_ns, status.st_size, status.st_ino))
        with self._lock:
            if key in self._texts:
                self._texts.move_to_end(key)
                return self._texts[key]
        text = read()
        loaded = LoadedText(text, count_tokens(text), time.perf_counter() - start, sys.getsizeof(text))
        with self._lock:
            self._texts[key] = loaded
            while len(self._texts) > 1 and sum(len(each.text) for each in self._texts.values()) > _KEPT:
                self._texts.popitem(last=False)
        return loaded


def _read_beginning(file: Path) -> bytes:
    with open_regular(file) as stream:
        return stream.read(MAX_BYTES)


def _resolve_root(root: str | os.PathLike[str]) -> Path:
    refuse_other_kind(root, (str, os.PathLike), "a folder of skills is a path", DefinitionError)
    path = Path(root).expanduser()
    if not os.fspath(root) or not os.path.isdir(path):
        raise DefinitionError(f"skills: there is no folder '{root}'")
    return path.absolute()


def _rename_duplicates(skills: list[Skill], strict: bool) -> list[Skill]:
    """The skills with names of their own: a later one of a name that is taken gets a number.

    A name that is written as names are goes before one that only means the same (`PDF` beside `pdf`).
    """
    by_name: dict[str, Skill] = {}
    apart: dict[int, Skill] = {}
    numbers: dict[str, int] = {}
    for place, skill in sorted(enumerate(skills), key=lambda each: each[1].name != _normalize_name(each[1].name)):
        plain, name = _normalize_name(skill.name), skill.name
        while _normalize_name(name) in by_name:
            numbers[plain] = numbers.get(plain, 1) + 1
            name = f"{skill.name}-{numbers[plain]}"
        if name != skill.name:
            first = by_name[plain]
            message = f"the name '{skill.name}' is that of {first.file} as well; this one is known as '{name}'"
            diagnostic = make_irregularity("SK307", message, skill.file, strict=strict)
            skill = replace(skill, name=name, diagnostics=(*skill.diagnostics, diagnostic))
        if skill.is_valid:
            by_name[_normalize_name(name)] = skill
        apart[place] = skill
    return [apart[place] for place in range(len(skills))]


def _normalize_name(name: str) -> str:
    return "-".join(name.casefold().replace("_", " ").replace("-", " ").split())
