"""Rows of maps and loops: what a level costs beside the nodes in it."""

from __future__ import annotations

from statistics import median
from time import process_time

from flowengine import Context, Flow, FunctionNode
from flowengine.flowfile.compile.scope import boolean
from flowengine.nodes.loop import LoopNode
from flowengine.nodes.map import MapNode
from tests.bench.engine import done, flow_of, nothing, value
from tests.bench.floor import chain, fan, run_floor
from tests.bench.measure import Row, ratio
from tests.bench.processes import printed

__all__ = ["ROWS"]

ITEMS, ROUNDS, NODES = 10_000, 1_000, 3

MEMORY = f"""
import asyncio
from flowengine import Flow, FunctionNode
from flowengine.nodes.map import MapNode
async def nothing(context): ...
node = MapNode({{"body": FunctionNode(nothing)}}, over=lambda context: list(range({ITEMS})))
run = asyncio.run(Flow("bench", {{"m": node}}).run())
assert len(run.nodes["m"].output) == {ITEMS}
print([line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")][0])
"""


async def nothing_at_all(context: Context) -> None: ...


async def map_items() -> Row:
    node = MapNode({"body": FunctionNode(nothing_at_all)}, over=lambda context: list(range(ITEMS)))
    flow = Flow("bench", {"m": node})
    return await ratio("map over 10,000, each item", 2.0, lambda: done(flow), lambda: run_floor(fan(ITEMS), nothing))


def map_memory() -> Row:
    return Row("map over 10,000, resident memory", float(printed(MEMORY)) / 1024, 200, "MB")


async def loop_rounds() -> Row:
    body = {f"n{at}": FunctionNode(value, needs=[f"n{at - 1}"] if at else []) for at in range(NODES)}
    flow = Flow("bench", {"loop": LoopNode(body, max_iterations=ROUNDS)})
    same = flow_of(chain(ROUNDS * NODES), value)
    return await ratio("loop of 1,000 rounds of 3, against a chain", 2.0, lambda: done(flow), lambda: done(same))


async def expression() -> Row:
    """One that looks up the first of 1,000 ancestors, evaluated for the last of them."""
    run = await flow_of(chain(1000), value).run()
    evaluate = boolean("nodes.n0.output == 1 and nodes.n998.output != 2")
    context = run.context
    assert evaluate(context) is True
    times: list[float] = []
    for _ in range(7):
        begun = process_time()
        for _ in range(2000):
            evaluate(context)
        times.append((process_time() - begun) / 2000 * 1e6)
    return Row("an expression with 1,000 nodes in scope", median(times), 25, "µs CPU", (min(times), max(times)))


ROWS = (map_items, map_memory, loop_rounds, expression)
