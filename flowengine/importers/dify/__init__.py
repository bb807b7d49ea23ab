"""Reads Dify's DSL: workflows, chatflows, and the basic chat, agent and completion apps.

The graph of a workflow becomes a flow whose nodes run under the same conditions: edges behind a choice become its
routes where the target has no other edge, else the target says in `when` which of its edges must have been taken.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from flowengine.importers.dify.app_reader import AppReader
from flowengine.importers.form import ImportedProject
from flowengine.importers.source_tree import SourceTree, YamlSource, as_map, parse_source

__all__ = ["find", "read"]

_PAIR: Final = re.compile(r"\\u[dD]([89abAB][0-9a-fA-F]{2})\\u[dD]([c-fC-F][0-9a-fA-F]{2})")


def find(tree: SourceTree, files: Sequence[str]) -> list[str]:
    """The files that hold an app of Dify."""
    return [file for file, text in tree.yaml_texts(files) if _is_app(text)]


def _is_app(text: str) -> bool:
    return bool(
        re.search(r"""(?m)^["'{ \t]*+(app|data["']\s*+:\s*+["']app)["']?\s*+:""", text)
        and re.search(r"""mode["']?\s*:\s*["']?(advanced-chat|chat|agent-chat|workflow|completion)\b""", text)
        and re.search(r"""(graph|model_config)["']?\s*:""", text)
    )


def read(tree: SourceTree, file: str) -> ImportedProject:
    """The app of one file; of an answer of Dify's server, the text in its `data`."""
    source = _parse(file, tree.read_text(file))
    inner = as_map(source.data).get("data")
    if isinstance(inner, str):
        source = _parse(file, inner)
    return AppReader(source).read()


def _parse(file: str, text: str) -> YamlSource:
    return parse_source(file, _PAIR.sub(_join_surrogates, text))


def _join_surrogates(match: re.Match[str]) -> str:
    """A character that JSON wrote as two escapes, as YAML writes it."""
    high, low = int(f"d{match[1]}", 16), int(f"d{match[2]}", 16)
    return f"\\U{0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00):08X}"
