"""Imports apps of Dify that were written for these tests, and runs what came of them."""

from __future__ import annotations

import io
import json
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flowengine import Flow
from flowengine.agents.skills.sandbox.sandbox import verdict
from flowengine.cli.main import main
from flowengine.core.templating.compile import compile_template
from flowengine.errors import DefinitionError
from flowengine.importers.dify import carried_steps
from flowengine.importers.dify.selectors import escape_text
from flowengine.importers.flow_text import quote
from flowengine.importers.form import ImportedProject
from flowengine.importers.formats import find_sources, read_source
from flowengine.importers.project_writer import write_project
from flowengine.importers.source_tree import SourceTree
from flowengine.journal.memory import MemoryStore
from flowengine.models.scripted import ScriptedModel
from flowengine.runtime.run import Run
from flowengine.testing.fakes import faked
from flowengine.testing.model_overrides import with_models
from tests.support.require import missing

MODEL = {"provider": "langgenius/openai/openai", "name": "gpt-4o-mini", "completion_params": {"temperature": 0.3}}


def node(id: str, type: str, parent: str | None = None, **data: Any) -> dict[str, Any]:
    return {"id": id, "data": {"type": type, "title": id, **data}, **({"parentId": parent} if parent else {})}


def start(*names: str) -> dict[str, Any]:
    rows = [{"variable": each, "label": each, "type": "text-input", "required": True} for each in names]
    return node("start", "start", variables=rows)


def llm(id: str, text: str, **data: Any) -> dict[str, Any]:
    return node(id, "llm", model=MODEL, prompt_template=[{"role": "user", "text": text}], **data)


def app(nodes: list[dict[str, Any]], edges: str, mode: str = "workflow", **workflow: Any) -> str:
    """An app as JSON, which is YAML; edges as `a>b c:handle>d`."""
    rows = []
    for edge in edges.split():
        source, target = edge.split(">")
        source, _, handle = source.partition(":")
        rows.append({"source": source, "target": target, "sourceHandle": handle or "source"})
    graph = {"nodes": nodes, "edges": rows}
    return json.dumps(
        {"app": {"mode": mode, "name": "Sample App"}, "kind": "app", "workflow": {"graph": graph, **workflow}}
    )


def run(folder: Path, inputs: dict[str, Any], **answers: list[Any]) -> tuple[Run, dict[str, ScriptedModel]]:
    models = {name: ScriptedModel(given) for name, given in answers.items()}
    flow = with_models(
        Flow.from_yaml(folder / "sample_app.yaml"),
        lambda slot, _: models.get(slot.node.rpartition(".")[2], ScriptedModel([])),
    )
    return flow.run_sync(inputs, store=MemoryStore()), models


def lost(project: ImportedProject) -> list[str]:
    return [each.what for each in project.ledger.elements if each.outcome == "lost"]


BRANCHES = app(
    [
        start("text", "tone"),
        node(
            "check",
            "if-else",
            cases=[
                {
                    "case_id": "a",
                    "logical_operator": "and",
                    "conditions": [
                        {"variable_selector": ["start", "text"], "comparison_operator": "contains", "value": "refund"},
                        {
                            "variable_selector": ["start", "tone"],
                            "comparison_operator": "not empty",
                            "varType": "string",
                        },
                    ],
                },
                {
                    "case_id": "b",
                    "conditions": [
                        {"variable_selector": ["start", "text"], "comparison_operator": "start with", "value": "Hi"}
                    ],
                },
            ],
        ),
        llm("refund", "Refund, {{#start.tone#}}: {{#start.text#}} {{x}} {% y %}"),
        node(
            "greet",
            "template-transform",
            template="Hello {{ who | upper }}",
            variables=[{"variable": "who", "value_selector": ["start", "tone"]}],
        ),
        node("pick", "variable-aggregator", variables=[["refund", "text"], ["greet", "output"]]),
        node(
            "after",
            "template-transform",
            template="{{ a }}|{{ b }}",
            variables=[
                {"variable": "a", "value_selector": ["pick", "output"]},
                {"variable": "b", "value_selector": ["greet", "output"]},
            ],
        ),
        node("end", "end", outputs=[{"variable": "Result", "value_selector": ["after", "output"]}]),
        node("other", "end", outputs=[{"variable": "Result", "value_selector": ["start", "text"]}]),
    ],
    "start>check check:a>refund check:b>greet check:false>other refund>pick greet>pick pick>after after>end",
)


def test_branches_meet_again_as_in_dify(import_files) -> None:
    project, written, folder = import_files({"app.yml": BRANCHES})
    assert not written.errors
    assert not lost(project)
    done, models = run(folder, {"text": "refund me", "tone": "kind"}, refund=["done"])
    assert done.outputs == {"result": "done|"}
    assert models["refund"].requests[0].messages[-1].content.endswith("Refund, kind: refund me {{x}} {% y %}")
    done, _ = run(folder, {"text": "Hi there", "tone": "kind"})
    assert done.outputs == {"result": "Hello KIND|Hello KIND"}
    done, _ = run(folder, {"text": "refund", "tone": ""})
    assert done.outputs == {"result": "refund"}
    assert {name for name, each in done.nodes.items() if each.status == "skipped"} == {
        "refund",
        "greet",
        "pick",
        "after",
    }


