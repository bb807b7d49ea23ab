"""Provides what was said so far: the newest exchanges, each a fragment of its own.

It knows the interactions that it is given. Whose they are (an agent's that stands alone, a run's, a session's)
is decided by the caller that loads them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

from flowengine.agents.context.provider import ContextProvider, ParameterError, at_once, join_fragments
from flowengine.core import Fragment, check_arguments, format_turns, load_messages


def entry_of(interaction: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the entry to remember of an interaction, as a JSON value, or None.

    That is one that failed or was not answered, and one without a question, unless the application says it.
    """
    if not interaction.get("success", True):
        return None
    metadata = cast("Mapping[str, Any]", interaction.get("metadata") or {})
    fields = ((name, interaction.get(name)) for name in ("user_input", "result", "timestamp"))
    entry = {name: "" if value is None else str(value) for name, value in fields}
    if metadata.get("role") == "system":
        return entry | {"role": "system"}
    return entry if entry["user_input"].strip() and entry["result"].strip() else None


class ConversationHistoryProvider(ContextProvider):
    """The newest exchanges of a conversation; the older ones give way first.

    An interaction whose metadata say `role: system` is a word of the application's (a change of plan, an event),
    and enters a prompt only with `include_system`.

    >>> history = ConversationHistoryProvider(max_items=1)
    >>> history.update({"user_input": "Hello", "result": "Hi!"})
    >>> history.update({"user_input": "How are you?", "result": "Fine."})
    >>> print(history.get_context(""))
    User: How are you?
    Assistant: Fine.
    """

    provider_name: ClassVar[str] = "conversation"
    config_description: ClassVar[str] = "The newest exchanges of the conversation"
    config_parameters: ClassVar[Mapping[str, str]] = {
        "max_items": "Exchanges that enter a prompt, the newest",
        "include_system": "Whether interactions of the application (metadata `role: system`) enter as well",
    }
    config_example: ClassVar[str] = "- conversation: {max_items: 5}"

    def __init__(
        self, max_items: int = 10, include_system: bool = False, history: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """`history`: interactions that it begins with, as `update` takes them."""
        check_arguments(ConversationHistoryProvider.__init__, locals(), ParameterError)
        if max_items < 0:
            raise ParameterError(f"max_items must be 0 or more, not {max_items}", "max_items")
        self.max_items = max_items
        self.include_system = include_system
        self._entries: deque[dict[str, Any]] = deque(maxlen=max_items)
        for each in history:
            self.update(each)
        self._first = tuple(self._entries)

    def get_context(self, query: str, previous_context: str | None = None, **kwargs: Any) -> str:
        return join_fragments(self.fragments(query, (), **kwargs))

    @at_once
    def fragments(self, query: str, previous: Sequence[Fragment], **kwargs: Any) -> Sequence[Fragment]:
        words = load_messages(kwargs.get("locale", "en"))
        newest = len(self._entries) - 1
        return [
            Fragment(
                each["result"] or each["user_input"]
                if "role" in each
                else format_turns(words, each["user_input"], each["result"]),
                self.provider_name,
                priority=number - newest,
                label=each["timestamp"],
            )
            for number, each in enumerate(self._entries)
        ]

    @at_once
    def update(self, interaction: Mapping[str, Any]) -> None:
        """Remember an interaction; one that failed is none."""
        entry = entry_of(interaction)
        if entry is not None and (self.include_system or "role" not in entry):
            self._entries.append(entry)

    @at_once
    def clear(self) -> None:
        self._entries.clear()

    def fresh(self) -> ConversationHistoryProvider:
        other = ConversationHistoryProvider(self.max_items, self.include_system)
        other._first = self._first
        other._entries.extend(self._first)
        return other

    def dump(self) -> Any:
        return list(self._entries) or None

    def load(self, value: Any) -> None:
        self._entries.clear()
        for each in cast("Sequence[Mapping[str, Any]]", value):
            if self.include_system or "role" not in each:
                self._entries.append(dict(each))
