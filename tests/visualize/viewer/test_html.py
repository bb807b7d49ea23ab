"""HTML from calls: text is escaped wherever it stands."""

from __future__ import annotations

import json
from html.parser import HTMLParser

from hypothesis import given, settings
from hypothesis import strategies as st

from visualize.viewer.html import Markup, data_block, element, join, whole


class Read(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, list[tuple[str, str | None]]]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, attrs))

    def handle_data(self, data: str) -> None:
        self.text += data


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0"), max_size=30)


@settings(deadline=None, max_examples=100)
@given(texts, texts)
def test_whatever_text_is_in_it_an_element_is_one_element(child: str, attribute: str):
    read = Read(element("p", child, title=attribute))
    assert read.tags == [("p", [("title", attribute)])]
    assert read.text == child


def test_markup_stays_as_it_is_and_nothing_else_does():
    inner = element("b", "<i>")
    assert element("p", inner, ["<", [None, 3, 0.5]], Markup("<hr>")) == "<p><b>&lt;i&gt;</b>&lt;30.5<hr></p>"
    assert join(str(inner)) != inner


def test_attributes_that_are_not_there_are_left_out():
    assert (
        element("input", hidden=True, disabled=False, value=None, max=0, data_x="y")
        == '<input hidden max="0" data-x="y">'
    )


@settings(deadline=None, max_examples=60)
@given(st.text(max_size=30) | st.floats())
def test_a_block_of_data_cannot_be_closed_from_inside(value: str | float):
    block = data_block("x", [value, "</script><script>alert(1)</script><!--"])
    assert block.count("<") == 2
    json.loads(whole(block).split(">", 1)[1].rsplit("<", 1)[0])


def test_halves_of_surrogate_pairs_are_replaced():
    assert whole("a\ud83d b \ud83d\ude00") == "a\ufffd b 😀"
