"""`flowengine eval`."""

from __future__ import annotations

import json
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from flowengine.evals.git_version import revision_of, tree_at
from tests.cli.conftest import Command
from tests.evals.test_eval_run import EVAL, FLOW, project
from tests.support.model_server import ModelServer

pytestmark = pytest.mark.needs("scipy", "eval")


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def test_a_revision_of_git_is_compared_with(flowengine: Command, folder: Path) -> None:
    path = project(folder)
    git(folder, "init")
    git(folder, "add", "-A")
    git(folder, "commit", "-m", "first")
    (folder / "shout.yaml").write_text(FLOW.replace('inputs.text }}"}', "inputs.text | replace('b', 'c') }}\"}"))
    said = flowengine("eval", path.name, "--against", "git:HEAD", "-q", "--html", "report.html")
    assert said.code == 0, said.err
    assert "nodes that are defined in another way: shout" in said.out
    assert "better in 'equal'" in said.out
    assert "Against git:" in (folder / "report.html").read_text()
    with tree_at(folder / "shout.yaml", revision_of(folder / "shout.yaml", "HEAD")) as there:
        assert there.read_text() == FLOW
    assert not there.exists()
    for wrong in ("git:nowhere", "git:--help", "zzz"):
        said = flowengine("eval", path.name, "--against", wrong, "-q")
        assert said.code in (1, 2), said.err
        assert "error: " in said.err


def test_an_eval_on_the_command_line(flowengine: Command, folder: Path) -> None:
    path = project(folder)
    said = flowengine("eval", path.name, "--fail-under", "equal=0.5", "--format", "github")
    assert said.code == 1
    assert said.out.startswith("::error file=shout.floweval.yaml,title=shout%3A equal::the mean is 0.333")
    said = flowengine("eval", path.name, "--rows", "1", "--format", "junit", "-q")
    assert len(ET.fromstring(said.out)[0]) == 1 + 5
    said = flowengine("eval", "init", "shout.yaml", "-o", "new.floweval.yaml", "--runs", "label.eval=shout", "--mask")
    assert said.code == 0, said.err
    again = flowengine("eval", "init", "shout.yaml", "-o", "new.floweval.yaml")
    assert (again.code, "--force writes over it" in again.err) == (2, True)
    said = flowengine("eval", "new.floweval.yaml", "--format", "json", "-q")
    assert json.loads(said.out)["scorers"]["loud"]["mean"] == 1.0
    labels = [part for each in ("eval=e", "part=judges", "set=ab12", "row=2") for part in ("--label", each)]
    flowengine("run", "shout.yaml", "-i", "text=a", "-q", *labels)
    said = flowengine("runs", "to-test", "@last", "--row")  # What a judge was asked is no row of the flow.
    assert (said.code, "runs list --label part=flow --label set=ab12 --label row=2" in said.err) == (2, True)


def test_an_eval_without_a_score_fails(flowengine: Command, folder: Path) -> None:
    path = project(folder, EVAL.partition("scorers:")[0] + "scorers:\n  odd: {call: 'scorers:odd'}\n")
    said = flowengine("eval", path.name, "--rows", "2")
    assert (said.code, "nothing could be scored: the scorer failed" in said.err) == (1, True), said.err
    (folder / "scorers.py").write_text("def odd(output, run):\n    return 1\n")
    said = flowengine("eval", path.name)
    assert said.code == 2
    assert (
        "a scorer's arguments are row, inputs, outputs, run, against, found 'output'; did you mean 'outputs'?"
        in said.err
    )


def test_an_unknown_price_is_not_reported_as_nothing(
    flowengine: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "say.yaml").write_text("flowengine: v1\nname: say\nnodes: {say: {prompt: hi, model: openai/local}}\n")
    judge = '{judge: {target: "{{ outputs.say }}", criteria: {tone: Kind}, model: openai/local}}'
    (folder / "rows.jsonl").write_text('{"kind": "a"}\n')
    (folder / "say.floweval.yaml").write_text(
        f"flow: say.yaml\ndata: rows.jsonl\nslices: [kind]\nscorers: {{good: {judge}}}"
    )
    (folder / "flowengine.toml").write_text("")
    with ModelServer(lambda body: '{"score": 1, "feedback": "", "criteria_scores": {"tone": 1}}') as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        said = flowengine("eval", "say.floweval.yaml", "-q", "--html", "report.html")
        again = flowengine("eval", "say.floweval.yaml", "-q", "--format", "json")
        rows = flowengine("run", "say.yaml", "--data", "rows.jsonl", "--max-cost", "1")
        strict = flowengine("run", "say.yaml", "--data", "rows.jsonl", "--max-cost", "1", "--strict-limits", "--fresh")
        limited = flowengine("eval", "say.floweval.yaml", "--fresh", "--max-cost", "1")
        refused = flowengine("eval", "say.floweval.yaml", "--fresh", "--max-cost", "1", "--strict-limits")
    assert said.code == 0, said.err
    notice = "notice: the price of openai/local is not known, so `cost_usd` is not kept"
    assert [each.err.count(notice) for each in (said, rows, strict, limited, refused)] == [0, 1, 0, 1, 0]
    assert (rows.code, strict.code, limited.code) == (0, 1, 0)
    assert "the price of openai/local is not known, so the budget of who started the run would not hold" in strict.err
    assert "the run failed" in refused.out
    assert "paid 2 of 2 calls, $0+ instead of $0+; the price of 2 calls is not known" in said.out
    assert said.out.count("$0+\n") == 2  # The judge, and the slice.
    assert "$0<" not in (folder / "report.html").read_text()
    counts = json.loads(again.out)
    assert (counts["unpriced_calls"], counts["paid_unpriced_calls"]) == (2, 0)
    assert counts["scorers"]["good"]["unpriced_calls"] == 1


