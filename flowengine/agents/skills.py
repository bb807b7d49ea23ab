"""Skills in one run of an agent: their list for the system message, their tools, and which of them were loaded.

It knows how the parts of a prompt come of them. What is disclosed when is the skills' own matter.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from anyio import to_thread

from flowengine.agents.parts import Part, Place
from flowengine.agents.sources import Sources
from flowengine.context import Fragment
from flowengine.foreign import describe_error
from flowengine.providers.packer import Entry
from flowengine.records import Gateway, ProviderFailed
from flowengine.run_scope import RunScope
from flowengine.skills.disclosure import SkillAccess
from flowengine.skills.files import RefusedError
from flowengine.skills.scope import SkillScope
from flowengine.tools.tool import ToolResult
from flowengine.tools.toolset import ToolSet

__all__ = ["OpenSkills", "open_skills"]

_LOGGER: Final = logging.getLogger(__name__)
_LOAD: Final = SkillAccess.load_skill.__name__


async def open_skills(
    sources: Sources, locale: str, gateway: Gateway, kept: Mapping[str, Any], scope: RunScope | None
) -> OpenSkills | None:
    """The skills of one run. `kept`: what ancestors keep, their loaded skills among it."""
    if sources.skills is None:
        return None
    access = SkillAccess(sources.skills, SkillScope.of(scope), gateway.note, locale, sandbox=sources.sandbox)
    return OpenSkills(access, await access.tool_set(), kept.get("skills", ()), gateway)


class OpenSkills:
    """Of one agent, in one run."""

    def __init__(self, access: SkillAccess, tools: ToolSet, known: Sequence[str], gateway: Gateway) -> None:
        """`known`: names of the skills that the agent's ancestors have loaded."""
        self.tools = tools
        self.loaded: list[str] = []
        """Names of those that it has loaded itself, in that order."""
        self._access = access
        self._known = known
        self._gateway = gateway

    async def parts(self, query: str) -> tuple[list[Part], list[Part]]:
        """The list, which stands in every prompt; and the bodies that are known already, which may give way."""
        try:
            fragments = await self._access.fragments(query, self._known)
        except (OSError, RefusedError) as error:  # A file that went away meanwhile.
            _LOGGER.warning("skills cannot be read: %s", error)
            await self._gateway.note(ProviderFailed("skills", describe_error(error)))
            return [], []
        listed = [_part(Place.SYSTEM, each) for each in fragments if each.pinned]
        return listed, [_part(Place.CONTEXT, each) for each in fragments if not each.pinned]

    async def called(self, name: str, arguments: Mapping[str, Any], result: ToolResult) -> None:
        """Told of a call; one that was answered from the record of an earlier attempt counts as well."""
        if name != _LOAD or result.is_error:
            return
        found = await to_thread.run_sync(self._access.store.find, str(arguments.get("name")))
        if found is not None and found.name not in self.loaded:
            self.loaded.append(found.name)


def _part(place: Place, fragment: Fragment) -> Part:
    return Part(place, Entry(fragment))
