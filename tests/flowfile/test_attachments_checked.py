"""`attach` in flow files: what it takes, which models take it, and what `plan` counts for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowengine.builder import FlowBuilder
from flowengine.core.file_values import FileValue, hash_of
from flowengine.errors import FlowError
from flowengine.flow import Flow
from flowengine.flowfile.checks.agent_sources import check_models
from flowengine.flowfile.estimate.bounds import bound_of
from flowengine.flowfile.loader import check_file, load_flow
from flowengine.models.worst_case import ModelFacts

FLOW = """flowengine: v1
name: invoices
inputs:
  invoice: {type: file}
  note: {type: string, default: "What is on it?"}
nodes:
  read: {model: MODEL, max_tokens: 100, prompt: "{{ inputs.note }}", attach: ["{{ inputs.invoice }}"]}
  kind:
    type: routing
    model: MODEL
    instruction: Which kind?
    target: "{{ nodes.read.output }}"
    attach: ["{{ inputs.invoice }}"]
    routes: {bill: good, other: good}
    needs: [read]
  good: {type: evaluation, model: MODEL, attach: ["{{ inputs.invoice }}"], target: "{{ result }}", join: some}
"""

ATTACHED = '"{{ inputs.note }}", attach: ["{{ inputs.invoice }}"]'


def write(folder: Path, text: str, model: str = "offline") -> Path:
    path = folder / "flow.yaml"
    path.write_text(text.replace("MODEL", model))
    return path


def test_a_flow_shows_its_models_a_file(tmp_path: Path):
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    assert not check_file(write(tmp_path, FLOW))
    run = Flow.from_yaml(write(tmp_path, FLOW)).run_sync({"invoice": "a.png"})
    assert run.status == "succeeded", run.error


@pytest.mark.parametrize(
    ("change", "place", "said"),
    [
        (
            ('"{{ inputs.note }}", attach: ["{{ inputs.invoice }}"]', '"{{ inputs.note }}", attach: [a.png]'),
            (7, 81),
            "and no paths",
        ),
        (
            (
                '"{{ inputs.note }}", attach: ["{{ inputs.invoice }}"]',
                '"{{ inputs.note }}", attach: ["{{ inputs.note }}"]',
            ),
            (7, 81),
            "an input of type string is no file; declare it with type: file",
        ),
        (
            (
                '"{{ inputs.note }}", attach: ["{{ inputs.invoice }}"]',
                '"{{ inputs.note }}", attach: ["{{ inputs.invoce }}"]',
            ),
            (7, 85),
            "invoce",
        ),
        (("{type: file}", "{type: string, media_types: [image/png]}"), (4, 27), "goes with type: file"),
        (
            ("{type: file}", "{type: file, media_types: [png]}"),
            (4, 39),
            "found 'png'",
        ),
        (("good: {type: evaluation, model: MODEL,", "good: {type: evaluation, call: 'a:b',"), (16, 41), "'attach'"),
    ],
)
def test_what_cannot_be_attached_is_told_with_its_place(
    tmp_path: Path, change: tuple[str, str], place: tuple[int, int], said: str
):
    path = write(tmp_path, FLOW.replace(*change))
    problems = check_file(path)
    assert said in " ".join(map(str, problems))
    assert place in [(each.line, each.column) for each in problems], problems


def test_a_model_that_takes_no_images_is_refused_where_the_table_knows_it(tmp_path: Path):
    def problems(model: str, text: str = FLOW, stand_in: str | None = None) -> list[Any]:
        return check_models(load_flow(write(tmp_path, text, model)), ModelFacts({}, {}), stand_in)

    found = problems("openai/gpt-3.5-turbo")
    assert [(each.code, each.line, each.node) for each in found] == [
        ("FE514", 7, "read"),
        ("FE514", 13, "kind"),
        ("FE514", 16, "good"),
    ]
    assert "model 'openai/gpt-3.5-turbo' takes no images" in str(found[0])
    assert not problems("openai/gpt-4o")
    assert not problems("ollama/my-own")
    assert not problems("offline")
    assert problems("openai/gpt-4o", stand_in="openai/o3-mini")
    only_text = FLOW.replace("{type: file}", "{type: file, media_types: [text/plain, application/pdf]}")
    assert not problems("openai/gpt-3.5-turbo", only_text)
    with_fallback = FLOW.replace("prompt:", "fallbacks: [openai/gpt-4], prompt:")
    assert [each.line for each in problems("openai/gpt-4o", with_fallback)] == [7]


def test_the_plan_counts_an_image_by_the_vendors_rule_or_its_bound(tmp_path: Path):
    def tokens(inputs: dict[str, Any], model: str, text: str = FLOW) -> int | None:
        spec = load_flow(write(tmp_path, text, model))
        return bound_of(spec, ModelFacts({}, {}), inputs=inputs, model=None).nodes[0].most.tokens

    def file(media_type: str, size: int) -> FileValue:
        return FileValue(hash_of(b"x"), media_type, "x", size)

    small = tokens({"invoice": file("text/plain", 0)}, "openai/gpt-4o") or 0
    image = tokens({"invoice": file("image/png", 10)}, "openai/gpt-4o") or 0
    assert 2 * 3600 < image - small < 2 * 4100  # A question may be asked twice.
    claude = tokens({"invoice": file("image/png", 10)}, "anthropic/claude-sonnet-4-5") or 0
    assert claude < image
    assert (tokens({"invoice": file("text/plain", 10_000)}, "openai/gpt-4o") or 0) > small + 20_000
    images = FLOW.replace("{type: file}", "{type: file, media_types: [image/*]}")
    assert tokens({}, "openai/gpt-4o", images) == image
    assert (tokens({}, "openai/gpt-4o") or 0) > 2 * 128_000  # The model's window.


def test_a_flow_built_in_python_has_the_same_words():
    flow = FlowBuilder("invoices", inputs={"invoice": {"type": "file", "media_types": ["image/*"]}})
    flow.agent("read", prompt="What?", model="offline", attach=["{{ inputs.invoice }}"])
    made = flow.build()
    assert made.run_sync({"invoice": b"\x89PNG\r\n\x1a\n"}).status == "succeeded"
    assert "attach" in made.to_yaml()
    with pytest.raises(Exception, match=r"expected image/\*, found text/plain, by the file's content"):
        made.run_sync({"invoice": b"a text"})
    bad = FlowBuilder("invoices", inputs={"invoice": {"type": "string"}})
    bad.agent("read", prompt="What?", model="offline", attach=["{{ inputs.invoice }}"])
    with pytest.raises(FlowError, match="FE230"):
        bad.build()
