"""What was read from an environment, and whether it still holds."""

from __future__ import annotations

import pytest

from flowengine.agents.model_environment import TrackedEnviron


def test_only_what_was_read_counts() -> None:
    environ = {"A": "1", "B": "2"}
    readings = TrackedEnviron(environ)
    assert readings["A"] == "1"
    environ["B"] = "3"
    assert readings.still_hold()
    environ["A"] = "3"
    assert not readings.still_hold()


def test_a_name_that_was_missed_counts_too() -> None:
    environ = {"A": "1"}
    readings = TrackedEnviron(environ)
    with pytest.raises(KeyError):
        readings["B"]
    assert "C" not in readings
    assert readings.still_hold()
    environ["C"] = ""
    assert not readings.still_hold()


@pytest.mark.parametrize("look", [list, len, dict])
def test_what_came_of_all_names_never_holds(look: type) -> None:
    readings = TrackedEnviron({"A": "1"})
    assert look(readings) == look({"A": "1"})
    assert not readings.still_hold()


def test_no_value_is_shown() -> None:
    readings = TrackedEnviron({"KEY": "secret"})
    assert readings["KEY"] == "secret"
    assert repr(readings) == "<1 variables read>"
