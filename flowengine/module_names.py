"""The names of a project's modules: `_flowengine_0123456789ab.tools` to Python, `tools` to flows and people.

The digits stand for the project's folders, so that two projects may each have a `tools`. Pure.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["ROOT_PREFIX", "is_of_project", "plain_name", "plain_text"]

ROOT_PREFIX: Final = "_flowengine_"
"""How the names begin under which project modules are known to Python."""

_ROOT: Final = re.compile(ROOT_PREFIX + r"[0-9a-f]{12}\.")


def is_of_project(name: str) -> bool:
    """Whether a module's name, as Python knows it, is that of a project's module."""
    return name.startswith(ROOT_PREFIX)


def plain_name(name: str) -> str:
    """A module's name as flows and its own project write it.

    >>> plain_name("_flowengine_0123456789ab.tools"), plain_name("os")
    ('tools', 'os')
    """
    return name.partition(".")[2] if name.startswith(ROOT_PREFIX) else name


def plain_text(text: str) -> str:
    """A text with the plain names of the modules that it speaks of.

    >>> plain_text("cannot import name 'x' from '_flowengine_0123456789ab.tools'")
    "cannot import name 'x' from 'tools'"
    """
    return _ROOT.sub("", text) if ROOT_PREFIX in text else text
