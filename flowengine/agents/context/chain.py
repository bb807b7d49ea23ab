"""Asks the providers of an agent one after the other, and records what they brought.

None of them may stop the others: one that fails, hangs or floods is logged and recorded, and the chain goes on without
it. It knows no prompt and no budget.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

import anyio

from flowengine.agents.context.packer import PackedEntry
from flowengine.agents.context.provider import ContextProvider, call_method, fragments_of
from flowengine.core import ContextGathered, Fragment, ProviderFailed, Secrets, describe_error, describe_value
from flowengine.models import MARK

# --- Fragments as a record, and back

_DEFAULTS: Final = Fragment("", "")._asdict()


def brought_of(entries: Iterable[PackedEntry]) -> ContextGathered:
    """The record; what is as it is by default is left out of it.

    >>> brought_of([PackedEntry(Fragment("Refunds.", "fixed_file"))]).fragments
    [{'text': 'Refunds.', 'source': 'fixed_file'}]
    """
    return ContextGathered([_to_row(each) for each in entries])


def entries_of(record: ContextGathered) -> list[PackedEntry]:
    """Returns the entries that a record was made of."""
    return [_to_entry(each) for each in record.fragments]


def _to_row(entry: PackedEntry) -> dict[str, Any]:
    values = entry.fragment._asdict().items()  # What it hands on is compared while it is gathered, and never again.
    fragment = {name: value for name, value in values if name != "said" and value != _DEFAULTS[name]}
    state = {} if entry.state == "kept" else {"state": entry.state, "why": entry.why}
    return fragment | state


def _to_entry(row: Mapping[str, Any]) -> PackedEntry:
    fragment = Fragment(**{name: row.get(name, default) for name, default in _DEFAULTS.items()})
    return PackedEntry(fragment, row.get("state", "kept"), row.get("why", ""))


# --- Providers asked in turn

_logger: Final = logging.getLogger(__name__)

LONGEST: Final = 1_000_000
"""Characters that are taken of what one provider brings."""

FAILED: Final = object()
"""The result of a provider that failed."""

Note = Callable[[Any], Awaitable[None]]


async def gather(
    providers: Iterable[ContextProvider], query: str, note: Note, secrets: Secrets | None = None, **facts: Any
) -> list[PackedEntry]:
    """Gathers the fragments of all providers for a query, in order. `facts` are passed as keyword arguments
    (`agent_name`).

    `secrets` are taken out of each text at once, before a transform or a record sees it.

    What a transform left out is there as well, as dropped; `note` is told of every provider that failed.
    """
    present: list[PackedEntry] = []
    dropped: list[PackedEntry] = []
    for provider in providers:
        previous = [each.fragment for each in present]
        result = await call_guarded(provider, fragments_of, provider, query, previous, note=note, **facts)
        if result is FAILED:
            continue
        fragments = await _check_fragments(provider, result, note)
        if fragments is None:
            continue
        if secrets is not None:
            fragments = [
                each._replace(text=secrets.hide(each.text), said=secrets.hide(each.said)) for each in fragments
            ]
        if provider.transforms:
            present, removed = _compare_transform(provider, present, fragments)
            dropped += removed
        else:
            fresh, duplicates = _leave_out_known(fragments, present)
            present += _cap_fragments(provider, fresh)
            dropped += duplicates
    return [*present, *dropped]


async def tell_providers(providers: Iterable[ContextProvider], interaction: Mapping[str, Any], note: Note) -> None:
    """Tell every provider of an interaction that is over."""
    for provider in providers:
        if type(provider).update is not ContextProvider.update:
            await call_guarded(provider, provider.update, interaction, note=note)


async def clear_providers(providers: Iterable[ContextProvider], note: Note) -> None:
    """Have every provider forget."""
    for provider in providers:
        if type(provider).clear is not ContextProvider.clear:
            await call_guarded(provider, provider.clear, note=note)


async def call_guarded(
    provider: ContextProvider, method: Callable[..., Any], *arguments: Any, note: Note, **keywords: Any
) -> Any:
    """Calls a provider's method; returns `FAILED` and records a notice if it fails or takes too long."""
    try:
        with anyio.fail_after(provider.timeout):
            return await call_method(method, *arguments, **keywords)
    except TimeoutError as error:
        problem = str(error) or f"it did not answer within {provider.timeout:g} s"
    except (Exception, SystemExit) as error:  # Foreign code: whatever it raises is its own failure.
        problem = describe_error(error)
    await _report_problem(provider, problem, note)
    return FAILED


