"""Each pattern by its examples, and by what is one step away from them."""

from __future__ import annotations

from hashlib import sha256

import pytest

from flowengine.core.masking.masker import MaskedStream, Masker

MASKER = Masker(key=b"tests")


def found(text: str) -> list[tuple[str, str]]:
    return [(each.kind, text[each.start : each.end]) for each in MASKER.spans(text)]


def letters(count: int, alphabet: str = "Ab0Cd1Ef2Gh3Ij4Kl5Mn6Op7Qr8St9Uv") -> str:
    """So many letters that look random; made here, so that nothing in this file looks like a real secret."""
    return "".join(alphabet[each % len(alphabet)] for each in sha256(b"x").digest() * 20)[:count]


def card(start: str, length: int) -> str:
    """A number of a brand with its check digit, found by trying (not by what is tested)."""
    body = (start + "0123456789012345678")[: length - 1]
    doubled = "0246813579"
    total = sum(int(doubled[int(each)] if at % 2 == 0 else each) for at, each in enumerate(reversed(body)))
    return f"{body}{-total % 10}"


HEX, UPPER = "0123456789abcdef", "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
A16, A20, A30, A34, A36, A40 = (letters(count) for count in (16, 20, 30, 34, 36, 40))

VALUES = {
    "MAIL": [
        *("ada@example.jp", "a.b+c@sub.example.co.uk", "j.o'neil@example.com", "x_y%z@a-b.example", "_a@b.co"),
        *("müller@münchen.de", "a@b.museum", "a@xn--mnchen-3ya.de", "a@example.xn--p1ai", "почта@пример.рф"),
        *("αβγ@παράδειγμα.ελ", "ada@пример.рф", '"john doe"@example.com', '"a.b"@example.com', "1@2.io"),
        *(
            "ada%40example.jp",
            "ada&#64;example.jp",
            "ada&#x40;example.jp",
            "ada\\u0040example.jp",
            "ada\\x40example.jp",
        ),
        *("ada@ex\u200bample.jp", "a\u00adda@example.jp", "ada\u2060@example.jp", "ａｄａ＠example．jp"),
        "a" * 128 + "@example.jp",
        "a@" + "b" * 64 + ".jp",
        "a@" + "b." * 8 + "jp",
        "a@b." + "c" * 24,
        "ed-git@example.com",
        *("0@0.io", "a0@b0.c0.jp", "A@B.JP", "a@" + "b" * 63 + ".jp", "a@x.xn--0a", "Z9@Z9.CO", "a@b.AB", '"a"@b.co'),
        f'"{"a" * 64}"@example.com',
        "gitte@example.com",
    ],
    "PHONE": [
        *(
            "+14155550132",
            "+1 415 555 0132",
            "+44 (20) 7946 0958",
            "+81-3-1234-5678",
            "(+49) 30 901820",
            "008613812345678",
        ),
        *(
            "03-1234-5678",
            "(03)1234-5678",
            "03(1234)5678",
            "(03) 1234-5678",
            "0120-444-444",
            "0120444444",
            "09012345678",
        ),
        *(
            "090-1234-5678",
            "090 1234 5678",
            "090.1234.5678",
            "0800-123-4567",
            "0570-012-345",
            "0312345678",
            "06-6123-4567",
        ),
        *("13812345678", "138-1234-5678", "138 1234 5678", "86-13812345678", "86 138-1234-5678", "010-12345678"),
        *("(021)55551234", "0571-87654321", "400-800-1234", "800-8001-234", "(0571) 8765-4321"),
        *("(415) 555-0132", "(415)555-0132", "415-555-0198", "415.555.0143", "1-800-555-0199", "1 415 555 0132"),
        *("٠٩٠-١٢٣٤-٥٦٧٨", "۰۹۰-۱۲۳۴-۵۶۷۸", "०९०-१२३४-५६७८", "090\u200b-1234-5678", "0\u00ad90-1234-5678"),
        *(
            "080-0000-0000",
            "(03)1000-0000",
            "03(1000)0000",
            "0120-000-000",
            "010-10000000",
            "138-0000-0000",
            "(020)10000000",
        ),
        *(
            "(200) 200-0000",
            "1-200-200-0000",
            "+10000000",
            "+20 (0) 000 000 00",
            "03-1034-5678",
            "(0123)45-6789",
            "(01234)5-6789",
            "01234(5)6789",
            "03(1234)5678",
            "0123(45)6789",
            "(049)123-4567",
            "(012)345-6789",
            "0312340000",
        ),
        *("400-100-1234", "800-012-3456", "400-000-0000", "800-0000-000", "+1234567 8", "+123456789012345"),
    ],
    "CARD": [
        *(card(start, 16) for start in ("2300", "2400", "2600", "2700", "2710", "2229")),
        *(card(start, 19) for start in ("3528", "6011", "6200", "4")),
        *(card(start, length) for start in ("3580", "6500", "2200") for length in (16, 17, 18, 19)),
        *(each.join(card("4", 19)) for each in (" ", ", ", "-")),
        *(each.join(card("4", 13)) for each in (" ", ",", ".")),
        *(
            "4111111111111111",
            "4222222222222",
            "5555555555554444",
            "2223003122003222",
            "378282246310005",
            "30569309025904",
        ),
        *(
            "6011111111111117",
            "3530111333300000",
            "6200000000000005",
            card("2200", 16),
            card("2204", 16),
            *(card(start, 16) for start in ("2221", "2720", "51", "55", "3528", "3589", "644", "649", "65", "62")),
            "4000000000000000006",
        ),
        *("4111 1111 1111 1111", "4111-1111-1111-1111", "4111.1111.1111.1111", "4111,1111,1111,1111"),
        *("4111, 1111, 1111, 1111", "3782 822463 10005", "3782-822463-10005", "3782.822463.10005", "3056 930902 5904"),
        *("4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1", "4, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1"),
        *("4,2,2,2,2,2,2,2,2,2,2,2,2", "4111 1111 1111 1111 110", "٤١١١١١١١١١١١١١١١", "4111\u200b111111111111"),
        *("4111 1111\n1111 1111", "4111-1111-1111-\r\n  1111", "4111\n1111 1111 1111"),
        *("6440000000000005", "6500000000000002", *(card(start, 14) for start in ("300", "305", "36", "38", "39"))),
    ],
    "IBAN": [
        *("DE89370400440532013000", "DE89 3704 0044 0532 0130 00", "GB29-NWBK-6016-1331-9268-19", "NO9386011117947"),
        "MT84MALT011000012345MTLCAST001S",
    ],
    "IP": [
        *("100.100.100.100", "200.200.200.200", "209.240.250.99", "10.20.30.40"),
        *("203.0.113.42", "10.0.0.12", "255.255.255.255", "249.199.99.9", "1.1.1.1", "126.0.0.1", "128.0.0.1"),
        *("0.0.0.1", "2001:db8::1234", "fe80::1ff:fe23:4567:890a", "2001:0db8:0000:0000:0000:ff00:0042:8329"),
        *("٢٠٣.٠.١١٣.٩", "203.0.\u200b113.42"),
    ],
    "KEY": [
        *(f"sk-{A20}", f"gsk-{A20}", f"xai-{A20}", f"rk-{A20}", f"pk-{A20}", f"sk-proj-{A40}_{A20}"),
        *(f"{kind}_{mode}_{letters(10)}" for kind in ("sk", "pk", "rk") for mode in ("live", "test")),
        *(f"whsec_{A16}", f"gsk_{A30}", f"hf_{A30}", f"npm_{A30}", f"r8_{A30}", f"AKIA{letters(16, UPPER)}"),
        *(f"ASIA{letters(16, UPPER)}", f"LTAI{letters(12)}", *(f"gh{kind}_{A30}" for kind in "opusr")),
        *(f"github_pat_{A40}", f"glpat-{A20}", *(f"xox{kind}-{letters(10)}" for kind in "abeoprs"), f"xapp-{A20}"),
        *(f"AIza{letters(35)}", f"ya29.{A20}", f"SG.{A16}.{A16}", f"pypi-{letters(50)}", f"dop_v1_{letters(64, HEX)}"),
        *(f"shp{kind}_{letters(32, HEX)}" for kind in ("at", "ca", "pa", "ss")),
        *(f"12345678:AA{letters(33)}", f"1234567890:AA{letters(33)}"),
    ],
    "JWT": [f"eyJ{letters(8)}.{letters(8)}.{A20}", f"eyJ{letters(8)}.{letters(8)}."],
}
"""Kind → values that are found whole, at whatever borders."""