def test_a_node_behind_a_branch_that_was_not_taken_does_not_run_for_what_it_reads(import_files) -> None:
    source = app(
        [
            start("text"),
            llm("first", "{{#start.text#}}"),
            node("check", "if-else", cases=[{"case_id": "true", "conditions": [
                {"variable_selector": ["first", "text"], "comparison_operator": "is", "value": "yes"}]}]),
            llm("second", "Go on"),
            node("show", "answer", answer="{{#first.text#}} {{#second.text#}}"),
            node("no", "answer", answer="no"),
        ],
        "start>first first>check check:true>second second>show check:false>no",
        mode="advanced-chat",
    )  # fmt: skip
    _, written, folder = import_files({"app.yml": source})
    assert not written.errors
    done, _ = run(folder, {"query": "", "text": "a"}, first=["nope"])
    assert done.outputs == {"answer": "no"}
    assert done.nodes["show"].status == "skipped"
    done, _ = run(folder, {"query": "", "text": "a"}, first=["yes"], second=["two"])
    assert done.outputs == {"answer": "yes two"}


def test_an_iteration_a_classifier_and_an_extractor(import_files) -> None:
    source = app(
        [
            start("text"),
            node("split", "parameter-extractor", model=MODEL, query=["start", "text"], parameters=[
                {"name": "parts", "type": "array[string]", "description": "the parts", "required": True}]),
            node("each", "iteration", iterator_selector=["split", "parts"], output_selector=["say", "text"]),
            node("begin", "iteration-start", parent="each"),
            {**llm("say", "{{#each.index#}}: {{#each.item#}} of {{#start.text#}}"), "parentId": "each"},
            node("sort", "question-classifier", model=MODEL, query_variable_selector=["start", "text"], classes=[
                {"id": "1", "name": "Bills & co"}, {"id": "2", "name": "Other"}]),
            node("bill", "template-transform", template="{{ rows | join(',') }}/{{ name }}", variables=[
                {"variable": "rows", "value_selector": ["each", "output"]},
                {"variable": "name", "value_selector": ["sort", "class_name"]}]),
            node("end", "end", outputs=[{"variable": "out", "value_selector": ["bill", "output"]}]),
        ],
        "start>split split>each begin>say each>sort sort:1>bill bill>end",
    )  # fmt: skip
    project, written, folder = import_files({"app.yml": source})
    assert not written.errors
    assert not lost(project)
    route = {"next_route": "Bills & co", "confidence": 0.9, "reasoning": "so"}
    done, models = run(folder, {"text": "a, b"}, split=[{"parts": ["a", "b"]}], say=["A", "B"], sort=[route])
    assert done.outputs == {"out": "A,B/Bills & co"}
    assert [each.messages[-1].content for each in models["say"].requests] == [
        "User input: 0: a of a, b",
        "User input: 1: b of a, b",
    ]


def test_an_iteration_of_an_older_file_begins_with_the_node_that_it_names(import_files) -> None:
    named = {"each": {"start_node_id": "say"}, "say": {}}
    marked = {"each": {}, "say": {"isIterationStart": True}}
    for more in (named, marked):
        source = app(
            [
                start("text"),
                node("split", "parameter-extractor", model=MODEL, query=["start", "text"], parameters=[
                    {"name": "parts", "type": "array[string]", "description": "the parts", "required": True}]),
                node("each", "iteration", iterator_selector=["split", "parts"],
                    output_selector=["tidy", "output"], **more["each"]),
                {**llm("say", "{{#each.item#}}", iteration_id="each", **more["say"]), "parentId": "each"},
                node("tidy", "template-transform", parent="each", template="<{{ a }}>", variables=[
                    {"variable": "a", "value_selector": ["say", "text"]}]),
                node("end", "end", outputs=[{"variable": "out", "value_selector": ["each", "output"]}]),
            ],
            "start>split split>each say>tidy each>end",
        )  # fmt: skip
        project, written, folder = import_files({"app.yml": source})
        assert not written.errors
        assert not lost(project)
        done, _ = run(folder, {"text": "a, b"}, split=[{"parts": ["a", "b"]}], say=["A", "B"])
        assert done.outputs == {"out": ["<A>", "<B>"]}


def test_a_node_that_nothing_leads_to_is_lost(import_files) -> None:
    source = app(
        [
            start("text"),
            node("split", "parameter-extractor", model=MODEL, query=["start", "text"], parameters=[
                {"name": "parts", "type": "array[string]", "required": True}]),
            llm("say", "{{#start.text#}}"),
            llm("stray", "{{#start.text#}}"),
            node("each", "iteration", iterator_selector=["split", "parts"], output_selector=["inner", "text"]),
            {**llm("inner", "{{#each.item#}}"), "parentId": "each"},
            node("end", "end", outputs=[{"variable": "out", "value_selector": ["say", "text"]}]),
        ],
        "start>split split>say say>each each>end",
    )  # fmt: skip
    project, written, _ = import_files({"app.yml": source})
    assert not written.errors
    assert lost(project) == ["llm 'stray'", "llm 'inner'"]


