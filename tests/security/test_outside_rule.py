"""The rule of the threat model that what comes from outside never raises what it may do: each place of it is tried."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEADING = "## One rule: what comes from outside can never raise what it may do"


def read_places() -> dict[str, str]:
    """Place → the test that tries it, as the page has them."""
    page = (ROOT / "flowengine/docs/security.md").read_text("utf-8")
    part = page.partition(HEADING)[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if line.startswith("| ")
    ]
    return {row[0]: row[-1].strip("`") for row in rows[1:]}


def test_each_place_of_the_rule_has_a_test_of_its_own_that_is_run() -> None:
    places = read_places()
    assert len(places) >= 12
    assert len(set(places.values())) == len(places)
    for place, tried in places.items():
        file, _, name = tried.partition("::")
        tree = ast.parse((ROOT / file).read_text("utf-8"))
        found = [
            each for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name == name
        ]
        assert len(found) == 1, place
        marks = [ast.unparse(each) for each in found[0].decorator_list]
        assert not [each for each in marks if re.search(r"skip|xfail|\.long", each)], place
