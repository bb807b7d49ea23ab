"""`flowengine explain` prints what the code of a message means, with text that causes it.

`flowengine schema` prints the JSON Schema of flow files, for editors that complete and check them.
"""

from __future__ import annotations

import click

from flowengine.cli.terminal import Results, complain
from flowengine.errors import did_you_mean
from flowengine.flowfile.checks import CODES


@click.command("explain")
@click.argument("code", required=False)
def explain_command(code: str | None) -> int:
    """Explain a code such as FE203; without one, list them all."""
    results = Results()
    if code is None:
        for name, each in CODES.items():
            results.line(f"{name}  {each.title}")
        return 0
    entry = CODES.get(code.upper())
    if entry is None:
        raise click.UsageError(f"there is no code '{code}'{did_you_mean(code.upper(), CODES)}")
    results.line(f"{code.upper()}: {entry.title}")
    results.line("")
    results.line(entry.explanation)
    results.line("")
    results.line("for example:")
    for line in entry.example.splitlines():
        results.line(f"    {line}")
    return 0


# --- `flowengine schema`


@click.command("schema")
@click.argument("kind", type=click.Choice(["flow", "eval"]), default="flow")
def schema_command(kind: str) -> int:
    """Print the JSON Schema of flow files, or of eval files.

    Write it to a file, and name that file in the first line of a flow:
    `# yaml-language-server: $schema=flow.schema.json`
    """
    if kind == "eval":
        from flowengine.evals import eval_schema  # It needs scorers and judges.

        Results().value(eval_schema())
        return 0
    from flowengine.flowfile.schema import json_schema  # It needs every kind of node.

    Results().value(json_schema(complain))
    return 0
