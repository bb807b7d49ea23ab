"""The table of commands. Each is a module that is imported when its command is run or its help is read."""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

__all__ = ["COMMANDS", "CommandTable"]

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "init": ("flowengine.cli.commands.init", "Write a project to begin with."),
    "run": ("flowengine.cli.commands.run", "Run a flow."),
    "validate": ("flowengine.cli.commands.validate", "Check flow files without running them."),
    "graph": ("flowengine.cli.commands.graph", "Draw a flow or a run."),
    "plan": ("flowengine.cli.commands.plan", "Say what a flow can cost at most, before it runs."),
    "export": ("flowengine.cli.commands.export", "Write a run into one HTML file."),
    "runs": ("flowengine.cli.commands.runs", "List the runs of a store, or show one."),
    "resume": ("flowengine.cli.commands.resume", "Go on with a run that was interrupted or failed."),
    "submit": ("flowengine.cli.commands.submit", "Put a run into a queue, for a worker."),
    "worker": ("flowengine.cli.commands.worker", "Work on the runs of a queue."),
    "queue": ("flowengine.cli.commands.queue", "Say what the queues hold, and what is wrong with them."),
    "workers": ("flowengine.cli.commands.workers", "List the workers of a store, and what they hold."),
    "cancel": ("flowengine.cli.commands.cancel", "Stop a run that was submitted."),
    "approve": ("flowengine.cli.commands.approve", "Answer the question that a run waits with."),
    "diff": ("flowengine.cli.commands.diff", "Compare two runs."),
    "telemetry": ("flowengine.cli.commands.telemetry", "Export the trace of a run."),
    "ui": ("flowengine.cli.commands.ui", "Show runs live in a browser, and flows to start there."),
    "test": ("flowengine.cli.commands.test", "Run flowtest files."),
    "record": ("flowengine.cli.commands.record", "Make a cassette for tests from a run."),
    "skills": ("flowengine.cli.commands.skills", "List, check and measure skills."),
    "explain": ("flowengine.cli.commands.explain", "Explain a code such as FE203."),
    "schema": ("flowengine.cli.commands.schema", "Print the JSON Schema of flow files, for editors."),
    "doctor": ("flowengine.cli.commands.doctor", "Say what is installed and which keys are set."),
}
"""Command → its module, where it is the attribute `command`, and its line in the help."""


class CommandTable(click.Group):
    """A group whose help is written from the table, without importing a command."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = import_module(COMMANDS[cmd_name][0]).command
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            from flowengine.errors import did_you_mean  # Only a mistyped command needs it.

            ctx.fail(f"there is no command '{args[0]}'{did_you_mean(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])
