"""Imports declarative workflows that were written for these tests, and runs what came of them."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from flowengine import Flow
from flowengine.cli.main import main
from flowengine.core.templating.compile import compile_expression, compile_template
from flowengine.errors import DefinitionError
from flowengine.importers.agent_framework.power_fx import Fx, FxError
from flowengine.importers.form import ImportedProject
from flowengine.importers.formats import find_sources, read_source
from flowengine.importers.project_writer import write_project
from flowengine.importers.source_tree import SourceTree
from flowengine.journal.memory import MemoryStore
from flowengine.models.scripted import ScriptedModel
from flowengine.runtime.run import Run
from flowengine.testing.fakes import faked
from flowengine.testing.model_overrides import with_models


def workflow(actions: str) -> str:
    """A workflow; the actions are written at the margin."""
    head = "kind: Workflow\ntrigger:\n  kind: OnConversationStart\n  id: sample_flow\n  actions:\n"
    return head + "".join(f"    {line}\n" for line in actions.strip("\n").splitlines())


def run(folder: Path, inputs: dict[str, Any], **answers: list[Any]) -> tuple[Run, dict[str, ScriptedModel]]:
    models = {name: ScriptedModel(given) for name, given in answers.items()}
    flow = Flow.from_yaml(folder / "sample_flow.yaml")
    flow = with_models(flow, lambda slot, _: models.get(slot.node.rpartition(".")[2], ScriptedModel([])))
    return flow.run_sync(inputs, store=MemoryStore()), models


def lost(project: ImportedProject) -> list[str]:
    return [each.what for each in project.ledger.elements if each.outcome == "lost"]


def test_jumps_back_are_rounds_and_jumps_forward_leave_out_what_is_between(import_files) -> None:
    source = workflow("""
- {kind: SetVariable, id: init, variable: Local.Count, value: =0}
- {kind: SendActivity, id: say, activity: "Round {Local.Count}"}
- {kind: SetVariable, id: more, variable: Local.Count, value: =Local.Count + 1}
- kind: ConditionGroup
  id: check
  conditions:
    - condition: =Local.Count < 3
      id: again
      actions:
        - {kind: GotoAction, id: back, actionId: say}
    - condition: =Local.Count = 3 And System.LastMessage.Text = "skip"
      id: skip
      actions:
        - {kind: GotoAction, id: on, actionId: last}
  elseActions:
    - {kind: SendActivity, id: between, activity: Between}
- {kind: SendActivity, id: after, activity: After}
- {kind: SendActivity, id: last, activity: "Last {Upper(System.LastMessage.Text)}"}
""")
    project, written, folder = import_files({"flow.yaml": source})
    assert not written.errors
    assert not lost(project)
    rounds = ["Round 0", "Round 1", "Round 2"]
    done, _ = run(folder, {"message": "stay"})
    assert done.outputs == {"messages": [*rounds, "Between", "After", "Last STAY"]}
    done, _ = run(folder, {"message": "skip"})
    assert done.outputs == {"messages": [*rounds, "Last SKIP"]}


def test_an_end_inside_nested_loops_ends_the_flow(import_files) -> None:
    source = workflow("""
- kind: Foreach
  id: outer
  items: =["a", "b", "c"]
  index: Local.Index
  value: Local.Item
  actions:
    - kind: Foreach
      id: inner
      items: =[1, 2, 3]
      value: Local.Number
      actions:
        - kind: If
          id: odd
          condition: =Mod(Local.Number, 2) = 0
          then: [{kind: ContinueLoop, id: next}]
        - kind: If
          id: stop
          condition: =Local.Item = "b" && Local.Number = 3
          then: [{kind: EndWorkflow, id: end}]
        - {kind: SendActivity, id: say, activity: "{Local.Index}{Local.Item}{Local.Number}"}
- {kind: SendActivity, id: never, activity: never}
""")
    project, written, folder = import_files({"flow.yaml": source})
    assert not written.errors
    assert not lost(project)
    done, _ = run(folder, {})
    assert done.status == "succeeded"
    assert done.outputs == {"messages": ["0a1", "0a3", "1b1"]}


def test_agents_hear_their_conversation_and_their_answers_have_the_fields_that_are_read(import_files) -> None:
    source = workflow("""
