"""Says what Ctrl-C does while the command line is only loaded: it ends the process with one line, and no traceback.

Nothing has begun by then, and an exception in the middle of an import may be lost in a callback that Python swallows.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from types import FrameType
else:
    import _signal as signal  # What `signal` makes of it needs `enum` and more, for which Ctrl-C would have to wait.


def begin_loading() -> None:
    """From here on Ctrl-C ends the process at once, where it would raise `KeyboardInterrupt`."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end_process)


def end_loading() -> None:
    """From here on Ctrl-C raises `KeyboardInterrupt` again."""
    if signal.getsignal(signal.SIGINT) is _end_process:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end_process(number: int, frame: FrameType | None) -> None:
    os.write(2, b"interrupted\n")
    os._exit(130)
