"""Opens the skills of one run of an agent: what of them stands in its prompts, and which it has loaded.

Imported where an agent has skills. It knows no file and no script: `flowengine.agents.skills` reads and runs.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from anyio import to_thread

from flowengine.agents.context import PackedEntry
from flowengine.agents.prompt import Part, PartPlace
from flowengine.agents.skills import RefusedError, SkillAccess, SkillScope, SkillStore
from flowengine.agents.skills.sandbox import Sandbox
from flowengine.agents.tools import ToolResult, ToolSet
from flowengine.core import Fragment, Gateway, ProviderFailed, RunScope, describe_error

_LOGGER: Final = logging.getLogger(__name__)
_LOAD: Final = SkillAccess.load_skill.__name__


async def open_skills(
    skills: SkillStore,
    sandbox: Sandbox | None,
    locale: str,
    gateway: Gateway,
    values: Mapping[str, Any],
    scope: RunScope | None,
) -> OpenSkills:
    """The skills of one run. `values`: what ancestors keep, their loaded skills among it."""
    access = SkillAccess(skills, SkillScope.of(scope), gateway.note, locale, sandbox=sandbox)
    return OpenSkills(access, await access.tool_set(), values.get("skills", ()), gateway)


class OpenSkills:
    """The skills of one agent, in one run."""

    def __init__(self, access: SkillAccess, tools: ToolSet, earlier_names: Sequence[str], gateway: Gateway) -> None:
        """`earlier_names`: names of the skills that the agent's ancestors have loaded."""
        self.tools = tools
        self.loaded: list[str] = []
        """Names of those that it has loaded itself, in that order."""
        self._access = access
        self._earlier_names = earlier_names
        self._gateway = gateway

    async def parts(self, query: str) -> tuple[list[Part], list[Part]]:
        """The list, which stands in every prompt; and the bodies that are known already, which may give way."""
        try:
            fragments = await self._access.fragments(query, self._earlier_names)
        except (OSError, RefusedError) as error:  # A file that went away meanwhile.
            _LOGGER.warning("skills cannot be read: %s", error)
            await self._gateway.note(ProviderFailed("skills", describe_error(error)))
            return [], []
        listing = [_make_part(PartPlace.SYSTEM, each) for each in fragments if each.pinned]
        return listing, [_make_part(PartPlace.CONTEXT, each) for each in fragments if not each.pinned]

    async def note_call(self, name: str, arguments: Mapping[str, Any], result: ToolResult) -> None:
        """Told of a call; one that was answered from the record of an earlier attempt counts as well."""
        if name != _LOAD or result.is_error:
            return
        skill = await to_thread.run_sync(self._access.store.find, str(arguments.get("name")))
        if skill is not None and skill.name not in self.loaded:
            self.loaded.append(skill.name)


def _make_part(place: PartPlace, fragment: Fragment) -> Part:
    return Part(place, PackedEntry(fragment))
