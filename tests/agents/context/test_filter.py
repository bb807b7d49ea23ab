"""What of a context is about the query."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.agents.context.factory import ContextProviderFactory
from flowengine.agents.context.filter import ContextFilterProvider
from flowengine.agents.context.provider import ParameterError
from flowengine.core.context import Fragment


def filter_fragments(query: str, fragments: list[Fragment], **options: Any) -> list[Fragment]:
    return list(ContextFilterProvider(**options).fragments(query, fragments))


def texts(query: str, *given: str, **options: Any) -> list[str]:
    return [
        each.text for each in filter_fragments(query, [Fragment(text, "conversation") for text in given], **options)
    ]


@pytest.mark.parametrize(
    ("query", "about", "aside"),
    [
        ("When are the invoices paid?", "An invoice is paid within 30 days.", "The office has a garden."),
        ("返品の期限はいつですか", "返品は商品到着から七日以内にお願いします。", "本店は渋谷にあります。"),
        ("緑茶の入れ方を教えて", "緑茶は80度の湯で淹れると甘くなる。", "紅茶は熱湯で淹れる。"),
        ("パスワードを忘れたらどうすればいい?", "パスワードは設定画面から変更できます。", "営業時間は九時からです。"),
        ("怎么申请退款？", "退款需要七个工作日。", "我们的办公室在上海。"),
        ("如何取消订单", "订单可以在发货前取消。", "会员每月有优惠。"),
        ("회의는 언제 하나요?", "회의가 10시에 시작됩니다.", "사무실은 서울에 있습니다."),
        ("get_http_response", "The function getHttpResponse retries.", "Colours are set in the theme."),
    ],
)
def test_what_is_about_the_query_stays_in_any_language(query: str, about: str, aside: str) -> None:
    assert texts(query, aside, about) == [about]


def test_the_order_of_a_conversation_stays() -> None:
    said = [f"Turn {number}: the invoice {'invoice payment ' * (number % 3)}" for number in range(10)]
    found = texts("invoice payment", *said)
    assert found == sorted(found, key=said.index)
    assert len(found) == 5


def test_the_best_sections_stay_where_there_are_too_many() -> None:
    found = texts("late invoice payment", "invoice", "late invoice payment", "invoice payment", max_sections=2)
    assert found == ["late invoice payment", "invoice payment"]


def test_of_equally_good_ones_the_newest_stay() -> None:
    assert texts("tea", "tea one", "tea two", "tea three", max_sections=2) == ["tea two", "tea three"]


def test_repeated_sections_stay_once() -> None:
    assert texts("tea", "Green tea", "Black tea", "green  tea") == ["Green tea", "Black tea"]


@pytest.mark.parametrize(("threshold", "expected"), [(0.0, 3), (0.5, 2), (0.51, 1), (1.0, 1)])
def test_the_threshold_is_a_share_of_the_terms(threshold: float, expected: int) -> None:
    found = texts("green tea", "green tea", "green paint", "coffee", relevance_threshold=threshold)
    assert len(found) == expected


def test_a_long_text_is_filtered_by_its_sections() -> None:
    text = "# Payment\nInvoices are paid in 30 days.\n\n# Garden\nRoses.\n\n# Reminders\nLate invoices are reminded of."
    fragment = Fragment(text, "fixed_file", label="policies.md", tokens=40, priority=3)
    (found,) = filter_fragments("When are invoices paid?", [fragment])
    assert found.text == "# Payment\nInvoices are paid in 30 days.\n\n# Reminders\nLate invoices are reminded of."
    assert (found.label, found.priority, found.tokens) == ("policies.md", 3, None)


def test_a_fragment_of_which_all_stays_is_itself() -> None:
    fragment = Fragment("Tea one.\n\n\nTea two.", "fixed_file", tokens=9)
    assert filter_fragments("tea", [fragment]) == [fragment]


def test_a_call_and_its_result_stay_or_go_together() -> None:
    call, result = Fragment("look_up(7)", "tools", group="1"), Fragment("invoice 7 is late", "tools", group="1")
    other = [Fragment("look_up(8)", "tools", group="2"), Fragment("no such thing", "tools", group="2")]
    assert filter_fragments("late invoice", [call, *other, result]) == [call, result]


def test_code_is_not_cut_at_its_blank_lines() -> None:
    code = Fragment("src/a.py:1-5 pay\n```py\ndef pay():\n\n    invoice()\n```", "source_code", group="src/a.py:1-5")
    assert filter_fragments("pay invoice", [code]) == [code]


def test_what_is_pinned_stays_and_counts_for_nothing() -> None:
    rules = Fragment("Be kind.", "fixed_file", pinned=True)
    found = filter_fragments(
        "tea", [rules, Fragment("tea", "x"), Fragment("be kind.", "x"), Fragment("teas", "x")], max_sections=1
    )
    assert found == [rules, Fragment("teas", "x")]


@pytest.mark.parametrize("query", ["", "?!", "。"])
def test_a_query_without_terms_filters_repetition_only(query: str) -> None:
    assert texts(query, "one", "two", "one") == ["one", "two"]


def test_as_text_it_takes_and_gives_a_text() -> None:
    provider = ContextFilterProvider(max_sections=1)
    assert provider.get_context("tea", "Coffee is black.\n\nTea is green.") == "Tea is green."
    assert provider.get_context("tea", None) == ""
    assert provider.get_context("zebra", "Tea is green.") == ""


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"relevance_threshold": 30}, "did you mean 0.3"),
        ({"relevance_threshold": -0.1}, "between 0.0 and 1.0"),
        ({"max_sections": 0}, "at least 1"),
        ({"max_section": 3}, "did you mean 'max_sections'"),
    ],
)
def test_wrong_parameters_are_refused(config: dict[str, Any], problem: str) -> None:
    with pytest.raises(ParameterError, match=problem):
        ContextProviderFactory.create_from_config([{"filter": config}])


FRAGMENT = st.builds(
    Fragment,
    st.text("abc 茶水。\n#", max_size=30),
    st.sampled_from(["conversation", "fixed_file"]),
    pinned=st.booleans(),
    group=st.sampled_from(["", "", "g"]),
)


@settings(deadline=None, max_examples=100)
@given(st.text("abc 茶水", max_size=8), st.lists(FRAGMENT, max_size=8))
def test_what_stays_was_there_and_groups_are_whole(query: str, fragments: list[Fragment]) -> None:
    found = filter_fragments(query, fragments)
    before = "".join("".join(each.text.split()) for each in fragments)
    assert all("".join(each.text.split()) in before for each in found if "\n" not in each.text)
    assert [each for each in found if each.pinned] == [each for each in fragments if each.pinned]
    whole = [each for each in fragments if each.group and not each.pinned]
    assert sum(each.group != "" and not each.pinned for each in found) in (0, len(whole))
