"""A closer look at skills."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flowengine.agents.skills.check import check
from flowengine.agents.skills.skill import IRREGULARITIES
from flowengine.agents.skills.skill_store import SkillStore

MakeSkill = Callable[..., Path]

BODY = """See [the guide](references/guide.md), [more](references/more.md#part "Title") and [all](references/).
[Out](../other/SKILL.md), [web](https://example.com/x.md), [mail](mailto:a@example.com), [here](#part), [t]({{ x }}).
```
[in a fence](nowhere.md)
```
"""


def test_regular_skills_have_nothing_to_tell(make: MakeSkill, root: Path) -> None:
    make("a", body="[guide](references/a%20guide.md)\n", **{"references/a guide.md": "x", "scripts/x.py": "1"})
    assert check(SkillStore(root)) == ()


def test_references_that_lead_nowhere_or_out_are_told(make: MakeSkill, root: Path) -> None:
    make("a", body=BODY, **{"references/guide.md": "x"})
    assert [(each.code, each.message) for each in check(SkillStore(root))] == [
        ("SK403", "the file '../other/SKILL.md' leads out of the skill's folder"),
        ("SK406", "the file 'references/more.md' is not there"),
    ]


def test_a_text_full_of_links_that_do_not_end_is_read_soon(make: MakeSkill, root: Path) -> None:
    make("a", body="[a](" * 10_000)
    begun = time.process_time()
    check(SkillStore(root))
    assert time.process_time() - begun < 5


def test_links_nested_skills_and_scripts_without_a_program_are_told(make: MakeSkill, root: Path) -> None:
    files = {"assets/template/SKILL.md": "x", "scripts/x.xyz": "1", "scripts/data.json": "{}", "scripts/lib/y.xyz": "1"}
    folder = make("a", **files)
    (folder / "out").symlink_to("/etc")
    (folder / "in").symlink_to("assets")
    found = check(SkillStore(root))
    assert [each.code for each in found] == ["SK405", "SK403", "SK407"]
    assert [str(each.file).removeprefix(str(folder)) for each in found] == [
        "/assets/template/SKILL.md",
        "/out",
        "/scripts/x.xyz",
    ]
    assert {each.severity for each in found} == {"warning"}


@pytest.fixture
def anyones() -> Iterator[Path]:
    """A folder that an unprivileged user can reach: root may enter every one."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_a_folder_that_may_be_listed_and_not_entered_ends_no_check(make: MakeSkill, root: Path, anyones: Path) -> None:
    folder = anyones / "a"
    shutil.copytree(make("a", **{"scripts/x.xyz": "1"}), folder)
    (folder / "scripts").chmod(0o444)
    store, is_root = SkillStore(anyones), os.geteuid() == 0
    assert [each.name for each in store.skills()] == ["a"]
    try:
        if is_root:
            os.seteuid(65534)
        assert check(store) == ()
    finally:
        if is_root:
            os.seteuid(0)
        (folder / "scripts").chmod(0o755)


def test_what_the_store_tells_comes_along_by_file_and_line(make: MakeSkill, root: Path) -> None:
    make("b", "Use: it", body="[x](gone.md)\n")
    make("A")
    assert [each.code for each in check(SkillStore(root))] == ["SK302", "SK406", "SK204"]


def test_every_code_is_one_of_a_family() -> None:
    assert all(code[:2] == "SK" and code[2] in "1234" and each.title for code, each in IRREGULARITIES.items())


def test_links_and_files_with_names_that_no_file_can_have_are_told(make: MakeSkill, root: Path) -> None:
    make("a", body=f"[long]({'a' * 300}.md) [nul](a%00.md)\n")
    assert [each.code for each in check(SkillStore(root))] == ["SK406", "SK406"]
