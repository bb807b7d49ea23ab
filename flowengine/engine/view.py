"""Gives a node its view of the run: a `Context` whose attributes are worked out when they are read.

Making one costs the same whatever the size of the graph. A node sees its ancestors and nothing
else, so that live, resumed and distributed runs give the same view.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from flowengine.core import (
    Around,
    Context,
    EvaluationResult,
    GivenRuntime,
    Ledger,
    NodeView,
    NoOutputError,
    Note,
    RoutingResult,
    RunScope,
    Tell,
    copy_mutable,
    read_or_raise,
)
from flowengine.engine.state import EVALUATION, ROUTING, Layer
from flowengine.engine.state_view import Give, KeptView, StateView
from flowengine.engine.walk import Walk
from flowengine.errors import did_you_mean

_RESULTS: Final = {"routing_result": ROUTING, "evaluation_result": EVALUATION}


class Listener(Protocol):
    """Receives the records of running nodes."""

    def note_of(self, node: str, /) -> Note:
        """Returns the receiver of a node's records."""
        ...

    def note_with_next(self, node: str, record: Any, /) -> None:
        """Receives a record that need not be kept before what comes next."""
        ...

    def tell_of(self, node: str, /) -> Tell | None:
        """Returns the receiver of the text that a node writes; None if the run has no follower."""
        ...

    @property
    def scope(self) -> RunScope | None:
        """Resources shared by the nodes of the run."""
        ...

    @property
    def ledger(self) -> Ledger | None:
        """The ledger in which calls are reserved and settled; None without limits."""
        ...


class NodeRuntime(NamedTuple):
    """The place of a running node: which one it is, who hears of it, and what its calls are charged to."""

    walk: Walk
    number: int
    listener: Listener
    own_ledger: Ledger | None = None
    """In the place of the listener's, for a part of the run with limits of its own."""
    around: Around | None = None

    @property
    def note(self) -> Note:
        return self.listener.note_of(self.walk.path_of(self.number))

    def note_with_next(self, record: Any) -> None:
        self.listener.note_with_next(self.walk.path_of(self.number), record)

    @property
    def recorded(self) -> Sequence[Any]:
        return self.walk.attempts.of(self.walk.path_of(self.number))

    @property
    def tell(self) -> Tell | None:
        return self.listener.tell_of(self.walk.path_of(self.number))

    @property
    def kept(self) -> Mapping[str, Any]:
        return KeptView(self.walk.store, self.walk.layer_before(self.number), copy_mutable)

    @property
    def scope(self) -> RunScope | None:
        return self.listener.scope

    @property
    def ledger(self) -> Ledger | None:
        return self.listener.ledger if self.own_ledger is None else self.own_ledger

    def charging(self, ledger: Ledger) -> NodeRuntime:
        return self._replace(own_ledger=ledger)

    def asking_through(self, around: Around) -> NodeRuntime:
        """The same, whose agent asks through what `around` makes of its gateway."""
        return self._replace(around=around)

    def heard_by(self, listener: Listener) -> NodeRuntime:
        """The same, that tells another listener what happens."""
        return self._replace(listener=listener)


class _WalkContext(Context):
    """A view of a walk. Of a value that could be changed each reading gives a copy."""

    __slots__ = ("_place",)
    _place: Any
    """The walk, and where in it the reader stands."""
    _give: Give = staticmethod(copy_mutable)

    @property
    def _walk(self) -> Walk:
        return self._place[0]

    @property
    @abstractmethod
    def _layer(self) -> Layer:
        """The state that is seen."""

    @property
    def shared_state(self) -> Mapping[str, Any]:
        return StateView(self._walk.store, self._layer, self._give)

    @property
    def routing_result(self) -> RoutingResult | None:
        return self._give(read_or_raise(self._walk.store.owned(self._layer, ROUTING)))

    @property
    def evaluation_result(self) -> EvaluationResult | None:
        return self._give(read_or_raise(self._walk.store.owned(self._layer, EVALUATION)))

    def _carry(self, name: str) -> Any:
        key = _RESULTS.get(name)
        return getattr(self, name) if key is None else self._give(self._walk.store.owned(self._layer, key))

    @property
    def inputs(self) -> Mapping[str, Any]:
        return self._give(self._walk.inputs)

    @property
    def env(self) -> Mapping[str, str]:
        return self._walk.env

    @property
    def messages(self) -> Sequence[Any]:
        return ()

    @property
    def variables(self) -> Mapping[str, Any]:
        return self._give(self._walk.variables)


class NodeContext(_WalkContext):
    """The view of one node, while it runs."""

    __slots__ = ()
    _place: tuple[Walk, int, Listener, Ledger | None, Around | None]
    """A `NodeRuntime` as a plain tuple: a context is made for every node, and few nodes ask for their runtime."""

    @property
    def runtime(self) -> NodeRuntime:
        return _new(NodeRuntime, self._place)

    def with_(self, **changes: Any) -> Context:
        if changes.keys() != {"runtime"}:
            return super().with_(**changes)
        view = _allocate(type(self))
        _set_place(view, changes["runtime"])
        return view

    @property
    def _number(self) -> int:
        return self._place[1]

    @property
    def _layer(self) -> Layer:
        return self._walk.layer_before(self._number)

    @property
    def shared_state(self) -> Mapping[str, Any]:
        walk, number, *_ = self._place  # As above, and with fewer calls: most nodes read it.
        return StateView(walk.store, walk.layer_before(number), self._give)

    @property
    def result(self) -> Any:
        return self._give(self._walk.passing.received(self._number))

    @property
    def has_result(self) -> bool:
        return self._walk.passing.has_received(self._number)

    @property
    def prev_outputs(self) -> Mapping[str, Any]:
        return _Outputs(self._walk, self._number, self._give)

    @property
    def nodes(self) -> Mapping[str, NodeView]:
        return _Nodes(self._walk, self._number, self._give)

    @property
    def current_node(self) -> str:
        return self._walk.path_of(self._number)

    @property
    def error(self) -> str | None:
        return self._walk.handled_error(self._number)

    @property
    def run_id(self) -> str | None:
        return self._walk.read_id(self._number)

    @property
    def shared(self) -> NodeContext:
        view = _allocate(_SharedNodeContext)
        _set_place(view, self._place)
        return view


