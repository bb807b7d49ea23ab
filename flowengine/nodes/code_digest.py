"""Makes digests of values: what a node was handed, and what it can see of its run. Equal digests, equal values.

Theory of operation:

1. A value's digest is the hash of its text in a journal, so it is the same in every process. What a journal cannot
   hold has none (`NotJournalableError`).
2. What a node leaves is its id, its kind, its result (or its failure) and what it saw itself; what a node sees is what
   its parents left, on top of what its whole level sees: inputs, environment, variables, state. So each node costs
   its edges and its own result, whatever the size of the graph.
3. Where several parents meet, the order of all ancestors is part of it, since state is folded in that order.
4. The run's id, times and the calls that were made are no part of what a node sees.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from flowengine.core import Context, FrozenDict, FrozenList, NodeResult
from flowengine.engine import ENGINE_OWNED, Graph, KeptView, StateView, Walk, state_rules
from flowengine.errors import NotJournalableError

_SHORT: Final = 1_000
"""Characters of a text that is not worth remembering the digest of."""
_REMEMBERED: Final = 256
_ATOMS: Final[frozenset[type[Any]]] = frozenset({type(None), bool, int, float})


def digest_of(value: Any) -> str:
    """The digest of a value that a journal can hold; `NotJournalableError` for any other."""
    from flowengine.journal import encode_value  # Most runs hand on nothing whose digest is asked for.

    return hashlib.sha256(encode_value(value).encode()).hexdigest()[:32]


class Handed:
    """Digests of what the nodes of one run are handed. What many of them share is looked at once.

    >>> Handed().digest({"a": [1]}) == Handed().digest({"a": [1]})
    True
    """

    def __init__(self) -> None:
        self._entries: dict[int, tuple[Any, str]] = {}
        """By the value's `id`, which is its own while the value is held here."""

    def digest(self, values: Mapping[str, Any]) -> str | None:
        """The digest of some values by name; None where one of them cannot be written down."""
        try:
            return digest_of({name: self._part(each) for name, each in values.items()})
        except NotJournalableError:
            return None

    def _part(self, value: Any) -> Any:
        kind = cast(Any, type(value))
        if kind in _ATOMS or (kind is str and len(value) <= _SHORT):
            return value
        if kind is not str and kind is not FrozenDict and kind is not FrozenList:
            return (digest_of(value),)  # It may change, or only this code sees it.
        entry = self._entries.get(id(value))
        if entry is None:
            if len(self._entries) >= _REMEMBERED:
                self._entries.clear()
            entry = self._entries[id(value)] = (value, digest_of(value))
        return (entry[1],)


def digest_handed(context: Context, values: Mapping[str, Any]) -> str | None:
    """The digest of what a node's body is handed; None where it cannot be written down."""
    handed = Handed() if context.runtime.scope is None else context.runtime.scope.once(Handed, Handed)
    return handed.digest(values)


class ViewDigests:
    """Digests of what each node of a level can see."""

    def __init__(
        self,
        graph: Graph,
        level: str,
        left_by: Callable[[int], Any],
        patches: Mapping[int, Mapping[str, Any]],
    ) -> None:
        """`level`: the digest of what all its nodes see. `left_by`: what became of a node that is settled (`left_by`).
        `patches`: node → what it finds in shared state beside what its ancestors wrote."""
        self.graph = graph
        self._level = level
        self._left_by = left_by
        self._patches = patches
        self._own_digests: dict[int, str] = {}

    def digest_view(self, number: int) -> str:
        """The digest of all that a node sees, whose ancestors are settled."""
        todo = [number]
        while todo:  # Not by recursion: a chain may have thousands of nodes.
            at = todo[-1]
            unknown = [each for each in self.graph.parents[at] if each not in self._own_digests]
            if unknown:
                todo += unknown
                continue
            todo.pop()
            if at != number and at not in self._own_digests:
                vertex = self.graph.vertices[at]
                self._own_digests[at] = digest_of([vertex.id, vertex.kind, self._above(at), self._left_by(at)])
        return self._above(number)

    def _above(self, number: int) -> str:
        graph, parents = self.graph, self.graph.parents[number]
        order = [graph.ids[each] for each in graph.ancestry.of(number)] if len(parents) > 1 else ()
        patch = self._patches.get(number)
        return digest_of([self._level, dict(patch or {}), [self._own_digests[each] for each in parents], list(order)])


def left_by(result: NodeResult | None, failure: Sequence[str] | None, status: str) -> Any:
    """Returns a node's outcome as its successors see it. `failure`: its message, and the definition that decides what
    follows.
    """
    if result is not None:
        return result._replace(given=None)
    return status if failure is None else list(failure)


def level_digest(inputs: Mapping[str, Any], env: Mapping[str, str], state: Any, kept_values: Mapping[str, Any]) -> str:
    """The digest of what all nodes of a flow's own level see."""
    return digest_of([sorted(inputs.items()), sorted(env.items()), state, sorted(kept_values.items())])


def views_of(walk: Walk, definition: Callable[[str], str], outside: str = "") -> ViewDigests:
    """Returns digests of what a walk's nodes can see. `definition`: a node's, by path; `outside`: the container's
    view.
    """

    def left(number: int) -> Any:
        error = walk.error_of(number)
        failure = None if error is None else (error.message, definition(walk.path_of(number)))
        return left_by(walk.result_of(number), failure, walk.status_of(number))

    store, root = walk.store, walk.store.root
    rules, kept_values = state_rules(store.keys), dict(KeptView(store, root, _as_it_is))
    level = level_digest(walk.inputs, walk.env, rules, kept_values)
    if walk.prefix:
        parts = dict(StateView(store, root, _as_it_is)), [store.owned(root, key) for key in ENGINE_OWNED]
        level = digest_of([level, outside, dict(walk.variables), *parts])
    return ViewDigests(walk.graph, level, left, walk.patches)


def _as_it_is(value: Any) -> Any:
    """Returns the value itself, because computing a digest changes nothing."""
    return value
