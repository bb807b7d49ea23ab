"""The oracle's rule of the nearest routing: one that failed is not answered for by an earlier one."""

from __future__ import annotations

from tests.properties.test_oracle import became, meaning

FLOW = """
flowengine: v1
name: t
outputs: {done: "yes"}
nodes:
  one: {type: routing, instruction: Choose., target: a, routes: {"<a>": {}}}
  two: {type: routing, instruction: Choose., target: b, routes: {%s: {}}, on_error: skip, needs: [one]}
  ship:
    {type: function, call: "m:give", with: {x: 1}, when: routing_result.next_route == "<%s>", needs: [one, two],
     join: always, on_error: skip}
"""


def test_a_router_that_failed_is_not_answered_for_by_an_earlier_one():
    found = became(meaning(FLOW % ("c", "a")))
    assert (found["two"], found["ship"]) == ("error", "error")


def test_the_nearest_router_that_chose_counts():
    assert became(meaning(FLOW % ('"<b>"', "b")))["ship"] == "1"
