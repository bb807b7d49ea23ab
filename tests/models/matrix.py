"""Prints what each current model is asked for each intent: the request, or the refusal with its reason. Asks nobody.

python -m tests.models.matrix                          # every model of the installed litellm's table
python -m tests.models.matrix --vendor openai --model 'gpt-6.*'
python -m tests.models.matrix --table prices.json      # with another table of litellm's
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from flowengine.core.file_values import FileValue, binding_files, hash_of
from flowengine.models import capability_lookup, pricing
from flowengine.models.http import vendor_traits
from flowengine.models.http.native_model import NativeModel
from flowengine.models.messages import Message
from flowengine.models.model import PromptCache, Request
from flowengine.models.option_refusals import find_refusals
from flowengine.models.pricing import listed_vision
from flowengine.models.vendors import vendor_named

__all__ = ["INTENTS", "VENDORS_ASKED", "Cell", "Intent", "ask_for", "current_models", "reading_table"]

VENDORS_ASKED: Final = ("openai", "anthropic", "google", "mistral", "xai", "groq", "deepseek")
_USUAL_TEMPERATURE: Final = 0.7
"""Of an agent that is given none."""
_OTHER_KINDS: Final = re.compile(
    "audio|realtime|image|tts|search|live|container|robotics|lyria|omni|computer-use|prompt-guard|voxtral|learnlm|^ft:"
)
"""Names of models that are for something else than a chat of text."""
_PIXEL: Final = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True)
class Intent:
    """Something that an author may want of a model."""

    name: str
    options: Mapping[str, Any]
    """What is said beside the model, as `Request.extra` has it, with `temperature` and `max_tokens`."""
    tools: bool = False
    schema: bool = False
    attached: str = ""
    """The media type of a file that is shown."""
    stream: bool = False
    cache: bool = False


INTENTS: Final = (
    Intent("text", {}),
    Intent("temperature", {"temperature": 0.2}),
    Intent("top_p", {"top_p": 0.5}),
    Intent("stop", {"stop": ["END"]}),
    Intent("max_tokens", {"max_tokens": 1000}),
    Intent("seed", {"seed": 7}),
    Intent("penalties", {"presence_penalty": 0.5, "frequency_penalty": 0.5}),
    Intent("tools", {}, tools=True),
    Intent("tools, effort", {"reasoning_effort": "high"}, tools=True),
    *(Intent(f"effort {each}", {"reasoning_effort": each}) for each in ("none", "minimal", "low", "medium", "high")),
    *(Intent(f"effort {each}", {"reasoning_effort": each}) for each in ("xhigh", "max")),
    Intent("effort, max_tokens", {"reasoning_effort": "high", "max_tokens": 1000}),
    Intent("schema", {}, schema=True),
    Intent("image", {}, attached="image/png"),
    Intent("pdf", {}, attached="application/pdf"),
    Intent("stream", {}, stream=True),
    Intent("cache", {}, cache=True),
)
_SHAPE: Final = {"type": "object", "properties": {"tea": {"type": "string"}}, "required": ["tea"]}
_TOOL: Final = {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": _SHAPE}}


class Cell(NamedTuple):
    """What becomes of an intent with a model."""

    path: str
    """Empty where it is refused."""
    body: Mapping[str, Any]
    refused: str


def ask_for(provider: str, name: str, intent: Intent) -> Cell:
    """The request that a model would be sent, or the refusal."""
    for refusal in find_refusals(provider, name, intent.options, has_tools=intent.tools):
        return Cell("", {}, f"{refusal.option}: {refusal.reason}")
    if intent.attached.startswith("image") and listed_vision(provider, name) is False:
        return Cell("", {}, "image: it takes none")
    model = NativeModel(name, provider, settings={"api_key": "k"})
    request = _request(name, intent)
    protocol = model._protocol_for(request)
    with binding_files(lambda blob: _PIXEL):
        body = protocol.body(request, model.traits, stream=intent.stream and model.traits.can.streams)
    return Cell(protocol.path(name, {}), body, "")


def _request(name: str, intent: Intent) -> Request:
    options = {key: each for key, each in intent.options.items() if key not in ("temperature", "max_tokens")}
    decides = {"top_p", "reasoning_effort", "thinking"} & options.keys()
    shown = [FileValue(hash_of(_PIXEL), each, "a.file", len(_PIXEL)) for each in (intent.attached,) if each]
    said = Message("user", "Why is the sky blue?", attachments=tuple(shown))
    request = Request(name, (Message("system", "Be brief." + " Truly." * 9000 * intent.cache), said), extra=options)
    return replace(
        request,
        temperature=intent.options.get("temperature", None if decides else _USUAL_TEMPERATURE),
        max_tokens=intent.options.get("max_tokens"),
        tools=(_TOOL,) if intent.tools else (),
        response_schema=_SHAPE if intent.schema else None,
        cache=PromptCache("k") if intent.cache else None,
    )


def current_models(provider: str) -> list[str]:
    """The names of a vendor's models that chat, as the table has them."""
    prefix = vendor_named(provider).prefix
    found = (
        name.removeprefix(f"{prefix}/")
        for name, entry in pricing.whole_table().items()
        if entry.get("litellm_provider") == prefix and entry.get("mode") in ("chat", "responses")
    )
    return sorted({each for each in found if not _OTHER_KINDS.search(each)})


class reading_table:  # noqa: N801 - used as a statement
    """Reads another table of models while the block lasts."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        find, whole = table.get, lambda: table
        self._patches = [
            patch.object(pricing, "find_entry", find),
            patch.object(pricing, "whole_table", whole),
            patch.object(capability_lookup, "whole_table", whole),
        ]

    def __enter__(self) -> None:
        for each in self._patches:
            each.start()
        _forget()

    def __exit__(self, *error: object) -> None:
        for each in self._patches:
            each.stop()
        _forget()


def _forget() -> None:
    for each in (pricing.listed_entry, capability_lookup._look_up, capability_lookup._kinds, vendor_traits._traits_of):
        each.cache_clear()


def _lines(vendors: Sequence[str], wanted: str) -> Iterator[str]:
    counts = Counter[str]()
    for provider in vendors:
        for name in filter(re.compile(wanted).fullmatch, current_models(provider)):
            for intent in INTENTS:
                cell = ask_for(provider, name, intent)
                counts[provider, "refused" if cell.refused else "sent"] += 1
                keys = {
                    key: each for key, each in cell.body.items() if key not in ("messages", "input", "tools", "system")
                }
                told = f"refused: {cell.refused}" if cell.refused else f"{cell.path} {json.dumps(keys)[:200]}"
                yield f"{provider}/{name:<36} {intent.name:<18} {told}"
    yield ""
    yield from (f"{provider} {what}: {count}" for (provider, what), count in counts.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--vendor", choices=VENDORS_ASKED, action="append")
    parser.add_argument("--model", default=".*", help="a regular expression of whole names")
    parser.add_argument("--table", type=Path, help="another table of litellm's")
    options = parser.parse_args()
    vendors = options.vendor or VENDORS_ASKED
    if options.table is None:
        print(*_lines(vendors, options.model), sep="\n")
        return
    with reading_table(json.loads(options.table.read_text("utf-8"))):
        print(*_lines(vendors, options.model), sep="\n")


if __name__ == "__main__":
    main()
