"""Attempts by a JSON Schema of a flow, of a journal or of a server to have something fetched or to never end."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from flowengine.core.json_schema import find_misfits, make_validator
from flowengine.errors import DefinitionError, InputError
from flowengine.flowfile.loader import check_text
from flowengine.nodes.run_inputs import InputField, checked_inputs


@pytest.fixture
def asked() -> Iterator[list[str]]:
    """Paths that somebody has asked a server of this machine for; its address is the first."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"type": "string"}')

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        paths.append(f"http://127.0.0.1:{server.server_port}/secret")
        yield paths
        server.shutdown()
        thread.join()


def elsewhere(address: str, folder: Path) -> list[dict[str, Any]]:
    (folder / "secret.json").write_text('{"const": "sesame"}')
    file = (folder / "secret.json").as_uri()
    return [
        {"$ref": address},
        {"$ref": file},
        {"type": "object", "properties": {"a": {"$ref": file}}},
        {"$id": address, "$ref": "other"},
        {"$dynamicRef": file},
        {"allOf": [{"$schema": address, "$ref": file}]},
    ]


def test_a_schema_has_nothing_fetched_from_a_server_or_a_disk(asked: list[str], tmp_path: Path) -> None:
    for schema in elsewhere(asked[0], tmp_path):
        found = find_misfits(schema, {"a": 1})
        assert found
        assert "sesame" not in repr(found)
        with pytest.raises(DefinitionError):
            make_validator(schema)
        with pytest.raises(InputError):
            checked_inputs({"a": InputField(schema=schema)}, {"a": {"a": 1}})
    assert len(asked) == 1, "nobody was asked"


@pytest.mark.parametrize("place", ["inputs: {i: {schema: SCHEMA}}", "x-note: 1"])
def test_a_flow_whose_schema_refers_elsewhere_is_refused(place: str) -> None:
    schema = "{$ref: 'file:///etc/passwd'}"
    output = "" if "SCHEMA" in place else f", output: {{type: object, properties: {{a: {schema}}}}}"
    text = f"flowengine: v1\nname: a\n{place.replace('SCHEMA', schema)}\nnodes: {{a: {{prompt: x{output}}}}}\n"
    assert "FE406" in {each.code for each in check_text(text)}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"pattern": "("},
        {"type": "nothing"},
        {"properties": []},
    ],
)
def test_a_schema_that_cannot_be_used_is_a_misfit_and_no_crash(schema: dict[str, Any]) -> None:
    assert find_misfits(schema, "x")


@pytest.mark.parametrize(
    "schema",
    [
        {"$schema": 5, "type": "string"},
        {"$schema": [], "type": "string"},
        {"$schema": "http://[x", "type": "string"},
        {"$ref": "#/a/b", "a": 5},
    ],
)
def test_a_schema_that_its_library_falls_over_is_refused_as_any_other(schema: dict[str, Any]) -> None:
    assert [each.path for each in find_misfits(schema, "text")] == ["$"]
    with pytest.raises(DefinitionError, match="JSON Schema"):
        make_validator(schema)


@pytest.mark.parametrize(("given", "shown"), [(True, "True"), ("1", "'1'"), (None, "None")])
def test_an_input_is_one_of_its_values_only_as_json_has_it(given: Any, shown: str) -> None:
    field = InputField(enum=[1, 2])
    assert checked_inputs({"n": field}, {"n": 1.0}) == {"n": 1.0}
    with pytest.raises(InputError, match=f"expected one of 1, 2, not {shown}$"):
        checked_inputs({"n": field}, {"n": given})
