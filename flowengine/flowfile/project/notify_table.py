"""Reads the table `notify` of a project file: how people are told of questions, checked. Nothing is sent."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from email.utils import parseaddr
from typing import Any, Final, cast

from pydantic import ValidationError

from flowengine.core import allowed_url, is_map, origin_of
from flowengine.errors import DefinitionError, did_you_mean
from flowengine.flowfile.project.toml_positions import TellProblem
from flowengine.flowfile.schema import ChannelKeys
from flowengine.nodes.notify import MailServer, NotifyChannel, NotifySettings, channel_of, check_mail_address

_KEYS: Final = ("url", "send", "mail", "channels")
_MAIL_KEYS: Final = ("server", "security", "from", "user_env", "password_env", "allow_to")
_CHANNEL_KEYS: Final = tuple(each.alias or name for name, each in ChannelKeys.model_fields.items())
_PORTS: Final = {"starttls": 587, "tls": 465, "none": 25}
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_SERVER: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>\d{1,5}))?")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_DOMAIN: Final = re.compile(r"@[A-Za-z0-9][A-Za-z0-9.-]{0,250}")
_HERE: Final = ("localhost", "127.0.0.1", "::1")


def read_notify(table: Mapping[str, Any], allow_http: Sequence[str], tell: TellProblem) -> NotifySettings | None:
    """The settings; None where something is wrong that all of them need."""
    for key in table:
        if key not in _KEYS:
            tell(f"unknown key '{key}' of `notify`", did_you_mean(key, _KEYS) or _takes(_KEYS), ("notify", key))
    url = table.get("url")
    if not isinstance(url, str) or origin_of(url) is None or "?" in url or "#" in url:
        what = "'url' of `notify` is the address of the server that shows the pages of links"
        tell(what, "; such as https://flows.example.com", ("notify", "url"))
        url = ""
    mail = table.get("mail")
    server = None if mail is None else _read_mail(mail, tell)
    channels = _read_channels(table.get("channels", {}), allow_http, tell)
    if not _is_texts(table.get("send", [])):
        tell("'send' of `notify` is a list of names of channels", "", ("notify", "send"))
    send: list[str] = table.get("send", []) if _is_texts(table.get("send")) else []
    channel_table = table.get("channels")
    names = list(channel_table) if is_map(channel_table) else []
    for each in send:
        if each not in names:
            tell(f"`notify` has no channel '{each:.80}'", did_you_mean(each, names), ("notify", "send"))
    if mail is None and any(each.type == "mail" for each in channels.values()):
        tell("`notify` has a channel of mails, and no server for them", "; add [notify.mail]", ("notify", "channels"))
    return NotifySettings(url, tuple(each for each in send if each in channels), channels, server) if url else None


def _takes(keys: Sequence[str]) -> str:
    return f"; it takes {', '.join(keys)}"


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in cast("list[Any]", value))


def _read_channels(table: Any, allow_http: Sequence[str], tell: TellProblem) -> dict[str, NotifyChannel]:
    channels: dict[str, NotifyChannel] = {}
    if not is_map(table):
        tell("'channels' of `notify` is a table: name → channel", "", ("notify", "channels"))
        return channels
    for name, entry in table.items():
        path = ("notify", "channels", name)
        if not _NAME.fullmatch(name):
            tell(f"'{name:.80}' is no name of a channel", "; a letter, then letters, digits, '-' and '_'", path)
            continue
        try:
            keys = ChannelKeys.model_validate(entry)
            channel = replace(channel_of(keys.model_dump(by_alias=True, exclude_unset=True)), name=name)
            for each in channel.to:
                check_mail_address(each)
            _check_address(channel, allow_http)
        except ValidationError as error:
            for each in error.errors(include_url=False):
                _tell_misfit(name, cast("Mapping[str, Any]", each), tell)
        except DefinitionError as error:
            tell(f"channel '{name}': {error}", "", path)
        else:
            channels[name] = channel
    return channels


def _check_address(channel: NotifyChannel, allow_http: Sequence[str]) -> None:
    rule = allowed_url(channel.url, allow_http) if channel.url else None
    if channel.url and rule is None:
        raise DefinitionError(f"`allow_http` does not list its address ('{channel.url:.200}')")
    for variable in channel.headers_env.values():
        if rule is not None and variable not in rule.variables:
            raise DefinitionError(f"the entry '{rule.beginning}' of `allow_http` does not name {variable} behind it")


def _tell_misfit(name: str, error: Mapping[str, Any], tell: TellProblem) -> None:
    """Reports pydantic's errors about a channel in our own words."""
    context, where = error.get("ctx", {}), [str(each) for each in error["loc"]]
    at = context.get("at")
    where += [at] if isinstance(at, str) else []
    path, hint = ("notify", "channels", name, *where), ""
    if error["type"].startswith("FE"):
        text = str(context["text"])
    elif error["type"] == "extra_forbidden":
        text, hint = f"unknown key '{where[-1]}'", did_you_mean(where[-1], _CHANNEL_KEYS) or _takes(_CHANNEL_KEYS)
    elif error["type"] == "missing":
        text = f"the key '{where[-1]}' is missing"
    elif error["type"] == "literal_error":
        text, hint = f"'{where[-1]}' is one of {context['expected']}", ""
    else:
        text = f"{'.'.join(where) or 'it'}: {error['msg'][:1].lower()}{error['msg'][1:]}"
    tell(f"channel '{name}': {text}", hint, path)


