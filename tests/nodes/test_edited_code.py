"""A result is taken again where the code that gave it is the same, and only there: one row for each kind of edit."""

from __future__ import annotations

import gc
import importlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NamedTuple

import pytest

from flowengine import (
    Agent,
    AgentNode,
    ConditionNode,
    EvaluationNode,
    Flow,
    FunctionNode,
    InputField,
    LoopNode,
    MapNode,
    RunLimits,
    SubflowNode,
)
from flowengine.builder import FlowBuilder
from flowengine.core.records import Notice, Reused
from flowengine.engine.events import NodeRecorded
from flowengine.evals.eval_run import fingerprints_of
from flowengine.journal.memory import MemoryStore
from flowengine.models.messages import ToolRequest
from flowengine.models.scripted import ScriptedModel
from flowengine.nodes.code_reading import read_code
from flowengine.runtime.local.local import changed_nodes
from flowengine.runtime.run import Run


class Edit(NamedTuple):
    """What a file of the project says, and a part of it that is edited."""

    text: str
    old: str
    new: str
    helper: str = ""
    is_read: bool = True
    """Whether it can be told to be the same; what cannot is never taken again."""


MAKER = "def make(k):\n    {inside}\n    return inner\nf = make(2)\n"
WRAPPING = """
import functools
def twice(function):
    @functools.wraps(function)
    def inner(x):
        return function(x) * {by}
    return inner
"""
SCALE = "class Scale:\n    {members}\n    def of(self, x): return x\n"

