"""What a server says instead of an answer, whatever it says."""

from __future__ import annotations

import json
import time

import pytest

from flowengine.core.secret_values import Secrets
from flowengine.errors import PermanentModelError, TransientModelError
from flowengine.models.http.status_errors import error_of_answer, message_in, read_retry_after
from tests.support.pace import slowness


@pytest.mark.parametrize(
    "asked",
    [
        "Mon, 01 Jan 99999999999999999999 00:00:00 GMT",
        "Mon, 99999999999 Jan 2020 00:00:00 GMT",
        "Mon, 01 Jan 2020 00:00:00 +99999999999999999999",
        "Mon, 01 Jan 99999 00:00:00 GMT",
        "nan",
        "-1",
        "1e400",
        "soon",
        "\x00",
    ],
)
def test_a_wait_that_is_no_time_is_none(asked: str) -> None:
    assert read_retry_after({"retry-after": asked}) is None


def google(quota: str, delay: str = "26s") -> str:
    """As Google's endpoint answers a 429: https://github.com/google-gemini/gemini-cli/issues/8437"""
    said = "You exceeded your current quota, please check your plan and billing details."
    quotas = {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": quota}]}
    retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}
    error = {"code": 429, "message": said, "status": "RESOURCE_EXHAUSTED", "details": [quotas, retry]}
    return json.dumps([{"error": error}])


@pytest.mark.parametrize(
    ("text", "headers", "asked"),
    [
        (google("GenerateRequestsPerMinutePerProjectPerModel-FreeTier"), {}, 26.0),
        (google("GenerateRequestsPerMinutePerProjectPerModel", "0.5s"), {}, 0.5),
        (google("GenerateRequestsPerMinutePerProjectPerModel", "soon"), {}, None),
        (google("GenerateRequestsPerMinutePerProjectPerModel"), {"retry-after": "3"}, 3.0),
    ],
)
def test_a_quota_of_a_minute_is_waited_for_as_long_as_the_body_says(
    text: str, headers: dict[str, str], asked: float | None
) -> None:
    error = error_of_answer(429, text, headers, "google/m", Secrets(()))
    assert isinstance(error, TransientModelError)
    assert (error.retry_after, error.is_rate_limit) == (asked, True)


@pytest.mark.parametrize(
    ("status", "text", "told", "is_final"),
    [
        (429, google("GenerateRequestsPerDayPerProjectPerModel-FreeTier"), None, True),
        (429, '{"error": {"message": "Quota exceeded, limit: 0, model: gemini-3.1-pro"}}', None, True),
        (429, '{"error": {"code": "insufficient_quota"}}', None, True),
        (429, '{"error": {"type": "rate_limit_error"}}', "false", True),
        (500, "{}", "false", True),
        (400, "{}", "true", False),
        (400, "{}", None, True),
        (500, "{}", "true", False),
    ],
)
def test_what_waiting_cannot_help_is_final_and_a_server_that_says_so_is_believed(
    status: int, text: str, told: str | None, is_final: bool
) -> None:
    error = error_of_answer(status, text, {"x-should-retry": told} if told else {}, "m", Secrets(()))
    assert isinstance(error, PermanentModelError if is_final else TransientModelError)


def test_a_message_is_found_however_deep_it_lies() -> None:
    assert message_in('{"error":' * 400 + '[{"message": "busy"}]' + "}" * 400) == "busy"
    assert message_in('{"error": {"code": 5}}') == '{"code": 5}'
    for text in ('{"error": []}', "[]", "5", '"x"', '{"error":' * 100_000):
        assert message_in(text) == text


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"error":' * 300 + json.dumps({"said": "x" * 1_000_000}) + "}" * 300, id="deep and long"),
        pytest.param("a " * 5_000_000, id="very many words"),
    ],
)
def test_a_failure_is_told_in_time_in_proportion_to_its_length(text: str) -> None:
    begun = time.process_time()
    error = error_of_answer(500, text, {}, "openai/m", Secrets(["sk-0a1b2c3d4e5f"]))
    assert time.process_time() - begun < slowness()
    assert len(str(error)) < 2_100


def test_a_key_that_is_cut_off_with_the_end_of_a_long_failure_is_not_told_in_part() -> None:
    key = "sk-0a1b2c3d4e5f"
    told = str(error_of_answer(401, f"{'x' * 1990} {key} is wrong {'x' * 100}", {}, "openai/m", Secrets([key])))
    assert key[:4] not in told
