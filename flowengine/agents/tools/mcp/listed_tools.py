"""Describes the tools that an MCP server lists, and reads its answers to calls: text as text, everything else named."""

from __future__ import annotations

import hashlib
import re
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from typing_extensions import TypeIs

from flowengine.agents.tools.mcp.server_settings import McpServer
from flowengine.agents.tools.result_text import MAX_TEXT, cut, text_of
from flowengine.agents.tools.tool import Effect, ToolResult
from flowengine.core import Secrets
from flowengine.errors import DefinitionError, RunError, did_you_mean

if TYPE_CHECKING:  # Without the extra `mcp` a flow is told so, by what imports this.
    from mcp_types import BlobResourceContents, CallToolResult, ContentBlock, TextResourceContents
    from mcp_types import Tool as ListedTool

# --- Tools that a model is offered

_MAX_NAME: Final = 64
_MAX_DESCRIPTION: Final = 8_000


class Description(NamedTuple):
    """One tool of a server."""

    remote_name: str
    """The tool's name at the server."""
    name: str
    """The tool's name for the model: with the server's name before it, and safe for vendors."""
    text: str
    parameters: dict[str, Any]
    effect: Effect


def check_allowed(server: McpServer, tools: Sequence[ListedTool]) -> None:
    """A `DefinitionError` for a tool in `allow` that a server which has just started lacks."""
    names = list(dict.fromkeys(tool.name for tool in tools))
    missing = next((name for name in server.allow or () if name not in names), None)
    if missing is not None:
        hint = did_you_mean(missing, names) or f"; it has {cut(', '.join(names), 500) or 'none'}"
        raise DefinitionError(f"MCP server '{server.name}' has no tool '{missing}'{hint}")


def describe(server: McpServer, tools: Sequence[ListedTool]) -> list[Description]:
    """The allowed tools that it lists now, in the server's order."""
    allowed_tools = [tool for tool in tools if server.allow is None or tool.name in server.allow]
    twice = next((name for name, count in Counter(tool.name for tool in allowed_tools).items() if count > 1), None)
    if twice is not None:
        raise RunError(
            f"MCP server '{server.name}' lists two tools named {cut(twice, 100)!r}, which cannot be told apart"
            f"; leave the name out of `allow` to use the others"
        )
    names = _offered_names(server.name, [tool.name for tool in allowed_tools])
    return [
        Description(
            tool.name,
            names[tool.name],
            cut(tool.description or tool.title or "", _MAX_DESCRIPTION),
            tool.input_schema,
            _read_effect(tool) if server.trust_hints else "external",
        )
        for tool in allowed_tools
    ]


def _read_effect(tool: ListedTool) -> Effect:
    """Reads the effect from the hints of a server that is trusted; without one a call counts as a deed."""
    hints = tool.annotations
    if hints is None:
        return "external"
    return "none" if hints.read_only_hint else "idempotent" if hints.idempotent_hint else "external"


def _offered_names(prefix: str, remote: Sequence[str]) -> dict[str, str]:
    """Server's name → offered name. One that had to be changed and meets another gets a digest at its end."""
    plain = {name: re.sub(r"[^A-Za-z0-9_-]", "_", f"{prefix}_{name}") for name in remote}
    counts = Counter(plain.values())
    return {
        name: _add_digest(safe, name)
        if len(safe) > _MAX_NAME or (counts[safe] > 1 and safe != f"{prefix}_{name}")
        else safe
        for name, safe in plain.items()
    }


def _add_digest(safe: str, name: str) -> str:
    """Always the same for a name, whatever else the server lists."""
    digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{safe[: _MAX_NAME - 9]}_{digest}"


def result_of(answer: CallToolResult, secrets: Secrets) -> ToolResult:
    """`value` is the structured content where there is one, else the text."""
    structured = secrets.hide_in(answer.structured_content)
    text = secrets.hide(_join_parts([secrets.hide(_format_block(block)) for block in answer.content]))
    if not text:
        text = text_of(structured) if structured is not None else "[no content]"
    if answer.is_error:
        return ToolResult(text, is_error=True)
    return ToolResult(text, text if structured is None else structured, files=tuple(_read_files(answer.content)))


def _read_files(blocks: Sequence[ContentBlock]) -> Iterator[bytes]:
    """Images, sound and binary resources; what is no base64 is none."""
    for block in blocks:
        encoded = ""
        if block.type == "image" or block.type == "audio":
            encoded = block.data
        elif block.type == "resource" and not _is_text(block.resource):
            encoded = block.resource.blob
        if encoded:
            with suppress(ValueError):
                yield b64decode(encoded, validate=True)


def _join_parts(parts: list[str]) -> str:
    """The parts one below the other, of bounded length."""
    room, pieces = MAX_TEXT, list[str]()
    for number, part in enumerate(parts):
        if room <= 0:
            pieces.append(f"[cut: {len(parts) - number:,} more parts left out]")
            break
        pieces.append(cut(part, room))
        room -= len(part) + 1
    return "\n".join(pieces)


def _format_block(block: ContentBlock) -> str:
    if block.type == "text":
        return block.text
    if block.type == "image" or block.type == "audio":
        return f"[{block.type}: {_one_line(block.mime_type)}, {_format_size(block.data)}]"
    if block.type == "resource":
        resource = block.resource
        if _is_text(resource):
            return f"[resource {_one_line(resource.uri)}]\n{resource.text}"
        kind = _one_line(resource.mime_type or "of unknown type")
        return f"[resource {_one_line(resource.uri)}: binary data, {kind}, {_format_size(resource.blob)}]"
    about = f": {_one_line(block.description)}" if block.description else ""
    return f"[link to resource {_one_line(block.uri)} '{_one_line(block.name)}'{about}]"


def _is_text(resource: TextResourceContents | BlobResourceContents) -> TypeIs[TextResourceContents]:
    from mcp_types import TextResourceContents  # Who has an answer of a server has the library.

    return isinstance(resource, TextResourceContents)


def _format_size(base64: str) -> str:
    return f"{len(base64.rstrip('=')) * 3 // 4:,} bytes"


def _one_line(text: str) -> str:
    return cut(" ".join(text[:1000].split()), 300)
