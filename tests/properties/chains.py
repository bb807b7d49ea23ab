"""Chains of what happens to a run: it is stopped, killed, fails, meets a limit, goes on, is forked, re-used, moved.

`try_chain(seed)` makes a random flow (agents with tools and typed contexts, external effects, maps, `on_error`) and
does up to six random things to a run of it, one after the other. Then it lets the run end, and compares it with one
that nothing happened to. What it finds wrong is told as texts.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import anyio
from pydantic import BaseModel

from flowengine.agents.agent import Agent
from flowengine.agents.tools.function_tool import tool
from flowengine.agents.tools.toolset import ToolSet
from flowengine.agents.typed_contexts.typed import TypedContext
from flowengine.core.budget import Budget
from flowengine.core.context import Context, NodeResult
from flowengine.core.records import ModelCall, Reused
from flowengine.engine.events import Event, NodeRecorded, RunFinished, RunResumed
from flowengine.engine.merging import StateKey
from flowengine.errors import EffectPendingError, PermanentModelError
from flowengine.flow import Flow
from flowengine.journal.codec import encode
from flowengine.journal.memory import MemoryJournal, MemoryStore
from flowengine.journal.run_export import pack_run, store_run, unpack_runs
from flowengine.journal.value_types import copying_values
from flowengine.models.messages import ToolRequest
from flowengine.models.model import Reply, Request
from flowengine.models.scripted import ScriptedModel
from flowengine.nodes.agent import AgentNode
from flowengine.nodes.function import FunctionNode
from flowengine.nodes.map import MapNode
from flowengine.nodes.node import FlowNode, RunLimits
from flowengine.nodes.reuse_rules import Past
from flowengine.runtime.local import local
from flowengine.runtime.local.forking import failed_items, refuse_repeated_deeds
from flowengine.runtime.run import Run, RunOptions

__all__ = ["try_chain"]

# --- What lies outside of runs


class World:
    """What was done, what breaks, and when the process that drives a run ends."""

    def __init__(self) -> None:
        self.deeds: list[str] = []
        self.broken: set[str] = set()
        """What fails the next time."""
        self.is_dead = False
        self.is_running = True
        self.kill_at = self.stop_at = 0
        """Events until then; 0: never."""
        self.scope: anyio.CancelScope | None = None

    async def live(self, name: str) -> None:
        """Code does nothing more once its process is dead."""
        await anyio.lowlevel.checkpoint()
        if self.is_dead:
            await anyio.sleep_forever()
        if name in self.broken:
            self.broken.discard(name)
            raise ValueError(f"{name} is broken")

    def heard(self, event: Event) -> None:
        """One more event is on record. The beginning of a fork is written in one step."""
        self.is_running |= isinstance(event, RunResumed)
        if not self.is_running:
            return
        self.kill_at, self.stop_at = self.kill_at - 1, self.stop_at - 1
        if self.kill_at == 0:
            self.is_dead = True
        if 0 in (self.kill_at, self.stop_at) and self.scope is not None:
            self.scope.cancel()


class ChainStore(MemoryStore):
    """A store that takes nothing from a dead process."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def _journal(self, run_id: str, events: list[Event]) -> MemoryJournal:
        journal = super()._journal(run_id, events)
        put = journal.append

        def append(event: Event) -> None:
            if not self.world.is_dead:
                put(event)
                self.world.heard(event)

        journal.append = append
        return journal


# --- Random flows


class Spec(NamedTuple):
    """One node."""

    kind: str
    needs: Sequence[str]
    on_error: str = "fail"
    salt: int = 0
    """What an edit of its code changes."""


KINDS = ("plain", "plain", "external", "ask", "look", "send", "notes", "map", "map_ask", "map_send", "broken")


def random_flow(chance: random.Random) -> dict[str, Spec]:
    specs: dict[str, Spec] = {}
    for number in range(chance.randint(2, 6)):
        known = list(specs)
        needs = chance.sample(known, min(len(known), chance.choice((0, 1, 1, 2))))
        specs[f"n{number}"] = Spec(chance.choice(KINDS), needs)
    return {name: each._replace(on_error="skip") if each.kind == "broken" else each for name, each in specs.items()}


