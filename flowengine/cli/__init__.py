"""The command line: one command a file in `commands`, options, and the printing of results.

Results alone go to stdout. No traceback reaches a user: `ending` turns every error into a line and an exit code.
Begin with `main`, which lists the commands.
"""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
