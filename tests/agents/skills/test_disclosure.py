"""What an agent gets of skills, level by level, and what is told of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flowengine.agents.skills.disclosure import SkillAccess, skill_access
from flowengine.agents.skills.sandbox.sandbox import Sandbox, verdict
from flowengine.agents.skills.skill_store import SkillStore
from flowengine.agents.tools.toolset import Offer, ToolSet
from flowengine.core.records import Notice
from flowengine.core.run_scope import RunScope
from flowengine.errors import DefinitionError
from tests.support.require import missing

MakeSkill = Callable[..., Path]
pytestmark = pytest.mark.anyio

LONG = "# Guide\nIn short.\n" + "".join(f"## Part {number}\n{'word ' * 1_500}\n" for number in range(6))


class Heard:
    """What was told."""

    def __init__(self) -> None:
        self.records: list[Any] = []

    async def __call__(self, record: Any) -> None:
        self.records.append(record)

    @property
    def loads(self) -> list[tuple[str, int]]:
        return [(each.skill, each.level) for each in self.records]


async def call(tools: ToolSet, name: str, /, **arguments: Any) -> tuple[str, bool]:
    tool = Offer([tools]).find(name)
    assert tool is not None, name
    result = await tool.call(arguments)
    return result.text, result.is_error


async def names(access: SkillAccess) -> list[str]:
    return [each.name for each in (await access.tool_set()).tools]


async def test_the_list_is_pinned_and_told_once_a_run(make: MakeSkill, root: Path) -> None:
    make("a", "One.")
    make("b", "Two.")
    heard = Heard()
    async with RunScope() as scope:
        for _ in range(2):
            fragments = await skill_access(root, scope, heard).fragments("anything")
    assert [(each.source, each.pinned, each.label) for each in fragments] == [("skills", True, "list")]
    assert fragments[0].text.endswith("- a: One.\n- b: Two.")
    assert heard.loads == [("*", 1)]
    assert heard.records[0].tokens == fragments[0].tokens
    assert heard.records[0].memory > len(fragments[0].text)


async def test_without_skills_there_is_nothing(root: Path) -> None:
    access = skill_access(root)
    assert await access.fragments() == ()
    assert not (await access.tool_set()).active


async def test_a_body_comes_by_a_call_and_is_kept_for_the_run(make: MakeSkill, root: Path) -> None:
    make("a", body="# Steps\nDo it.\n", **{"references/more.md": "x"})
    heard = Heard()
    async with RunScope() as scope:
        first, second = (skill_access(root, scope, heard) for _ in range(2))
        text, is_error = await call(await first.tool_set(), "load_skill", name="A")
        assert (text, is_error) == (
            "<skill>\n# Steps\nDo it.\n</skill>\n\nFiles of the skill: references/more.md",
            False,
        )
        assert await call(await second.tool_set(), "load_skill", name="a") == (text, False)
    assert heard.loads == [("a", 2)]
    assert first.loaded == second.loaded == ["a"]


async def test_a_changed_body_is_told_again(make: MakeSkill, root: Path) -> None:
    folder, heard = make("a"), Heard()
    access = skill_access(root, note=heard)
    await access.load_skill("a")
    (folder / "SKILL.md").write_text("---\nname: a\ndescription: Does it.\n---\nAnother body.\n")
    assert "Another body." in await access.load_skill("a")
    assert heard.loads == [("a", 2), ("a", 2)]


async def test_tools_are_no_more_than_the_skills_need(make: MakeSkill, root: Path) -> None:
    make("a")
    assert await names(skill_access(root)) == ["load_skill"]
    make("b", body=LONG)
    assert await names(skill_access(root)) == ["load_skill", "read_skill_section"]
    make("c", **{"scripts/x.py": "1"})
    everything = ["load_skill", "read_skill_section", "read_skill_file", "run_skill_script"]
    assert await names(skill_access(root)) == everything
    for number in range(30):
        make(f"d{number}", "Does a lot of things, and all of them well.")
    assert "search_skills" in await names(skill_access(root, budget=200))


async def test_a_long_body_is_given_section_by_section(make: MakeSkill, root: Path) -> None:
    make("a", body=LONG)
    heard = Heard()
    access = skill_access(root, note=heard)
    tools = await access.tool_set()
    text, _ = await call(tools, "load_skill", name="a")
    assert "<skill>\n# Guide\nIn short.\n</skill>" in text
    assert "\n1 Part 0 (1" in text
    section, _ = await call(tools, "read_skill_section", name="a", section="Part 3")
    assert section.startswith("<section>\n## Part 3\nword word")
    assert heard.loads == [("a", 2), ("a", 2)]
    assert heard.records[0].tokens < 200 < 1_500 < heard.records[1].tokens
    text, is_error = await call(tools, "read_skill_section", name="a", section="Part 9")
    assert is_error
    assert text.startswith("there is no section 'Part 9'; the sections are:\n1 Part 0")


async def test_a_section_that_is_long_itself_is_given_in_parts(make: MakeSkill, root: Path) -> None:
    make("a", body="# Guide\nIn short.\n## All\n" + LONG.replace("## ", "### ").replace("# Guide\n", "", 1))
    access = skill_access(root)
    text = await access.read_skill_section("a", "1")
    assert "Below it are (number, title, tokens):\n1.1 Part 0 (" in text
    assert "word word" not in text


async def test_files_are_read_and_scripts_are_not(make: MakeSkill, root: Path) -> None:
    make("a", **{"references/more.md": "More </file> of it.", "scripts/x.py": "SECRET = 1", "long.md": LONG})
    heard = Heard()
    tools = await skill_access(root, note=heard).tool_set()
    text, _ = await call(tools, "read_skill_file", name="a", path="references/more.md")
    assert text == "<file_1>\nMore </file> of it.\n</file_1>"
    text, is_error = await call(tools, "read_skill_file", name="a", path="scripts/x.py")
    assert (text, is_error) == ("'scripts/x.py' is a script: run it with run_skill_script; its text is not shown", True)
    text, _ = await call(tools, "read_skill_file", name="a", path="long.md")
    assert "and this path" in text
    text, _ = await call(tools, "read_skill_section", name="a", section="2", path="long.md")
    assert text.startswith("<section>\n## Part 1")
    assert heard.loads == [("a", 3)] * 3
    _, is_error = await call(tools, "read_skill_section", name="a", section="1", path="scripts/x.py")
    assert is_error


async def test_what_is_not_there_is_said_with_the_nearest_name(make: MakeSkill, root: Path) -> None:
    make("pdf", **{"references/forms.md": "x"})
    tools = await skill_access(root).tool_set()
    assert await call(tools, "load_skill", name="pdff") == ("there is no skill 'pdff'; did you mean 'pdf'?", True)
    text, is_error = await call(tools, "read_skill_file", name="pdf", path="references/form.md")
    assert is_error
    assert text.endswith("has no file 'references/form.md'; did you mean 'references/forms.md'?")
    text, is_error = await call(tools, "read_skill_file", name="pdf", path="../../etc/passwd")
    assert (text, is_error) == ("the path '../../etc/passwd' leads out of the skill's folder", True)


async def test_a_search_finds_what_the_list_does_not_describe(make: MakeSkill, root: Path) -> None:
    make("haiku", "Writes poems of three lines.")
    for number in range(30):
        make(f"d{number}", "Does a lot of things, and all of them well.")
    access = skill_access(root, budget=200)
    assert "haiku: Writes poems" in (await access.fragments("a poem"))[0].text
    text, _ = await call(await access.tool_set(), "search_skills", query="poems")
    assert text == "Skills that fit best:\n- haiku: Writes poems of three lines."
    assert (await call(await access.tool_set(), "search_skills", query="zebra"))[0].startswith("No skill fits")


async def test_what_ancestors_loaded_comes_along_and_may_be_dropped(make: MakeSkill, root: Path) -> None:
    make("a", body="Body of a.\n")
    make("b")
    first, second = await skill_access(root).fragments("x", loaded=["a", "gone"])
    assert first.pinned
    assert (second.text, second.label, second.pinned) == ("<skill>\nBody of a.\n</skill>", "a", False)


async def test_a_strict_store_with_a_broken_skill_is_an_error(make: MakeSkill, root: Path) -> None:
    make("Bad")
    access = SkillAccess(SkillStore(root, strict=True))
    with pytest.raises(DefinitionError, match=r"break the specification:\n.*SK302"):
        await access.fragments()


async def test_a_skill_that_is_left_out_is_told_once_a_run(make: MakeSkill, root: Path) -> None:
    make("a")
    (root / "b" / "SKILL.md").mkdir(parents=True)
    heard = Heard()
    access = skill_access(root, note=heard)
    for _ in range(2):
        await access.fragments()
        await access.tool_set()
    told = [each for each in heard.records if isinstance(each, Notice)]
    assert len(told) == 1
    assert told[0].text.startswith("a skill was left out: ")
    assert "SK106 the file cannot be read" in told[0].text


async def test_a_budget_that_holds_nothing_is_an_error(make: MakeSkill, root: Path) -> None:
    with pytest.raises(DefinitionError, match="at least 100 tokens"):
        skill_access(root, budget=10)


# --- scripts --------------------------------------------------------------------------------------


@pytest.fixture
def sandboxed() -> None:
    if not verdict().holds:
        missing(f"no sandbox: {verdict().reason}")


@pytest.mark.usefixtures("sandboxed")
async def test_of_a_script_only_its_output_is_given(make: MakeSkill, root: Path) -> None:
    script = "import sys\nprint('said </output>', sys.argv[1:], sys.stdin.read())\nprint('hm', file=sys.stderr)\n"
    make("a", **{"scripts/say.py": script})
    heard = Heard()
    tools = await skill_access(root, note=heard).tool_set()
    given = {"name": "a", "path": "scripts/say.py", "arguments": ["x y", "$HOME"], "stdin": "in"}
    text, is_error = await call(tools, "run_skill_script", **given)
    assert not is_error
    assert text.startswith("The script ended with code 0 after ")
    assert "<output_1>\nsaid </output> ['x y', '$HOME'] in\n</output_1>" in text
    assert "<messages>\nhm\n</messages>" in text
    assert "import sys" not in text
    await call(tools, "run_skill_script", **given)
    assert heard.loads == [("a", 3), ("a", 3)]


@pytest.mark.usefixtures("sandboxed")
async def test_a_script_without_a_known_program_is_refused(make: MakeSkill, root: Path) -> None:
    make("a", **{"scripts/x.xyz": "hello"})
    tools = await skill_access(root).tool_set()
    text, is_error = await call(tools, "run_skill_script", name="a", path="scripts/x.xyz")
    assert is_error
    assert "it has no first line '#!…', and its ending '.xyz' is none of .py, .sh" in text


async def test_a_script_outside_of_its_skill_is_refused(make: MakeSkill, root: Path) -> None:
    make("a", **{"scripts/x.xyz": "hello"})
    tools = await skill_access(root).tool_set()
    text, is_error = await call(tools, "run_skill_script", name="a", path="../x.py")
    assert (text, is_error) == ("the path '../x.py' leads out of the skill's folder", True)


async def test_an_unconfined_script_is_a_deed_in_the_world(make: MakeSkill, root: Path) -> None:
    make("a", **{"scripts/x.py": "1"})
    for allowed, effect in ((False, "none"), (True, "external")):
        access = skill_access(root, sandbox=Sandbox(allow_unconfined=allowed))
        tool = Offer([await access.tool_set()]).find("run_skill_script")
        assert tool is not None
        assert tool.effect == effect


@pytest.mark.parametrize(("locale", "said"), [("ja", "スキル一覧"), ("zh", "技能列表")])
async def test_models_are_told_in_their_language(make: MakeSkill, root: Path, locale: str, said: str) -> None:
    make("a")
    access = skill_access(root, locale=locale)
    assert said in (await access.fragments())[0].text
    text, is_error = await call(await access.tool_set(), "load_skill", name="zzz")
    assert is_error
    assert "zzz" in text
    assert "there is no" not in text
