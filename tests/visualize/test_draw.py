"""Pictures in every format: through the real `dot`, and by ourselves where that is missing, slow or not asked."""

from __future__ import annotations

import itertools
import json
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from flowengine.core.node_traits import TRAITS
from flowengine.core.records import seconds_text
from flowengine.engine.events import Event
from flowengine.engine.graph import Edge, Graph, Vertex
from flowengine.errors import PictureError
from tests.support.require import require
from tests.support.sample_run import research_run
from visualize.draw import render, to_dot, to_mermaid, to_svg
from visualize.icons import HEATS, SIGNS
from visualize.layout import arrange, place_boxes
from visualize.picture import Picture, PictureEdge, PictureNode, picture_of_flow, picture_of_run, picture_of_skeleton
from visualize.style import cut, heat_value, heats_of
from visualize.svg import width_of

HOSTILE = [
    "end",
    "node",
    'say "hi"',
    "<b>bold</b>",
    "<script>alert(1)</script>",
    "two\nlines",
    "back\\slash \\N \\G \\l",
    "&lt; &amp; &#60;",
    "日本語のラベル",
    "];evil[label=x]",
    "a|b{c}[d](e)",
    "\x00\x07\x1b[31m",
    "click n0 href javascript:alert(1)",
    "-->",
    "x" * 10_000,
    "",
]


def hostile_picture() -> Picture:
    nodes = tuple(
        PictureNode(f"{number}{text}", text or "agent", "failed", error=text, route=text)
        for number, text in enumerate(HOSTILE)
    )
    edges = tuple(
        PictureEdge(before.id, after.id, (text,), "taken")
        for before, after, text in zip(nodes, nodes[1:], HOSTILE, strict=False)
    )
    return Picture('a "title" <b> \\N', nodes, edges)


def svg_texts(document: bytes | str) -> list[str]:
    root = ElementTree.fromstring(document)
    assert not [element for element in root.iter() if element.tag.endswith(("}script", "}foreignObject", "}image"))]
    return ["".join(element.itertext()) for element in root.iter() if element.tag.endswith("}text")]


# --- themes and heat


def test_an_svg_is_light_dark_or_as_its_readers_theme_and_its_text_is_12_pixels_at_least(events: list[Event]):
    picture = picture_of_run(events)
    drawn = {theme: render(picture, "svg", theme=theme).decode() for theme in ("auto", "light", "dark")}
    assert ".page { fill: #14191d; }" in drawn["dark"]
    assert ".page { fill: #ffffff; }" not in drawn["dark"]
    assert ".page { fill: #ffffff; }" in drawn["light"]
    assert "#14191d" not in drawn["light"]
    assert "@media (prefers-color-scheme: dark)" in drawn["auto"]
    assert "prefers-color-scheme" not in drawn["light"] + drawn["dark"]
    sizes = [int(each) for each in re.findall(r"(\d+)px \w|font-size: (\d+)px", drawn["auto"]) for each in each if each]
    assert min(sizes) >= 12


def test_every_kind_has_a_sign_of_its_own_that_can_be_told_from_its_ground():
    assert set(TRAITS) == set(SIGNS) - {""}
    assert len({sign.icon for sign in SIGNS.values()}) == len({sign.accent for sign in SIGNS.values()}) == len(SIGNS)
    for kind, sign in SIGNS.items():
        assert contrast(sign.accent, "#ffffff") >= 3, kind
    for day, night in HEATS:
        assert contrast(day, "#1f2a33") >= 4.5
        assert contrast(night, "#e8edf0") >= 4.5