EDITS: dict[str, Edit] = {
    "the body": Edit("def f(x): return x + 1", "x + 1", "x + 2"),
    "a constant": Edit("def f(x): return x * 2", "2", "3"),
    "the type of a constant": Edit("def f(x): return repr(2)", "2", "2.0"),
    "a constant in a tuple": Edit("def f(x): return (1, (2, 3))[1][0]", "(2, 3)", "(4, 3)"),
    "a constant in a set": Edit("def f(x): return x in {1, 2}", "{1, 2}", "{3, 2}"),
    "the sign of a zero": Edit("def f(x): return repr(0.0)", "0.0", "-0.0"),
    "a default": Edit("def f(x, rate=0.1): return rate", "0.1", "0.2"),
    "a default in a list": Edit("def f(x, rates=[1, 2]): return rates[0]", "[1,", "[3,"),
    "a keyword's default": Edit("def f(x, *, rate=0.1): return rate", "0.1", "0.2"),
    "a helper's default": Edit("def g(rate=1): return rate\ndef f(x): return g()", "rate=1", "rate=2"),
    "what is caught": Edit("def f(x):\n  try: return int('x')\n  except ValueError: return 1", "return 1", "return 2"),
    "an exception's class": Edit(
        "def f(x):\n  try: raise KeyError(1)\n  except KeyError: return 1\n  except LookupError: return 2",
        "except KeyError",
        "except ValueError",
    ),
    "a function inside": Edit("def f(x):\n  def g(): return 1\n  return g()", "return 1", "return 2"),
    "a lambda inside": Edit("def f(x): return (lambda: 1)()", ": 1)", ": 2)"),
    "a comprehension": Edit("def f(x): return [n * 2 for n in (1, 2)]", "n * 2", "n * 3"),
    "a helper's body": Edit("def g(x): return x\ndef f(x): return g(x)", "g(x): return x", "g(x): return -x"),
    "a helper of a helper": Edit(
        "def h(): return 1\ndef g(): return h()\ndef f(x): return g()", "return 1", "return 2"
    ),
    "a number of the module": Edit("RATE = 1\ndef f(x): return RATE", "RATE = 1", "RATE = 2"),
    "a text of the module": Edit("WORD = 'a'\ndef f(x): return WORD", "'a'", "'b'"),
    "a table of the module": Edit("T = {'a': 1}\ndef f(x): return T['a']", "1}", "2}"),
    "what is put into a table": Edit("T = {}\nT['a'] = 1\ndef f(x): return T['a']", "= 1", "= 2"),
    "the order of a table": Edit("T = {'a': 1, 'b': 2}\ndef f(x): return list(T)", "'a': 1, 'b': 2", "'b': 2, 'a': 1"),
    "a set of the module": Edit("T = {'a', 'b'}\ndef f(x): return 'a' in T", "'a', 'b'", "'c', 'b'"),
    "a deep value": Edit("T = [[{'a': (1, [2])}]]\ndef f(x): return T[0][0]['a'][1][0]", "[2]", "[3]"),
    "how a value is made": Edit("def load(): return {'a': 1}\nK = load()\ndef f(x): return K['a']", "1}", "2}"),
    "a value inside an if": Edit("if True:\n  K = 1\ndef f(x): return K", "K = 1", "K = 2"),
    "one of two names": Edit("A, K = 1, 2\ndef f(x): return K", "1, 2", "1, 3"),
    "a value of a loop": Edit("for K in range(3): pass\ndef f(x): return K", "range(3)", "range(4)"),
    "a class attribute": Edit(SCALE.format(members="k = 2") + "def f(x): return Scale.k", "k = 2", "k = 3"),
    "a class attribute that is a list": Edit(
        SCALE.format(members="k = [2]") + "def f(x): return Scale.k[0]", "[2]", "[3]"
    ),
    "a method": Edit("class S:\n  def of(self): return 1\ndef f(x): return S().of()", "return 1", "return 2"),
    "a static method": Edit(
        "class S:\n  @staticmethod\n  def of(): return 1\ndef f(x): return S.of()", "return 1", "return 2"
    ),
    "a class method": Edit(
        "class S:\n  @classmethod\n  def of(cls): return 1\ndef f(x): return S.of()", "return 1", "return 2"
    ),
    "a property": Edit(
        "class S:\n  @property\n  def k(self): return 1\ndef f(x): return S().k", "return 1", "return 2"
    ),
    "a cached property": Edit(
        "import functools\nclass S:\n  @functools.cached_property\n  def k(self): return 1\ndef f(x): return S().k",
        "return 1",
        "return 2",
    ),
    "a base class": Edit(
        "class B:\n  def of(self): return 1\nclass S(B): pass\ndef f(x): return S().of()", "return 1", "return 2"
    ),
    "a metaclass": Edit(
        "class M(type):\n  def of(cls): return 1\nclass S(metaclass=M): pass\ndef f(x): return S.of()",
        "return 1",
        "return 2",
    ),
    "an operator": Edit("class S:\n  def __add__(self, o): return 1\ndef f(x): return S() + 1", "return 1", "return 2"),
    "a slot's value": Edit(
        "class S:\n  __slots__ = ('k',)\n  def __init__(self, k): self.k = k\nV = S(1)\ndef f(x): return V.k",
        "S(1)",
        "S(2)",
    ),
    "a dataclass's default": Edit(
        "from dataclasses import dataclass\n@dataclass\nclass S:\n  k: int = 1\ndef f(x): return S().k", "= 1", "= 2"
    ),
    "a dataclass's factory": Edit(
        "from dataclasses import dataclass, field\n@dataclass\nclass S:\n  k: list = field(default_factory=lambda: [1])"
        "\ndef f(x): return S().k",
        "[1]",
        "[2]",
    ),
    "an enum's value": Edit("import enum\nclass E(enum.Enum):\n  A = 1\ndef f(x): return E.A.value", "A = 1", "A = 2"),
    "a named tuple's default": Edit(
        "from typing import NamedTuple\nclass N(NamedTuple):\n  k: int = 1\ndef f(x): return N().k", "= 1", "= 2"
    ),
    "a model's validator": Edit(
        "from pydantic import BaseModel, field_validator\nclass M(BaseModel):\n  n: int = 1\n"
        "  @field_validator('n')\n  @classmethod\n  def v(cls, n): return n + 1\ndef f(x): return M(n=1).n",
        "n + 1",
        "n + 2",
    ),
    "a model's default": Edit(
        "from pydantic import BaseModel\nclass M(BaseModel):\n  n: int = 1\ndef f(x): return M().n", "= 1", "= 2"
    ),
    "an object's state": Edit(
        "class S:\n  def __init__(self, k): self.k = k\nV = S(1)\ndef f(x): return V.k", "S(1)", "S(2)"
    ),
    "a method of an object": Edit(
        "class S:\n  def of(self): return 1\nV = S()\ndef f(x): return V.of()", "return 1", "return 2"
    ),
    "an object that is called": Edit(
        "class S:\n  def __init__(self, k): self.k = k\n  def __call__(self, x): return self.k\nf = S(1)",
        "S(1)",
        "S(2)",
    ),
    "what an object does when called": Edit(
        "from dataclasses import dataclass\n@dataclass\nclass S:\n  k: int\n  def __call__(self, x): return self.k * 2"
        "\nf = S(1)",
        "* 2",
        "* 3",
    ),
    "a bound method's state": Edit(
        "class S:\n  def __init__(self, k): self.k = k\n  def of(self, x): return self.k\nf = S(1).of", "S(1)", "S(2)"
    ),
    "what a closure holds": Edit(MAKER.format(inside="def inner(x): return k"), "make(2)", "make(3)"),
    "what a closure holds in a list": Edit(
        "def make(k):\n  def inner(x): return k[0]\n  return inner\nf = make([2])", "[2]", "[3]"
    ),
    "a lambda's closure": Edit("def make(k): return lambda x: k\nf = make(2)", "make(2)", "make(3)"),
    "a function that a closure holds": Edit(
        "def make(g):\n  def inner(x): return g()\n  return inner\ndef one(): return 1\nf = make(one)",
        "return 1",
        "return 2",
    ),
    "a decorated body": Edit(WRAPPING.format(by=2) + "@twice\ndef f(x): return x + 1", "x + 1", "x + 2"),
    "a decorator's inside": Edit(WRAPPING.format(by=2) + "@twice\ndef f(x): return x + 1", "* 2", "* 3"),
    "a decorated helper": Edit(
        WRAPPING.format(by=2) + "@twice\ndef g(x): return x + 1\ndef f(x): return g(x)", "x + 1", "x + 2"
    ),
    "a decorator's argument": Edit(
        "def times(k):\n  def around(g):\n    def inner(x): return g(x) * k\n    return inner\n  return around\n"
        "@times(2)\ndef f(x): return x",
        "times(2)",
        "times(3)",
    ),
    "a cached helper": Edit(
        "import functools\n@functools.lru_cache\ndef g(x): return x + 1\ndef f(x): return g(x)", "x + 1", "x + 2"
    ),
    "a context manager": Edit(
        "import contextlib\n@contextlib.contextmanager\ndef g():\n  yield 1\ndef f(x):\n  with g() as k: return k",
        "yield 1",
        "yield 2",
    ),
    "a generator": Edit("def g():\n  yield 1\ndef f(x): return list(g())", "yield 1", "yield 2"),
    "a partial's argument": Edit(
        "import functools\ndef g(k, x): return k\nf = functools.partial(g, 1)", "(g, 1)", "(g, 2)"
    ),
    "a partial's function": Edit(
        "import functools\ndef g(k, x): return k\nf = functools.partial(g, 1)", "return k", "return -k"
    ),
    "a partial's object": Edit(
        "import functools\nclass C:\n  def __init__(self, k): self.k = k\n"
        "def g(c, x): return c.k\nf = functools.partial(g, C(1))",
        "C(1)",
        "C(2)",
    ),
    "a function in a table": Edit("def g(): return 1\nT = {'g': g}\ndef f(x): return T['g']()", "return 1", "return 2"),
    "which function is in a table": Edit(
        "def g(): return 1\ndef h(): return 2\nT = {'g': g, 'h': h}\ndef f(x): return T['g']()",
        "'g': g, 'h': h",
        "'g': h, 'h': g",
    ),
    "closures that changed places": Edit(
        "def make(k): return lambda: k\none, two = make(1), make(2)\nT = {'a': one, 'b': two}\n"
        "def f(x): return (T['a'](), two())",
        "'a': one, 'b': two",
        "'a': two, 'b': one",
    ),
    "a function's attribute": Edit("def g(): return g.k\ng.k = 1\ndef f(x): return g()", "g.k = 1", "g.k = 2"),
    "a pattern": Edit(
        "import re\nP = re.compile('a')\ndef f(x): return bool(P.match('b'))", "compile('a')", "compile('b')"
    ),
    "a decimal": Edit(
        "from decimal import Decimal\nK = Decimal('1.0')\ndef f(x): return str(K)", "Decimal('1.0')", "Decimal('1.00')"
    ),
    "a date": Edit(
        "from datetime import date\nK = date(2026, 1, 1)\ndef f(x): return K.year", "date(2026,", "date(2025,"
    ),
    "what is imported at the top": Edit(
        "from {helper} import g\ndef f(x): return g()", "return 1", "return 2", "def g(): return 1"
    ),
    "a module in a table": Edit(
        "import {helper} as h\nT = {'h': h}\ndef f(x): return T['h'].g(x)", "x + 1", "x + 2", "def g(x): return x + 1"
    ),
    "what is imported inside": Edit(
        "def f(x):\n  from {helper} import g\n  return g()", "return 1", "return 2", "def g(): return 1"
    ),
    "a module that is imported inside": Edit(
        "def f(x):\n  import {helper}\n  return {helper}.g()", "return 1", "return 2", "def g(): return 1"
    ),
    "a name of another module": Edit("import {helper}\ndef f(x): return {helper}.K['a']", "1}", "2}", "K = {'a': 1}"),
    "a module that is handed on": Edit(
        "import {helper}\ndef f(x): return getattr({helper}, 'g')()", "return 1", "return 2", "def g(): return 1"
    ),
    "a module under another name": Edit(
        "import {helper} as other\ndef f(x):\n  m = other\n  return m.g()", "return 1", "return 2", "def g(): return 1"
    ),
    "a class of another module": Edit(
        "from {helper} import S\ndef f(x): return S.k", "k = [1]", "k = [2]", "class S:\n  k = [1]"
    ),
    "an async function": Edit("async def f(x): return x + 1", "x + 1", "x + 2"),
    "a function that counts": Edit(
        "N = 1\ndef f(x):\n  global N\n  N = N + 0\n  return N", "N = 1", "N = 2", "", False
    ),
    "an object without a state to see": Edit(
        "import threading\nclass S:\n  def __init__(self, k):\n    self.k = k\n    self.lock = threading.Lock()"
        "\nV = S(1)\ndef f(x): return V.k",
        "S(1)",
        "S(2)",
        "",
        False,
    ),
    "code that is a text": Edit("def f(x): return eval('1')", "'1'", "'2'", "", False),
}

