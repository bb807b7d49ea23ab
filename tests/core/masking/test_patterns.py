"""What the built-in patterns find, and what they leave alone."""

from __future__ import annotations

import time

import pytest

from flowengine.core.masking.folded_text import fold
from flowengine.core.masking.masker import Masker
from tests.bench.masking import lines, score
from tests.support.pace import slowness

MASKER = Masker(key=b"tests")


def found(text: str) -> list[tuple[str, str]]:
    return [(each.kind, text[each.start : each.end]) for each in MASKER.spans(text)]


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("連絡先はada@example.jpです", "MAIL", "ada@example.jp"),
        ("邮箱ada@example.cn谢谢", "MAIL", "ada@example.cn"),
        ("ｔａｒｏ＠ｅｘａｍｐｌｅ．ｊｐへ", "MAIL", "ｔａｒｏ＠ｅｘａｍｐｌｅ．ｊｐ"),
        ("電話090-1234-5678まで", "PHONE", "090-1234-5678"),
        ("電話０９０ー１２３４ー５６７８まで", "PHONE", "０９０ー１２３４ー５６７８"),
        ("手机13812345678。", "PHONE", "13812345678"),
        ("on +442079460958.", "PHONE", "+442079460958"),
        ("call (415) 555-0132", "PHONE", "(415) 555-0132"),
        ('{"phone": "4155550132"}', "PHONE", "4155550132"),
        ("カード4111 1111 1111 1111 12/29", "CARD", "4111 1111 1111 1111"),
        ("12 4111111111111111", "CARD", "4111111111111111"),
        ("接続元203.0.113.9から", "IP", "203.0.113.9"),
        ("地址2001:db8::1234不可达", "IP", "2001:db8::1234"),
        ("db://root:hunter2@host/x", "KEY", "hunter2"),
        ("密码：Abc12345", "KEY", "Abc12345"),
        ("key fe_3f9a12c4_wbXkQ9tLm2ZpR7vN4sY8cA", "KEY", "fe_3f9a12c4_wbXkQ9tLm2ZpR7vN4sY8cA"),
        ("https://x.example/answer/eyJ3aG8.Zk3tQ9bL2mXv7pRd", "KEY", "eyJ3aG8.Zk3tQ9bL2mXv7pRd"),
        ("Set-Cookie: sid=a81fK20xYq; Path=/", "KEY", "sid=a81fK20xYq"),
    ],
)
def test_a_value_is_found_whatever_letters_touch_it(text: str, kind: str, value: str) -> None:
    assert found(text) == [(kind, value)]


@pytest.mark.parametrize(
    "text",
    [
        "4111 1111 1111 1112",
        "5555-5555-5555-5555-5555",
        "version 1.2.3.4",
        "バージョンは1.2.3.4です",
        "10.0.19045.3570.1",
        "12:34:56",
        "x[1::2] and a::b",
        "ab::cd and fe::ed",
        "00:1A:2B:3C:4D:5E",
        "node@18.11.9",
        "2024-11-02-2024-12-02",
        "risk-averse-department-of-finance",
        "sk-learn-compatible-estimators-of-all-kinds",
        "the secret: practise",
        "+1,234,567",
    ],
)
def test_what_only_looks_like_a_value_stays(text: str) -> None:
    assert found(text) == []


@pytest.mark.parametrize(
    ("upper", "small", "digits", "slashes", "is_key"),
    [
        (20, 14, 2, 4, True),
        (20, 13, 2, 5, False),
        (20, 19, 1, 0, False),
        (5, 31, 4, 0, True),
        (4, 32, 4, 0, False),
        (31, 5, 4, 0, True),
        (32, 4, 4, 0, False),
    ],
)
def test_forty_letters_at_random_are_a_key(upper: int, small: int, digits: int, slashes: int, is_key: bool) -> None:
    text = "A" * upper + "b" * small + "7" * digits + "/" * slashes
    assert found(f"it is {text[::-1]}, he said") == ([("KEY", text[::-1])] if is_key else [])


def test_folding_moves_no_character() -> None:
    text = "ＡＢｃ　１２ー３４ー—x サーバー"
    assert len(fold(text)) == len(text)
    assert fold(text) == "ABc 12-34ー-x サーバー"


def test_a_private_key_without_its_end_is_masked_as_far_as_its_lines_go() -> None:
    text = "-----BEGIN PRIVATE KEY-----\nQUJD\nREVG\n"
    assert [each.kind for each in MASKER.spans(f"{text}これは鍵です")] == ["PRIVATE_KEY"]
    assert MASKER.mask(f"{text}これは鍵です").endswith(">これは鍵です")


def test_the_lines_are_masked_as_well_as_promised() -> None:
    measured = score(MASKER, lines())
    assert len(lines()) >= 300
    assert measured.recall >= 0.98, measured.missed
    assert measured.precision >= 0.95, measured.false


@pytest.mark.parametrize(
    "text",
    [
        *("a" * 200_000, "1" * 200_000, "a@" * 100_000, "1 " * 100_000, ":" * 100_000, "a." * 100_000, "+1" * 100_000),
        *("eyJ" * 60_000, "password: " * 20_000, "://a:" * 40_000, "0" * 100_000 + "-", "0-" * 100_000, "(0" * 100_000),
        *("-----BEGIN PRIVATE KEY-----" * 3_000, "-----BEGIN PRIVATE KEY-----" + "-- " * 60_000, "sk-" * 60_000),
        *("\\" * 200_000, ("0086" + "1" * 80 + " ") * 2_000),
    ],
    ids=lambda text: text[:12],
)
def test_no_text_makes_masking_slow(text: str) -> None:
    begun = time.process_time()
    MASKER.mask(text)
    assert time.process_time() - begun < 5 * slowness()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("パスワードは「Abc12345」です", "Abc12345"),
        ("密码是Abc12345", "Abc12345"),
        ("the password is Abc12345.", "Abc12345."),
        ('"secret_key" : "abcdef1234567890"', "abcdef1234567890"),
    ],
)
def test_a_secret_is_found_by_the_word_before_it(text: str, value: str) -> None:
    assert found(text) == [("KEY", value)]


@pytest.mark.parametrize(
    "text", ["the password is required", "パスワードは必須です", "密码是必填项", "token is a noun"]
)
def test_a_word_that_could_name_a_secret_names_none(text: str) -> None:
    assert found(text) == []
