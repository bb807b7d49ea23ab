"""placeholder"""

from __future__ import annotations

from collections.abc import Iterator

from flowengine.errors import Diagnostic
from flowengine.spec.project import Project
from flowengine.spec.schema import FlowSpec


def check(spec: FlowSpec, project: Project | None, *, whole: bool, warnings: bool) -> Iterator[Diagnostic]:
    return iter(())