@pytest.mark.parametrize(
    ("row", "memory", "prompt"),
    [
        ("An example", {}, "user: An example\n\nuser: my question"),
        ("An example", {"query_prompt_template": "Q: {{#sys.query#}}"}, "user: An example\n\nuser: Q: my question"),
        ("{{#sys.query#}}", {}, "my question"),
    ],
)
def test_what_the_user_asks_follows_the_turns_of_a_prompt_with_memory(import_files, row, memory, prompt) -> None:
    say = llm("say", row, memory={"window": {"enabled": False}, **memory})
    tell = node("tell", "answer", answer="{{#say.text#}}")
    source = app([start(), say, tell], "start>say say>tell", "advanced-chat")
    _, written, folder = import_files({"app.yml": source})
    assert not written.errors
    _, models = run(folder, {"query": "my question"}, say=["yes"])
    assert models["say"].requests[0].messages[-1].content == f"User input: {prompt}"


def test_packages_that_code_imports_are_named(import_files) -> None:
    code = "import json, pandas\nfrom numpy.linalg import norm\ndef main():\n    return {'r': 1}\n"
    source = app([start(), node("make", "code", code_language="python3", code=code)], "start>make")
    project, _, _ = import_files({"app.yml": source})
    [told] = [each for each in project.ledger.elements if each.what == "code 'make'"]
    assert (told.outcome, told.note) == ("changed", "it needs numpy, pandas to be installed")


def test_a_loop_counts_and_stops_at_its_condition(import_files) -> None:
    source = app(
        [
            start("step"),
            node("turns", "loop", loop_count=9, logical_operator="and", break_conditions=[
                {"variable_selector": ["turns", "n"], "comparison_operator": "≥", "value": "3", "varType": "number"}],
                loop_variables=[{"label": "n", "var_type": "number", "value_type": "constant", "value": "1"}]),
            node("begin", "loop-start", parent="turns"),
            node("add", "assigner", parent="turns", items=[
                {"variable_selector": ["turns", "n"], "operation": "+=", "input_type": "constant", "value": 1}]),
            node("end", "end", outputs=[{"variable": "n", "value_selector": ["turns", "n"]}]),
        ],
        "start>turns begin>add turns>end",
    )  # fmt: skip
    project, written, folder = import_files({"app.yml": source})
    assert not written.errors
    assert not lost(project)
    done, _ = run(folder, {"step": "1"})
    assert done.outputs == {"n": 3}
    assert done.nodes["turns"].output["iterations"] == 2


def test_state_requests_and_keys(import_files) -> None:
    source = app(
        [
            start("id"),
            node("ask", "http-request", method="post", url="https://shop.example.com/v1/{{#start.id#}}",
                headers="Accept: text/plain\nX-Api-Key: sk-very-secret", params="q:{{#start.id#}}",
                authorization={"type": "api-key", "config": {"type": "bearer", "api_key": "{{#env.TOKEN#}}"}},
                body={"type": "json", "data": [{"value": '{"a": "x {{#start.id#}}", "b": {{#start.id#}}, "c": [1]}'}]}),
            node("keep", "assigner", items=[
                {"operation": "append", "variable_selector": ["conversation", "seen"],
                    "value": ["ask", "status_code"]}]),
            node("show", "answer", answer="{{#ask.body#}} {{#conversation.seen#}}"),
        ],
        "start>ask ask>keep keep>show",
        mode="advanced-chat",
        conversation_variables=[{"name": "seen", "value_type": "array[number]", "value": [1]}],
        environment_variables=[{"name": "TOKEN", "value_type": "secret", "value": "sk-hidden"}],
    )  # fmt: skip
    project, written, folder = import_files({"app.yml": source})
    assert not written.errors
    assert not lost(project)
    texts = "".join(path.read_text("utf-8") for path in folder.rglob("*") if path.is_file() and path.suffix != ".png")
    assert "sk-very-secret" not in texts
    assert "sk-hidden" not in texts
    [step] = [each for each in project.flows[0].steps if each.id == "ask"]
    assert step.keys["headers_env"] == {"X-Api-Key": "IMPORTED_ASK_X_API_KEY", "Authorization": "IMPORTED_TOKEN"}
    assert step.keys["json"] == {"a": "x {{ inputs.id }}", "b": "{{ inputs.id }}", "c": [1]}
    assert project.settings["allow_http"] == ["https://shop.example.com/ IMPORTED_ASK_X_API_KEY IMPORTED_TOKEN"]


