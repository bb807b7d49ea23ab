"""Documents on disk, and what of them changed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from flowengine.agents.context.documents import DocumentSource
from flowengine.agents.retrieval.retriever import Document
from flowengine.errors import RunError


def test_a_folder_gives_its_texts_in_pieces_with_their_places(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/a.md").write_text("# One\n\nShort.\n")
    (tmp_path / "b.txt").write_text("Plain.\n")
    (tmp_path / "image.png").write_bytes(b"\x89PNG\0\0")
    added, removed = DocumentSource(tmp_path).changes()
    assert added == [
        Document("b.txt#1", "Plain.", {"path": "b.txt", "line": 1}),
        Document("deep/a.md#1", "# One\n\nShort.", {"path": "deep/a.md", "line": 1}),
    ]
    assert removed == []


def test_pieces_end_at_headings_and_blank_lines_once_they_say_enough(tmp_path: Path) -> None:
    parts = [f"## Part {number}\n\n{'Some words of this part. ' * 30}\n" for number in range(4)]
    (tmp_path / "a.md").write_text("\n".join(parts))
    added, _ = DocumentSource(tmp_path).changes()
    assert [each.text.splitlines()[0] for each in added] == [f"## Part {number}" for number in range(4)]
    assert [each.metadata["line"] for each in added] == [1, 5, 9, 13]


def test_a_text_without_any_seams_is_cut_anyway_and_nothing_is_lost(tmp_path: Path) -> None:
    text = "緑茶は湯の温度で味が変わる。" * 1000
    (tmp_path / "a.txt").write_text(text)
    added, _ = DocumentSource(tmp_path).changes()
    assert len(added) > 5
    assert "".join(each.text for each in added) == text
    assert {each.metadata["line"] for each in added} == {1}


def test_only_what_changed_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("One.")
    (tmp_path / "b.md").write_text("Two.")
    source = DocumentSource(tmp_path)
    source.changes()
    assert source.changes() == ([], [])
    (tmp_path / "a.md").write_text("Once more.")
    (tmp_path / "b.md").unlink()
    assert source.changes() == ([Document("a.md#1", "Once more.", {"path": "a.md", "line": 1})], ["b.md#1"])
    source.forget()
    assert len(source.changes().added) == 1


def test_a_file_that_has_fewer_pieces_now_loses_the_others(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text("\n\n".join(f"Paragraph {number}. {'word ' * 200}" for number in range(5)))
    source = DocumentSource(tmp_path)
    assert len(source.changes().added) == 5
    path.write_text("Short.")
    assert sorted(source.changes().removed) == ["a.md#2", "a.md#3", "a.md#4", "a.md#5"]


def test_json_lines_are_documents_with_their_ids_and_metadata(tmp_path: Path) -> None:
    path = tmp_path / "faq.jsonl"
    lines = [{"id": "a", "text": "One.", "metadata": {"lang": "en"}}, {"text": "二。"}]
    path.write_text("\n".join(json.dumps(each, ensure_ascii=False) for each in lines) + "\n\n")
    source = DocumentSource(path)
    assert source.changes().added == [Document("a", "One.", {"lang": "en"}), Document("2", "二。", {})]
    path.write_text('{"id": "b", "text": "Three."}\n')
    os.utime(path, ns=(1, 1))
    added, removed = source.changes()
    assert added == [Document("b", "Three.", {})]
    assert sorted(removed) == ["2", "a"]


def test_json_lines_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "faq.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"id": "a", "text": "One."}\n')
    assert DocumentSource(path).changes().added == [Document("a", "One.")]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("not json", "line 2: this is no JSON"),
        ('{"text": ' + "[" * 100_000, "line 2: this is no JSON"),
        ('{"txt": "a"}', 'line 2: a document is {"text"'),
        ("[1]", "line 2: a document is"),
        ('{"text": "a", "metadata": 3}', "line 2: a document is"),
        ('{"text": 5}', "line 2: a document is"),
    ],
)
def test_a_line_that_is_no_document_is_named(tmp_path: Path, line: str, problem: str) -> None:
    path = tmp_path / "faq.jsonl"
    path.write_text(f'{{"text": "fine"}}\n{line}\n')
    with pytest.raises(RunError, match=f"faq.jsonl, {problem}"):
        DocumentSource(path).changes()


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "memory.db").write_bytes(b"SQLite \xf8")
    with pytest.raises(RunError, match=r"memory\.db: this is no UTF-8 text, and so no JSON lines"):
        DocumentSource(tmp_path / "memory.db").changes()


@pytest.mark.parametrize("name", ["faq.jsonl", "docs"])
def test_what_is_not_there_deletes_no_documents(tmp_path: Path, name: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/a.md").write_text("One.")
    (tmp_path / "faq.jsonl").write_text('{"id": "a", "text": "One."}\n')
    source = DocumentSource(tmp_path / name)
    (first,), _ = source.changes()
    (tmp_path / name).rename(tmp_path / "away")
    with pytest.raises(RunError, match=rf"{name}' cannot be read \(No such file or directory\); an index keeps what"):
        source.changes()
    (tmp_path / "away").rename(tmp_path / name)
    assert source.changes() == ([], [])
    assert first.text == "One."


def test_a_text_that_is_too_large_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "manual.md").write_text("word " * 200_000)
    (tmp_path / "photo.png").write_bytes(b"\x89PNG\0" * 200_000)
    source = DocumentSource(tmp_path)
    assert source.changes() == source.changes() == ([], [])
    (said,) = caplog.messages
    assert said.endswith("manual.md' is too large for a document, and is not searched: cut it up")


def test_a_folder_that_is_there_and_empty_has_lost_its_documents(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("One.")
    source = DocumentSource(tmp_path)
    source.changes()
    (tmp_path / "a.md").unlink()
    assert source.changes() == ([], ["a.md#1"])


def test_values_that_say_nothing_and_values_that_no_index_holds_keep_no_document_out(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(
        '{"text": "One.", "id": null, "metadata": null}\n'
        '{"text": "Two.", "id": null}\n'
        '{"text": "Three.", "id": "\\ud800", "metadata": {"size": NaN}}\n'
    )
    added, _ = DocumentSource(file).changes()
    assert added == [
        Document("1", "One.", {}),
        Document("2", "Two.", {}),
        Document("?", "Three.", {"size": None}),
    ]
