"""What a question is about, and which of some items answers it best."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.agents.memory.items.ranking import MemoryItem, rank_items, read, weigh
from flowengine.agents.memory.items.words import pieces_of, words_of
from flowengine.agents.memory.scopes.memories import MemoryScope
from tests.support.pace import spent_within

NOW = datetime(2025, 7, 1, tzinfo=UTC)


def item(
    text: str, days_ago: float = 1, subject: str | None = None, closed_days_ago: float | None = None
) -> MemoryItem:
    end = None if closed_days_ago is None else NOW - timedelta(days=closed_days_ago)
    return MemoryItem(MemoryScope.CHANNEL, "C1", text, NOW - timedelta(days=days_ago), subject, end)


def found(question: str, items: Sequence[MemoryItem]) -> list[tuple[str, float]]:
    """What the ranking makes of all items."""
    spread = Counter(word for each in items for word in words_of(each.text))
    asked = read(question, NOW)
    period = asked.period
    in_period = 0 if period is None else sum(period.begin <= each.valid_from < period.end for each in items)
    weighed = weigh(asked, spread, len(items), in_period)
    return [(each.item.text, each.score) for each in rank_items(weighed, items)]


def test_words_meet_their_other_forms():
    for one, other in [("allergic", "allergy"), ("lives", "living"), ("studies", "study"), ("moved", "moving")]:
        assert words_of(one) == words_of(other), (one, other)
    assert words_of("住んでいます") & words_of("お住まい") == {"住"}


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("What is it that Mika likes about Oslo?", ["mika", "lik", "about", "oslo"]),
        ("誰が緑茶を飲みますか。", ["緑茶", "飲"]),
        ("王芳住在哪里？", ["王芳", "芳住", "住在"]),
        ("who are you", ["who", "are", "you"]),
        ("김철수는 어디에 살아요?", ["김철", "철수", "수는", "어디", "디에", "살아", "아요"]),
        ("…?!", []),
    ],
)
def test_a_question_is_about_its_words_without_those_that_make_it_a_question(question: str, words: list[str]):
    pieces = [each for each in pieces_of(question) if not each.is_grammar]
    assert [word for each in pieces for word in each.words] == words


def test_names_are_known_by_their_capital_or_by_the_form_of_address():
    def names(question: str) -> list[str]:
        return ["".join(each.words) for each in pieces_of(question) if each.is_name]

    assert names("Where does Mika live? Perhaps near Oslo.") == ["mika", "oslo"]
    assert names("Mika lives where?") == [], "the first word always has its capital"
    assert names("田中さんとミカちゃんは何を飲みますか。") == ["田中", "ミカ"]
    assert names("鈴木様の予定は？") == ["鈴木"]


def test_the_item_that_speaks_of_more_of_the_question_comes_first():
    items = [item("Mika drinks tea."), item("Priya lives in Cork."), item("Mika lives in Oslo."), item("Tomas rows.")]
    assert [text for text, _ in found("Where does Mika live?", items)][:2] == [
        "Mika lives in Oslo.",
        "Mika drinks tea.",
    ]


def test_of_two_versions_in_the_same_words_the_newer_comes_first():
    items = [item("Mika lives in Oslo.", 30), item("Mika lives in Bergen.", 2), item("Mika lives in Cork.", 90)]
    assert [text for text, _ in found("Where does Mika live?", items)] == [
        "Mika lives in Bergen.",
        "Mika lives in Oslo.",
        "Mika lives in Cork.",
    ]


def test_a_closed_fact_is_found_only_where_the_question_names_its_time():
    items = [
        item("Mika lives in Oslo.", 400, "Mika's home", 100),
        item("Mika lives in Bergen.", 100, "Mika's home"),
        item("Tomas rows.", 50),
    ]
    assert [text for text, score in found("Where does Mika live?", items) if score] == ["Mika lives in Bergen."]
    assert found("Where did Mika live in August 2024?", items)[0][0] == "Mika lives in Oslo."
    assert found("Where did Mika live in June 2025?", items)[0][0] == "Mika lives in Bergen."


def test_what_happened_in_the_month_asked_for_comes_first():
    items = [item(f"Mika repaired the server, number {number}.", 30 * number) for number in range(1, 10)]
    assert found("What did Mika repair in March 2025?", items)[0][0] == "Mika repaired the server, number 4."


def test_an_item_may_name_the_time_in_its_text():
    items = [item("The party is on 14 December 2025."), item("The party is great."), item("Mika rows.")]
    assert found("What is on 14 December 2025?", items)[0][0] == "The party is on 14 December 2025."


def test_an_item_that_shares_only_the_name_is_worth_half():
    items = [item("Mika drinks tea."), item("Tomas rows."), item("Priya sings.")]
    (_, alone), *_ = found("Who is Mika?", items)
    (_, more), *_ = found("What is the shoe size of Mika?", items)
    assert alone == pytest.approx(1.0)
    assert 0 < more < 0.5


def test_scores_are_shares():
    items = [item("Mika drinks tea."), item("Tomas rows.")]
    assert found("Mika drinks tea", items)[0] == ("Mika drinks tea.", pytest.approx(1.0))
    assert found("Zebra", items) == [("Mika drinks tea.", 0.0), ("Tomas rows.", 0.0)]
    assert {score for _, score in found("?!", items)} == {0.0}


def test_characters_that_seldom_stand_together_are_different_words():
    items = [item(text) for text in ("陈静负责灯塔", "陈静喝茶", "王芳负责青鸟", "王芳喝水", "灯塔很高")]
    assert found("陈静负责什么？", items)[0][0] == "陈静负责灯塔"
    assert found("谁负责青鸟？", items)[0][0] == "王芳负责青鸟"


@given(st.text(max_size=80), st.lists(st.text(max_size=40), max_size=5))
@settings(deadline=None, max_examples=150)
def test_any_question_among_any_items_has_scores_from_0_to_1(question: str, texts: list[str]):
    for _, score in found(question, [item(text) for text in texts]):
        assert 0 <= score <= 1 + 1e-9


def test_a_long_prompt_is_asked_for_at_its_ends():
    prompt = f"Where does Mika live? {' '.join(f'filler{number}' for number in range(500))} And Priya's allergy?"
    words = read(prompt, NOW).words()
    assert len(words) <= 140
    assert {"mika", "allerg"} <= set(words)


def test_a_whole_document_is_read_as_a_question_soon():
    prompt = f"Where does Mika live? {'The Fox ran over it. ' * 10_000} And Priya's allergy?"
    assert spent_within(0.5, lambda: read(prompt, NOW))
    assert {"mika", "allerg"} <= set(read(prompt, NOW).words())
