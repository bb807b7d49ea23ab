"""What an agent of a flow draws on, made from the file: context providers, typed contexts of the project's code,
memory, and folders of skills.

Imported only by flows that name any of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from flowengine.context import Context
from flowengine.contexts.manager import ContextManager
from flowengine.contexts.typed import TypedContext
from flowengine.providers.factory import ContextProviderFactory
from flowengine.providers.long_term_memory import memory_source
from flowengine.providers.provider import ContextProvider
from flowengine.skills.sandbox import Sandbox
from flowengine.skills.store import SkillStore
from flowengine.spec.project import Problem, Project
from flowengine.spec.schema_agent import MemorySpec
from flowengine.spec.scope import is_static, template
from flowengine.values import shown

__all__ = ["contexts_of", "memory_of", "providers_of", "sandbox_of", "skills_of"]


def providers_of(entries: Sequence[Any], project: Project) -> list[ContextProvider]:
    """The providers of `context`. Their paths are below the project's root, their code is what the project allows."""
    return ContextProviderFactory.create_from_config(list(entries), root=project.root, load=project.import_object)


def contexts_of(targets: Sequence[str], project: Project) -> list[TypedContext[Any] | ContextManager]:
    """The typed contexts of `contexts`; of a class, one with the data that it begins with."""
    return [_context(target, project.import_object(target)) for target in targets]


def skills_of(folders: Sequence[str], project: Project) -> SkillStore:
    """The skills of `skills`, whose folders are below the project's root."""
    return SkillStore([project.resolve(each) for each in folders], hidden=False)


def sandbox_of(project: Project) -> Sandbox:
    """Where their scripts run. That they run unconfined is the project's to allow: flow files may be somebody's."""
    return Sandbox(allow_unconfined=project.allow_unconfined_scripts, root=project.root)


def memory_of(memory: MemorySpec, project: Project, context: Context | None = None) -> ContextProvider:
    """The source of `memory`; without a context, one that stands for it where whose it is depends on the run."""
    settings = memory.settings(project.memory)
    if memory.scope_id is not None and not is_static(memory.scope_id):
        settings["scope_id"] = "C:0" if context is None else str(template(memory.scope_id)(context))
    store = settings.get("store")
    if "store" in memory.model_fields_set or not isinstance(store, str):
        return memory_source(settings, project.root)
    return memory_source({**settings, "store": str(project.root / store)}, None)  # The project's choice, not a flow's.


def _context(target: str, found: Any) -> TypedContext[Any] | ContextManager:
    if isinstance(found, type) and issubclass(found, TypedContext):
        return cast("TypedContext[Any]", found())
    if isinstance(found, TypedContext | ContextManager):
        return cast("TypedContext[Any] | ContextManager", found)
    raise Problem("FE508", f"'{target}' is no typed context: {shown(cast(object, found))}").error()
