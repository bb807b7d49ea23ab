"""What the tests of agents share: a gateway that keeps what it is told."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.agents.standalone import DirectGateway


class Recorder(DirectGateway):
    """A direct gateway with the records it was told, in order."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        super().__init__(self._keep)

    async def _keep(self, record: Any) -> None:
        self.records.append(record)

    def of(self, kind: type[Any]) -> list[Any]:
        """The records of one class."""
        return [record for record in self.records if type(record) is kind]


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()
