"""The options of a run are checked when they are made, so that nothing has run and nothing is written."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.errors import DefinitionError, FlowEngineError, InputError
from flowengine.runtime.run import RunOptions

IMPOSSIBLE: list[tuple[dict[str, Any], type[FlowEngineError], str]] = [
    ({"limits": {"timeout": 1}}, DefinitionError, "limits are RunLimits, not dict"),
    ({"run_id": "../x"}, InputError, "'../x' is no run's id"),
    ({"session": " "}, InputError, "a session is named by 1 to 200 characters"),
    ({"labels": {"a team": "billing"}}, InputError, "label 'a team'"),
    ({"labels": ["billing"]}, InputError, "labels are a mapping, as .*, not list"),
    ({"reuse": 5}, InputError, "reuse must be a text, a list of texts or None, not int 5"),
    ({"retry_effects": "send"}, InputError, "retry_effects must be a list of texts, not str 'send'"),
    ({"assume_done": None}, InputError, "assume_done must be a list of texts, not None"),
]


@pytest.mark.parametrize(("given", "error", "text"), IMPOSSIBLE)
def test_what_no_run_can_have_is_refused(given: dict[str, Any], error: type[FlowEngineError], text: str):
    with pytest.raises(error, match=text):
        RunOptions(**given)
