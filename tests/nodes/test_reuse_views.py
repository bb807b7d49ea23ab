"""What makes a known result hold: each way in which a node can see a value, tried under `--reuse` and `cache: true`.

Every flow is run with one input and then with another one, the second time with the first run to be re-used or out of
one cache, and must end as a run that knows nothing of either.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from flowengine.core.records import ModelCall, Reused
from flowengine.engine.ports import JournalStore
from flowengine.flow import Flow
from flowengine.journal.memory import MemoryStore
from flowengine.models.messages import ToolRequest
from flowengine.models.model import Request
from flowengine.models.scripted import ScriptedModel
from flowengine.runtime.run import Run
from flowengine.testing.model_overrides import with_models

pytestmark = pytest.mark.anyio

CODE = """
from flowengine import NodeResult

def num(x): return x + 6
def ident(x): return x
def sees(context): return [context.inputs["a"], dict(context.prev_outputs), dict(context.shared_state)]
def both(x, context): return [x, context.inputs["a"]]
def signs(context): return context.run_id
def writes(context): return NodeResult(1, state={"n": context.inputs["a"]})
def score(content): return content / 10
def choose(context): return "big" if context.inputs["a"] > 5 else "small"
def nothing(): return 1
def same(x): return "same"
"""
HEAD = "flowengine: v1\nname: t\ninputs: {a: {type: integer}}\nshared_state: {n: {type: integer, default: 0}}\n"

BODIES = {
    "a function of the context": "f: {CACHE type: function, call: 'lib:sees'}",
    "arguments beside the context": "f: {CACHE type: function, call: 'lib:both', with: {x: 1}}",
    "an argument": "f: {CACHE type: function, call: 'lib:num', with: {x: '{{ inputs.a }}'}}",
    "when": "f: {CACHE type: function, call: 'lib:num', with: {x: 1}, when: inputs.a > 5}",
    "when of a function that gets nothing": "f: {CACHE type: function, call: 'lib:nothing', when: inputs.a > 5}",
    "an argument that is not there when `when` is false": """
  g: {type: function, call: 'lib:ident', with: {x: {v: 1}}, when: inputs.a > 5}
  f: {CACHE type: function, call: 'lib:num', with: {x: '{{ nodes.g.output.v }}'}, when: inputs.a > 5}""",
    "set": "f: {CACHE type: function, call: 'lib:num', with: {x: 1}, set: {n: '{{ inputs.a }}'}}",
    "state": """
  w: {type: function, call: 'lib:num', with: {x: 1}, set: {n: '{{ inputs.a }}'}}
  f: {CACHE type: function, call: 'lib:ident', with: {x: '{{ shared_state.n }}'}, needs: [w]}""",
    "state seen as a whole": """
  w: {type: function, call: 'lib:num', with: {x: 1}, set: {n: '{{ inputs.a }}'}}
  f: {CACHE type: function, call: 'lib:sees', needs: [w]}""",
    "state written by the function itself": """
  w: {CACHE type: function, call: 'lib:writes'}
  f: {CACHE type: function, call: 'lib:ident', with: {x: '{{ shared_state.n }}'}, needs: [w]}""",
    "an output behind another that is the same": """
  g: {type: function, call: 'lib:ident', with: {x: '{{ inputs.a }}'}}
  h: {type: function, call: 'lib:same', with: {x: '{{ nodes.g.output }}'}}
  f: {CACHE type: function, call: 'lib:sees', needs: [h]}""",
    "the run's id in an argument": "f: {CACHE type: function, call: 'lib:ident', with: {x: '{{ run.id }}'}}",
    "the run's id": "f: {CACHE type: function, call: 'lib:signs'}",
    "the run's id inside a loop": """
  f:
    type: loop
    CACHE
    max_iterations: 1
    nodes: {g: {type: function, call: 'lib:ident', with: {x: '{{ run.id }}'}}}
    carry: {}
    initial: {v: 1}
  h: {type: function, call: 'lib:ident', with: {x: '{{ nodes.f.output.v }}'}}""",
    "a condition": """
  c: {type: condition, if: inputs.a > 5, then: f, else: g}
  f: {CACHE type: function, call: 'lib:num', with: {x: 1}}
  g: {CACHE type: function, call: 'lib:num', with: {x: 2}}""",
    "a condition in code": """
  c: {type: condition, call: 'lib:choose', routes: {big: f, small: g}}
  f: {CACHE type: function, call: 'lib:num', with: {x: 1}}
  g: {CACHE type: function, call: 'lib:num', with: {x: 2}}""",
    "a scorer": """
  e: {CACHE type: evaluation, call: 'lib:score', target: '{{ inputs.a }}', threshold: 0.5, routes: {pass: f}}
  f: {CACHE type: function, call: 'lib:num', with: {x: 1}}""",
    "an agent's prompt": "f: {CACHE prompt: 'Say {{ inputs.a }}'}",
    "an agent's instructions": "f: {CACHE instructions: 'Count to {{ inputs.a }}', prompt: Go}",
    "the instruction by which it routes": """
  f:
    prompt: Say it
    CACHE
    routing: {instruction: 'Above {{ inputs.a }}?', routes: {yes: g, no: {}}}
  g: {type: function, call: 'lib:num', with: {x: 1}}""",
    "the instructions by which it is judged": """
  f:
    prompt: Say it
    CACHE
    evaluate: {instructions: 'Is it above {{ inputs.a }}?', criteria: {big: Is it big?}}""",
    "a routing node": """
  f: {CACHE type: routing, target: Say it, instruction: 'Above {{ inputs.a }}?', routes: {yes: g, no: {}}}
  g: {type: function, call: 'lib:num', with: {x: 1}}""",
    "a judge": "f: {CACHE type: evaluation, target: it, instructions: 'Above {{ inputs.a }}?', criteria: {c: big}}",
    "items of a map": """
  f:
    type: map
    CACHE
    over: "[1, inputs.a]"
    nodes:
      c: {type: function, call: 'lib:both', with: {x: '{{ item }}'}}
      g: {type: function, call: 'lib:num', with: {x: '{{ item }}'}, needs: [c]}
    result: ['{{ nodes.c.output }}', '{{ nodes.g.output }}']""",
    "a loop": """
  f:
    type: loop
    CACHE
    max_iterations: 2
    initial: {v: '{{ inputs.a }}'}
    carry: {v: '{{ nodes.g.output }}'}
    nodes: {g: {type: function, call: 'lib:num', with: {x: '{{ round.v }}'}, when: round.v < 12}}""".replace(
        "'{{ nodes.g.output }}'", "'{{ nodes.g.output | default(0) }}'"
    ),
}
CHANGED = [name for name in BODIES if not name.startswith("the run's id")]


class Library:
    """A project folder, one store, and models that answer each request with what they were asked."""

    def __init__(self, folder: Path, store: JournalStore) -> None:
        self.folder = folder
        self.store = store
        self.flows: dict[str, Flow] = {}
        """Their text → what was compiled of it, with the code as it is."""
        (folder / "lib.py").write_text(CODE)

    async def run(
        self, body: str, a: int, *, reuse: str | None = None, cached: bool = False, fresh: bool = False
    ) -> Run:
        block = "cache: true" if "\n    CACHE" in body else "cache: true,"
        text = body.replace("CACHE", block if cached else "").replace("{ ", "{", 1)
        text = text if text.startswith("\n") else f"\n  {text}"
        flow = self.flows.get(text) or Flow.from_text(f"{HEAD}nodes:{text}\n", self.folder / "t.yaml")
        self.flows[text] = flow
        seated = with_models(flow, lambda seat, settings: ScriptedModel(_answer))
        return await seated.run({"a": a}, store=MemoryStore() if fresh else self.store, reuse=reuse)

    def edit_code(self, code: str) -> None:
        (self.folder / "lib.py").write_text(code)
        self.flows.clear()


def _answer(request: Request) -> Any:
    """Another answer for each number that is asked about."""
    asked = " ".join(message.content for message in request.messages)
    big = "9" in asked
    if request.response_schema is None:
        return asked
    properties: Mapping[str, Any] = request.response_schema["properties"]
    if "next_route" in properties:
        return {"next_route": "yes" if big else "no", "confidence": 1.0, "reasoning": ""}
    name = next(iter(properties["criteria_scores"]["properties"]))
    score = 0.9 if big else 0.1
    return {"score": score, "criteria_scores": {name: score}, "feedback": "", "suggestions": []}


def told(run: Run) -> Any:
    assert run.status == "succeeded", run.error
    nodes = {name: (node.status, _plain(node.output)) for name, node in run.nodes.items()}
    return nodes, dict(run.shared_state) | {"_last_prompt": None}


def _plain(output: Any) -> Any:
    return output.model_dump() if hasattr(output, "model_dump") else output


def reused(run: Run) -> list[str]:
    return [event.node for event in run.events if type(getattr(event, "record", None)) is Reused]


def paid(run: Run) -> list[str]:
    return [event.node for event in run.events if type(getattr(event, "record", None)) is ModelCall]


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return Library(tmp_path, MemoryStore())


@pytest.mark.parametrize("way", ["reuse", "cache", "both"])
@pytest.mark.parametrize("name", CHANGED)
async def test_a_known_result_never_hides_what_a_node_would_see_now(library: Library, name: str, way: str):
    body, cached = BODIES[name], way != "reuse"
    first = await library.run(body, 9, cached=cached)
    assert told(first) == told(await library.run(body, 9, fresh=True))
    expected = told(await library.run(body, 1, fresh=True))
    earlier = None if way == "cache" else first.id
    changed = await library.run(body, 1, reuse=earlier, cached=cached)
    assert told(changed) == expected
    back = await library.run(body, 9, reuse=changed.id if earlier else None, cached=cached)
    assert told(back) == told(first)


@pytest.mark.parametrize("name", CHANGED)
@pytest.mark.parametrize("way", ["reuse", "cache"])
async def test_where_nothing_changed_nothing_is_paid_and_no_function_runs(library: Library, name: str, way: str):
    body = BODIES[name]
    first = await library.run(body, 9, cached=way == "cache")
    again = await library.run(body, 9, reuse=first.id if way == "reuse" else None, cached=way == "cache")
    third = await library.run(body, 9, reuse=again.id if way == "reuse" else None, cached=way == "cache")
    for run in (again, third):
        assert told(run) == told(first)
        assert paid(run) == []
        if way == "reuse":
            decided = {"c"} if name.startswith("a condition") else set[str]()
            assert set(reused(run)) == {n for n, node in run.nodes.items() if node.status == "succeeded"} - decided


@pytest.mark.parametrize("name", [name for name in BODIES if name not in CHANGED])
@pytest.mark.parametrize("way", ["reuse", "cache"])
async def test_what_read_the_runs_id_is_no_other_runs_result(library: Library, name: str, way: str):
    first = await library.run(BODIES[name], 9, cached=way == "cache")
    again = await library.run(BODIES[name], 9, reuse=first.id if way == "reuse" else None, cached=way == "cache")
    assert "f" not in reused(again)
    if "loop" not in name:
        assert again.nodes["f"].output == again.id


async def test_two_functions_with_the_same_arguments_have_results_of_their_own(library: Library):
    both = """
  f: {CACHE type: function, call: 'lib:num', with: {x: 1}}
  g: {CACHE type: function, call: 'lib:ident', with: {x: 1}, needs: [f]}"""
    run = await library.run(both, 9, cached=True)
    assert (run.nodes["f"].output, run.nodes["g"].output) == (7, 1)


async def test_a_cached_function_whose_code_was_edited_runs_again(library: Library):
    body = BODIES["when"]
    await library.run(body, 9, cached=True)
    library.edit_code(CODE.replace("x + 6", "x + 60000"))
    edited = await library.run(body, 9, cached=True)
    assert edited.nodes["f"].output == 60001


async def test_a_cached_agent_whose_tools_code_was_edited_asks_it_anew(library: Library):
    def answer(request: Request) -> Any:
        last = request.messages[-1]
        return f"It is {last.content}." if last.role == "tool" else ToolRequest("call", "num", '{"x": 1}')

    async def run() -> Run:
        flow = Flow.from_text(f"{HEAD}nodes: {{f: {{cache: true, prompt: Go, tools: ['lib:num']}}}}\n", tea)
        return await with_models(flow, lambda seat, settings: ScriptedModel(answer)).run({"a": 9}, store=library.store)

    tea, code = library.folder / "t.yaml", CODE.replace("def num(x):", "def num(x: int) -> int:")
    (library.folder / "lib.py").write_text(code)
    assert [told(await run())[0]["f"][1] for _ in range(2)] == ["It is 7.", "It is 7."]
    (library.folder / "lib.py").write_text(code.replace("x + 6", "x + 60000"))
    assert told(await run())[0]["f"][1] == "It is 60001."
