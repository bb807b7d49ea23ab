"""What one run holds."""

from __future__ import annotations

from flowengine.agents.skills.disclosure import SkillScope
from flowengine.core.run_scope import RunScope


def test_a_run_has_one_scope_and_an_agent_alone_its_own() -> None:
    run = RunScope()
    assert SkillScope.of(run) is SkillScope.of(run)
    assert SkillScope.of(run) is not SkillScope.of(RunScope())
    assert SkillScope.of(None) is not SkillScope.of(None)


def test_an_outline_is_made_once_a_text() -> None:
    scope = SkillScope()
    first = scope.outline("a", "# A\n# B\n")
    assert scope.outline("a", "# A\n# B\n") is first
    assert len(scope.outline("a", "# C\n").sections) == 1
