"""Imports a slow module in a thread of its own that never outlives the program.

A thread that the end of the process stops in the middle of an import keeps Python's import lock,
and whatever imports something during finalization (a `__del__` of a library, say) waits for that
lock for ever. So the import is not left to that: `stop` ends it before the next module it loads.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib.machinery import ModuleSpec

__all__ = ["ImportThread"]


class ImportThread:
    """Runs a function that imports. As a finder it finds nothing; it is asked before each module."""

    def __init__(self, name: str, run: Callable[[], None]) -> None:
        self._run = run
        self._stopping = False
        self._thread = threading.Thread(target=self._import, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Give the import up where it is under way, and wait until it has ended."""
        self._stopping = True
        self._thread.join(timeout=60)

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if self._stopping and threading.current_thread() is self._thread:
            raise SystemExit  # no Exception: imported code that tries alternatives must not go on with one
        return None

    def _import(self) -> None:
        sys.meta_path.insert(0, self)
        try:
            with suppress(SystemExit):
                self._run()
        finally:
            sys.meta_path.remove(self)
