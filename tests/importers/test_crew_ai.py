"""Imports crews and flows of CrewAI that were written for these tests, and runs what came of them."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from flowengine import Flow
from flowengine.errors import DefinitionError
from flowengine.journal.memory import MemoryStore
from flowengine.models.scripted import ScriptedModel
from flowengine.runtime.run import Run
from flowengine.testing.model_overrides import with_models

CREW = {
    "config/agents.yaml": """\
scout:
  role: Scout for {place}
  goal: Find what is there
  backstory: You know every path.
clerk:
  role: Clerk
  goal: Write it down
  backstory: 'You write {"json": true} well.'
""",
    "config/tasks.yaml": """\
look:
  description: Look round {place}, as {{place}} is.
  expected_output: A list
  agent: scout
listen:
  description: Listen there
  expected_output: Sounds
  agent: scout
  async_execution: true
note:
  description: Write a note
  expected_output: A note
  agent: clerk
  output_file: notes/{place}.md
""",
    "crew.py": '''\
from crewai import Agent, Crew, LLM, Process, Task
from crewai.project import CrewBase, agent, crew, task
from crewai_tools import SerperDevTool
from pydantic import BaseModel, Field

from tools.count import CountTool

fast = LLM(model="gpt-4o-mini", temperature=0.2)


class Note(BaseModel):
    title: str = Field(..., description="A title")
    lines: list[str] = []


@CrewBase
class Outing:
    """Goes out."""

    agents_config = "config/agents.yaml"
    tasks_config = "config/tasks.yaml"

    @agent
    def scout(self) -> Agent:
        return Agent(config=self.agents_config["scout"], llm=fast, tools=[CountTool(), SerperDevTool()], verbose=True)

    @agent
    def clerk(self) -> Agent:
        return Agent(config=self.agents_config["clerk"], allow_delegation=True)

    @task
    def look(self) -> Task:
        return Task(config=self.tasks_config["look"])

    @task
    def listen(self) -> Task:
        return Task(config=self.tasks_config["listen"])

    @task
    def note(self) -> Task:
        return Task(config=self.tasks_config["note"], output_pydantic=Note)

    @crew
    def crew(self) -> Crew:
        return Crew(agents=self.agents, tasks=self.tasks, process=Process.sequential)
''',
    "tools/count.py": """\
from crewai.tools import BaseTool


class CountTool(BaseTool):
    name: str = "count"
    description: str = "Counts letters."

    def _run(self, text: str) -> int:
        return len(text)
""",
}
FLOW = {
    "config/agents.yaml": CREW["config/agents.yaml"],
    "config/tasks.yaml": "look:\n  description: Look at {place}\n  expected_output: A list\n  agent: scout\n",
    "looking.py": """\
from crewai import Agent, Crew, Task
from crewai.project import CrewBase, agent, crew, task


@CrewBase
class Look:
    @agent
    def scout(self) -> Agent:
        return Agent(config=self.agents_config["scout"])

    @task
    def look(self) -> Task:
        return Task(config=self.tasks_config["look"])

    @crew
    def crew(self) -> Crew:
        return Crew(agents=self.agents, tasks=self.tasks)
""",
    "main.py": """\
from crewai.flow.flow import Flow, and_, listen, or_, router, start
from pydantic import BaseModel

from looking import Look


class Trip(BaseModel):
    place: str = "the hill"
    seen: str = ""
    tries: int = 0
    log: list[str] = []


class TripFlow(Flow[Trip]):
    @start("again")
    def go(self):
        result = Look().crew().kickoff(inputs={"place": f"{self.state.place}!"})
        self.state.seen = result.raw

    @router(go)
    def judge(self):
        self.state.tries += 1
        self.state.log.append(self.state.seen)
        return "enough" if self.state.tries > 1 else "again"

    @listen("enough")
    def tell(self):
        return f"{self.state.tries}: {', '.join(self.state.log)}"

    @listen("never")
    def rest(self):
        return "slept"

    @listen(or_(tell, rest))
    def close(self, told):
        return told
