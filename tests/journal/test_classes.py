"""Values of users' own classes, for those who go on with a run and for those who only look at one."""

from __future__ import annotations

import sys
from enum import Enum
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

from flowengine.core.context import NodeResult
from flowengine.engine.events import NodeFinished
from flowengine.errors import JournalError, NotJournalableError
from flowengine.journal.codec import decode_value, encode, encode_value
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


def test_a_class_of_a_projects_module_is_called_as_the_project_calls_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Projects are imported under a name of their own, which nobody has written."""

    class Local:
        pass

    module = ModuleType("_flowengine_0123456789ab.left")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for kind in (Local, Point, Decision):
        monkeypatch.setattr(kind, "__module__", module.__name__)
    monkeypatch.setattr(module, "Decision", Decision, raising=False)
    with pytest.raises(NotJournalableError, match=r"is of type left\.test_.*Local"):
        encode_value(Local())
    with pytest.raises(NotJournalableError, match=r"output is of class left\.Point, which"):
        encode(NodeFinished("n", 1.0, NodeResult(Point(1, 2))))
    text = encode_value(Decision(is_yes=True))
    assert "_flowengine_0123456789ab.left:Decision" in text  # What is written stays as it is.
    monkeypatch.setattr(module, "Decision", Point)
    monkeypatch.setattr(module, "Point", Point, raising=False)
    with pytest.raises(JournalError, match="'left:Decision' was recorded, but 'left:Decision' is not a class of that"):
        decode_value(text)
    with pytest.raises(JournalError, match="'left:Point' was recorded with 1 fields and has 2 now"):
        decode_value('[1,{"$named":["_flowengine_0123456789ab.left:Point",[1]]}]')


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
