"""The house keeps its order: no name stands twice, and modules do not import each other in circles."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from tests.bench.house import (
    circles,
    classes_that_stand_twice,
    doors,
    face_of,
    files_that_stand_twice,
    floors,
    house_participles,
    modules,
    rooms,
    uses_of_faces,
)

ABOVE_ALL = {"flowengine.cli", "flowengine.docs", "flowengine.importers", "visualize"}
"""Rooms whose names no other room needs, and pictures, which are a package of their own."""


def test_a_public_class_name_stands_in_one_module():
    assert classes_that_stand_twice() == {}


def test_few_file_names_stand_in_several_folders():
    assert len(files_that_stand_twice()) <= 12, files_that_stand_twice()


def test_no_modules_import_each_other_in_a_circle():
    assert circles() == []


def test_tests_are_skipped_only_for_what_a_machine_lacks():
    """`tests.support.require.missing` names it, and fails where everything has to be there."""
    tests = Path(__file__).parent
    named = {tests / "support" / "require.py", tests / "agents" / "skills" / "test_sandbox.py", Path(__file__)}
    skipping = [
        path for path in tests.glob("**/*.py") if path not in named and "pytest.skip(" in path.read_text("utf-8")
    ]
    assert skipping == []


def test_every_room_has_a_face_that_another_room_imports():
    assert {room for room in rooms() if not face_of(room)} <= ABOVE_ALL
    packages = {each.name for each in modules() if each.is_package}
    uses = uses_of_faces()
    needless = {(face, name) for face in packages for name in face_of(face) if (face, name) not in uses}
    assert {(face, name) for face, name in needless if face != "flowengine.agents.memory"} == set()


def test_a_face_has_the_names_that_it_says():
    packages = [each.name for each in modules() if each.is_package and face_of(each.name)]
    missing = [
        f"{face}.{name}" for face in packages for name in face_of(face) if not hasattr(import_module(face), name)
    ]
    assert missing == []


def test_rooms_import_faces():
    assert len(doors()) <= 71, doors()


def test_the_rooms_stand_on_eleven_floors():
    assert floors() <= 11


def test_hardly_a_name_is_a_participle():
    assert house_participles().reached
