"""Prepares a run for its pages, once from its events. It reads no store."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final

from flowengine.engine import Event, NodeRecorded
from visualize.edge_states import in_order
from visualize.picture import Picture, close_containers, picture_of_progress
from visualize.progress import NodeRow, fold_events
from visualize.run_times import RunTimes, times_of
from visualize.states import States

OPEN_NODES: Final = 1_500
"""Nodes of a graph above which the bodies of all containers are drawn closed."""
_MOST_FOLDABLE: Final = 20_000
"""Above this many nodes the closed containers stay closed."""


class Reading:
    """Give it a run's events; keep it for as long as the run has no new ones."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events
        self.progress = fold_events(events)
        self._parts: dict[str, list[tuple[int, Event]]] = {}
        for seq, event in enumerate(events):
            node = getattr(event, "node", None)
            if node is not None and not hasattr(event, "status"):  # The run's end names a node, too.
                self._parts.setdefault(node, []).append((seq, event))

    @property
    def run_id(self) -> str:
        return "" if self.progress.started is None else self.progress.started.run_id

    @property
    def is_live(self) -> bool:
        """Whether more events may come."""
        return self.progress.finished is None

    @cached_property
    def whole_picture(self) -> Picture:
        return picture_of_progress(self.progress)

    @cached_property
    def picture(self) -> Picture:
        """The picture that pages draw."""
        return close_containers(self.whole_picture, OPEN_NODES)

    @cached_property
    def foldable_picture(self) -> Picture:
        """The picture in the page of a run: everything, of which `picture` is shown at first."""
        return self.whole_picture if len(self.whole_picture.nodes) <= _MOST_FOLDABLE else self.picture

    @property
    def is_large(self) -> bool:
        """Whether our script makes what is inside of containers only once they are unfolded."""
        return len(self.foldable_picture.nodes) > OPEN_NODES

    @cached_property
    def states(self) -> States:
        return States(self.progress)

    @cached_property
    def where_time_went(self) -> RunTimes:
        """Until the last event."""
        return times_of(self.events)

    def part(self, path: str) -> Sequence[tuple[int, Event]]:
        """The events of one node, with their positions."""
        return self._parts.get(path, ())

    def end_position(self, path: str) -> int | None:
        """The position of the last event that changed a node's row: what is said of it was not true before."""
        return next((seq for seq, event in reversed(self.part(path)) if not isinstance(event, NodeRecorded)), None)

    def row(self, path: str) -> NodeRow | None:
        return self.progress.nodes.get(path)

    def times(self, site: str) -> Sequence[NodeRow]:
        """All the times that a node ran."""
        return self.progress.times.get(site, ())

    @cached_property
    def rows(self) -> list[NodeRow]:
        """All rows in the order of the flow."""
        return in_order(self.progress)

    @cached_property
    def _bodies(self) -> dict[str, list[NodeRow]]:
        bodies: dict[str, list[NodeRow]] = {}
        for row in self.rows:
            if row.spot.container is not None:
                bodies.setdefault(row.spot.container, []).append(row)
        return bodies

    def inside(self, container: NodeRow) -> Sequence[NodeRow]:
        """The rows of a container's body, in the order of the flow."""
        return self._bodies.get(container.id, ())

    def panels(self) -> list[str]:
        """Everything that has a panel: each row, and each node that has none or several."""
        several = [site for site in self.progress.skeleton.sites if site not in self.progress.nodes]
        return [*self.progress.nodes, *several]
