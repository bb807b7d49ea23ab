"""Carries what one run leaves to the next one of the same session.

A session is loaded once, when a run begins, and then is part of the run's record; it is written once, at a successful
end, and only what the run has changed. Runs of one session that overlap each add what was said and changed in them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from flowengine.agents.typed_contexts import apply_change, are_at_odds, describe_change
from flowengine.core import Fence, copy_mutable, freeze
from flowengine.engine import FinalContext, JournalStore, KeptView, RunStarted, Walk
from flowengine.errors import InputError, StateError, refuse_other_kind
from flowengine.nodes import CompiledFlow

if TYPE_CHECKING:
    from flowengine.agents.typed_contexts import TypedContext

_LOGGER: Final = logging.getLogger("flowengine.sessions")
LONGEST: Final = 1000
"""Interactions of a conversation that are kept, the newest."""
_KIND: Final = "session"
_SAVED: Final = "=runs"
"""Beside what is kept: the runs that it is from, the newest."""
_OF_ONE_RUN: Final = ("skills", "memory")
"""What no later run of the session begins with: memories are kept in their own place."""


def check_session_name(name: str) -> str:
    """Give the name back as it is, or raise `InputError` where no session can have it.

    >>> check_session_name(" ")
    Traceback (most recent call last):
    flowengine.errors.InputError: a session is named by 1 to 200 characters, not ' '
    """
    refuse_other_kind(name, str, "a session's name is text", InputError)
    is_text = "\0" not in name and name == name.encode(errors="replace").decode()  # As every store can keep it.
    if not (name.strip() and len(name) <= 200 and is_text):
        raise InputError(f"a session is named by 1 to 200 characters, not {name!r:.80}")
    return name


def load_session(plan: CompiledFlow, store: JournalStore, session: str) -> Mapping[str, Any]:
    """Returns the stored session, with as much of its talk as the flow's agents can show; empty for a new one.

    That no agent of the flow shows or keeps any of it is told before anything runs.
    """
    from flowengine.nodes import keeps_talk

    if not keeps_talk(plan.all_nodes.values()):
        _LOGGER.warning(
            "session '%s' keeps nothing of flow '%s': none of its agents has a conversation; "
            "give those that should have `history_size: 10` or `context: [conversation]`",
            session,
            plan.name,
        )
    values = dict(store.recall(_KIND, check_session_name(session)) or {})
    values.pop(_SAVED, None)
    if "conversation" not in values:
        return freeze(values)
    from flowengine.agents.context import ConversationHistoryProvider
    from flowengine.nodes import providers_of

    providers = providers_of(plan.all_nodes.values())
    limits = [each.max_items for each in providers if isinstance(each, ConversationHistoryProvider)]
    if limits:
        values["conversation"] = values["conversation"][-max(limits) :] if max(limits) else []
    return freeze(values)


async def leave_behind(
    plan: CompiledFlow, store: JournalStore, started: RunStarted, walk: Walk, fence: Fence | None
) -> Sequence[str]:
    """Keep what a run leaves that has succeeded: its memories, and what its session goes on with.

    It may be done again, when the run was interrupted before its end was on record: all of it is kept once. `fence`
    is asked first, so that nothing is left of a run that another goes on with. Returned is what could not be kept,
    and why.
    """
    from flowengine.nodes import providers_of  # Few flows leave anything.

    session = started.settings.get("session")
    kept_values = FinalContext(walk).runtime.kept
    if "memory" not in kept_values and session is None:
        return ()
    if fence is not None:
        await fence()
    problems: Sequence[str] = ()
    if "memory" in kept_values:
        from flowengine.agents.context import keep_for_good  # Fewer remember anything for good.

        problems = await keep_for_good(kept_values, providers_of(plan.all_nodes.values()))
    if session is not None:
        _save(plan, store, session, started, walk, kept_values)
    return problems


def _save(
    plan: CompiledFlow,
    store: JournalStore,
    session: str,
    started: RunStarted,
    walk: Walk,
    all_kept: Mapping[str, Any],
) -> None:
    from flowengine.nodes import contexts_of

    began_with, node = started.kept, str(started.settings.get("from"))
    contexts = [*contexts_of(plan.all_nodes.values())]
    data = _data_of({name: value for name, value in all_kept.items() if name not in _OF_ONE_RUN}, contexts)
    messages = data.pop("conversation", [])[len(began_with.get("conversation", ())) :]
    initial = {f"context:{each.id}": each for each in contexts}

    def add(before: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Returns the stored values with the run's changes."""
        if before is None and began_with:
            _LOGGER.warning("session '%s' was removed while run %s went on: it leaves nothing", session, started.run_id)
            return None
        now = dict(before or {})
        saved, new = now.get(_SAVED, ()), messages
        if started.run_id in saved:
            return before
        base_values: Mapping[str, Any] = began_with
        if "forked" in started.settings:  # What it shares with the run that it is forked from may be there already.
            new = _leave_out_shared(walk, node, now.get("conversation", ()))
            if started.settings["forked"] in saved:
                view = walk.layer_before(walk.graph.index[node])
                base_values = _data_of(KeptView(walk.store, view, copy_mutable), contexts)
        for name, value in data.items():
            if name not in base_values or base_values[name] != value:
                base = base_values[name] if name in base_values else initial[name].dump() if name in initial else None
                now[name] = _merge(session, name, initial.get(name), base, now.get(name, base), value)
        now[_SAVED] = [*saved, started.run_id][-LONGEST:]
        conversation = [*now.get("conversation", ()), *new]
        return {**now, "conversation": conversation[-LONGEST:]} if conversation else now

    store.revise(_KIND, session, add)


def _data_of(values: Mapping[str, Any], contexts: Iterable[TypedContext[Any]]) -> dict[str, Any]:
    """Returns the kept values, with the data of contexts in the place of the changes that are added up to them."""
    from flowengine.agents.typed_contexts import CHANGES_OF, ContextManager

    data = {name: value for name, value in values.items() if not name.startswith(CHANGES_OF)}
    for each in contexts:
        if f"{CHANGES_OF}{each.id}" in values:
            one = each.fresh()
            ContextManager([one]).load(values)
            data[f"context:{each.id}"] = one.dump()
    return data


def _leave_out_shared(walk: Walk, node: str, stored: Sequence[Any]) -> list[Any]:
    """Returns the conversation of a run that is forked at `node`, without the entries its origin has stored."""
    number, graph = walk.graph.index[node], walk.graph
    return [
        entry
        for writer, entries in walk.store.contributions(walk.final(), "conversation")
        for entry in entries
        if writer == number or graph.is_ancestor(number, int(writer)) or entry not in stored
    ]


def _merge(session: str, name: str, context: TypedContext[Any] | None, base: Any, stored: Any, value: Any) -> Any:
    """What the run has made of the data that it began with, made of those that are stored now."""
    if stored == base:
        return value
    theirs, mine = describe_change(base, stored), describe_change(base, value)
    merged = stored if mine is None else apply_change(stored, mine)
    if context is None or theirs is None or mine is None or are_at_odds(theirs, mine):
        _LOGGER.warning("session '%s': two runs at once changed '%s'; what the later one set holds", session, name)
    if context is None:
        return value
    try:
        context.fresh().load(merged)
    except StateError as error:
        _LOGGER.warning("session '%s': two runs at once changed '%s'; the later one counts: %s", session, name, error)
        return value
    return merged
