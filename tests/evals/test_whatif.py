"""What recorded runs would have come to: recomputed where answers differ, and without an effect outside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flowengine import Flow
from flowengine.agents.tools.tool import ToolResult
from flowengine.core.budget import Budget
from flowengine.core.records import ModelCall
from flowengine.errors import FlowError, InactiveError, InputError
from flowengine.evals.counterfactual import WhatIf, WhatIfReport, change_node
from flowengine.journal.memory import MemoryStore
from flowengine.nodes.gateway import InactiveGateway

STEPS = """
def send(text):
    with open(FILE, "a") as file:
        file.write(text + "\\n")
    return "sent " + text
"""
FLOW = """flowengine: v1
name: letters
inputs: {topic: {type: string}, to: {type: string, default: ada}}
nodes:
  draft: {model: offline, prompt: "Write of {{ inputs.topic }}"}
  judge: {type: evaluation, model: offline, target: "{{ nodes.draft.output }}", needs: [draft]}
  kind: {type: condition, if: "nodes.draft.output | length > 0", then: sum, else: sum}
  sum: {model: offline, prompt: "Sum of {{ inputs.topic }}"}
  log: {type: function, call: "steps:send", with: {text: "log {{ inputs.topic }}"}, effect: external, needs: [draft]}
  send: {type: function, call: "steps:send", with: {text: "{{ nodes.draft.output }}"}, effect: external, needs: [log]}
  ask: {type: approval, message: "Archive?", routes: {"yes": archive, "no": {}}, needs: [send]}
  archive: {model: offline, prompt: "Archive {{ inputs.topic }}"}
