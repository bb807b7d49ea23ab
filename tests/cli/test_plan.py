"""`flowengine plan`: the table, the data, and the exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]

TEAS = """
flowengine: v1
name: teas
inputs: {teas: {type: array}, more: {type: string, default: please}}
agents: {w: {model: openai/ours, max_tokens: 100, max_retries: 0}}
nodes:
  each:
    type: map
    over: inputs.teas
    nodes:
      describe: {agent: w, prompt: "Describe {{ item }}, {{ inputs.more }}."}
  pick: {type: condition, if: nodes.each.output | length > 1, then: several, else: one}
  one: {agent: w, prompt: Say it in a line.}
  several: {agent: w, prompt: Say it in a line., retry: {attempts: 2}}
"""
FILE = '[tool.flowengine.prices."openai/ours"]\ninput = 1.0\noutput = 10.0\n'


@pytest.fixture
def teas(folder: Path) -> Path:
    (folder / "teas.yaml").write_text(TEAS)
    (folder / "flowengine.toml").write_text(FILE)
    return folder


def test_a_table_tells_each_nodes_share_and_the_whole(flowengine: Command, teas: Path) -> None:
    said = flowengine("plan", "teas.yaml", "-i", 'teas=["sencha", "assam", "oolong"]')
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    cells = [line.split() for line in lines[: lines.index("")]]
    assert cells[0] == ["NODE", "KIND", "RUNS", "CALLS", "TOKENS", "COST", "SHARE"]
    assert [row[:4] for row in cells[1:]] == [
        ["each", "map", "1", "3"],
        ["describe", "agent", "3", "3"],
        ["pick", "condition", "1"],
        ["one", "agent", "1", "1"],
        ["several", "agent", "1", "2"],
    ]
    assert lines[2].startswith("  describe ")
    assert "longest path: each → pick → one" in lines
    assert any(line.startswith("at most: 5 model calls, ") for line in lines)
    assert "note" not in said.out


def test_attempts_without_an_answer_that_may_be_billed_stand_apart_and_count_for_what_is_allowed(
    flowengine: Command, teas: Path
) -> None:
    given, flow = ("plan", "teas.yaml", "-i", 'teas=["sencha"]'), TEAS.replace("max_retries: 0", "max_retries: 1")
    (teas / "teas.yaml").write_text(flow)
    data = json.loads(flowengine(*given, "--json").out)
    answered, billed = data["most"]["cost_usd"], data["most_if_unanswered"]["cost_usd"]
    assert data["most_if_unanswered"]["model_calls"] == 2 * data["most"]["model_calls"]
    assert billed == pytest.approx(2 * answered)
    said = flowengine(*given).out.splitlines()
    assert any(line.startswith("if attempts get no answer and are billed all the same, at most: 12 ") for line in said)
    assert flowengine(*given, "--max-cost", str(answered * 1.5)).code == 1
    assert flowengine(*given, "--max-cost", str(billed * 1.01)).code == 0
    free = flowengine(*given, "--model", "offline").out
    assert "billed" not in free
    (teas / "teas.yaml").write_text(flow.replace("name: teas", f"name: teas\nlimits: {{cost_usd: {answered * 1.4}}}"))
    assert flowengine(*given, "--max-cost", str(answered * 1.5)).code == 0


def test_a_map_over_an_input_that_is_not_given_has_no_bound_and_says_what_would(
    flowengine: Command, teas: Path
) -> None:
    said = flowengine("plan", "teas.yaml")
    assert said.code == 0
    assert "at most: any number of model calls, any number of tokens, a cost without a known bound" in said.out
    assert "note: not given: 'teas'; with -i NAME=VALUE" in said.out
    assert "note: how many items 'each' gets is not known" in said.out


def test_limits_of_the_file_bound_what_has_none(flowengine: Command, teas: Path) -> None:
    (teas / "teas.yaml").write_text(TEAS.replace("name: teas", "name: teas\nlimits: {cost_usd: 0.25, model_calls: 40}"))
    said = flowengine("plan", "teas.yaml")
    assert "at most: 40 model calls, " in said.out
    assert "$0.25" in said.out
    assert "without the limits of the file (model_calls 40, cost_usd 0.25): any number of model calls" in said.out


@pytest.mark.parametrize(
    ("argv", "code", "told"),
    [
        (["--max-cost", "1"], 1, "what it may cost has no bound that is known, and --max-cost allows $1.00\n"),
        (["--max-cost", "1", "-i", "teas=[1]"], 0, ""),
        (["--max-cost", "0.0001", "-i", "teas=[1]"], 1, "and --max-cost allows $0.0001\n"),
    ],
)
def test_a_cost_beyond_what_is_allowed_is_exit_code_one(
    flowengine: Command, teas: Path, argv: list[str], code: int, told: str
) -> None:
    said = flowengine("plan", "teas.yaml", *argv)
    assert said.code == code
    assert said.err.endswith(told)
    assert said.out.startswith("NODE")


def test_scripts_get_one_object(flowengine: Command, teas: Path) -> None:
    data = json.loads(flowengine("plan", "teas.yaml", "--json", "-i", "teas=[1, 2]").out)
    assert data["flow"] == "teas"
    assert [each["node"] for each in data["nodes"]] == ["each", "each.describe", "pick", "one", "several"]
    assert data["most"]["model_calls"] == 4
    assert 0 < data["most"]["cost_usd"] < 0.1
    assert data["longest_path"] == ["each", "pick", "one"]
    unknown = json.loads(flowengine("plan", "teas.yaml", "--json").out)
    assert unknown["most"] == {"model_calls": None, "tokens": None, "cost_usd": None}
    assert [each.partition(" ")[0] for each in unknown["notes"]] == ["not", "how", "nothing"]


def test_a_model_without_a_price_or_bounds_is_told(flowengine: Command, teas: Path) -> None:
    (teas / "teas.yaml").write_text(TEAS.replace("retry: {attempts: 2}", "evaluate: {}"))
    said = flowengine("plan", "teas.yaml", "--model", "ollama/any:1b", "-i", "teas=[1]")
    assert "note: the price of ollama/any:1b is not known: say it in the project file" in said.out
    assert "note: nothing bounds the tokens of a call of 'several'" in said.out  # Its judge has no `max_tokens`.
    assert "a cost without a known bound" in said.out


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["bad.yaml"], "FE204"),
        (["teas.yaml", "-i", "tea=[1]"], "unknown input 'tea'; did you mean 'teas'?"),
        (["teas.yaml", "-i", "teas=3"], "input 'teas'"),
        (["teas.yaml", "--model", "opnai/x"], "unknown provider 'opnai'"),
        (["teas.yaml", "--max-cost", "-1"], "--max-cost"),
    ],
)
def test_what_is_wrong_is_exit_code_two(flowengine: Command, teas: Path, argv: list[str], told: str) -> None:
    said = flowengine("plan", *argv)
    assert (said.code, said.out) == (2, "")
    assert told in said.err


def test_nothing_of_the_flow_is_imported_and_litellm_neither(teas: Path) -> None:
    (teas / "trap.py").write_text("raise SystemExit('imported')\ndef f(): ...\n")
    text = TEAS + '  code: {type: function, call: "trap:f"}\n'
    (teas / "teas.yaml").write_text(text)
    (teas / "flowengine.toml").write_text(FILE + "[tool.flowengine]\nallow_calls = ['trap']\n")
    code = (
        "import sys\nfrom flowengine.cli.main import main\n"
        "code = main(['plan', 'teas.yaml'])\nprint(code, 'litellm' in sys.modules, 'trap' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], cwd=teas, capture_output=True, text=True, check=True)
    assert told.stdout.splitlines()[-1] == "0 False False"


RISKY = """
flowengine: v1
name: risky
inputs: {word: {type: string, untrusted: true}}
nodes:
  a: {prompt: "{{ inputs.word }}"}
  put: {type: http, url: https://shop.example.com/, query: {q: "{{ nodes.a.output }}"}}
  get: {type: http, url: https://shop.example.com/, query: {q: "{{ inputs.word }}"}, trust: The shop finds pages.}
  odd: {prompt: x, trust: It is ours.}
"""


@pytest.fixture
def risky(folder: Path) -> Path:
    (folder / "risky.yaml").write_text(RISKY)
    (folder / "flowengine.toml").write_text('allow_http = ["https://shop.example.com/"]')
    return folder


def test_the_paths_of_untrusted_text_are_listed(flowengine: Command, risky: Path) -> None:
    said = flowengine("plan", "risky.yaml", "--risks")
    assert said.code == 0
    assert said.out.splitlines() == [
        "risky.yaml:7:68: untrusted text reaches the address of a request",
        "    from  the input 'word' (risky.yaml:4:31)",
        "    by    inputs.word → a (prompt) → put (query)",
        "risky.yaml:8:68: meant: The shop finds pages.",
        "    from  the input 'word' (risky.yaml:4:31)",
        "    by    inputs.word → get (query)",
        "    to    the address of a request",
        "risky.yaml:9:20: nothing needs this `trust`",
        "1 path of untrusted text to an effect, and 1 that is meant",
    ]


def test_the_ways_are_data_too(flowengine: Command, risky: Path) -> None:
    said = json.loads(flowengine("plan", "risky.yaml", "--risks", "--json").out)
    [way], [meant], [unneeded] = said["open"], said["meant"], said["unneeded_trust"]
    assert way["source"] == {
        "what": "the input 'word'",
        "node": None,
        "key": "word",
        "assumed_since": None,
        "file": "risky.yaml",
        "line": 4,
        "column": 31,
    }
    assert (way["effect"]["node"], way["effect"]["key"], way["effect"]["line"]) == ("put", "query", 7)
    assert [step["name"] for step in way["steps"]] == ["inputs.word", "a", "put"]
    assert meant["meant"] == "The shop finds pages."
    assert (unneeded["node"], unneeded["key"], unneeded["line"]) == ("odd", None, 9)


def test_risks_follow_from_the_file_alone(flowengine: Command, risky: Path) -> None:
    said = flowengine("plan", "risky.yaml", "--risks", "--max-cost", "1")
    assert said.code == 2
    assert "--risks follows from the file alone" in said.err


@pytest.mark.parametrize(("options", "code"), [([], 0), (["--deny-risks"], 1), (["--deny-risks", "--strict"], 2)])
def test_validate_refuses_ways_where_it_is_told_to(
    flowengine: Command, risky: Path, options: list[str], code: int
) -> None:
    assert flowengine("validate", "risky.yaml", *options).code == code


def test_what_may_end_early_and_who_is_asked_is_told(flowengine: Command, teas: Path) -> None:
    text = TEAS.replace("over: inputs.teas", "over: inputs.teas\n    until: results | length >= 2")
    text = text.replace("one: {agent: w,", "one: {agent: w, tools: ['steps:shout'], approve: [shout],")
    (teas / "teas.yaml").write_text(text)
    (teas / "flowengine.toml").write_text(f'[tool.flowengine]\nallow_calls = ["steps"]\n{FILE}')
    said = flowengine("plan", "teas.yaml")
    assert said.code == 0
    assert "note: 'each' ends with enough results (`until`); at most all its items are done" in said.out
    assert "note: calls of 'shout' by 'one' wait for a person, who may refuse them" in said.out


def test_batches_are_told_with_their_waves_and_their_price(flowengine: Command, teas: Path) -> None:
    one = json.loads(flowengine("plan", "teas.yaml", "-i", 'teas=["sencha", "mate"]', "--json", "--batch").out)
    found = one["batch"]
    assert found["cost_usd"] == one["most"]["cost_usd"] / 2
    assert (found["waves"], found["waves_at_most"], found["latest_hours"]) == (2, 3, 72)  # Items ask at once.
    said = flowengine("plan", "teas.yaml", "-i", 'teas=["sencha"]', "--batch").out.splitlines()[-1]
    assert said.endswith("2 waves as a rule, 3 at most; the latest end is 72 hours after the start")


def test_rows_of_data_are_added_up(flowengine: Command, teas: Path) -> None:
    Path("rows.jsonl").write_text('{"list": ["sencha", "mate"]}\n{"list": ["mate"]}\n{"list": 3}\n')
    words = ["plan", "teas.yaml", "--data", "rows.jsonl", "--map", "list=teas", "--batch"]
    found = json.loads(flowengine(*words, "--json").out)["data"]
    one, two = (
        json.loads(flowengine("plan", "teas.yaml", "-i", f"teas={teas}", "--json").out)["most"]
        for teas in ('["mate"]', '["sencha", "mate"]')
    )
    assert (found["rows"], found["refused"], found["measured"]) == (3, 1, 2)
    assert found["at_most"]["cost_usd"] == pytest.approx(one["cost_usd"] + two["cost_usd"])
    assert found["at_most"]["model_calls"] == one["model_calls"] + two["model_calls"]
    assert found["batch"]["cost_usd"] == pytest.approx(found["at_most"]["cost_usd"] / 2)
    assert (found["batch"]["waves"], found["batch"]["latest_hours"]) == (2, 72)
    said = flowengine(*words)
    assert "all 3 rows, at most: " in said.out
    assert "note: 1 of them do not fit" in said.out
    assert said.out.splitlines()[-1].endswith("the latest end is 72 hours after the start")
    assert flowengine(*words, "--max-cost", "0.000001").code == 1
    for wrong in (["--map", "list=teas"], ["--data", "rows.jsonl", "--against", "git:HEAD"]):
        assert flowengine("plan", "teas.yaml", *wrong).code == 2
    assert "did you mean 'list'" in flowengine("plan", "teas.yaml", "--data", "rows.jsonl", "--map", "lis=teas").err


def test_what_makes_the_number_of_calls_unknown_is_told(flowengine: Command, teas: Path) -> None:
    retrieval = "context: [{retrieval: {documents: teas, embedding: openai/text-embedding-3-small}}]"
    (teas / "teas").mkdir()
    (teas / "ask.yaml").write_text(
        f"flowengine: v1\nname: ask\nnodes: {{answer: {{model: openai/ours, prompt: x, {retrieval}}}}}\n"
    )
    said = flowengine("plan", "ask.yaml")
    assert "any number of model calls" in said.out
    assert "how many vectors 'answer' asks for is not known: `embedding` of its context" in said.out
    assert "vectors" not in flowengine("plan", "ask.yaml", "--model", "offline").out
    (teas / "each.yaml").write_text(
        "flowengine: v1\nname: each\ninputs: {teas: {type: array}}\nnodes:\n"
        "  each: {type: map, over: inputs.teas, nodes: {say: {prompt: '{{ item }}', context: [conversation]}}}\n"
    )
    assert "vectors" not in flowengine("plan", "each.yaml").out
