"""Bounds the tokens of a file that a model is shown, by the rule of its vendor, else by the largest rule that is known.

Sources: https://platform.openai.com/docs/guides/images-vision (tiles of 512 pixels within 2048 by 768, patches of 32),
https://docs.anthropic.com/en/docs/build-with-claude/vision (width times height by 750, 1568 pixels at most),
https://docs.anthropic.com/en/docs/build-with-claude/pdf-support (100 pages, each as text and as an image),
https://ai.google.dev/gemini-api/docs/tokens (258 for each tile of 768 pixels, sound at 32 a second).
"""

from __future__ import annotations

from typing import Final

from flowengine.core.file_values import FileValue
from flowengine.models.attachments import MAX_TEXT, attachment_kind

__all__ = ["image_tokens", "most_file_tokens"]

_LARGEST_IMAGE: Final = 48_169
"""gpt-4o-mini: 2,833 and 5,667 for each of 8 tiles, more than any other model that is known takes."""
_OF_ANTHROPIC: Final = 1_640
"""1568 by 784 pixels, or as many in another form, by 750."""
_OF_OPENAI: Final = 3_779
"""1,536 patches at 2.46; tiles take less: 85 and 170 for each of 8."""
_OF_PAGE: Final = 3_000 + _OF_ANTHROPIC
_PAGES: Final = 100
_SOUND_BYTES: Final = 25
"""Of sound at 8 kilobits a second, a token at least."""
_AROUND: Final = 100
"""What is said around a file."""


def image_tokens(provider: str, name: str) -> int:
    """The most tokens of one image.

    >>> image_tokens("anthropic", "claude-sonnet-4-5"), image_tokens("openai", "gpt-4o"), image_tokens("x", "y")
    (1640, 3779, 48169)
    """
    if provider == "anthropic":
        return _OF_ANTHROPIC
    return _OF_OPENAI if provider in ("openai", "azure") and "4o-mini" not in name else _LARGEST_IMAGE


def most_file_tokens(file: FileValue, provider: str, name: str) -> int:
    """The most tokens of a file that a model is shown; of a text, no more than it has bytes."""
    match attachment_kind(file.media_type):
        case "image":
            return image_tokens(provider, name)
        case "pdf":
            return _PAGES * _OF_PAGE
        case "audio":
            return file.size // _SOUND_BYTES + _AROUND
        case "text" | None:
            return min(file.size, MAX_TEXT * 4) + len(file.name) + _AROUND
