from __future__ import annotations

import subprocess
import sys
import threading
from importlib import import_module
from pathlib import Path

import pytest

from flowengine.models.litellm.loading import ImportThread


def test_it_imports_and_leaves_no_trace_in_the_import_system() -> None:
    before = list(sys.meta_path)
    done = threading.Event()
    ImportThread("x", lambda: (import_module("wave"), done.set())[1])
    assert done.wait(20)
    ImportThread("y", lambda: None).stop()
    assert sys.meta_path == before


def test_stopped_it_loads_no_further_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = """
import sys
sys.began.set()
sys.go_on.wait(20)
try:
    import wave_that_is_not_there
except Exception:
    sys.alternatives.append("tried")
"""
    (tmp_path / "slow_module.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    began, go_on, alternatives = threading.Event(), threading.Event(), list[str]()
    for name, value in (("began", began), ("go_on", go_on), ("alternatives", alternatives)):
        monkeypatch.setattr(sys, name, value, raising=False)
    thread = ImportThread("x", lambda: (import_module("slow_module"), None)[1])
    assert began.wait(20)
    threading.Timer(0.05, go_on.set).start()
    thread.stop()
    assert alternatives == []
    assert "slow_module" not in sys.modules


@pytest.mark.long
def test_a_program_ends_although_a_finalizer_imports() -> None:
    """What hung: the import lock was kept by a thread that had been stopped in an import."""
    code = """
import time
from flowengine.models.litellm.model import LiteLLMModel
class Late:
    def __del__(self):
        import wave
late = Late()
LiteLLMModel.preload()
time.sleep(0.7)
"""
    for _ in range(3):
        assert subprocess.run([sys.executable, "-c", code], check=False, timeout=300).returncode == 0