""",
}


def run(folder: Path, name: str, inputs: dict[str, Any], answers: dict[str, Any]) -> tuple[Run, dict[str, Any]]:
    models = {node: ScriptedModel(given) for node, given in answers.items()}
    flow = with_models(Flow.from_yaml(folder / f"{name}.yaml"), lambda slot, _: models[slot.node])
    return flow.run_sync(inputs, store=MemoryStore()), models


def test_the_tasks_of_a_crew_ask_what_they_asked_in_their_order(import_files) -> None:
    project, written, folder = import_files(CREW)
    assert not written.problems
    lost = [each for each in project.ledger.elements if each.outcome == "lost"]
    assert [each.what for each in lost] == ["agent clerk: allow_delegation"]
    answers = {"look": ["trees"], "listen": ["birds"], "note": ['{"title": "Hill", "lines": ["trees"]}']}
    done, models = run(folder, "outing", {"place": "Kyoto"}, answers)
    assert done.outputs["result"] == {"title": "Hill", "lines": ["trees"]}
    system, user = models["look"].requests[0].messages
    assert system.content.startswith("You are Scout for Kyoto.\nYou know every path.\nYour goal: Find what is there")
    assert "Look round Kyoto, as {Kyoto} is." in user.content
    assert models["look"].requests[0].temperature == 0.2
    assert [tool["function"]["name"] for tool in models["look"].requests[0].tools] == ["count_tool", "serper_dev_tool"]
    assert "trees" not in models["listen"].requests[0].messages[-1].content  # CrewAI shows such a task no others.
    last = models["note"].requests[0].messages
    assert '{"json": true}' in last[0].content
    assert all(each in last[1].content for each in ("trees", "birds"))
    assert json.loads((folder / "notes/Kyoto.md").read_text()) == {"title": "Hill", "lines": ["trees"]}


def test_a_file_is_written_before_the_tasks_behind_it_begin(import_files) -> None:
    tasks = CREW["config/tasks.yaml"].replace("  agent: scout\n", "  agent: scout\n  output_file: seen.txt\n", 1)
    project, written, _ = import_files({**CREW, "config/tasks.yaml": tasks})
    assert not written.problems
    steps = {each.id: each for each in project.flows[0].steps}
    assert steps["look_file"].call == "imported_files:write_text"
    assert "look_file" in steps["listen"].needs


@pytest.mark.parametrize(
    "code",
    [
        "    for task in crew.tasks:\n        task.output_file = f'out/{task.output_file}'\n",
        "    crew.tasks_config['note']['output_file'] = 'out.md'\n",
        "    setattr(crew.note(), 'output_file', 'out.md')\n",
    ],
)
def test_a_path_that_a_helper_writes_anew_at_a_run_is_lost(import_files, code: str) -> None:
    own = "class Sheet:\n    def __init__(self):\n        self.output_file = 'own.md'\n"
    project, _, _ = import_files({**CREW, "helper.py": f"{own}\n\ndef prepare(crew):\n{code}"})
    lost = [each for each in project.ledger.elements if each.outcome == "lost" and each.origin.file == "helper.py"]
    assert [each.what for each in lost] == ["output_file of tasks"]
    assert lost[0].origin.line in (7, 8)
    assert "write what the code makes of it" in lost[0].by_hand


def test_a_tool_that_the_source_defines_is_called_without_crewai(import_files) -> None:
    _, _, folder = import_files(CREW)
    flow = Flow.from_text(
        "flowengine: v1\nname: count\nnodes: {n: {type: tool, tool: 'imported_steps:count_tool', with: {text: abc}}}\n"
        "outputs: {n: '{{ nodes.n.output }}'}\n",
        folder / "count.yaml",
    )
    assert flow.run_sync({}, store=MemoryStore()).outputs == {"n": 3}


def test_a_flow_goes_round_until_its_router_says_another_word(import_files) -> None:
    project, written, folder = import_files({"pyproject.toml": "", **FLOW})
    assert not written.errors
    assert project.ledger.count("lost") == 0
    answers = {"until_go_is_done.go.look": ["a tree", "a bird"]}
    done, models = run(folder, "trip_flow", {"place": "Nara"}, answers)
    assert done.error is None
    assert done.outputs == {"close": "2: a tree, a bird"}
    requests = models["until_go_is_done.go.look"].requests
    assert ["Look at Nara!" in each.messages[-1].content for each in requests] == [True, True]
    assert done.nodes["rest"].status == "skipped"


def test_a_crew_of_yaml_alone_is_imported(import_files) -> None:
    files = {name: text for name, text in CREW.items() if name.startswith("config/")}
    project, written, folder = import_files(files)
    assert not written.errors
    assert project.ledger.count("lost") == 0
    answers = {"look": ["trees"], "listen": ["birds"], "note": ["noted"]}
    done, _ = run(folder, project.flows[0].name, {"place": "Nara"}, answers)
    assert done.outputs == {"result": "noted"}


def test_a_guardrail_in_code_refuses_and_the_task_is_tried_again(import_files) -> None:
    files = {**FLOW, "pyproject.toml": ""}
    del files["main.py"]
    files["looking.py"] = files["looking.py"].replace(
        'tasks_config["look"])', 'tasks_config["look"], guardrail=self.is_long)\n\n'
        "    def is_long(self, result):\n        return (len(result.raw) > 3, result.raw)",
    )  # fmt: skip
    project, written, folder = import_files(files)
    assert not written.errors
    assert project.ledger.count("lost") == 0
    done, models = run(folder, "look", {"place": "Nara"}, {"look": ["no", "a deer"]})
    assert done.outputs == {"result": "a deer"}
    assert len(models["look"].requests) == 2


def test_keys_that_crewai_does_not_know_and_shapes_that_are_not_known_are_told(import_files) -> None:
    files = {
        **CREW,
        "config/tasks.yaml": CREW["config/tasks.yaml"].replace("  agent: clerk\n", "  agent: clerk\n  version: 2\n"),
        "crew.py": CREW["crew.py"].replace("lines: list[str] = []", "lines: list[Line] = []"),
    }
    project, written, _ = import_files(files)
    assert not written.errors
    told = {each.what: (each.outcome, each.note) for each in project.ledger.elements}
    assert told["task note: version"] == ("mapped", "CrewAI leaves such a key out, too")
    assert told["task note: output_pydantic"] == ("changed", "`output`: its JSON Schema, open where it says list[Line]")


def test_a_class_of_a_flow_without_methods_of_its_own_is_told(import_files) -> None:
    empty = "from crewai.flow.flow import Flow\n\n\nclass Bare(Flow):\n    pass\n"
    with pytest.raises(DefinitionError, match=r"bare\.py:4: no method of the flow 'Bare' starts or listens"):
        import_files({"pyproject.toml": "", "bare.py": f"{empty}# @start()\n"})
    begun = "\n\nclass Begun(Flow):\n    @start()\n    def go(self):\n        return 1\n"
    project, written, _ = import_files({"bare.py": empty.replace("import Flow", "import Flow, start") + begun})
    assert not written.errors
    assert [each.what for each in project.ledger.elements if each.outcome == "lost"] == ["flow Bare"]


def test_a_method_keeps_objects_of_an_answer_in_its_state(import_files) -> None:
    plan = """\