- kind: InvokeAzureAgent
  id: sort
  conversationId: =System.ConversationId
  agent: {name: Sorter}
  output: {responseObject: Local.Kind, autoSend: false}
- kind: ConditionGroup
  id: urgent
  conditions:
    - condition: =Not(Local.Kind.IsUrgent)
      actions:
        - {kind: SetVariable, id: result, variable: Workflow.Outputs.Result, value: later}
        - {kind: EndConversation, id: end}
- kind: InvokeAzureAgent
  id: solve
  conversationId: =System.ConversationId
  agent: {name: Solver}
  input:
    messages: =UserMessage("Solve it for " & Local.Kind.Who)
    arguments: {Tone: kind}
  output: {messages: Local.Answer}
- {kind: SetVariable, id: keep, variable: Workflow.Outputs.Result, value: =MessageText(Local.Answer)}
""")
    agent = "kind: Prompt\nname: Solver\ninstructions: You solve {{things}}.\nmodel: {id: gpt-4o}\n"
    project, written, folder = import_files({"flow.yaml": source, "solver.yaml": agent})
    assert not written.errors
    assert not lost(project)
    kind = {"IsUrgent": True, "Who": "Mika"}
    done, models = run(folder, {"message": "It burns"}, sort=[kind], solve=["Water"])
    assert done.outputs == {"messages": ["Water"], "result": "Water"}
    [request] = models["solve"].requests
    assert "You solve {{things}}." in request.messages[0].content
    asked = request.messages[-1].content
    assert [asked.find(each) >= 0 for each in ("It burns", "Sorter: ", "Mika", "Solve it for Mika", "Tone: kind")] == [
        True
    ] * 5
    done, models = run(folder, {"message": "x"}, sort=[{"IsUrgent": False, "Who": ""}])
    assert (done.outputs["result"], done.nodes["solve"].status) == ("later", "skipped")


def test_a_question_is_asked_again_until_it_is_answered(import_files) -> None:
    source = workflow("""
- kind: Question
  id: ask
  property: Local.Answer
  prompt: {kind: Message, text: ["Say it again:"]}
  entity: {kind: StringPrebuiltEntity}
- kind: ConditionGroup
  id: same
  conditions:
    - condition: =Local.Answer <> "yes"
      actions:
        - {kind: GotoAction, id: again, actionId: ask}
  elseActions:
    - {kind: SendActivity, id: thanks, activity: "{System.LastMessage.Text}!"}
""")
    project, written, folder = import_files({"flow.yaml": source})
    assert not written.errors
    assert not lost(project)
    flow, store = Flow.from_yaml(folder / "sample_flow.yaml"), MemoryStore()
    done = flow.run_sync({"message": "hm"}, store=store)
    for answer in ("no", "yes"):
        assert done.status == "waiting"
        approve = partial(flow.approve, done.id, None, "answer", form={"answer": answer}, store=store)
        done = anyio.run(approve)
    assert done.outputs == {"messages": ["yes!"]}


def test_tables_texts_and_requests(import_files, monkeypatch: pytest.MonkeyPatch) -> None:
    source = workflow("""
- kind: SetVariable
  id: rows
  variable: Local.Rows
  value: '=[{name: "a", n: 1}, {name: "b", n: 2}]'
- kind: EditTableV2
  id: add
  itemsVariable: Local.Rows
  changeType: {kind: AddItemOperation, value: '={name: "c", n: 4}'}
- kind: SetVariable
  id: text
  variable: Local.Text
  value: '=Concat(ForAll(Local.Rows, $"- " & name & ": " & n), Value, "; ")'
- {kind: ParseValue, id: parse, variable: Local.Parsed, value: '[1, 2]', valueType: Table}
- {kind: SendActivity, id: say, activity: {Local.Text}}
- kind: SendActivity
  id: sum
  activity: '{Sum(Filter(Local.Rows, n > 1), n)} {First(Local.Rows).name} {Last(Local.Parsed)} {not this} {{nor}} this'
- kind: HttpRequestAction
  id: fetch
  url: '=Concatenate("https://api.example.com/items/", Local.Text)'
  headers: {Authorization: Bearer sk-secret, Accept: text/plain}
  response: Local.Body
