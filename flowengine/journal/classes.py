"""The names of users' classes: how an instance's class is written down, and how it is found again.

A class is named `module:QualName`. It is looked up among what is loaded already, by plain dictionary
reads: reading a run imports no module and calls no code that the run's file names. So whoever goes on with
a run loads its flow first, and whoever only looks at one takes what a class held in the place of an instance.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any, Final, cast

from flowengine.errors import JournalError
from flowengine.module_names import plain_name

__all__ = ["class_name", "find_class", "is_only_looking", "only_looking"]

_looking: Final = ContextVar("only_looking", default=False)


@contextmanager
def only_looking() -> Generator[None]:
    """For whoever shows a run and does not go on with it: a value whose class is not loaded, or has changed
    since, comes as what it held (the fields of a model as a dict, the name of an enum's member)."""
    token = _looking.set(True)
    try:
        yield
    finally:
        _looking.reset(token)


def is_only_looking() -> bool:
    return _looking.get()


def class_name(kind: type[Any]) -> str | None:
    """`module:QualName`, or None where that name does not lead back to the class.

    >>> from pathlib import PurePath
    >>> class_name(PurePath)
    'pathlib:PurePath'
    >>> class_name(type("Made", (), {})) is None
    True
    """
    return f"{kind.__module__}:{kind.__qualname__}" if _lookup(kind.__module__, kind.__qualname__) is kind else None


def find_class(name: str, family: type[Any]) -> type[Any]:
    """The loaded class of that name; it must be a subclass of `family`."""
    module, _, qualname = name.partition(":")
    found = _lookup(module, qualname) or _lookup_elsewhere(module, qualname)
    if found is None:
        raise JournalError(
            f"a value of class '{name}' was recorded and there is no such class now: "
            f"import the module that defines '{plain_name(name)}' before reading this run"
        )
    if not isinstance(found, type) or not issubclass(found, family):
        raise JournalError(
            f"a value of class '{name}' was recorded, but '{name}' is not a class of that sort now; "
            f"restore the definition that the run was made with"
        )
    return cast("type[Any]", found)


def _lookup_elsewhere(module: str, qualname: str) -> object:
    """What the name leads to where the project lies in another folder than when it was recorded, or is imported by
    the program around; None where it leads nowhere or to several."""
    plain = plain_name(module)
    same = [each for each in list(sys.modules) if plain_name(each) == plain]
    found = {id(each): each for name in same if (each := _lookup(name, qualname)) is not None}
    return next(iter(found.values())) if len(found) == 1 else None


def _lookup(module: str, qualname: str) -> object:
    """What the name leads to, through `__dict__` alone; None where it leads nowhere."""
    found: object = sys.modules.get(module)
    for part in qualname.split("."):
        if not isinstance(found, (type, ModuleType)):
            return None
        found = vars(found).get(part)
    return found
