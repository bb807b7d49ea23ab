"""What is reported of a request to a collector that failed."""

from __future__ import annotations

import contextlib

from flowengine.telemetry.collector import _Session  # pyright: ignore[reportPrivateUsage] -- what an exporter is given


def test_a_try_for_which_no_time_is_left_is_told_as_one():
    session = _Session()
    with contextlib.suppress(OSError):
        session.request("POST", "http://127.0.0.1:9", timeout=0.0)
    assert session.problem() == "the collector did not answer in time"


def test_what_failed_before_the_time_was_used_up_is_what_is_told():
    session = _Session()
    for limit in (5.0, 0.0):
        with contextlib.suppress(OSError):
            session.request("POST", "http://127.0.0.1:9", timeout=limit)
    assert session.problem() == "nothing answers there"
