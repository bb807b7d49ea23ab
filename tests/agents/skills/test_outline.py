"""Long texts by their headings: everything can be read, in pieces of bounded size."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.agents.skills.outline import LONG_TEXT, Section, make_outline
from flowengine.models.tokens import count_tokens

TEXT = """Before.

# Guide
Hello.

## Forms
Fill them.

### Fields
```
# no heading
```

## Merging ##
Put together.
"""


def flat(sections: tuple[Section, ...] | list[Section]) -> list[Section]:
    return [each for section in sections for each in (section, *flat(section.sections))]


def test_sections_are_numbered_by_their_headings() -> None:
    outline = make_outline(TEXT)
    assert [(each.number, each.title) for each in flat(outline.sections)] == [
        ("1", "Forms"),
        ("1.1", "Fields"),
        ("2", "Merging"),
    ]
    assert outline.beginning == "Before.\n\n# Guide\nHello.\n\n"
    assert outline.lines()[2].startswith("2 Merging (")


def test_several_headings_of_the_first_level_are_sections() -> None:
    assert [each.title for each in make_outline("# A\na\n# B\nb\n").sections] == ["A", "B"]


def test_a_section_is_found_by_number_and_by_title() -> None:
    outline = make_outline(TEXT)
    found = [outline.find(wanted) for wanted in ("1.1", "#1.1", "fields", " `Fields` ", "1.1 Fields")]
    assert {each.title for each in found if each} == {"Fields"}
    assert None not in found
    assert outline.find("3") is None
    assert outline.find("") is None


def test_fences_end_as_they_began() -> None:
    text = "# A\n````\n# x\n```\n# y\n````\n# B\n~~~\n# z\n~~~ \n# C\n"
    assert [each.title for each in make_outline(text).sections] == ["A", "B", "C"]


def test_a_long_section_is_parted_between_paragraphs() -> None:
    paragraphs = "".join(f"Paragraph {number} says something about a subject.\n\n" for number in range(2_000))
    outline = make_outline(f"# Top\nIn short.\n## Long\n{paragraphs}## Short\nx\n")
    long = outline.sections[0]
    assert [each.title for each in long.sections[:2]] == ["[2/8]", "[3/8]"]
    assert all(count_tokens(each.text) <= LONG_TEXT for each in flat(outline.sections))
    assert long.whole == f"## Long\n{paragraphs}"


def test_a_text_without_headings_is_parted_too() -> None:
    outline = make_outline("word " * 30_000)
    assert count_tokens(outline.beginning) <= LONG_TEXT
    assert len(outline.sections) > 5
    assert (outline.beginning + "".join(each.whole for each in outline.sections)) == "word " * 30_000


def test_an_outline_of_many_headings_is_cut() -> None:
    text = "# T\n" + "".join(f"## S{number}\n### Deep\nx\n" for number in range(500))
    lines = make_outline(text).lines()
    assert len(lines) == 121
    assert lines[-1] == "… 380"
    assert not any("Deep" in each for each in lines)


def test_a_very_long_title_is_cut_in_an_outline() -> None:
    title = "word " * 1_000
    outline = make_outline(f"# T\n## {title}\nx\n## B\n")
    assert max(map(len, outline.lines())) < 150
    assert outline.find(title) is outline.sections[0]


@settings(deadline=None, max_examples=100)
@given(
    st.lists(
        st.sampled_from(["# A\n", "## B\n", "### C\n", "x\n", "```\n", "\n", "#no\n", "    # code\n"]), max_size=30
    )
)
def test_no_character_is_lost(pieces: list[str]) -> None:
    text = "".join(pieces)
    outline = make_outline(text)
    assert outline.beginning + "".join(each.whole for each in outline.sections) == text
    assert all(outline.find(each.number) is each for each in flat(outline.sections))
