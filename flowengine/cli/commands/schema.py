"""`flowengine schema`: the JSON Schema of flow files, for editors that complete and check while one writes."""

from __future__ import annotations

import click

from flowengine.cli.plain import dumps
from flowengine.cli.terminal import Results
from flowengine.spec.json_schema import json_schema

__all__ = ["command"]


@click.command("schema")
def command() -> int:
    """Print the JSON Schema of flow files.

    Write it to a file, and name that file in the first line of a flow:
    # yaml-language-server: $schema=flow.schema.json
    """
    Results().json(dumps(json_schema(), indent=2))
    return 0
