"""An MCP server's answer to a call as a `ToolResult`: text as text, everything else said plainly."""

from __future__ import annotations

from mcp_types import AudioContent, CallToolResult, ContentBlock, EmbeddedResource, ImageContent, TextContent
from mcp_types import TextResourceContents as TextResource

from flowengine.secret_values import Secrets
from flowengine.tools.text import MAX_TEXT, cut, text_of
from flowengine.tools.tool import ToolResult

__all__ = ["result_of"]


def result_of(answer: CallToolResult, secrets: Secrets) -> ToolResult:
    """`value` is the structured content where there is one, else the text."""
    structured = secrets.hide_in(answer.structured_content)
    text = secrets.hide(_joined([_text(block) for block in answer.content]))
    if not text:
        text = text_of(structured) if structured is not None else "[no content]"
    if answer.is_error:
        return ToolResult(text, is_error=True)
    return ToolResult(text, text if structured is None else structured)


def _joined(parts: list[str]) -> str:
    """The parts one below the other, of bounded length."""
    left, kept = MAX_TEXT, list[str]()
    for number, part in enumerate(parts):
        if left <= 0:
            kept.append(f"[cut: {len(parts) - number:,} more parts left out]")
            break
        kept.append(cut(part, left))
        left -= len(part) + 1
    return "\n".join(kept)


def _text(block: ContentBlock) -> str:
    if isinstance(block, TextContent):
        return block.text
    if isinstance(block, ImageContent | AudioContent):
        return f"[{block.type}: {_line(block.mime_type)}, {_bytes(block.data)}]"
    if isinstance(block, EmbeddedResource):
        resource = block.resource
        if isinstance(resource, TextResource):
            return f"[resource {_line(resource.uri)}]\n{resource.text}"
        kind = _line(resource.mime_type or "of unknown type")
        return f"[resource {_line(resource.uri)}: binary data, {kind}, {_bytes(resource.blob)}]"
    about = f": {_line(block.description)}" if block.description else ""
    return f"[link to resource {_line(block.uri)} '{_line(block.name)}'{about}]"


def _bytes(base64: str) -> str:
    return f"{len(base64.rstrip('=')) * 3 // 4:,} bytes"


def _line(text: str) -> str:
    return cut(" ".join(text[:1000].split()), 300)
