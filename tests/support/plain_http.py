"""What clients of servers on loopback, which speak no TLS, are made with."""

from __future__ import annotations

import ssl
from typing import Final

__all__ = ["NO_TLS"]

NO_TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For `verify` of httpx: it trusts nobody. Else each client reads the certificates of all authorities, which takes
longer than most tests."""
