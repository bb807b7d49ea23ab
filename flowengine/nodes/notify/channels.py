"""Describes the channels by which people are told, and the templates of what is posted. It sends nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, cast, get_args

from flowengine.core import check_arguments, origin_of
from flowengine.core.templating import compile_template, parse_template
from flowengine.errors import DefinitionError, TemplateSyntaxError, did_you_mean

ChannelType = Literal["mail", "slack", "teams", "http"]


@dataclass(frozen=True)
class NotifyChannel:
    """One way to tell somebody."""

    type: ChannelType
    name: str = ""
    """In the project; empty for one that a question brings along."""
    to: Sequence[str] = ()
    """Of mails: addresses."""
    url: str = ""
    url_env: str = ""
    """The environment variable that holds the address, which is a secret of its own for Slack and Teams."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    headers_env: Mapping[str, str] = field(default_factory=dict[str, str])
    """Header → the environment variable that holds its value."""
    json: Any = None
    """What is posted, with templates in its strings; None: what we make of the question."""
    body: str | None = None
    """What is posted, as text."""

    @property
    def label(self) -> str:
        return self.name or self.type


@dataclass(frozen=True)
class MailServer:
    """The server that mails are given to."""

    host: str
    """Its name, with `:PORT` where it is not the usual one."""
    port: int
    security: Literal["starttls", "tls", "none"]
    """Left out: `tls` on port 465, else `starttls`."""
    sender: str
    """The address in `From`."""
    user_env: str = ""
    """The environment variable that holds the user's name."""
    password_env: str = ""
    """The environment variable that holds the password."""
    allow_to: Sequence[str] = ()
    """Addresses, and whole domains (`@example.com`), that questions may name beside the project's channels."""

    def allows(self, address: str) -> bool:
        """Tells whether a question may have a mail sent to an address.

        >>> server = MailServer("localhost", 25, "none", "a@b.c", allow_to=["@example.com"])
        >>> server.allows("Ada@Example.com"), server.allows("ada@example.com.evil.org")
        (True, False)
        """
        plain_address = address.casefold()
        allow_list = [each.casefold() for each in self.allow_to]
        return plain_address in allow_list or f"@{plain_address.rpartition('@')[2]}" in allow_list


@dataclass(frozen=True)
class NotifySettings:
    """`[notify]` of a project file."""

    url: str
    """Where the pages of the links are: that of `flowengine ui` or `flowengine serve` as people reach it."""
    default: Sequence[str] = ()
    """Channels of questions that name none."""
    channels: Mapping[str, NotifyChannel] = field(default_factory=dict[str, NotifyChannel])
    """Name → where people are told."""
    mail: MailServer | None = None
    """Needed where a channel is one of mails."""

    @property
    def variables(self) -> Sequence[str]:
        """The environment variables that mails and channels need."""
        names = [] if self.mail is None else [self.mail.user_env, self.mail.password_env]
        for each in self.channels.values():
            names += [each.url_env, *each.headers_env.values()]
        return [each for each in dict.fromkeys(names) if each]

    @property
    def host(self) -> str:
        """The name by which people ask for the pages."""
        origin = origin_of(self.url)
        return "" if origin is None else origin[1]


def channel_of(declaration: Any) -> NotifyChannel:
    """The channel that a question brings along, its own or the flow's; `DefinitionError` for what is none."""
    if not isinstance(declaration, Mapping):
        raise DefinitionError("a channel is a name, or a map with a `type`")
    arguments = dict(cast("Mapping[str, Any]", declaration))
    keys = {each.name for each in fields(NotifyChannel)} - {"name"}
    if arguments.get("type") not in get_args(ChannelType) or not arguments.keys() <= keys:
        raise DefinitionError("a channel has a type (mail, slack, teams or http) and none but its keys")
    check_arguments(NotifyChannel, arguments, lambda problem: DefinitionError(f"a channel's {problem}"))
    return NotifyChannel(**arguments)


# --- Templates of what is posted

TEMPLATE_NAMES: Final[Mapping[str, Sequence[str]]] = {
    "question": ("message", "path", "choices", "form", "expires", "approvers", "tool", "arguments"),
    "links": (),
    "run": ("id", "flow"),
}
"""Name → its fields; those of `links` are the question's choices."""


def find_template_problems(tree: Any) -> Iterator[str]:
    """Lists problems of a value's templates, before there is a question."""
    for text in _strings(tree):
        try:
            references = parse_template(text).references
        except TemplateSyntaxError as error:
            yield error.message
            continue
        for reference in references:
            name, field_name = (*reference.path, "")[:2]
            fields = TEMPLATE_NAMES.get(name)
            if fields is None and not reference.may_be_own:
                names = ", ".join(TEMPLATE_NAMES)
                yield f"there is no '{name}' here (there are {names}){did_you_mean(name, TEMPLATE_NAMES)}"
            if fields and field_name and field_name not in fields:
                yield f"there is no '{name}.{field_name}'{did_you_mean(field_name, fields)}"


def render_body(tree: Any, scope: Mapping[str, Any]) -> Any:
    """The value with its templates rendered; `TemplateError` where that fails.

    >>> render_body({"text": "{{ question.message }}", "n": [1]}, {"question": {"message": "Pay?"}})
    {'text': 'Pay?', 'n': [1]}
    """
    if isinstance(tree, str):
        return compile_template(tree)(scope)
    if isinstance(tree, Mapping):
        return {str(key): render_body(each, scope) for key, each in cast("Mapping[Any, Any]", tree).items()}
    if isinstance(tree, list | tuple):
        return [render_body(each, scope) for each in cast("list[Any]", tree)]
    return tree


def _strings(tree: Any) -> Iterator[str]:
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, Mapping):
        for each in cast("Mapping[Any, Any]", tree).values():
            yield from _strings(each)
    elif isinstance(tree, list | tuple):
        for each in cast("list[Any]", tree):
            yield from _strings(each)
