"""What installed packages bring, on the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.packages import installed_package

Command = Callable[..., Any]

_PACKAGE = """
    from flowengine.models.scripted import ScriptedModel

    def parrot(name, settings, environ):
        return ScriptedModel([f"{name} at {settings.base_url}"], name=name, provider="parrot")
"""

_FLOW = """
flowengine: v1
name: talk
nodes:
  hello: {model: parrot/grey, prompt: Say hello}
outputs: {said: "{{ nodes.hello.output }}"}
"""


@pytest.fixture(autouse=True)
def package(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    (folder / "talk.yaml").write_text(_FLOW)
    place = tmp_path_factory.mktemp("site")
    with installed_package(place, "a_package", _PACKAGE, {"flowengine.models": {"parrot": "a_package:parrot"}}):
        yield


def test_a_vendor_of_a_package_is_known_to_validate_plan_doctor_and_run(flowengine: Command, folder: Path) -> None:
    (folder / "flowengine.toml").write_text('[providers.parrot]\nbase_url = "http://cage"\n')
    assert flowengine("validate", "talk.yaml").code == 0
    plan = flowengine("plan", "talk.yaml")
    assert (plan.code, "parrot/grey" in plan.out) == (0, True)
    doctor = flowengine("doctor")
    assert (doctor.code, "parrot (a_package)" in doctor.out) == (0, True)
    assert flowengine("run", "talk.yaml", "--store", "memory:").out.strip() == "grey at http://cage"


def test_a_misspelt_vendor_of_a_package_has_its_place_and_the_nearest_name(flowengine: Command, folder: Path) -> None:
    (folder / "talk.yaml").write_text(_FLOW.replace("parrot/", "parrott/"))
    said = flowengine("plan", "talk.yaml")
    assert said.code != 0
    assert "talk.yaml:5:18: FE511" in said.out + said.err
    assert "did you mean 'parrot'?" in said.out + said.err


def test_a_misspelt_vendor_of_the_project_file_has_the_nearest_name(flowengine: Command, folder: Path) -> None:
    (folder / "flowengine.toml").write_text("[providers.parot]\nmax_parallel = 1\n")
    said = flowengine("validate", "talk.yaml")
    assert "unknown provider 'parot' in `providers`; did you mean 'parrot'?" in said.out + said.err
