"""Provides what was said before and is near to the query, kept for good in a file.

It knows what an interaction leaves behind and how it is shown again. How items are kept and found is
`flowengine.agents.memory`'s.

An agent that stands alone keeps an interaction at once. In a run each node works with a `fresh` source: what it
adds is held back and handed on to the nodes after it, so that no other run and no parallel node sees it.
`commit` keeps it, once the run has succeeded.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from copy import copy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Final, Self, cast

from anyio import to_thread
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from flowengine.agents.context.provider import ContextProvider, ParameterError, at_once, located_store
from flowengine.agents.memory import MemoryDatabase, shortened
from flowengine.agents.memory.items import MemoryItem, Recalled, SQLiteMemoryItems
from flowengine.agents.memory.scopes import MemoryScope, parse_thread_scope_id
from flowengine.agents.retrieval import drop_surrogates
from flowengine.core import Fragment, check_arguments, format_turns, load_messages, quote_lines
from flowengine.errors import DefinitionError, did_you_mean
from flowengine.models import count_tokens

DEFAULT_STORE: Final = ".flowengine/memory.db"
DEFAULT_SCOPE_ID: Final = "default"
_NEARNESS: Final = 0.8
"""Share of the best score from which on an item counts as about as near, where none reaches the threshold."""
_WITH_NEIGHBOURS: Final = 5
"""Items, the nearest ones, whose neighbours enter too."""


class LongTermMemorySettings(BaseModel):
    """Settings of long-term memory: its store, its scope, and its share of the prompt."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    store: str = Field(DEFAULT_STORE, min_length=1, description="The SQLite file that holds the memory")
    scope: MemoryScope = Field(MemoryScope.WORKSPACE, description="Whose it is: workspace, channel or thread")
    scope_id: str = Field(
        DEFAULT_SCOPE_ID, min_length=1, description="Which one; of a thread `channel:ts`. Left out, all runs share one"
    )
    limit: int = Field(20, ge=1, le=1000, description="Interactions that enter a prompt at most")
    threshold: float = Field(
        0.4,
        ge=0,
        le=1,
        description="How near they must be to the query, 0.0–1.0; where none is, the nearest ones enter",
    )
    max_tokens: int = Field(400, ge=1, description="Tokens of one interaction; a longer one is shortened")
    budget: int = Field(2000, ge=1, description="Tokens of all of them; the nearest one enters in any case")
    neighbours: bool = Field(True, description="Whether what was said right before and after enters too, where it fits")