""")
    project, written, folder = import_files({"flow.yaml": source})
    monkeypatch.setenv("IMPORTED_FETCH_AUTHORIZATION", "Bearer of-a-test")
    assert not written.errors
    assert not lost(project)
    assert project.settings["allow_http"] == ["https://api.example.com/ IMPORTED_FETCH_AUTHORIZATION"]
    assert "sk-secret" not in (folder / "sample_flow.yaml").read_text("utf-8")
    done, _ = run(folder, {})
    assert done.nodes["say"].output == "- a: 1; - b: 2; - c: 4"
    assert done.nodes["sum"].output == "6 a 2 {not this} {{nor}} this"


def test_the_made_up_answer_of_a_request_has_tables_where_formulas_go_through_them(import_files) -> None:
    source = workflow("""
- {kind: HttpRequestAction, id: fetch, url: "https://api.example.com/items", response: Local.Info}
- {kind: SetVariable, id: first, variable: Local.A, value: "=First(Filter(Local.Info.value, size > 1)).name"}
- {kind: SetVariable, id: count, variable: Local.B, value: =CountRows(Local.Info.rows)}
- {kind: SetVariable, id: each, variable: Local.C, value: '=Concat(ForAll(Local.Info.list, id), Value, ";")'}
- {kind: SetVariable, id: sum, variable: Local.D, value: '=Sum(Local.Info.parts, price)'}
- {kind: SendActivity, id: say, activity: "{Local.A} {Local.Info.owner.login}"}
""")
    project, written, folder = import_files({"flow.yaml": source})
    assert not written.errors
    [fetch] = [each for each in project.flows[0].steps if each.kind == "http"]
    assert fetch.sample == {
        "list": [{"id": "sample id"}],
        "owner": {"login": "sample login"},
        "parts": [{"price": 1.0}],
        "rows": ["sample rows"],
        "value": [{"name": "sample name", "size": 1.0}],
    }
    assert main(["test", str(folder)]) == 0


def test_what_cannot_be_said_is_lost_with_its_line(import_files) -> None:
    source = workflow("""
- {kind: SetVariable, id: search, variable: Local.A, value: '=Search(Local.Rows, "a", name)'}
- {kind: InvokeFunctionTool, id: call, functionName: get weather, arguments: {city: Bern}, output: {result: Local.W}}
- {kind: TeleportUser, id: away}
- {kind: GotoAction, id: wrong, actionId: nowhere}
- {kind: SendActivity, id: dead, activity: x}
""")
    project, written, folder = import_files({"flow.yaml": source})
    assert not written.errors
    found = [(each.what, each.origin.line) for each in project.ledger.elements if each.outcome == "lost"]
    assert found == [
        ("SetVariable 'search'", 6),
        ("function 'get weather'", 7),
        ("TeleportUser 'away'", 8),
        ("jump", 9),
        ("SendActivity 'dead'", 10),
    ]
    assert "def get_weather(city)" in (folder / "stubs.py").read_text("utf-8")


def test_a_prompt_agent_is_a_flow_with_one_agent(import_files) -> None:
    source = """\
kind: Prompt
name: sample flow
instructions: Answer in {{one}} word.
model:
  id: gpt-4o-mini
  options: {temperature: 0.4, topP: 0.5, unknown: 1}
