"""What questions are about."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowengine.agents.retrieval.terms import Holding, subject_terms


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("How do I cancel my orders?", ["cancel", "order"]),
        ("茶の入れ方", ["茶", "入", "方"]),
        ("おにぎりはどこ", ["おに", "にぎ", "ぎり", "りは", "はど", "どこ"]),
        ("サーバーが落ちた原因", ["サー", "ーバ", "バー", "原因"]),
        ("我的目的地在哪里", ["目的", "的地", "地在"]),
        ("请问怎么申请？", ["申请"]),
        ("什么", ["什么"]),
        ("주문을 취소해 주세요", ["주문", "취소"]),
        ("who are you", ["who", "are", "you"]),
        ("?", []),
    ],
)
def test_the_subject_of_a_question(question: str, expected: list[str]) -> None:
    assert subject_terms(question) == expected


@pytest.mark.long
@given(st.text())
def test_a_text_holds_all_of_its_own_subject(text: str) -> None:
    subject = subject_terms(text)
    assert Holding(text).share(subject) == (1.0 if subject else 0.0)
