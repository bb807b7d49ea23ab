"""Checks skills more closely than a run does: what lies in their folders, and where their texts point to.

It reads every body and lists every folder, and runs nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from flowengine.agents.skills.sandbox import interpreter_of
from flowengine.agents.skills.skill import Skill, make_irregularity
from flowengine.agents.skills.skill_files import RefusedError, resolve_path
from flowengine.agents.skills.skill_store import SkillStore
from flowengine.core import open_regular
from flowengine.errors import Diagnostic

_LINK: Final = re.compile(r"\[[^\[\]\n]*+\]\(<?([^)\s>#]{1,500}+)[^)\n]{0,500}+\)")
_FOREIGN_LINK: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:|//|#|mailto:")
_CODE_BLOCK: Final = re.compile(r"^ {0,3}(```|~~~).*?^ {0,3}\1", re.DOTALL | re.MULTILINE)
_HEAD_BYTES: Final = 200
_MAX_ENTRIES: Final = 20_000


def check(store: SkillStore) -> tuple[Diagnostic, ...]:
    """Everything that is irregular: what `store.diagnostics()` tells, and what a closer look does; by file and line."""
    diagnostics = [*store.diagnostics()]
    for skill in store.skills():
        diagnostics += [*_check_folder(skill), *_check_links(store, skill)]
    return tuple(sorted(diagnostics, key=lambda each: (each.file or "", each.line or 0, each.code)))


def _check_folder(skill: Skill) -> Iterator[Diagnostic]:
    root = os.path.realpath(skill.folder)
    for count, path in enumerate(_list_below(skill.folder)):
        if count >= _MAX_ENTRIES:
            yield make_irregularity(
                "SK404", f"more than {_MAX_ENTRIES:,} files; the rest is not looked at", skill.folder
            )
            return
        if os.path.islink(path) and not Path(os.path.realpath(path)).is_relative_to(root):
            message = "the link leads out of the skill's folder; what it leads to is never read"
            yield make_irregularity("SK403", message, path)
        elif path.name.lower() == skill.file.name.lower() and path.parent != skill.folder:
            message = f"a SKILL.md inside the skill '{skill.name}' is one of its files, and no skill of its own"
            yield make_irregularity("SK405", message, path)
        elif path.parent.name == "scripts" and path.parent.parent == skill.folder and os.path.isfile(path):
            yield from _check_script(path)


def _list_below(folder: Path) -> Iterator[Path]:
    for here, folders, files in os.walk(folder):
        folders.sort()
        yield from (Path(here, name) for name in sorted([*folders, *files]))


def _check_script(path: Path) -> Iterator[Diagnostic]:
    if path.suffix in (".md", ".txt", ".json", ".yaml", ".toml", ".csv", ".xsd", ".xml", ".html", ".css"):
        return
    try:
        with open_regular(path) as file:
            interpreter_of(path.name, file.read(_HEAD_BYTES).decode("utf-8", "replace"))
    except RefusedError as refused:
        yield make_irregularity("SK407", f"the script cannot be run here: {refused.values['reason']}", path)
    except OSError as error:
        yield make_irregularity("SK106", f"the file cannot be read: {error.strerror}", path)


def _check_links(store: SkillStore, skill: Skill) -> Iterator[Diagnostic]:
    """Links of the body to files that are not there, or not in the skill."""
    try:
        body = store.body(skill).text
    except OSError as error:
        yield make_irregularity("SK106", f"the file cannot be read: {error.strerror}", skill.file)
        return
    plain = _CODE_BLOCK.sub("", body)
    for target in dict.fromkeys(link[1] for link in _LINK.finditer(plain)):
        if _FOREIGN_LINK.match(target) or "{" in target:
            continue
        try:
            resolve_path(skill, unquote(target))
        except RefusedError as refused:
            outside = refused.key.endswith("outside")
            if not outside and os.path.isdir(skill.folder / unquote(target)):
                continue
            problem = "leads out of the skill's folder" if outside else "is not there"
            yield make_irregularity("SK403" if outside else "SK406", f"the file '{target:.100}' {problem}", skill.file)
