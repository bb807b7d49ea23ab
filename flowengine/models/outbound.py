"""Forbids requests that would leave this machine, where a variable says so.

`FLOWENGINE_ALLOW_MODEL_REQUESTS=0` forbids it, for this process and for those that it starts: no
test, demonstration or dry run spends money or sends data by accident. Addresses of this machine
stay allowed. It knows settings of calls and no vendor.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from flowengine.errors import ModelConfigError

VARIABLE: Final = "FLOWENGINE_ALLOW_MODEL_REQUESTS"

_is_allowed: Final = ContextVar("requests are meant", default=False)


@contextmanager
def allow_requests() -> Generator[None]:
    """Inside of the block, requests are no accident: they are allowed whatever the variable says."""
    token = _is_allowed.set(True)
    try:
        yield
    finally:
        _is_allowed.reset(token)


def check_outbound(model: str, *groups: Mapping[str, Any]) -> None:
    """`ModelConfigError` where requests are forbidden and the settings given, the last first, lead away from here."""
    if VARIABLE not in os.environ or os.environ[VARIABLE].strip().lower() not in ("0", "false", "no", "off"):
        return
    settings = {name: value for each in groups for name, value in each.items()}
    addresses = [settings[name] for name in ("api_base", "base_url") if settings.get(name)]
    if _is_allowed.get() or (addresses and all(map(_is_loopback, addresses))):
        return
    raise ModelConfigError(
        f"requests to models are forbidden here ({VARIABLE}={os.environ[VARIABLE]}), so {model} was not asked. In a "
        f"test: script the answers, play a cassette, or mark it with pytest.mark.real_model"
    )


def _is_loopback(address: Any) -> bool:
    text = str(address)
    host = urlsplit(text if "//" in text else f"//{text}").hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
