"""What a model is asked when a context has to be summed up, and what of its answer counts.

It knows the texts of the catalogue. It asks nobody.
"""

from __future__ import annotations

from typing import Final

from flowengine.catalogue import Catalogue
from flowengine.errors import OutputError
from flowengine.llm.messages import Message
from flowengine.llm.model import Request

__all__ = ["summary_of", "summary_request"]

_TEMPERATURE: Final = 0.2


def summary_request(
    words: Catalogue, model: str, query: str, material: str, max_tokens: int, *, previous: str = ""
) -> Request:
    """The request for a summary of some material, and of the summary before it."""
    headings = "\n".join(words.section("summary_headings").values())
    task = words("summary.task", headings=headings, max_tokens=max_tokens, none=words("summary.none"))
    parts = [
        words("summary.previous", text=_fenced("summary", previous)) if previous else "",
        words("summary.material", text=_fenced("material", material)),
        words("summary.query", text=_fenced("query", query)) if query.strip() else "",
        task,
    ]
    system = Message("system", words("summary.role").strip())
    user = Message("user", "\n\n".join(part.strip() for part in parts if part))
    return Request(model, (system, user), temperature=_TEMPERATURE, max_tokens=max_tokens * 2)


def summary_of(words: Catalogue, answer: str) -> str:
    """The summary of an answer; an `OutputError` where it is none of the form that was asked for."""
    headings = words.section("summary_headings").values()
    begins = [at for heading in headings if (at := answer.find(heading)) >= 0]
    if not begins:
        raise OutputError(f"the summary has none of the headings that it should: {answer[:100]!r}")
    return answer[min(begins) :].strip()


def _fenced(name: str, text: str) -> str:
    """Text of others between tags that it cannot close."""
    tag, number = name, 0
    while f"</{tag}" in text:
        number += 1
        tag = f"{name}_{number}"
    return f"<{tag}>\n{text}\n</{tag}>"
