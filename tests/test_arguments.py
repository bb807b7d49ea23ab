"""Mistyped arguments in Python: strict checkers see them, and at run time the nearest known name is told."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib import import_module
from pathlib import Path
from typing import Any, cast, get_type_hints

import pytest

import flowengine
from flowengine import (
    Agent,
    AgentNode,
    ApprovalNode,
    Budget,
    ConditionNode,
    Context,
    Flow,
    FlowBuilder,
    FunctionNode,
    InputField,
    LoopNode,
    MapNode,
    NodeLimits,
    RetryPolicy,
    RoutingAgent,
    RunLimits,
    Runs,
    SubflowNode,
    TypedContext,
    foreign_names,
)
from flowengine import builder as keywords
from flowengine.agents.memory import ChannelMemory
from flowengine.agents.standalone import run_sync
from flowengine.errors import DefinitionError
from flowengine.flow import FlowSettings, RunArguments
from flowengine.flowfile.kinds.agent_kind import AgentNodeSpec
from flowengine.flowfile.kinds.approval_kind import ApprovalNodeSpec
from flowengine.flowfile.kinds.condition_kind import ConditionNodeSpec
from flowengine.flowfile.kinds.evaluation_kind import EvaluationNodeSpec
from flowengine.flowfile.kinds.function_kind import FunctionNodeSpec
from flowengine.flowfile.kinds.loop_kind import LoopNodeSpec
from flowengine.flowfile.kinds.map_kind import MapNodeSpec
from flowengine.flowfile.kinds.routing_kind import RoutingNodeSpec
from flowengine.flowfile.kinds.subflow_kind import SubflowNodeSpec
from flowengine.flowfile.loader import check_text
from flowengine.journal.memory import MemoryStore
from flowengine.nodes.node import FlowNode, NodeSettings
from tests.support.require import require, require_package

ONE = FunctionNode(lambda context: 1)
FLOW = Flow("one", {"one": ONE})
DECLARED = Flow("declared", {"one": ONE}, inputs={"n": "integer"})

MISTYPED: dict[str, tuple[Callable[..., Any], str]] = {
    "FunctionNode": (lambda **mistyped: FunctionNode(print, **mistyped), "retries → retry"),
    "ConditionNode": (lambda **mistyped: ConditionNode(print, **mistyped), "need → needs"),
    "ApprovalNode": (lambda **mistyped: ApprovalNode(print, {}, **mistyped), "expire → expires"),
    "LoopNode": (lambda **mistyped: LoopNode({"one": ONE}, max_iterations=1, **mistyped), "untill → until"),
    "MapNode": (lambda **mistyped: MapNode({"one": ONE}, over=print, **mistyped), "time_out → timeout"),
    "RetryPolicy": (lambda **mistyped: RetryPolicy(**mistyped), "attempt → attempts"),
    "InputField": (lambda **mistyped: InputField("string", **mistyped), "defualt → default"),
    "run_sync": (lambda **mistyped: FLOW.run_sync(**mistyped), "stroe → store"),
    "Flow.approve": (
        lambda **mistyped: FLOW.approve("r", None, "yes", store=STORE, **mistyped).send(None),
        "coment → comment",
    ),
    "Flow.sequential": (lambda **mistyped: Flow.sequential({"one": ONE}, **mistyped), "input → inputs"),
}


@pytest.mark.parametrize("owner", MISTYPED)
def test_a_mistyped_argument_is_told_with_the_nearest(owner: str):
    call, names = MISTYPED[owner]
    wrong, meant = names.split(" → ")
    with pytest.raises(TypeError) as caught:
        call(**{wrong: 1})
    assert str(caught.value) == f"{owner} has no argument '{wrong}'; did you mean '{meant}'?"


NAMED_FIRST: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: ConditionNode("ready", len, "a", "b"),
        r"ConditionNode takes function, then, otherwise without a keyword, and found 'ready', <built-in .*>, 'a', 'b'",
    ),
    (lambda: FunctionNode("one", len), r"FunctionNode takes function without a keyword, and found 'one', <built-in"),
    (
        lambda: FLOW.run_sync(context={}),
        r"run_sync has no argument 'context'; it has inputs, store, durability, run_id",
    ),
    (
        lambda: RunLimits(**{"cost_usd": 1}),
        "RunLimits has no argument 'cost_usd'; it has concurrency, .* bounds, on_limit",
    ),
    (lambda: FLOW.stream({}, "x"), r"Flow.stream takes inputs without a keyword, and found {}, 'x'"),
]


@pytest.mark.parametrize(("call", "told"), NAMED_FIRST)
def test_what_is_not_taken_is_told_with_what_is(call: Callable[[], Any], told: str):
    with pytest.raises(TypeError, match=told):
        call()


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("temprature", "temperature"),
        ("tool", "tools"),
        ("instructions", "generation_instructions"),
        ("retries", "max_retries"),
        ("system_prompt", "system_message"),
    ],
)
def test_a_mistyped_argument_of_an_agent_is_told_with_the_nearest(wrong: str, meant: str):
    with pytest.raises(DefinitionError, match=f"'{wrong}'; did you mean '{meant}'"):
        Agent("a", "Say it.", **{wrong: "x"})


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: RunLimits(concurrency=0), "concurrency must be a whole number, and 1 at least, not 0"),
        (lambda: RunLimits(concurrency=2.5), "concurrency must be a whole number, and 1 at least, not 2.5"),
        (lambda: RunLimits(timeout=float("nan")), "timeout must be a number, and 0 at least, not nan"),
        (lambda: RunLimits(bounds=Budget(cost_usd=float("nan"))), "cost_usd must be a number"),
        (lambda: NodeLimits(bounds=Budget(model_calls=-1)), "model_calls must be a number, and 0 at least, not -1"),
        (lambda: RetryPolicy(attempts=0), "attempts must be a whole number, and 1 at least, not 0"),
        (lambda: FunctionNode(print, timeout="3s"), "timeout must be a number or None, not str '3s'"),
    ],
)
def test_a_bound_that_would_hold_a_run_for_ever_or_bound_nothing_is_refused(make: Callable[[], Any], told: str):
    with pytest.raises(DefinitionError, match=told):
        make()


def stream_of(given: Any) -> Callable[[], Awaitable[None]]:
    async def ask() -> None:
        async with Agent("a", "Say it.", model="offline").stream(given):
            pass

    return ask


STORE = MemoryStore()
TAKES_LIMITS: list[Callable[[Any], Any]] = [
    lambda given: FLOW.resume("r", store=STORE, limits=given).send(None),
    lambda given: FLOW.approve("r", None, "yes", store=STORE, limits=given).send(None),
    lambda given: FLOW.fork("r", "one", store=STORE, limits=given).send(None),
    lambda given: FLOW.run_many([{}], limits=given).asend(None).send(None),
    lambda given: FLOW.stream(limits=given),
    lambda given: FLOW.stream_resume("r", store=STORE, limits=given),
]
DURABILITIES = "durability is one of full, process, memory"
OTHER_KINDS: list[tuple[Callable[[Any], Any], Any, str]] = [
    (FLOW.run_sync, "hello", "the inputs of a run are a mapping, as {'name': value}, not str"),
    (FLOW.run_sync, [], "the inputs of a run are a mapping, as {'name': value}, not list"),
    (
        lambda given: run_sync(lambda: FLOW.fork(FLOW.run_sync(store=STORE).id, "one", store=STORE, state=given)),
        [],
        "the state of a fork is a mapping, as {'key': value}, not list",
    ),
    (DECLARED.run_sync, 5, "the inputs of a run are a mapping, as {'name': value}, not int"),
    (lambda given: FLOW.run_sync(limits=given), {"concurrency": 1}, "limits are RunLimits, not dict"),
    *((call, {"timeout": 1}, "limits are RunLimits, not dict") for call in TAKES_LIMITS),
    (lambda given: Flow("f", given), [ONE], "the nodes of a flow are a mapping, as {'draft': agent}, not list"),
    (lambda given: RunLimits(bounds=given), {"model_calls": 1}, "bounds are a Budget, not dict"),
    (Flow.sequential, [ONE], "the nodes of a flow are a mapping, as {'draft': agent}, not list"),
    (lambda given: FLOW.run_sync(store=given), 5, "a store is a URL, a path, or an open store, not int"),
    (lambda given: FLOW.run_sync(durability=given), "ful", f"{DURABILITIES}, not 'ful'; did you mean 'full'?"),
    (lambda given: FLOW.run_sync(store=STORE, durability=given), None, f"{DURABILITIES}, not None"),
    (
        lambda given: FLOW.run_many(given).asend(None).send(None),
        5,
        "rows must be an Iterable or an AsyncIterable, not int 5",
    ),
    (
        lambda given: FLOW.run_many([{}], concurrency=given).asend(None).send(None),
        "4",
        "concurrency must be a whole number, not str '4'",
    ),
    (lambda given: Runs(STORE).list(limit=given), "5", "limit must be a whole number or None, not str '5'"),
    (lambda given: Runs(STORE).list(limit=given), -1, "limit must be a whole number, and 0 at least, not -1"),
    (lambda given: Runs(STORE).list(text=given), 5, "text must be a text, not int 5"),
    (lambda given: Runs(STORE).events("r", given), -1, "after must be a whole number, and 0 at least, not -1"),
    (lambda given: Runs(STORE).note("r", given), 5, "text must be a text, not int 5"),
    (lambda given: Runs(STORE).mark("r", given), None, "name must be a text, not None"),
    (lambda given: Runs(STORE).score("r", "quality", given), "0.8", "value must be a number or None, not str '0.8'"),
    (Runs, 5, "a store is a URL, a path, or an open store, not int"),
    (FunctionNode, "one", "a FunctionNode calls a function, not str"),
    (
        lambda given: ConditionNode(given, "a", "b"),
        "ready",
        "a ConditionNode asks a function, not str 'ready': its name is its key in the flow, "
        "as in Flow('f', {'route': ConditionNode(choose, {'x': 'left', 'y': 'right'})})",
    ),
    (AgentNode, "writer", "an AgentNode asks an Agent, not str"),
    (Agent("a", "Say it.", model="offline").run, None, "agent 'a' answers a text, not NoneType"),
    (lambda given: run_sync(stream_of(given)), 5, "agent 'a' answers a text, not int"),
    (
        lambda given: RoutingAgent("r", "Go.", given),
        ["a"],
        "agent 'r': routes are a mapping, as {label: description}, not list",
    ),
]


@pytest.mark.parametrize(("call", "given", "told"), OTHER_KINDS)
def test_an_argument_of_another_kind_says_what_was_expected(call: Callable[[Any], Any], given: Any, told: str):
    with pytest.raises(DefinitionError) as caught:
        call(given)
    assert str(caught.value) == told


def test_options_of_a_vendor_still_reach_the_model_call():
    options: dict[str, Any] = {"top_p": 0.5, "seed": 7, "top_k": 9, "reasoning_effort": "low"}
    assert Agent("a", "Say it.", **options).settings.extra == options


@pytest.mark.parametrize(
    ("add", "told"),
    [
        (
            lambda flow: flow.agent("a", promt="x"),
            "'a': a node of type agent has no key 'promt'; did you mean 'prompt'",
        ),
        (lambda flow: flow.function("a", "m:f", retries=3), "type function has no key 'retries'; did you mean 'retry'"),
        (lambda flow: flow.condition("a", iff="x"), "type condition has no key 'iff'"),
        (lambda flow: flow.loop("a", max_iterations=2, untill="x").__enter__(), "did you mean 'until'"),
        (lambda flow: flow.map("a", over="x", on_item_eror="skip").__enter__(), "did you mean 'on_item_error'"),
        (lambda flow: FlowBuilder("b", input={}), "a flow has no key 'input'; did you mean 'inputs'"),
    ],
)
def test_a_mistyped_key_of_the_builder_is_told_where_it_is_written(add: Callable[[Any], Any], told: str):
    with pytest.raises(DefinitionError) as caught:
        add(FlowBuilder("f"))
    assert told in str(caught.value)


# --- what checkers see is what there is


@pytest.mark.parametrize(
    ("kind", "spec", "given"),
    [
        (keywords.AgentKeywords, AgentNodeSpec, {"type"}),
        (keywords.RoutingKeywords, RoutingNodeSpec, {"type", "instruction", "routes"}),
        (keywords.ConditionKeywords, ConditionNodeSpec, {"type"}),
        (keywords.EvaluationKeywords, EvaluationNodeSpec, {"type"}),
        (keywords.FunctionKeywords, FunctionNodeSpec, {"type", "call"}),
        (keywords.SubflowKeywords, SubflowNodeSpec, {"type", "flow"}),
        (keywords.ApprovalKeywords, ApprovalNodeSpec, {"type", "message", "routes"}),
        (keywords.LoopKeywords, LoopNodeSpec, {"type", "max_iterations", "nodes"}),
        (keywords.MapKeywords, MapNodeSpec, {"type", "over", "nodes"}),
    ],
)
def test_the_builders_keywords_are_those_of_the_format(kind: type[Any], spec: Any, given: set[str]):
    assert set(get_type_hints(kind)) == set(spec.model_fields) - given


@pytest.mark.parametrize(
    ("declared", "function", "own"),
    [
        (NodeSettings, FlowNode.__init__, {"self", "unknown"}),
        (RunArguments, Flow.run, {"self", "inputs"}),
        (FlowSettings, Flow.__init__, {"self", "name", "nodes", "steps"}),
    ],
)
def test_declared_arguments_are_those_that_are_taken(declared: type[Any], function: Any, own: set[str]):
    assert set(declared.__annotations__) == set(inspect.signature(function).parameters) - own


TYPOS = """
from flowengine import Flow, FlowBuilder, FunctionNode

