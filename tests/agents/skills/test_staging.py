"""Copies of skills that others may not read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flowengine.agents.skills.sandbox import confinement as staging
from flowengine.agents.skills.sandbox.confinement import make_readable
from flowengine.agents.skills.skill_files import RefusedError


def test_a_folder_that_everybody_can_read_is_used_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "a").write_text("x")
    with make_readable(tmp_path) as place:
        assert place == tmp_path


def test_another_is_copied_and_the_copy_is_gone_afterwards(tmp_path: Path) -> None:
    folder = tmp_path / "skill"
    (folder / "in").mkdir(parents=True, mode=0o700)
    (folder / "in" / "a").write_text("x")
    (folder / "in" / "a").chmod(0o600)
    (folder / "link").symlink_to("in/a")
    os.mkfifo(folder / "pipe")
    with make_readable(folder) as place:
        assert place != folder
        assert (place / "link").read_text() == "x"
        assert (place / "in" / "a").stat().st_mode & 0o044 == 0o044
        assert not (place / "pipe").exists()
    assert not place.exists()


def test_what_is_too_large_to_be_copied_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "MAX_COPY", 5)
    (tmp_path / "a").write_text("too large")
    (tmp_path / "a").chmod(0o600)
    with pytest.raises(RefusedError) as refused, make_readable(tmp_path):
        pass
    assert "too large to be copied" in refused.value.values["reason"]
