"""What `parallel_research` searches in: a handful of notes, so that the flow runs without a network."""

from __future__ import annotations

from typing import Any

NOTES = {
    "https://example.org/queues": "A message queue lets the sender go on before the receiver has read.",
    "https://example.org/logs": "A log keeps messages after they were read, so that they can be read again.",
    "https://example.org/delivery": "A message may be delivered more than once unless the receiver remembers it.",
    "https://example.org/order": "Messages keep their order within one partition, and not across partitions.",
    "https://example.org/pressure": "Back-pressure slows the sender down when the receiver cannot follow.",
}


def search(query: str) -> dict[str, Any]:
    """The notes that share a word with the query; all of them where none does."""
    words = {word.strip(".,?!").casefold() for word in query.split() if len(word) > 3}
    found = {url: text for url, text in NOTES.items() if words & {each.strip(".,") for each in text.casefold().split()}}
    chosen = found or NOTES
    return {"urls": list(chosen), "text": "\n".join(chosen.values())}
