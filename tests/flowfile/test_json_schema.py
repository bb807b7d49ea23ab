"""The schema that editors use says what the loader says, as far as a schema can."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest

from flowengine.flowfile.schema.editor_schema import json_schema
from flowengine.flowfile.schema.fields import Keys
from flowengine.flowfile.yaml.parser import parse_yaml

SAMPLES = sorted((Path(__file__).parents[2] / "flows").glob("*.yaml"))
SCHEMA = json_schema()
VALIDATOR: Any = jsonschema.Draft7Validator(SCHEMA)
HEAD = "flowengine: v1\nname: a\n"


def problems(text: str) -> list[str]:
    return [f"{each.json_path}: {each.message}" for each in VALIDATOR.iter_errors(parse_yaml(text).data)]


def test_it_is_a_json_schema() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_the_sample_flows_fit(path: Path) -> None:
    assert problems(path.read_text()) == []


@pytest.mark.parametrize(
    "nodes",
    [
        "a: {prompt: x, on_error: {then: b}, timeout: 30s, retry: {attempts: 2, initial: 1s, on: [error]}}",
        "a: {agent: {instructions: i, timeout: 5s}, output: {type: object}, set: {k: [1, x]}, x-note: 1}",
        "p: {type: routing, instruction: i, routes: {a: b, c: {to: d, description: e}, f: {}}, min_confidence: 1}",
        "c: {type: condition, if: x, then: {}, else: b}",
        "c: {type: condition, cases: [{if: x, then: b, label: l}], else: {}}",
        "e: {type: evaluation, criteria: {clear: yes}, threshold: 0.5, routes: {pass: a, fail: {}}}",
        "f: {type: function, call: 'm.n:f', with: {a: 1, b: '{{ x }}', x-c: 1}}",
        "a: {tools: ['m:f'], mcp_servers: [{name: t, command: c, args: [a], x-n: 1}, {name: d, url: 'http://x'}]}",
        "m: {type: map, over: x, as: i, concurrency: 2, nodes: {a: {}}, result: ['{{ x }}'], limits: {tokens: 5}}",
        "l: {type: loop, max_iterations: 2, initial: {n: 1}, until: x, carry: {n: 2}, best_by: y, nodes: {a: {}}}",
        "l: {type: loop, max_iterations: 2, nodes: {m: {type: map, over: x, nodes: {s: {type: subflow, flow: f}}}}}",
        "p: {type: approval, message: m, form: {}, routes: {y: a, n: {}}, expires: 2h, on_expire: n}",
        "a: {effect: external, cache: false, limits: {cost_usd: 0.5, on_limit: pause}}",
        "x-note: anything\na: {}",
    ],
)
def test_what_the_loader_takes_fits(nodes: str) -> None:
    indented = "\n  ".join(nodes.splitlines())
    assert problems(f"{HEAD}nodes:\n  {indented}\n") == []


@pytest.mark.parametrize(
    "nodes",
    [
        "a: {promt: x}",
        "a: {type: agnet}",
        "a: {type: map}",
        "a: {prompt: 3}",
        "l: {type: loop, nodes: {a: {}}}",
        "l: {type: loop, max_iterations: 2, nodes: {a: {promt: x}}}",
        "l: {type: loop, max_iterations: 2, nodes: {a: {type: lop}}}",
        "l: {type: loop, max_iterations: 2, over: x, nodes: {a: {}}}",
        "l: {type: loop, max_iterations: 2, retry: {}, nodes: {a: {}}}",
        "m: {type: map, over: x, as: my-item, nodes: {a: {}}}",
        "s: {type: subflow}",
        "p: {type: approval, message: m, routes: {y: {}}, expires: 2h}",
        "p: {type: approval, message: m, routes: {y: {}}, timeout: 2h}",
        "a: {effect: outside}",
        "a: {prompt:}",
        "a: {timeout: 30}",
        "a: {on_error: ignore}",
        "a: {tools: [search]}",
        "a: {mcp_servers: [{command: c}]}",
        "a: {mcp_servers: [{name: my-time, command: c}]}",
        "my-node: {prompt: x}",
        "p: {type: routing, routes: {a: b}}",
        "p: {type: routing, instruction: i, routes: {a: 3}}",
        "e: {type: evaluation, threshold: 80}",
        "f: {type: function, call: tools.search}",
        "f: {type: function}",
    ],
)
def test_what_the_loader_refuses_does_not_fit(nodes: str) -> None:
    assert problems(f"{HEAD}nodes:\n  {nodes}\n")


def test_the_head_is_required() -> None:
    assert len(problems("nodes: {a: {}}")) == 2
    assert problems("flowengine: v2\nname: a\nnodes: {a: {}}")


def test_every_key_is_described() -> None:
    undescribed = [
        f"{name}.{key}"
        for name, definition in SCHEMA["definitions"].items()
        for part in (definition, *definition.get("anyOf", ()))
        for key, each in part.get("properties", {}).items()
        if not each.get("description")
    ]
    assert undescribed == []


def test_every_model_of_the_format_is_there() -> None:
    def models(of: type[Any]) -> set[str]:
        own = [each for each in of.__subclasses__() if each.__module__.startswith("flowengine.flowfile.")]
        return {each.__name__ for each in own} | {name for each in own for name in models(each)}

    abstract = {"NodeKeys", "BoundedKeys", "WorkKeys", "BodyKeys", "AgentSettings", "ModelSettings", "FlowSpec"}
    abstract.add("Thinking")  # Described where it stands.
    assert models(Keys) - abstract <= set(SCHEMA["definitions"])
