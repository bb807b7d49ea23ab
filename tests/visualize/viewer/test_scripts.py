"""The modules of the pages' script become one text: each once, behind what it imports, without what is for readers."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from visualize.viewer import scripts
from visualize.viewer.scripts import join_modules, script
from visualize.viewer.shared import FILE, shared_module


def join(monkeypatch: pytest.MonkeyPatch, modules: Mapping[str, str], *names: str) -> list[str]:
    monkeypatch.setattr(scripts, "read_static", modules.__getitem__)
    return join_modules(names).split("\n")


def test_a_module_stands_once_behind_those_that_it_imports(monkeypatch: pytest.MonkeyPatch):
    modules = {
        "a.js": 'import { b, more } from "./b.js";\nimport { c } from "./c.js";\n\nconst a = b + c;\n',
        "b.js": 'import { c } from "./c.js";\nexport const b = c;\nexport async function more() {}\n',
        "c.js": "export class c {}\n",
    }
    expected = ["class c {}", "const b = c;", "async function more() {}", "const a = b + c;"]
    assert join(monkeypatch, modules, "a.js", "c.js") == [*expected, ""]


def test_comments_and_types_are_left_out_and_texts_stay_as_they_are(monkeypatch: pytest.MonkeyPatch):
    head = "// What it is.\n\n/**\n * @param {string} x\n */\n"
    body = 'const a = /** @type {A} */ (x); // here\n  // there\nconst b = "// no";\n'
    assert join(monkeypatch, {"a.js": head + body}, "a.js") == ["const a = (x); // here", 'const b = "// no";', ""]


def test_modules_that_import_each_other_are_refused(monkeypatch: pytest.MonkeyPatch):
    modules = {"a.js": 'import { b } from "./b.js";\n', "b.js": 'import { a } from "./a.js";\n'}
    with pytest.raises(ValueError, match=r"a\.js → b\.js → a\.js"):
        join(monkeypatch, modules, "a.js")


def test_no_module_is_left_out_and_nothing_is_left_of_them():
    names = [each.name for each in FILE.parent.glob("*.js")]
    assert sorted(join_modules(names).split("\n")) == sorted(join_modules(["main.js"]).split("\n"))
    assert "import " not in script()
    assert "export " not in script()
    assert "/**" not in script()


def test_a_file_that_a_module_names_exists():
    root = FILE.parents[2]
    texts = "".join(each.read_text(encoding="utf-8") for each in sorted(FILE.parent.iterdir()) if each.is_file())
    names = set(re.findall(r"\b(?:visualize|flowengine|tests)/[\w./]*\.\w+", texts))
    assert "visualize/progress.py" in names
    assert [name for name in sorted(names) if not (root / name).is_file()] == []


def test_the_table_that_python_and_the_script_share_is_as_python_has_it():
    assert FILE.read_text(encoding="utf-8") == shared_module(), "python -m visualize.viewer.shared"
