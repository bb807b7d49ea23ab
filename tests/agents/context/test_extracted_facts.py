"""Paths, errors and ids, word for word."""

from __future__ import annotations

import time

import pytest

from flowengine.agents.context.compressor.extraction import (
    NO_FACTS,
    TextFacts,
    facts_of,
    facts_text,
    merge_facts,
    unseen,
)
from flowengine.core.locale import load_messages
from flowengine.models.tokens import count_tokens


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("Read src/app.py, then tests/test_app.py.", ["src/app.py", "tests/test_app.py"]),
        ("ファイルsrc/app.pyを読む", ["src/app.py"]),
        ("`設計/要件.md` と「docs/返品.md」", ["設計/要件.md", "docs/返品.md"]),
        ("C:\\Users\\me\\notes.txt and ~/x.yaml and ./run.sh", ["C:\\Users\\me\\notes.txt", "~/x.yaml", "./run.sh"]),
        ("/etc/hosts /var/log", ["/etc/hosts", "/var/log"]),
        ("pages/[id].tsx a/b/c @scope/pkg/x.js", ["pages/[id].tsx", "a/b/c", "@scope/pkg/x.js"]),
        ("src/flow/engine.py:42: bad", ["src/flow/engine.py"]),
        ("main.c and README.md", ["main.c", "README.md"]),
        ("and/or, client/server, 3.14, e.g. this, self.name, v1.2", []),
    ],
)
def test_paths(text: str, paths: list[str]) -> None:
    assert list(facts_of(text).paths) == paths


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("commit 3f2a9bc of PROJ-77 (#123)", ["3f2a9bc", "PROJ-77", "#123"]),
        ("123e4567-e89b-12d3-a456-426614174000", ["123e4567-e89b-12d3-a456-426614174000"]),
        ("order_12ab34 call_a1b2c3d4 20240101", ["order_12ab34", "call_a1b2c3d4", "20240101"]),
        ("see https://x.org/a/b.html?c=1, please", ["https://x.org/a/b.html?c=1"]),
        ("deadbeef feedface defaced 12345 max_files", []),
    ],
)
def test_ids(text: str, ids: list[str]) -> None:
    assert list(facts_of(text).ids) == ids


@pytest.mark.parametrize(
    "line",
    [
        "ValueError: no such key",
        "  fatal: not a git repository",
        "エラー: 接続できません",
        "错误：找不到文件",
        "오류가 발생했습니다",
        "process ended with exit code 3",
        "HTTP 404 Not Found",
    ],
)
def test_errors_are_whole_lines(line: str) -> None:
    assert facts_of(f"All is well.\n{line}\nGo on.").errors == (line.strip(),)


def test_an_error_that_never_ends_is_cut() -> None:
    (error,) = facts_of("error: " + "x" * 10_000).errors
    assert len(error) == 200


@pytest.mark.parametrize("text", ["a/" * 200_000, "a." * 200_000, "a-b_" * 100_000, "0a" * 200_000, "\\" * 100_000])
def test_no_text_takes_long(text: str) -> None:
    begun = time.process_time()
    facts_of(text)
    assert time.process_time() - begun < 5


def test_what_is_seen_elsewhere_is_not_lost() -> None:
    lost = unseen(merge_facts([facts_of("src/a.py"), facts_of("src/b.py src/a.py")]), facts_of("I read src/a.py."))
    assert lost == TextFacts(paths=("src/b.py",))


def test_the_list_names_each_kind_once() -> None:
    facts = facts_of("src/a.py PROJ-1\nValueError: bad\nsrc/b.py")
    assert facts_text(load_messages("en"), facts, 1000, count_tokens) == (
        "Word for word, from what was left out:\nFiles: src/a.py, src/b.py\nErrors:\n- ValueError: bad\nIds: PROJ-1"
    )
    assert "ファイル: src/a.py, src/b.py" in facts_text(load_messages("ja"), facts, 1000, count_tokens)
    assert facts_text(load_messages("en"), NO_FACTS, 1000, count_tokens) == ""


def test_where_there_is_little_room_paths_stay_and_of_them_the_newest() -> None:
    facts = facts_of(" ".join(f"src/module_{number}.py PROJ-{number}" for number in range(100)))
    text = facts_text(load_messages("en"), facts, 80, count_tokens)
    assert count_tokens(text) <= 80
    assert "src/module_99.py" in text
    assert "src/module_1.py" not in text
    assert "PROJ-" not in text