node = FunctionNode(print, retries=3)
Flow("f", {"one": node}).run_sync(stroe="x")
Flow.sequential({"one": node}, input={})
FlowBuilder("f").agent("a", promt="x")
"""


@pytest.mark.long
def test_a_strict_checker_sees_them(tmp_path: Path):
    require("node", "apt-get install nodejs")  # Pyright is a program for it, and would load it down.
    require_package("pyright", "checks")
    file = tmp_path / "typos.py"
    file.write_text(TYPOS)
    told = subprocess.run([sys.executable, "-m", "pyright", str(file)], capture_output=True, text=True, check=False)
    # Of `FunctionNode`, which has two signatures so that lambdas are typed, pyright names the method alone.
    for number, name in ((4, "__init__"), (5, "stroe"), (6, "input"), (7, "promt")):
        assert any(f":{number}:" in line and f'"{name}"' in line for line in told.stdout.splitlines()), told.stdout


FOREIGN = {
    "RefinireAgent": "write Agent",
    "ConditionStep": "write ConditionNode",
    "create_simple_flow": "Flow('name', steps={...})",
    "MemoryRepository": "write from flowengine.agents.memory import MemoryRepository",
    "ScriptedModel": "write from flowengine.models.scripted import ScriptedModel",
    "FlowBilder": "did you mean 'FlowBuilder'?",
}


@pytest.mark.parametrize(("name", "answer"), FOREIGN.items())
def test_an_import_of_a_foreign_an_old_or_a_misspelt_name_answers_with_ours(name: str, answer: str):
    with pytest.raises(ImportError, match=re.escape(answer)):
        exec(f"from flowengine import {name}")


@pytest.mark.parametrize("name", ["zebra", "__wrapped__", "Zebra"])
def test_a_name_that_nothing_is_near_to_is_an_attribute_error(name: str):
    assert not hasattr(flowengine, name)


@pytest.mark.parametrize("ours", sorted({each for each in foreign_names._CLASSES.values() if "(" not in each}))
def test_what_a_foreign_name_is_answered_with_is_there(ours: str):
    module, _, name = ours.rpartition(".")
    assert hasattr(import_module(module or "flowengine"), name)


FIRST_ATTEMPTS: list[tuple[Callable[[], Any], str]] = [
    (lambda: cast(Any, ConditionNode)("route", len, {}), "its name is its key in the flow"),
    (lambda: cast(Any, ConditionNode)(condition=len, if_true="a"), "the function is the first value"),
    (lambda: cast(Any, ConditionNode)(len, if_true="a"), "did you mean 'then'?"),
    (lambda: cast(Any, Flow)(start="a", steps={"a": ONE}), "the first of `steps` is where a flow begins"),
    (lambda: cast(Any, Agent)("a", "Say.", "Judge."), "Agent takes name, generation_instructions without a keyword"),
    (lambda: cast(Any, RoutingAgent)("r", "Choose."), "RoutingAgent needs routes"),
    (lambda: cast(Any, Agent)("a", "Say.", lang="ja"), "the language of prompts is locale='ja'"),
    (lambda: cast(Any, Agent)("a", "Say.", context_manager=1), "did you mean 'contexts'?"),
    (lambda: cast(Any, Agent)("a", "Say.", zebra=1), "options that only some vendors have go into `model_options`"),
    (lambda: cast(Any, Agent)("a", "Say.", max_completion_tokens=1), "did you mean 'max_tokens'?"),
    (lambda: cast(Any, TypedContext).create("a", "b", dataSchema=dict), "did you mean 'data_schema'?"),
    (lambda: cast(Any, ChannelMemory)("C1", "general", long_term_memory="x"), "did you mean 'long_term'?"),
]


@pytest.mark.parametrize(("attempt", "answer"), FIRST_ATTEMPTS)
def test_a_first_attempt_in_the_words_of_another_library_is_answered_with_what_to_write(
    attempt: Callable[[], Any], answer: str
):
    with pytest.raises((TypeError, DefinitionError), match=re.escape(answer)):
        attempt()


PYTHONS_OWN_KEYS = {
    "evaluation_instructions": "evaluate",
    "orchestration_mode": "improve",
    "routing_instruction": "routing",
    "context_providers_config": "context",
    "session_history": "context",
}


@pytest.mark.parametrize(("key", "ours"), PYTHONS_OWN_KEYS.items())
def test_a_flow_file_answers_pythons_words_with_its_own(key: str, ours: str):
    text = f"flowengine: v1\nname: f\nnodes:\n  a: {{prompt: hi, {key}: x}}\n"
    [problem] = [each for each in check_text(text, "f.yaml") if each.code == "FE201"]
    assert f"did you mean '{ours}'?" in str(problem)


async def yields(context: Context) -> AsyncIterator[int]:
    yield 1


FLOW_NODES = {"a": FunctionNode(lambda context: 1)}
FLOW = Flow("inner", FLOW_NODES)
WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: RunLimits(on_limit=cast(Any, "Pause")), "did you mean 'pause'?"),
    (lambda: RunLimits(on_failure=cast(Any, "stop")), "on_failure must be 'drain' or 'cancel'"),
    (lambda: NodeLimits(on_limit=cast(Any, "zzz")), "on_limit must be"),
    (lambda: FunctionNode(lambda context, other: 1), "missing a required argument: 'other'"),
    (lambda: FunctionNode(lambda a: a, arguments={"b": lambda context: 1}), "missing a required argument: 'a'"),
    (lambda: FunctionNode(lambda a, /: a, arguments={"a": lambda context: 1}), "called as f(a=…)"),
    (lambda: FunctionNode(lambda *, a: a), "too many positional arguments"),
    (lambda: FunctionNode(lambda a: a, arguments={"a": lambda: 1}), "argument 'a' is called as f(context)"),
    (lambda: FunctionNode(yields), "one that yields is a generator"),
    (lambda: Flow("f", FLOW_NODES, outputs={"o": cast(Any, lambda: 1)}), "output 'o'"),
    (lambda: MapNode(cast(Any, {"b": Agent("b", "Say.")}), over=lambda context: [1]), "AgentNode(agent), not Agent"),
    (lambda: SubflowNode(cast(Any, "flow")), "a SubflowNode runs a Flow, or its plan, not str"),
    (lambda: Flow("f", FLOW_NODES, inputs={"n": InputField("integer", default="x")}), "expected integer"),
    (lambda: Flow("f", FLOW_NODES, inputs={"n": cast(Any, InputField(cast(Any, str)))}), "not <class 'str'>"),
]


@pytest.mark.parametrize(("attempt", "answer"), WRONG)
def test_what_cannot_work_is_told_before_anything_runs(attempt: Callable[[], Any], answer: str):
    with pytest.raises(DefinitionError, match=re.escape(answer)):
        attempt()


def test_a_flow_stands_for_its_plan_in_a_subflow():
    assert SubflowNode(FLOW).plan is FLOW.plan
