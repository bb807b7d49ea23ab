"""Programs and journals of earlier versions name modules where they stood then."""

from __future__ import annotations

import importlib
import sys

import pytest

from flowengine.agents.memory.scopes.memories import Memory
from flowengine.journal.value_types import find_class

NAMES = {
    "flowengine.memory": "flowengine.agents.memory",
    "flowengine.memory.scopes.memories": "flowengine.agents.memory.scopes.memories",
    "flowengine.retrieval.retriever": "flowengine.agents.retrieval.retriever",
    "flowengine.masking.masker": "flowengine.core.masking.masker",
    "flowengine.runners.queue.worker": "flowengine.runtime.queue.worker",
    "flowengine.runners.queue.worker_schedules": "flowengine.runtime.schedules.worker_schedules",
    "flowengine.runners.row_runs": "flowengine.runtime.local.row_runs",
    "flowengine.server.app": "flowengine.web.app",
    "flowengine.server.run_actions": "flowengine.web.pages.run_actions",
    "flowengine.serving.serving_app": "flowengine.web.serving_app",
}


@pytest.mark.parametrize(("before", "now"), NAMES.items(), ids=NAMES)
def test_a_module_is_imported_by_the_name_that_it_had(before: str, now: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, before, raising=False)
    module = importlib.import_module(before)
    assert module is importlib.import_module(now)
    assert module.__spec__ is not None
    assert module.__spec__.name == module.__name__ == now


def test_a_name_that_no_version_had_is_no_module():
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'flowengine\.memories'"):
        importlib.import_module("flowengine.memories")


def test_a_journal_names_a_class_by_the_module_that_it_stood_in():
    assert find_class("flowengine.memory.scopes.memories:Memory", Memory) is Memory
