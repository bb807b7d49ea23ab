"""One command of the command line a file; `cli.main` lists them."""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
