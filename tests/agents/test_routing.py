"""The router: which answers name a route, and where every other answer ends up."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.agents.agent import Agent
from flowengine.agents.routing import RoutingAgent
from flowengine.core.context import Context, RoutingResult
from flowengine.core.records import ModelCall, Notice
from flowengine.errors import DefinitionError, PermanentModelError, RouteError
from flowengine.models.scripted import ScriptedModel

ROUTES = {"billing": "Invoices and refunds", "technical": "Something does not work", "other": ""}
LAST = Context(shared_state={"_last_prompt": "Say what they need.", "_last_generation": {"need": "a refund"}})


def choice(route: Any, confidence: Any = 0.9) -> dict[str, Any]:
    return {"next_route": route, "confidence": confidence, "reasoning": "It says so"}


def router(*answers: Any, **settings: Any) -> tuple[RoutingAgent, ScriptedModel]:
    model = ScriptedModel(list(answers))
    return RoutingAgent("triage", "Choose the team.", ROUTES, model=model, **settings), model


async def test_it_routes_the_last_generation_and_leaves_it_alone() -> None:
    agent, model = router(choice("billing"))
    after = await agent.run_async("ignored", LAST)
    found = after.routing_result
    assert isinstance(found, RoutingResult)
    assert after.result is found
    assert (found.next_route, found.confidence, found.reasoning) == ("billing", 0.9, "It says so")
    assert found.content == {"need": "a refund"}
    assert dict(after.shared_state) == dict(LAST.shared_state)
    assert len(model.requests) == 1


async def test_the_prompt_holds_prompt_result_instruction_and_routes() -> None:
    agent, model = router(choice("billing"))
    await agent.run_async(context=LAST)
    request = model.requests[0]
    system, user = (message.content for message in request.messages)
    assert "Routing instruction:\nChoose the team." in system
    assert "Allowed routes:\n- billing: Invoices and refunds\n- technical: Something does not work\n- other\n" in system
    assert "The previous generation's prompt:\n<prompt>\nSay what they need.\n</prompt>" in user
    assert 'The previous generation\'s result:\n<result>\n{"need": "a refund"}\n</result>' in user
    assert request.temperature == 0.1
    schema: Any = request.response_schema
    assert schema["properties"]["next_route"]["enum"] == ["billing", "technical", "other"]
    assert "billing: Invoices and refunds" in schema["properties"]["next_route"]["description"]


@pytest.mark.parametrize("answer", ["billing", " Billing\n", "BILLING"])
async def test_a_label_counts_after_trimming_and_case_folding(answer: str) -> None:
    agent, _ = router(choice(answer))
    after = await agent.run_async(context=LAST)
    assert after.routing_result is not None
    assert after.routing_result.next_route == "billing"


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (choice("bill"), "next_route: 'bill' is none of the routes billing, technical, other"),
        (choice("not billing"), "none of the routes"),
        (choice("billing team"), "none of the routes"),
        (choice("billing", 1.5), "confidence: Input should be less than or equal to 1 (it is 1.5)"),
        ({"next_route": "billing"}, "confidence: Field required"),
        ("billing", "it holds no JSON"),
        (choice(None), "next_route: Input should be a valid string"),
    ],
)
async def test_any_other_answer_is_sent_back_for_correction(bad: Any, problem: str) -> None:
    agent, model = router(bad, choice("other"))
    after = await agent.run_async(context=LAST)
    assert after.routing_result is not None
    assert after.routing_result.next_route == "other"
    assert problem in model.requests[1].messages[-1].content


async def test_without_a_fallback_an_unknown_route_is_an_error_that_names_answer_and_routes() -> None:
    agent, model = router(*[choice("sales")] * 4)
    with pytest.raises(RouteError, match=r"agent 'triage': .*sales.*; allowed routes: billing, technical, other"):
        await agent.run_async(context=LAST)
    assert len(model.requests) == 4


@pytest.mark.parametrize("bad", [choice("sales"), choice("billing", 7), "no idea", ""])
async def test_after_the_corrections_the_declared_fallback_is_taken_and_told(recorder: Any, bad: Any) -> None:
    agent, model = router(bad, bad, fallback="ask_human", max_retries=1)
    after = await agent.run_async(context=LAST, gateway=recorder)
    found = after.routing_result
    assert found is not None
    assert (found.next_route, found.confidence, found.content) == ("ask_human", 0.0, {"need": "a refund"})
    assert found.metadata["fallback"] is True
    assert len(model.requests) == 2
    (notice,) = recorder.of(Notice)
    assert "fallback 'ask_human' is taken" in notice.text


async def test_too_little_confidence_goes_to_the_fallback() -> None:
    agent, _ = router(choice("billing", 0.5), min_confidence=0.6, fallback="other")
    found = (await agent.run_async(context=LAST)).routing_result
    assert found is not None
    assert (found.next_route, found.confidence, found.reasoning) == ("other", 0.5, "It says so")
    assert found.metadata["chosen"] == "billing"


async def test_too_little_confidence_without_a_fallback_is_an_error() -> None:
    agent, model = router(choice("billing", 0.5), min_confidence=0.6)
    with pytest.raises(RouteError, match=r"'billing' was chosen with confidence 0.5, below min_confidence 0.6"):
        await agent.run_async(context=LAST)
    assert len(model.requests) == 1


async def test_just_enough_confidence_is_enough() -> None:
    agent, _ = router(choice("billing", 0.6), min_confidence=0.6)
    assert (await agent.run_async(context=LAST)).routing_result is not None


async def test_a_failing_call_is_an_error_even_with_a_fallback() -> None:
    agent, _ = router(PermanentModelError("no key"), fallback="other")
    with pytest.raises(PermanentModelError, match="agent 'triage': no key"):
        await agent.run_async(context=LAST)


@pytest.mark.parametrize(
    ("routes", "message"),
    [
        ({}, "at least one label"),
        ({"a": "", "A": ""}, "'a' and 'A' differ in upper and lower case only"),
        ({"caf\u00e9": "", "cafe\u0301": ""}, "or in how letters are composed"),
        ({" a": ""}, "without spaces"),
        ({"": ""}, "without spaces"),
        ({1: "One"}, "a label is text, not int"),
        ({"a": 5}, "the description of 'a' is text, not int"),
        (["a", "b"], "routes are a mapping, as {label: description}, not list"),
    ],
)
def test_labels_that_cannot_be_told_apart_are_refused(routes: dict[str, str], message: str) -> None:
    with pytest.raises(DefinitionError, match=rf"agent 'r': .*{message}"):
        RoutingAgent("r", "Route.", routes)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"min_confidence": "0.5"}, "min_confidence must be between 0.0 and 1.0, not '0.5'$"),
        ({"fallback": 5}, "fallback is text, not int"),
        ({"instruction": "Route."}, r"unknown argument 'instruction'; did you mean 'routing_instruction'\?"),
    ],
)
def test_a_wrong_setting_of_a_router_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=rf"agent 'r': {message}"):
        RoutingAgent("r", "Route.", ROUTES, **settings)


@pytest.mark.parametrize("nothing", [None])
def test_a_router_needs_an_instruction(nothing: Any) -> None:
    with pytest.raises(DefinitionError, match="agent 'r': routing_instruction is text, not NoneType"):
        RoutingAgent("r", nothing, ROUTES)


def test_a_confidence_in_percent_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"min_confidence .*did you mean 0.6\?"):
        RoutingAgent("r", "Route.", ROUTES, min_confidence=60)


@pytest.mark.parametrize(
    ("declared", "said"), [("Café", "CAFE\u0301"), ("cafe\u0301", "Caf\u00e9"), ("が", "か\u3099")]
)
async def test_composed_and_decomposed_labels_are_the_same(declared: str, said: str) -> None:
    agent = RoutingAgent("r", "Route.", {declared: "", "tea": ""}, model=ScriptedModel([choice(said)]))
    found = (await agent.run_async("What?")).routing_result
    assert found is not None
    assert found.next_route == declared


@pytest.mark.parametrize("confidence", [True, False])
async def test_a_confidence_is_a_number(confidence: bool) -> None:
    answer = {"next_route": "tea", "confidence": confidence, "reasoning": ""}
    model = ScriptedModel([answer, choice("tea")])
    await RoutingAgent("r", "Route.", {"tea": ""}, model=model).run_async("What?")
    assert "not true or false" in model.requests[1].messages[-1].content


@pytest.mark.parametrize(("locale", "words"), [("en", "N/A"), ("ja", "N/A（文章"), ("zh", "N/A（没有")])
@pytest.mark.parametrize("nothing", ["", " \n", None])
async def test_where_there_is_nothing_to_route_the_prompt_says_so(locale: str, words: str, nothing: str | None) -> None:
    model = ScriptedModel([choice("tea")])
    agent = RoutingAgent("r", "Route.", {"tea": ""}, model=model, locale=locale)
    await agent.run_async(nothing if nothing is not None else "", Context(shared_state={"_last_generation": nothing}))
    assert f"<result>\n{words}" in model.requests[0].messages[-1].content


async def test_a_routers_schema_holds_nothing_but_its_fields() -> None:
    model = ScriptedModel([choice("tea")])
    await RoutingAgent("r", "Route.", {"tea": ""}, model=model).run_async("What?")
    schema = model.requests[0].response_schema
    assert schema is not None
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["next_route", "confidence", "reasoning"]
    assert schema["properties"]["confidence"] == {"type": "number", "minimum": 0, "maximum": 1}


async def test_an_agent_routes_its_own_result_and_hands_back_its_generation(recorder: Any) -> None:
    model = ScriptedModel(["A refund, please.", choice("billing")])
    agent = Agent("a", "Analyse.", model=model, routing_instruction="Choose the team.", routes=ROUTES)
    after = await agent.run_async("x", gateway=recorder)
    assert str(after.result) == "A refund, please."
    assert after.shared_state["_last_prompt"] == "Analyse.\n\nUser input: x"
    assert after.routing_result is not None
    assert after.routing_result.content == "A refund, please."
    assert [call.purpose for call in recorder.of(ModelCall)] == ["generation", "routing"]


async def test_inner_routing_asks_and_finds_what_a_separate_router_does() -> None:
    inner, outer = (ScriptedModel(["Refund.", choice("billing")]) for _ in range(2))
    both = await Agent("a", "Analyse.", model=inner, routing_instruction="Choose the team.", routes=ROUTES).run_async(
        "x"
    )
    first = await Agent("a", "Analyse.", model=outer).run_async("x")
    after = await RoutingAgent("r", "Choose the team.", ROUTES, model=outer).run_async(context=first)
    assert inner.requests == outer.requests
    assert both.routing_result == after.routing_result
    assert dict(both.shared_state) == dict(after.shared_state)


async def test_inner_routing_without_a_match_is_an_error_of_the_agent() -> None:
    model = ScriptedModel(["Refund.", choice("sales")])
    agent = Agent("a", "", model=model, routing_instruction="Choose.", routes=ROUTES, max_retries=0)
    with pytest.raises(RouteError, match=r"agent 'a.routing': .*sales"):
        await agent.run_async("x")


def test_it_runs_synchronously() -> None:
    agent, _ = router(choice("billing"))
    assert agent.run("I want my money back").routing_result.next_route == "billing"
