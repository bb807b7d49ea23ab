"""Checks the addresses of requests against what the project allows, as far as the file says them. Nothing is asked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from flowengine.core.address_rules import AddressRule, allowed_url, origin_of, read_rule
from flowengine.errors import TemplateError, TemplateSyntaxError
from flowengine.flowfile.analysis.flow_levels import key_path, nodes_of
from flowengine.flowfile.checks.report import Report
from flowengine.flowfile.compile.scope import address, is_static
from flowengine.flowfile.project.project import Project
from flowengine.flowfile.recovery import STAND_IN_ADDRESS
from flowengine.flowfile.schema.flow_file import FlowSpec
from flowengine.flowfile.schema.node_guards import is_http
from flowengine.flowfile.yaml.positions import KeyPath
from flowengine.templating.parse import lone_expression, parse_template

if TYPE_CHECKING:
    from flowengine.flowfile.kinds.http_kind import HttpNodeSpec

__all__ = ["check_addresses_of"]


def check_addresses_of(spec: FlowSpec, project: Project, report: Report) -> None:
    """Each request whose address the project does not allow, or that says it too late to be judged."""
    for node_path, node in nodes_of(spec):
        if is_http(node) and node.url != STAND_IN_ADDRESS:
            _check(node, key_path(node_path), project, report)


def _check(node: HttpNodeSpec, path: KeyPath, project: Project, report: Report) -> None:
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
        known = [read.beginning for each in project.allow_http if (read := read_rule(each)) is not None]
        nearest = report.nearest(beginning, known)
        report.at_value("FE522", "the project does not allow this address", at, nearest or _hint(beginning, project))
        return
    for header, variable in node.headers_env.items():
        if variable not in rule.variables:
            text = f"the value of {variable} may not be sent to '{rule.beginning}'"
            entry = " ".join([rule.beginning, *rule.variables, variable])
            report.at_value("FE522", text, (*path, "headers_env", header), _hint(entry, project))


def _rule_for(url: str, project: Project) -> AddressRule | None:
    """The rule that allows an address; with placeholders, one that may allow it."""
    if is_static(url):
        return allowed_url(url, project.allow_http)
    before = url.partition("{{")[0]
    for each in project.allow_http:
        rule = read_rule(each)
        if rule is not None and origin_of(rule.beginning) == origin_of(before):
            folder, known = urlsplit(rule.beginning).path, urlsplit(before).path
            if known.startswith(folder) or folder.startswith(known):
                return rule
    return None


def _hint(entry: str, project: Project) -> str:
    file = project.file or project.root / "flowengine.toml"
    return f"; add {json.dumps(entry)} to `allow_http` in {file}"
