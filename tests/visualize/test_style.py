"""Statuses are told apart without colours, and by people who see colours otherwise."""

from __future__ import annotations

from itertools import combinations

import pytest

from visualize.picture import PictureNode
from visualize.style import LOOKS, PLAIN, Look, cut, lines_of


def grey(colour: str) -> float:
    """How light a colour is in greyscale, 0–255 (ITU-R BT.601)."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue


def test_every_status_has_a_glyph_and_a_border_of_its_own():
    glyphs = [look.glyph for look in LOOKS.values()]
    assert len(set(glyphs)) == len(glyphs)
    for one, two in combinations(LOOKS.values(), 2):
        assert (one.dash, one.width) != (two.dash, two.width) or one.glyph != two.glyph
    borders = {(look.dash, look.width) for look in LOOKS.values()}
    assert len(borders) >= len(LOOKS) - 1


@pytest.mark.parametrize("look", [PLAIN, *LOOKS.values()], ids=["plain", *LOOKS])
def test_words_can_be_read_on_every_fill_in_greyscale(look: Look):
    assert grey(look.fill) - grey("#1f2a33") > 120
    assert grey("#e8edf0") - grey(look.night[1]) > 120
    assert abs(grey(look.fill) - grey(look.border)) > 40
    assert abs(grey(look.night[1]) - grey(look.night[0])) > 40


def test_a_long_name_is_one_line_and_a_long_error_a_few():
    lines = lines_of(PictureNode("x" * 10_000 + "\n", "agent", "failed", error="\x00" * 9 + "日本\n" * 5000))
    assert all(len(line) <= 60 and line.isprintable() for line in lines)
    assert len(lines) <= 9
    assert cut("", 5) == ""


def test_an_error_is_whole_where_it_fits_in_a_few_lines():
    error = "tool 'find_order' failed: LookupError: there is no order 4711 in the archive of last year"
    assert " ".join(lines_of(PictureNode("a", "tool", "failed", error=error))[3:]) == error
