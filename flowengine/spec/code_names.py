"""`module:name`, as flows name code: what is said, what is private, and where an object was made. Pure."""

from __future__ import annotations

import re
from functools import lru_cache
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Final, NamedTuple

from flowengine.module_names import plain_name

__all__ = ["CodeName", "code_name", "home_of"]

_TARGET: Final = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)")


class CodeName(NamedTuple):
    module: str
    name: str

    @property
    def is_private(self) -> bool:
        """Whether a part of it begins with an underscore, which by Python's custom is for its module alone."""
        return any(part.startswith("_") for part in (*self.module.split("."), self.name))


def code_name(target: str) -> CodeName | None:
    """The two parts; None for what is no such name.

    >>> code_name("tools.search:find")
    CodeName(module='tools.search', name='find')
    >>> [code_name(each) for each in ("tools", "tools:find.__globals__", "../tools:find", "tools..x:find")]
    [None, None, None, None]
    """
    found = _TARGET.fullmatch(target)
    return None if found is None else CodeName(found[1], found[2])


def home_of(found: object) -> str | None:
    """The module in which a function or a class was defined; None where that is not to be told."""
    home: Any = getattr(found, "__module__", None) if issubclass(type(found), _TELLING) else None
    return plain_name(home) if isinstance(home, str) else None


_TELLING: Final = (type, FunctionType, BuiltinFunctionType, MethodType, type(lru_cache(lambda: None)))
"""Of everything else `__module__` is its class's, which says nothing of who made it."""
