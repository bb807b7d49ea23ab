"""Calls flows from Python, synchronously and asynchronously: a server's over HTTP, or those of a PostgreSQL store.

    with Client("http://127.0.0.1:8000", key="…") as client:
        run = client.run("triage", {"message": "I was charged twice"})
        print(run.outputs["reply"])

`Client("postgresql://…", flows=["flows/"])` needs no server: runs go into the store's queue, for its workers. Every
start has a key of its own, so one that is repeated because the connection broke finds the run that there is.
"""

from flowengine.web.client import AsyncClient, CalledRun, Client, ClientError, RunProgress, RunQuestion

__all__ = ["AsyncClient", "CalledRun", "Client", "ClientError", "RunProgress", "RunQuestion"]