def test_searches_of_plugins_are_requests_to_the_services_that_they_asked(import_files) -> None:
    given = {"query": {"type": "mixed", "value": "tea {{#start.text#}}"}}
    configured = {"max_results": 3, "include_images": 0, "include_domains": "a.example, b.example", "topic": None}
    address = {"url": {"type": "mixed", "value": "https://x.example/{{#start.text#}}"}}
    source = app(
        [
            start("text"),
            node("search", "tool", tool_name="tavily_search", tool_parameters=given, tool_configurations=configured),
            node("known", "tool", tool_name="wikipedia_search", tool_configurations={"language": "de"},
                tool_parameters={"query": {"type": "variable", "value": ["start", "text"]}}),
            node("page", "tool", tool_name="jina_reader", tool_parameters=address),
            node("end", "end", outputs=[{"variable": "text", "value_selector": ["search", "text"]},
                {"variable": "first", "value_selector": ["known", "json"]}]),
        ],
        "start>search search>known known>page page>end",
    )  # fmt: skip
    project, written, folder = import_files({"app.yml": source})
    assert not written.errors
    assert not lost(project)
    assert list(project.environment) == ["TAVILY_AUTHORIZATION"]
    search, known, page = project.flows[0].steps[-3:]
    assert search.keys["json"] == {
        "query": '{{ ("tea " ~ inputs.text) }}',
        "max_results": 3,
        "include_images": False,
        "include_domains": ["a.example", "b.example"],
    }
    assert known.keys["url"] == "https://de.wikipedia.org/w/api.php"
    assert page.keys["url"] == '{{ "https://r.jina.ai/" ~ ("https://x.example/" ~ inputs.text) }}'
    answers = {"search": {"body": {"results": [1]}}, "known": {"body": {"query": {}}}, "page": {"body": "text"}}
    flow = faked(Flow.from_yaml(folder / "sample_app.yaml"), http=answers)
    done = flow.run_sync({"text": "green"}, store=MemoryStore())
    assert done.error is None
    assert json.loads(done.outputs["text"]) == {"results": [1]}
    assert done.outputs["first"] == [{"query": {}}]


def test_the_flow_test_of_an_import_passes_where_fields_of_made_up_objects_are_read(import_files) -> None:
    text = "{% for each in rows %}{{ each.url }}{% endfor %}"
    source = app(
        [
            start("text"),
            node("find", "code", code_language="python3", code="def main():\n    return {'rows': []}", variables=[],
                outputs={"rows": {"type": "array[object]"}}),
            node("show", "template-transform", template=text,
                variables=[{"variable": "rows", "value_selector": ["find", "rows"]}]),
            node("end", "end", outputs=[{"variable": "text", "value_selector": ["show", "output"]}]),
        ],
        "start>find find>show show>end",
    )  # fmt: skip
    _, written, folder = import_files({"app.yml": source})
    assert not written.errors
    assert main(["test", str(folder)]) == 0


def test_what_cannot_be_done_is_a_stub_that_says_so(import_files) -> None:
    source = app(
        [
            start("text"),
            node("js", "code", code_language="javascript", code="function main({a}) { return {r: a} }",
                variables=[{"variable": "a", "value_selector": ["start", "text"]}], outputs={"r": {"type": "string"}}),
            node("find", "tool", tool_name="search", provider_id="vendor/search", tool_parameters={
                "query": {"type": "mixed", "value": "about {{#js.r#}}"}}),
            node("end", "end", outputs=[{"variable": "out", "value_selector": ["find", "text"]}]),
        ],
        "start>js js>find find>end",
    )  # fmt: skip
    project, written, folder = import_files({"app.yml": source})
    assert not written.errors
    assert lost(project) == ["code 'js'", "tool 'find'"]
    assert all(each.by_hand for each in project.ledger.elements if each.outcome == "lost")
    stubs = (folder / "stubs.py").read_text("utf-8")
    assert "def js(a)" in stubs
    assert "def find(query)" in stubs
    assert "# function main" in stubs
    done, _ = run(folder, {"text": "x"})
    assert done.status == "failed"
    assert "NotImplementedError" in str(done.nodes["js"].error)


def test_code_is_the_body_of_a_function_and_the_clock_goes_along(import_files) -> None:
    code = (
        "from math import floor\nN = 2\ndef main(Text, n: float):\n    return {'r': json.dumps([Text, floor(n) * N])}\n"
    )
    source = app(
        [
            start("text"),
            node("make", "code", code_language="python3", code=code, outputs={"r": {"type": "string"}}, variables=[
                {"variable": "Text", "value_selector": ["start", "text"]},
                {"variable": "n", "value_selector": ["start", "text"]}]),
            node("day", "tool", tool_name="weekday", provider_id="time", tool_parameters={
                "year": {"type": "constant", "value": 2024}, "month": {"type": "constant", "value": 2},
                "day": {"type": "mixed", "value": "{{#start.text#}}"}}),
            {**llm("think", "{{#make.r#}}"), "data": {**llm("think", "{{#make.r#}}")["data"], "model": {
                "provider": "openai", "name": "o1-mini", "completion_params": {"temperature": 0.7, "top_p": 0.5}}}},
            node("end", "end", outputs=[{"variable": "day", "value_selector": ["day", "text"]}]),
        ],
        "start>make make>think start>day day>end",
    )  # fmt: skip
    project, written, folder = import_files({"app.yml": source})
    assert not written.errors
    assert not lost(project)
    [made] = [each for each in project.flows[0].steps if each.kind == "code"]
    scope: dict[str, Any] = {}
    lines = "".join(f"    {line}\n" for line in made.keys["code"].splitlines())
    exec(f"def body({', '.join(made.arguments)}):\n{lines}", scope)
    assert scope["body"]("a", 3.9) == {"r": '["a", 6]'}
    [think] = [each for each in project.flows[0].steps if each.kind == "agent"]
    assert not {"temperature", "top_p"} & set(think.keys)
    assert (folder / "steps.py").read_text("utf-8") == Path(carried_steps.__file__).read_text("utf-8")
    assert carried_steps.weekday(2024, 2, 29) == "Thursday"
    assert carried_steps.localtime_to_timestamp("1970-01-02 00:00:00") == 86400
    assert carried_steps.timestamp_to_localtime(0, "Asia/Tokyo") == "1970-01-01 09:00:00"
    assert carried_steps.timezone_conversion("2024-01-01 00:00:00", "UTC", "Asia/Tokyo") == "2024-01-01 09:00:00"


