"""Gives an agent its skills: the list in its prompt, and the tools by which it gets more, level by level.

It decides what a model is given, and records each load. Reading is the store's matter, running scripts the sandbox's.
What skills and scripts say is data here: it stands between tags that it cannot close.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any, Final, TypeAlias

from anyio import to_thread

from flowengine.agents.skills.answers import BUDGET, Answers, does_fit, make_listing, skill_messages
from flowengine.agents.skills.outline import LONG_TEXT, Outline, make_outline
from flowengine.agents.skills.sandbox import Sandbox
from flowengine.agents.skills.skill import LoadedText, Skill
from flowengine.agents.skills.skill_files import RefusedError, is_script, list_files, relative_path, resolve_path
from flowengine.agents.skills.skill_store import SkillStore
from flowengine.agents.tools import Tool, ToolResult, ToolSet, failed_result, tool_of
from flowengine.core import Fragment, Messages, Note, Notice, RunScope, SkillLoad
from flowengine.errors import DefinitionError
from flowengine.models import count_tokens

# --- Skills loaded in one run


class SkillScope:
    """The skill texts that one run, or one agent that stands alone, has loaded."""

    def __init__(self) -> None:
        self._texts: dict[Hashable, LoadedText] = {}
        self._outlines: dict[Hashable, tuple[str, Outline]] = {}
        self._noticed: set[str] = set()

    @classmethod
    def of(cls, run: RunScope | None) -> SkillScope:
        """The one scope of a run; outside a run a new one."""
        return cls() if run is None else run.once(cls, cls)

    async def take(self, key: Hashable, loaded: LoadedText, skill: str, level: int, note: Note | None) -> None:
        """Keep what was loaded. It is told where this run had not loaded it, or not in this version."""
        cached = self._texts.get(key)
        if cached is not None and cached.text == loaded.text:
            return
        self._texts[key] = loaded
        if note is not None:
            await note(SkillLoad(skill, level, loaded.tokens, loaded.seconds, loaded.memory))

    async def notice(self, text: str, note: Note | None) -> None:
        """Tell something once a run."""
        if note is not None and text not in self._noticed:
            self._noticed.add(text)
            await note(Notice(text))

    def outline(self, key: Hashable, text: str) -> Outline:
        """The outline of a text, made once."""
        cached = self._outlines.get(key)
        if cached is None or cached[0] != text:
            cached = (text, make_outline(text))
            self._outlines[key] = cached
        return cached[1]


SkillChoice: TypeAlias = "str | PathLike[str] | SkillStore | Iterable[str | PathLike[str]]"
"""The values a user may give as `skills`: folders, or a store."""

_MAX_DESCRIBED: Final = 40
"""Skills at most that are described in a list that is not whole."""
_MAX_FOUND: Final = 5
"""Skills that a search names."""
_GRACE: Final = 15.0
"""Seconds that a call may take longer than its script: for starting and ending it."""


def skill_access(
    skills: SkillChoice,
    scope: RunScope | None = None,
    note: Note | None = None,
    locale: str = "en",
    *,
    budget: int = BUDGET,
    sandbox: Sandbox | None = None,
) -> SkillAccess:
    """The access of one agent in one run. A folder that is not there is a `DefinitionError`; no skill is read yet."""
    store = skills if isinstance(skills, SkillStore) else SkillStore(skills)
    return SkillAccess(store, SkillScope.of(scope), note, locale, budget=budget, sandbox=sandbox)


SKILL_TOOLS: Final = {
    "load_skill": "load",
    "read_skill_section": "section",
    "search_skills": "search",
    "read_skill_file": "file",
    "run_skill_script": "script",
}
"""Tool → the key of its words in the catalogues."""


def list_tools(skills: Sequence[Skill], words: Messages, budget: int = BUDGET) -> Sequence[str]:
    """The names of the tools that these skills need, and no more."""
    have_files = any(each.has_files for each in skills)
    needed = {
        "load_skill": True,
        "read_skill_section": have_files or any(each.body_tokens > LONG_TEXT // 2 for each in skills),  # An estimate.
        "search_skills": not does_fit(skills, words, budget),
        "read_skill_file": have_files,
        "run_skill_script": have_files,
    }
    return [name for name, is_needed in needed.items() if is_needed]


class SkillAccess:
    """Skills for one agent: `fragments` for its prompt, `tool_set` for its tools.

    Both are a `DefinitionError` where the store is strict and a skill breaks the specification.
    """

    def __init__(
        self,
        store: SkillStore,
        scope: SkillScope | None = None,
        note: Note | None = None,
        locale: str = "en",
        *,
        budget: int = BUDGET,
        sandbox: Sandbox | None = None,
    ) -> None:
        """`scope` keeps what the agents of a run have loaded. `note` is told of each load (`records.SkillLoad`).
        `budget`: tokens of the list. `sandbox`: where scripts run."""
        if budget < 100:
            raise DefinitionError(f"the budget of the list of skills must be at least 100 tokens, not {budget!r}")
        self.store = store
        self.loaded: list[str] = []
        """Names of the skills that this agent has loaded, in that order: what its node keeps as `skills`."""
        self._scope = SkillScope() if scope is None else scope
        self._note = note
        self._words = skill_messages(locale)
        self._answers = Answers(self._words)
        self._budget = budget
        self._sandbox = Sandbox() if sandbox is None else sandbox

    async def fragments(self, query: str = "", loaded: Sequence[str] = ()) -> tuple[Fragment, ...]:
        """Level 1, pinned. `query`: the task, which decides what is described where not all skills can be.

        `loaded`: skills that the agent's ancestors have loaded; their bodies come after the list, and may be dropped.
        """
        start = time.perf_counter()
        skills = await self._skills()
        if not skills:
            return ()
        whole = does_fit(skills, self._words, self._budget)
        best = [] if whole else await self.store.index.rank_skills(skills, query, _MAX_DESCRIBED)
        listing = make_listing(skills, best, self._words, self._budget)
        await self._tell(("list", listing.text), "*", 1, listing.text, start)
        first = Fragment(listing.text, "skills", listing.tokens, pinned=True, label="list")
        return (first, *[await self._fragment(each) for each in skills if each.name in loaded])

    async def tool_set(self) -> ToolSet:
        """The tools, and no more than these skills need; an inactive set where there are no skills."""
        skills = await self._skills()
        names = list_tools(skills, self._words, self._budget)
        tools = [self._tool(SKILL_TOOLS[name], getattr(self, name)) for name in names]
        return ToolSet("skills", self._words("tools.set"), tools, bool(skills), "skills")

    # --- the tools --------------------------------------------------------------------------------

    async def load_skill(self, name: str) -> str:
        """Level 2: a skill's body, and its files by name."""
        start = time.perf_counter()
        skill = await self._skill(name)
        body = await to_thread.run_sync(self.store.body, skill)
        files = await to_thread.run_sync(list_files, skill) if skill.has_files else []
        answer = self._answers.body(body.text, await self._outline(skill, "", body), files)
        await self._tell((skill.file, ""), skill.name, 2, answer, start)
        if skill.name not in self.loaded:
            self.loaded.append(skill.name)
        return answer

    async def read_skill_section(self, name: str, section: str, path: str = "") -> str:
        """A section of a long body, or of a long file."""
        start = time.perf_counter()
        skill = await self._skill(name)
        text = await self._read(skill, path) if path else await to_thread.run_sync(self.store.body, skill)
        outline = await to_thread.run_sync(self._scope.outline, (skill.file, path), text.text)
        part = outline.find(section)
        if part is None:
            raise RefusedError("section", section=section[:100], lines=self._answers.sections(outline))
        answer = self._answers.section(outline, part)
        await self._tell((skill.file, path, part.number), skill.name, 3 if path else 2, answer, start)
        return answer

    async def search_skills(self, query: str) -> str:
        """Level 1 of the skills that fit best."""
        return self._answers.describe_found(await self.store.index.rank_skills(await self._skills(), query, _MAX_FOUND))

    async def read_skill_file(self, name: str, path: str) -> str:
        """Level 3: the text of a file that is no script."""
        start = time.perf_counter()
        skill = await self._skill(name)
        text = await self._read(skill, path)
        answer = self._answers.file(text.text, await self._outline(skill, path, text))
        await self._tell((skill.file, path), skill.name, 3, answer, start)
        return answer

    async def run_skill_script(self, name: str, path: str, arguments: list[str] | None = None, stdin: str = "") -> str:
        """Level 3: the output of a script."""
        start = time.perf_counter()
        skill = await self._skill(name)
        file = await to_thread.run_sync(resolve_path, skill, path)
        outcome = await self._sandbox.run(skill.folder, relative_path(file, skill), arguments or [], stdin)
        answer = self._answers.output(outcome, self._sandbox.limits)
        await self._tell(("script", skill.file, path, start), skill.name, 3, answer, start)
        return answer

    # --- behind them ------------------------------------------------------------------------------

    async def _skills(self) -> tuple[Skill, ...]:
        """All skills. What is left out is told once a run; where the store is strict it is an error."""
        state = await to_thread.run_sync(self.store.look)
        errors = [str(each) for each in state.diagnostics if each.severity == "error"]
        if errors and self.store.strict:
            raise DefinitionError("skills break the specification:\n" + "\n".join(errors))
        for each in errors:
            await self._scope.notice(f"a skill was left out: {each}", self._note)
        return state.skills

    async def _skill(self, name: str) -> Skill:
        skill = await to_thread.run_sync(self.store.find, name)
        if skill is None:
            raise RefusedError("skill", name=name[:100], hint=await to_thread.run_sync(self.store.hint, name[:100]))
        return skill

    async def _read(self, skill: Skill, path: str) -> LoadedText:
        file = await to_thread.run_sync(resolve_path, skill, path)
        if is_script(relative_path(file, skill)):
            raise RefusedError("script_text", path=path[:200])
        return await to_thread.run_sync(self.store.file, skill, path)

    async def _outline(self, skill: Skill, path: str, text: LoadedText) -> Outline | None:
        if text.tokens <= LONG_TEXT:
            return None
        return await to_thread.run_sync(self._scope.outline, (skill.file, path), text.text)

    async def _fragment(self, skill: Skill) -> Fragment:
        """A body that the run has loaded already, for another of its agents."""
        start = time.perf_counter()
        body = await to_thread.run_sync(self.store.body, skill)
        answer = self._answers.body(body.text, await self._outline(skill, "", body), [])
        await self._tell((skill.file, "again"), skill.name, 2, answer, start)
        return Fragment(answer, "skills", count_tokens(answer), label=skill.name)

    async def _tell(self, key: tuple[object, ...], skill: str, level: int, answer: str, start: float) -> None:
        loaded = LoadedText(answer, count_tokens(answer), time.perf_counter() - start, sys.getsizeof(answer))
        await self._scope.take(key, loaded, skill, level, self._note)

    def _tool(self, key: str, method: Callable[..., Awaitable[str]]) -> Tool:
        """A method as a tool that is described in the agent's language, and says in it what cannot be had."""
        tool = tool_of(method)

        async def run(arguments: Mapping[str, Any]) -> ToolResult:
            try:
                return await tool.run(arguments)
            except RefusedError as refused:
                return failed_result(self._words(refused.key, **refused.values))

        is_unconfined = key == "script" and self._sandbox.allow_unconfined
        return replace(
            tool,
            description=self._words(f"tools.{key}"),
            run=run,
            effect="external" if is_unconfined else "none",
            timeout=self._sandbox.limits.seconds + _GRACE,
        )
