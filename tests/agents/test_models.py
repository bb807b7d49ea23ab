"""Which model answers: by name, as given, by default, and after failures."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.agents.agent import Agent
from flowengine.agents.model_environment import open_model
from flowengine.agents.settings import CallSettings, Surroundings
from flowengine.core.records import ModelCall, Notice
from flowengine.errors import ModelConfigError, PermanentModelError, TransientModelError
from flowengine.models.definitions import innermost_models
from flowengine.models.scripted import ScriptedModel
from flowengine.models.wrappers.retrying import FallbackModel, RetryingModel


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """No vendor's key and no default, whatever the machine has."""
    import os

    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_BASE_URL", "_ENDPOINT")) or name == "FLOWENGINE_DEFAULT_MODEL":
            monkeypatch.delenv(name)


async def test_without_a_model_and_a_key_the_offline_stand_in_answers_with_a_notice(recorder: Any) -> None:
    after = await Agent("a", "Write.").run_async("x", gateway=recorder)
    assert after.result.metadata["provider"] == "offline"
    (notice,) = recorder.of(Notice)
    assert "no model is chosen" in notice.text


async def test_a_model_chosen_by_the_environment_is_taken_without_a_notice(
    recorder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOWENGINE_DEFAULT_MODEL", "offline")
    await Agent("a", "Write.").run_async("x", gateway=recorder)
    assert recorder.of(Notice) == []


async def test_an_unknown_provider_is_an_error_that_names_agent_and_provider() -> None:
    with pytest.raises(ModelConfigError, match=r"agent 'a': unknown provider 'opnai'.*openai"):
        await Agent("a", "Write.", model="opnai/gpt-4o").run_async("x")


@pytest.mark.usefixtures("quick_retries")
async def test_what_may_work_later_is_tried_again(recorder: Any) -> None:
    model = ScriptedModel([TransientModelError("busy"), "text"])
    after = await Agent("a", "Write.", model=model, max_retries=1).run_async("x", gateway=recorder)
    assert str(after.result) == "text"
    assert after.result.attempts == 1
    assert [call.attempts for call in recorder.of(ModelCall)] == [2]


async def test_a_fallback_answers_when_the_model_fails_for_good(recorder: Any) -> None:
    first = ScriptedModel([PermanentModelError("gone")], name="first")
    second = ScriptedModel(["text"], name="second")
    after = await Agent("a", "Write.", model=first, fallbacks=[second]).run_async("x", gateway=recorder)
    assert after.result.metadata["model"] == "second"
    assert second.requests[0].model == "second"


async def test_a_model_given_for_one_run_stands_alone() -> None:
    fallback = ScriptedModel(["text"])
    agent = Agent("a", "Write.", model=ScriptedModel([]), fallbacks=[fallback])
    with pytest.raises(PermanentModelError, match="agent 'a': gone"):
        await agent.run_async("x", model=ScriptedModel([PermanentModelError("gone")]))
    assert fallback.requests == []


async def test_no_model_for_one_run_leaves_the_agents_own() -> None:
    assert str((await Agent("a", "", model=ScriptedModel(["own"])).run_async("x", model=None)).result) == "own"


def test_a_model_with_a_policy_of_its_own_keeps_it() -> None:
    bare = ScriptedModel([])
    retrying, fallback = RetryingModel(bare), FallbackModel([bare])
    assert open_model(CallSettings(retrying))[0] is retrying
    assert open_model(CallSettings(fallback))[0] is fallback
    assert list(innermost_models(open_model(CallSettings(bare, max_retries=0))[0])) == [bare]
    assert isinstance(open_model(CallSettings(bare))[0], RetryingModel)


def test_a_model_is_opened_once_for_as_long_as_the_environment_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = CallSettings("openai/gpt-4o-mini")
    monkeypatch.setenv("OPENAI_API_KEY", "first")
    first, _ = open_model(settings)
    assert open_model(CallSettings("openai/gpt-4o-mini", temperature=0.5))[0] is first
    assert open_model(CallSettings("openai/gpt-4o-mini", max_retries=1))[0] is not first
    monkeypatch.setenv("UNRELATED", "x")
    assert open_model(settings)[0] is first
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9")  # was looked for, and not there
    second, _ = open_model(settings)
    assert second is not first
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(ModelConfigError, match="needs a key"):
        open_model(settings)


def test_a_default_that_is_chosen_later_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_model(CallSettings())[1] is not None
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    model, notice = open_model(CallSettings())
    assert (model.provider, notice) == ("openai", None)


def test_models_of_different_surroundings_are_different() -> None:
    keys = [Surroundings({"OPENAI_API_KEY": key}) for key in ("a", "b")]
    first, second = [open_model(CallSettings("openai/gpt-4o-mini", surroundings=each))[0] for each in keys]
    assert first is not second
