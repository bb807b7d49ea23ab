"""Pages and an HTTP API over a store of runs. Needs the extra `ui`: `pip install 'flowengine[ui]'`."""