FLOW = """
flowengine: v1
name: edited
nodes:
  n: {type: function, call: "MODULE:f", with: {x: 1}, cache: true}
"""
NAMES = count()


class Written(NamedTuple):
    """A project whose modules say what an edit has."""

    folder: Path
    module: str

    def function(self) -> Callable[..., Any]:
        return importlib.import_module(self.module).f

    def yaml(self) -> Flow:
        return Flow.from_text(FLOW.replace("MODULE", self.module), self.folder / "flow.yaml")

    def builder(self) -> Flow:
        flow = FlowBuilder("edited")
        flow.function("n", f"{self.module}:f", with_={"x": 1}, cache=True)
        return flow.build(root=self.folder)

    def python(self) -> Flow:
        return Flow("edited", {"n": FunctionNode(self.function(), arguments={"x": lambda context: 1}, cache=True)})


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], Written]]:
    """Writes the two modules of a project, each time in a folder of its own, under the same names."""
    number = next(NAMES)
    module, helper = f"edited_{number}", f"edited_helper_{number}"

    def write(text: str, other: str) -> Written:
        folder = tmp_path / str(next(NAMES))
        folder.mkdir()
        (folder / f"{module}.py").write_text(text.replace("{helper}", helper))
        (folder / f"{helper}.py").write_text(other)
        monkeypatch.syspath_prepend(folder)
        for name in (module, helper):
            sys.modules.pop(name, None)
        return Written(folder, module)

    yield write
    for name in (module, helper):
        sys.modules.pop(name, None)