NAMED = [
    *(f"{word}: ⟦Abc12345⟧" for word in ("password", "passwd", "passphrase", "pwd", "Pass", "PASSWORD", "パスワード")),
    *(f"{word}：⟦Abc12345⟧" for word in ("暗証番号", "密码", "密碼", "口令")),
    *(f"{word}=⟦{A16}⟧" for word in ("api_key", "api-key", "apikey", "API keys", "secret", "secret_key", "access-key")),
    *(f"{word} = ⟦{A16}⟧" for word in ("account_key", "client_secret", "auth_token", "access-token", "refresh token")),
    *(f"{word}は「⟦{A16}⟧」" for word in ("トークン", "bearer token", "secret access key", "client secret")),
    *(f"{word}为⟦{A16}⟧" for word in ("密钥", "秘钥", "令牌")),
    *(f'"token" : "⟦{A16}⟧"', f"token is ⟦{A16}⟧", "password is ⟦abc123⟧", "密码是⟦abc123⟧", f"token為⟦{A16}⟧"),
    *(f"Bearer ⟦{A16}⟧", f"basic ⟦{A16}==⟧", f"BEARER   ⟦{A16}⟧", "pwd: ⟦a1!#$%&*+./@^_~=-⟧"),
    *("A/⟦203.0.113.42⟧", "Abcdefghijk/⟦203.0.113.42⟧", "tcp/⟦203.0.113.42⟧", "a -⟦203.0.113.42⟧"),
    *(f"://{'u' * 64}:⟦hunter2⟧@host", f"bearer ⟦{A16}0.~+/-9Z==⟧"),
    *("7,⟦4111111111111111⟧,12/29", "7,⟦4111 1111 1111 1111⟧,12", "12.50 ⟦4111111111111111⟧"),
    *("a: ⟦+1 2 3 4 5 6 789⟧", "tel: ⟦1234567⟧", "phone: ⟦123456789012345⟧"),
    *("password   :   ⟦Abc12345⟧", f"token: ⟦{letters(12)}⟧", f"token: ⟦{'ABCDEF' * 2}123⟧"),
    *("db://root:⟦hunter2⟧@host/x", "redis://:⟦pw1⟧@host", "redis://:⟦pw-word⟧@host:6379/0", "amqp://u:⟦pw1⟧@h"),
    f"https://hooks.slack.com/services/⟦T0/B0/{A16}⟧",
    f"https://hooks.slack.com/workflows/⟦T0/{A20}⟧",
    f"https://hooks.slack.com/triggers/⟦T0/{A20}⟧",
    f"https://discord.com/api/webhooks/⟦123/{A20}⟧",
    f"https://discordapp.com/api/webhooks/⟦123/{A20}⟧",
    f"it is ⟦{A40}⟧, he said",
    *(
        f"{word}⟦4155550132⟧"
        for word in ("phone: ", "Phone number is ", "mobile ", "Cell: ", "tel:", "TEL ", "Fax no. ")
    ),
    *(
        f"{word}⟦4155550132⟧"
        for word in ("WhatsApp: ", "電話番号は", "电话是", "电话号码：", "手机", "携帯", "座机 ", "FAX ")
    ),
]
"""Texts with the value that is found because of what stands round it."""

