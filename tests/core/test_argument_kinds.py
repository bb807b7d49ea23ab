"""The arguments of nodes, flows and context providers are checked when the object is made."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine import (
    Agent,
    AgentNode,
    ApprovalNode,
    ConditionNode,
    ContextFilterProvider,
    ConversationHistoryProvider,
    EvaluationNode,
    FixedFileProvider,
    Flow,
    FunctionNode,
    LoopNode,
    MapNode,
    RoutingAgent,
    RoutingNode,
    SkillStore,
    SourceCodeProvider,
    StateKey,
)
from flowengine.errors import DefinitionError, InputError
from flowengine.journal.memory import MemoryStore
from flowengine.models.scripted import ScriptedModel


def one(context: Any) -> int:
    return 1


MISSPELT: Any = "apend"
NEEDED: dict[type[Any], dict[str, Any]] = {
    FunctionNode: {"function": one},
    AgentNode: {"agent": Agent("a", "Do it.", model=ScriptedModel(["done"]))},
    RoutingNode: {"agent": RoutingAgent("r", "Choose.", {"a": "A"}), "targets": {"a": None}},
    EvaluationNode: {"scorer": one},
    MapNode: {"nodes": {"a": FunctionNode(one)}, "over": one},
    LoopNode: {"nodes": {"a": FunctionNode(one)}, "max_iterations": 2},
    ConditionNode: {"function": one},
    ApprovalNode: {"message": one, "targets": {"yes": None}},
    Flow: {"name": "f", "nodes": {"a": FunctionNode(one)}},
}


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (FunctionNode, {"needs": 5}, "needs must be a text or a list of texts, not int 5"),
        (FunctionNode, {"when": True}, "when must be a function or None, not bool True"),
        (FunctionNode, {"retry": 3}, "retry must be a RetryPolicy or None, not int 3"),
        (FunctionNode, {"join": "al"}, "did you mean 'all'"),
        (FunctionNode, {"arguments": {"a": 1}}, "arguments must be a mapping of texts to functions"),
        (AgentNode, {"prompt": "Say it"}, "prompt must be a function or None, not str"),
        (RoutingNode, {"agent": "a"}, "agent must be a RoutingAgent or a Templated, not str"),
        (RoutingNode, {"targets": ["a"]}, "targets must be a mapping of texts to texts or None"),
        (EvaluationNode, {"threshold": 70}, "threshold must be between 0.0 and 1.0, not 70; did you mean 0.7?"),
        (MapNode, {"over": [1]}, "over must be a function, not list"),
        (MapNode, {"concurrency": -1}, "concurrency must be a whole number, and 1 at least, not -1"),
        (MapNode, {"nodes": {}}, "a map needs at least one node inside"),
        (LoopNode, {"nodes": {}}, "a loop needs at least one node inside"),
        (LoopNode, {"max_iterations": "3"}, "max_iterations must be a whole number, not str"),
        (ConditionNode, {"then": 5}, "then must be a text, a mapping or None, not int 5"),
        (ConditionNode, {"otherwise": ["x"]}, "otherwise must be a text or None, not list"),
        (ApprovalNode, {"expires": -1}, "expires must be a number, and 0 at least, not -1"),
        (ApprovalNode, {"expires": 60, "on_expire": "yess"}, "did you mean 'yes'?"),
        (ApprovalNode, {"expires": 60}, "'expires' goes with 'on_expire', which is missing"),
        (ApprovalNode, {"on_expire": "yes"}, "'on_expire' goes with 'expires', which is missing"),
        (ApprovalNode, {"targets": {}}, "there is nothing to choose from"),
        (Flow, {"name": 5}, "name must be a text, not int 5"),
        (
            Flow,
            {"inputs": {"q": "strng"}},
            "array, object, file, not 'strng'; did you mean 'string'",
        ),
        (
            Flow,
            {"shared_state": {"n": StateKey(0, type="file")}},
            "shared state key 'n': type is one of string",
        ),
        (Flow, {"shared_state": {"n": StateKey([], MISSPELT)}}, "not 'apend'; did you mean 'append'?"),
        (ConversationHistoryProvider, {"max_items": "5"}, "max_items must be a whole number, not str '5'"),
        (ContextFilterProvider, {"relevance_threshold": "0.3"}, "relevance_threshold must be a number, not str '0.3'"),
        (FixedFileProvider, {"file_path": None}, "file_path must be a text or a PathLike, not None"),
        (SourceCodeProvider, {"max_files": True}, "max_files must be a whole number, not bool True"),
        (SkillStore, {"roots": 5}, "roots must be a text"),
    ],
)
def test_an_argument_of_another_kind_is_refused_by_name(
    kind: type[Any], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(DefinitionError) as caught:
        kind(**NEEDED.get(kind, {}) | settings)
    assert message in str(caught.value)


def test_sets_and_a_single_name_are_taken_as_lists() -> None:
    assert FunctionNode(one, needs="first").needs == ("first",)
    needs: Any = {"first"}
    assert FunctionNode(one, needs=needs, timeout=5).needs == ("first",)


def test_a_file_a_text_an_id_and_a_sessions_name_are_texts() -> None:
    nothing: Any = None
    number: Any = 5
    flow = Flow("f", {"a": FunctionNode(one)})
    with pytest.raises(DefinitionError, match="path must be a text or a PathLike, not None"):
        Flow.from_yaml(nothing)
    with pytest.raises(DefinitionError, match="text must be a text, not None"):
        Flow.from_text(nothing, "a.yaml")
    with pytest.raises(InputError, match="a run's id is text, not int"):
        flow.run_sync(run_id=number)
    with pytest.raises(InputError, match="a session's name is text, not int"):
        flow.run_sync(session=number)
    with pytest.raises(InputError, match="a run's id is text, not int"):
        MemoryStore().find(number)
