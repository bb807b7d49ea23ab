"""What is installed: every requirement has one exact version for the tests, from no particular place."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PINNED = [line for line in (ROOT / "tests" / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
VERSIONS = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in PINNED)}


def requirements() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    every = [*project["dependencies"], *(each for extra in project["optional-dependencies"].values() for each in extra)]
    return [found for found in map(Requirement, every) if found.name != "flowengine"]


def test_the_versions_of_the_tests_are_exact_and_name_no_place() -> None:
    assert [line for line in PINNED if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line)] == []
    assert len(VERSIONS) == len(PINNED)


def test_every_requirement_is_pinned_within_what_users_may_have() -> None:
    for each in requirements():
        assert each.url is None
        assert VERSIONS[canonicalize_name(each.name)] in each.specifier, each


def test_the_documented_command_and_the_checks_use_the_pinned_versions() -> None:
    assert "python -m pip install '.[test]' -c tests/constraints.txt" in (ROOT / "README.md").read_text()
    assert 'PIP_CONSTRAINT="$PWD/tests/constraints.txt"' in (ROOT / ".ci" / "run").read_text()
