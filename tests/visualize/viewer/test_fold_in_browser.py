"""The browser folds the feed as we fold the events: two programs, one set of rules."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flowengine.core.context import NodeResult
from flowengine.core.records import Answered, ApprovalRequested, MapBegan, ModelCall, Retry
from flowengine.engine.events import (
    ErrorInfo,
    Event,
    NodeCancelled,
    NodeFailed,
    NodeFinished,
    NodeRecorded,
    NodeSkipped,
    NodeStarted,
    RunFinished,
    RunResumed,
    RunStarted,
)
from flowengine.engine.merging import FOLDS
from tests.support.browser import Browser, Tab
from tests.support.sample_run import GRAPH, START, layered_run, model_call, research_run
from visualize.edge_states import critical_path
from visualize.picture import picture_of_progress
from visualize.progress import fold_events
from visualize.states import read_declared
from visualize.style import standing, times
from visualize.viewer.feed import feed
from visualize.viewer.graph import detail
from visualize.viewer.reading import Reading
from visualize.viewer.run import head_of
from visualize.viewer.scripts import join_modules

READ = """([head, lines]) => {
  const run = foldTo(head, lines, lines.length);
  const critical = criticalPath(run);
  const statuses = new Map();
  const said = Object.fromEntries(head.drawn.map((path) => {
    const site = run.sites.get(path);
    const each = describeSite(run, site, null, site.parent === null ? null : statuses.get(site.parent));
    statuses.set(path, each.status);
    return [path, [each.status, each.name, each.standing, each.detail]];
  }));
  const edges = head.edges.map(([source, target, labels]) => {
    const { state, isCritical } = edgeOf(run, head.drawn[source], head.drawn[target], labels, critical);
    return [head.drawn[source], head.drawn[target], state, isCritical];
  });
  const rows = Object.fromEntries([...run.rows.values()].map((row) => [row.id, [
    row.status, row.kind, row.spot.site, row.started, row.ended, row.usage.calls, row.usage.tokens, row.retries,
  ]]));
  return {
    rows, said, edges, critical: [...critical.rows].sort(), status: run.status, state: Object.fromEntries(stateOf(run)),
    ordered: orderedRows(run).map((item) => item.key),
  };
}"""


@pytest.fixture(scope="module")
def script(browser: Browser) -> Generator[Tab]:
    """An empty page that has our functions, outside the scope that they are in otherwise."""
    with browser.tab() as tab:
        tab.add_script_tag(content=join_modules(["edges.js", "node_words.js", "row_items.js"]))
        yield tab
        assert tab.trouble == []


def ours(events: Sequence[Event]) -> dict[str, Any]:
    progress = fold_events(events)
    picture = picture_of_progress(progress)
    critical = critical_path(progress)
    return {
        "rows": {row.id: row_of(row) for row in progress.nodes.values()},
        "said": {
            node.id: [node.status, node.name + times(node), standing(node), detail(node)] for node in picture.nodes
        },
        "edges": [[edge.source, edge.target, edge.state, edge.critical] for edge in picture.edges],
        "critical": sorted(critical.rows),
        "status": progress.status,
        "state": state_of(events),
        "ordered": [row.id for row in Reading(events).rows],
    }


def row_of(row: Any) -> list[Any]:
    usage = row.usage
    return [row.status, row.kind, row.spot.site, row.started, row.ended, usage.calls, usage.known_tokens, row.retries]


def state_of(events: Sequence[Event]) -> dict[str, Any]:
    """What the nodes at the top wrote, in the flow's order, and what unfinished containers hold so far."""
    rules = {key: (rule.merge, rule.default) for key, rule in read_declared(fold_events(events)).items()}
    state: dict[str, Any] = {key: default for key, (_, default) in rules.items()}
    finished: set[str] = set()
    for row in Reading(events).rows:
        if row.kind == "":
            continue  # A node that the graph does not have.
        around = row.spot.container
        if around in finished or (around or "").startswith("widen"):
            finished.add(row.id)
            continue
        if row.status == "succeeded":
            finished.add(row.id)
        if row.status != "succeeded" or row.result is None:
            continue
        for key, value in (row.result.state or {}).items():
            fold = FOLDS.get(rules[key][0])
            state[key] = value if fold is None else fold(state[key], [value])
    return state


