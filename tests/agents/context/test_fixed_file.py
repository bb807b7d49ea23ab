from __future__ import annotations

import os
from pathlib import Path

import pytest

from flowengine.agents.context.fixed_file import FixedFileProvider
from flowengine.agents.context.provider import MissingFileError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "policies.md"
    path.write_text("返金は30日以内。")
    return path


def test_its_text_stands_under_its_description(file: Path):
    assert FixedFileProvider(file, "Policies").get_context("") == "Policies:\n返金は30日以内。"
    assert FixedFileProvider(file).get_context("") == "返金は30日以内。"


def test_it_is_read_again_only_when_it_has_changed(file: Path, monkeypatch: pytest.MonkeyPatch):
    provider = FixedFileProvider(file)
    file.write_text("Refunds within 14 days.")
    assert provider.get_context("") == "Refunds within 14 days."
    monkeypatch.setattr("builtins.open", lambda *args: pytest.fail("it was read again"))
    assert provider.get_context("") == "Refunds within 14 days."


def test_a_change_of_equal_length_is_seen(file: Path):
    provider = FixedFileProvider(file)
    file.write_text("返金は14日以内。")
    os.utime(file, ns=(1, 1))
    assert provider.get_context("") == "返金は14日以内。"


def test_a_missing_file_is_an_error_at_once(tmp_path: Path):
    with pytest.raises(MissingFileError, match=r"the file '.*none\.md' cannot be read: No such file") as raised:
        FixedFileProvider(tmp_path / "none.md")
    assert raised.value.parameter == "file_path"


def test_a_file_that_vanishes_fails_the_call_and_may_come_back(file: Path):
    provider = FixedFileProvider(file)
    file.unlink()
    with pytest.raises(MissingFileError, match="cannot be read: No such file"):
        provider.get_context("")
    file.write_text("Back again.")
    assert provider.get_context("") == "Back again."


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"\x89PNG\x00\x01", "is no text: it holds bytes of zero"), ("café".encode("latin-1"), "is not UTF-8")],
)
def test_what_is_no_text_is_an_error(file: Path, content: bytes, problem: str):
    file.write_bytes(content)
    with pytest.raises(MissingFileError, match=problem):
        FixedFileProvider(file)


def test_the_configuration_of_a_program_needs_no_root(file: Path):
    file.write_text("Text")
    assert FixedFileProvider.from_config({"file_path": str(file)}).get_context("") == "Text"


def test_a_folder_is_no_file(tmp_path: Path):
    with pytest.raises(MissingFileError, match="Is a directory"):
        FixedFileProvider(tmp_path)


def test_a_mark_of_byte_order_is_no_text_and_an_empty_file_no_section(file: Path):
    file.write_bytes(b"\xef\xbb\xbfText")
    assert FixedFileProvider(file).get_context("") == "Text"
    file.write_text("")
    assert FixedFileProvider(file, "Policies").get_context("") == ""


def test_a_huge_file_is_not_read_to_its_end(file: Path):
    file.write_text("日" * 3_000_000)
    text = FixedFileProvider(file).get_context("")
    assert 1_000_000 < len(text) < 1_400_000
    assert set(text) == {"日"}
