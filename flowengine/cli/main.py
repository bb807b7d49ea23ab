"""The command `flowengine`: the entry point, and the border that no traceback crosses.

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

import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from io import StringIO

import click

from flowengine.cli.group import CommandTable
from flowengine.cli.terminal import complain
from flowengine.version import __version__

__all__ = ["cli", "main"]


@click.group(cls=CommandTable, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="flowengine", message="%(prog)s %(version)s")
def cli() -> None:
    """Run LLM workflows written as YAML graphs.

    Results go to stdout, everything else to stderr.
    """


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and give its exit code; None: that of this process."""
    if argv is not None:
        return _run(argv)
    _open_streams()
    code = _run(sys.argv[1:])
    _leave(code)
    return code


def _run(argv: Sequence[str]) -> int:
    try:
        code = cli.main(args=list(argv), prog_name="flowengine", standalone_mode=False)
    except click.Abort:
        complain("interrupted")
        return 130
    except click.ClickException as error:
        told = StringIO()
        error.show(told)
        complain(told.getvalue().rstrip("\n"))
        return error.exit_code
    except SystemExit as leaving:  # click's answer to a reader of --help that went away
        return leaving.code if isinstance(leaving.code, int) else 1
    except Exception as error:
        from flowengine.cli.failure import report  # Only a command line that fails needs it.

        return report(error)
    return code if isinstance(code, int) else 0


def _open_streams() -> None:
    """A shell may start us with stdout or stderr closed; what goes there is lost, and that is all."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - open until the process ends


def _leave(code: int) -> None:
    """End without waiting for threads that cancelled nodes left behind: they may never return."""
    left_behind = [each for each in threading.enumerate() if not each.daemon and each is not threading.main_thread()]
    if left_behind:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # nobody reads it any more
                stream.flush()
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
