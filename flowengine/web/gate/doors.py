"""Two ways in: by the one token of a viewer, which people use in browsers, and by the keys of a store's callers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode

import anyio.to_thread
from starlette.responses import RedirectResponse, Response
from starlette.types import Scope

from flowengine.core import EMPTY
from flowengine.errors import FlowEngineError
from flowengine.web.gate.api_keys import KeyRing, RequestRates
from flowengine.web.gate.problems import ProblemError, problem_response
from flowengine.web.gate.safety import RequestHead, TokenRule, cookie_name
from flowengine.web.service import FlowCaller
from visualize.viewer import CSP

_DAY: Final = 86_400
_MAX_KEY: Final = 200
"""Characters of a key; a longer one is none of ours."""


class TokenDoor:
    """A viewer's: a token, or the cookie that a browser has for it."""

    headers: Mapping[str, str] = {
        "Content-Security-Policy": CSP,
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
    }

    def __init__(self, rule: TokenRule) -> None:
        self._rule = rule

    async def admit(self, head: RequestHead, scope: Scope) -> Response | None:
        """A browser that comes with the token in the address is given its cookie instead."""
        if head.method == "GET" and not head.path.startswith("/api/"):
            pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
            token = next((value for name, value in pairs if name == "token"), None)
            if token is not None and self._rule.is_token(token):
                rest = urlencode([pair for pair in pairs if pair[0] != "token"])
                return self._sign_in(scope, head.host, f"{quote(scope['path'])}{'?' if rest else ''}{rest}")
        refusal = self._rule.refusal(head)
        if refusal is not None:
            raise ProblemError(*refusal)
        return None

    def refuse(self, error: FlowEngineError, path: str) -> Response:
        return problem_response(error, as_page=not path.startswith("/api/"))

    def _sign_in(self, scope: Scope, host: str, address: str) -> Response:
        """Back to the same place without the token, which so does not stay in the address bar."""
        response = RedirectResponse(f"/{address.lstrip('/')}", 303)
        response.set_cookie(
            cookie_name(host),
            self._rule.keys.cookie,
            max_age=_DAY,
            httponly=True,
            samesite="strict",
            secure=scope.get("scheme") == "https",
        )
        return response


class KeyDoor:
    """A server's of flows. What is open (`/healthz`, signed links, webhooks) needs no key: it tells nothing, or is
    proved in another way."""

    headers: Mapping[str, str] = {
        "Referrer-Policy": "no-referrer",
        "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    }

    def __init__(
        self,
        keys: KeyRing | None,
        open_paths: Sequence[str],
        refuse: Callable[[Exception], Response],
        refusals: Mapping[str, Callable[[Exception], Response]] = EMPTY,
    ) -> None:
        """`keys`: None: who reaches the server may do everything. `open_paths`: beginnings of paths that need no key.
        `refusals`: beginning of a path → how a refusal is answered there, and not by `refuse`."""
        self._keys = keys
        self._open = tuple(open_paths)
        self._refuse = refuse
        self._refusals = refusals
        self._rates = None if keys is None else RequestRates(keys.store)

    async def admit(self, head: RequestHead, scope: Scope) -> FlowCaller | None:
        """The caller of the key."""
        if self._keys is None or head.path.startswith(self._open):
            return None
        if self._keys.is_stale:
            await anyio.to_thread.run_sync(self._keys.refresh)
        scheme, _, key = (head.authorization or "").partition(" ")
        key = key.strip()
        caller = self._keys.find(key) if scheme.lower() == "bearer" and 0 < len(key) <= _MAX_KEY else None
        if caller is None:
            raise ProblemError(
                401, "A key is needed", "send `Authorization: Bearer KEY`; `flowengine keys add NAME` makes one"
            )
        if self._rates is not None and caller.requests_per_minute is not None:
            await anyio.to_thread.run_sync(self._rates.count, caller)
        return caller

    def refuse(self, error: FlowEngineError, path: str) -> Response:
        return next((each for start, each in self._refusals.items() if path.startswith(start)), self._refuse)(error)