def test_inputs_of_any_name_keep_their_values_in_a_written_eval(flowengine: Command, folder: Path) -> None:
    project(folder)
    (folder / "twice.yaml").write_text(
        "flowengine: v1\nname: twice\ninputs: {expected: {type: string}, run: {type: string}}\n"
        "nodes: {joined: {type: function, call: 'steps:shout', with: {text: '{{ inputs.run }}'}}}\n"
        'outputs: {both: "{{ inputs.expected }} {{ inputs.run }}"}\n'
    )
    assert flowengine("run", "twice.yaml", "-i", "expected=a", "-i", "run=b", "-q", "--run-id", "r1").code == 0
    said = flowengine("eval", "init", "twice.yaml")
    assert said.code == 0, said.err
    row = {"expected": "a", "run": "b", "recorded_expected": {"both": "a b"}, "recorded_run": "r1"}
    assert json.loads((folder / "twice.rows.jsonl").read_text()) == row
    assert json.loads(flowengine("runs", "to-test", "r1", "--row").out) == row
    made = flowengine("eval", "twice.floweval.yaml", "--format", "json", "-q")
    assert json.loads(made.out)["scorers"]["both"]["mean"] == 1.0


def test_the_edit_between_two_revisions_is_blamed(flowengine: Command, folder: Path) -> None:
    path = project(folder, rows=[{"text": f"a{n}", "expected": f"A{n}", "part": "A", "kind": "x"} for n in range(8)])
    git(folder, "init")
    git(folder, "add", "-A")
    git(folder, "commit", "-m", "good")
    (folder / "shout.yaml").write_text(FLOW.replace('inputs.text }}"}', "inputs.text | replace('a', 'c') }}\"}"))
    git(folder, "commit", "-am", "bad")
    said = flowengine("blame", path.name, "--good", "HEAD~1", "--bad", "HEAD", "-q", "--scorer", "equal")
    assert said.code == 0, said.err
    assert "'equal': good 1.000, bad 0.000" in said.out
    assert "to blame: 'shout'" in said.out
    same = flowengine("blame", path.name, "--good", "HEAD", "--bad", "HEAD", "-q")
    assert (same.code, "say the same" in same.err) == (2, True)


@pytest.mark.parametrize(
    ("scorer", "text", "lines"),
    [
        ("odd", "a", ["'odd': good -, bad -", "no row has a score in both versions: there is nothing to compare"]),
        ("equal", "b", ["'equal': good 1.000, bad 1.000", "both versions have the same mean: no part is to blame"]),
        (
            "equal",
            "a",
            [
                "'equal': good 1.000, bad 0.000",
                "the difference of the two versions may be chance: 1 row differs, and fewer than 6 cannot tell",
                "",
                "TAKEN BACK  MEAN   GAIN [95 %]",
                "shout       1.000  +1.000       may be chance",
                "",
                "no part by itself brings the score back for certain",
                "not tried: files that code reads, what is installed, the environment, and other models behind a name",
            ],
        ),
    ],
)
def test_too_few_rows_to_blame_an_edit_are_told(
    flowengine: Command, folder: Path, scorer: str, text: str, lines: list[str]
) -> None:
    path = project(folder, rows=[{"text": text, "expected": text.upper(), "part": text, "kind": "x"}])
    git(folder, "init")
    git(folder, "add", "-A")
    git(folder, "commit", "-m", "good")
    (folder / "shout.yaml").write_text(FLOW.replace('inputs.text }}"}', "inputs.text | replace('a', 'c') }}\"}"))
    git(folder, "commit", "-am", "bad")
    blame = ("blame", path.name, "--good", "HEAD~1", "--bad", "HEAD", "-q", "--scorer", scorer)
    said = flowengine(*blame)
    assert said.out.splitlines() == [*lines, "paid $0"], said.err
    told = json.loads(flowengine(*blame, "--format", "json").out)
    assert [told["whole"][each] for each in ("low", "high")] == [0.0 if text == "b" else None] * 2
    assert told["good"] == (None if scorer == "odd" else 1.0)


@pytest.mark.parametrize(
    "words",
    [
        ["run", "shout.yaml", "--data", "rows.jsonl"],
        ["eval", "shout.floweval.yaml"],
        ["whatif", "--node", "shout", "--model", "offline", "--runs", "flow=shout"],
    ],
)
def test_a_deadline_is_one_of_batches(flowengine: Command, folder: Path, words: list[str]) -> None:
    project(folder)
    said = flowengine(*words, "--deadline", "6h")
    assert (said.code, "--deadline goes with --batch" in said.err) == (2, True)


def test_a_fork_that_a_limit_pauses_is_told(flowengine: Command, folder: Path) -> None:
    """The other answer leads to one more call, which the flow's own limit does not allow."""
    (folder / "two.yaml").write_text(
        "flowengine: v1\nname: two\nlimits: {model_calls: 1, on_limit: pause}\nnodes:\n"
        "  say: {model: offline, prompt: short}\n"
        "  far: {type: condition, if: \"'longer' in nodes.say.output\", then: more}\n"
        "  more: {model: offline, prompt: and more}\n"
    )
    assert flowengine("run", "two.yaml").code == 0
    said = flowengine("whatif", "--node", "say", "--prompt", "much longer", "--runs", "flow=two", "-q")
    assert (said.code, "the same command goes on where it was" in said.err) == (4, True), said.err + said.out
    assert "paused" in said.out