class LongTermMemoryProvider(ContextProvider):
    """Adds earlier exchanges of the same workspace, channel or thread that are close to the query.

    An interaction whose metadata have a `subject` is a fact about it, and takes the place of the one before.
    """

    provider_name: ClassVar[str] = "long_term_memory"
    adds: ClassVar[bool] = True
    config_description: ClassVar[str] = (
        "What was said before in the same workspace, channel or thread, near to the query"
    )
    config_parameters: ClassVar[Mapping[str, str]] = {
        name: field.description or "" for name, field in LongTermMemorySettings.model_fields.items()
    }
    config_example: ClassVar[str] = "- long_term_memory: {store: memory.db, scope: channel, scope_id: C1}"

    def __init__(
        self,
        store: str | os.PathLike[str] = DEFAULT_STORE,
        scope: str = "workspace",
        scope_id: str = DEFAULT_SCOPE_ID,
        limit: int = 20,
        threshold: float = 0.4,
        max_tokens: int = 400,
        budget: int = 2000,
        neighbours: bool = True,
    ) -> None:
        check_arguments(LongTermMemoryProvider.__init__, locals(), ParameterError)
        arguments = {
            "scope": scope,
            "scope_id": scope_id,
            "limit": limit,
            "threshold": threshold,
            "max_tokens": max_tokens,
        }
        more = {"budget": budget, "neighbours": neighbours, "store": os.fspath(store)}
        self._settings = check_settings({**arguments, **more})
        self._items = SQLiteMemoryItems(MemoryDatabase(self._settings.store))
        self._pending: list[MemoryItem] | None = None
        """Items that are not kept yet; None where everything is kept at once."""

    @property
    def is_shared(self) -> bool:
        """Whether nothing says whose it is, so that all runs have the same."""
        return self._settings.scope_id == DEFAULT_SCOPE_ID

    @classmethod
    def from_config(cls, config: Mapping[str, Any], *, root: Path | None = None) -> Self:
        settings = check_settings(config)
        arguments: dict[str, Any] = {**dict(settings), "store": _locate_store(settings.store, root)}
        return cls(**arguments)

    async def fragments(self, query: str, previous: Sequence[Fragment], **kwargs: Any) -> Sequence[Fragment]:
        settings, pending = self._settings, self._pending or ()
        matches = await self._items.search(
            settings.scope,
            settings.scope_id,
            query,
            limit=settings.limit,
            also=pending,
        )
        near = [each.item for each in matches if each.score >= _least_score(matches, settings.threshold)]
        if settings.neighbours:
            near = list({each.id: each for each in [*near, *await self._neighbours(near[:_WITH_NEIGHBOURS])]}.values())
        # Of long exchanges the tokens are counted again and again.
        return await to_thread.run_sync(self._within_budget, near[: settings.limit], kwargs.get("locale", "en"))

    async def _neighbours(self, items: Sequence[MemoryItem]) -> list[MemoryItem]:
        """An answer often stands beside the words that a question shares."""
        return [each for item in items if item.subject is None for each in await self._items.around(item)]

    def _within_budget(self, items: Sequence[MemoryItem], locale: str) -> list[Fragment]:
        fragments: list[Fragment] = []
        room = self._settings.budget
        for rank, item in enumerate(items):
            turns, text = self._format_item(item, locale)
            tokens = count_tokens(text)
            if tokens <= room or not fragments:
                own: dict[str, Any] = {"priority": -rank, "label": _format_day(item), "said": turns}
                fragments.append(Fragment(text, self.provider_name, tokens, **own))
                room -= tokens
        return fragments

    async def update(self, interaction: Mapping[str, Any]) -> None:
        """Remember an interaction; one that failed is none."""
        item = self._item(interaction)
        if item is None:
            return
        if self._pending is None:
            await self._items.add([item])
        else:
            self._pending.append(item)

    async def clear(self) -> None:
        """Forget: what was kept stays on record, but nothing of it holds any more."""
        if self._pending is None:
            await self._items.close(self._settings.scope, self._settings.scope_id, at=datetime.now(UTC))
        else:
            self._pending.clear()

    async def commit(self) -> None:
        """Keep what was held back; done once by the end of a run that has succeeded.

        What is committed twice (each node has what those before it held) is kept once.
        """
        if self._pending:
            await self._items.add(self._pending)
            self._pending.clear()

    def settings(self) -> Mapping[str, Any]:
        settings = self._settings.model_dump(mode="json")
        return settings | {"store": str(Path(self._settings.store).expanduser().absolute())}

    def fresh(self) -> LongTermMemoryProvider:
        """One over the same store, that holds back what it is told."""
        other = copy(self)
        other._pending = []
        return other

    @at_once
    def dump(self) -> Any:
        return [_to_json_value(each) for each in self._pending] if self._pending else None

    @at_once
    def load(self, value: Any) -> None:
        self._pending = [self._load_item(each) for each in cast("Sequence[Mapping[str, Any]]", value)]

    def _item(self, interaction: Mapping[str, Any]) -> MemoryItem | None:
        values = (interaction.get(name) for name in ("user_input", "result"))
        question, answer = ("" if each is None else str(each).strip() for each in values)
        if not interaction.get("success", True) or not (question or answer):
            return None
        metadata = cast("Mapping[str, Any]", interaction.get("metadata") or {})
        subject = metadata.get("subject")
        about = None if subject in (None, "") else str(subject)
        return self._make_item(question, answer, _time_of(interaction.get("timestamp")), about)

    def _make_item(self, question: str, answer: str, at: datetime, subject: str | None) -> MemoryItem:
        question, answer = drop_surrogates(question), drop_surrogates(answer)
        turns = {"user_input": question, "result": answer}
        text = "\n".join(each for each in (question, answer) if each)
        return MemoryItem(self._settings.scope, self._settings.scope_id, text, at, subject, metadata=turns)

    def _load_item(self, value: Mapping[str, Any]) -> MemoryItem:
        return self._make_item(value["user_input"], value["result"], _time_of(value["at"]), value["subject"])

    def _format_item(self, item: MemoryItem, locale: str) -> tuple[str, str]:
        """Returns the turns of an item, and the text of its fragment."""
        words = load_messages(locale)
        question, answer = item.metadata.get("user_input"), item.metadata.get("result")
        turns = format_turns(words, question, answer) if question and answer else f"> {quote_lines(item.text)}"
        excerpt = shortened(turns, self._settings.max_tokens, words("memory.shortened"))
        return turns, f"{_format_day(item)}\n{excerpt}"


def _least_score(matches: Sequence[Recalled], threshold: float) -> float:
    """The least score that counts: the threshold, or where nothing reaches it most of the best one's."""
    best = matches[0].score if matches else 0.0
    return threshold if best >= threshold else best * _NEARNESS


def _locate_store(store: str, root: Path | None) -> Path:
    """Returns the path of the memory's store. Flows may name the default path although it is hidden."""
    if root is not None and store == DEFAULT_STORE:
        return root / store
    return located_store(store, root, parameter="store")


def check_settings(config: Mapping[str, Any]) -> LongTermMemorySettings:
    """The settings that are given; `ParameterError` for one that there is not, or of a wrong kind."""
    try:
        settings = LongTermMemorySettings.model_validate(dict(config))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0])
        if first["type"] == "extra_forbidden":
            raise ParameterError(
                f"memory has no setting '{name}'{did_you_mean(name, LongTermMemorySettings.model_fields)}", name
            ) from error
        problem = f"memory: '{name}': {first['msg']}, found {first['input']!r:.60}"
        raise ParameterError(problem + _explain_percent(name, first["input"]), name) from error
    if not settings.scope_id.strip():
        raise ParameterError("memory: the scope_id is blank: it says whose memory it is", "scope_id")
    if settings.scope is MemoryScope.THREAD:
        try:
            parse_thread_scope_id(settings.scope_id)
        except DefinitionError as error:
            raise ParameterError(f"memory: {error}", "scope_id") from error
    return settings


def _explain_percent(name: str, value: object) -> str:
    """Percentages are a common slip where a share is asked for."""
    if name == "threshold" and isinstance(value, int | float) and 1 < value <= 100:
        return f"; did you mean {value / 100:g}?"
    return ""


def _to_json_value(item: MemoryItem) -> dict[str, Any]:
    """A held item as a JSON value; its scope is the source's."""
    return {**item.metadata, "at": item.valid_from.isoformat(), "subject": item.subject}


def _time_of(value: Any) -> datetime:
    """Returns an entry's time; UTC if it has no zone, and now if it has no time."""
    if isinstance(value, str) and value:
        value = datetime.fromisoformat(value)
    if not isinstance(value, datetime):
        return datetime.now(UTC)
    return value if value.utcoffset() is not None else value.replace(tzinfo=UTC)


def _format_day(item: MemoryItem) -> str:
    return f"{item.valid_from:%Y-%m-%d}"