@pytest.mark.anyio
async def test_the_functions_that_go_along_read_files_and_search_a_folder(tmp_path: Path, monkeypatch) -> None:
    text = io.BytesIO()
    with zipfile.ZipFile(text, "w") as archive:
        archive.writestr("word/document.xml", "<w:p><w:t>One</w:t></w:p><w:p><w:t>Two</w:t></w:p>")
    files = [(b"plain", "text/plain"), (text.getvalue(), "application/zip")]
    given = [SimpleNamespace(read_bytes=lambda data=data: data, media_type=kind) for data, kind in files]
    assert carried_steps.read_document(given) == ["plain", "One\nTwo\n"]
    assert carried_steps.read_document(None) == ""
    monkeypatch.setattr(carried_steps, "__file__", str(tmp_path / "steps.py"))
    with pytest.raises(FileNotFoundError, match="put the documents"):
        await carried_steps.search_documents("tea", "knowledge")
    (tmp_path / "knowledge").mkdir()
    (tmp_path / "knowledge" / "tea.md").write_text("Green tea is brewed at eighty degrees.\n", "utf-8")
    (tmp_path / "knowledge" / "cars.md").write_text("Cars have wheels.\n", "utf-8")
    [found] = await carried_steps.search_documents("green tea", "knowledge", 1)
    assert "eighty degrees" in found["content"]


@pytest.mark.parametrize(("mode", "form"), [("chat", "text-input"), ("agent-chat", "select")])
def test_a_basic_app_is_one_agent(import_files, mode: str, form: str) -> None:
    config = {
        "model": MODEL,
        "pre_prompt": "Speak {{tongue}}. Keep {{other}} and {{#x#}}.",
        "user_input_form": [{form: {"variable": "tongue", "label": "Tongue", "required": True, "options": ["Welsh"]}}],
        "agent_mode": {
            "enabled": mode == "agent-chat",
            "tools": [{"tool_name": "current_time", "provider_id": "time"}],
        },
    }
    source = json.dumps({"app": {"mode": mode, "name": "Sample App"}, "model_config": config})
    project, written, folder = import_files({"app.yml": source})
    assert not written.errors
    assert not lost(project)
    done, models = run(folder, {"query": "Hello", "tongue": "Welsh"}, answer=["Shwmae"])
    assert done.outputs == {"answer": "Shwmae"}
    system, user = models["answer"].requests[0].messages
    assert "Speak Welsh. Keep {{other}} and {{#x#}}." in system.content
    assert user.content.endswith("Hello")


def test_hostile_apps_are_read_or_refused_and_never_run(import_files, write_files) -> None:
    strange = "a\u2028b {{ 7 * 7 }} {% for x in range(9) %} {# no #} {{#start.nothing#}} {"
    source = app(
        [
            start("text", "Größe {{x}}", "class"),
            {"id": "start", "data": {"type": "llm", "title": "again"}},
            {**llm("a", strange), "data": {**llm("a", strange)["data"], "title": "{{ evil }}\u2028",
                "model": {"provider": "../../x", "name": "m\nx"}}},
            node("b", "code", code_language="python3", code="def main(a):\n  return {'r': open('/etc/passwd').read()}",
                variables=[{"variable": "a", "value_selector": ["c", "text"]}]),
            llm("c", "{{#a.text#}} {{#b.r#}}", retry_config={"retry_enabled": True, "max_retries": 10**9}),
            node("d", "iteration", parent="d", iterator_selector=["d", "item"], output_selector=[]),
            node("e", "if-else", cases=[{"case_id": "x", "conditions": [
                {"variable_selector": ["a", "text"], "comparison_operator": "is", "value": '" }} {{ 1 ~ "'}]}]),
            node("f", "answer", answer=None),
            node("g", "nobody-knows", title=None),
            node("h", "tool", tool_name={"a": []}),
            {"id": None, "data": None},
            "text",
        ],
        "start>a a>b b>c c>b a>a c>nowhere c>e e:x>f e:false>g",
        mode="advanced-chat",
        conversation_variables=[None, {"name": 3, "value": {"x": "{{ 1 }}"}}],
        features={"opening_statement": "{{ x }}"},
    )  # fmt: skip
    project, written, folder = import_files({"app.yml": source})
    assert not written.errors
    for text in (
        "app: &a [*a]\nmode: chat\ngraph: {}",
        "app: {mode: workflow}\nworkflow: {graph: " + "[" * 400 + "]" * 400 + "}",
    ):
        tree = SourceTree(write_files({"bad.yml": text}))
        for found in [each for each in find_sources(tree, ".", "dify") if each.file == "bad.yml"]:
            with pytest.raises(DefinitionError):
                read_source(tree, found)
    if not verdict(folder).holds:  # Its code runs in a sandbox only.
        missing(f"there is no sandbox: {verdict(folder).reason}")
    agents = [each.id for each in project.flows[0].every_step() if each.kind == "agent"]
    given = {name: "" for name, field in project.flows[0].inputs.items() if "default" not in field}
    _, models = run(folder, given, **{each: ["ok"] for each in agents})
    assert strange.replace("{{#start.nothing#}}", "") in models[agents[0]].requests[0].messages[-1].content


