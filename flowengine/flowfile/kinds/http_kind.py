"""The kind `http`: a request is sent to where the project allows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from flowengine.core import TRAITS
from flowengine.flowfile.compile import address, template, values
from flowengine.flowfile.schema import (
    NUMBER,
    Effect,
    JsonSchema,
    Keys,
    ListOf,
    Maybe,
    NodeCompiler,
    NodeKind,
    Plain,
    Rendered,
    Shape,
    Template,
    WorkKeys,
    check_header_names,
    format_found,
    object_shape,
    refuse,
)

if TYPE_CHECKING:
    from flowengine.nodes import FlowNode

_BODIES: Final = {"json_": "json", "form": "form", "body": "body"}
_EFFECTS: Final[dict[str, Effect]] = {"GET": "none", "HEAD": "none", "PUT": "idempotent", "DELETE": "idempotent"}
"""Method → its effect; that of the others is external."""


def _as_status(value: Any) -> Any:
    if isinstance(value, str) and value in ("1xx", "2xx", "3xx", "4xx", "5xx"):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599:
        return value
    raise refuse("FE402", f"expected a status such as 200 or 2xx, found {format_found(value)}")


_Status = Annotated[
    Any,
    BeforeValidator(_as_status),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 100, "maximum": 599}, {"enum": ["1xx", "2xx", "3xx", "4xx", "5xx"]}]}
    ),
]


class ExpectedAnswer(Keys):
    """The accepted answers; any other answer fails the node."""

    status: ListOf[_Status] = ("2xx",)
    """Numbers, or classes such as `2xx`."""
    schema_: Maybe[JsonSchema] = Field(default=None, alias="schema")
    """JSON Schema of the body; one that does not fit is an `invalid_output`."""


class HttpNodeSpec(WorkKeys):
    """A request is sent to where `allow_http` of the project allows it. The output is {status, headers, body}: the body
    is JSON where the answer says so, else text; bytes, and what is longer than a million of them, are a file."""

    type: Literal["http"]
    """Kind of the node."""
    method: Literal["GET", "HEAD", "PUT", "DELETE", "POST", "PATCH"] = "GET"
    """The method of the request."""
    url: Template
    """The address: the host stands here, and values in it are percent-encoded; a lone `{{ x }}` is a whole address."""
    query: dict[str, Rendered] = Field(default_factory=dict[str, Any])
    """Name → value, behind the address; a list gives its name several times, none leaves it out."""
    headers: Annotated[dict[str, Template], BeforeValidator(check_header_names)] = Field(default_factory=dict[str, str])
    """Header → value. No secrets: the file is no place for them."""
    headers_env: Annotated[dict[str, Plain], BeforeValidator(check_header_names)] = Field(
        default_factory=dict[str, str]
    )
    """Header → the environment variable that holds its value; the project's entry of the address has to name it."""
    json_: Rendered = Field(default=None, alias="json")
    """Body as JSON."""
    form: Maybe[dict[str, Rendered]] = None
    """Body as the fields of a form."""
    body: Maybe[Template] = None
    """Body as text; a lone `{{ x }}` may be a file."""
    expect: ExpectedAnswer = ExpectedAnswer()
    """Which answers count."""
    follow: Annotated[int, Field(ge=0, le=20)] = 5
    """Redirects that are followed, for GET and HEAD; none leaves what the project allows."""
    effect: Maybe[Effect] = None
    """Its effect outside. Left out: nothing for GET and HEAD, `idempotent` for PUT and DELETE, `external` for POST
    and PATCH."""

    def known_effect(self) -> Effect | None:
        return self.effect or _EFFECTS.get(self.method, "external")

    def effect_advice(self) -> str:
        if self.effect is not None:
            return ""
        return f"; a {self.method} that may be sent twice says `effect: idempotent`, one that changes nothing `none`"

    @model_validator(mode="after")
    def _can_be_sent(self) -> HttpNodeSpec:
        bodies = [key for name, key in _BODIES.items() if name in self.model_fields_set]
        if len(bodies) > 1:
            raise refuse("FE209", f"'{bodies[0]}' is the body already; remove '{bodies[1]}'", at=bodies[1])
        if bodies and self.method in ("GET", "HEAD"):
            text = f"a request with '{bodies[0]}' is no {self.method}: give another 'method'"
            raise refuse("FE209", text, at=bodies[0])
        if "follow" in self.model_fields_set and self.method not in ("GET", "HEAD"):
            raise refuse("FE209", f"redirects of {self.method} are not followed; remove 'follow'", at="follow")
        both = {name.lower() for name in self.headers} & {name.lower() for name in self.headers_env}
        if both:
            raise refuse("FE209", f"the header '{min(both)}' stands in 'headers' too", at="headers_env")
        return self

    def output_shape(self) -> Shape:
        return object_shape(("status", "headers", "body"), status=NUMBER, body=self.expect.schema_ or {})


def make(node: HttpNodeSpec, settings: dict[str, Any], compiler: NodeCompiler) -> FlowNode:
    from flowengine.nodes import Expected, HttpNode

    request: dict[str, Any] = {"url": address(node.url)}
    for name, key in (("query", "query"), ("headers", "headers"), *_BODIES.items()):
        if name in node.model_fields_set:
            value = getattr(node, name)
            request[key] = template(value) if name == "body" else values(value)
    return HttpNode(
        compiler.http_sender(),
        request,
        method=node.method,
        headers_env=node.headers_env,
        expected=Expected(node.expect.status, node.expect.schema_),
        follow=node.follow,
        **settings,
    )


KIND: Final = NodeKind(HttpNodeSpec, make, TRAITS["http"])
