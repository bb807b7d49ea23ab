"""SKILL.md files as people write them: each is read, and each irregularity is told."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.agents.skills.reading import skill_of
from flowengine.agents.skills.skill import IRREGULARITIES, MAX_DESCRIPTION, MAX_NAME, Skill, SkillStamp
from tests.support.pace import spent_within

STAMP = SkillStamp(0, 0, 0)
GOOD = "---\nname: pdf\ndescription: Reads PDFs.\n---\n# Steps\n"


def read(text: str | bytes, folder: str = "pdf", strict: bool = False) -> Skill:
    raw = text.encode() if isinstance(text, str) else text
    return skill_of(raw, Path(folder, "SKILL.md"), STAMP, strict=strict)


def codes(text: str | bytes, folder: str = "pdf") -> list[str]:
    return [each.code for each in read(text, folder).diagnostics]


def test_a_regular_skill_has_no_diagnostics() -> None:
    skill = read(
        "---\nname: pdf\ndescription: Reads PDFs.\nlicense: MIT\ncompatibility: Python 3.11\n"
        "metadata:\n  author: me\nallowed-tools: Bash(git status) Read\n---\n# Steps\n"
    )
    assert skill.diagnostics == ()
    assert (skill.name, skill.description, skill.license) == ("pdf", "Reads PDFs.", "MIT")
    assert (skill.compatibility, skill.metadata) == ("Python 3.11", {"author": "me"})
    assert skill.allowed_tools == ("Bash(git status)", "Read")


CASES: list[tuple[str, str | bytes, list[str], str, str]] = [
    ("a byte order mark", b"\xef\xbb\xbf" + GOOD.encode(), ["SK101"], "pdf", "Reads PDFs."),
    ("CR LF", GOOD.replace("\n", "\r\n"), ["SK102"], "pdf", "Reads PDFs."),
    ("CR alone", GOOD.replace("\n", "\r"), ["SK102"], "pdf", "Reads PDFs."),
    ("UTF-16", GOOD.encode("utf-16"), ["SK103"], "pdf", "Reads PDFs."),
    (
        "Latin-1",
        GOOD.replace("PDFs", "Akten für Müller").encode("latin-1"),
        ["SK103"],
        "pdf",
        "Reads Akten f�r M�ller.",
    ),
    ("no final newline", GOOD.rstrip("\n"), ["SK104"], "pdf", "Reads PDFs."),
    ("nothing at all", "", ["SK108", "SK201", "SK301", "SK309"], "pdf", ""),
    ("no frontmatter", "# PDF\n\nReads PDFs. Well.\n", ["SK201", "SK301", "SK309"], "pdf", "Reads PDFs."),
    ("lines before it", "\n" + GOOD, ["SK201"], "pdf", "Reads PDFs."),
    ("no end of it", GOOD.replace("\n---\n#", "\n\n#"), ["SK202"], "pdf", "Reads PDFs."),
    ("an unquoted colon", GOOD.replace("Reads", "Use: reads"), ["SK204"], "pdf", "Use: reads PDFs."),
    ("hyphens in a value", GOOD.replace("Reads", "Reads --- yes"), ["SK205"], "pdf", "Reads --- yes PDFs."),
    ("hyphens in a block", GOOD.replace("Reads PDFs.", "|\n  One\n  ---\n  two"), ["SK205"], "pdf", "One --- two"),
    ("an alias", GOOD.replace("Reads", "&a Reads"), ["SK206"], "pdf", "&a Reads PDFs."),
    ("a tag", GOOD.replace("Reads", "!!str Reads"), ["SK206"], "pdf", "!!str Reads PDFs."),
    ("a key twice", GOOD.replace("---\n#", "name: other\n---\n#"), ["SK207"], "pdf", "Reads PDFs."),
    ("an unknown key", GOOD.replace("---\n#", "version: 1\n---\n#"), ["SK208"], "pdf", "Reads PDFs."),
    ("a list for a text", GOOD.replace("Reads PDFs.", "[Reads, PDFs]"), ["SK209"], "pdf", "Reads, PDFs"),
    (
        "a long compatibility",
        GOOD.replace("---\n#", f"compatibility: {'x' * 501}\n---\n#"),
        ["SK211"],
        "pdf",
        "Reads PDFs.",
    ),
    ("listed metadata", GOOD.replace("---\n#", "metadata:\n  tags: [a, b]\n---\n#"), ["SK212"], "pdf", "Reads PDFs."),
    ("metadata as text", GOOD.replace("---\n#", "metadata: me\n---\n#"), ["SK212"], "pdf", "Reads PDFs."),
    ("no name", GOOD.replace("name: pdf\n", ""), ["SK301"], "pdf", "Reads PDFs."),
    ("an empty name", GOOD.replace("name: pdf", "name: "), ["SK301"], "pdf", "Reads PDFs."),
    ("upper case", GOOD.replace("name: pdf", "name: PDF"), ["SK302", "SK306"], "PDF", "Reads PDFs."),
    ("a blank", GOOD.replace("name: pdf", "name: my pdf"), ["SK303", "SK306"], "my pdf", "Reads PDFs."),
    ("hyphens", GOOD.replace("name: pdf", "name: pdf--x-"), ["SK304", "SK306"], "pdf--x-", "Reads PDFs."),
    ("a long name", GOOD.replace("name: pdf", f"name: {'x' * 65}"), ["SK305", "SK306"], "x" * 64, "Reads PDFs."),
    ("another folder", GOOD.replace("name: pdf", "name: pdfs"), ["SK306"], "pdfs", "Reads PDFs."),
    (
        "no description",
        GOOD.replace("description: Reads PDFs.\n", "") + "Well. Yes.",
        ["SK104", "SK309"],
        "pdf",
        "Well.",
    ),
    ("an empty body", "---\nname: pdf\ndescription: Reads PDFs.\n---\n", ["SK108"], "pdf", "Reads PDFs."),
    ("not YAML", GOOD.replace("Reads PDFs.", "'Reads PDFs."), ["SK203"], "pdf", "'Reads PDFs."),
    ("a tab", GOOD.replace("---\n#", "metadata:\n\tauthor: me\n---\n#"), ["SK203"], "pdf", "Reads PDFs."),
    ("a list of keys", "---\n- name: pdf\n---\nReads PDFs.\n", ["SK206", "SK301", "SK309"], "pdf", "Reads PDFs."),
]


@pytest.mark.parametrize(
    ("text", "found", "name", "description"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_an_irregular_skill_is_read_and_its_irregularity_told(
    text: str | bytes, found: list[str], name: str, description: str
) -> None:
    skill = read(text)
    assert sorted(each.code for each in skill.diagnostics) == found
    assert (skill.name, skill.description) == (name, description)
    assert skill.is_valid


@pytest.mark.parametrize("value", ["yes", "no", "on", "true", "null", "123", "1.5", "2024-01-01", "~"])
def test_a_name_that_yaml_readers_take_for_something_else_is_a_name(value: str) -> None:
    assert (read(GOOD.replace("name: pdf", f"name: {value}"), value).name) == value
    assert "SK210" in codes(GOOD.replace("name: pdf", f"name: {value}"), value)
    assert "SK210" not in codes(GOOD.replace("name: pdf", f"name: '{value}'"), value)


def test_a_chinese_name_is_a_name_with_a_warning() -> None:
    skill = read(GOOD.replace("name: pdf", "name: 合同审查"), "合同审查", strict=True)
    assert skill.name == "合同审查"
    assert [(each.code, each.severity) for each in skill.diagnostics] == [("SK308", "warning")]


def test_strict_gives_the_verdicts_of_the_specification() -> None:
    violations = {code for code, each in IRREGULARITIES.items() if each.is_violation}
    for _, text, found, _, _ in CASES:
        skill = read(text, strict=True)
        assert {each.code for each in skill.diagnostics if each.severity == "error"} == violations & set(found)
        assert skill.is_valid == (not violations & set(found))


def test_a_long_description_is_told_and_cut() -> None:
    exact = GOOD.replace("Reads PDFs.", "x" * MAX_DESCRIPTION)
    assert codes(exact) == []
    skill = read(GOOD.replace("Reads PDFs.", "x" * (MAX_DESCRIPTION + 1)))
    assert [each.code for each in skill.diagnostics] == ["SK310"]
    assert len(skill.description) == MAX_DESCRIPTION


def test_a_description_cannot_look_like_the_next_line_of_the_list() -> None:
    skill = read('---\nname: "a\\n- b: evil"\ndescription: "x\\n- c: evil\\u202e\\U000E0041"\n---\nBody.\n')
    assert (skill.name, skill.description) == ("a - b: evil", "x - c: evil")


def test_folded_blocks_and_comments_are_yaml() -> None:
    text = GOOD.replace("Reads PDFs.", ">-\n  Reads PDFs.\n  And more. # no comment") + "# x\n"
    assert read(text.replace("name: pdf", "name: pdf # a comment")).description == "Reads PDFs. And more. # no comment"
    assert codes(text) == []


def test_each_diagnostic_has_its_line() -> None:
    skill = read("---\nname: PDF\ndescription: Use: it\nversion: 1\n---\nBody.")
    assert [(each.line, each.code) for each in skill.diagnostics] == [
        (2, "SK302"),
        (2, "SK306"),
        (3, "SK204"),
        (4, "SK208"),
        (6, "SK104"),
    ]


BOMB = "---\nname: pdf\na: &a [x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(20)
)


@pytest.mark.parametrize(
    "text",
    [
        BOMB + "description: Reads PDFs.\n---\n",
        f"---\nname: pdf\ndescription: {'[' * 30_000}\n---\n",
        "---\nname: pdf\ndescription: Reads PDFs.\n" + "x: {" * 20_000 + "\n---\n",
        "---\nname: pdf\ndescription: !!python/object/apply:os.system ['touch /tmp/owned']\n---\n",
        "---\nname: pdf\ndescription: Reads PDFs.\n" + "".join(f"k{n}: v\n" for n in range(5_000)) + "---\n",
        "---\nname: pdf\ndescription: Reads PDFs.\n<<: *x\n---\n",
        "---\nname: pdf\ndescription: \x00\x1b[31m\n---\n",
        "---\n" + "a" * 900_000 + "\n---\n",
        "---\n" + "- " * 30_000 + "\n---\n",
        "---\n? [a, b]\n: c\n---\n",
    ],
    ids=["aliases", "deep", "open", "python", "many", "merge", "control", "huge", "lists", "key"],
)
def test_hostile_frontmatter_is_harmless(text: str) -> None:
    begun = time.process_time()
    skill = read(text)
    assert skill.name == "pdf"
    assert skill.diagnostics
    assert len(skill.description) <= MAX_DESCRIPTION
    assert time.process_time() - begun < 2


PIECES = [
    "---\n",
    "name: a\n",
    "description: ",
    "x",
    ": ",
    "\n",
    "  - b\n",
    "'",
    '"',
    "[",
    "}",
    "&a",
    "*a",
    "!t ",
    "\t",
    "|\n",
    "# ",
]


@settings(deadline=None, max_examples=300)
@given(
    st.one_of(
        st.binary(max_size=200), st.lists(st.sampled_from(PIECES), max_size=25).map(lambda p: "".join(p).encode())
    )
)
def test_whatever_the_bytes_are_a_skill_comes_out(raw: bytes) -> None:
    skill = read(raw)
    assert skill.name
    assert len(skill.name) <= MAX_NAME
    assert "\n" not in skill.name + skill.description
    assert all(each.code in IRREGULARITIES for each in skill.diagnostics)
    assert raw.startswith(b"---\n") or skill.diagnostics


@pytest.mark.parametrize("tools", ["[Read, Bash]", '["Read", Bash]', "Read, Bash", "Read Bash"])
def test_a_list_beside_an_unquoted_colon_is_the_list_that_it_is_alone(tools: str, tmp_path: Path) -> None:
    def allowed(description: str) -> Any:
        raw = f"---\nname: a\ndescription: {description}\nallowed-tools: {tools}\n---\nBody.\n".encode()
        return skill_of(raw, tmp_path / "a" / "SKILL.md", SkillStamp(0, 0, 0)).allowed_tools

    assert list(allowed("Use when: always")) == list(allowed("Always")) == ["Read", "Bash"]


def test_a_text_of_brackets_that_never_close_is_read_soon(tmp_path: Path) -> None:
    raw = f"---\nname: a\ndescription: Does it.\nallowed-tools: Bash(git log) {'a(' * 25_000}\n---\nBody.\n".encode()
    found: list[Any] = []
    assert spent_within(0.2, lambda: found.append(skill_of(raw, tmp_path / "a" / "SKILL.md", SkillStamp(0, 0, 0))))
    assert found[0].allowed_tools[:3] == ("Bash(git log)", "a", "a")