def _read_mail(mail: Any, tell: TellProblem) -> MailServer | None:
    if not is_map(mail):
        tell("'mail' of `notify` is a table", _takes(_MAIL_KEYS), ("notify", "mail"))
        return None
    problems = [
        (key, f"unknown key '{key}'", did_you_mean(key, _MAIL_KEYS) or _takes(_MAIL_KEYS))
        for key in mail
        if key not in _MAIL_KEYS
    ]
    address = mail.get("server")
    place = _SERVER.fullmatch(address) if isinstance(address, str) else None
    if place is None or int(place["port"] or 0) > 65_535:
        problems.append(("server", "'server' is the host of the mail server", "; such as smtp.example.com:587"))
    port = int(place["port"]) if place is not None and place["port"] else None
    security = mail.get("security", "tls" if port == _PORTS["tls"] else "starttls")
    if security not in [*_PORTS]:
        problems.append(("security", f"'security' is one of {', '.join(_PORTS)}", ""))
        security = "starttls"
    sender = mail.get("from")
    if not isinstance(sender, str) or not _is_sender(sender):
        problems.append(("from", "'from' is the address that mails come from", "; such as flows@example.com"))
    for key in ("user_env", "password_env"):
        value = mail.get(key, "")
        if value != "" and not (isinstance(value, str) and _VARIABLE.fullmatch(value)):
            problems.append((key, f"'{key}' is the name of an environment variable", "; never the value itself"))
    if ("user_env" in mail) != ("password_env" in mail):
        problems.append(("server", "'user_env' and 'password_env' go together", ""))
    host = "" if place is None else place["host"].strip("[]")
    if "password_env" in mail and security == "none" and host not in _HERE:
        problems.append(("security", "a password goes to no other machine without encryption", "; say starttls or tls"))
    allow_to = mail.get("allow_to", [])
    if not _is_texts(allow_to) or not all(_is_recipient(each) for each in allow_to):
        text = "'allow_to' is a list of addresses and of domains such as @example.com"
        problems.append(("allow_to", text, ""))
    for key, text, hint in problems:
        tell(f"`notify.mail`: {text}", hint, ("notify", "mail", key))
    if problems:
        return None
    return MailServer(
        host,
        port or _PORTS[security],
        security,
        cast(str, sender),
        mail.get("user_env", ""),
        mail.get("password_env", ""),
        tuple(allow_to),
    )


def _is_sender(text: str) -> bool:
    try:
        return bool(check_mail_address(parseaddr(text)[1])) and text.isprintable()
    except DefinitionError:
        return False


def _is_recipient(text: str) -> bool:
    return _DOMAIN.fullmatch(text) is not None or _is_sender(text)
