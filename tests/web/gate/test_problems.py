"""What goes wrong is a page for people, in words, and nothing of it is markup."""

from __future__ import annotations

import pytest

from flowengine.errors import RunNotFoundError, StoreCorruptError, StoreUnavailableError, StoreVersionError
from flowengine.web.gate.problems import problem_response


@pytest.mark.parametrize(
    ("error", "status", "title"),
    [
        (RunNotFoundError("no run '<x>'"), 404, "No such run"),
        (StoreCorruptError("not an event"), 422, "The run's record is damaged"),
        (StoreVersionError("upgrade"), 422, "The run was written by a newer FlowEngine"),
        (StoreUnavailableError("locked"), 503, "The store cannot be used now"),
        (RuntimeError("boom"), 500, "Something went wrong"),
    ],
)
def test_a_run_that_cannot_be_shown_is_told_in_words(error: Exception, status: int, title: str):
    response = problem_response(error, as_page=True)
    text = bytes(response.body).decode()
    assert response.status_code == status
    assert title.replace("'", "&#x27;") in text or title in text
    assert "<x>" not in text
