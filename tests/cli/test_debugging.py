"""--debug: who holds the event loop is named on stderr."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Command

BUSY = """
        flowengine: v1
        name: hog
        nodes:
          hog: {type: function, call: "steps:hog", with: {seconds: 0.7}}
        """


def test_code_that_holds_the_loop_is_named_where_it_was_asked_for(flowengine: Command, folder: Path) -> None:
    (folder / "hog.yaml").write_text(BUSY)
    asked = flowengine("run", "hog.yaml", "--debug", "--store", "asked.db")
    assert asked.code == 0, asked.err
    told = [line for line in asked.err.splitlines() if "steps.py:36 hog" in line]
    assert any("the event loop was held for 0." in line for line in told), asked.err
    assert "the event loop" not in flowengine("run", "hog.yaml", "--store", "other.db").err
