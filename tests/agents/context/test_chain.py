from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from flowengine.agents.context import chain
from flowengine.agents.context.chain import brought_of, clear_providers, gather, tell_providers
from flowengine.agents.context.packer import PackedEntry
from flowengine.agents.context.provider import ContextProvider
from flowengine.core.context import Fragment
from flowengine.core.records import ProviderFailed
from flowengine.core.secret_values import Secrets


class Source(ContextProvider):
    def __init__(self, *texts: str, name: str = "source") -> None:
        self.provider_name = name
        self._texts = texts

    def fragments(self, query: str, previous: Sequence[Fragment], **kwargs: Any) -> list[Fragment]:
        return [Fragment(text, self.provider_name, label=str(number)) for number, text in enumerate(self._texts)]


class Transform(ContextProvider):
    provider_name = "transform"
    transforms = True

    def __init__(self, change: Any) -> None:
        self._change = change

    def fragments(self, query: str, previous: Sequence[Fragment], **kwargs: Any) -> Any:
        return self._change(list(previous))


class Failing(ContextProvider):
    provider_name = "failing"

    def get_context(self, query: str, previous_context: str | None = None, **kwargs: Any) -> Any:
        raise ValueError("the disk is on fire")

    def update(self, interaction: Any) -> None:
        raise ValueError("no memory")

    async def clear(self) -> None:
        raise ValueError("no forgetting")


class Notes(list[Any]):
    async def __call__(self, record: Any) -> None:
        self.append(record)


@pytest.fixture
def notes() -> Notes:
    return Notes()


def texts(entries: Sequence[PackedEntry]) -> list[str]:
    return [each.fragment.text for each in entries if each.state != "dropped"]


async def test_sources_add_their_sections_in_the_declared_order(notes: Notes):
    entries = await gather([Source("b1", "b2", name="b"), Source("a1", name="a")], "", notes)
    assert texts(entries) == ["b1", "b2", "a1"]
    assert notes == []


async def test_a_transform_replaces_what_came_before_it_and_later_sources_add_to_that(notes: Notes):
    providers = [Source("a", "b"), Transform(lambda before: before[:1]), Source("c", name="late")]
    entries = await gather(providers, "", notes)
    assert texts(entries) == ["a", "c"]
    assert [(each.fragment.text, each.state, each.why) for each in entries][-1] == (
        "b",
        "dropped",
        "taken out by 'transform'",
    )


async def test_what_a_transform_shortens_is_told_as_shortened(notes: Notes):
    def shorten(before: list[Fragment]) -> list[Fragment]:
        return [before[0]._replace(text="a…"), before[1]]

    entries = await gather([Source("a very long text", "b"), Transform(shorten)], "", notes)
    assert [(each.fragment.text, each.state, each.why) for each in entries] == [
        ("a…", "shortened", "by 'transform'"),
        ("b", "kept", ""),
    ]


async def test_of_two_equal_fragments_the_one_that_is_taken_out_is_told(notes: Notes):
    class Same(ContextProvider):
        provider_name = "same"

        def get_context(self, query: str, previous_context: str | None = None, **kwargs: Any) -> str:
            return "same"

    entries = await gather([Same(), Same(), Transform(lambda before: before[:1])], "", notes)
    assert [each.state for each in entries] == ["kept", "dropped"]


async def test_a_provider_that_fails_is_logged_and_told_and_the_chain_goes_on(
    notes: Notes, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.WARNING, "flowengine.agents.context"):
        entries = await gather([Source("a"), Failing(), Source("b", name="late")], "", notes)
    assert texts(entries) == ["a", "b"]
    assert notes == [ProviderFailed("failing", "ValueError: the disk is on fire")]
    assert "context provider 'failing' failed: ValueError: the disk is on fire" in caplog.text


async def test_a_transform_that_fails_leaves_everything_as_it_was(notes: Notes):
    def fail(before: list[Fragment]) -> Any:
        raise RuntimeError("no")

    assert texts(await gather([Source("a", "b"), Transform(fail)], "", notes)) == ["a", "b"]
    assert notes == [ProviderFailed("transform", "RuntimeError: no")]


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_provider_that_hangs_is_given_up_after_its_time(notes: Notes, is_async: bool):
    let_go = threading.Event()

    class Hanging(ContextProvider):
        provider_name = "hanging"
        timeout = 0.05

    async def wait(self: Any, query: str, previous_context: str | None = None, **kwargs: Any) -> str:
        await anyio.sleep(60)
        return ""

    def block(self: Any, query: str, previous_context: str | None = None, **kwargs: Any) -> str:
        let_go.wait(60)
        return ""

    Hanging.get_context = wait if is_async else block
    try:
        with anyio.fail_after(30):
            assert texts(await gather([Hanging(), Source("b")], "", notes)) == ["b"]
    finally:
        let_go.set()
    assert notes == [ProviderFailed("hanging", "it did not answer within 0.05 s")]


