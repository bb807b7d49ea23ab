"""Which store a command means.

`--store`, else `FLOWENGINE_STORE`, else the `store` of the project that the working folder belongs to,
else `.flowengine/runs.db` in the working folder. All commands look in the same place.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from flowengine.journal.address import without_password

if TYPE_CHECKING:  # the commands' modules are imported to print their help
    from flowengine.engine.ports import JournalStore
    from flowengine.journal.database import Durability

__all__ = ["DURABILITIES", "again", "chosen_store", "journals", "keeps", "shown_store", "store_option"]

DEFAULT: Final = os.path.join(".flowengine", "runs.db")
DURABILITIES: Final = ("full", "process", "memory")
"""As in `flowengine.journal.database`, which is not imported to print help."""

F = TypeVar("F", bound=Callable[..., Any])


def store_option(function: F) -> F:
    return click.option(
        "--store",
        metavar="URL",
        help=f"Where runs are kept: a file, sqlite:///… or postgresql://…  [default: $FLOWENGINE_STORE or {DEFAULT}]",
    )(function)


def chosen_store(given: str | None) -> str:
    return given or os.environ.get("FLOWENGINE_STORE") or _of_project() or DEFAULT


def _of_project() -> str | None:
    """The project's store; a relative path is relative to the project's folder."""
    from flowengine.spec.project import project_of  # Only where nothing nearer names the store.

    project, _ = project_of(None)
    if project.store is None:
        return None
    path = project.store.removeprefix("sqlite:///")
    is_path = path != project.store or ":" not in path
    return str(project.root / path) if is_path else project.store


def keeps(store: str) -> bool:
    """Whether a run can be found there after this process has ended."""
    return not store.lower().startswith("memory:")


@contextmanager
def journals(store: str, durability: Durability = "full") -> Generator[JournalStore]:
    """The store, open for as long as the block lasts."""
    from flowengine.journal.stores import open_store  # Commands are imported for their help, too.

    opened = open_store(store, durability)
    try:
        yield opened
    finally:
        opened.close()


def again(command: str, run_id: str, store: str | None) -> str:
    """The command line that does something with a run, as it can be pasted; without a password.

    >>> again("resume", "3f9a", None)
    'flowengine resume 3f9a'
    """
    words = ["flowengine", *command.split(), run_id, *(["--store", without_password(store)] if store else [])]
    return shlex.join(words)


def shown_store(given: str | None) -> str:
    """The chosen store as it may be shown."""
    return without_password(chosen_store(given))
