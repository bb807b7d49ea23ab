"""Checks where a flow sends to against what the project allows: the addresses of requests, as far as the file says
them, and who is told of an approval. Nothing is asked or sent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from flowengine.core import AddressRule, allowed_url, origin_of, read_rule
from flowengine.core.templating import lone_expression, parse_template
from flowengine.errors import DefinitionError, TemplateError, TemplateSyntaxError
from flowengine.flowfile.analysis import is_approval, is_http, key_path, nodes_of
from flowengine.flowfile.checks.report import Report
from flowengine.flowfile.compile import address, is_static
from flowengine.flowfile.project import Project
from flowengine.flowfile.recovery import STAND_IN_ADDRESS
from flowengine.flowfile.schema import FlowSpec
from flowengine.flowfile.yaml import KeyPath

if TYPE_CHECKING:
    from flowengine.flowfile.kinds.http_kind import HttpNodeSpec
    from flowengine.flowfile.schema import ChannelKeys
    from flowengine.nodes.notify import MailServer


def check_addresses_of(spec: FlowSpec, project: Project, report: Report) -> None:
    """Each request whose address the project does not allow, or that says it too late to be judged."""
    for node_path, node in nodes_of(spec):
        if is_http(node) and node.url != STAND_IN_ADDRESS:
            _check_address(node, key_path(node_path), project, report)


def _check_address(node: HttpNodeSpec, path: KeyPath, project: Project, report: Report) -> None:
    at = (*path, "url")
    try:
        if lone_expression(parse_template(node.url).tree) is not None:
            if not project.allow_http:
                report.at_value("FE522", "the project allows no address", at, _hint("https://host/", project))
            return
        address(node.url)
    except TemplateError as error:
        report.at_value("FE523", f"an address cannot be made of this: {error}", at)
        return
    except TemplateSyntaxError:  # Told of as every text is.
        return
    before = node.url.partition("{{")[0]
    origin = origin_of(before)
    if origin is None or (before != node.url and not urlsplit(before).path.startswith("/")):
        report.at_value("FE523", "an address begins with scheme and host, such as https://api.example.com/", at)
        return
    rule = _rule_for(node.url, project)
    if rule is None:
        beginning = f"{'/'.join(before.split('/')[:3])}/"
        rules = {read.beginning: read for each in project.allow_http if (read := read_rule(each)) is not None}
        nearest = report.nearest.of(beginning, rules)
        if nearest is None:  # One line allows the address and what is to be sent to it.
            entry = " ".join([beginning, *dict.fromkeys(node.headers_env.values())])
            report.at_value("FE522", "the project does not allow this address", at, _hint(entry, project))
            return
        report.at_value("FE522", "the project does not allow this address", at, f"; did you mean '{nearest}'?")
        rule = rules[nearest]
    entry = " ".join(dict.fromkeys([rule.beginning, *rule.variables, *node.headers_env.values()]))
    for header, variable in node.headers_env.items():
        if variable not in rule.variables:
            text = f"the value of {variable} may not be sent to '{rule.beginning}'"
            report.at_value("FE522", text, (*path, "headers_env", header), _hint(entry, project))


def _rule_for(url: str, project: Project) -> AddressRule | None:
    """The rule that allows an address; with placeholders, one that may allow it."""
    if is_static(url):
        return allowed_url(url, project.allow_http)
    before = url.partition("{{")[0]
    for each in project.allow_http:
        rule = read_rule(each)
        if rule is not None and origin_of(rule.beginning) == origin_of(before):
            folder, path = urlsplit(rule.beginning).path, urlsplit(before).path
            if path.startswith(folder) or folder.startswith(path):
                return rule
    return None


def _hint(entry: str, project: Project) -> str:
    file = project.file or project.root / "flowengine.toml"
    return f"; add {json.dumps(entry)} to `allow_http` in {file}"


def check_notified(spec: FlowSpec, project: Project, report: Report) -> None:
    """Each channel that the project does not have, or does not allow."""
    for path, node in nodes_of(spec):
        channels = node.notify if is_approval(node) else None
        for number, each in enumerate(channels or ()):
            at = (*key_path(path), "notify", number)
            if project.notify is None:
                text = "the project file does not say how people are told"
                report.at_key("FE531", text, (*key_path(path), "notify"), "; add [notify] with its `url`")
                break
            if isinstance(each, str):
                project_channels = project.notify.channels
                if each not in project_channels:
                    text = f"the project has no channel '{each}'"
                    report.at_value(
                        "FE531", text, at, report.nearest(each, project_channels) or _format_channels(project_channels)
                    )
            else:
                _check_channel(each, at, project, report)


def _format_channels(channels: Mapping[str, object]) -> str:
    names = ", ".join(channels)
    return f"; it has {names}" if names else "; add [notify.channels.NAME]"


def _check_channel(channel: ChannelKeys, at: KeyPath, project: Project, report: Report) -> None:
    assert project.notify is not None
    server = project.notify.mail
    if channel.type == "mail" and server is None:
        report.at_key("FE531", "the project names no server of mails", (*at, "to"), "; add [notify.mail]")
        return
    for number, receiver in enumerate(channel.to):
        if server is not None and is_static(receiver) and not _may_get(receiver, server):
            hint = f"; add {json.dumps(receiver)}, or its domain, to `allow_to` of [notify.mail]"
            report.at_value("FE531", f"no mail may be sent to '{receiver}'", (*at, "to", number), hint)
    rule = None if channel.url is None else allowed_url(channel.url, project.allow_http)
    if channel.url is not None and rule is None:
        hint = f"; add {json.dumps(channel.url)} to `allow_http` of the project file"
        report.at_value("FE522", "the project does not allow this address", (*at, "url"), hint)
    for header, variable in channel.headers_env.items():
        if rule is not None and variable not in rule.variables:
            text = f"the value of {variable} may not be sent to '{rule.beginning}'"
            report.at_value("FE522", text, (*at, "headers_env", header), "; name it behind that entry of `allow_http`")


def _may_get(receiver: str, server: MailServer) -> bool:
    from flowengine.nodes.notify import check_mail_address

    try:
        return server.allows(check_mail_address(receiver))
    except DefinitionError:
        return False
