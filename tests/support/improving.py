"""A flow that drafts, judges, improves three times and reads aloud: nine completions, over HTTP or through the CLI.

`HttpModel` asks a `model_server` without any vendor's library, so that a process which is started only
to be killed starts quickly:

    python tests/support/improving.py MODEL_URL STORE_URL RUN_ID
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import anyio

from flowengine.agents.agent import Agent
from flowengine.flow import Flow
from flowengine.models.messages import as_dict
from flowengine.models.model import Reply, Request, TokenUsage
from flowengine.nodes.agent import AgentNode

__all__ = ["COMPLETIONS", "FLOW_FILE", "OUTPUT", "HttpModel", "answer", "improving"]

COMPLETIONS = 9
OUTPUT = "draft 4, aloud"

FLOW_FILE = """\
flowengine: v1
name: improving
nodes:
  write:
    instructions: Write.
    prompt: About tea.
    improve: {threshold: 0.85, max_iterations: 3}
  read: {instructions: Read it aloud., prompt: "{{ nodes.write.output }}"}
outputs:
  text: "{{ nodes.read.output }}"
"""


class HttpModel:
    """OpenAI chat completions over one plain connection a call."""

    name = "local"
    provider = "http"

    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)

    async def complete(self, request: Request) -> Reply:
        body: dict[str, Any] = {"model": request.model, "messages": [as_dict(each) for each in request.messages]}
        if request.response_schema is not None:
            body["response_format"] = {"type": "json_schema", "json_schema": {"schema": request.response_schema}}
        answer = await self._post(f"{self._url.path}/chat/completions", json.dumps(body).encode())
        usage = answer["usage"]
        return Reply(
            content=answer["choices"][0]["message"]["content"],
            usage=TokenUsage(usage["prompt_tokens"], usage["completion_tokens"]),
            finish_reason=answer["choices"][0]["finish_reason"],
            model=answer["model"],
            provider=self.provider,
        )

    async def _post(self, path: str, body: bytes) -> Any:
        head = f"POST {path} HTTP/1.1\r\nhost: {self._url.netloc}\r\ncontent-length: {len(body)}\r\n\r\n"
        async with await anyio.connect_tcp(str(self._url.hostname), int(self._url.port or 80)) as stream:
            await stream.send(head.encode() + body)
            received = b""
            while (answer := _body_of(received)) is None:
                received += await stream.receive()
        return json.loads(answer)

    stream: Any = None


def _body_of(received: bytes) -> bytes | None:
    """The body of a response that has come in full."""
    head, _, body = received.partition(b"\r\n\r\n")
    lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return body if lengths and len(body) == int(lengths[0]) else None


def improving(model: HttpModel) -> Flow:
    writer = Agent("writer", "Write.", model=model, orchestration_mode=True, evaluation_threshold=0.85)
    reader = Agent("reader", "Read it aloud.", model=model)
    nodes = {"write": AgentNode(writer, prompt=lambda _: "About tea."), "read": AgentNode(reader, needs=["write"])}
    return Flow("improving", nodes, outputs={"text": lambda context: context.nodes["read"].output})


def answer(body: Mapping[str, Any]) -> str:
    """What the model server answers: each draft is better than the one before, and the fourth is good."""
    text = "\n".join(str(message["content"]) for message in body["messages"])
    draft = max((number for number in range(1, 5) if f"draft {number}" in text), default=0)
    if "response_format" in body:
        scores = dict.fromkeys(("accuracy", "relevance", "completeness"), 0.5)
        judgement = {"score": 0.1 + 0.2 * draft, "criteria_scores": scores, "feedback": "More.", "suggestions": []}
        return json.dumps(judgement)
    return f"draft {draft}, aloud" if "Read it aloud" in text else f"draft {draft + 1}"


def main() -> None:
    model_url, store, run_id = sys.argv[1:]

    # The module by its name: what a run's code is, it is in this process and in the one that resumes it.
    from tests.support import improving as itself

    async def run() -> None:
        await itself.improving(itself.HttpModel(model_url)).run(store=store, run_id=run_id)

    anyio.run(run)


if __name__ == "__main__":
    main()
