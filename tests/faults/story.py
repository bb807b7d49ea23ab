"""The runs that are disturbed: texts that are judged and improved, and a model whose every answer names its run.

Pure: what is asked, what is answered, and which run a request is of. The flow is one of the shipped ones, as a
user would take it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

__all__ = ["COMPLETIONS", "FLOW", "answer", "identity", "prompt_of", "run_of", "text_of"]

FLOW: Final = Path(__file__).parents[2] / "flows" / "draft_until_good.yaml"
COMPLETIONS: Final = 8
"""A draft, and four judgements with an improvement between each two."""
_GOOD: Final = 4

_RUN: Final = re.compile(r"\bstory-(\w+)")
_DRAFT: Final = re.compile(r"\bdraft (\d+)")


def answer(body: Mapping[str, Any]) -> str:
    """Each draft is better than the one before, and the fourth is good."""
    text = _text(body)
    draft = max((int(number) for number in _DRAFT.findall(text)), default=0)
    if "response_format" in body:
        score = 0.9 if draft >= _GOOD else 0.1 * draft
        judgement = {"score": score, "criteria_scores": {"clear": score, "exact": score}, "feedback": f"After {draft}."}
        return json.dumps(judgement)
    return text_of(run_of(body), draft + 1)


def text_of(run: str, draft: int) -> str:
    return f"story-{run}: draft {draft}"


def run_of(body: Mapping[str, Any]) -> str:
    """The run that asks."""
    found = _RUN.search(_text(body))
    return found[1] if found else ""


def identity(body: Mapping[str, Any]) -> str:
    """Equal for requests that ask for one and the same completion."""
    return json.dumps(body, sort_keys=True)


def prompt_of(messages: Sequence[Mapping[str, Any]]) -> str:
    """Equal for requests of equal messages."""
    return json.dumps([dict(each) for each in messages], sort_keys=True)


def _text(body: Mapping[str, Any]) -> str:
    return "\n".join(str(message["content"]) for message in body["messages"])