def contrast(one: str, other: str) -> float:
    """Source of the formula: WCAG 2.2, relative luminance."""

    def light(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts]
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    darker, lighter = sorted((light(one), light(other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_heat_colours_what_took_longest_and_a_map_shows_how_far_it_is():
    run = picture_of_run(research_run())
    found = {node.id: level for node in run.nodes if (level := heats_of([node], "time").get(node.id)) is not None}
    assert set(found.values()) == {4}  # Alone, each is the most.
    hot = heats_of(run.nodes, "time")
    assert hot["polish"] == 4
    assert hot["triage"] == 0
    assert "publish" not in hot
    assert heats_of(run.nodes, "cost")["draft"] == 4
    assert "search" not in heats_of(run.nodes, "cost")
    assert heats_of(run.nodes, "") == {}
    assert 'class="s-succeeded heat-4"' in to_svg(run, heat="time")
    containers = {node.id.rpartition(".")[0] for node in run.nodes}
    hottest = max(heat_value(node, "time") or 0 for node in run.nodes if node.id not in containers)
    assert f"to {seconds_text(hottest)}<" in to_svg(run, heat="time"), "the key ends with the hottest box"
    half = picture_of_run(research_run()[:45])
    [investigate] = [node for node in half.nodes if node.id == "investigate"]
    assert investigate.progress is not None
    assert 0 < investigate.progress[1] < investigate.progress[0] < 1
    assert [edge.target for edge in half.edges if edge.moving]
    assert 'moving"' in to_svg(half)
    assert not [edge for edge in run.edges if edge.moving]


def test_the_model_is_on_the_node_from_its_definition_or_from_its_calls():
    graph = {"nodes": [["a", "agent"], ["b", "agent"]], "edges": [], "models": {"a": "openai/gpt-4o"}}
    assert [node.model for node in picture_of_skeleton("f", graph).nodes] == ["openai/gpt-4o", ""]
    assert "agent · gpt-4o" in svg_texts(to_svg(picture_of_skeleton("f", graph)))
    assert {node.id: node.model for node in picture_of_run(research_run()).nodes}["draft"] == "gpt-4o-mini"


# --- dot ------------------------------------------------------------------------------------------------


def draw_by_dot(picture: Picture, form: str) -> bytes:
    dot = require("dot", "graphviz")
    return subprocess.run([dot, f"-T{form}"], input=to_dot(picture).encode(), capture_output=True, check=True).stdout


def test_dot_draws_a_run_with_its_statuses_in_words(events: list[Event]):
    texts = svg_texts(draw_by_dot(picture_of_run(events), "svg"))
    assert "✓ succeeded · 1.0 s" in texts
    assert "– skipped: not selected" in texts
    assert "✗ failed · 1.0 s" in texts
    assert "1 call · 10 tokens · cost unknown" in texts
    assert "✓ succeeded · 2.5 s · 2 attempts" in texts
    assert any(text.strip() == "l" for text in texts)


def test_hostile_labels_come_out_of_dot_as_the_characters_they_are():
    picture = hostile_picture()
    read = json.loads(draw_by_dot(picture, "json"))
    assert len(read["objects"]) == len(picture.nodes)
    assert len(read["edges"]) == len(picture.edges)
    texts = svg_texts(draw_by_dot(picture, "svg"))
    assert '2say "hi"' in texts
    assert "3<b>bold</b>" in texts
    assert "6back\\slash \\N \\G \\l" in texts
    assert "7&lt; &amp; &#60;" in texts
    assert "8日本語のラベル" in texts


def test_a_png_is_the_svg_at_twice_its_size(events: list[Event]):
    picture = picture_of_run(events)
    root = ElementTree.fromstring(render(picture, "svg"))
    assert size_of(render(picture, "png")) == (2 * int(root.attrib["width"]), 2 * int(root.attrib["height"]))
    assert render(picture, "png", theme="dark") != render(picture, "png")


def size_of(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG")
    return int.from_bytes(png[16:20]), int.from_bytes(png[20:24])


@pytest.fixture
def no_resvg(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine of a user who has not installed the extra."""
    monkeypatch.setitem(sys.modules, "resvg_py", None)


@pytest.mark.usefixtures("no_resvg")
def test_without_its_extra_a_png_is_drawn_by_dot(events: list[Event]):
    require("dot", "graphviz")
    assert size_of(render(picture_of_run(events), "png"))


def test_a_very_wide_picture_is_a_png_of_a_size_that_programs_open():
    wide = Picture("wide", tuple(PictureNode(f"{number:02}{'m' * 58}", "agent") for number in range(24)), ())
    assert max(size_of(render(wide, "png"))) <= 16_001


def fake_dot(folder: Path, script: str) -> None:
    program = folder / "dot"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


@pytest.mark.long
@pytest.mark.usefixtures("no_resvg")
def test_a_dot_that_hangs_is_ended_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: list[Event]
):
    fake_dot(tmp_path, f'/bin/sleep 60 & echo $! > "{tmp_path}/child"; wait')
    monkeypatch.setenv("PATH", str(tmp_path))
    begun = time.monotonic()
    with pytest.raises(PictureError, match="did not finish within 2 s"):
        render(picture_of_run(events), "png", timeout=2.0)
    assert time.monotonic() - begun < 20
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 30
    while Path(f"/proc/{child}").exists() and "Z" not in Path(f"/proc/{child}/stat").read_text().split()[2]:
        assert time.monotonic() < deadline, "the child lives on"
        time.sleep(0.01)


@pytest.mark.usefixtures("no_resvg")
@pytest.mark.parametrize(
    ("script", "message"),
    [("sleep 60", "did not finish within 0.2 s"), ("echo no fonts >&2; exit 3", "`dot` failed: no fonts")],
)
def test_a_png_that_dot_cannot_draw_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str
):
    fake_dot(tmp_path, f"PATH=/bin:/usr/bin; {script}")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PictureError, match=message):
        render(Picture("f", (PictureNode("a", "agent"),), ()), "png", timeout=0.2 if "sleep" in script else 30.0)


@pytest.mark.usefixtures("no_resvg")
def test_an_interrupt_leaves_no_dot_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    begun: list[subprocess.Popen[bytes]] = []

    def interrupt(process: subprocess.Popen[bytes], *given: object) -> None:
        begun.append(process)
        raise KeyboardInterrupt

    fake_dot(tmp_path, "exec /bin/sleep 60")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(subprocess.Popen, "communicate", interrupt)
    with pytest.raises(KeyboardInterrupt):
        render(Picture("f", (PictureNode("a", "agent"),), ()), "png")
    assert begun[0].wait(10) == -signal.SIGKILL


@pytest.mark.usefixtures("no_resvg")
def test_without_dot_a_png_says_what_to_install_and_an_svg_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    picture = Picture("f", (PictureNode("a", "agent"),), ())
    with pytest.raises(PictureError, match=r"apt-get install graphviz.*pip install 'flowengine-dag\[png\]'"):
        render(picture, "png")
    assert "a" in svg_texts(render(picture, "svg"))


def test_an_unknown_format_is_refused():
    with pytest.raises(PictureError, match="unknown format 'gif'; known are: svg, png, dot, mermaid, json"):
        render(Picture("f", (), ()), "gif")


def nested_hostile_picture() -> Picture:
    """Each hostile text as a container round the next one."""
    nodes: list[PictureNode] = []
    for number, text in enumerate(HOSTILE):
        parent = nodes[-1].id if nodes else None
        nodes.append(PictureNode(f"{number}{text}-leaf", "agent", "failed", parent=parent, label=f"{text}-leaf"))
        nodes.append(PictureNode(f"{number}{text}", "map", "running", parent=parent, label=text, unit_count=2, total=3))
    pairs = zip(nodes[1::2], nodes[::2], strict=True)
    edges = [PictureEdge(container.id, leaf.id, ("x",), "taken") for container, leaf in pairs]
    return Picture("nested", tuple(nodes), tuple(edges[:-1]))


def test_containers_are_clusters_in_dot_whatever_they_are_called():
    dot = require("dot", "graphviz")
    picture = nested_hostile_picture()
    drawn = subprocess.run([dot, "-Tjson"], input=to_dot(picture).encode(), capture_output=True, check=True)
    read = json.loads(drawn.stdout)
    clusters = [each for each in read["objects"] if each["name"].startswith("cluster_")]
    assert len(clusters) == len(HOSTILE) - 1  # The innermost one is empty, and so a node.
    assert drawn.stderr == b""
    assert all(each.get("lhead") or each.get("ltail") for each in read["edges"])


def test_containers_are_drawn_round_their_bodies():
    picture = picture_of_run(research_run())
    placed = arrange(picture, lambda node: (100.0, 60.0))
    for node in picture.nodes:
        if node.parent is not None:
            inner, outer = placed.boxes[node.id], placed.boxes[node.parent]
            assert abs(inner.x - outer.x) <= (outer.width - inner.width) / 2
            assert inner.y + inner.height / 2 <= outer.y + outer.height / 2
            assert inner.y - inner.height / 2 >= outer.y - outer.height / 2 + placed.frames[node.parent]
    texts = svg_texts(to_svg(picture))
    assert {"polish ×3 of 4", "investigate ×4 of 4", "judge", "leaf"} <= set(texts)


def test_a_container_inside_many_others_is_drawn():
    assert len(svg_texts(to_svg(nested_hostile_picture()))) > 100


def test_mermaid_has_a_subgraph_for_each_container():
    lines = [line.strip() for line in to_mermaid(picture_of_run(research_run())).splitlines()]
    assert sum(line.startswith("subgraph ") for line in lines) == lines.count("end") == 4
    assert 'subgraph n1["polish ×3 of 4 · loop · ✓ succeeded · 3.0 s · 5 calls · 1,680 tokens · #36;0.0080"]' in lines


# --- by ourselves ---------------------------------------------------------------------------------------


def test_our_own_svg_is_well_formed_and_escapes_hostile_labels():
    texts = svg_texts(to_svg(hostile_picture()))
    assert "4<script>alert(1)</script>"[:32] in " ".join(texts)
    assert "8日本語のラベル" in texts


def test_no_line_goes_through_the_label_of_an_edge():
    edges = [Edge("a", "b", "yes"), Edge("a", "c", "no"), Edge("b", "c")]
    drawn = to_svg(picture_of_flow("f", Graph(map(Vertex, "abc"), edges)))
    assert drawn.rindex('class="edge') < drawn.index('class="label"')


def test_the_labels_of_two_routes_are_apart():
    label = "a longer label"
    edges = [Edge("a", target, f"{label} {target}") for target in "bc"]
    drawn = to_svg(picture_of_flow("f", Graph(map(Vertex, "abc"), edges)))
    one, other = (float(x) for x in re.findall('class="label" x="([0-9.]+)"', drawn))
    assert abs(one - other) > 0.8 * width_of(f"{label} b")  # Which is on the safe side.


def test_wide_letters_stay_in_their_box():
    """Widths of Helvetica at 12 px."""
    assert all(
        width_of(each) >= width for each, width in {"W": 11.3, "M": 10.0, "O": 9.3, "m": 10.0, "…": 12.0}.items()
    )


@pytest.mark.long
def test_a_graph_of_1600_nodes_is_drawn_without_asking_dot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fake_dot(tmp_path, f'echo asked > "{tmp_path}/asked"')
    monkeypatch.setenv("PATH", str(tmp_path))
    names = [f"n{i}" for i in range(1600)]
    picture = picture_of_flow("big", Graph(map(Vertex, names), [Edge(a, b) for a, b in itertools.pairwise(names)]))
    assert len(svg_texts(render(picture, "svg"))) > 3200
    assert not (tmp_path / "asked").exists()


@pytest.mark.long
def test_ten_thousand_nodes_are_laid_out_in_time_that_grows_with_the_graph():
    """Work is counted by the clock of this thread; 2 s is the promise, doubled here for a busy machine."""
    edges = [
        ((layer - 1) * 100 + (at + k) % 100, layer * 100 + at)
        for layer in range(1, 100)
        for at in range(100)
        for k in range(3)
    ]
    begun = time.thread_time()
    layout = place_boxes([(120.0, 60.0)] * 10_000, edges)
    assert time.thread_time() - begun < 4
    assert len(layout.boxes) == 10_000


def test_boxes_never_overlap_and_edges_lead_down():
    sizes = [(60.0 + 10 * (i % 7), 30.0 + 5 * (i % 4)) for i in range(80)]
    edges = [(s, t) for t in range(80) for s in range(t) if (s * 31 + t * 17) % 23 == 0]
    layout = place_boxes(sizes, edges)
    for one in range(80):
        for two in range(one):
            a, b = layout.boxes[one], layout.boxes[two]
            apart = abs(a.x - b.x) >= (a.width + b.width) / 2 or abs(a.y - b.y) >= (a.height + b.height) / 2
            assert apart, (one, two)
    assert all(path[0][1] < path[-1][1] for path in layout.paths)
    assert all(box.x - box.width / 2 >= 0 and box.x + box.width / 2 <= layout.width for box in layout.boxes)


def test_a_cycle_is_laid_out_all_the_same():
    assert len(place_boxes([(10.0, 10.0)] * 3, [(0, 1), (1, 2), (2, 0), (1, 1)]).boxes) == 3


def test_nothing_is_drawn_as_an_empty_page():
    ElementTree.fromstring(to_svg(Picture("empty", (), ())))
    assert to_dot(Picture("empty", (), ())).startswith("digraph {")


# --- text formats -----------------------------------------------------------------------------------------


def test_mermaid_keeps_labels_from_meaning_anything():
    lines = to_mermaid(hostile_picture()).splitlines()
    body = [line.strip() for line in lines[4:]]
    allowed = ("n", "classDef ", "class ")
    assert all(line.startswith(allowed) for line in body)
    assert all('"' not in line.split('"', 1)[1].rsplit('"', 1)[0] for line in body if line.count('"') == 2)
    assert "<script>" not in "\n".join(lines)
    assert sum(line.startswith("n") for line in body) == 2 * len(HOSTILE) - 1


def test_a_mermaid_title_ends_where_it_should_whatever_it_says():
    name = 'a-b" c\\n\n---\n%%{init: {}}%%\n<script>&#34; 日本'
    lines = to_mermaid(Picture(name, (PictureNode("end", "agent"),), ())).splitlines()
    assert (lines[0], lines[2:4]) == ("---", ["---", "flowchart TD"])
    assert yaml.safe_load(lines[1]) == {"title": cut(name, 80)}
    assert not set(lines[1].removeprefix('title: "').removesuffix('"')) & set('"<>&%{}#')


def test_json_holds_the_picture(events: list[Event]):
    read = json.loads(render(picture_of_run(events), "json"))
    assert read["run"]["status"] == "failed"
    assert [node["id"] for node in read["nodes"]] == ["write", "pick", "left", "right", "end"]
    assert read["edges"][1]["labels"] == ["l"]
