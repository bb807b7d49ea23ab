"""References in a flow's JSON Schemas: those that lead somewhere are no problem, whatever way they are written."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.core.json_schema import make_validator
from flowengine.errors import DefinitionError
from flowengine.flowfile.analysis.shapes import check_json_schema


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"$ref": "#"}}},
        {"$ref": "#/$defs/a~1b", "$defs": {"a/b": True}},
        {"$ref": "#/$defs/a%20b", "$defs": {"a b": True}},
        {"$ref": "#/anyOf/1", "anyOf": [{"type": "string"}, {"type": "null"}]},
        {"$ref": "#here", "$defs": {"a": {"$anchor": "here"}}},
        {"$id": "http://a.example/b", "$ref": "#/$defs/a", "$defs": {"a": True}},
        {"$defs": {"a": {"$id": "http://a.example/b", "$ref": "#/$defs/c", "$defs": {"c": True}}}, "type": "object"},
    ],
)
def test_a_reference_to_a_part_of_the_schema_is_no_problem(schema: dict[str, Any]) -> None:
    assert list(check_json_schema(schema)) == []


@pytest.mark.parametrize("reference", ["#/$defs/b", "#/$defs/a/0", "#/anyOf/1", "#/anyOf/x", "#b", "#/type/x", "#/"])
def test_a_reference_to_nothing_is_told_before_a_run_as_in_it(reference: str) -> None:
    schema = {"type": "object", "$defs": {"a": True}, "anyOf": [{"$ref": reference}]}
    [(path, problem)] = check_json_schema(schema)
    assert path == ("anyOf", 0, "$ref")
    assert problem.startswith(f"the schema has no '{reference}'")
    with pytest.raises(DefinitionError, match="refers to"):
        make_validator(schema)
