"""Values that JSON does not have: shown as text, in one form in every process, and refused where others compute."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

import pytest

from flowengine.agents.prompt.prompt import text_of
from flowengine.cli.execute import format_outputs
from flowengine.core.json_values import has_keys_alike, to_json_value, write_json
from flowengine.core.records import tool_key
from flowengine.errors import RunError
from flowengine.nodes.code_digest import digest_of
from flowengine.nodes.http_request import make_request

HUGE = 10**5000
"""Python writes no such integer in decimal digits."""


@dataclass
class Order:
    amount: Any
    secret: Any = field(default=None, repr=False)


ODD = [HUGE, {"a": [HUGE]}, {HUGE: 1}, {(1, 2): 3}, Order(HUGE), Order(b"\xff"), float("nan"), "\ud800", {"\ud800": 1}]


@pytest.mark.parametrize("value", ODD, ids=range(len(ODD)))
def test_a_value_that_json_does_not_have_is_shown_sent_to_a_model_and_known_again(value: Any):
    assert json.loads(json.dumps(to_json_value(value), allow_nan=False))
    assert format_outputs({"answer": value})
    assert text_of(value)
    assert tool_key("send", {"to": value}) == tool_key("send", {"to": value}) != tool_key("send", {"to": "x"})


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (HUGE, "Exceeds the limit"),
        (float("nan"), "not JSON compliant"),
        ("\ud800", "half a surrogate pair"),
        ({"\ud800": 1}, "half a surrogate pair"),
        (Order(b"\xff"), "bytes that are no text"),
        (object(), "Unable to serialize"),
    ],
    ids=["huge", "nan", "surrogate", "key", "bytes", "object"],
)
def test_what_a_server_could_not_read_is_no_body(value: Any, reason: str):
    with pytest.raises(RunError, match=f"^the body cannot be written as JSON: .*{reason}"):
        write_json(value, "the body")
    for place in ("json", "body"):
        with pytest.raises(RunError, match=reason):
            make_request("POST", {"url": "http://127.0.0.1/", place: value}, {}, False)


def test_objects_are_written_for_a_model_as_json():
    assert text_of({"order": Order(1)}) == '{"order": {"amount": 1, "secret": null}}'


SETS = """
from flowengine.agents.prompt.prompt import text_of
from flowengine.core.json_values import to_json_value
from flowengine.core.records import tool_key
from flowengine.nodes.code_digest import digest_of
value = {"tags": {*"abcdefgh"}, "more": [frozenset("xyz")]}
print(text_of(value), to_json_value(value), tool_key("send", value), digest_of(value))
"""


def test_sets_are_the_same_in_every_process():
    said = {
        subprocess.run(
            [sys.executable, "-c", SETS],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in (1, 2)
    }
    assert len(said) == 1, "a resumed run would pay for its calls again"
    assert digest_of({"a", "b"}) != digest_of({"a", "c"})


def test_keys_that_are_the_same_text_are_kept_apart():
    given = {2: "a", "2": "b", True: "c", "True": "d", None: "e", "None": "f", (1, 2): "g"}
    assert has_keys_alike([given])
    assert not has_keys_alike([{1: "a", "2": {"b": 3}}])
    assert to_json_value(given) == {
        "2 (int)": "a", "2": "b", "True (bool)": "c", "True": "d", "None (NoneType)": "e", "None": "f", "(1, 2)": "g"
    }  # fmt: skip
