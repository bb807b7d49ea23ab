"""Finds the files that a question names by their paths, and the files that a file imports. It reads no disk.

A name of several files names none of them when there are too many: `__init__.py` alone says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import PurePosixPath
from posixpath import normpath
from typing import Final

from flowengine.agents.retrieval import asked_terms

# --- Names compared letter by letter

_MAX_SPELLED: Final = 12
"""Words of a query that are compared with names by runs of letters."""
_MAX_TERM_LENGTH: Final = 64
"""Words of a query that are looked for inside of names."""


def letters(name: str) -> str:
    """A name as all runs of three characters in it.

    >>> letters("chDir_2")
    'chd hdi dir ir2'
    """
    plain = _normalize(name)
    return " ".join(plain[at : at + 3] for at in range(len(plain) - 2))


def match_letters(query: str) -> str:
    """The MATCH expression for names that share such runs with the first longer words of a query."""
    words = [term for term in asked_terms(query, is_stemmed=False) if len(term) > 3 and term.isascii()]
    runs = dict.fromkeys(run for word in words[:_MAX_SPELLED] for run in letters(word).split())
    return " OR ".join(f'"{run}"' for run in runs) or '""'


def coverage(query: str) -> Callable[[str], float]:
    """Returns the share of a name's letters that the query covers, by words of at least three letters.

    >>> said = coverage("the first line of a file")
    >>> said("firstline"), said("Line_text"), said("other"), said("")
    (1.0, 0.5, 0.0, 0.0)
    """
    both = dict.fromkeys(
        (*asked_terms(query, is_stemmed=False)[:_MAX_TERM_LENGTH], *asked_terms(query)[:_MAX_TERM_LENGTH])
    )
    words = sorted((each for each in both if len(each) > 2 or not each.isascii()), key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, words)) or "(?!)")

    def covered(name: str) -> float:
        plain = _normalize(name)
        return 1 - len(pattern.sub("", plain)) / len(plain) if plain else 0.0

    return covered


def _normalize(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()


_MOST: Final = 3
"""Files that one name may mean."""
_PATH: Final = re.compile(r"(?<![\w.~/\\-])[\w.~/\\-]*[\w-]\.\w{1,8}\b")  # Looked for once in each run of such letters.
_MODULE: Final = re.compile(r"\b[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+\b")
_PYTHON: Final = re.compile(r"^[ \t]*(?:from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]+([^\n#]+)|import[ \t]+([^\n#]+))", re.M)
_QUOTED: Final = re.compile(r"""(?:\bfrom|\bimport|\brequire\(|\bimport\(|#include)[ \t]*["'](\.{0,2}[^"'\n]+)["']""")
_ENDINGS: Final = ("", ".ts", ".tsx", ".js", ".jsx", ".mjs", ".h", "/index.ts", "/index.tsx", "/index.js")


def named_files(question: str, files: Collection[str]) -> list[str]:
    """The files that a question names, by a path or the end of one, or as a module, in the order of the question.

    >>> named_files("What does ./app/walk.py do with app.state?", ["src/app/walk.py", "src/app/state.py", "walk.md"])
    ['src/app/walk.py', 'src/app/state.py']
    """
    paths: dict[str, None] = {}
    for match in sorted([*_PATH.finditer(question), *_MODULE.finditer(question)], key=lambda each: each.start()):
        path = normpath(match[0].replace("\\", "/")).lstrip("./~")
        matches = _find_by_ending(path, files) or [
            each for each in files if path.endswith(f"/{each}")
        ]  # From further above.
        matches = matches or _find_by_ending(f"{match[0].replace('.', '/')}.py", files)
        if len(matches) <= _MOST:
            paths |= dict.fromkeys(matches)
    return list(paths)


def imported_files(path: str, text: str, files: Collection[str]) -> list[str]:
    """The files of the tree that a file imports, in their order; what it cannot find there is left out.

    >>> text = "from app import state\\nfrom .graph import Graph"
    >>> imported_files("app/walk.py", text, ["app/state.py", "app/graph.py", "graph.py"])
    ['app/state.py', 'app/graph.py']
    """
    imports = _python_imports(path, text) if path.endswith((".py", ".pyi")) else _quoted_imports(path, text)
    paths: dict[str, None] = {}
    for candidates in imports:
        for each in candidates:
            matches = [each] if each in files else [] if each.startswith(".") else _find_by_ending(each, files)
            if 0 < len(matches) <= _MOST:
                paths |= dict.fromkeys(matches)
                break
    paths.pop(path, None)
    return list(paths)


def _find_by_ending(path: str, files: Collection[str]) -> list[str]:
    return [each for each in files if each == path or each.endswith(f"/{path}")]


def _python_imports(path: str, text: str) -> Iterator[Sequence[str]]:
    """For each module that may be meant the paths it may have."""
    folder = PurePosixPath(path).parent
    for source, names, modules in _PYTHON.findall(text):
        for module in modules.split(",") if modules else ():
            yield _module_paths(module.split()[0].replace(".", "/")) if module.split() else ()
        if source:
            dots = len(source) - len(source.lstrip("."))
            above = folder.joinpath(*[".."] * (dots - 1)) if dots else PurePosixPath()
            base = normpath(str(above / source.lstrip(".").replace(".", "/")))
            yield _module_paths(base)
            for name in re.findall(r"(\w+)(?:\s+as\s+\w+)?", names.strip("() ")):
                yield _module_paths(f"{base}/{name}".removeprefix("./"))


def _module_paths(base: str) -> Sequence[str]:
    return f"{base}.py", f"{base}/__init__.py"


def _quoted_imports(path: str, text: str) -> Iterator[Sequence[str]]:
    folder = PurePosixPath(path).parent
    for target in _QUOTED.findall(text):
        base = normpath(str(folder / target))
        yield [f"{base}{ending}" for ending in _ENDINGS]