from pydantic import BaseModel


class Stop(BaseModel):
    name: str


class Plan(BaseModel):
    stops: list[Stop]
"""
    files = {"pyproject.toml": "", **FLOW, "plan.py": plan}
    files["looking.py"] = FLOW["looking.py"].replace('"look"])', '"look"], output_pydantic=Plan)')
    files["looking.py"] = "from plan import Plan\n" + files["looking.py"]
    files["main.py"] = """\
from crewai.flow.flow import Flow, listen, start
from pydantic import BaseModel

from looking import Look
from plan import Stop


class Trip(BaseModel):
    stops: list[Stop] = []


class TripFlow(Flow[Trip]):
    @start()
    def go(self):
        self.state.stops = Look().crew().kickoff(inputs={"place": "Nara"})["stops"]

    @listen(go)
    def tell(self):
        return ", ".join(each.name for each in self.state.stops)
"""
    _, written, folder = import_files(files)
    assert not written.errors
    flow = Flow.from_yaml(folder / "trip_flow.yaml")
    look = Path(folder / "look.yaml")
    look.write_text(look.read_text().replace("  look:\n", "  look:\n    model: offline\n", 1))
    done = flow.run_sync({}, store=MemoryStore())
    assert done.error is None
    assert isinstance(done.outputs["tell"], str)


def test_a_file_that_copied_code_names_goes_along(import_files) -> None:
    main = """\
