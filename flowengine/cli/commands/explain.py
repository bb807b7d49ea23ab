"""`flowengine explain` prints what the code of a message means, with text that causes it."""

from __future__ import annotations

import click

from flowengine.cli.terminal import Results
from flowengine.errors import did_you_mean
from flowengine.flowfile.checks.codes import CODES

__all__ = ["command"]


@click.command("explain")
@click.argument("code", required=False)
def command(code: str | None) -> int:
    """Explain a code such as FE203; without one, list them all."""
    results = Results()
    if code is None:
        for name, each in CODES.items():
            results.line(f"{name}  {each.title}")
        return 0
    found = CODES.get(code.upper())
    if found is None:
        raise click.UsageError(f"there is no code '{code}'{did_you_mean(code.upper(), CODES)}")
    results.line(f"{code.upper()}: {found.title}")
    results.line("")
    results.line(found.explanation)
    results.line("")
    results.line("for example:")
    for line in found.example.splitlines():
        results.line(f"    {line}")
    return 0