def is_reused(run: Run) -> bool:
    return any(isinstance(each, NodeRecorded) and isinstance(each.record, Reused) for each in run.events)


def notices(run: Run) -> list[str]:
    found = (each.record for each in run.events if isinstance(each, NodeRecorded))
    return [each.text for each in found if isinstance(each, Notice)]


Way = Literal["yaml", "builder", "python"]


def find_problems(edit: Edit, way: Way, write: Callable[[str, str], Written]) -> Iterator[str]:
    """Yields what is wrong with how an edit is seen."""
    text, old, new, helper, is_read = edit
    written = write(text, helper)
    before: Flow = getattr(written, way)()
    earlier, kept = MemoryStore(), MemoryStore()
    was = before.run_sync(store=earlier)
    before.run_sync(store=kept)
    if was.status != "succeeded":
        yield f"it failed: {was.error}"
    if changed_nodes(getattr(written, way)().plan, was.events):
        yield "it has changed by being run"
    same: Flow = getattr(write(text, helper), way)()
    if changed_nodes(same.plan, was.events) or fingerprints_of(same.plan) != fingerprints_of(before.plan):
        yield "the same counts as changed"
    for name, again in (("reuse", same.run_sync(store=earlier, reuse=was.id)), ("cache", same.run_sync(store=kept))):
        if is_reused(again) is not is_read:
            yield f"{name}: the same is{' not' * is_read} taken: {notices(again)}"
        if again.outputs != was.outputs or bool(notices(again)) is is_read:
            yield f"{name}: {again.outputs}, {notices(again)}"
    edited: Flow = getattr(write(text.replace(old, new, 1), helper.replace(old, new, 1)), way)()
    for name, other in (
        ("reuse", edited.run_sync(store=earlier, reuse=was.id)),
        ("cache", edited.run_sync(store=kept)),
    ):
        if is_reused(other) or other.status != "succeeded":
            yield f"{name}: stale, or {other.error}"
    if is_read and changed_nodes(edited.plan, was.events) != ["n"]:
        yield "resume does not see it"
    if is_read and fingerprints_of(edited.plan) == fingerprints_of(before.plan):
        yield "an eval does not see it"


