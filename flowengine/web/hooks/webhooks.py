"""Starts flows when other services call: the tables `[[webhooks]]` of the project file, below `/hooks/`.

A call that comes again, because its sender had no answer or because somebody replays it, finds the run that it began.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from time import time
from typing import Any, Final

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response

from flowengine.core import is_map
from flowengine.errors import DefinitionError, FlowNotFoundError, TemplateError, did_you_mean
from flowengine.flowfile.project import WebhookRule
from flowengine.web.api import MountedRoutes, ServingParts, json_response, make_routes
from flowengine.web.gate import FORM, BodyRoom, Handler, ProblemError, parse_form, parse_json, read_body
from flowengine.web.hooks.signatures import SignatureError, read_secrets, verify
from flowengine.web.service import FlowCaller


def make_webhook_routes(parts: ServingParts) -> MountedRoutes:
    """A route a table; `DefinitionError` where a flow or a secret is missing."""
    rules = () if parts.project is None else parts.project.webhooks
    table: list[tuple[str, str, Handler]] = []
    for rule in rules:
        if rule.flow not in parts.service.flows:
            raise FlowNotFoundError(
                f"[[webhooks]] '{rule.path}': there is no flow '{rule.flow}' here"
                f"{did_you_mean(rule.flow, parts.service.flows)}"
            )
        secret = parts.environ.get(rule.secret_env, "")
        if not secret.strip():
            raise DefinitionError(f"[[webhooks]] '{rule.path}': the environment has no {rule.secret_env}")
        try:
            secrets = read_secrets(secret, standard=rule.signature == "standard")
        except DefinitionError as error:
            raise DefinitionError(f"[[webhooks]] '{rule.path}': {rule.secret_env}: {error}") from None
        table.append(("POST", f"/hooks/{rule.path}", partial(_take_call, parts, rule, secrets)))
    return MountedRoutes(make_routes(table), ("/hooks/",) if table else ())


_MAX_UNPROVED: Final = 262_144
"""Bytes of a body that is read before its signature was."""
_ROOM: Final = BodyRoom(32 * 2**20)
"""Room for all bodies together that are read before their signatures were."""


async def _take_call(parts: ServingParts, rule: WebhookRule, secrets: Sequence[bytes], request: Request) -> Response:
    raw = await read_body(request, min(parts.max_body, _MAX_UNPROVED), _ROOM)
    headers = {name.lower(): value for name, value in request.headers.items()}
    try:
        call_id = verify(rule, secrets, headers, raw, time())
    except SignatureError as error:
        raise ProblemError(401, "Not proved", str(error)) from None
    # Beside the event loop: a body is a caller's, and a template may work for long on it.
    body = await anyio.to_thread.run_sync(_read_fields, headers.get("content-type", ""), raw)
    if rule.signature == "slack" and is_map(body) and body.get("type") == "url_verification":
        return json_response({"challenge": body.get("challenge")})
    scope = {"body": body, "headers": headers}
    try:
        inputs = await anyio.to_thread.run_sync(_find_inputs, rule, scope)
    except TemplateError as error:
        raise ProblemError(422, "The call does not fit", str(error)) from None
    if inputs is None:
        return json_response({"started": False})
    run = await parts.service.start(
        rule.flow, inputs, run_key=None if call_id is None else call_id[:255], caller=FlowCaller(f"hook:{rule.path}")
    )
    return json_response({"started": True, "run_id": run.run_id, "is_new": run.is_new}, 202)


def _find_inputs(rule: WebhookRule, scope: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The inputs of the run that a call starts; None where `when` says that it starts none."""
    return None if rule.when is not None and not rule.when(scope) else rule.inputs_from(scope)


def _read_fields(content_type: str, raw: bytes) -> Any:
    """The body as templates see it: JSON, the fields of a form, or the JSON in a form's field `payload`."""
    if content_type.partition(";")[0].strip().lower() != FORM:
        return parse_json(raw)
    fields = parse_form(raw)
    return parse_json(fields["payload"].encode()) if set(fields) == {"payload"} else fields
