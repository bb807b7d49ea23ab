"""Tools of the flow `tool_agent.yaml`: orders of an invented shop, and what its rules give back."""

from __future__ import annotations

from typing import Final, Literal, TypedDict

from flowengine.tools.function import tool


class Order(TypedDict):
    """What the shop knows of one order."""

    number: str
    article: str
    euros: float
    days_since_delivery: int


ORDERS: Final = {
    "A-17": Order(number="A-17", article="teapot", euros=30.0, days_since_delivery=5),
    "B-4": Order(number="B-4", article="kettle", euros=80.0, days_since_delivery=40),
}


def find_order(number: str) -> Order:
    """Look up an order.

    Args:
        number: As it stands on the invoice: a letter, a hyphen, digits.
    """
    if number not in ORDERS:
        raise LookupError(f"no order {number!r}; the numbers look like A-17")
    return ORDERS[number]


@tool(timeout=5)
def refund_for(euros: float, days_since_delivery: int, reason: Literal["broken", "unwanted"]) -> float:
    """Work out how many euros the shop gives back: all for broken goods, half for unwanted ones, up to 30 days.

    Args:
        euros: What the article has cost.
        days_since_delivery: Whole days.
        reason: Why it comes back.
    """
    if days_since_delivery > 30:
        return 0.0
    return round(euros if reason == "broken" else euros / 2, 2)