@pytest.mark.parametrize("way", ["yaml", "builder", "python"])
def test_an_edit_is_seen_and_what_is_the_same_is_taken(way: Way, write: Callable[[str, str], Written]) -> None:
    assert len(EDITS) > 60
    found = {kind: [*find_problems(edit, way, write)] for kind, edit in EDITS.items()}
    assert {kind: problems for kind, problems in found.items() if problems} == {}


READING = """
import importlib, json, sys
from flowengine.nodes.code_reading import read_code
found = {}
for folder, module in json.loads(sys.stdin.read()):
    sys.path.insert(0, folder)
    found[folder] = read_code([importlib.import_module(module).f])
    sys.path.pop(0)
    for name in [each for each in sys.modules if each.startswith("edited_")]:
        del sys.modules[name]
print(json.dumps(found))
"""


def test_code_reads_the_same_in_another_process(write: Callable[[str, str], Written]) -> None:
    projects = [write(edit.text, edit.helper) for edit in EDITS.values()]
    given = json.dumps([(str(each.folder), each.module) for each in projects])

    def read(seed: str) -> dict[str, Any]:
        environ = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", READING]
        done = subprocess.run(command, input=given, env=environ, capture_output=True, check=True, text=True)
        return json.loads(done.stdout)

    one, two = read("1"), read("2")
    others = {str(each.folder) for each in projects if one[str(each.folder)] != two[str(each.folder)]}
    assert [kind for kind, each in zip(EDITS, projects, strict=True) if str(each.folder) in others] == []


# --- What is made of several functions, in Python


def numbers(
    rounds: int = 2,
    carry: int = 1,
    items: Sequence[int] = (1,),
    result: str = "one",
    argument: int = 1,
    score: float = 0.1,
    answer: bool = True,
) -> Flow:
    """A flow of the kinds of nodes that hold functions, each of which gives what its argument says."""
    inner = Flow("inner", {"i": FunctionNode(lambda context: context.inputs["n"])}, inputs={"n": InputField("integer")})
    body = {"b": FunctionNode(lambda context: 1)}
    first: Any = {"initial": {"v": lambda context: 0}, "carry": {"v": lambda context: carry}}
    return Flow(
        "numbers",
        {
            "loop": LoopNode(body, max_iterations=rounds, **first),
            "map": MapNode(body, over=lambda context: list(items), result=lambda context: result),
            "sub": SubflowNode(inner.plan, arguments={"n": lambda context: argument}),
            "score": EvaluationNode(scorer=lambda content: score, target=lambda context: "text"),
            "choice": ConditionNode(lambda context: answer),
        },
    )


@pytest.mark.parametrize(
    ("node", "edit"),
    [
        ("loop", {"rounds": 4}),
        ("loop", {"carry": 2}),
        ("map", {"items": (1, 2)}),
        ("map", {"result": "two"}),
        ("sub", {"argument": 2}),
        ("score", {"score": 0.9}),
        ("choice", {"answer": False}),
    ],
)
def test_an_edit_of_a_container_made_in_python_is_seen(node: str, edit: dict[str, Any]) -> None:
    store = MemoryStore()
    was = numbers().run_sync(store=store)
    assert changed_nodes(numbers().plan, was.events) == []
    assert changed_nodes(numbers(**edit).plan, was.events) == [node]
    again = numbers(**edit).run_sync(store=store, reuse=was.id)
    fresh = numbers(**edit).run_sync()
    assert again.outputs == fresh.outputs != was.outputs