class Lines(BaseModel):
    lines: list[str] = []


class LinesContext(TypedContext[Lines]):
    id = "lines"
    description = "Lines"
    data_schema = Lines
    merge = "changes"

    def tool_set(self) -> ToolSet:
        return ToolSet("lines", "", [self.write])

    async def write(self, line: str) -> None:
        "Write a line."
        self.update_data(lines=[*self.get_data().lines, line])


def make_flow(world: World, specs: Mapping[str, Spec]) -> Flow:
    nodes = {name: _make_node(world, name, each) for name, each in specs.items()}

    def output_of(name: str) -> Callable[[Context], Any]:
        return lambda context: context.prev_outputs.get(name, "ABSENT")

    outputs = {name: output_of(name) for name in nodes}
    state = {"x": StateKey(0, "max"), "log": StateKey([], "append")}
    return Flow("chain", nodes, outputs=outputs, shared_state=state)


def _make_node(world: World, name: str, spec: Spec) -> FlowNode:
    given: dict[str, Any] = {
        "needs": spec.needs,
        "on_error": spec.on_error,
        "version": str(spec.salt),
        "join": "some",
    }
    match spec.kind:
        case "plain" | "broken":
            return FunctionNode(_work(world, name, spec), **given)
        case "external":
            return FunctionNode(_work(world, name, spec), effect="external", **given)
        case "ask" | "look" | "send" | "notes":
            return AgentNode(_agent(world, name, spec.kind), prompt=_seen(name, spec), **given)
        case _:
            inner = spec.kind.partition("_")[2]
            body: FlowNode
            if inner:
                body = AgentNode(_agent(world, name, inner), prompt=_seen(name, spec), version=given["version"])
            else:
                body = FunctionNode(_work(world, name, spec), version=given["version"])
            given["on_item_error"] = "fail" if inner else "collect"
            return MapNode({"b": body}, over=lambda context: ["p", "q", "r"], concurrency=2, **given)


def _seen(name: str, spec: Spec) -> Callable[[Context], str]:
    """What a node sees, in short."""

    def see(context: Context) -> str:
        before = {each: str(context.prev_outputs.get(each, "ABSENT")) for each in sorted(spec.needs)}
        state = [context.shared_state["x"], list(context.shared_state["log"])]
        item = context.variables.get("item", "") if "map" in spec.kind else ""
        return f"{name}{item} {_short([spec.salt, before, state])}"

    return see


def _short(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, default=str).encode()).hexdigest()[:8]


def _work(world: World, name: str, spec: Spec) -> Callable[[Context], Any]:
    see = _seen(name, spec)

    async def work(context: Context) -> NodeResult:
        item = context.variables.get("item", "") if spec.kind == "map" else ""
        await world.live(f"{name}{item}")
        if spec.kind == "broken":
            raise ValueError("it never works")
        if spec.kind == "external":
            world.deeds.append(name)
            await world.live("")
        return NodeResult(see(context), {"log": [f"{name}{item}"]} if spec.kind == "plain" else None)

    return work


def _agent(world: World, name: str, kind: str) -> Agent:
    async def look(word: str) -> str:
        "Look it up."
        await world.live(f"{name} look")
        return f"seen {word}"

    @tool(effect="external")
    async def send(word: str) -> str:
        "Send it."
        await world.live("")
        world.deeds.append(f"{name} {word}")
        await world.live("")
        return f"sent {word}"

    def answer(request: Request) -> Reply | str | Exception:
        if f"{name} model" in world.broken:
            world.broken.discard(f"{name} model")
            return PermanentModelError("the vendor is away")
        asked = next(each.content for each in reversed(request.messages) if each.role == "user")
        word = asked.rpartition("User input: ")[2].split()[0]
        if kind in ("look", "send") and request.messages[-1].role != "tool":
            return Reply("", (ToolRequest("1", kind, json.dumps({"word": word})),))
        if kind == "notes" and request.messages[-1].role != "tool":
            lines = (ToolRequest(str(n), "write", json.dumps({"line": f"{word}{n}"})) for n in range(2))
            return Reply("", tuple(lines))
        return _short([[each.role, each.content] for each in request.messages])

    tools: dict[str, Any] = {"look": [look], "send": [send]}
    contexts = [LinesContext()] if kind == "notes" else []
    model = ScriptedModel(answer, latency=0.0)
    return Agent(name, "Say it.", model=model, tools=tools.get(kind, []), contexts=contexts, max_retries=0)


