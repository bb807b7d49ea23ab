"""Says in plain words what a PostgreSQL URL and a PostgreSQL refusal mean.

Neither quotes what the database's library says, which may hold a password. Needs the extra `queue`.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict

from flowengine.errors import StoreUnavailableError

_REASONS: Final = (
    ("password", "refuses the user or the password; check them, or set PGPASSWORD or ~/.pgpass"),
    ("does not exist", "is not there; create the database and the user first"),
    ("too many", "takes no more connections; close some, or raise max_connections"),
    ("permission denied", "lacks a permission for this user; the first use makes a schema `{schema}`"),
    ("read-only", "is read-only; name the server that can be written to"),
    ("lock timeout", "is locked by another process; wait until it ends"),
    ("No space left", "cannot grow, the disk is full; free some space and resume the run"),
    ("connection", "cannot be reached; check that the server runs and that the address is right"),
)


def parameters_of(url: str, name: str) -> dict[str, Any]:
    """The parameters of the URL of a store, which errors call by its name.

    >>> parameters_of("postgresql://ann@db/runs", "the store")
    {'user': 'ann', 'dbname': 'runs', 'host': 'db'}
    """
    try:
        parameters = conninfo_to_dict(url)
    except psycopg.Error:
        parameters = None
    if parameters is None or "@" in str(parameters.get("host", "")):
        raise StoreUnavailableError(
            f"the URL of {name} cannot be read: write postgresql://user:password@host:5432/database, "
            "with %40 for a @ in the password, %2F for a / and so on"
        ) from None
    return {name: value for name, value in parameters.items() if value is not None}


def explain_refusal(message: str, schema: str) -> str:
    """Explains what a store with tables in a schema cannot do, by PostgreSQL's error.

    >>> explain_refusal('FATAL: database "runs" does not exist', "flowengine")
    'is not there; create the database and the user first'
    """
    reason_text = next((reason for sign, reason in _REASONS if sign in message), "cannot be used")
    return reason_text.format(schema=schema)
