"""Reads Dify's DSL: workflows, chatflows, and the basic chat, agent and completion apps.

The graph of a workflow becomes a flow whose nodes run under the same conditions: edges behind a choice become its
routes where the target has no other edge, else the target says in `when` which of its edges must have been taken.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from flowengine.errors import DefinitionError, FlowError
from flowengine.flowfile.yaml.parser import parse_yaml
from flowengine.flowfile.yaml.positions import SourceText
from flowengine.importers.dify.app_reader import AppReader
from flowengine.importers.dify.selectors import as_mapping
from flowengine.importers.form import ImportedProject
from flowengine.importers.source_tree import SourceTree, YamlSource

__all__ = ["find", "read"]

_PAIR: Final = re.compile(r"\\u[dD]([89abAB][0-9a-fA-F]{2})\\u[dD]([c-fC-F][0-9a-fA-F]{2})")


def find(tree: SourceTree, files: Sequence[str]) -> list[str]:
    """The files that hold an app of Dify."""
    return [each for each in files if each.endswith((".yml", ".yaml")) and _is_app(tree, each)]


def _is_app(tree: SourceTree, file: str) -> bool:
    try:
        text = tree.read_text(file)
    except DefinitionError:
        return False
    return bool(
        re.search(r"""(?m)^["'{ \t]*+(app|data["']\s*+:\s*+["']app)["']?\s*+:""", text)
        and re.search(r"""mode["']?\s*:\s*["']?(advanced-chat|chat|agent-chat|workflow|completion)\b""", text)
        and re.search(r"""(graph|model_config)["']?\s*:""", text)
    )


def read(tree: SourceTree, file: str) -> ImportedProject:
    """The app of one file; of an answer of Dify's server, the text in its `data`."""
    source = _parse(file, tree.read_text(file))
    inner = as_mapping(source.data).get("data")
    if isinstance(inner, str):
        source = _parse(file, inner)
    return AppReader(source).read()


def _parse(file: str, text: str) -> YamlSource:
    text = _PAIR.sub(_join_surrogates, text)
    parsed = parse_yaml(text, file)
    if parsed.problems:
        raise FlowError(parsed.problems)
    return YamlSource(file, parsed.data, SourceText(text, Path(file), parsed.place))


def _join_surrogates(found: re.Match[str]) -> str:
    """A character that JSON wrote as two escapes, as YAML writes it."""
    high, low = int(f"d{found[1]}", 16), int(f"d{found[2]}", 16)
    return f"\\U{0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00):08X}"