# --- Chains


class Chain:
    """A run, and what happens to it."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.world = World()
        self.store = ChainStore(self.world)
        self.specs = random_flow(self.chance)
        self.run_id = ""
        self.done: list[str] = []
        """What was done, to be told."""
        self.wrong: list[str] = []
        self.forks: list[tuple[str, Mapping[str, Any]]] = []
        """Since the run, or the one that it was forked from, began."""
        self.deeds: set[str] = set()
        """Of the run, those that it shares included."""
        self.allowed: set[str] = set()
        """Deeds that may be done again, by a word that was given and not used yet."""
        self.number = 0
        self.is_edited = False
        """Whether it went on with another flow than it had begun with."""

    @property
    def flow(self) -> Flow:
        return make_flow(self.world, self.specs)

    @property
    def events(self) -> Sequence[Event]:
        return self.store.events(self.run_id)

    async def go(self) -> list[str]:
        await self._run("run")
        for _ in range(self.chance.randint(1, 6)):
            steps = (self._resume, self._resume, self._fork, self._reuse, self._repeat, self._edit, self._move)
            await self.chance.choice(steps)()
        await self._finish()
        return [f"{each}\n    after {', '.join(self.done)}\n    of {self.specs}" for each in self.wrong]

    # --- Steps

    async def _resume(self) -> None:
        await self._go_on("resume", disturbed=True)

    async def _fork(self) -> None:
        node = self.chance.choice(list(self.specs))
        state = {"x": self.chance.randint(1, 9)} if self.chance.random() < 0.6 else {}
        anew = self._behind(node)
        before, run_id = list(self.events), self._new_id()
        self.deeds = {each for each in self.deeds if _top_of_deed(each) not in anew}
        had = {each for each in _answers(before) if _top(each[0]) not in anew}
        self.forks.append((node, state))
        source, self.run_id = self.run_id, run_id
        plan = self.flow.plan

        async def fork(options: dict[str, Any]) -> Run:
            chosen = RunOptions(run_id=run_id, **options)
            return await local.fork(plan, source, self.store, node, state=state, options=chosen)

        await self._try(f"fork {node} {state}", had, (), fork)
        if list(self.store.events(source)) != before:
            self.wrong.append("the parent's journal was touched")

    async def _reuse(self) -> None:
        await self._run("reuse", self.run_id)

    async def _run(self, name: str, reuse: str | None = None) -> None:
        had: set[tuple[str, str, int]] = set()
        before: list[Event] = []
        if reuse is not None:
            before = list(self.events)
            results = Past(before).results
            had = {each for each in _answers(before) if each[0] in results}
            paths = {_deed_of(path) for path in results}
            # Then nodes find other values than they found, or it is not known what they saw.
            is_other = self.is_edited or any(state for _, state in self.forks)
            is_other = is_other or bool(failed_items(self.flow.plan, before))
            self.deeds = set() if is_other else {each for each in self.deeds if each in paths}
        self.forks, self.is_edited = [], False
        run_id = self.run_id = self._new_id()
        flow = self.flow

        async def run(options: dict[str, Any]) -> Run:
            return await flow.run(store=self.store, run_id=run_id, reuse=reuse, **options)

        await self._try(name, had, (), run)
        if reuse is not None and list(self.store.events(reuse)) != before:
            self.wrong.append("the re-used journal was touched")

    async def _repeat(self) -> None:
        maps = failed_items(self.flow.plan, self.events)
        if maps:
            await self._go_on("failed items", disturbed=True, repeats=maps)

    async def _edit(self) -> None:
        begun = {_top(each.node) for each in self.events if hasattr(each, "node") and each.node}
        free = [name for name in self.specs if name not in begun]
        if free:
            name = self.chance.choice(free)
            self.is_edited = True
            self.deeds = {each for each in self.deeds if _top_of_deed(each) != name}
            self.specs[name] = self.specs[name]._replace(salt=self.specs[name].salt + 1)
            await self._go_on(f"edit {name}", disturbed=True, allow_changed=True)

    async def _move(self) -> None:
        moved = ChainStore(self.world)
        for info in reversed(self.store.list()):
            events = self.store.events(info.run_id)
            with copying_values():
                [found] = unpack_runs(list(pack_run(events)), "moved")
                await store_run(moved, found.events)
            if [*map(encode, moved.events(info.run_id))] != [*map(encode, events)]:
                self.wrong.append(f"an export of {info.run_id} is another run")
        self.store = moved
        self.done.append("move")

    async def _finish(self) -> None:
        """Let it end, and compare it with a run that nothing happened to."""
        for _ in range(12):
            last = self.events[-1]
            maps = failed_items(self.flow.plan, self.events)
            if isinstance(last, RunFinished) and last.status == "succeeded" and not maps:
                break
            self.world.broken.clear()
            await self._go_on("finish", disturbed=False, repeats=maps)
        last = self.events[-1]
        fresh = await self._make_fresh()
        if not isinstance(last, RunFinished) or (last.status, last.outputs) != (fresh.status, dict(fresh.outputs)):
            self.wrong.append(f"it ends with\n      {last}\n    and should with\n      {dict(fresh.outputs)}")

    async def _make_fresh(self) -> Run:
        world = World()
        store, flow = ChainStore(world), make_flow(world, self.specs)
        run = await flow.run(store=store)
        for node, state in self.forks:
            run = await flow.fork(run.id, node, store=store, state=state)
        return run

    # --- How

    async def _go_on(
        self, name: str, *, disturbed: bool, repeats: Collection[str] = (), allow_changed: bool = False
    ) -> None:
        flow = self.flow
        anew: set[str] = set()
        told: list[str] = []
        if repeats:
            every = {each.node for each in self.events if hasattr(each, "node") and each.node}
            told = [*refuse_repeated_deeds(flow.plan, self.events, repeats, allowed=every)]
            anew = {name for each in repeats for name in self._behind(_top(each)) if name != _top(each)}
        had = {each for each in _answers(self.events) if _top(each[0]) not in anew}
        options: dict[str, Any] = {"allow_changed": allow_changed}
        if repeats:
            options["repeat_failed_items"] = True

        async def resume(more: dict[str, Any]) -> Run:
            return await flow.resume(self.run_id, store=self.store, **options, **more)

        await self._try(name, had, told, resume, disturbed=disturbed)

    async def _try(
        self,
        name: str,
        had: set[tuple[str, str, int]],
        allowed: Collection[str],
        act: Callable[[dict[str, Any]], Any],
        *,
        disturbed: bool = True,
    ) -> None:
        """Do it, disturbed at random; asked about deeds of unknown end, have them done again."""
        world, options = self.world, dict[str, Any]()
        way = self.chance.choice(("", "", "kill", "stop", "break", "limit")) if disturbed else ""
        world.kill_at = self.chance.randint(1, 25) if way == "kill" else 0
        world.stop_at = self.chance.randint(1, 25) if way == "stop" else 0
        if way == "break":
            names = [self._breakable(each) for each in self.specs]
            world.broken = set(self.chance.sample(names, min(len(names), 2)))
        if way == "limit":
            bought = len([*_calls(self._written)])
            bounds = Budget(model_calls=bought + self.chance.randint(0, 4))
            options["limits"] = RunLimits(bounds=bounds, on_limit="pause")
        elif "fork" not in name and name not in ("run", "reuse"):
            options["limits"] = RunLimits()
        self.done.append(f"{name}{f' ({way})' if way else ''}")
        world.is_running = "fork" not in name
        deeds, seen = len(world.deeds), len(self._written)
        retried = [*allowed]
        if allowed:
            options["retry_effects"] = [*allowed]
        run: Run | None = None
        for _ in range(3):
            try:
                with anyio.CancelScope() as world.scope:
                    run = await act(options)
                break
            except EffectPendingError as error:
                asked = {node for node, *_ in error.calls}
                retried += asked
                options = {**options, "retry_effects": [*allowed, *asked]}
                if "fork" in name or name in ("run", "reuse"):
                    # The fork is there, and waits for this word.
                    options.pop("limits", None)
                    act = lambda more: self.flow.resume(self.run_id, store=self.store, **more)  # noqa: E731
        is_killed = world.is_dead
        world.is_dead, world.kill_at, world.stop_at, world.broken = False, 0, 0, set()
        self._judge(run, is_killed=is_killed)
        tops = {_top(each) for each in retried}
        self.allowed |= {each for each in self.deeds if _top_of_deed(each) in tops}
        for deed in world.deeds[deeds:]:
            if deed in self.deeds and deed not in self.allowed:
                self.wrong.append(f"{self.done[-1]}: '{deed}' is done twice")
            self.allowed.discard(deed)
            self.deeds.add(deed)
        for call in _calls(self._written[seen:]):
            if call in had:
                self.wrong.append(f"{self.done[-1]}: {call} is bought twice")

    def _judge(self, run: Run | None, *, is_killed: bool) -> None:
        """Whether the status is true."""
        if not self._written:
            return
        last = self.events[-1]
        status = last.status if isinstance(last, RunFinished) else "running"
        if status == "running" and not is_killed:
            self.wrong.append(f"{self.done[-1]}: the run has no end")
        if run is not None and status == "succeeded":
            unsettled = [name for name, each in run.nodes.items() if each.status in ("pending", "running", "cancelled")]
            if unsettled:
                self.wrong.append(f"{self.done[-1]}: it succeeded without {unsettled}")

    def _breakable(self, name: str) -> str:
        match self.specs[name].kind:
            case "ask" | "look" | "send" | "notes" | "map_ask" | "map_send":
                return f"{name} model"
            case "map":
                return f"{name}{self.chance.choice('pqr')}"
            case "broken":
                return f"{name} never"  # It fails in any case, and what it says is seen by others.
            case _:
                return name

    def _behind(self, node: str) -> set[str]:
        plan = self.flow.plan
        start = plan.graph.index[node]
        return {name for name, at in plan.graph.index.items() if at == start or plan.graph.is_ancestor(start, at)}

    def _new_id(self) -> str:
        self.number += 1
        return f"r{self.number}"

    @property
    def _written(self) -> Sequence[Event]:
        """The events of the run; none where it has not begun."""
        return self.events if self.run_id in [each.run_id for each in self.store.list()] else ()


def _top(path: str) -> str:
    return path.partition(".")[0].partition("[")[0]


def _top_of_deed(deed: str) -> str:
    return deed.split()[0]


def _deed_of(path: str) -> str:
    """The deed of a node that finished: its own, or that of an item."""
    name, _, rest = path.partition("[")
    return f"{name} {name}{'pqr'[int(rest[0])]}" if rest and path.endswith(".b") else path


def _calls(events: Sequence[Event]) -> Iterator[tuple[str, str, int]]:
    for event in events:
        if isinstance(event, NodeRecorded) and type(event.record) is ModelCall and event.record.error is None:
            yield event.node, event.record.key, event.record.occurrence


def _answers(events: Sequence[Event]) -> set[tuple[str, str, int]]:
    """All that nodes were answered, in the run or in those that it took over from."""
    found = set(_calls(events))
    for event in events:
        if isinstance(event, NodeRecorded) and type(event.record) is Reused:
            found |= {(event.node, each.key, each.occurrence) for each in event.record.calls if type(each) is ModelCall}
    return found


def try_chain(seed: int) -> list[str]:
    """What is wrong after the chain of that number; nothing, if all is as it should be."""
    chain = Chain(seed)
    try:
        return anyio.run(chain.go)
    except Exception as error:
        return [f"{type(error).__name__}: {error}\n    in {', '.join(chain.done)}\n    of {chain.specs}"]
