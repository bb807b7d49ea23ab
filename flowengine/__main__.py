"""`python -m flowengine` is the command line."""

from flowengine.cli.main import main

if __name__ == "__main__":
    main()
