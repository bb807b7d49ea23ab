"""The page of the threat model names tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "flowengine" / "docs" / "security.md").read_text("utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)


def test_each_test_that_the_page_names_is_there() -> None:
    assert len(NAMED) > 40
    for file, test in NAMED:
        text = (ROOT / file).read_text("utf-8")
        assert not test or re.search(rf"^(async )?def {test}\(", text, re.MULTILINE), f"{file}::{test}"


def test_each_file_of_attempts_is_on_the_page() -> None:
    files = {f"tests/security/{each.name}" for each in Path(__file__).parent.glob("test_*.py")}
    assert files - {file for file, _ in NAMED} == {"tests/security/test_page.py"}


def test_the_page_is_found_from_the_first_ones() -> None:
    for name in ("README.md", "SECURITY.md"):
        assert "flowengine/docs/security.md" in (ROOT / name).read_text("utf-8")
