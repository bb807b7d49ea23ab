"""`flowengine schema` prints the JSON Schema of flow files, for editors that complete and check them."""

from __future__ import annotations

import click

from flowengine.cli.terminal import Results, complain
from flowengine.flowfile.schema.editor_schema import json_schema
from flowengine.journal.run_export import dumps

__all__ = ["command"]


@click.command("schema")
def command() -> int:
    """Print the JSON Schema of flow files.

    Write it to a file, and name that file in the first line of a flow:
    # yaml-language-server: $schema=flow.schema.json
    """
    Results().json(dumps(json_schema(complain), indent=2))
    return 0
