"""Flows and runs show themselves: as Digraphs, as SVG in notebooks, through the functions of `visualize`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import graphviz

import visualize
from flowengine import Flow, FunctionNode, Runs
from tests.support.require import require


def count_flow() -> Flow:
    return Flow(
        "count",
        {
            "one": FunctionNode(lambda context: 1, description="Begins at one."),
            "two": FunctionNode(lambda context: context.result + 1, needs=["one"]),
        },
    )


def test_a_flow_is_a_digraph_of_graphviz_that_draws_itself(tmp_path: Path):
    require("dot", "graphviz")
    drawn = count_flow().graphviz()
    assert isinstance(drawn, graphviz.Digraph)
    assert drawn.source == visualize.to_dot(count_flow())
    assert drawn.pipe(format="svg").count(b"<title>n") == 3
    assert Path(drawn.render(tmp_path / "count", format="png")).read_bytes().startswith(b"\x89PNG")


def test_a_notebook_shows_a_flow_and_a_run_with_its_way():
    flow = count_flow()
    shown = flow._repr_mimebundle_()
    assert set(shown) == {"image/svg+xml", "text/plain"}
    assert "✓ succeeded" not in shown["image/svg+xml"]
    assert "✓ succeeded" in flow.run_sync()._repr_mimebundle_()["image/svg+xml"]


def test_a_run_is_drawn_alike_right_after_it_and_from_its_store(tmp_path: Path):
    store = f"sqlite:///{tmp_path}/runs.db"
    run = count_flow().run_sync(store=store)
    with Runs(store) as runs:
        assert visualize.to_svg(runs.get(run.id)) == visualize.to_svg(run)
        assert runs.get(run.id).graph.nodes["two"]["status"] == run.graph.nodes["two"]["status"] == "succeeded"
    assert run.graph.nodes["one"]["description"] == "Begins at one."


def test_every_function_takes_a_flow_and_a_run():
    flow = count_flow()
    for what in (flow, flow.run_sync()):
        assert visualize.to_svg(what, theme="dark", heat="time", paper="a4").startswith("<svg")
        assert visualize.to_mermaid(what).startswith("---")
        assert visualize.to_dot(what).startswith("digraph")
        assert visualize.to_png(what).startswith(b"\x89PNG")
        assert len(visualize.to_networkx(what)) == 2
        assert isinstance(visualize.to_graphviz(what), graphviz.Digraph)


def test_a_run_that_nobody_draws_loads_nothing_that_draws():
    code = (
        "import sys; from flowengine import Flow, FunctionNode\n"
        "Flow('f', {'a': FunctionNode(lambda context: 1)}).run_sync()\n"
        "print([name for name in ('networkx', 'graphviz', 'resvg_py', 'visualize.svg') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
