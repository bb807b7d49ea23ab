"""What a chat gives the offline stand-in to work with: a question, material, a text to look at.

Everything in the messages is data here; nothing is obeyed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Final

from flowengine.llm.messages import Message
from flowengine.llm.offline_texts import notices
from flowengine.llm.terms import Language, language_of, sentences

__all__ = ["Material"]

_LONGEST: Final = 12_000
"""Characters of each part that are looked at, half from its head and half from its tail."""

_LABEL: Final = re.compile(r"^[^\n:：]{1,24}[:：]\s*")
"""What stands before a section of a prompt: `User input: `, `コンテキスト:`."""

_FENCED: Final = re.compile(r"<(prompt|result)((?:_\d+)?)>\n?(.*?)\n?</\1\2>", re.DOTALL)
"""How agents set off the texts that are to be judged or routed."""


class Material:
    """One chat, read once."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._users = [_read(each.content) for each in messages if each.role == "user"]
        self._drafts = [_read(each.content) for each in messages if each.role in ("assistant", "tool")]
        self.system = _read("\n".join(each.content for each in messages if each.role == "system"))

    @property
    def _last(self) -> str:
        return self._users[-1] if self._users else ""

    @cached_property
    def language(self) -> Language:
        """Of the question and its label: what stands around it may be quoted from anywhere."""
        return language_of(self._asked or self.system)

    @cached_property
    def question(self) -> str:
        """The last section of the last user message, without its label; of a request to improve, all of it."""
        return self._last if self.draft else _LABEL.sub("", self._asked)

    @property
    def _asked(self) -> str:
        return _last_section(self._last)

    @cached_property
    def draft(self) -> list[str]:
        """Sentences of the model's own last answer, where the last message asks for a better one.

        In a conversation every question stands under the same label; a request to improve an
        answer does not.
        """
        first = _LABEL.match(_last_section(self._users[0])) if len(self._users) > 1 and self._drafts else None
        if first is None or self._asked.startswith(first[0].strip()):
            return []
        return sentences(self._drafts[-1])

    @cached_property
    def context(self) -> list[str]:
        """Sentences of everything else that was said to or by the model, the nearest message first.

        A request to improve an answer is about the answer; it is no source of what to say.
        """
        if self.draft:
            return list(dict.fromkeys([*self.draft, *sentences(_without_labels(self._users[0]))]))
        sections = _without_labels(self._last.strip().rpartition("\n\n")[0])
        texts = [sections, *reversed(self._drafts), *reversed(self._users[:-1])]
        return sentences("\n".join(texts))

    @cached_property
    def all_sentences(self) -> list[str]:
        """Context, question and, where both are empty, the system message."""
        found = [*self.context, *sentences(self.question)]
        return list(dict.fromkeys(found)) or sentences(self.system)

    @cached_property
    def subject(self) -> str:
        """The text to judge or to route: what is set off as the result, else all that the user said last."""
        return self._fenced.get("result", self._last)

    @cached_property
    def subject_prompt(self) -> str:
        """What the subject answers, where it is known."""
        return self._fenced.get("prompt", "")

    @cached_property
    def _fenced(self) -> dict[str, str]:
        return {kind: text for kind, _, text in _FENCED.findall(self._last)}


def _read(text: str) -> str:
    """A message's text, within bounds; an earlier stand-in's remark about itself is no part of what it said."""
    for notice in notices():
        text = text.replace(notice, "")
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]}\n{text[-_LONGEST // 2 :]}"


def _last_section(text: str) -> str:
    return text.strip().rpartition("\n\n")[2].strip()


def _without_labels(text: str) -> str:
    return "\n".join(_LABEL.sub("", each.strip()) for each in text.split("\n\n"))