async def test_a_provider_that_ends_the_process_does_not(notes: Notes):
    class Ending(ContextProvider):
        provider_name = "ending"

        def get_context(self, query: str, previous_context: str | None = None, **kwargs: Any) -> str:
            raise SystemExit(3)

    assert texts(await gather([Ending(), Source("b")], "", notes)) == ["b"]
    assert notes == [ProviderFailed("ending", "SystemExit: 3")]


async def test_a_cancelled_chain_is_cancelled(notes: Notes):
    class Waiting(ContextProvider):
        provider_name = "waiting"

        async def get_context(self, query: str, previous_context: str | None = None, **kwargs: Any) -> str:
            await anyio.sleep(60)
            return ""

    with anyio.move_on_after(0.05) as scope:
        await gather([Waiting()], "", notes)
    assert scope.cancelled_caught
    assert notes == []


async def test_fifty_megabytes_are_cut_and_what_comes_after_them_is_left_out(notes: Notes):
    entries = await gather([Source("x" * 50_000_000, "more"), Source("b", name="late")], "", notes)
    first, second, third = entries
    assert len(first.fragment.text) < chain.LONGEST + 10
    assert first.fragment.text.endswith("x […]")
    assert (first.state, first.why) == ("shortened", "the provider brought more than 1,000,000 characters")
    assert (second.state, third.fragment.text) == ("dropped", "b")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("text", "not str 'text'"),
        (None, "not None"),
        ([Fragment("a", "x"), "b"], "not str 'b'"),
        ([Fragment(b"a", "x")], "not Fragment"),
    ],
)
async def test_what_is_no_list_of_fragments_is_told_by_its_type(notes: Notes, given: Any, problem: str):
    class Careless(ContextProvider):
        provider_name = "careless"

        def fragments(self, query: str, previous: Any, **kwargs: Any) -> Any:
            return given

    assert await gather([Careless()], "", notes) == []
    assert problem in notes[0].error


async def test_a_single_fragment_is_a_list_of_one(notes: Notes):
    class Single(ContextProvider):
        provider_name = "single"

        def fragments(self, query: str, previous: Any, **kwargs: Any) -> Any:
            return Fragment("a", "")

    (entry,) = await gather([Single()], "", notes)
    assert entry.fragment == Fragment("a", "single")


async def test_halves_of_surrogate_pairs_do_not_reach_the_prompt(notes: Notes):
    (entry,) = await gather([Source("a\ud83d b")], "", notes)
    assert entry.fragment.text == "a? b"


async def test_blank_texts_are_no_section(notes: Notes):
    assert await gather([Source("", "  \n")], "", notes) == []


async def test_updates_and_clearing_reach_all_whoever_fails(notes: Notes):
    class Counting(ContextProvider):
        provider_name = "counting"
        seen: tuple[Any, ...] = ()

        def get_context(self, query: str, previous_context: str | None = None, **kwargs: Any) -> str:
            return ""

        async def update(self, interaction: Any) -> None:
            self.seen = (*self.seen, interaction)

        def clear(self) -> None:
            self.seen = ()

    counting = Counting()
    await tell_providers([Failing(), counting, Source()], {"user_input": "Hi"}, notes)
    assert counting.seen == ({"user_input": "Hi"},)
    await clear_providers([Failing(), counting], notes)
    assert counting.seen == ()
    assert [each.error for each in notes] == ["ValueError: no memory", "ValueError: no forgetting"]


@pytest.mark.parametrize(
    ("odd", "problem"),
    [
        (Fragment("a", "x", priority=None), "the priority of a Fragment must be a number, not "),
        (Fragment("a", "x", label=["a"]), "the label of a Fragment must be text, not "),
        (Fragment("a", "x", group=3), "the group of a Fragment must be text, not "),
    ],
)
async def test_a_fragment_that_no_record_could_hold_is_a_failure_of_its_provider(
    odd: Fragment, problem: str, notes: Notes
):
    class Odd(ContextProvider):
        provider_name = "odd"

        def fragments(self, query: str, previous: Sequence[Fragment], **kwargs: Any) -> list[Fragment]:
            return [odd]

    assert texts(await gather([Odd(), Source("b")], "", notes)) == ["b"]
    assert [each.error.startswith(problem) for each in notes] == [True]


async def test_no_secret_of_what_is_handed_on_is_recorded(notes: Notes):
    class Diary(Source):
        def fragments(self, query: str, previous: Sequence[Fragment], **kwargs: Any) -> list[Fragment]:
            return [Fragment("on Monday: the key is sk-SECRETSECRET123", "diary", said="the key is sk-SECRETSECRET123")]

    entries = await gather([Diary()], "", notes, secrets=Secrets(["sk-SECRETSECRET123"]))
    assert "SECRET" not in repr(entries)
    assert all("said" not in row for row in brought_of(entries).fragments)


async def test_what_was_dropped_or_cut_of_one_source_is_taken_from_another(
    notes: Notes, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(chain, "LONGEST", 10)
    entries = await gather([Source("x" * 20, "the fact"), Source("the fact", name="other")], "", notes)
    assert [each.fragment.source for each in entries if each.state == "kept"] == ["other"]
