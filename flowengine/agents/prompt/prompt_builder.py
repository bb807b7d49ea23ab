"""Builds the prompts of one run of an agent: opened for the run, used before each call, told of each result.

All that enters a prompt passes here: the agent's own texts, what providers, typed contexts and skills bring, the
session's history, the chat it goes on from, and what tools say. What of it stays is the packer's decision. It
knows no graph: what the run's earlier nodes keep is handed in, what this one adds is handed out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from flowengine.agents.caller import Caller
from flowengine.agents.context import PackedEntry, brought_of, entries_of, gather
from flowengine.agents.context_changes import ContextChanges, data_of, kept_changes
from flowengine.agents.prompt.chat_window import ChatWindow
from flowengine.agents.prompt.prompt import text_of
from flowengine.agents.prompt.prompt_parts import (
    Packing,
    Part,
    PartPlace,
    PromptQuestion,
    assemble_messages,
    fixed_parts,
)
from flowengine.agents.prompt.question_files import attach_files
from flowengine.agents.sources import ProviderState, Sources, load_provider_state
from flowengine.agents.tools import Tool, ToolResult, ToolSet
from flowengine.agents.typed_contexts import ContextManager, ToolCallResult
from flowengine.core import ContextGathered, FileValue, Gateway, LLMResult, Messages, RunScope, Secrets
from flowengine.errors import GuardrailError, RunError
from flowengine.models import Message, Models, Request

if TYPE_CHECKING:
    from flowengine.agents.open_skills import OpenSkills


async def open_prompt_builder(
    sources: Sources,
    agent: str,
    words: Messages,
    gateway: Gateway,
    models: Models,
    values: Mapping[str, Any] | None,
    scope: RunScope | None,
    recorded: Sequence[Any],
    secrets: Secrets | None = None,
    names: Sequence[str] = (),
) -> PromptBuilder:
    """The material of one run. `models`: those that its sources know by name. `values`: what the ancestors of its node
    keep; None for an agent that stands alone. `recorded`: what an interrupted attempt of the node has told. `secrets`:
    what no text of a file may bring into a prompt. `names`: of the agent's tools.
    """
    skills = None
    if sources.skills is not None:
        from flowengine.agents.open_skills import open_skills  # Most agents have none.

        skills = await open_skills(sources.skills, sources.sandbox, words.locale, gateway, values or {}, scope)
    memories = await load_provider_state(sources.providers, values, gateway)
    contexts = sources.contexts
    if values is not None and contexts is not None:
        contexts = contexts.fresh()
        contexts.load(values)
    return PromptBuilder(
        *(sources.budget, memories, contexts, skills, agent, words, gateway, models, recorded, secrets),
        window=ChatWindow(words, [*names, *_tool_names(contexts)]),
        is_run=values is not None,
        is_plain=not sources.names() and sources.budget is None,
    )


def _tool_names(contexts: ContextManager | None) -> list[str]:
    return [tool.name for each in (() if contexts is None else contexts.tool_sets()) for tool in each.tools]


def _movable(parts: Iterable[Part]) -> list[Part]:
    """The parts of the question: those before it, and the chat after it, are given with each request."""
    fixed = (PartPlace.SYSTEM, PartPlace.EARLIER, PartPlace.REMARK, PartPlace.AFTER)
    return [each for each in parts if each.place not in fixed]


@dataclass(eq=False)
class PromptBuilder:
    """Builds the prompts of one run; it follows the run's tool loops and has tools for them (`tooling.Bringer`)."""

    budget: int | None
    memories: ProviderState
    """The providers of this run."""
    contexts: ContextManager | None
    skills: OpenSkills | None
    agent: str
    words: Messages
    gateway: Gateway
    models: Models
    recorded: Sequence[Any]
    secrets: Secrets | None
    window: ChatWindow
    is_run: bool
    """Whether it is a flow's, which keeps what changes."""
    is_plain: bool
    """Whether there is nothing but the agent's own texts and tools."""
    _query: str = ""
    _packing: Packing = field(init=False)
    _question: Message | None = None
    """The question as it was asked first; where contexts have changed since, something else is sent in its place."""
    _attachments: tuple[FileValue, ...] = ()
    _shared: str = ""
    _parts: Sequence[Part] = ()
    """The parts that the prompt is made of now."""
    _is_stale: bool = False
    _is_changed: bool = False

    def __post_init__(self) -> None:
        contexts = self.contexts if self.is_run else None
        self._changes = None if contexts is None else ContextChanges(contexts, self.recorded)
        self._data_before = data_of(self.contexts) if self.is_run else {}

    # --- prompts

    async def prompt(self, question: PromptQuestion, caller: Caller) -> tuple[Message, ...]:
        """The chat that asks a question."""
        self._query = question.input_text
        self._packing = Packing(caller, self.words, self.budget, is_quiet=self.is_plain)
        context = [Part(PartPlace.CONTEXT, each) for each in await self._gather_entries()]
        listing, loaded = ([], []) if self.skills is None else await self.skills.parts(self._query)
        loaded = [self._hide_secrets(each) for each in loaded]
        parts = question.parts(listing, [*context, *loaded, *await self._render_contexts()])
        whole = assemble_messages(self.words, parts)
        parts = await self._packing.pack(parts, self._find_room(whole, caller.loop().schemas))
        self._attachments, self._shared = question.attachments, question.shared
        messages = assemble_messages(self.words, parts, self._shared)
        if question.attachments:
            messages = attach_files(messages, question.attachments)
        self._question = messages[-1]
        self._parts = _movable(parts)
        return messages

    async def refresh_messages(self, request: Request) -> tuple[Message, ...]:
        """The chat with the contexts as they are now, and what tools said cut down where it outgrew the budget."""
        messages = request.messages
        if self._is_stale:
            rendered = await self._render_contexts()
            self._parts = [*(each for each in self._parts if each.place is not PartPlace.TYPED), *rendered]
            self._is_stale, self._is_changed = False, True
        if self._question not in messages:
            return messages
        room = self._find_room(messages, [*request.tools, request.response_schema])
        if not (self._is_changed or self.window.is_cut or self._packing.exceeds(messages, room)):
            return messages
        at = len(messages) - 1 - messages[::-1].index(self._question)  # The chat before may hold an equal one.
        before, after = [*fixed_parts(messages[:at]), *self._parts], messages[at + 1 :]
        messages_shown = assemble_messages(self.words, [*before, *self.window.parts(after)], self._shared)
        if self._packing.exceeds(messages_shown, room):
            parts = await self.window.shrink(self._packing, before, after, room)
            self._parts, self._is_changed = _movable(parts), True
            messages_shown = assemble_messages(self.words, parts, self._shared)
        behind = len(messages_shown) - at - 1
        return attach_files(messages_shown, self._attachments, behind) if self._attachments else messages_shown

    def _find_room(self, messages: Sequence[Message], schemas: Iterable[Any]) -> int | None:
        """The room beside the schemas of tools and answers, and of the tool that is offered once something is taken
        out."""
        present_schemas = [each for each in schemas if each]
        more = (each.schema() for each in self.window.tools.tools if present_schemas)
        return self._packing.find_room(messages, [*present_schemas, *more])

    async def _gather_entries(self) -> list[PackedEntry]:
        """Gathers the providers' entries, or takes those recorded by an interrupted attempt of the node."""
        record = next((each for each in self.recorded if type(each) is ContextGathered), None)
        if record is not None:
            return entries_of(record)
        providers, note = self.memories.providers, self.gateway.note
        facts: dict[str, Any] = {"agent_name": self.agent, "locale": self.words.locale, "models": self.models}
        entries = await gather(providers, self._query, note, self.secrets, gateway=self.gateway, **facts)
        if entries and self.is_run:
            await self.gateway.note(brought_of(entries))
        return entries

    def _hide_secrets(self, part: Part) -> Part:
        if self.secrets is None:
            return part
        fragment = part.entry.fragment
        return part._replace(
            entry=part.entry._replace(fragment=fragment._replace(text=self.secrets.hide(fragment.text)))
        )

    async def _render_contexts(self) -> list[Part]:
        """The typed contexts' texts; they stay whatever the budget is, for their tools change what they show."""
        fragments = await self.contexts.fragments(self._query) if self.contexts is not None else ()
        return [Part(PartPlace.TYPED, PackedEntry(each._replace(pinned=True))) for each in fragments]

    # --- tools

    def tool_sets(self) -> Sequence[ToolSet]:
        """The contexts' tools, as they are now, those of skills, and the one that gives back what was taken out."""
        sets = [] if self.contexts is None else self.contexts.tool_sets()
        context_sets = sets if self._changes is None else self._changes.wrap_sets(sets)
        skills = () if self.skills is None else (self.skills.tools,)
        return (*context_sets, *skills, *((self.window.tools,) if self.window.is_cut else ()))

    def begin_round(self, calls: Iterable[tuple[Tool, Mapping[str, Any]]]) -> None:
        if self._changes is not None:
            self._changes.begin_round(calls)

    def take_result(self, tool: Tool, result: ToolResult) -> ToolResult:
        return result if self._changes is None else self._changes.unwrap_result(tool, result)

    async def note_call(self, name: str, arguments: Mapping[str, Any], result: ToolResult) -> None:
        """Tell the contexts, whose texts may be others now; and see which skills were loaded."""
        if self.skills is not None:
            await self.skills.note_call(name, arguments, result)
        if self._changes is not None:
            self._changes.end_round()
        if self.contexts is not None and self.contexts.context_list:
            value = result.text if result.value is None else result.value
            failures = await self.contexts.tool_called(ToolCallResult(name, arguments, value, result.is_error))
            for each in failures:
                await self.gateway.note(each)
            self._is_stale = True

    # --- what happened

    async def tell_answer(self, input_text: str, result: LLMResult) -> Mapping[str, Any] | None:
        """Tell the providers of an answer; what this run adds to what is kept."""
        interaction = await self._tell(input_text, text_of(result.content), result.success, result.metadata)
        if not self.is_run:
            return None
        values = kept_changes(self.contexts, self._data_before)
        if self.skills is not None and self.skills.loaded:
            values["skills"] = list(self.skills.loaded)
        return (values | await self.memories.collect_kept(interaction)) or None

    async def tell_failure(self, input_text: str, error: RunError) -> None:
        """Tell the providers that there is no answer; what a guardrail refused is not told."""
        if not isinstance(error, GuardrailError):
            await self._tell(input_text, "", False, {"error": f"{type(error).__name__}: {error}"})

    async def _tell(self, input_text: str, result: str, success: bool, metadata: Mapping[str, Any]) -> dict[str, Any]:
        interaction = {
            "user_input": input_text,
            "result": result,
            "success": success,
            "metadata": {**metadata, "agent_name": self.agent},
            "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        await self.memories.tell(interaction)
        return interaction