from pathlib import Path

from crewai.flow.flow import Flow, start


class Go(Flow):
    @start()
    def go(self):
        return (Path(__file__).parent / "places.csv").read_text()
"""
    package = {"src/trip/__init__.py": "", "src/trip/main.py": main, "src/trip/places.csv": "Nara,Kyoto"}
    project, written, folder = import_files(
        {"pyproject.toml": "", **package, "src/trip/other.csv": "", "src/trip/keys.env": "KEY=1"}
    )
    assert not written.errors
    assert Flow.from_yaml(folder / "go.yaml").run_sync({}, store=MemoryStore()).outputs == {"go": "Nara,Kyoto"}
    assert not list(folder.rglob("other.csv"))
    assert ("file src/trip/places.csv", "kept") in [(each.what, each.outcome) for each in project.ledger.elements]


@pytest.mark.parametrize("name", ["go.yaml", "IMPORT.md", "tests/places.csv"])
def test_a_file_that_code_names_takes_no_place_of_the_new_project(import_files, name: str) -> None:
    main = f"""\
from crewai.flow.flow import Flow, start


class Go(Flow):
    @start()
    def go(self):
        return open("{name}").read()
"""
    project, written, folder = import_files({"pyproject.toml": "", "main.py": main, name: "of: the source"})
    assert not written.errors
    assert Flow.from_yaml(folder / "go.yaml").name == "go"
    assert (f"file {name}", "lost") in [(each.what, each.outcome) for each in project.ledger.elements]


def test_the_tasks_of_an_agent_have_the_time_that_it_may_take(import_files) -> None:
    agents = CREW["config/agents.yaml"].replace("  role: Scout", "  max_execution_time: 90\n  role: Scout")
    project, written, _ = import_files({**CREW, "config/agents.yaml": agents})
    assert not written.errors
    timeouts = {each.id: each.keys.get("timeout") for each in project.flows[0].steps}
    assert timeouts == {"look": "90s", "listen": "90s", "note": None, "note_file": None}
    assert all("timeout" not in each for each in project.flows[0].agents.values())


def crew_with(agent: str = "", task: str = "", head: str = "", body: str = "") -> dict[str, str]:
    """A crew of one task whose agent and task are given more in code."""
    code = FLOW["looking.py"].replace('["scout"])', f'["scout"]{agent})').replace('["look"])', f'["look"]{task})')
    code = code.replace("class Look:\n", f"class Look:\n{body}").replace("\n\n@CrewBase", f"\n{head}\n\n@CrewBase")
    return {
        **{name: text for name, text in FLOW.items() if name != "main.py"},
        "pyproject.toml": "",
        "looking.py": code,
    }


def test_a_list_of_tools_that_is_made_of_itself_is_told(import_files) -> None:
    body = "    def __init__(self, tools):\n        self.tools = tools + [known]\n\n"
    project, written, _ = import_files(crew_with(agent=", tools=self.tools", body=body))
    assert not written.errors
    lost = {each.what: each.note for each in project.ledger.elements if each.outcome == "lost"}
    assert lost["agent scout: tools: tools"] == "code makes the list"


def test_halves_of_characters_in_code_are_left_out(import_files) -> None:
    project, written, _ = import_files(crew_with(agent=r', role="a\ud83d\ude00 \udc00b"'))
    assert not written.errors
    assert "You are a\U0001f600 \ufffdb." in project.flows[0].agents["scout"]["system_message"]


def test_classes_that_hold_each_other_many_times_end(import_files) -> None:
    fields = "".join(f"    f{at}: list[Many]\n" for at in range(12))
    head = f"from pydantic import BaseModel\n\n\nclass Many(BaseModel):\n{fields}"
    before = time.process_time()
    project, written, _ = import_files(crew_with(task=", output_pydantic=Many", head=head))
    assert not written.errors
    assert project.flows[0].steps[0].keys["output"]["type"] == "object"
    assert time.process_time() - before < 5


def test_fields_of_a_state_and_words_of_a_router_may_have_braces(import_files) -> None:
    main = """\
from crewai.flow.flow import Flow, listen, router, start


