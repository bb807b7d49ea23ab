"""Puts what agents write between the events of a run, by time, and joins the pieces of one text. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flowengine.engine import Event, NodeStarted, TokenStreamed
from flowengine.runtime import Followed


def merge_tokens(events: Sequence[Event], first: int, tokens: Iterable[TokenStreamed]) -> list[Followed]:
    """Events with their positions, and what agents wrote between them by time."""
    merged: list[Followed] = []
    waiting = sorted(tokens, key=lambda each: each.at)  # Those of several nodes come node by node.
    for seq, event in enumerate(events, first):
        begins = isinstance(event, NodeStarted)
        earlier = [each for each in waiting if each.at < event.at or (each.at == event.at and not begins)]
        waiting = waiting[len(earlier) :]
        merged += [(None, each) for each in earlier]
        merged.append((seq, event))
    merged += [(None, each) for each in waiting]
    return merged


def join_tokens(items: Iterable[Followed]) -> list[Followed]:
    """The same, with one piece for all that a node wrote between two events."""
    joined: list[Followed] = []
    pieces: list[TokenStreamed] = []
    for position, event in items:
        if isinstance(event, TokenStreamed):
            pieces.append(event)
            continue
        joined += [(None, each) for each in _join_pieces(pieces)]
        joined.append((position, event))
        pieces = []
    return [*joined, *((None, each) for each in _join_pieces(pieces))]


def _join_pieces(tokens: Iterable[TokenStreamed]) -> list[TokenStreamed]:
    pieces_by_node: dict[tuple[str, bool], TokenStreamed] = {}
    # By node, and whether the piece only says who is asked: then what was written before is of no interest any more.
    for token in tokens:
        before = pieces_by_node.get((token.node, False))
        if token.model:
            pieces_by_node.pop((token.node, False), None)
            pieces_by_node[token.node, True] = token
        elif before is None or token.begins:
            pieces_by_node[token.node, False] = token
        else:
            pieces_by_node[token.node, False] = before._replace(text=before.text + token.text, at=token.at)
    return list(pieces_by_node.values())