outputs: {letter: "{{ nodes.draft.output }}", sum: "{{ nodes.sum.output }}"}
"""


@pytest.fixture
def flow(tmp_path: Path) -> Flow:
    (tmp_path / "flowengine.toml").write_text('allow_calls = ["steps"]\n')
    (tmp_path / "steps.py").write_text(f"FILE = {str(tmp_path / 'sent.txt')!r}\n{STEPS}")
    (tmp_path / "letters.yaml").write_text(FLOW)
    return Flow.from_yaml(tmp_path / "letters.yaml")


async def recorded(flow: Flow) -> MemoryStore:
    store = MemoryStore()
    for topic in ("tea", "rain"):
        run = await flow.run({"topic": topic}, store=store, labels={"team": "a"})
        assert run.status == "waiting"
        done = await flow.approve(run.id, "ask", "yes", store=store)
        assert done.status == "succeeded"
    return store


async def ask(store: MemoryStore, node: str, **change: Any) -> WhatIfReport:
    return await WhatIf(store=store, node=node, change=change, runs="flow=letters label.team=a").run()


async def test_what_does_not_differ_is_not_recomputed_and_effects_stand(flow: Flow, tmp_path: Path) -> None:
    store = await recorded(flow)
    sent = (tmp_path / "sent.txt").read_text()
    report = await ask(store, "draft", temperature=0.1)  # Asked anew, and answered alike.
    assert [each.status for each in report.rows] == ["succeeded"] * 2, report.rows
    totals = report.totals()
    assert (totals["answers_differ"], totals["outputs_differ"], totals["ended_at_an_effect"]) == (0, 0, 0)
    for row in report.rows:
        events = store.events(str(row.fork_id))
        asked = [each.node for each in events if type(getattr(each, "record", None)).__name__ == "ModelCall"]
        assert asked == ["draft"]
    assert (tmp_path / "sent.txt").read_text() == sent
    assert {each.labels["whatif"] for each in store.list() if "whatif" in each.labels} == {"draft"}


async def test_a_fork_ends_where_an_effect_would_be_another_one(flow: Flow, tmp_path: Path) -> None:
    store = await recorded(flow)
    sent = (tmp_path / "sent.txt").read_text()
    report = await ask(store, "draft", prompt="Write shortly of {{ inputs.topic }} and more")
    assert [(each.status, each.ended_at, each.answer_differs) for each in report.rows] == [
        ("ended at an effect", "send", True)
    ] * 2
    assert "its effect outside is not had again" in report.rows[0].error
    assert (tmp_path / "sent.txt").read_text() == sent
    assert len(report.rows[0].verdicts) == 1
    # The forks of the first question are no runs of the second.
    assert len((await ask(store, "sum", prompt="Another")).rows) == 2


async def test_a_node_that_nothing_depends_on_changes_its_output_alone(flow: Flow) -> None:
    store = await recorded(flow)
    report = await ask(store, "sum", prompt="Another sum of {{ inputs.topic }}")
    totals = report.totals()
    assert (totals["answers_differ"], totals["outputs_differ"], totals["ended"]) == (2, 2, 2)
    assert report.rows[0].before.calls == report.rows[0].after.calls == 4


async def test_what_cannot_be_asked_is_told_before_anything_is_paid(flow: Flow) -> None:
    store = await recorded(flow)
    await flow.run({"topic": "tea"}, store=store, labels={"eval": "an eval", "kind": "new"})
    runs = len(store.list())
    with pytest.raises(InputError, match="the flow has no node 'drat'; did you mean 'draft'"):
        await ask(store, "drat", model="offline")
    with pytest.raises(FlowError, match="modell"):
        await ask(store, "draft", modell="offline")
    with pytest.raises(InputError, match="there are no runs"):
        WhatIf(store=store, node="draft", change={"model": "x"}, runs="flow=other")
    with pytest.raises(InputError, match=r"but 1 of experiments, which are left out: label\.eval='an eval' asks"):
        WhatIf(store=store, node="draft", change={"model": "x"}, runs="status=any label.kind=new")
    with pytest.raises(InputError, match="say what is changed"):
        await ask(store, "draft")
    assert len(store.list()) == runs


async def test_asked_again_it_tries_the_forks_again_that_failed(flow: Flow, tmp_path: Path) -> None:
    steps = tmp_path / "steps.py"
    check = f"    if Path({str(tmp_path / 'down')!r}).exists():\n        raise OSError('down')\n"
    steps.write_text(f"from pathlib import Path\n\ndef trim(text):\n{check}    return text.strip()\n")
    text = FLOW[: FLOW.index("  judge:")].replace("letters", "trimmed")
    text += '  trim: {type: function, call: "steps:trim", with: {text: "{{ nodes.draft.output }}"}}\n'
    (tmp_path / "trimmed.yaml").write_text(text)
    store = MemoryStore()
    done = await Flow.from_yaml(tmp_path / "trimmed.yaml").run({"topic": "tea"}, store=store)
    assert done.status == "succeeded"
    asked = WhatIf(store=store, node="draft", change={"prompt": "Of {{ inputs.topic }}"}, runs="flow=trimmed")
    (tmp_path / "down").touch()
    assert [each.status for each in (await asked.run()).rows] == ["failed"]
    (tmp_path / "down").unlink()
    [row] = (await asked.run()).rows
    assert (row.status, row.answer_differs) == ("succeeded", True)
    calls = [each for each in store.events(str(row.fork_id)) if isinstance(getattr(each, "record", None), ModelCall)]
    assert len(calls) == 1


async def test_a_limit_leaves_runs_out(flow: Flow) -> None:
    store = await recorded(flow)
    asked = WhatIf(
        store=store, node="draft", change={"temperature": 0.1}, runs="flow=letters", concurrency=1,
        budget=Budget(model_calls=1),
    )  # fmt: skip
    report = await asked.run()
    assert [each.status for each in report.rows] == ["succeeded", "paused"]
    assert (report.is_whole, report.left, report.totals()["paused"]) == (False, 0, 1)
    assert (await asked.run()).is_whole


def test_a_node_inside_another_is_found_by_its_path() -> None:
    text = "nodes:\n  polish: {type: loop, nodes: {judge: {prompt: a}}}\n"
    changed = json.loads(change_node(text, "a.yaml", "polish.judge", {"model": "m"}))
    assert changed["nodes"]["polish"]["nodes"]["judge"] == {"prompt": "a", "model": "m"}


class Tool:
    name, effect = "mail", "external"


async def test_a_tool_with_an_effect_gives_what_it_gave_or_is_refused() -> None:
    from flowengine.core.records import ToolCall, tool_key

    arguments = {"to": "ada"}
    call = ToolCall("mail", arguments, "sent", effect="external", key=tool_key("mail", arguments))
    gateway = InactiveGateway(None, [call])  # type: ignore[arg-type]
    known: ToolResult = await gateway.call_tool(Tool(), arguments)  # type: ignore[arg-type]
    assert known.text == "sent"
    for again in (arguments, {"to": "eve"}):
        with pytest.raises(InactiveError, match="the effect of tool 'mail' is not had again"):
            await gateway.call_tool(Tool(), again)  # type: ignore[arg-type]


MAPPED = """flowengine: v1
name: mapped
nodes:
  each:
    type: map
    over: "[1, 2, 3]"
    nodes: {say: {model: offline, prompt: "{{ item }}"}}
    result: "{{ nodes.say.output }}"
  thanks: {model: offline, prompt: "Thank for {{ nodes.each.output | length }}"}
outputs: {said: "{{ nodes.thanks.output }}"}
"""


async def test_calls_inside_of_a_container_count_once_and_a_repeat_pays_nothing() -> None:
    store = MemoryStore()
    flow = Flow.from_text(MAPPED, "mapped.yaml")
    first = await flow.run(store=store, run_id="first")
    await flow.run(store=store, run_id="second", reuse=first.id)
    for runs in ("first", "second", "first"):
        report = await WhatIf(store=store, node="thanks", change={"prompt": "Thanks"}, runs=f"run={runs}").run()
        assert [(each.before.calls, each.after.calls) for each in report.rows] == [(4, 4)]
    assert report.totals()["paid_unpriced_calls"] == report.totals()["paid_usd"] == 0
