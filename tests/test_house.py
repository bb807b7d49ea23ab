"""The house keeps its order: no name stands twice, and modules do not import each other in circles."""

from __future__ import annotations

from pathlib import Path

from tests.bench.house import circles, classes_that_stand_twice, files_that_stand_twice


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
