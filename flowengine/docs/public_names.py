"""The list of everything that is public, made from what is exported.

`python -m flowengine.docs.public_names` prints it; `flowengine/docs/api.md` is what it printed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from inspect import cleandoc, getdoc, isclass
from types import UnionType
from typing import Any, Final, NamedTuple, cast

import flowengine


class PublicModule(NamedTuple):
    """A module beside `flowengine` whose names are public."""

    title: str
    names: Sequence[str] = ()
    """None given: those of its `__all__`."""
    private: Sequence[str] = ()
    """Names of `__all__` that only FlowEngine's own modules use."""


MODULES: Final[Mapping[str, PublicModule]] = {
    "flowengine.errors": PublicModule("Every error", private=("did_you_mean", "find_attribute", "unknown_argument")),
    "flowengine.core.records": PublicModule("What `NodeRecorded` holds", ("RECORDS",)),
    "flowengine.agents.memory": PublicModule("What a bot remembers"),
    "flowengine.agents.retrieval.retriever": PublicModule(
        "What is searched, and by what", ("Document", "Hit", "Searchable", "Retriever")
    ),
    "flowengine.core.masking.masker": PublicModule(
        "What is masked in what leaves", ("Masker", "register", "PresidioRecognizer", "Recognizer", "FoundSpan")
    ),
    "flowengine.engine.ports": PublicModule("Stores of your own", ("JournalStore", "Journal", "RunInfo")),
    "flowengine.journal.stores": PublicModule("The store of a URL", ("open_store",)),
    "flowengine.journal.memory": PublicModule("The store in memory", ("MemoryStore",)),
    "flowengine.models.vendors": PublicModule(
        "What a backend in a package of its own is given", ("ProviderSettings", "RateLimits")
    ),
    "flowengine.models.scripted": PublicModule("A model for tests", ("ScriptedModel", "UnscriptedCallError")),
    "flowengine.testing.scripted_answers": PublicModule("Answers by node, for tests", ("scripted",)),
    "flowengine.testing.fakes": PublicModule(
        "Functions and tools that are not called, for tests", ("faked", "FakeError")
    ),
    "flowengine.testing.path": PublicModule("What ran, for tests", ("assert_path", "assert_skipped")),
    "flowengine.client": PublicModule("Calling flows of a server, or by a store"),
    "visualize": PublicModule("Pictures of flows and runs"),
    "flowengine.web.app": PublicModule("The viewer and its HTTP API (extra `ui`)", ("make_app",)),
}
"""Module → what is public in it."""

_INTRODUCTION: Final = """\
# Public names

What stands here is promised; everything else may change without notice. `CHANGELOG.md` says when something of it
changes. `python -m flowengine.docs.public_names` makes this page from the exports and their docstrings.

Import from `flowengine`, which imports a name at its first use, or from a module that has a part of its own below."""


def api_page() -> str:
    """The page in Markdown, with an end of line."""
    parts = [_INTRODUCTION, "## `flowengine`"]
    for title, modules in flowengine.PUBLIC_GROUPS.items():
        parts.append(f"### {title}")
        parts.append(_table(flowengine, (name for names in modules.values() for name in names)))
    for path, public in MODULES.items():
        parts.append(f"## `{path}`\n\n{public.title}.")
        parts.append(_table(import_module(path), names_of(path)))
    return "\n\n".join(parts) + "\n"


def names_of(path: str) -> list[str]:
    """The public names of a public module.

    >>> names_of("flowengine.journal.stores")
    ['open_store']
    """
    if path == "flowengine":
        return flowengine.__all__
    public = MODULES[path]
    return [each for each in public.names or import_module(path).__all__ if each not in public.private]


def _table(module: Any, names: Iterable[str]) -> str:
    rows = (f"| `{name}` | {text.replace('|', chr(92) + '|')} |" for name, text in describe_names(module, names))
    return "\n".join(("| name | |", "|---|---|", *rows))


def describe_names(module: Any, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each name with the first paragraph of its docstring; an undescribed one is a `ValueError`.

    >>> from flowengine import errors
    >>> next(describe_names(errors, ["RunError"]))
    ('RunError', 'This run went wrong.')
    """
    for name in names:
        text = _description(getattr(module, name))
        if not text:
            raise ValueError(f"{module.__name__}.{name} is public and has no docstring")
        yield name, text


def _description(value: Any) -> str:
    if isinstance(value, UnionType):
        return f"One of {_format_names(each.__name__ for each in value.__args__)}."
    if isinstance(value, str):
        return f"The text `{value}`."
    if isinstance(value, Mapping):
        return f"Name → class: {_format_names(str(each) for each in cast('Mapping[Any, Any]', value))}."
    written = (value.__doc__ if isclass(value) else getdoc(value)) or ""
    if isclass(value) and written.startswith(f"{value.__name__}("):  # What a tuple or a dataclass says of itself.
        return ""
    return " ".join(cleandoc(written).partition("\n\n")[0].split())


def _format_names(names: Iterable[str]) -> str:
    return ", ".join(f"`{each}`" for each in names)


if __name__ == "__main__":
    print(api_page(), end="")