tools:
  - {kind: function, name: getTime, description: The time, parameters: {properties: {zone: {kind: string}}}}
  - {kind: mcp, name: Docs, url: https://docs.example.com/mcp, allowedTools: [search], approvalMode: {kind: always}}
  - {kind: web_search}
outputSchema:
  properties: {word: {kind: string, required: true, description: The word}}
"""
    project, written, folder = import_files({"agent.yaml": source})
    assert not written.errors
    assert lost(project) == ["tool 'getTime'", "tool 'web_search'"]
    [step] = project.flows[0].steps
    assert step.keys["mcp_servers"] == [{"name": "docs", "url": "https://docs.example.com/mcp", "allow": ["search"]}]
    assert step.keys["approve"] == ["docs.*"]
    assert "- Flows may ask `https://docs.example.com/mcp`" in (folder / "IMPORT.md").read_text("utf-8")
    assert "def get_time(zone: str)" in (folder / "stubs.py").read_text("utf-8")


HOSTILE = [
    '{"kind": "Workflow", "trigger": {"actions": [{"kind": "CopyConversationMessages", "messages": "=[]"}]}}',
    workflow("- {kind: SendActivity, id: a, activity: x}\n- {kind: GotoAction, id: a, actionId: a}"),
    workflow("- {kind: SetVariable, id: a, variable: Local.A, value: '=1" + " & 2" * 4000 + "'}"),
    workflow("- {kind: InvokeMcpTool, id: a, serverUrl: 'https://x.example.com/', toolName: ''}"),
    "kind: Workflow\ntrigger: {kind: OnStart, actions: [x, null, {kind: 3}, {kind: If}, {kind: Foreach}]}\n",
    workflow("- {kind: SetVariable, id: '{{ x }}', variable: 'Local.{{ y }}', value: '={{ 7 * 7 }}'}"),
    workflow("- {kind: SendActivity, id: \"a\\u2028b\", activity: '{{ 7 * 7 }} {% raw %} {Local.X} {'}"),
    workflow("- {kind: SetVariable, id: a, variable: Local.A, value: '=" + "(" * 5000 + "'}"),
    workflow("- {kind: SetVariable, id: a, variable: Local.A, value: '=" + "If(" * 900 + "1" + ")" * 900 + "'}"),
    workflow("- {kind: GotoAction, id: a, actionId: a}\n- {kind: GotoAction, id: b, actionId: a}"),
    workflow("- {kind: BreakLoop, id: a}\n- {kind: SetVariable, id: b, variable: System.X, value: 1}"),
    workflow(
        "- {kind: HttpRequestAction, id: a, url: '=Local.Host'}\n- {kind: InvokeMcpTool, id: b, serverUrl: 'x y'}"
    ),
    "kind: Prompt\nname: ../../etc\ninstructions: '{% include 1 %}'\nmodel: [1]\ntools: {a: b}\n",
]


@pytest.mark.parametrize("source", HOSTILE)
def test_hostile_workflows_are_read_or_refused(write_files, tmp_path: Path, source: str) -> None:
    tree = SourceTree(write_files({"bad.yaml": source}))
    [found] = find_sources(tree, ".")
    try:
        project = read_source(tree, found)
    except DefinitionError:
        return
    assert not write_project(project, tmp_path / "target", force=True).errors


VALUES = {"a": 3, "t": "Ab", "rows": [{"n": 1, "k": "x"}, {"n": 2, "k": "y"}], "none": None}


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        ('Upper(Local.t) & "-" & Text(Local.a)', "AB-3"),
        ("1 + 2 * Local.a - -1", 8),
        ("(1 + 2) * 3 / 2", 4.5),
        ("Local.none + 1", 1),
        ('If(Local.a > 2, "big", Local.a > 1, "mid", "small")', "big"),
        ("IsBlank(Local.none) && !IsBlank(Local.t) Or false", True),
        ('Find("b", Local.t)', 2),
        ('IsBlank(Find("z", Local.t))', True),
        ('CountRows(Filter(Local.rows, k = "y"))', 1),
        ('LookUp(Local.rows, k = "y", n)', 2),
        ('LookUp(Local.rows, k = "y").n', 2),
        ("Sum(Local.rows, n) + Max(1, 5)", 8),
        ("Index(Local.rows, 2).k", "y"),
        ('Concat(Local.rows, k, "+")', "x+y"),
        ('{a: 1, "b c": [true, Blank()]}', {"a": 1, "b c": [True, None]}),
        ('$"{Local.t}!"', "Ab!"),
        ('Coalesce(Local.none, "", Local.t)', "Ab"),
        ('StartsWith(Local.t, "A")', True),
        ('"{{" & "}}"', "{{}}"),
        ("Not(Local.a = 3)", False),
        ('Value("7") % 2', None),
    ],
)
def test_formulas_give_what_power_fx_gives(formula: str, value: Any) -> None:
    fx = Fx(lambda path: f"v.{path[1]}" + "".join(f".{each}" for each in path[2:]))
    if value is None:
        with pytest.raises(FxError):
            fx.expression(formula)
    else:
        assert compile_expression(fx.expression(formula))({"v": VALUES}) == value
        if isinstance(value, bool):
            assert compile_expression(fx.condition(formula))({"v": VALUES}) is value


def test_rows_are_made_into_a_text() -> None:
    template = Fx(lambda path: f"v.{path[1]}").template('Concat(Local.rows, k & "=" & n, ", ")')
    assert compile_template(template)({"v": VALUES}) == "x=1, y=2"


def test_a_key_in_any_header_comes_from_the_environment(import_files) -> None:
    source = workflow("""
- kind: HttpRequestAction
  id: ask
  url: https://example.com/data
  headers: {x-functions-key: abc-123, Accept: text/plain}
  response: Local.Answer
""")
    _, written, folder = import_files({"flow.yaml": source})
    assert not written.errors
    assert not any("abc-123" in each.read_text("utf-8") for each in folder.rglob("*.*") if each.suffix != ".png")


def test_names_that_are_alike_once_they_are_cleaned_stay_apart(import_files) -> None:
    source = workflow("""
- {kind: SetVariable, id: one, variable: Workflow.Outputs.FooBar, value: 1}
- {kind: SetVariable, id: two, variable: Workflow.Outputs.foo_bar, value: 2}
- {kind: SetVariable, id: own, variable: Local.Messages, value: mine}
- {kind: SendActivity, id: say, activity: "{Local.Messages}"}
- {kind: SetVariable, id: env, variable: Local.Env, value: "=Env.'1st'"}
- {kind: InvokeFunctionTool, id: call, functionName: f, arguments: {fooBar: 1, foo_bar: 2, class: 3}}
""")
    project, written, folder = import_files({"flow.yaml": source})
    assert not written.errors
    assert project.flows[0].outputs == {
        "foo_bar": "{{ shared_state.foo_bar }}",
        "foo_bar_2": "{{ shared_state.foo_bar_2 }}",
        "messages": "{{ shared_state.messages_2 }}",
    }
    [call] = [each for each in project.flows[0].steps if each.id == "call"]
    assert call.arguments == {"foo_bar": 1, "foo_bar_2": 2, "class_2": 3}
    assert "def f(foo_bar, foo_bar_2, class_2)" in (folder / "stubs.py").read_text("utf-8")
    flow = faked(Flow.from_yaml(folder / "sample_flow.yaml"), functions={"call": "done"})
    done = flow.run_sync({}, store=MemoryStore())
    assert done.outputs == {"foo_bar": 1, "foo_bar_2": 2, "messages": ["mine"]}


def test_fields_whose_names_have_braces_are_read_and_written(import_files) -> None:
    source = workflow("""
- {kind: SetVariable, id: a, variable: Local.A, value: "={'x}}': 1, '{{ y': {'{%': 2}}"}
- {kind: SetVariable, id: b, variable: Workflow.Outputs.B, value: "=Local.A.'x}}' + Local.A.'{{ y'.'{%'"}
""")
    _, written, folder = import_files({"flow.yaml": source})
    assert not written.errors
    done, _ = run(folder, {})
    assert done.outputs == {"b": 3}


def test_comments_without_an_end_are_no_reason_to_wait(import_files) -> None:
    rows = "\n".join(
        f"- {{kind: SetVariable, id: a{at}, variable: Local.A, value: '={'/*a' * 6000}'}}" for at in range(30)
    )
    before = time.process_time()
    project, _, _ = import_files({"flow.yaml": workflow(rows)})
    assert len(lost(project)) == 30
    assert time.process_time() - before < 5


def test_a_server_of_several_tools_is_allowed_once(import_files) -> None:
    tool = "- {kind: mcp, name: docs, url: https://docs.example.com/mcp}"
    project, written, _ = import_files({"agent.yaml": f"kind: Prompt\nname: a\ntools:\n{tool}\n{tool}\n"})
    assert not written.errors
    assert project.settings["allow_mcp"] == ["https://docs.example.com/mcp"]


@pytest.mark.parametrize("call", ["Coalesce({}, 1)", "Find({}, Local.B)"])
def test_calls_inside_one_another_do_not_grow_without_end(import_files, call: str) -> None:
    formula = "Local.A"
    for _ in range(40):
        formula = call.format(formula)
    row = f"- {{kind: SetVariable, id: a, variable: Local.A, value: '={formula}'}}"
    project, written, _ = import_files({"flow.yaml": workflow(row)})
    assert not written.errors
    assert lost(project) == ["SetVariable 'a'"]


def test_numbers_that_are_too_large_and_long_formulas_cost_their_own_action_alone(import_files) -> None:
    formulas = ("1e999", "1" * 400, "Local.A" + " & Local.A" * 450)
    rows = [
        f"- {{kind: SetVariable, id: a{at}, variable: Local.A, value: '={each}'}}" for at, each in enumerate(formulas)
    ]
    project, written, _ = import_files({"flow.yaml": workflow("\n".join(rows))})
    assert not written.errors
    assert lost(project) == [f"SetVariable 'a{at}'" for at in range(3)]


def test_a_value_of_several_that_cannot_be_said_leaves_no_part_of_its_action(import_files) -> None:
    source = workflow("""
- kind: If
  id: check
  condition: =Local.X = 1
  then:
    - kind: SetMultipleVariables
      id: many
      assignments:
        - {variable: Local.A, value: =Local.X}
        - {variable: Local.B, value: =Search(Local.X)}
""")
    project, written, _ = import_files({"flow.yaml": source})
    assert not written.errors
    assert lost(project) == ["SetMultipleVariables 'many'"]


@pytest.mark.parametrize("url", ["https://user:pass@h.example/x", "https://a{Local.X}.example/x"])
def test_an_address_with_a_password_or_half_a_host_is_not_written(import_files, url: str) -> None:
    project, written, folder = import_files(
        {"flow.yaml": workflow(f"- {{kind: HttpRequestAction, id: a, url: '{url}'}}")}
    )
    assert not written.errors
    assert lost(project) == ["HttpRequestAction 'a'"]
    assert not any("pass@" in each.read_text("utf-8") for each in folder.glob("*.*"))


def test_arguments_of_an_agent_that_are_objects_are_written_as_values(import_files) -> None:
    row = "- {kind: InvokeAzureAgent, id: a, agent: {name: X}, input: {arguments: {q: {a: '=Local.X', b: 1}}}}"
    _, written, folder = import_files({"flow.yaml": workflow(row)})
    assert not written.errors
    _, models = run(folder, {"message": "m"}, a=["ok"])
    assert 'q: {"a":"","b":1}' in models["a"].requests[0].messages[-1].content.replace(": ", ":").replace(
        "q:", "q: "
    ).replace(", ", ",")


def test_kinds_are_read_in_any_case_and_what_a_function_gives_joins_its_conversation(import_files) -> None:
    source = workflow("""
- {kind: SETVARIABLE, id: first, variable: Local.Text, value: abc}
- kind: invokefunctiontool
  id: call
  functionName: look
  conversationId: =System.ConversationId
- {kind: InvokeAzureAgent, id: ask, conversationId: =System.ConversationId, agent: {name: Helper}}
""")
    project, written, folder = import_files({"flow.yaml": source})
    assert not written.errors
    assert lost(project) == ["function 'look'"]
    flow = faked(Flow.from_yaml(folder / "sample_flow.yaml"), functions={"call": "found it"})
    model = ScriptedModel(["done"])
    done = with_models(flow, lambda *_: model).run_sync({"message": "hi"}, store=MemoryStore())
    assert done.error is None
    assert "Tool: found it" in model.requests[0].messages[-1].content


def test_keys_of_actions_that_nothing_reads_are_told(import_files) -> None:
    source = workflow("""
- {kind: SendActivity, id: say, displayName: Say, activity: hello, speak: {voice: low}}
- kind: ConditionGroup
  id: check
  conditions:
    - {condition: true, id: yes, colour: red, actions: [{kind: SendActivity, id: inner, activity: x, volume: 3}]}
""")
    project, written, _ = import_files({"flow.yaml": source.replace("trigger:", "maxCost: 3\ntrigger:", 1)})
    assert not written.errors
    told = [(each.what, each.note) for each in project.ledger.elements if each.what.startswith("keys of")]
    assert told == [
        ("keys of ConditionGroup", "nothing here reads conditions.colour"),
        ("keys of SendActivity", "nothing here reads speak, volume"),
        ("keys of the workflow", "nothing here reads maxCost"),
    ]


def test_a_model_of_an_agent_gets_no_option_that_it_refuses(import_files) -> None:
    options = "{temperature: 0.4, maxOutputTokens: 9}"
    source = f"kind: Prompt\nname: a\ninstructions: x\nmodel: {{id: o3-mini, provider: OpenAI, options: {options}}}\n"
    project, written, _ = import_files({"a.yaml": source})
    assert not written.errors
    assert "`temperature` is left out, since" in next(
        each.note for each in project.ledger.elements if "model" in each.what
    )