def theirs(script: Tab, events: Sequence[Event]) -> dict[str, Any]:
    lines = [feed(event, seq) for seq, event in enumerate(events)]
    found: dict[str, Any] = script.evaluate(READ, [head_of(Reading(events)), lines])
    return found


def agree(script: Tab, events: Sequence[Event]) -> None:
    here, there = ours(events), theirs(script, events)
    for part in here:
        if isinstance(here[part], dict):
            assert there[part].keys() == here[part].keys()
            for key in here[part]:
                assert there[part][key] == here[part][key], (part, key)
        assert there[part] == here[part], part


def test_both_folds_agree_on_the_sample_at_every_moment(script: Tab):
    events = research_run()
    for count in range(1, len(events) + 1, 4):
        agree(script, events[:count])
    agree(script, events)


@pytest.mark.long
def test_both_folds_agree_on_a_large_run(script: Tab):
    events = layered_run(300)
    agree(script, events)


def made(kind: Callable[..., Any], *parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(*parts).map(lambda values: kind(*values))


PATHS = (
    *("draft", "polish", "investigate", "triage", "widen", "ask", "publish", "polish.round[0].judge"),
    *("polish.round[0].improve", "polish.round[1].judge", "investigate[0].search", "investigate[0].summarise"),
    *("investigate[2].search", "widen.plan", "widen.each[0].leaf", "nobody"),
)
moments = st.integers(0, 20).map(lambda halves: START + halves / 2)
states = st.none() | st.fixed_dictionaries({}, optional={
    "words": st.integers(-3, 9), "sources": st.lists(st.sampled_from("abc"), max_size=2), "title": st.text(max_size=3)
})  # fmt: skip
paths = st.sampled_from(PATHS)
results = made(NodeResult, st.text(max_size=5), states, st.sampled_from([None, "wider", "ready", "yes", "fail"]))
costs = st.none() | st.integers(0, 50).map(lambda cents: cents / 100)


def a_call(tokens: int | None, cost: float | None, error: str | None) -> ModelCall:
    return ModelCall("m", "p", "generation", [], "x", (), tokens, tokens, None, cost, 0.25, error=error)


records = st.one_of(
    made(a_call, st.none() | st.integers(0, 9000), costs, st.sampled_from([None, None, "refused"])),
    st.just(model_call("routing", "?", "!", 7, 0.5, 0.25)),
    st.just(Retry(1, "no", 0.1)),
    made(MapBegan, st.integers(0, 5)),
    st.just(ApprovalRequested("?", ["yes"])),
    st.just(Answered("yes")),
)
one_event: st.SearchStrategy[Event] = st.one_of(
    made(NodeStarted, paths, moments),
    made(NodeFinished, paths, moments, results),
    made(NodeRecorded, paths, moments, records),
    made(NodeFailed, paths, moments, made(ErrorInfo, st.just("E"), st.sampled_from(["no", "a\nb" * 30, "<b>"]))),
    made(NodeSkipped, paths, moments, st.sampled_from(["not_selected", "error", "upstream_failed"])),
    made(NodeCancelled, paths, moments),
    made(RunResumed, moments),
    made(RunFinished, moments, st.sampled_from(["succeeded", "failed", "waiting", "paused"])),
)


@pytest.mark.long
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=st.lists(one_event, max_size=40))
def test_both_folds_agree_on_any_events_in_any_order(script: Tab, events: list[Event]):
    whole = [RunStarted("r", "f", START, {}, {}, {}, graph=GRAPH), *events]
    agree(script, whole)
