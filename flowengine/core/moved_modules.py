"""Knows where public modules have gone that stood elsewhere in earlier versions.

Journals name classes by their modules, and programs import modules by their names: both go on with the old ones. Of
modules that were never public, those are found whose folder moved as a whole. It imports nothing that takes time,
since `import flowengine` loads it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

_LOCAL = ("event_stream", "forking", "local", "row_runs", "shared_past")
_PLACES = {
    "flowengine.context_providers": "flowengine.agents.context",
    "flowengine.estimate": "flowengine.flowfile.estimate",
    "flowengine.experiments": "flowengine.evals",
    "flowengine.masking": "flowengine.core.masking",
    "flowengine.memory": "flowengine.agents.memory",
    "flowengine.notify": "flowengine.nodes.notify",
    "flowengine.retrieval": "flowengine.agents.retrieval",
    "flowengine.runners": "flowengine.runtime",
    **{f"flowengine.runners.{name}": f"flowengine.runtime.local.{name}" for name in _LOCAL},
    "flowengine.runners.queue.worker_schedules": "flowengine.runtime.schedules.worker_schedules",
    "flowengine.runners.schedule_ticker": "flowengine.runtime.schedules.schedule_ticker",
    "flowengine.server": "flowengine.web",
    "flowengine.server.run_actions": "flowengine.web.pages.run_actions",
    "flowengine.serving": "flowengine.web",
    "flowengine.skills": "flowengine.agents.skills",
    "flowengine.storage": "flowengine.core.storage",
    "flowengine.telemetry": "flowengine.runtime.telemetry",
    "flowengine.templating": "flowengine.core.templating",
    "flowengine.tools": "flowengine.agents.tools",
    "flowengine.typed_contexts": "flowengine.agents.typed_contexts",
}


def current_name(module: str) -> str:
    """The name that a module has now; its own where it stands where it stood.

    >>> current_name("flowengine.memory.scopes.memories")
    'flowengine.agents.memory.scopes.memories'
    >>> current_name("json")
    'json'
    """
    if not module.startswith("flowengine."):
        return module
    head, rest = module, ""
    while head not in _PLACES:
        head, dot, last = head.rpartition(".")
        if not dot:
            return module
        rest = f".{last}{rest}"
    return _PLACES[head] + rest


class MovedModuleFinder:
    """Imports a module under the name that it had in an earlier version: it is the same module.

    It stands before the finders of files, which would find the files below such a module a second time.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        now = current_name(fullname)
        if now == fullname:
            return None
        from importlib.machinery import ModuleSpec  # Few programs come here.

        loader: Any = self
        return ModuleSpec(fullname, loader)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        from importlib import import_module

        module = import_module(current_name(spec.name))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """The module has run already; the import system put the old name's spec on it, and its own comes back."""
        spec = module.__spec__
        if spec is not None:
            module.__spec__ = spec.loader_state