NOTHING = [
    # Mail addresses
    *("user@localhost", "ada@example", "@example.jp", "ada@.jp", "ada@example.j", "ada@-a.jp", "a@b." + "c" * 25),
    *("git@github.com", "git@github.com:acme/app.git", "hg@example.org", "svn@example.org", "ada@@example.jp"),
    *(
        "a@example.-xn",
        f'"{"a" * 65}"@example.com',
        "node@18.11.9",
        "ada%41example.jp",
        '""@example.com',
        '"a\nb"@example.com',
        "a@" + "b" * 65 + ".jp",
    ),
    # Phone numbers
    *("+1234567", "+1234567890123456", "x+442079460958", "++442079460958", "1+442079460958", "+044207946"),
    *("03-1234-567", "03-1234 5678", "09012345", "090123456789", "100-1234-5678", "a03-1234-5678", "03-1234-5678a"),
    *("03-1234-5678-9", "1-03-1234-5678", "12812345678", "1381234567", "138123456789", "138-12345678", "a13812345678"),
    *("010-123456", "000-12345678", "400-80-1234", "500-800-12345", "415-155-0132", "115-555-0132"),
    *(
        "415-555-013",
        "415-555-01322",
        "2-415-555-0132",
        "2024-113-0042",
        "phone 123456",
        "phone 1234567890123456",
        "phony 41555501",
    ),
    *("phone:   4155550132", "(01234) 2345-6789", "(021) 23456-6789"),
    # Cards
    *("4111111111111112", "411111111111111", "1111111111111117", "4111 1111 1111 1112", "4111 1111-1111 1111"),
    *(
        "14111111111111111",
        "4111111111111111a",
        "4111111111111111A",
        "A4111111111111111",
        "a4111111111111111",
        "4111111111111111-1",
        "1-4111111111111111",
        "1.4111111111111111",
    ),
    *(
        "4111.1111.1111.1112",
        "4111, 1111,1111, 1111",
        "4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 2",
        "4 1 1 1 1 1 1 1 1 1 1",
        "6000000000000007",
    ),
    *(
        "4222 222222 222",
        card("4", 16)[:4] + " " + card("4", 16)[4:10] + " " + card("4", 16)[10:],
        "4111  1111  1111  1111",
        "4111 1111\n1111\n1111",
        "4111 1111\n1111 1112",
    ),
    *("5655555555554444", "5055555555554447", "2220003122003225", "2721003122003221"),
    *(
        card(start, 16)
        for start in ("2220", "2721", "50", "56", "3527", "3590", "643", "2205", "6012", "61", "70", "12")
    ),
    *(card(start, 14) for start in ("306", "35", "37")),
    *(card("4", length) for length in (12, 14, 15, 17, 18)),
    # Bank accounts
    *("DE88370400440532013000", "DE89 37040044 0532 0130 00", "xDE89370400440532013000", "DE8937040044053201300"),
    # IP addresses
    *("256.0.0.1", "1.2.3", "1.2.3.4.5", "203.0.113.042", "a203.0.113.4", "203.0.113.4a", "203.0.113.260"),
    *(
        "127.0.0.1",
        "127.8.9.10",
        "0.0.0.0",
        "version 1.2.3.4",
        "Version: 1.2.3.4",
        "ver. 1.2.3.4",
        "v. 1.2.3.4",
        "v1.2.3.4",
    ),
    *("build=1.2.3.4", "release 1.2.3.4", "rev 1.2.3.4", "revision 1.2.3.4", "firmware 1.2.3.4", "tag 1.2.3.4"),
    *(
        "flowlib==1.2.3.4",
        "flowlib>=1.2.3.4",
        "flowlib~= 1.2.3.4",
        "flowlib-1.2.3.4",
        "Chrome/120.0.0.0",
        "OpenSSL/1.2.3.4",
        "1.2.3.4-beta",
    ),
    *(
        "バージョン1.2.3.4",
        "版本1.2.3.4",
        "版本号：1.2.3.4",
        "バージョンは1.2.3.4",
        "::1",
        "::",
        "1::2",
        "12:34:56",
        "a::b",
    ),
    *("00:1A:2B:3C:4D:5E", "2001:db8::12345", "2001:db8::g", "2001:db8:::1", "x2001:db8::1234", "2001:db8::1234:"),
    # Keys
    *(
        "password   : a1",
        f"token: {letters(11)}",
        f"bearer    {A16}",
        "password    : Abc12345",
        "password:    Abc12345",
        "password: Ab123",
        "://u:ab@host",
    ),
    *(f"tokens {A16}", f"client {A16}", f"://{'u' * 65}:hunter2@host", f"gho-{A30}", f"SG-{A16}.{A16}"),
    *(
        f"sk-{letters(19)}",
        f"xsk-{A20}",
        f"sk-{'abcd-' * 5}",
        f"sk_live_{letters(9)}",
        f"sk_prod_{A20}",
        f"hf_{letters(29)}",
    ),
    *(
        f"whsec_{letters(15)}",
        f"AKIA{letters(15, UPPER)}",
        f"akia{letters(16, UPPER)}",
        f"LTAI{letters(11)}",
        f"ghx_{A30}",
    ),
    *(f"ghp_{letters(29)}", f"github_pat_{letters(39)}", f"glpat-{letters(19)}", f"xoxz-{A20}", f"xoxb-{letters(9)}"),
    *(f"xapp-{letters(19)}", f"AIza{letters(34)}", f"ya29-{A20}", f"ya29.{letters(19)}", f"SG.{letters(15)}.{A16}"),
    *(f"SG.{A16}.{letters(15)}", f"pypi-{letters(49)}", f"dop_v1_{letters(63, HEX)}", f"shpat_{letters(31, HEX)}"),
    *(
        f"shpxx_{letters(32, HEX)}",
        f"1234567:AA{letters(33)}",
        f"12345678:AB{letters(33)}",
        f"12345678:AA{letters(32)}",
    ),
    *(
        f"bearer {letters(15)}",
        f"bearer{A16}",
        f"basic {'a' * 16}",
        "password: abc",
        "password: abcdef",
        "password abc123",
    ),
    *(
        f"token: {letters(11)}",
        f"token: {'a' * 16}",
        f"token: {'1' * 16}",
        "secret: practise",
        f"key: {A16}",
        "the secret is out",
    ),
    *("://a:b@host", "a:hunter2@host", "://root:hunter2", "https://example.com:8080/x@y"),
    *(
        f"https://hooks.slack.com/other/{A36}",
        "https://hooks.slack.com/services/T0/B0",
        f"https://example.com/services/{A36}",
    ),
    *(
        letters(39),
        letters(41),
        letters(40, HEX),
        "A" * 20 + "1" * 20,
        f"{'a' * 34}ABCD12",
        f"{'A' * 34}abcd12",
        f"x={A40}_",
    ),
    *(f"{'a' * 30}ABCDEFGHI1", "/".join(["Ab1Cd2"] * 6)[:40], f"{A40}=", f"-{A40}", f"{A40}.{A40}"[1:41] + "/"),
    # JSON web tokens
    *(
        f"eyJ{letters(7)}.{letters(8)}.x",
        f"eyJ{letters(8)}.{letters(7)}.x",
        f"eyK{letters(8)}.{letters(8)}.x",
        f"xeyJ{letters(8)}.{letters(8)}.x",
    ),
]
"""Texts in which nothing is found: one step away from a value, or of another kind."""

