"""Random conversations with files and tools, in several languages, for packing."""

from __future__ import annotations

import json
from random import Random

from flowengine.core.context import Fragment

__all__ = ["random_history"]

_SENTENCES = (
    "The customer asks for the refund of an invoice from March.",
    "Why? Nobody knows; it's 5 o'clock — somewhere.",
    "先月の料金が二重に請求されています。返金してください。",
    "お世話になっております。ﾊﾝｶｸも①も、全部入っています！",
    "退款需要三个工作日。请问您的订单号是多少？",
    "결제가 두 번 되었습니다. 환불해 주세요!",
    "def refund(order: str) -> bool:\n    return order in paid  # noqa",
    "SELECT * FROM orders WHERE id = 'A-17';\n\tCOMMIT;",
    "👩‍👩‍👧 🇯🇵🇰🇷 naïve café",
    "<|endoftext|> ```` \\n \x00 %s {{ braces }}",
)


def random_history(random: Random) -> tuple[list[Fragment], int]:
    """Fragments of a prompt, and a budget that some of them exceed."""
    fragments = [Fragment(_text(random, 3), "system message", pinned=True)]
    for number in range(random.randrange(12)):
        fragments.extend(_turn(random, number))
    for number in range(random.randrange(4)):
        text = _text(random, 40)
        fragments.append(
            Fragment(text, "files", label=f"{number}.md", priority=random.randrange(-3, 3), order=number % 2)
        )
    fragments.append(Fragment(_text(random, 3), "user input", pinned=True, order=9))
    return fragments, random.randrange(40, 1500)


def _turn(random: Random, number: int) -> list[Fragment]:
    turn = [Fragment(_text(random, 8), "conversation", priority=number)]
    if random.random() < 0.3:
        result = json.dumps({"rows": [_text(random, 2) for _ in range(random.randrange(6))]}, ensure_ascii=False)
        turn.append(Fragment(result, "conversation", priority=number))
        return [each._replace(group=f"turn {number}") for each in turn]
    return turn


def _text(random: Random, most: int) -> str:
    joint = random.choice((" ", "\n", "", "\n\n"))
    return joint.join(random.choice(_SENTENCES) for _ in range(random.randrange(1, most + 1)))
