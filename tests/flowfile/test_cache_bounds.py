"""What `plan` says of a flow whose prompts a vendor's cache may serve, and what a user's price says of such tokens."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest
from click.testing import CliRunner

from flowengine.cli.main import cli
from flowengine.errors import FlowError
from flowengine.flowfile.estimate.bounds import FlowBound, bound_of
from flowengine.flowfile.loader import load_flow
from flowengine.flowfile.project.project import find_project
from flowengine.models.model import Reply, Request, TokenUsage
from flowengine.models.pricing import Price
from flowengine.models.scripted import ScriptedModel
from flowengine.models.worst_case import ModelFacts
from flowengine.models.wrappers.priced import PricedModel

FLOW = """\
flowengine: v1
name: questions
inputs: {questions: {type: array}, handbook: {type: string}}
nodes:
  ask:
    type: map
    over: inputs.questions
    nodes:
      answer:
        model: %s
        instructions: "{{ inputs.handbook }}"
        prompt: "{{ item }}"
        max_tokens: 10
        max_retries: 0
        %s
"""
LONG = {"questions": ["a", "b", "c", "d", "e"], "handbook": "word " * 4000}


def bound(model: str = "anthropic/claude-sonnet-4-5", said: str = "", **inputs: object) -> FlowBound:
    spec = load_flow(text=FLOW % (model, said))
    return bound_of(spec, ModelFacts({}), inputs={**LONG, **inputs})


def test_at_best_one_prompt_is_written_and_the_others_are_served() -> None:
    most = bound().most
    assert most.cost_usd is not None
    assert most.cost_at_best is not None
    question = most.call_tokens or 0
    written, read, answer = (rate / 1e6 for rate in (3.75, 0.3, 15.0))
    assert most.cost_usd == pytest.approx(5 * ((question - 10) * written + 10 * answer))
    expected = (question - 10) * (written + 4 * read) + 5 * 10 * answer
    assert most.cost_at_best == pytest.approx(expected)


@pytest.mark.parametrize(
    "whole",
    [
        bound(said="prompt_cache: off"),
        bound("anthropic/claude-haiku-4-5", handbook="short"),
        bound("bedrock/anthropic.claude-3-haiku-20240307-v1:0"),
    ],
    ids=["off", "too short for the vendor", "nothing is known of a cache"],
)
def test_where_nothing_is_served_the_best_is_the_most(whole: FlowBound) -> None:
    assert whole.most.cost_at_best == whole.most.cost_usd


def test_plan_says_both(tmp_path: Path) -> None:
    path = tmp_path / "questions.yaml"
    path.write_text(FLOW % ("anthropic/claude-sonnet-4-5", ""), "utf-8")
    arguments = ["plan", str(path), "-i", 'questions=["a","b","c"]', "-i", f"handbook={LONG['handbook']}"]
    told = CliRunner().invoke(cli, arguments).stdout
    assert "at best, with what the caches of vendors can serve: $" in told
    data = json.loads(CliRunner().invoke(cli, [*arguments, "--json"]).stdout)
    assert 0 < data["most_cost_usd_if_cached"] < data["most"]["cost_usd"]


def test_a_users_price_may_say_what_a_cache_costs(tmp_path: Path) -> None:
    (tmp_path / "flowengine.toml").write_text(
        '[prices."mine/m"]\ninput = 2\noutput = 10\ncache_read = 0.2\ncache_write = 2.5\n', "utf-8"
    )
    price = find_project(tmp_path).prices["mine/m"]
    assert price == Price(2.0, 10.0, cache_read=0.2, cache_write=2.5)
    assert price.dearest().input == 2.5
    replies = [Reply("x", usage=TokenUsage(1000, 100, 700, 200)), Reply("x", usage=TokenUsage(1000, 100))]
    model = PricedModel(ScriptedModel(replies), price)
    costs = [anyio.run(model.complete, Request("m", ())).cost_usd for _ in replies]
    assert costs == [pytest.approx((100 * 2 + 700 * 0.2 + 200 * 2.5 + 100 * 10) / 1e6), pytest.approx(0.003)]


def test_an_unknown_choice_is_told_with_its_place() -> None:
    with pytest.raises(FlowError, match=r"15:23: FE402 .*expected 'auto' or 'off', found 'always'"):
        load_flow(text=FLOW % ("offline", "prompt_cache: always"))