def _return_unchanged(value: Any) -> Any:
    return value


class _SharedNodeContext(NodeContext):
    __slots__ = ()
    _give = staticmethod(_return_unchanged)


# The slot's own setter: a Context refuses attribute assignment, and only this module fills one.
_slots: dict[str, Any] = dict(vars(_WalkContext))
_set_place = _slots["_place"].__set__
_allocate: Final[Callable[[type[Any]], Any]] = object.__new__
_new: Final[Any] = vars(tuple)["__new__"]


def view_of(walk: Walk, number: int, listener: Listener) -> NodeContext:
    """The view of a node that is about to run: a function, for a class's own call takes twice as long."""
    view = _allocate(NodeContext)
    _set_place(view, (walk, number, listener, None, None))
    return view


V = TypeVar("V")
_AFTER_ALL: Final = -1
"""In the place of a node's number: all nodes are seen."""


class _AncestorMap(Mapping[str, V]):
    """The nodes that a node sees, those round its level first."""

    __slots__ = ("_give", "_number", "_walk")

    def __init__(self, walk: Walk, number: int, give: Give) -> None:
        self._walk = walk
        self._number = number
        self._give = give

    def _find(self, node: str) -> tuple[Walk, int]:
        """The walk that has a node, and its number there."""
        walk, reader = self._walk, self._number
        number = walk.graph.index.get(node)
        while number is None and walk.outer is not None:
            walk, reader = walk.outer
            number = walk.graph.index.get(node)
        if number is not None and (reader == _AFTER_ALL or walk.graph.is_ancestor(number, reader)):
            return walk, number
        if number is None:
            raise KeyError(f"there is no node '{node}'{did_you_mean(node, walk.graph.index)}")
        raise KeyError(f"node '{node}' is not an ancestor of '{walk.graph.ids[reader]}': add it to `needs` to read it")

    def __iter__(self) -> Iterator[str]:
        walk = self._walk
        if walk.outer is not None:
            yield from type(self)(*walk.outer, self._give)
        numbers = range(len(walk.graph)) if self._number == _AFTER_ALL else walk.graph.ancestry.of(self._number)
        yield from (walk.graph.ids[each] for each in numbers if self._has(each))

    def _has(self, number: int) -> bool:
        return True

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return repr(dict(self))


class _Outputs(_AncestorMap[Any]):
    """Ancestor → output, for the ancestors that succeeded."""

    __slots__ = ()

    def __getitem__(self, node: str) -> Any:
        walk, number = self._find(node)
        result = walk.result_of(number)
        if result is None:
            raise NoOutputError(node, walk.status(node))
        return self._give(result.output)

    def _has(self, number: int) -> bool:
        return self._walk.result_of(number) is not None


class _Nodes(_AncestorMap[NodeView]):
    """Ancestor → its view, for every ancestor whatever became of it."""

    __slots__ = ()

    def __getitem__(self, node: str) -> NodeView:
        walk, number = self._find(node)
        result = walk.result_of(number)
        error = walk.error_of(number)
        return NodeView(
            None if result is None else self._give(result.output),
            self._give(walk.passing.handed_on(number)),
            walk.status_of(number),
            None if error is None else error.message,
        )


class FinalContext(_WalkContext):
    """The view after every node of a level is settled: all nodes, and the merged state.

    The flow's outputs see it, and what a container decides after its body (`until`, `carry`, `result`).
    """

    __slots__ = ()
    _place: tuple[Walk, Layer]

    def __init__(self, walk: Walk) -> None:
        _set_place(self, (walk, walk.final()))

    @property
    def _layer(self) -> Layer:
        return self._place[1]

    @property
    def result(self) -> Any:
        return None

    @property
    def has_result(self) -> bool:
        return False

    @property
    def prev_outputs(self) -> Mapping[str, Any]:
        return _Outputs(self._walk, _AFTER_ALL, self._give)

    @property
    def nodes(self) -> Mapping[str, NodeView]:
        return _Nodes(self._walk, _AFTER_ALL, self._give)

    @property
    def current_node(self) -> str | None:
        return None

    @property
    def error(self) -> str | None:
        return None

    @property
    def run_id(self) -> str | None:
        return self._walk.read_id(None)

    @property
    def runtime(self) -> GivenRuntime:
        return GivenRuntime(kept=KeptView(self._walk.store, self._layer, copy_mutable))

    @property
    def shared(self) -> FinalContext:
        return _SharedFinalContext(self._walk)


class _SharedFinalContext(FinalContext):
    __slots__ = ()
    _give = staticmethod(_return_unchanged)