async def _report_problem(provider: ContextProvider, problem: str, note: Note) -> None:
    name = provider.provider_name or type(provider).__name__
    _logger.warning("context provider '%s' failed: %s", name, problem)
    await note(ProviderFailed(name, problem))


async def _check_fragments(provider: ContextProvider, result: Any, note: Note) -> list[Fragment] | None:
    """The fragments that say anything, as text that can be written down; None where other things came."""
    items: list[Any] = [*result] if isinstance(result, list | tuple) and not isinstance(result, Fragment) else [result]
    problem = next((problem for each in items if (problem := _find_problem(each))), "")
    if problem:
        await _report_problem(provider, problem, note)
        return None
    return [_drop_surrogates(each) for each in items if each.text.strip()]


def _leave_out_known(
    fragments: Sequence[Fragment], present: Iterable[PackedEntry]
) -> tuple[list[Fragment], list[PackedEntry]]:
    """A source's fragments less those whose words another source has brought already, and these, as dropped."""
    sources = {
        words: each.fragment.source
        for each in present
        if each.state != "dropped" and (words := _words_of(each.fragment)) in each.fragment.text
    }
    fresh: list[Fragment] = []
    duplicates: list[PackedEntry] = []
    for each in fragments:
        source = None if each.pinned else sources.get(_words_of(each))
        if source is None:
            fresh.append(each)
        else:
            duplicates.append(PackedEntry(each, "dropped", f"'{source}' has it already"))
    return fresh, duplicates


def _words_of(fragment: Fragment) -> str:
    return (fragment.said or fragment.text).strip()


_TEXTS: Final = ("source", "label", "group", "text", "said")


def _find_problem(fragment: Any) -> str:
    """Says what of a fragment neither a prompt nor a record could take; empty where it is one."""
    if not isinstance(fragment, Fragment) or not isinstance(cast(Any, fragment.text), str):
        return f"fragments must return a list of Fragment, not {describe_value(cast(Any, fragment))}"
    for name in (*_TEXTS, "priority", "order"):
        value = getattr(fragment, name)
        if not isinstance(value, str | None if name in _TEXTS else int | float):
            kind = "text" if name in _TEXTS else "a number"
            return f"the {name} of a Fragment must be {kind}, not {describe_value(value)}"
    return ""


def _drop_surrogates(fragment: Fragment) -> Fragment:
    """Without halves of surrogate pairs, which are no text."""
    texts = {name: getattr(fragment, name) for name in _TEXTS}
    return fragment._replace(
        **{name: text.encode(errors="replace").decode() for name, text in texts.items() if text and not text.isascii()}
    )


def _cap_fragments(provider: ContextProvider, fragments: Iterable[Fragment]) -> list[PackedEntry]:
    """A source's fragments, up to so many characters."""
    room, entries = LONGEST, list[PackedEntry]()
    for each in fragments:
        fragment = each if each.source else each._replace(source=provider.provider_name)
        why = f"the provider brought more than {LONGEST:,} characters"
        if room <= 0:
            entries.append(PackedEntry(fragment._replace(text=fragment.text[:100]), "dropped", why))
        elif len(fragment.text) > room:
            cut = fragment._replace(text=f"{fragment.text[:room]} {MARK}")
            entries.append(PackedEntry(cut, "shortened", why))
        else:
            entries.append(PackedEntry(fragment))
        room -= len(fragment.text)
    return entries


def _compare_transform(
    provider: ContextProvider, before: Sequence[PackedEntry], after: Sequence[Fragment]
) -> tuple[list[PackedEntry], list[PackedEntry]]:
    """The entries after a transform, and those that it left out."""
    entries = {each.fragment: each for each in before}
    by_label = {(each.fragment.source, each.fragment.label): each.fragment for each in before}
    staying = Counter(after)
    present, touched = list[PackedEntry](), Counter[Fragment]()
    for fragment in after:
        old = by_label.get((fragment.source, fragment.label))
        if fragment in entries:
            present.append(entries[fragment])
        elif old is None or old in staying or old in touched:
            present.append(PackedEntry(fragment))
        else:
            touched[old] += 1
            present.append(PackedEntry(fragment, "shortened", f"by '{provider.provider_name}'"))
    removed = Counter(each.fragment for each in before) - staying - touched
    why = f"taken out by '{provider.provider_name}'"
    return present, [entries[each]._replace(state="dropped", why=why) for each in removed.elements()]