@pytest.mark.parametrize("kept", ["cache", "reuse"])
def test_an_edit_of_an_agents_tool_or_scorer_made_in_python_is_seen(kept: str) -> None:
    def flow(price: int) -> Flow:
        def look_up(item: str) -> str:
            """Look up a price."""
            return f"{item}: {price}"

        def answer(request: Any) -> Any:
            last = request.messages[-1]
            return f"final: {last.content}" if last.role == "tool" else ToolRequest("1", "look_up", '{"item": "tea"}')

        agent = Agent("shop", "Sell.", model=ScriptedModel(answer), tools=[look_up])
        node = AgentNode(agent, prompt=lambda context: "tea?", cache=kept == "cache")
        score = EvaluationNode(scorer=lambda content: price / 10, target=lambda context: "x", cache=kept == "cache")
        return Flow("shop", {"ask": node, "score": score})

    store = MemoryStore()
    was = flow(1).run_sync(store=store)
    chosen = {"reuse": was.id} if kept == "reuse" else {}
    again, edited = flow(1).run_sync(store=store, **chosen), flow(2).run_sync(store=store, **chosen)
    assert is_reused(again)
    assert "tea: 2" in str(edited.outputs)
    assert edited.outputs["score"].score == 0.2


def test_functions_that_were_made_alike_give_each_their_own_and_objects_are_not_told_by_their_place() -> None:
    def make(k: int) -> Callable[[int], int]:
        return lambda x: k

    class Scale:
        def __init__(self, k: int) -> None:
            self.k = k

        def __call__(self, x: int) -> int:
            return self.k

    store = MemoryStore()
    given: Any = {"arguments": {"x": lambda context: 1}, "cache": True}
    alike = Flow("alike", {f"s{k}": FunctionNode(make(k), **given) for k in range(4)})
    for concurrency in (1, None):
        run = alike.run_sync(store=store, limits=RunLimits(concurrency=concurrency))
        assert dict(run.outputs) == {f"s{k}": k for k in range(4)}
    for k in range(20):
        gc.collect()
        assert Flow("one", {"n": FunctionNode(Scale(k), **given)}).run_sync(store=store).outputs["n"] == k
    assert is_reused(Flow("one", {"n": FunctionNode(Scale(7), **given)}).run_sync(store=store))


def test_a_version_stands_for_what_cannot_be_read() -> None:
    lock = threading.Lock()

    def flow(version: str, k: int = 1) -> Flow:
        def locked(x: int) -> int:
            with lock:
                return k

        given: Any = {"arguments": {"x": lambda context: 1}, "cache": True, "version": version}
        return Flow("locked", {"n": FunctionNode(locked, **given)})

    store = MemoryStore()
    runs = [flow(version).run_sync(store=store) for version in ("", "", "1", "1", "2")]
    assert [is_reused(each) for each in runs] == [False, False, False, True, False]
    assert "`lock`" in notices(runs[1])[0]
    assert "version" in notices(runs[1])[0]
    assert not is_reused(flow("2", k=2).run_sync(store=store))  # What can be read counts all the same.


def test_a_function_that_only_fills_a_list_does_not_depend_on_it_and_one_that_reads_it_does() -> None:
    log: list[int] = []

    def fill(x: int) -> int:
        log.append(x)
        return x

    def read(x: int) -> int:
        return len(log)

    def flow() -> Flow:
        given: Any = {"arguments": {"x": lambda context: 1}, "cache": True}
        return Flow("log", {"fill": FunctionNode(fill, **given), "read": FunctionNode(read, needs=["fill"], **given)})

    store = MemoryStore()
    first, again = flow().run_sync(store=store), flow().run_sync(store=store)
    assert changed_nodes(flow().plan, first.events) == []  # It is the same code, whatever it did to the list.
    assert [each.node for each in again.events if isinstance(each, NodeRecorded)][:1] == ["fill"]
    assert dict(again.outputs) == {"read": 1}
    assert "changed while the program runs" in notices(again)[0]


def test_modules_that_import_each_other_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "edited_ring"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "a.py").write_text("from edited_ring import b\ndef g(): return 1\ndef f(): return 2\n")
    (package / "b.py").write_text("import edited_ring.a as a\ndef g(): return 3\n")
    (package / "start.py").write_text("from edited_ring import a, b\ndef f(x): return a.f() + b.g() + b.a.g()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert read_code([importlib.import_module("edited_ring.start").f]).gaps == []


def test_a_value_that_cannot_be_compared_is_read_beside_a_module() -> None:
    class Odd:
        def __eq__(self, other: object) -> bool:
            raise ValueError("neither equal nor not")

        __hash__ = None  # type: ignore[assignment]

    code = ModuleType("edited_odd")
    exec("def g(): return 1", vars(code))

    def f(x: int, held: tuple[Any, ...] = (Odd(), {"m": code})) -> Any:
        return held

    assert "edited_odd" in read_code([f]).text
