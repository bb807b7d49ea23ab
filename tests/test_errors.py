"""Errors that go to other processes: as pickle has them, they are what they were."""

from __future__ import annotations

import copy
import pickle

import pytest

from flowengine import errors
from flowengine.engine.events import ErrorInfo
from flowengine.engine.scheduler import BodyError
from flowengine.errors import (
    Diagnostic,
    EffectPendingError,
    FlowEngineError,
    FlowError,
    LimitError,
    NodeError,
    ProjectError,
    StateConflictError,
    UndecidedCall,
)

MADE: dict[type[FlowEngineError], FlowEngineError] = {
    FlowError: FlowError([Diagnostic("FE203", "unknown", line=2), Diagnostic("FE101", "wrong")]),
    NodeError: NodeError("a", "failed"),
    StateConflictError: StateConflictError("key", ("a", "b")),
    EffectPendingError: EffectPendingError("r1", [UndecidedCall("mail", "send", {"to": "x"}, "mail")]),
    ProjectError: ProjectError("wrong", "FE801"),
    LimitError: LimitError("too much", part="a", limit="tokens", needed=3.0, ledger=lambda: None),
    BodyError: BodyError("a", ErrorInfo("ValueError", "no", node="a.b")),
    errors.MisplacedKeyError: errors.MisplacedKeyError("wrong", ("a", 1)),
}


def all_classes(kind: type[FlowEngineError] = FlowEngineError) -> list[type[FlowEngineError]]:
    """Those of the product; tests make others."""
    below = (each for each in kind.__subclasses__() if not each.__module__.startswith("tests."))
    return [kind, *(each for one in below for each in all_classes(one))]


@pytest.mark.parametrize("kind", all_classes(), ids=lambda each: each.__name__)
def test_an_error_is_the_same_in_another_process(kind: type[FlowEngineError]):
    error = MADE.get(kind) or kind.__new__(kind, "so it is")
    error.__cause__ = ValueError("why")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is kind
        assert str(again) == str(error)
        assert again.args == error.args
        before = {name: value for name, value in vars(error).items() if name != "ledger"}
        assert {name: value for name, value in vars(again).items() if name != "ledger"} == before
