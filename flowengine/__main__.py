"""`python -m flowengine` is the command line."""

import sys

from flowengine.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
