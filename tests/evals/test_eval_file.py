"""Floweval files: what is wrong is told with line and column, before anything is paid."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import yaml

from flowengine.errors import FlowError
from flowengine.evals.eval_file import eval_schema, load_eval

FLOW = """flowengine: v1
name: triage
inputs: {message: {type: string}}
nodes:
  reply: {model: offline, prompt: "{{ inputs.message }}"}
outputs: {reply: "{{ nodes.reply.output }}"}
"""
HEAD = "flow: triage.yaml\ndata: rows.jsonl\nscorers:\n"


def written(folder: Path, text: str) -> Path:
    (folder / "flowengine.toml").write_text('allow_calls = ["scorers"]\n')
    (folder / "triage.yaml").write_text(FLOW)
    (folder / "scorers.py").write_text("def good(outputs):\n    return 1\n")
    path = folder / "a.floweval.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (HEAD + "  a: {outputs: {replly: x}}\n", "4:17: FE305 the flow has no output 'replly'; did"),
        (HEAD + "  a: {outputs: {reply: '{{ rows.x }}'}}\n", "run, against; did you mean 'row'?"),
        (HEAD + "  a: {outputs: {reply: '{{ row.x'}}\n", "a.floweval.yaml:4:17: FE301"),
        (HEAD + "  a: {judge: {target: '{{ outputs.reply }}', modell: x}}\n", "FE201 unknown key 'modell'; did"),
        (HEAD + "  a: {judge: {target: x}, call: scorers:good}\n", "a scorer has one of 'judge' and 'call'"),
        (HEAD + "  a: {threshold: 0.5}\n", "a.floweval.yaml:4:3: FE202 a scorer has a 'judge', a 'call', or claims"),
        (HEAD + "  a: {call: 'scorers:god'}\n", "a.floweval.yaml:4:7: FE506 the module 'scorers' defines no 'god'"),
        (HEAD + "  a: {call: 'others:good'}\n", "a.floweval.yaml:4:7: FE504 the module 'others' is not allowed"),
        (HEAD + "  a: {path: [replay]}\n", "FE305 the flow has no node 'replay'; did you mean 'reply'?"),
        (HEAD + "  a:\n    path:\n      - [reply, repl]\n      - replay\n", "7:9: FE305 the flow has no node 'replay'"),
        (HEAD + "  a: {call: scorers:good}\nsamples: 0\n", "a.floweval.yaml:5:"),
        (
            HEAD + "  a: {call: scorers:good}\nmap: {text: mesage}\n",
            "5:7: FE305 the flow has no input 'mesage'",
        ),
        (HEAD + "  a: {call: scorers:good}\ndatas: x\n", "FE201 unknown key 'datas'; did you mean 'data'?"),
        ("flow: none.yaml\ndata: x\nscorers: {a: {call: scorers:good}}\n", "1:1: FE101 there is no flow file"),
        ("- a\n", "a floweval file is a map with the keys flow, data"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(FlowError) as caught:
        load_eval(written(tmp_path, text))
    assert says in str(caught.value)


def test_the_schema_for_editors_takes_what_the_loader_takes(tmp_path: Path) -> None:
    schema = eval_schema()
    samples = [*Path(__file__).parents[2].joinpath("flows").glob("evals/*.floweval.yaml")]
    assert samples
    for sample in samples:
        jsonschema.validate(yaml.safe_load(sample.read_text()), schema)
        load_eval(sample)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"flow": "a", "data": "b", "scorers": {}, "datas": 1}, schema)
    assert schema["properties"]["samples"]["description"].startswith("How often each row is run")


def test_a_name_is_the_place_in_the_project(tmp_path: Path) -> None:
    assert load_eval(written(tmp_path, HEAD + "  a: {call: scorers:good}\nx-note: free\n")).name == "a"