ROWS = [(kind, value) for kind, values in VALUES.items() for value in values]


@pytest.mark.parametrize(("kind", "value"), ROWS)
@pytest.mark.parametrize("around", ["{}", "( {} )", "値は{}です", "<{}>\n", "say {}, please"])
def test_a_value_is_found_whole(kind: str, value: str, around: str) -> None:
    if kind == "PHONE" and around == "値は{}です" and value[0] == "(":
        around = "{}"
    text = around.format(value)
    assert found(text) == [(kind, value)]


BORDERS = {
    "03-1234-5678": (["a", "Z", "0", "9", "0-", "9.", "0/"], ["a", "Z", "0", "9", "-0", "-9"]),
    "138-1234-5678": (["a", "Z", "0", "9", "0-", "9.", "0/"], ["a", "Z", "0", "9", "-0", "-9"]),
    "(200) 200-0000": (["a", "Z", "0", "9", "0-"], ["a", "Z", "0", "9", "-0"]),
    "+442079460958": (["a", "Z", "0", "9", "+"], ["0000", "9999"]),
    "4111111111111111": (["a", "Z", "0", "9", "0-", "0."], ["a", "Z", "0", "9", "-0"]),
    "4111 1111 1111 1111": (["0", "9", "0-", "0."], ["a", "Z", "0", "9", "-0"]),
    "4111-1111-1111-1111-110": (["0", "9", "0-"], ["a", "Z", "0", "-0"]),
    "3782 822463 10005": (["0", "9", "0-", "0."], ["a", "Z", "0", "9", "-0"]),
    "203.0.113.42": (["a", "Z", "0", "9", "0."], ["a", "Z", "0", "9", "-a", "-Z", ".0", ".9"]),
    "2001:db8::1234": (["g", "Z", "0", ":", "."], ["g", "Z", ":0", ":a", ":A", "::"]),
    "ada@example.jp": (["%", "+", "é"], ["0", "9"]),
    f"sk-{A20}": (["a", "Z", "0", "9"], []),
    f"ghp_{A30}": (["a", "Z", "0", "9"], []),
    A40: (["a", "Z", "0", "9", "+", "/", "=", "_", ".", "-"], ["a", "Z", "0", "9", "+", "/", "=", "_", "-"]),
    f"eyJ{letters(8)}.{letters(8)}.": (["a", "Z", "0", "9", "_", "-"], []),
}
"""Value → what may stand neither right before it nor right behind it."""


