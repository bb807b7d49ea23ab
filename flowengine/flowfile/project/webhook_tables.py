"""Reads the tables `webhooks` of a project file: which other services start flows, and how they prove who they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast, get_args

from flowengine.core import is_map
from flowengine.core.templating import compile_predicate, compile_template, parse_template
from flowengine.errors import TemplateSyntaxError, did_you_mean
from flowengine.flowfile.project.toml_positions import TellProblem, item

Signature = Literal["github", "stripe", "slack", "standard", "secret"]
_Problems = list[tuple[str, str, str]]
"""Problems: the text, the hint that goes with it, and the key that it is about."""

_PATH: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_-][A-Za-z0-9_.-]*){0,7}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECONDS: Final = re.compile(r"(\d{1,6})(s|m|h)")
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3_600.0}
_LONGEST: Final = 86_400.0
_REQUIRED: Final = ("path", "flow", "signature", "secret_env")
_KEYS: Final = (*_REQUIRED, "inputs", "when", "replay_window", "header")

_Template = Callable[[Any], Any]


@dataclass(frozen=True)
class WebhookRule:
    """One table `[[webhooks]]`."""

    path: str
    """The path below `/hooks/`."""
    flow: str
    """The name of the flow that a call starts."""
    signature: Signature
    """How a caller proves who it is: `github`, `stripe`, `slack`, `standard` (Standard Webhooks) or `secret`."""
    secret_env: str
    """The environment variable that holds the secret, or several with spaces between: an old and a new one."""
    inputs: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False)
    """Input → its template over `body` and `headers`, or a value."""
    templates: Mapping[str, _Template] = field(default_factory=dict[str, _Template], repr=False, hash=False)
    """The same, compiled."""
    when: Callable[[Any], bool] | None = field(default=None, repr=False)
    """Whether a call starts a run at all."""
    replay_window: float = 300.0
    """The most seconds between the signing of a call and now; in the file also a time like `5m`."""
    header: str = "x-webhook-secret"
    """The header that holds the secret itself, with `signature = "secret"`."""

    @property
    def call_inputs(self) -> list[str]:
        """The inputs that are given something of the call."""
        return [name for name, value in self.inputs.items() if _is_of_call(value)]

    def inputs_from(self, scope: Mapping[str, Any]) -> dict[str, Any]:
        """The flow's inputs, of a call; `TemplateError` where it lacks something."""
        return {name: template(scope) for name, template in self.templates.items()}


def read_webhooks(tables: Sequence[Any], tell: TellProblem) -> tuple[WebhookRule, ...]:
    """The rules; what is wrong is told, and left out."""
    rules: dict[str, WebhookRule] = {}
    for number, table in enumerate(tables, 1):
        problems: _Problems = []
        rule = _read_rule(table, problems) if is_map(table) else None
        if rule is not None and rule.path in rules:
            problems.append((f"the path '{rule.path}' stands twice", "", "path"))
        elif rule is not None and not problems:
            rules[rule.path] = rule
        if not is_map(table):
            problems.append(("is a table", "", ""))
        for message, hint, key in problems:
            at = ("webhooks", item(number - 1), *([key] if key else []))
            tell(f"[[webhooks]] number {number}: {message}", hint, at)
    return tuple(rules.values())


def _read_rule(table: Mapping[str, Any], problems: _Problems) -> WebhookRule | None:
    unknown, known_keys = sorted(table.keys() - set(_KEYS)), f"; it takes {', '.join(_KEYS)}"
    problems += [(f"unknown key '{key}'", did_you_mean(key, _KEYS) or known_keys, key) for key in unknown]
    values: dict[str, Any] = {key: table[key] for key in _KEYS if key in table}
    for key, value in values.items():
        if key not in ("inputs", "replay_window") and not isinstance(value, str):
            problems.append((f"'{key}' is a string", "", key))
    problems += [(f"the key '{key}' is missing", "", "") for key in _REQUIRED if key not in values]
    if problems:
        return None
    kinds = get_args(Signature)
    if not _PATH.fullmatch(values["path"]):
        problems.append((f"'{values['path']:.80}' is no path like github/issues", "", "path"))
    if values["signature"] not in kinds:
        hint = did_you_mean(values["signature"], kinds) or f"; choose from {', '.join(kinds)}"
        problems.append((f"there is no signature '{values['signature']:.80}'", hint, "signature"))
    if not _VARIABLE.fullmatch(values["secret_env"]):
        text = "'secret_env' is the name of an environment variable, never the secret itself"
        problems.append((text, "", "secret_env"))
    seconds = _read_window(values.pop("replay_window", "5m"))
    if not 0 < seconds <= _LONGEST:
        problems.append(("'replay_window' is a time like \"5m\", and a day at most", "", "replay_window"))
    inputs: Any = values.pop("inputs", {})
    if not is_map(inputs):
        problems.append(("'inputs' is a table: input → template", "", "inputs"))
        inputs = {}
    when = values.pop("when", None)
    templates = {name: _compile(name, value, problems) for name, value in inputs.items()}
    test = None if when is None else _compile_test(when, problems)
    header = values.pop("header", "x-webhook-secret").lower()
    if problems:
        return None
    return WebhookRule(**values, inputs=inputs, templates=templates, when=test, replay_window=seconds, header=header)


def _read_window(value: Any) -> float:
    """Seconds, as a number or written like 5m; 0 where it is neither."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    window = _SECONDS.fullmatch(value) if isinstance(value, str) else None
    return 0.0 if window is None else int(window[1]) * _UNITS[window[2]]


def _compile(name: str, value: Any, problems: _Problems) -> _Template:
    if isinstance(value, dict):
        inner = {key: _compile(name, each, problems) for key, each in cast("dict[str, Any]", value).items()}
        return lambda scope: {key: each(scope) for key, each in inner.items()}
    if isinstance(value, list):
        parts = [_compile(name, each, problems) for each in cast("list[Any]", value)]
        return lambda scope: [each(scope) for each in parts]
    if not isinstance(value, str):
        return lambda scope: value
    try:
        return compile_template(value)
    except TemplateSyntaxError as error:
        problems.append((f"input '{name}': {error}", "", "inputs"))
        return lambda scope: None


def _is_of_call(value: Any) -> bool:
    """Tells whether a value holds a template, which can read nothing but the call."""
    if isinstance(value, dict | list):
        within = cast("dict[str, Any]", value).values() if isinstance(value, dict) else cast("list[Any]", value)
        return any(map(_is_of_call, within))
    return isinstance(value, str) and not parse_template(value).is_static


def _compile_test(source: str, problems: _Problems) -> Callable[[Any], bool] | None:
    try:
        return compile_predicate(source)
    except TemplateSyntaxError as error:
        problems.append((f"'when': {error}", "", "when"))
        return None
