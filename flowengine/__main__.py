"""Starts the command line, for `flowengine` and `python -m flowengine`; Ctrl-C while it is loaded is no traceback."""

import gc
import sys

from flowengine.cli.interrupts import begin_loading


def main() -> int:
    """Run the command line of this process and give its exit code.

    While it is loaded nothing is thrown away, so looking for garbage would only take a tenth of that time.
    """
    gc.disable()
    begin_loading()
    try:
        from flowengine.cli.main import main as run_command_line
    finally:
        gc.freeze()
        gc.enable()
    return run_command_line()


if __name__ == "__main__":
    sys.exit(main())
