"""Has a model write memories: recent events from messages, the history from the one before and what is new.

It knows two prompts and the limit of what comes back. It knows no store and no agent; every call goes through the
gateway, so inside a flow it is recorded and never paid twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, tzinfo

from flowengine.agents.memory.open_database import shortened
from flowengine.agents.memory.scopes.channel_messages import ChannelMessage, ChannelMessages
from flowengine.agents.memory.scopes.memory_prompt import message_lines, neutralise_text
from flowengine.core import Gateway, Notice, load_messages
from flowengine.errors import DefinitionError, OutputError, PermanentModelError
from flowengine.models import Message, Model, Reply, Request, count_tokens


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """Tokens, by real count."""

    short_term: int = 400
    """Tokens of the memory of recent events."""
    long_term: int = 800
    """Tokens of the memory of a history."""
    material: int = 8000
    """Tokens of the messages that recent events are written from; the oldest are left out."""

    def __post_init__(self) -> None:
        for name in ("short_term", "long_term", "material"):
            tokens = getattr(self, name)
            if type(tokens) is not int or tokens < 1:
                raise DefinitionError(f"the limit '{name}' must be at least 1 token, not {tokens!r}")


def short_term_messages(
    histories: Sequence[ChannelMessages],
    *,
    locale: str = "en",
    limits: MemoryLimits = MemoryLimits(),
    timezone: tzinfo = UTC,
) -> tuple[Message, ...]:
    """The task to sum up what was said, in one channel or in several; none where nothing was said."""
    words = load_messages(locale)
    sections = [
        f"### #{' '.join(each.channel_name.split())}\n\n{message_lines(messages, timezone)}"
        for each in histories
        if (messages := _newest(each.messages, limits.material // len(histories), timezone))
    ]
    if not sections:
        return ()
    system = _system(words("memory_short_term.role"), words("memory_short_term.task", max_tokens=limits.short_term))
    return (system, Message("user", "\n\n".join([words("memory_short_term.messages"), *sections])))


def long_term_messages(
    previous: str | None,
    recent: str,
    *,
    locale: str = "en",
    limits: MemoryLimits = MemoryLimits(),
) -> tuple[Message, ...]:
    """The task to merge the history so far and the recent events."""
    words = load_messages(locale)
    parts = [f"{words('memory_long_term.previous')}\n\n{neutralise_text(previous)}"] if previous else []
    parts.append(f"{words('memory_long_term.recent')}\n\n{neutralise_text(recent)}")
    system = _system(words("memory_long_term.role"), words("memory_long_term.task", max_tokens=limits.long_term))
    return (system, Message("user", "\n\n".join(parts)))


@dataclass(frozen=True, slots=True)
class MemoryGenerator:
    """Asks a model for memories, and keeps each within its limit."""

    model: Model
    gateway: Gateway
    _: KW_ONLY
    locale: str = "en"
    limits: MemoryLimits = MemoryLimits()
    timezone: tzinfo = UTC
    temperature: float | None = 0.2
    timeout: float | None = None

    async def short_term(self, histories: Sequence[ChannelMessages]) -> str | None:
        """The recent events in what was said; None where nothing was."""
        messages = short_term_messages(histories, locale=self.locale, limits=self.limits, timezone=self.timezone)
        return await self._write_memory(messages, "short-term", self.limits.short_term) if messages else None

    async def long_term(self, previous: str | None, recent: str) -> str:
        """The new history."""
        messages = long_term_messages(previous, recent, locale=self.locale, limits=self.limits)
        return await self._write_memory(messages, "long-term", self.limits.long_term)

    async def _write_memory(self, messages: tuple[Message, ...], kind: str, limit: int) -> str:
        request = Request(self.model.name, messages, temperature=self.temperature, timeout=self.timeout)
        reply: Reply = await self.gateway.complete(self.model, request, purpose="memory")
        if reply.finish_reason == "content_filter":
            raise PermanentModelError(f"model '{reply.model}' refused to write a {kind} memory (content filter)")
        if reply.finish_reason == "length":
            raise OutputError(f"model '{self.model.name}' was cut off in a {kind} memory: it is not kept")
        text = reply.content.strip()
        if not text:
            raise OutputError(f"model '{self.model.name}' gave an empty {kind} memory")
        excerpt = shortened(text, limit, load_messages(self.locale)("memory.shortened"), model=self.model.name)
        if excerpt != text:
            tokens = count_tokens(text, self.model.name)
            await self.gateway.note(Notice(f"a {kind} memory of {tokens} tokens was shortened to its limit of {limit}"))
        return excerpt


def _system(role: str, task: str) -> Message:
    return Message("system", f"{role.strip()}\n\n{task.strip()}")


def _newest(messages: Sequence[ChannelMessage], limit: int, timezone: tzinfo) -> Sequence[ChannelMessage]:
    """Returns as many of the newest as fit into the limit, in the order of time; at least the last one."""
    tokens, first = 0, len(messages)
    for each in reversed(messages):
        tokens += count_tokens(message_lines([each], timezone))
        if tokens > limit and first < len(messages):
            break
        first -= 1
    return messages[first:]