class Go(Flow):
    @start()
    def go(self):
        self.state["x}} y"] = 1
        self.state.update({self.name(): 2})

    @router(go)
    def judge(self):
        return "on }} {{"

    @listen("on }} {{")
    def tell(self):
        return self.state["x}} y"]

    def name(self):
        return "z"
"""
    project, written, folder = import_files({"pyproject.toml": "", "main.py": main})
    assert not written.errors
    assert set(project.flows[0].shared_state) == {"x_y"}
    done = Flow.from_yaml(folder / "go.yaml").run_sync({}, store=MemoryStore())
    assert done.outputs == {"tell": 1}


def test_braces_round_placeholders_stay_braces(import_files) -> None:
    tasks = FLOW["config/tasks.yaml"].replace("Look at {place}", "'{{{place}}} {{x: {place}}} {'")
    project, written, folder = import_files({**crew_with(), "config/tasks.yaml": tasks})
    assert not written.errors
    _, models = run(folder, project.flows[0].name, {"place": "Nara"}, {"look": ["a"]})
    assert "{{Nara}} {{x: Nara}} {" in models["look"].requests[0].messages[-1].content


def test_a_class_of_very_many_names_that_are_nowhere_is_read_in_time(import_files) -> None:
    imports = "".join(f"import package_{at}\n" for at in range(800))
    fields = "".join(f"    f{at}: Name{at}\n" for at in range(800))
    head = f"{imports}from pydantic import BaseModel\n\n\nclass Many(BaseModel):\n{fields}"
    before = time.process_time()
    project, written, _ = import_files(crew_with(task=", output_pydantic=Many", head=head))
    assert not written.errors
    assert len(project.flows[0].steps[0].keys["output"]["properties"]) == 800
    assert time.process_time() - before < 6


STATE = """\
from typing import Any

from crewai.flow.flow import Flow, listen, router, start
from pydantic import BaseModel, Field


class Kept(BaseModel):
    x: Any = {}


class Go(Flow[Kept]):
    @start()
    def go(self):
        self.state.x = 1
