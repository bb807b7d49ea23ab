"""Embeddings from the local model server, asked over HTTP and through the real litellm."""

from __future__ import annotations

from typing import Any

import pytest
from http_script import ScriptedHttp
from model_server import Failure, ModelServer, letters

from flowengine.agents.retrieval.fts import FtsRetriever
from flowengine.agents.retrieval.retriever import Document
from flowengine.errors import ModelConfigError, PermanentModelError, TransientModelError
from flowengine.models.embedding import ModelEmbedder, embedder, get_embedding
from flowengine.models.http.chat_protocol import read_vectors
from flowengine.models.http.native_embedding import NativeEmbedding
from flowengine.models.litellm.model import LiteLLMEmbedding
from flowengine.models.messages import Message, vectors_of
from flowengine.models.model import Reply, Request
from flowengine.models.wrappers.retrying import RetryingModel

OPENAI = {"OPENAI_API_KEY": "secret"}


Kind = type[NativeEmbedding] | type[LiteLLMEmbedding]


@pytest.fixture(params=[NativeEmbedding, LiteLLMEmbedding])
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param


def model_of(server: ModelServer, kind: Kind) -> NativeEmbedding | LiteLLMEmbedding:
    return kind("text-embedding-3-small", "openai", settings={"api_base": server.url, "api_key": "secret"})


def embedder_of(server: ModelServer, kind: Kind, max_retries: int = 2) -> ModelEmbedder:
    return ModelEmbedder(RetryingModel(model_of(server, kind), max_retries, first_wait=0.001))


async def test_each_text_has_its_vector_in_order(server: ModelServer, kind: Kind) -> None:
    texts = [f"text number {chr(97 + number % 26) * number}" for number in range(150)]
    assert await embedder_of(server, kind).embed(texts) == [letters(text) for text in texts]
    assert [len(request.body["input"]) for request in server.requests] == [64, 64, 22]


async def test_a_reply_tells_what_the_call_took_and_cost(server: ModelServer, kind: Kind) -> None:
    request = Request("text-embedding-3-small", (Message("user", "a"), Message("user", "b")))
    reply = await model_of(server, kind).complete(request)
    assert (reply.content, vectors_of(reply.vectors)) == ("", [letters("a"), letters("b")])
    assert (reply.usage.prompt_tokens, reply.provider) == (2, "openai")
    assert reply.cost_usd == pytest.approx(2 * 0.02 / 1_000_000)
    async with model_of(server, kind).stream(request) as pieces:
        (whole,) = [piece async for piece in pieces]
    assert isinstance(whole, Reply)
    assert whole.vectors == reply.vectors


async def test_no_text_is_no_request(server: ModelServer, kind: Kind) -> None:
    assert await embedder_of(server, kind).embed([]) == []
    assert server.requests == []


async def test_empty_and_endless_texts_are_sent_as_something_that_vendors_take(server: ModelServer, kind: Kind) -> None:
    await embedder_of(server, kind).embed(["", "a" * 100_000])
    empty, endless = server.requests[0].body["input"]
    assert empty.strip()
    assert len(endless) == 20_000


async def test_what_fails_for_the_moment_is_tried_again(server: ModelServer, kind: Kind) -> None:
    server.respond_with([Failure(503), Failure(429), "fine"])
    assert await embedder_of(server, kind).embed(["abc"]) == [letters("abc")]
    assert len(server.requests) == 3


@pytest.mark.long
async def test_what_goes_on_failing_is_an_error(server: ModelServer, kind: Kind) -> None:
    server.respond_with(lambda body: Failure(503))
    with pytest.raises(TransientModelError, match="openai/text-embedding-3-small"):
        await embedder_of(server, kind, max_retries=1).embed(["abc"])
    assert len(server.requests) >= 2


@pytest.mark.long
async def test_a_refused_key_is_an_error_at_once(server: ModelServer, kind: Kind) -> None:
    server.respond_with(lambda body: Failure(401, "wrong key"))
    with pytest.raises(PermanentModelError, match="wrong key"):
        await embedder_of(server, kind).embed(["abc"])
    assert len(server.requests) == 1


async def test_a_retriever_finds_by_the_vectors(server: ModelServer, kind: Kind) -> None:
    retriever = FtsRetriever(embed=embedder_of(server, kind))
    await retriever.add([Document("a", "aaab"), Document("z", "zzzy")])
    assert [hit.id for hit in await retriever.search("aab")] == ["a", "z"]


def test_the_vendor_is_found_as_for_any_model() -> None:
    assert embedder("openai/text-embedding-3-small", environ=OPENAI).name == "openai/text-embedding-3-small"
    assert embedder("ollama/nomic-embed-text", environ={}).name == "ollama/nomic-embed-text"


@pytest.mark.parametrize(
    ("model", "problem"), [("openai/text-embedding-3-small", "needs a key"), ("offline", "no embeddings")]
)
def test_what_cannot_embed_is_refused(model: str, problem: str) -> None:
    with pytest.raises(ModelConfigError, match=problem):
        embedder(model, environ={})


@pytest.mark.parametrize(("adapter", "kind"), [(None, NativeEmbedding), ("litellm", LiteLLMEmbedding)])
def test_litellm_is_asked_only_where_the_project_says_so(adapter: str | None, kind: Kind) -> None:
    assert type(get_embedding("ollama/nomic-embed-text", environ={}, adapter=adapter, max_retries=0)) is kind


@pytest.mark.parametrize(
    "body",
    [
        b'{"data": []}',
        b'{"data": [{"embedding": null}]}',
        b'{"data": [{"embedding": ["a"]}]}',
        b'{"data": [{"embedding": [1e300]}]}',
        b'{"data": 1}',
    ],
)
async def test_an_answer_without_vectors_is_an_error(body: bytes) -> None:
    with ScriptedHttp(body) as address:
        model = NativeEmbedding("m", "hosted_vllm", settings={"api_base": address})
        with pytest.raises(TransientModelError, match="hosted_vllm/m"):
            await model.complete(Request("m", (Message("user", "a"),)))


async def test_a_failure_that_is_told_with_a_status_of_200_is_one_of_its_own_words() -> None:
    with ScriptedHttp(b'{"error": {"message": "no such model", "type": "invalid_request_error"}}') as address:
        model = NativeEmbedding("m", "hosted_vllm", settings={"api_base": address})
        with pytest.raises(PermanentModelError, match="no such model"):
            await model.complete(Request("m", (Message("user", "a"),)))


@pytest.mark.parametrize("index", [None, "a", [1]])
def test_vectors_without_their_places_have_the_order_in_which_they_came(index: Any) -> None:
    data = [{"embedding": [each], "index": index} for each in (1.0, 0.5)]
    assert vectors_of(read_vectors(data, 2, "m")) == [[1.0], [0.5]]
