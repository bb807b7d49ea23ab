"""`flowengine schema`: the JSON Schema of flow files, for editors that complete and check while one writes."""

from __future__ import annotations

import click

from flowengine.cli.plain import dumps
from flowengine.cli.terminal import Results
from flowengine.spec.schema import FlowSpec

__all__ = ["command"]


@click.command("schema")
def command() -> int:
    """Print the JSON Schema of flow files.

    Write it to a file, and name that file in the first line of a flow:
    # yaml-language-server: $schema=flow.schema.json
    """
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **FlowSpec.model_json_schema()}
    Results().line(dumps(schema, indent=2))
    return 0
