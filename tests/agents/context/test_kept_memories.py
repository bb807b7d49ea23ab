from __future__ import annotations

from typing import Any, ClassVar

from flowengine.agents.context.kept_memories import keep_for_good
from flowengine.agents.context.provider import ContextProvider


class Diary(ContextProvider):
    """A memory that nobody registered."""

    provider_name = "diary"
    adds = True
    written: ClassVar[list[Any]] = []

    def get_context(self, query: str, previous_context: str | None = None, **kwargs: Any) -> str:
        return ""

    def settings(self) -> dict[str, Any]:
        return {}

    def load(self, value: Any) -> None:
        self._held = value

    def commit(self) -> None:
        self.written.extend(self._held)


async def test_a_memory_of_a_class_that_nobody_registered_is_kept():
    Diary.written.clear()
    await keep_for_good({"memory": [{"provider": "diary", "settings": {}, "item": "Tea"}]}, [Diary()])
    assert Diary.written == ["Tea"]