def test_an_answer_of_the_server_holds_the_app_and_pairs_of_escapes_are_characters(import_files) -> None:
    inner = (
        "app:\n  mode: workflow\n  name: Sample App\n  icon: \U0001f916\nworkflow:\n  graph: {nodes: [], edges: []}\n"
    )
    project, written, _ = import_files({"app.yml": json.dumps({"data": inner})})
    assert not written.errors
    assert project.flows[0].name == "sample_app"


@pytest.mark.parametrize("text", ["{{ a }}", "{", "{{{%", "{#", "}} {{", "a{"])
def test_texts_stay_texts(text: str) -> None:
    assert compile_template(escape_text(text) + "{{ 1 }}")({}) == f"{text}1"
    assert compile_template("{{ " + quote(text) + " }}x")({}) == f"{text}x"


def test_choices_of_the_same_name_lead_to_their_own_nodes(import_files) -> None:
    titles = ("Go", "Go", "a\nb", "{{ x }}", "timeout", "")
    actions = [{"id": str(at), "title": each} for at, each in enumerate(titles)]
    classes = [{"id": str(at), "name": each} for at, each in enumerate(("class_2", "", "class_2", "class_2_2"))]
    source = app(
        [
            start("text"),
            node("ask", "human-input", form_content="x", user_actions=actions),
            node("sort", "question-classifier", model=MODEL, classes=classes,
                query_variable_selector=["start", "text"]),
            *(node(f"asked_{each}", "answer", answer="x") for each in (*range(6), "t")),
            *(node(f"sorted_{each}", "answer", answer="x") for each in range(4)),
        ],
        "start>ask start>sort ask:__timeout>asked_t "
        + " ".join(f"ask:{each}>asked_{each}" for each in range(6))
        + " "
        + " ".join(f"sort:{each}>sorted_{each}" for each in range(4)),
        mode="advanced-chat",
    )  # fmt: skip
    project, written, _ = import_files({"app.yml": source})
    assert not written.errors
    steps = {each.id: each for each in project.flows[0].steps}
    led = [each["to"] for each in steps["ask"].keys["routes"].values()]
    assert led == [*(f"asked_{each}" for each in range(6)), "asked_t"]
    assert [each["to"] for each in steps["sort"].keys["routes"].values()] == [f"sorted_{each}" for each in range(4)]


def test_cases_without_an_id_of_their_own_keep_their_conditions(import_files) -> None:
    rows = [{"variable_selector": ["start", "text"], "comparison_operator": "is", "value": each} for each in "abc"]
    cases = [{"conditions": [rows[0]]}, {"conditions": [rows[1]]}, {"case_id": "false", "conditions": [rows[2]]}]
    source = app(
        [start("text"), node("check", "if-else", cases=cases), node("no", "answer", answer="no")],
        "start>check check:false>no",
        mode="advanced-chat",
    )
    project, written, _ = import_files({"app.yml": source})
    assert not written.errors
    [check] = [each for each in project.flows[0].steps if each.id == "check"]
    assert [each["if"] for each in check.keys["cases"]] == [f'inputs.text == "{each}"' for each in "abc"]
    assert check.keys["else"] == "no"


def test_defaults_of_numbers_are_numbers(import_files) -> None:
    rows = [
        {"variable": f"n{at}", "type": "number", "default": each} for at, each in enumerate(("5", "-1.5", True, "x"))
    ]
    source = app(
        [node("start", "start", variables=rows), node("show", "answer", answer="x")],
        "start>show",
        mode="advanced-chat",
        conversation_variables=[{"name": "count", "value_type": "number", "value": True}],
    )
    project, written, _ = import_files({"app.yml": source})
    assert not written.errors
    flow = project.flows[0]
    assert [flow.inputs[f"n{at}"]["default"] for at in range(4)] == [5, -1.5, 0, 0]
    assert flow.shared_state["count"]["default"] == 0


