"""The viewer's flows whose prompts stand in files of their own."""

from __future__ import annotations

from pathlib import Path

from flowengine.web.service.flow_catalog import Library


def test_a_flow_is_read_anew_when_the_file_of_a_prompt_has_changed(folder: Path):
    Path("prompts").mkdir()
    prompt = Path("prompts/say.md")
    prompt.write_text("{{ inputs.word }}")
    Path("words.yaml").write_text(
        "flowengine: v1\nname: words\ninputs: {word: {type: string}}\n"
        "nodes: {say: {prompt: {file: prompts/say.md}, model: offline}}\n"
    )
    entry = Library(["words.yaml"], {}).find("words")
    first = entry.about()
    assert (first.problems, entry.about()) == ([], first)
    prompt.write_text("{{ inputs.wrod }}, said loudly")
    assert entry.about().problems[0].code == "FE303"
    prompt.unlink()
    assert [each.code for each in entry.about().problems] == ["FE229"]
    prompt.write_text("{{ inputs.word }}")
    assert entry.about().problems == []
