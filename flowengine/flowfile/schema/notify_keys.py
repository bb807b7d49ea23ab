"""Keys of a channel by which people are told of questions, in a flow or a project file."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, PlainValidator, WithJsonSchema, model_validator

from flowengine.core import is_map, origin_of
from flowengine.flowfile.schema.fields import (
    Keys,
    ListOf,
    Maybe,
    Plain,
    Template,
    check_header_names,
    format_found,
    refuse,
)

_OF_POSTS: Final = ("url", "url_env", "headers", "headers_env")
_VARIABLE: Final = r"^[A-Za-z_][A-Za-z0-9_]{0,254}$"
_Variable = Annotated[Plain, Field(pattern=_VARIABLE)]


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) or is_map(value) else value


class ChannelKeys(Keys):
    """A channel by which people are told of a question: a mail, or a POST to Slack, Teams or any address."""

    type: Literal["mail", "slack", "teams", "http"]
    """The kind of message that is sent."""
    to: Annotated[ListOf[Template], BeforeValidator(_as_list)] = ()
    """The addresses of `mail`. Each gets a mail of its own, with links of its own."""
    url: Maybe[Plain] = None
    """The address to which it is posted; `allow_http` of the project file has to allow it."""
    url_env: Maybe[_Variable] = None
    """The environment variable that holds the address: those of Slack and Teams are secrets."""
    headers: Annotated[dict[str, Plain], BeforeValidator(check_header_names)] = Field(default_factory=dict[str, str])
    """Header → value. No secrets: the file is no place for them."""
    headers_env: Annotated[dict[str, _Variable], BeforeValidator(check_header_names)] = Field(
        default_factory=dict[str, str]
    )
    """Header → the environment variable that holds its value; the project's entry of the address has to name it."""
    json_: Any = Field(default=None, alias="json")
    """The JSON that `http` posts, with templates that know `question`, `links` and `run`. Left out: all of
    these."""
    body: Maybe[str] = None
    """The text that `http` posts, with such templates."""

    @model_validator(mode="after")
    def _is_one(self) -> ChannelKeys:
        keys = [
            field.alias or name for name, field in ChannelKeys.model_fields.items() if name in self.model_fields_set
        ]
        if self.type == "mail":
            if not self.to:
                raise refuse("FE202", "a mail goes 'to' at least one address", at="type")
            self._refuse_all(keys, (*_OF_POSTS, "json", "body"))
            return self
        self._refuse_all(keys, ("to",) if self.type == "http" else ("to", "json", "body"))
        if (self.url is None) == (self.url_env is None):
            raise refuse("FE202", "a channel that posts has one of 'url' and 'url_env'", at="type")
        if self.url is not None and origin_of(self.url) is None:
            raise refuse(
                "FE401", f"expected an address such as https://host/path, found {format_found(self.url)}", at="url"
            )
        if "json" in keys and "body" in keys:
            raise refuse("FE209", "'json' is the body already; remove 'body'", at="body")
        self._check_templates()
        return self

    def _refuse_all(self, names: list[str], keys: tuple[str, ...]) -> None:
        for key in names:
            if key in keys:
                raise refuse("FE209", f"a channel of the type '{self.type}' takes no '{key}'", at=key)

    def _check_templates(self) -> None:
        from flowengine.nodes.notify import find_template_problems

        for key, tree in (("json", self.json_), ("body", self.body)):
            for problem in find_template_problems(tree):
                raise refuse("FE301", problem, at=key)


def _as_channel(value: Any) -> Any:
    return value if isinstance(value, str | ChannelKeys) else ChannelKeys.model_validate(value)


_Channel = Annotated[
    str | ChannelKeys,
    PlainValidator(_as_channel),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"$apart": "ChannelKeys"}]}),
]
Notify = Annotated[ListOf[_Channel], BeforeValidator(_as_list)]
"""Names of the project's channels, and channels of one's own."""
