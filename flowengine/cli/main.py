"""Runs one command line and gives its exit code. No traceback crosses this border.

It knows the exit codes and nothing of flows. Its commands are imported when they are asked for, so
`--help` costs click and no more.

    0    done
    1    the run failed, or something unexpected happened
    2    the flow or the command line is wrong; nothing has run
    3    the run waits for a person
    4    a limit of the run was reached
    5    the flow was edited since the run started
    130  interrupted
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from contextvars import copy_context
from importlib import import_module
from io import StringIO, TextIOWrapper
from typing import Any, BinaryIO, Final, cast

import click

from flowengine.cli.interrupts import end_loading
from flowengine.cli.terminal import complain, discard_buffer
from flowengine.core.masking import MORE_RECOGNIZERS
from flowengine.version import __version__

# --- The table of commands

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "init": ("flowengine.cli.commands.init", "Create a project."),
    "import": ("flowengine.cli.commands.import_flow", "Convert a flow of another product."),
    "run": ("flowengine.cli.commands.run:run_command", "Run a flow."),
    "validate": ("flowengine.cli.commands.validate", "Check flow files without running them."),
    "graph": ("flowengine.cli.commands.graph", "Draw a flow or a run."),
    "plan": ("flowengine.cli.commands.plan", "Compute the maximum cost of a flow."),
    "models": ("flowengine.cli.commands.models", "List the models that the project names."),
    "export": ("flowengine.cli.commands.export:export_command", "Write runs into an HTML file."),
    "runs": ("flowengine.cli.commands.runs", "List the runs of a store, or show one."),
    "memory": ("flowengine.cli.commands.memory_command", "List, show and remove sessions and memories."),
    "resume": ("flowengine.cli.commands.run:resume_command", "Resume a run that was interrupted or failed."),
    "submit": ("flowengine.cli.commands.queue:submit_command", "Submit a run to a queue."),
    "worker": ("flowengine.cli.commands.worker", "Execute the runs of a queue."),
    "queue": ("flowengine.cli.commands.queue:queue_command", "Show the queues and their problems."),
    "workers": ("flowengine.cli.commands.queue:workers_command", "List the workers of a store, and what they hold."),
    "schedules": ("flowengine.cli.commands.schedules", "List schedules, with their next and last runs."),
    "cancel": ("flowengine.cli.commands.queue:cancel_command", "Stop a run that was submitted."),
    "approve": ("flowengine.cli.commands.approve", "Answer the question of a waiting run."),
    "diff": ("flowengine.cli.commands.diff", "Compare two runs."),
    "eval": ("flowengine.cli.commands.eval", "Score a flow over data; repeat only what changed."),
    "ask": ("flowengine.cli.commands.ask", "Repeat a recorded model call with changes."),
    "whatif": ("flowengine.cli.commands.whatif", "Show what recorded runs would give with one node changed."),
    "blame": ("flowengine.cli.commands.blame", "Find the edit that changed the score of an eval."),
    "cost": ("flowengine.cli.commands.cost", "Sum up the cost of a store's runs."),
    "telemetry": ("flowengine.cli.commands.export:telemetry_command", "Export the trace of a run."),
    "serve": ("flowengine.cli.commands.serve", "Serve flows over HTTP."),
    "keys": ("flowengine.cli.commands.serve:keys_command", "Manage API keys of served flows."),
    "ui": ("flowengine.cli.commands.ui", "Show and start runs in a browser."),
    "mcp": ("flowengine.cli.commands.mcp", "Serve flows as MCP tools over stdio."),
    "test": ("flowengine.cli.commands.test:test_command", "Run flowtest files."),
    "record": ("flowengine.cli.commands.test:record_command", "Make a test cassette from a run."),
    "skills": ("flowengine.cli.commands.skills", "List, check and measure skills."),
    "explain": ("flowengine.cli.commands.explain:explain_command", "Explain a code such as FE203."),
    "schema": ("flowengine.cli.commands.explain:schema_command", "Print the JSON Schema of flow files, for editors."),
    "doctor": ("flowengine.cli.commands.doctor", "Check the installation and list configured keys."),
}
"""Command → where it is (`module:attribute`; the attribute `command` where none is said), and its line in the help."""

_OTHER_NAMES: Final = {
    **dict.fromkeys(("trace", "show", "logs", "inspect"), "runs show"),
    **dict.fromkeys(("list", "ls", "history"), "runs list"),
    **dict.fromkeys(("check", "lint"), "validate"),
    **dict.fromkeys(("draw", "render", "visualize"), "graph"),
    **dict.fromkeys(("new", "create"), "init"),
    **dict.fromkeys(("estimate", "price"), "plan"),
    **dict.fromkeys(("start", "execute"), "run"),
    **dict.fromkeys(("view", "dashboard", "dev"), "ui"),
    "compare": "diff",
    "evaluate": "eval",
    "help": "--help",
    "version": "--version",
}
"""Names that other tools give a command → the command."""


class CommandTable(click.Group):
    """A group whose help is written from the table, without importing a command."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute or "command")
        end_loading()
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            from flowengine.errors import did_you_mean  # Only a mistyped command needs it.

            guess = f"run {args[0]}" if args[0].endswith((".yaml", ".yml")) else _OTHER_NAMES.get(args[0])
            hint = f"; did you mean '{guess}'?" if guess else did_you_mean(args[0], COMMANDS)
            ctx.fail(f"there is no command '{args[0]}'{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=CommandTable, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="flowengine", message="%(prog)s %(version)s")
def cli() -> None:
    """Run LLM workflows written as YAML graphs.

    Results go to stdout, everything else to stderr.
    """


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and give its exit code; None: that of this process."""
    if argv is not None:
        return copy_context().run(_run, argv)  # What an option says is of this command alone.
    atexit.register(_ignore_signals)
    _open_streams()
    code = _run(sys.argv[1:])
    _exit_process(code)
    return code


def _find_recognizers() -> Sequence[Any]:
    """The masking rules of the working folder's project, read when something leaves."""
    from flowengine.flowfile.project import find_project

    rules = find_project().masking
    return () if rules is None else rules.make_recognizers()


def _run(argv: Sequence[str]) -> int:
    if _find_recognizers not in MORE_RECOGNIZERS:
        MORE_RECOGNIZERS.append(_find_recognizers)
    try:
        os.getcwd()
    except FileNotFoundError:
        complain("error: the folder that this command was started in is gone; go to another one")
        return 2
    try:
        code = cli.main(args=list(argv), prog_name="flowengine", standalone_mode=False)
    except click.Abort:
        complain("interrupted")
        return 130
    except click.ClickException as error:
        text = StringIO()
        error.show(text)
        complain(text.getvalue().rstrip("\n"))
        return error.exit_code
    except SystemExit as leaving:  # click's answer to a reader of --help that went away
        return leaving.code if isinstance(leaving.code, int) else 1
    except Exception as error:
        from flowengine.cli.ending import report  # Only a command line that fails needs it.

        return report(error)
    return code if isinstance(code, int) else 0


class _NamedStdout(TextIOWrapper):
    """Standard output whose errors name it: click writes help and versions there."""

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError as error:
            error.filename = "stdout"
            raise

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            error.filename = "stdout"
            discard_buffer(self)
            raise


def _open_streams() -> None:
    """A shell may start us with stdout or stderr closed; what goes there is lost, and that is all."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - open until the process ends
    out = sys.stdout
    if isinstance(out, TextIOWrapper):
        how = (out.encoding, out.errors, None, out.line_buffering, out.write_through)
        stream = _NamedStdout(cast("BinaryIO", out.detach()), *how)
        for name in ("stdout", "__stdout__"):  # The second is asked how wide the terminal is.
            setattr(sys, name, stream)


def _ignore_signals() -> None:
    """Called last of all: from here on Python hears no signal, and one would end the process with another exit code."""
    import signal  # Loaded by now, and not before the first command is.

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _exit_process(code: int) -> None:
    """Leave the end to Python, unless cancelled nodes left threads behind: they may never return, and Python would wait
    for them. What the process has to do at its end is done then too."""
    user_code = sys.modules.get("flowengine.core.user_code")
    if user_code is not None and user_code.left_threads():
        vars(atexit)["_run_exitfuncs"]()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # its reader is gone
                stream.flush()
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
