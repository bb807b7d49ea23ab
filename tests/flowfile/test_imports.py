"""Modules beside a flow that import each other, each loaded once."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flowengine.errors import JournalError, ProjectError
from flowengine.flow import Flow
from flowengine.flowfile.project.imports import imported_files, load_module
from flowengine.flowfile.project.project import Project
from flowengine.journal.decode_values import unpack
from flowengine.journal.encode_values import pack
from flowengine.nodes.code_reading import read_code

MODELS = "from dataclasses import dataclass\n@dataclass\nclass Order:\n    id: int\n"


def write(folder: Path, **files: str) -> Project:
    for name, text in files.items():
        file = folder / (name.replace("__", "/").replace("INIT", "__init__") + ".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return Project(folder)


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("import models", "models.Order"),
        ("import json, models as other", "other.Order"),
        ("from models import Order", "Order"),
        ("from models import *", "Order"),
        ("from . import models", "models.Order"),
        ("from .models import Order as Kind", "Kind"),
    ],
)
@pytest.mark.parametrize("inside", [False, True])
def test_a_module_that_is_imported_is_the_one_that_a_flow_calls(
    statement: str, named: str, inside: bool, tmp_path: Path
) -> None:
    within = inside and "*" not in statement  # Python refuses it in a function.
    text = f"def find():\n    {statement}\n    return {named}" if within else f"{statement}\ndef find(): return {named}"
    project = write(tmp_path, models=MODELS, tools=text)
    assert project.import_callable("tools:find")() is project.import_object("models:Order")


@pytest.mark.parametrize("statement", ["import pack.deep.near", "import pack, pack.deep.near"])
def test_an_import_of_a_module_in_a_package_binds_the_package(statement: str, tmp_path: Path) -> None:
    project = write(
        tmp_path, pack__INIT="TOP = 1", pack__deep__near="X = 2", tools=f"{statement}\nV = pack.TOP + pack.deep.near.X"
    )
    assert project.import_object("tools:V") == 3


def test_modules_that_import_each_other_in_a_circle_are_loaded_once(tmp_path: Path) -> None:
    project = write(
        tmp_path, a="import b\nclass A: ...\ndef go(): return b.made()", b="import a\ndef made(): return a.A"
    )
    assert project.import_callable("a:go")() is project.import_object("a:A")


def test_what_a_function_imports_when_it_runs_is_of_its_own_project(tmp_path: Path) -> None:
    text = "def go():\n    from side import NAME\n    return NAME"
    one = write(tmp_path / "one", tools=text, side="NAME = 1").import_callable("tools:go")
    two = write(tmp_path / "two", tools=text, side="NAME = 2").import_callable("tools:go")
    assert (one(), two(), one()) == (1, 2, 1)
    assert "side" not in sys.modules


def test_a_dataclass_of_a_helper_is_journaled_and_read_back(tmp_path: Path) -> None:
    project = write(tmp_path, models=MODELS, tools="from models import Order\ndef make(): return Order(7)")
    made = project.import_callable("tools:make")()
    assert unpack(pack(made)) == made
    assert type(unpack(pack(made))) is project.import_object("models:Order")


def test_a_recorded_value_is_read_where_the_project_lies_in_another_folder(tmp_path: Path) -> None:
    before = write(tmp_path / "before", moved_models=MODELS)
    recorded = pack(before.import_callable("moved_models:Order")(7))
    for name in [each for each in sys.modules if each.endswith(".moved_models")]:
        del sys.modules[name]
    after = write(tmp_path / "after", moved_models=MODELS).import_callable("moved_models:Order")
    assert unpack(recorded) == after(7)


def test_a_class_that_two_other_projects_have_is_not_guessed(tmp_path: Path) -> None:
    recorded = pack(write(tmp_path / "before", twin_models=MODELS).import_callable("twin_models:Order")(7))
    for name in [each for each in sys.modules if each.endswith(".twin_models")]:
        del sys.modules[name]
    for name in ("one", "two"):
        write(tmp_path / name, twin_models=MODELS).import_object("twin_models:Order")
    with pytest.raises(JournalError, match="'twin_models:Order'"):
        unpack(recorded)


def test_an_edit_within_the_same_second_counts_where_python_writes_bytecode(tmp_path: Path) -> None:
    program = (
        "import os, sys\nfrom pathlib import Path\nfrom flowengine.flowfile.project.project import Project\n"
        "folder = Path(sys.argv[1])\nfor n in (1, 2):\n"
        "    (folder / 'side.py').write_text(f'N = {n}')\n    os.utime(folder / 'side.py', ns=(10**18, 10**18 + n))\n"
        "    print(Project(folder).import_callable('tools:go')())\n"
    )
    (tmp_path / "tools.py").write_text("from side import N\ndef go(): return N")
    around = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    ran = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], env=around, capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == ["1", "2"]
    assert not (tmp_path / "__pycache__").exists()


def test_a_helper_that_changed_is_loaded_again_with_all_that_import_it_and_nothing_else(tmp_path: Path) -> None:
    project = write(tmp_path, tools="from side import N\nimport models", side="N = 1", models=MODELS)
    kept = project.import_object("models:Order")
    assert project.import_object("tools:N") == 1
    write(tmp_path, side="N = 22")
    assert project.import_object("tools:N") == 22
    assert project.import_object("models:Order") is kept


def test_a_helper_that_is_gone_is_missed(tmp_path: Path) -> None:
    project = write(tmp_path, tools="from side import N", side="N = 1")
    assert project.import_object("tools:N") == 1
    (tmp_path / "side.py").unlink()
    with pytest.raises(ProjectError, match=r"FE507 .*ModuleNotFoundError: No module named 'side'"):
        project.import_object("tools:N")


def test_after_a_failure_in_a_circle_nothing_of_it_is_left(tmp_path: Path) -> None:
    project = write(tmp_path, a="class A: ...\nimport b\n1 / 0", b="import a\nKind = a.A")
    with pytest.raises(ProjectError, match="ZeroDivisionError"):
        project.import_object("a:A")
    write(tmp_path, a="class A: ...\nimport b")
    assert project.import_object("b:Kind") is project.import_object("a:A")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from side import X", "cannot import name 'X' from 'side'"),
        ("import pack.nothing", "No module named 'pack.nothing'"),
        ("from pack import nothing", "cannot import name 'nothing' from 'pack'"),
    ],
)
def test_errors_of_imports_have_the_plain_names(text: str, expected: str, tmp_path: Path) -> None:
    project = write(tmp_path, tools=text, side="", pack__INIT="")
    with pytest.raises(ProjectError) as caught:
        project.import_object("tools:x")
    assert expected in str(caught.value)
    assert "_flowengine_" not in str(caught.value)


def test_a_mere_folder_gives_way_to_what_is_installed(tmp_path: Path) -> None:
    project = write(
        tmp_path, json__x="", data__y="Y = 1", tools="import json\nimport data.y\nV = json.loads('3') + data.y.Y"
    )
    assert project.import_object("tools:V") == 4


def test_modules_of_all_folders_of_the_python_path_find_each_other(tmp_path: Path) -> None:
    write(tmp_path, src__tools="from shared import X", lib__shared="X = 5")
    project = Project(tmp_path, pythonpath=(tmp_path / "src", tmp_path / "lib"))
    assert project.import_object("tools:X") == 5


def test_a_module_that_the_program_has_imported_is_taken_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = write(tmp_path, hosts__INIT="", hosts__models=MODELS, hosts__steps="from hosts.models import Order")
    monkeypatch.syspath_prepend(tmp_path)
    models = importlib.import_module("hosts.models")
    try:
        assert project.import_object("hosts.models:Order") is models.Order
        assert project.import_object("hosts.steps:Order") is models.Order
    finally:
        for name in [each for each in sys.modules if each.partition(".")[0] == "hosts"]:
            del sys.modules[name]


def test_the_engine_itself_is_never_loaded_twice(tmp_path: Path) -> None:
    project = write(tmp_path, flowengine__INIT="", flowengine__flow="", tools="from flowengine.flow import Flow")
    assert vars(load_module("tools", (project.root,)))["Flow"] is Flow


def test_the_files_of_a_module_are_its_own_and_all_that_it_imports(tmp_path: Path) -> None:
    project = write(
        tmp_path,
        tools="import json\nimport a\ndef go():\n    from pack import late",
        a="from b import X",
        b="import a\nX = 1",
        pack__INIT="",
        pack__late="from . import deeper",
        pack__deeper="",
        other="",
    )
    module = project.import_callable("tools:go").__module__
    names = ("a.py", "b.py", "pack/__init__.py", "pack/deeper.py", "pack/late.py", "tools.py")
    assert imported_files(module) == tuple(tmp_path / each for each in names)
    assert imported_files("json") == ()


def test_a_functions_fingerprint_does_not_know_where_its_project_lies(tmp_path: Path) -> None:
    text = "def go():\n    import side\n    return side.N"
    one, two = (write(tmp_path / each, tools=text, side="N = 1").import_callable("tools:go") for each in ("one", "two"))
    assert one.__module__ != two.__module__
    assert read_code([one]) == read_code([two])


async def test_a_flow_runs_functions_whose_modules_import_each_other(tmp_path: Path) -> None:
    write(
        tmp_path,
        models=MODELS,
        make="from models import Order\ndef make(): return Order(7)",
        check="def check(order):\n    import models\n    return order == models.Order(7)",
    )
    (tmp_path / "flow.yaml").write_text(
        "flowengine: v1\nname: t\nnodes:\n  make: {type: function, call: 'make:make', with: {}}\n"
        "  check: {type: function, call: 'check:check', needs: [make], with: {order: '{{ nodes.make.output }}'}}\n"
    )
    run = await Flow.from_yaml(tmp_path / "flow.yaml").run()
    assert run.outputs["check"] is True
