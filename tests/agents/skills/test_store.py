"""Stores: what is found below folders, what is kept, and that changes are noticed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from flowengine.agents.skills import skill_files
from flowengine.agents.skills import skill_store as store_module
from flowengine.agents.skills.skill_files import RefusedError, list_files
from flowengine.agents.skills.skill_store import SkillStore
from flowengine.errors import DefinitionError
from tests.support.pace import spent_within

MakeSkill = Callable[..., Path]


def codes(store: SkillStore) -> list[str]:
    return sorted(each.code for each in store.diagnostics())


def rewrite(file: Path, text: str) -> None:
    """With another size or a later time, as editors do."""
    before = file.stat().st_mtime_ns
    file.write_text(text)
    os.utime(file, ns=(before + 1_000_000, before + 1_000_000))


def test_skills_are_found_below_a_root_at_any_depth_and_in_one(make: MakeSkill, root: Path) -> None:
    make("a")
    make("group/b")
    assert sorted(each.file.parent.name for each in SkillStore(root).skills()) == ["a", "b"]
    assert [each.name for each in SkillStore(root / "a").skills()] == ["a"]


def test_a_root_that_is_no_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="there is no folder"):
        SkillStore([tmp_path / "nowhere"])


def test_a_store_of_nothing_has_no_skills(root: Path) -> None:
    store = SkillStore(root)
    assert (store.skills(), store.diagnostics()) == ((), ())


def test_a_changed_a_new_and_a_removed_skill_are_noticed(make: MakeSkill, root: Path) -> None:
    first = make("a", "One.")
    store = SkillStore(root)
    assert [each.description for each in store.skills()] == ["One."]
    rewrite(first / "SKILL.md", "---\nname: a\ndescription: Two.\n---\nBody.\n")
    make("b", "New.")
    assert [each.description for each in store.skills()] == ["Two.", "New."]
    (first / "SKILL.md").unlink()
    assert [each.description for each in store.skills()] == ["New."]


def test_a_file_is_read_once_for_as_long_as_it_stays(
    make: MakeSkill, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make("a")
    reads: list[str] = []
    read = store_module.skill_of
    monkeypatch.setattr(
        store_module,
        "skill_of",
        lambda raw, file, *more, **named: (reads.append(file.name), read(raw, file, *more, **named))[1],
    )
    store = SkillStore(root)
    assert store.skills() == store.skills()
    assert len(reads) == 1


def test_bodies_are_kept_and_read_again_when_they_change(make: MakeSkill, root: Path) -> None:
    folder = make("a", body="# One\n")
    store = SkillStore(root)
    skill = store.skills()[0]
    first = store.body(skill)
    assert (first.text, first.tokens) == ("# One\n", 3)
    assert store.body(skill) is first
    rewrite(folder / "SKILL.md", "---\nname: a\ndescription: Does it.\n---\n# Two and more\n")
    assert store.body(skill).text == "# Two and more\n"


def test_a_skill_md_is_read_as_a_file_with_its_frontmatter_and_as_a_body_without(make: MakeSkill, root: Path) -> None:
    make("a", body="# One\n")
    for body_first in (True, False):
        store = SkillStore(root)
        skill = store.skills()[0]
        texts = {}
        for is_body in (body_first, not body_first):
            texts[is_body] = (store.body(skill) if is_body else store.file(skill, "SKILL.md")).text
        assert texts[True] == "# One\n"
        assert texts[False].startswith("---\nname: a\n")


def test_a_folder_whose_name_is_no_text_names_a_skill_that_is(root: Path) -> None:
    folder = root / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    (folder / "SKILL.md").write_text("---\ndescription: Does it.\n---\nDo it.\n")
    store = SkillStore(root)
    said = [each.name for each in store.skills()] + [str(each) for each in store.diagnostics()]
    assert said[0] == "caf"
    assert "caf\\xe9" in said[1]
    assert "\n".join(said).encode()


def test_texts_are_let_go_where_they_grow_too_many(
    make: MakeSkill, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_KEPT", 50)
    make("a", body="x" * 40)
    make("b", body="y" * 40)
    store = SkillStore(root)
    first, second = store.skills()
    kept = store.body(first)
    store.body(second)
    assert store.body(first) is not kept


def test_two_skills_of_one_name_are_told_apart(make: MakeSkill, root: Path, tmp_path: Path) -> None:
    make("a", "First.")
    other = tmp_path / "other" / "a"
    other.mkdir(parents=True)
    (other / "SKILL.md").write_text("---\nname: a\ndescription: Second.\n---\nBody.\n")
    store = SkillStore([root, tmp_path / "other"])
    assert [(each.name, each.description) for each in store.skills()] == [("a", "First."), ("a-2", "Second.")]
    assert codes(store) == ["SK307"]
    strict = SkillStore([root, tmp_path / "other"], strict=True)
    assert [each.description for each in strict.skills()] == ["First."]
    assert [each.severity for each in strict.diagnostics()] == ["error"]


def test_many_skills_of_one_name_are_named_without_trying_each_number_again(
    make: MakeSkill, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(40):
        make(f"s{number:02}").joinpath("SKILL.md").write_text("---\nname: same\ndescription: Does it.\n---\nDo it.\n")
    tried: list[str] = []
    normalize = store_module._normalize_name
    monkeypatch.setattr(store_module, "_normalize_name", lambda name: (tried.append(name), normalize(name))[1])
    assert [each.name for each in SkillStore(root).skills()] == ["same", *(f"same-{number}" for number in range(2, 41))]
    assert len(tried) < 6 * 40


def test_a_regular_name_is_not_taken_by_one_in_capital_letters(make: MakeSkill, root: Path) -> None:
    make("PDF")
    make("pdf-tools").joinpath("SKILL.md").write_text("---\nname: pdf\ndescription: Reads PDFs.\n---\nRead.\n")
    named = {skill.folder.name: skill.name for skill in SkillStore(root).skills()}
    assert named == {"PDF": "PDF-2", "pdf-tools": "pdf"}


def test_a_root_that_is_given_twice_gives_its_skills_once(make: MakeSkill, root: Path) -> None:
    make("a")
    store = SkillStore([root, root])
    assert [each.name for each in store.skills()] == ["a"]


def test_a_name_is_found_however_it_is_written(make: MakeSkill, root: Path) -> None:
    make("pdf-forms")
    store = SkillStore(root)
    assert all(store.find(name) is not None for name in ("pdf-forms", "PDF Forms", " pdf_forms "))
    assert store.find("pdf") is None
    assert store.hint("pdf-frms") == "; did you mean 'pdf-forms'?"


def test_strict_leaves_out_what_breaks_the_specification_and_says_so(make: MakeSkill, root: Path) -> None:
    make("good")
    make("Bad")
    store = SkillStore(root, strict=True)
    assert [each.name for each in store.skills()] == ["good"]
    assert [(each.code, each.severity) for each in store.diagnostics()] == [("SK302", "error")]
    assert [each.name for each in SkillStore(root).skills()] == ["Bad", "good"]


def test_skill_md_in_other_letters_is_one(root: Path) -> None:
    (root / "a").mkdir()
    (root / "a" / "skill.md").write_text("---\nname: a\ndescription: Does it.\n---\nBody.\n")
    store = SkillStore(root)
    assert [each.name for each in store.skills()] == ["a"]
    assert codes(store) == ["SK105"]


def test_a_folder_that_looks_like_a_skill_is_told(root: Path) -> None:
    (root / "a" / "scripts").mkdir(parents=True)
    (root / "plain" / "more").mkdir(parents=True)
    (root / "b").mkdir()
    (root / "b" / "README.md").write_text("Not a skill.")
    assert codes(SkillStore(root)) == ["SK401", "SK401"]


def test_links_out_of_the_root_are_not_followed_and_told(make: MakeSkill, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside" / "a"
    outside.mkdir(parents=True)
    (outside / "SKILL.md").write_text("---\nname: a\ndescription: Outside.\n---\nBody.\n")
    (root / "linked").symlink_to(outside)
    (root / "b").mkdir()
    (root / "b" / "SKILL.md").symlink_to(outside / "SKILL.md")
    make("c")
    store = SkillStore(root)
    assert [each.name for each in store.skills()] == ["c"]
    assert [(each.code, each.severity) for each in store.diagnostics()] == [("SK402", "error")] * 2


def test_links_inside_the_root_are_followed_once(make: MakeSkill, root: Path) -> None:
    make("a")
    (root / "same").symlink_to(root / "a")
    (root / "circle").symlink_to(root)
    (root / "self").symlink_to(root / "self")
    assert [each.name for each in SkillStore(root).skills()] == ["a"]


def test_a_file_that_is_too_large_or_unreadable_is_told(make: MakeSkill, root: Path) -> None:
    (make("a") / "SKILL.md").write_text("x" * 1_000_001)
    (root / "b" / "SKILL.md").mkdir(parents=True)
    store = SkillStore(root)
    assert store.skills() == ()
    assert [(each.code, each.severity) for each in store.diagnostics()] == [("SK107", "error"), ("SK106", "error")]


def test_two_thousand_folders_are_looked_through_quickly(make: MakeSkill, root: Path) -> None:
    for number in range(1_000):
        make(f"skill-{number}")
    folder = make("wide")
    for number in range(2_000):
        (folder / "assets" / str(number)).mkdir(parents=True)
    store = SkillStore(root)
    assert len(store.skills()) == 1_001
    assert spent_within(1, store.skills)
    assert len(store.skills()) == 1_001


def test_what_is_nested_too_deeply_is_told(root: Path) -> None:
    (root / "/".join("abcdefghijkl")).mkdir(parents=True)
    assert codes(SkillStore(root)) == ["SK404"]


# --- files ------------------------------------------------------------------------------------------


def test_a_file_is_read_by_its_path(make: MakeSkill, root: Path) -> None:
    make("a", **{"references/more.md": "More.\r\n"})
    store = SkillStore(root)
    assert store.file(store.skills()[0], "references/more.md").text == "More.\n"
    assert store.file(store.skills()[0], "./references\\more.md").text == "More.\n"


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("../secret.txt", "outside"),
        ("references/../../secret.txt", "outside"),
        ("/etc/passwd", "outside"),
        ("link.txt", "outside"),
        ("folder/secret.txt", "outside"),
        ("nothing.md", "file"),
        ("references", "file"),
        ("", "file"),
        ("x" * 5_000, "file"),
        ("a\0b", "file"),
        ("pipe", "file"),
        ("circle", "file"),
        ("binary.bin", "binary"),
        ("nul.txt", "binary"),
        ("large.txt", "large"),
    ],
)
def test_what_a_skill_does_not_give_is_refused(make: MakeSkill, root: Path, path: str, key: str) -> None:
    folder = make("a", **{"references/more.md": "x", "nul.txt": "a\0b", "large.txt": "x" * 2_000_001})
    (root / "secret.txt").write_text("secret")
    (folder / "link.txt").symlink_to(root / "secret.txt")
    (folder / "folder").symlink_to(root)
    (folder / "circle").symlink_to(folder / "circle")
    (folder / "binary.bin").write_bytes(b"\xff\xfe\xfa")
    os.mkfifo(folder / "pipe")
    store = SkillStore(root)
    with pytest.raises(RefusedError) as refused:
        store.file(store.find("a") or store.skills()[0], path)
    assert refused.value.key == f"errors.{key}"


def test_names_that_are_more_than_a_line_are_not_listed(make: MakeSkill, root: Path) -> None:
    folder = make("a", **{"b.md": "x", "c\n</skill>.md": "x", "d\u2028.md": "x", "e/f.md": "x"})
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff.md")).write_text("x")
    (skill,) = SkillStore(root).skills()
    assert list_files(skill) == ["b.md", "e/f.md"]


def test_no_more_files_are_listed_than_so_many(make: MakeSkill, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skill_files, "MAX_LISTED", 3)
    make("a", **{f"{number}.md": "x" for number in range(5)})
    (skill,) = SkillStore(root).skills()
    assert list_files(skill) == ["0.md", "1.md", "2.md"]
