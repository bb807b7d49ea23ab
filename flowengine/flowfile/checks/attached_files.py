"""Checks what `attach` names: values that can be files, and models that take them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from flowengine.core.media_types import allows_media_type
from flowengine.errors import ModelConfigError
from flowengine.flowfile.analysis.flow_nodes import is_asking, key_path, nodes_of, settings_of
from flowengine.flowfile.checks.report import Report
from flowengine.flowfile.schema.flow_file import FlowSpec, InputSpec
from flowengine.flowfile.schema.node_kinds import NodeSpec
from flowengine.flowfile.yaml.positions import KeyPath
from flowengine.models.attachments import IMAGES

if TYPE_CHECKING:
    from flowengine.models.worst_case import ModelFacts

__all__ = ["Attached", "attached_in", "attached_in_node", "check_attachments", "check_image_models"]

_LONE: Final = re.compile(r"\s*\{\{.*\}\}\s*", re.DOTALL)
_INPUT: Final = re.compile(r"\s*\{\{\s*inputs\.([A-Za-z_]\w*)\s*\}\}\s*")


class Attached(NamedTuple):
    """One entry of an `attach`."""

    node: NodeSpec
    path: KeyPath
    text: str
    declared: InputSpec | None
    """The flow's input, where it names just that."""


def attached_in(spec: FlowSpec) -> Iterator[Attached]:
    """Every entry of every `attach` of a flow."""
    for node_path, node in nodes_of(spec):
        yield from attached_in_node(spec, node, key_path(node_path))


def attached_in_node(spec: FlowSpec, node: NodeSpec, path: KeyPath = ()) -> Iterator[Attached]:
    """The entries of one node's `attach`; `path`: where it stands."""
    for number, text in enumerate(getattr(node, "attach", ())):
        found = _INPUT.fullmatch(text)
        yield Attached(node, (*path, "attach", number), text, None if found is None else spec.inputs.get(found[1]))


def check_attachments(spec: FlowSpec, report: Report) -> None:
    """Each entry that can be no file."""
    for each in attached_in(spec):
        if not _LONE.fullmatch(each.text):
            hint = "; declare an input of type file, and name it: {{ inputs.… }}"
            report.at_value("FE230", "`attach` takes templates that give files, and no paths", each.path, hint)
        elif each.declared is not None and each.declared.type not in ("file", "array", None):
            text = f"an input of type {each.declared.type} is no file"
            report.at_value("FE230", text, each.path, "; declare it with type: file")


def check_image_models(spec: FlowSpec, facts: ModelFacts, stand_in: str | None, report: Report) -> None:
    """Each input that may be an image and goes to a model of which it is known that it takes none."""
    for each in attached_in(spec):
        if each.declared is None or not is_asking(each.node) or not _may_be_image(each.declared):
            continue
        settings = settings_of(spec, each.node)
        for model in (settings.model, *(settings.fallbacks or ())) if stand_in is None else (stand_in,):
            try:
                known = facts.of(model)
            except ModelConfigError:
                continue  # Told as a name that goes to no vendor.
            if known.takes_images is False:
                hint = "; choose another model, or say with `media_types` of the input that it is no image"
                report.at_value("FE514", f"model '{known}' takes no images", each.path, hint)


def _may_be_image(declared: InputSpec) -> bool:
    if declared.type != "file":
        return False
    return declared.media_types is None or any(allows_media_type(declared.media_types, each) for each in IMAGES)
