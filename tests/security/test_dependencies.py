"""What is installed: every requirement has one exact version for the tests, from no particular place."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from flowengine.version import DISTRIBUTION

ROOT = Path(__file__).parents[2]
PINNED = [line for line in (ROOT / "tests" / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
VERSIONS = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in PINNED)}


def requirements() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    every = [*project["dependencies"], *(each for extra in project["optional-dependencies"].values() for each in extra)]
    return [found for found in map(Requirement, every) if found.name != DISTRIBUTION]


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


def test_every_text_names_the_package_by_its_own_name_on_the_index() -> None:
    """A command that installs `flowengine` fetches another project's code."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == DISTRIBUTION
    installs = re.compile(r"pip3? install[^\n`&]*?(?<![\w.-])flowengine(?!-dag)(?![\w/])|(?<![\w.-])flowengine\[")
    files = [path for path in published() if path != Path(__file__)]
    assert len(files) > 300
    assert [f"{path.name}: {found[0]}" for path in files for found in installs.finditer(path.read_text())] == []


def test_hints_to_install_an_extra_are_made_in_one_place() -> None:
    hints = [path.name for path in published() if path.suffix == ".py" and f"{DISTRIBUTION}[" in path.read_text()]
    assert [name for name in hints if not name.startswith("test_")] == ["version.py"]


def published() -> list[Path]:
    """The texts that are published: code, documentation, examples and the checks."""
    suffixes = {".py", ".md", ".toml", ".yaml", ".txt", ".html", ".js"}
    folders = ("flowengine", "visualize", "flows", "tests", ".ci")
    files = [*ROOT.glob("*.md"), *ROOT.glob("*.toml"), *(each for name in folders for each in (ROOT / name).rglob("*"))]
    return [each for each in files if each.is_file() and (each.suffix in suffixes or each.parent.name == ".ci")]