@pytest.mark.parametrize("value", BORDERS)
def test_a_value_ends_where_its_letters_end(value: str) -> None:
    before, after = BORDERS[value]
    assert value in [each for _, each in found(value)]
    for text in (*(f"{each}{value}" for each in before), *(f"{value}{each}" for each in after)):
        assert value not in [each for _, each in found(text)], text


@pytest.mark.parametrize("text", NAMED)
def test_a_value_is_found_by_what_stands_round_it(text: str) -> None:
    value = text[text.index("⟦") + 1 : text.index("⟧")]
    assert [each for _, each in found(text.replace("⟦", "").replace("⟧", ""))] == [value]


@pytest.mark.parametrize("text", NOTHING)
def test_what_is_one_step_away_stays(text: str) -> None:
    assert found(text) == []


@pytest.mark.parametrize("text", [*(value for _, value in ROWS), *NAMED, *NOTHING])
def test_a_text_in_pieces_is_masked_as_the_whole(text: str) -> None:
    whole = f"say {text}, and {text} again".replace("⟦", "").replace("⟧", "")
    stream = MaskedStream(MASKER)
    assert "".join([*map(stream.feed, whole), stream.close()]) == MASKER.mask(whole)


def test_one_address_has_one_token_however_it_is_written() -> None:
    forms = ("ada@example.jp", "ada%40example.jp", "ada&#64;example.jp", "a\u200bda@example.jp", "ａｄａ@example.jp")
    assert len({MASKER.mask(each) for each in forms}) == 1