"""


@pytest.mark.parametrize(
    ("default", "kept"),
    [
        ("{'a': {1}}", {"a": [1]}),
        ("{1: (2, b'x')}", {"1": [2, None]}),
        (r"'a\ud800'", "a\ufffd"),
        ("Field(default_factory=lambda: [1, 2])", [1, 2]),
    ],
)
def test_defaults_of_a_state_are_what_a_file_can_hold(import_files, default: str, kept: Any) -> None:
    project, written, _ = import_files({"pyproject.toml": "", "main.py": STATE.replace("{}", default)})
    assert not written.errors
    assert project.flows[0].shared_state["x"]["default"] == kept


@pytest.mark.parametrize("default", ["b'x'", "3j", "make()", "Field(default_factory=make)"])
def test_a_default_that_code_makes_is_told(import_files, default: str) -> None:
    project, written, _ = import_files({"pyproject.toml": "", "main.py": STATE.replace("{}", default)})
    assert not written.errors
    [told] = [each for each in project.ledger.elements if each.what == "state x"]
    assert (told.outcome, told.note) == ("changed", "shared state x; code makes its default, which is left out")


def test_halves_of_characters_in_words_of_routers_and_descriptions_are_left_out(import_files) -> None:
    more = (
        "\n    @router(go)\n    def judge(self):\n        return 'on \\ud800'\n\n"
        "    @listen('on \\ud800')\n    def tell(self):\n        return 1\n"
    )
    code = STATE.replace("class Go(Flow[Kept]):\n", "class Go(Flow[Kept]):\n    '''Goes \\ud800.'''\n\n") + more
    project, written, _ = import_files({"pyproject.toml": "", "main.py": code})
    assert not written.errors
    assert project.flows[0].description == "Goes \ufffd."


def test_options_of_a_model_are_kept_where_they_fit_and_told_where_not(import_files) -> None:
    given = ", llm=LLM(model='gpt-4o', temperature=9, stop=['x'], timeout=3, frequency_penalty=0.5, api_key='k')"
    project, written, _ = import_files(crew_with(agent=given))
    assert not written.errors
    agent = project.flows[0].agents["scout"]
    assert {key: agent.get(key) for key in ("model", "stop", "frequency_penalty", "temperature")} == {
        "model": "gpt-4o", "stop": ["x"], "frequency_penalty": 0.5, "temperature": None,
    }  # fmt: skip
    [told] = [each for each in project.ledger.elements if each.what == "agent scout: llm"]
    assert (told.outcome, told.note) == ("changed", "model gpt-4o; options left out: temperature, timeout")


def test_tasks_run_in_their_order_and_stop_where_a_person_stops_them(import_files) -> None:
    tasks = CREW["config/tasks.yaml"].replace("  agent: scout\nlisten", "  agent: scout\n  human_input: true\nlisten")
    tasks = tasks.replace("  output_file", "  context: []\n  output_file")
    project, written, folder = import_files({**CREW, "config/tasks.yaml": tasks})
    assert not written.errors
    steps = {each.id: each for each in project.flows[0].steps}
    assert [steps[each].needs for each in ("look", "listen", "note")] == [[], ["look"], ["listen"]]
    answers = {"look": ["trees"]}
    flow = Flow.from_yaml(folder / "outing.yaml")
    flow = with_models(flow, lambda slot, _: ScriptedModel(answers.get(slot.node, [])))
    store = MemoryStore()
    waiting = flow.run_sync({"place": "Nara"}, store=store)
    assert waiting.status == "waiting"
    done = anyio.run(partial(flow.approve, waiting.id, "look_review", "stop", store=store))
    assert done.outputs == {"result": None}
    assert {name for name, each in done.nodes.items() if each.status == "skipped"} == {"listen", "note", "note_file"}


@pytest.mark.parametrize(
    ("imports", "bases"),
    [
        ("from crewai import Flow\nfrom crewai.flow import and_, listen, or_, router, start", "Flow[Trip]"),
        ("from crewai.flow.flow import (\n    Flow, and_, listen, or_, router, start,\n)", "object, Flow[Trip]"),
    ],
)
def test_a_flow_is_found_wherever_its_base_is_imported_from(import_files, imports: str, bases: str) -> None:
    old = "from crewai.flow.flow import Flow, and_, listen, or_, router, start"
    main = FLOW["main.py"].replace(old, imports).replace("(Flow[Trip])", f"({bases})")
    project, written, _ = import_files({"pyproject.toml": "", **FLOW, "main.py": main})
    assert not written.errors
    assert project.flows[0].name == "trip_flow"
    assert project.ledger.count("lost") == 0


def test_a_store_of_states_of_crewai_is_made_and_left_alone(import_files) -> None:
    old = "from pydantic import BaseModel"
    kept = f"from crewai.flow.persistence import SQLiteFlowPersistence, persist\n{old}"
    main = (
        FLOW["main.py"]
        .replace(old, kept)
        .replace("class TripFlow", "@persist(SQLiteFlowPersistence())\nclass TripFlow")
    )
    project, written, folder = import_files({"pyproject.toml": "", **FLOW, "main.py": main})
    assert not written.errors
    assert project.ledger.count("lost") == 0
    done, _ = run(folder, "trip_flow", {"place": "Nara"}, {"until_go_is_done.go.look": ["a tree", "a bird"]})
    assert done.outputs == {"close": "2: a tree, a bird"}


def test_the_last_of_several_definitions_of_a_field_says_whether_an_answer_needs_it(import_files) -> None:
    base = "class Base(BaseModel):\n    title: str\n    kind: str\n\n\n"
    note = f"{base}class Note(Base):\n    kind: str = 'x'\n    title: str\n"
    old = CREW["crew.py"][CREW["crew.py"].index("class Note") : CREW["crew.py"].index("    lines")]
    _, written, folder = import_files({**CREW, "crew.py": CREW["crew.py"].replace(old, note)})
    assert not written.errors
    assert "required:\n        - title\n\n" in (folder / "outing.yaml").read_text("utf-8")


def test_a_model_that_thinks_gets_no_option_that_it_refuses(import_files) -> None:
    code = CREW["crew.py"].replace('LLM(model="gpt-4o-mini", temperature=0.2)', 'LLM(model="o3-mini", temperature=0.2)')
    project, written, _ = import_files({**CREW, "crew.py": code})
    assert not written.errors
    [told] = [each for each in project.ledger.elements if each.what == "agent scout: llm"]
    assert told.outcome == "changed"
    assert "`temperature` is left out, since" in told.note
