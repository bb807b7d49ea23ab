"""The providers of an agent, one after the other: their fragments, and what the transforms did to them.

It knows the order, and that none of them may stop the others: one that fails, hangs or floods is logged and
told, and the chain goes on without it. It knows no prompt and no budget.

Source of the rules: rows C2, C3 and C6 of the requirements.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

import anyio

from flowengine.context import Fragment
from flowengine.foreign import describe_error
from flowengine.providers.packer import Entry
from flowengine.providers.provider import ContextProvider, called, fragments_of
from flowengine.providers.shortening import MARK
from flowengine.records import ProviderFailed
from flowengine.secret_values import NO_SECRETS, Secrets
from flowengine.values import shown

__all__ = ["FAILED", "LONGEST", "cleared", "gather", "guarded", "told"]

LONGEST: Final = 1_000_000
"""Characters that are taken of what one provider brings."""

FAILED: Final = object()
"""What a provider that failed gave."""

Note = Callable[[Any], Awaitable[None]]

_logger: Final = logging.getLogger(__name__)


async def gather(
    providers: Iterable[ContextProvider], query: str, note: Note, secrets: Secrets = NO_SECRETS, **facts: Any
) -> list[Entry]:
    """What all providers bring for a query, in their order. `facts` reach them as keyword arguments (`agent_name`).

    `secrets` are taken out of each text at once, before a transform or a record sees it.

    What a transform left out is there as well, as dropped; `note` is told of every provider that failed.
    """
    present: list[Entry] = []
    gone: list[Entry] = []
    for provider in providers:
        previous = [each.fragment for each in present]
        found = await guarded(provider, fragments_of, provider, query, previous, note=note, **facts)
        if found is FAILED:
            continue
        fragments = await _sound(provider, found, note)
        if fragments is None:
            continue
        if secrets:
            fragments = [each._replace(text=secrets.hide(each.text)) for each in fragments]
        if provider.transforms:
            present, lost = _transformed(provider, present, fragments)
            gone += lost
        else:
            present += _capped(provider, fragments)
    return [*present, *gone]


async def told(providers: Iterable[ContextProvider], interaction: Mapping[str, Any], note: Note) -> None:
    """Tell every provider of an interaction that is over."""
    for provider in providers:
        if type(provider).update is not ContextProvider.update:
            await guarded(provider, provider.update, interaction, note=note)


async def cleared(providers: Iterable[ContextProvider], note: Note) -> None:
    """Have every provider forget."""
    for provider in providers:
        if type(provider).clear is not ContextProvider.clear:
            await guarded(provider, provider.clear, note=note)


async def guarded(
    provider: ContextProvider, method: Callable[..., Any], *arguments: Any, note: Note, **named: Any
) -> Any:
    """What a method of a provider gives; where it fails or takes too long that is logged and told, and `FAILED`."""
    try:
        with anyio.fail_after(provider.timeout):
            return await called(method, *arguments, **named)
    except TimeoutError as error:
        problem = str(error) or f"it did not answer within {provider.timeout:g} s"
    except (Exception, SystemExit) as error:  # Foreign code: whatever it raises is its own failure.
        problem = describe_error(error)
    await _tell(provider, problem, note)
    return FAILED


async def _tell(provider: ContextProvider, problem: str, note: Note) -> None:
    name = provider.provider_name or type(provider).__name__
    _logger.warning("context provider '%s' failed: %s", name, problem)
    await note(ProviderFailed(name, problem))


async def _sound(provider: ContextProvider, found: Any, note: Note) -> list[Fragment] | None:
    """The fragments that say anything, as text that can be written down; None where other things came."""
    given: list[Any] = [*found] if isinstance(found, list | tuple) and not isinstance(found, Fragment) else [found]
    wrong = [each for each in given if not (isinstance(each, Fragment) and isinstance(cast(Any, each.text), str))]
    if wrong:
        await _tell(provider, f"fragments must return a list of Fragment, not {shown(wrong[0])}", note)
        return None
    return [_plain(each) for each in given if each.text.strip()]


def _plain(fragment: Fragment) -> Fragment:
    """Without halves of surrogate pairs, which are no text."""
    try:
        fragment.text.encode()
    except UnicodeEncodeError:
        return fragment._replace(text=fragment.text.encode(errors="replace").decode())
    return fragment


def _capped(provider: ContextProvider, fragments: Iterable[Fragment]) -> list[Entry]:
    """A source's fragments, up to so many characters."""
    left, entries = LONGEST, list[Entry]()
    for each in fragments:
        fragment = each if each.source else each._replace(source=provider.provider_name)
        why = f"the provider brought more than {LONGEST:,} characters"
        if left <= 0:
            entries.append(Entry(fragment._replace(text=fragment.text[:100]), "dropped", why))
        elif len(fragment.text) > left:
            cut = fragment._replace(text=f"{fragment.text[:left]} {MARK}")
            entries.append(Entry(cut, "shortened", why))
        else:
            entries.append(Entry(fragment))
        left -= len(fragment.text)
    return entries


def _transformed(
    provider: ContextProvider, before: Sequence[Entry], after: Sequence[Fragment]
) -> tuple[list[Entry], list[Entry]]:
    """The entries after a transform, and those that it left out."""
    known = {each.fragment: each for each in before}
    named = {(each.fragment.source, each.fragment.label): each.fragment for each in before}
    staying = Counter(after)
    present, touched = list[Entry](), Counter[Fragment]()
    for fragment in after:
        old = named.get((fragment.source, fragment.label))
        if fragment in known:
            present.append(known[fragment])
        elif old is None or old in staying or old in touched:
            present.append(Entry(fragment))
        else:
            touched[old] += 1
            present.append(Entry(fragment, "shortened", f"by '{provider.provider_name}'"))
    gone = Counter(each.fragment for each in before) - staying - touched
    why = f"taken out by '{provider.provider_name}'"
    return present, [known[each]._replace(state="dropped", why=why) for each in gone.elements()]
