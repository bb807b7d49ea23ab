"""Which lines of a flow file define a node."""

from __future__ import annotations

from visualize.definition_lines import find_definition

COMMENTED = """name: shop
nodes:
  look:
    prompt: |
      # Look it up
# not yet sure
    model: offline

  # sells it
  act:
    call: steps:act
# the end
outputs: {}
"""


def test_comments_end_no_definition_and_those_behind_it_are_not_in_it():
    assert find_definition(COMMENTED, ["look"]) == (3, COMMENTED.split("\n")[2:7])
    assert find_definition(COMMENTED, ["act"]) == (10, ["  act:", "    call: steps:act"])


def test_lines_are_counted_as_yaml_and_the_page_of_the_flow_count_them():
    source = 'name: shop\nnodes:\n  look:\n    prompt: "a\u2028b\x0cc\x85d"\n  act:\n    call: steps:act\n'
    assert find_definition(source, ["act"]) == (5, ["  act:", "    call: steps:act"])
    assert find_definition(source.replace("\n", "\r\n"), ["act"]) == (5, ["  act:", "    call: steps:act"])
