"""From the parts of a prompt to those that are sent: counted, packed into the budget, and told in a receipt.

It knows parts, the budget, and how a chat is counted. Where the parts come from is `material`'s matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from anyio import to_thread

from flowengine.agents.caller import Caller
from flowengine.agents.parts import Part, assembled, tokens_of
from flowengine.agents.room import room_for_prompt
from flowengine.catalogue import Catalogue
from flowengine.llm.messages import Message
from flowengine.llm.tokens import count_tokens
from flowengine.providers.packer import BudgetError, Entry, Packed, pack, receipt_of
from flowengine.records import Notice, Receipt

__all__ = ["Packing"]

_LARGE: Final = 200_000
"""Characters from which on texts are counted in a thread: a million may take most of a second."""


class Packing:
    """Of one run of an agent. Texts that were counted once are not counted again."""

    def __init__(self, caller: Caller, words: Catalogue, budget: int | None) -> None:
        self._gateway = caller.gateway
        self._model = caller.model.name
        self._words = words
        self._is_asked_for = budget is not None
        self.budget = room_for_prompt(caller.model, caller.settings.max_tokens) if budget is None else budget
        self._counts: dict[str, int] = {}
        self._told: Receipt | None = None

    async def packed(self, parts: Sequence[Part]) -> list[Part]:
        """The parts with what became of each; noted, unless that is what was noted last."""
        if sum(len(each.entry.fragment.text) for each in parts) > _LARGE:
            packed = await to_thread.run_sync(self._pack, parts)
        else:
            packed = self._pack(parts)
        if packed.budget != self.budget:
            over = f"the prompt's fixed parts have {packed.tokens:,} tokens, more than the {self.budget:,} that the"
            await self._gateway.note(Notice(f"{over} model seems to have room for"))
        receipt = receipt_of(packed)
        if receipt != self._told:
            self._told = receipt
            await self._gateway.note(receipt)
        return [part._replace(entry=entry) for part, entry in zip(parts, packed.entries, strict=True)]

    def exceeds(self, messages: Sequence[Message]) -> bool:
        """Whether a chat has outgrown the budget."""
        return self.budget is not None and tokens_of(messages, self._count) > self.budget

    def _pack(self, parts: Sequence[Part]) -> Packed:
        entries = [each.entry for each in parts]
        make: Any = partial(pack, entries, measure=partial(self._measure, parts), count=self._count)
        try:
            return make(self.budget)
        except BudgetError as error:
            if self._is_asked_for:
                raise
            # What the model has room for is an estimate: with the least that there is, it is left to the vendor.
            return make(error.least)

    def _measure(self, parts: Sequence[Part], entries: Sequence[Entry]) -> int:
        chosen = (part._replace(entry=entry) for part, entry in zip(parts, entries, strict=True))
        return tokens_of(assembled(self._words, chosen), self._count)

    def _count(self, text: str) -> int:
        known = self._counts.get(text)
        if known is None:
            known = self._counts[text] = count_tokens(text, self._model)
        return known