def test_fields_whose_names_have_braces_and_values_that_are_nothing_are_written(import_files) -> None:
    source = app(
        [
            start("text"),
            node("make", "code", code_language="python3", variables=[], outputs={"a}}{{": {"type": "string"}},
                code="def main():\n    return {'a}}{{': 1}"),
            node("show", "template-transform", template="{{ a }}",
                variables=[{"variable": "a", "value_selector": ["make", "a}}{{"]}]),
            node("keep", "assigner", items=[{"variable_selector": ["conversation", "seen"], "operation": "append",
                "input_type": "constant", "value": None}]),
            node("end", "answer", answer="{{#conversation.seen#}}"),
        ],
        "start>make make>show show>keep keep>end",
        mode="advanced-chat",
        conversation_variables=[{"name": "seen", "value_type": "array[string]", "value": []}],
    )  # fmt: skip
    _, written, folder = import_files({"app.yml": source})
    assert not written.errors
    flow = faked(Flow.from_yaml(folder / "sample_app.yaml"), functions={"make": {"a}}{{": "x"}})
    done = flow.run_sync({"query": "", "text": ""}, store=MemoryStore())
    assert done.error is None
    assert (done.nodes["show"].output, done.nodes["end"].output) == ("x", [None])


def test_a_template_that_code_renders_keeps_its_lines(import_files) -> None:
    template = "{% macro m(x) %}{{ x }}{% endmacro %}{% if a %}\nyes\n{% endif %}\n{{ m(a) }}"
    rows = [{"variable": "a", "value_selector": ["start", "text"]}]
    source = app([start("text"), node("show", "template-transform", template=template, variables=rows)], "start>show")
    _, written, folder = import_files({"app.yml": source})
    assert not written.errors
    done, _ = run(folder, {"text": "b"})
    assert done.nodes["show"].output == "\nyes\n\nb"


def test_a_graph_with_very_many_edges_is_read_in_time(write_files) -> None:
    classes = [{"id": "1", "name": "x"}]
    nodes = [
        start("text"),
        node("sort", "question-classifier", model=MODEL, query_variable_selector=["start", "text"], classes=classes),
        *(node(f"n{each}", "answer", answer="x") for each in range(400)),
    ]
    edges = " ".join(f"sort:{each}>n{each % 400}" for each in range(8000))
    tree = SourceTree(write_files({"app.yml": app(nodes, f"start>sort {edges}", mode="advanced-chat")}))
    [found] = find_sources(tree, ".")
    before = time.process_time()
    assert read_source(tree, found).flows
    assert time.process_time() - before < 5


@pytest.mark.parametrize(
    "place",
    [
        node("n", "list-operator", variable=["start", "text"], extract_by={"enabled": True, "serial": "²"}),
        node("n", "http-request", method="get", url="https://[x"),
        node("n", "http-request", method="post", url="https://x.example/",
            body={"type": "json", "data": [{"value": '{"a": "\x029\x03"}'}]}),
        llm("n", "x", structured_output={"schema": {"type": "object", "properties": {"a": {"enum": {"b": 1}}}}}),
        llm("n", "x", structured_output={"schema": {"type": "object", "properties": {"a": {"anyOf": {"b": 1}}}}}),
        llm("n", "x", memory={"window": {"enabled": True, "size": True}}),
        node("n", "loop", loop_count=True),
        node("n", "if-else", cases=[{"case_id": "a", "conditions": [{"variable_selector": ["start", "text"],
            "varType": "number", "comparison_operator": "=", "value": "٣"}]}]),
    ],
)  # fmt: skip
def test_values_that_are_none_of_a_field_are_left_out_and_nothing_breaks(write_files, tmp_path, place) -> None:
    tree = SourceTree(write_files({"app.yml": app([start("text"), place], "start>n", mode="advanced-chat")}))
    project = read_source(tree, find_sources(tree, ".")[0])
    written = write_project(project, tmp_path / "target")
    assert [each.code for each in written.errors if "anyOf" not in str(place) and "enum" not in str(place)] == []


def test_secrets_whose_names_are_alike_once_they_are_cleaned_have_variables_of_their_own(import_files) -> None:
    names = ("密钥", "钥匙", "my-key", "my.key")
    secrets = [{"name": each, "value_type": "secret", "value": "x"} for each in names]
    text = "".join(f"{{{{#env.{each}#}}}}" for each in names[:2])
    places = [start("text"), node("n", "answer", answer=text)]
    source = app(places, "start>n", mode="advanced-chat", environment_variables=secrets)
    project, written, _ = import_files({"app.yml": source})
    assert not written.errors
    assert project.settings["allow_env"] == [
        f"IMPORTED_{each}" for each in ("SECRET", "SECRET_2", "my_key", "my_key_2")
    ]
    assert project.flows[0].steps[0].arguments["value"] == (
        '{{ (env.IMPORTED_SECRET | default("")) }}{{ (env.IMPORTED_SECRET_2 | default("")) }}'
    )


