"""Values of users' own classes, for those who go on with a run and for those who only look at one."""

from __future__ import annotations

import sys
from enum import Enum
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

from flowengine.errors import JournalError
from flowengine.journal.codec import decode_value, encode_value
from flowengine.journal.value_types import is_only_looking, only_looking


class Colour(Enum):
    RED = 1


class Point(NamedTuple):
    x: int
    y: int


class Decision(BaseModel):
    is_yes: bool
    why: str = ""


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> str:
    """Values of the classes above, written by a process that had their module loaded."""
    module = ModuleType("left_behind")
    kinds: list[Any] = [Colour, Point, Decision]
    for kind in kinds:
        monkeypatch.setattr(kind, "__module__", "left_behind")
        setattr(module, kind.__qualname__, kind)
    monkeypatch.setitem(sys.modules, "left_behind", module)
    text = encode_value([Colour.RED, Point(1, 2), Decision(is_yes=True)])
    assert decode_value(text) == [Colour.RED, Point(1, 2), Decision(is_yes=True)]
    return text


def test_a_class_that_is_not_loaded_is_an_error_for_whoever_goes_on(written: str) -> None:
    del sys.modules["left_behind"]
    with pytest.raises(JournalError, match="import the module that defines 'left_behind:Colour'"):
        decode_value(written)


def test_who_only_looks_sees_what_the_values_held(written: str) -> None:
    del sys.modules["left_behind"]
    with only_looking():
        assert decode_value(written) == ["RED", [1, 2], {"is_yes": True, "why": ""}]
    assert not is_only_looking()
    with pytest.raises(JournalError):
        decode_value(written)


def test_who_only_looks_also_sees_values_of_a_class_that_has_changed(written: str) -> None:
    class Decision(BaseModel):
        is_no: bool

    sys.modules["left_behind"].Decision = Decision  # type: ignore[attr-defined]  # a module made above
    with only_looking():
        assert decode_value(written) == [Colour.RED, Point(1, 2), {"is_yes": True, "why": ""}]
    with pytest.raises(JournalError, match="the class has changed since"):
        decode_value(written)
