"""Checks who is told of an approval against what the project says of channels. Nothing is sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from flowengine.core.address_rules import allowed_url
from flowengine.errors import DefinitionError
from flowengine.flowfile.analysis.flow_levels import key_path, nodes_of
from flowengine.flowfile.checks.report import Report
from flowengine.flowfile.compile.scope import is_static
from flowengine.flowfile.project.project import Project
from flowengine.flowfile.schema.flow_file import FlowSpec
from flowengine.flowfile.schema.node_guards import is_approval
from flowengine.flowfile.yaml.positions import KeyPath

if TYPE_CHECKING:
    from flowengine.flowfile.schema.notify_keys import ChannelKeys
    from flowengine.notify.channels import MailServer

__all__ = ["check_notified"]


def check_notified(spec: FlowSpec, project: Project, report: Report) -> None:
    """Each channel that the project does not have, or does not allow."""
    for path, node in nodes_of(spec):
        said = node.notify if is_approval(node) else None
        for number, each in enumerate(said or ()):
            at = (*key_path(path), "notify", number)
            if project.notify is None:
                text = "the project file does not say how people are told"
                report.at_key("FE531", text, (*key_path(path), "notify"), "; add [notify] with its `url`")
                break
            if isinstance(each, str):
                known = project.notify.channels
                if each not in known:
                    text = f"the project has no channel '{each}'"
                    report.at_value("FE531", text, at, report.nearest(each, known) or _format_known(known))
            else:
                _check_own(each, at, project, report)


def _format_known(known: Mapping[str, object]) -> str:
    names = ", ".join(known)
    return f"; it has {names}" if names else "; add [notify.channels.NAME]"


def _check_own(channel: ChannelKeys, at: KeyPath, project: Project, report: Report) -> None:
    assert project.notify is not None
    server = project.notify.mail
    if channel.type == "mail" and server is None:
        report.at_key("FE531", "the project names no server of mails", (*at, "to"), "; add [notify.mail]")
        return
    for number, address in enumerate(channel.to):
        if server is not None and is_static(address) and not _may_get(address, server):
            hint = f"; add {json.dumps(address)}, or its domain, to `allow_to` of [notify.mail]"
            report.at_value("FE531", f"no mail may be sent to '{address}'", (*at, "to", number), hint)
    rule = None if channel.url is None else allowed_url(channel.url, project.allow_http)
    if channel.url is not None and rule is None:
        hint = f"; add {json.dumps(channel.url)} to `allow_http` of the project file"
        report.at_value("FE522", "the project does not allow this address", (*at, "url"), hint)
    for header, variable in channel.headers_env.items():
        if rule is not None and variable not in rule.variables:
            text = f"the value of {variable} may not be sent to '{rule.beginning}'"
            report.at_value("FE522", text, (*at, "headers_env", header), "; name it behind that entry of `allow_http`")


def _may_get(address: str, server: MailServer) -> bool:
    from flowengine.notify.question_notice import check_mail_address

    try:
        return server.allows(check_mail_address(address))
    except DefinitionError:
        return False