def test_parameters_keep_names_of_any_alphabet_and_what_is_left_out_is_told(import_files) -> None:
    params = "城市:Kyoto\nflag\na:1\na:2\n{{#start.text#}}:x"
    place = node("n", "http-request", method="get", url="https://x.example/", params=params, headers="B c:1\nD:2")
    project, written, _ = import_files({"app.yml": app([start("text"), place], "start>n", mode="advanced-chat")})
    assert not written.errors
    step = project.flows[0].steps[0]
    assert step.keys["query"] == {"城市": "Kyoto", "flag": "", "a": "2"}
    assert step.keys["headers"] == {"D": "2"}
    [told] = [each.note for each in project.ledger.elements if "http" in each.what]
    assert [each in told for each in ("the header 'B c'", "'a' stands twice", "'{{#start.text#}}' is left")] == [
        True
    ] * 3


def test_keys_in_parameters_and_bodies_come_from_the_environment(import_files) -> None:
    key = "sk-0123456789abc"
    body = {
        "type": "json",
        "data": [{"value": json.dumps({"api_key": key, "max_tokens": "100", "q": "{{#start.text#}}"})}],
    }
    place = node("n", "http-request", method="post", url="https://x.example/", params=f"key:{key}\nq:tea", body=body)
    project, written, folder = import_files({"app.yml": app([start("text"), place], "start>n", mode="advanced-chat")})
    assert not written.errors
    assert not any(key in each.read_text("utf-8") for each in folder.glob("*.*"))
    [step] = [each for each in project.flows[0].steps if each.id == "n"]
    hidden = {name: f'{{{{ env.IMPORTED_{name.upper()} | default("") }}}}' for name in ("n_key", "n_api_key")}
    assert step.keys["query"] == {"key": hidden["n_key"], "q": "tea"}
    assert step.keys["json"] == {"api_key": hidden["n_api_key"], "max_tokens": "100", "q": "{{ inputs.text }}"}


def test_keys_that_nothing_reads_are_told_once_a_kind_without_layout_and_what_is_off(import_files) -> None:
    off = {"retry_config": {"retry_enabled": False, "retry_interval": 5}, "error_strategy": "default-value"}
    vision = {"enabled": True, "configs": {"variable_selector": ["start", "text"], "detail": "high"}}
    looks = {"selected": True, "width": 200, "zIndex": 3}
    nodes = [
        node("start", "start", variables=[{"variable": "text", "type": "file", "required": True}]),
        llm("one", "Say it", vision=vision, brand_new={"a": 1}, empty=[], **off) | looks,
        llm("two", "Say it", brand_new=2),
        node("gone", "unheard-of", brand_new=3),
        node("end", "end", outputs=[{"variable": "out", "value_selector": ["two", "text"]}]),
    ]
    project, written, folder = import_files(
        {"a.yml": app(nodes, "start>one one>two two>gone gone>end", features={"new_feature": {"enabled": True}})}
    )
    assert not written.errors
    told = [(each.what, each.note) for each in project.ledger.elements if each.what.startswith("keys of")]
    assert told == [
        ("keys of llm", "nothing here reads brand_new, vision.configs.detail"),
        ("keys of the app", "nothing here reads workflow.features.new_feature"),
    ]
    assert "keys of llm: nothing here reads" in (folder / "IMPORT.md").read_text("utf-8")
    assert "goes on with no default value" in next(each.note for each in project.ledger.elements if "one" in each.what)


def test_many_long_keys_that_nothing_reads_stand_whole_in_the_report(import_files) -> None:
    keys = {f"key_{number}_{'x' * 50}": 1 for number in range(10, 30)}
    _, written, folder = import_files({"a.yml": app([start("text"), llm("one", "Say it", **keys)], "start>one")})
    assert not written.errors
    report = (folder / "IMPORT.md").read_text("utf-8")
    assert all(f"{key}, " in report or f"{key}." in report for key in keys)


def test_a_stub_of_a_request_gives_what_the_nodes_behind_it_read(import_files) -> None:
    body = {"type": "form-data", "data": [{"key": "file", "type": "file", "file": ["start", "text"]}]}
    send = node("send", "http-request", method="post", url="https://a.example/", body=body)
    show = node("show", "answer", answer="{{#send.status_code#}} {{#send.body#}}")
    project, written, folder = import_files({"a.yml": app([start("text"), send, show], "start>send send>show")})
    assert not written.errors
    assert lost(project) == ["http-request 'send'"]
    assert "it gives a map with status, headers, body" in (folder / "stubs.py").read_text("utf-8")
    assert main(["test", str(folder)]) == 0


def test_a_text_is_attached_to_no_question(import_files) -> None:
    vision = {"enabled": True, "configs": {"variable_selector": ["start", "text"]}}
    project, written, _ = import_files(
        {"a.yml": app([start("text"), llm("one", "Say it", vision=vision)], "start>one")}
    )
    assert not written.errors
    assert "no file is attached: the input text, which is no file" in [each.note for each in project.ledger.elements]
