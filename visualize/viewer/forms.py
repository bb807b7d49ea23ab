"""Makes form fields for a JSON Schema, and reads what was posted in them.

A field is made for each simple property of an object; where the schema asks for anything else, there is one field
that takes JSON. Whether what was said satisfies the schema is not decided here.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Mapping, Sequence
from math import inf, isfinite
from typing import Any, Final, NamedTuple, cast

from flowengine.core.records import ACCEPT, REFUSE, ApprovalRequested
from visualize.viewer.html import Child, Markup, approve_url, element
from visualize.viewer.parts import clock, fold, note, section

__all__ = [
    "Acting",
    "FormAnswer",
    "answer_fields",
    "answer_of",
    "approval_form",
    "fields_for",
    "form",
    "said_in",
    "simple_properties",
]

_LONG_TEXT: Final = 200
"""A text that may be longer than this many characters gets several lines."""
_PREFIX: Final = "form."


class Acting(NamedTuple):
    """The services that a page needs for actions."""

    token: str
    """Goes with each form in a hidden field, so that no other site can send one."""
    field: str = "token"
    """The hidden field's name."""
    does: Collection[str] = ()
    """Names of what the server does with runs (`visualize.viewer.actions`)."""
    is_driven: bool = False
    """Whether the run is one of the server's own process."""
    address: str = ""
    """Where programs reach the server, as `http://127.0.0.1:8700/`."""
    options: Sequence[str] = ()
    """What commands need so that they find the same store."""


def form(action: str, acting: Acting, *children: Child, class_: str = "") -> Markup:
    """A form that posts."""
    hidden = element("input", type="hidden", name=acting.field, value=acting.token)
    return element("form", hidden, *children, method="post", action=action, class_=class_ or None)


def fields_for(schema: Mapping[str, Any], title: str, *, option: str = "") -> list[Markup]:
    """The fields; `title` is that of the one field which takes JSON. `option`: what stands before `NAME=VALUE` on the
    command line that our script composes (see `visualize.viewer.actions`)."""
    properties = simple_properties(schema)
    if properties is None:
        hint = element("small", json.dumps(schema, ensure_ascii=False))
        return [make_label(title, element("textarea", name="form", rows=4, required=True), hint)]
    required = cast("Sequence[str]", schema.get("required", ()))
    return [
        _make_field(name, each, f"{option} {name}=" if option else "", is_required=name in required)
        for name, each in properties.items()
    ]


def said_in(schema: Mapping[str, Any], fields: Mapping[str, str]) -> Any:
    """Reads the fields of a posted form; raises `ValueError` if they are invalid.

    >>> said_in({"type": "object", "properties": {"amount": {"type": "number"}}}, {"form.amount": "12.5"})
    {'amount': 12.5}
    """
    properties = simple_properties(schema)
    if properties is None:
        return _parse_json(fields.get("form", ""))
    return dict(_read_properties(properties, fields))


def make_label(name: str, *children: Child) -> Markup:
    return element("label", element("span", name), *children)


def simple_properties(schema: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]] | None:
    """The properties of a flat object; None where there is anything that no single field can hold."""
    properties = schema.get("properties")
    if schema.get("type", "object") != "object" or not isinstance(properties, Mapping):
        return None
    found = cast("Mapping[str, Any]", properties)
    for each in found.values():
        if not isinstance(each, Mapping):
            return None
        kind = cast("Mapping[str, Any]", each).get("type", "string")
        if kind not in ("string", "number", "integer", "boolean"):
            return None
    return found


def _make_field(name: str, schema: Mapping[str, Any], option: str, *, is_required: bool) -> Markup:
    hint = element("small", schema["description"]) if schema.get("description") else None
    kind, default = schema.get("type", "string"), schema.get("default")
    said: dict[str, Any] = {"name": _PREFIX + name, "required": is_required}
    if option:
        said |= {"data_option": option, "data_kind": "text"}
    if schema.get("enum"):
        chosen: list[Child] = [
            element("option", _to_text(each), value=_to_text(each), selected=each == default) for each in schema["enum"]
        ]
        return make_label(
            name, element("select", None if is_required else element("option", "", value=""), chosen, **said), hint
        )
    if kind == "boolean":
        words = {"data_option": f"{option}true", "data_kind": "switch"} if option else {}
        box = element("input", type="checkbox", name=_PREFIX + name, value="true", checked=default is True, **words)
        return element("label", box, " ", name, hint, class_="check")
    given = "" if default is None else _to_text(default)
    if kind == "string" and schema.get("maxLength", 0) <= _LONG_TEXT:
        return make_label(
            name, element("input", type="text", value=given, maxlength=schema.get("maxLength"), **said), hint
        )
    if kind == "string":
        return make_label(name, element("textarea", given, rows=4, maxlength=schema.get("maxLength"), **said), hint)
    bounds = {"min": schema.get("minimum"), "max": schema.get("maximum"), "step": "1" if kind == "integer" else "any"}
    return make_label(name, element("input", type="number", value=given, **bounds, **said), hint)


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _read_properties(properties: Mapping[str, Mapping[str, Any]], fields: Mapping[str, str]) -> list[tuple[str, Any]]:
    """Property → value; what was left empty is left out, also where it has to be there: it was not said."""
    found: list[tuple[str, Any]] = []
    for name, schema in properties.items():
        kind, said = schema.get("type", "string"), fields.get(_PREFIX + name, "")
        if schema.get("enum"):
            found += [(name, next((each for each in schema["enum"] if _to_text(each) == said), said))] if said else []
        elif kind == "boolean":
            found.append((name, said == "true"))
        elif said:
            found.append((name, said if kind == "string" else _parse_number(name, said, kind)))
    return found


def _parse_number(name: str, said: str, kind: str) -> float | int:
    try:
        found = int(said) if kind == "integer" else float(said)
    except ValueError:
        found = inf
    if isinstance(found, int) or isfinite(found):
        return found
    raise ValueError(f"'{name}' takes {'a whole number' if kind == 'integer' else 'a number'}, found '{said:.40}'")


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the answer is no JSON: {error}") from None


# --- The form of an approval


class FormAnswer(NamedTuple):
    """The answer in a posted form."""

    choice: str
    comment: str = ""
    form: Any = None


def approval_form(
    run_id: str,
    node: str,
    asked: ApprovalRequested,
    acting: Acting,
    *,
    about: Child = None,
    ways: Mapping[str, str] | None = None,
) -> Markup:
    """The form, which posts to the run's approve address: a button for each choice, the first of them the primary one.

    That of a tool's call begins with the model's arguments; what is changed in it is accepted as it then is. `about`:
    what the question is about; `ways`: choice → the node that it leads to.
    """
    command = shlex.join(["flowengine", "approve", run_id, node, "--choice", *asked.choices[:1]])
    return section(
        "Your answer is waited for",
        element("div", asked.message, class_="message", data_markdown=True),
        element("div", about, class_="about-it") if about else None,
        _make_countdown(asked),
        form(
            approve_url(run_id, node),
            acting,
            answer_fields(asked),
            element("ul", [_make_choice(asked, each, ways or {}) for each in asked.choices], class_="choices"),
            class_="asks",
        ),
        fold("On the command line", element("pre", command)),
        class_="approval",
    )


def _make_choice(asked: ApprovalRequested, choice: str, ways: Mapping[str, str]) -> Markup:
    """A button with what the choice means, and where it leads."""
    takes_form = _takes_form(asked, choice)
    told = [asked.describe.get(choice, ""), f"→ {ways[choice]}" if choice in ways else ""]
    button = element(
        "button",
        choice,
        type="submit",
        name="choice",
        value=choice,
        class_="primary" if choice == asked.choices[0] else None,
        formnovalidate=bool(asked.form or asked.tool) and not takes_form and choice != ACCEPT,
        data_form=True if takes_form and asked.form_for else None,
    )
    return element("li", button, element("small", " ".join(filter(None, told))) if any(told) else None)


def _takes_form(asked: ApprovalRequested, choice: str) -> bool:
    """Tells whether the question's form is filled in with a choice; the arguments of a call are none."""
    return bool(asked.form) and not asked.tool and (choice in asked.form_for or not asked.form_for)


def _make_countdown(asked: ApprovalRequested) -> Markup | None:
    """Makes the countdown to the question's expiry, which the script updates, and the default choice."""
    if asked.expires is None:
        return None
    then = [" Then ", element("strong", asked.on_expire), " counts."] if asked.on_expire else []
    left = element("span", class_="left", data_until=asked.expires)
    return note("The question expires at ", clock(asked.expires), left, ".", *then)


def answer_fields(asked: ApprovalRequested, *, has_arguments: bool = True, choice: str | None = None) -> list[Markup]:
    """Makes the fields beside the choice; `has_arguments`: also a call's arguments.

    `choice`: the only one that can be made.
    """
    fields = fields_for(asked.form, "Answer, as JSON") if asked.form and not asked.tool else []
    if asked.tool and has_arguments:
        fields = _argument_fields(asked)
    if asked.form_for and not asked.tool:
        goes_with = " or ".join(asked.form_for)
        legend = element("legend", f"To be filled in for {goes_with}")
        fields = [] if choice is not None and choice not in asked.form_for else [
            element("fieldset", legend, fields, data_form_for=True)
        ]  # fmt: skip
    return [*fields, make_label("Comment", element("textarea", name="comment", rows=2))]


def answer_of(asked: ApprovalRequested, fields: Mapping[str, str]) -> FormAnswer:
    """The answer in the form's fields as they were posted; `ValueError` says what is wrong with them.

    >>> form = {"type": "object", "properties": {"amount": {"type": "number"}}}
    >>> asked = ApprovalRequested("Pay?", ["yes", "no"], form)
    >>> answer_of(asked, {"choice": "yes", "form.amount": "12.5"})
    FormAnswer(choice='yes', comment='', form={'amount': 12.5})
    """
    choice = fields.get("choice", "")
    if choice not in asked.choices:
        raise ValueError(f"choose one of {', '.join(asked.choices)}")
    comment = fields.get("comment", "").strip()
    if asked.tool:
        said = "" if choice == REFUSE else fields.get("form", "").strip()
        return FormAnswer(choice, comment, _parse_json(said) if said else None)
    return FormAnswer(choice, comment, said_in(asked.form or {}, fields) if _takes_form(asked, choice) else None)


def _argument_fields(asked: ApprovalRequested) -> list[Markup]:
    text = json.dumps(asked.arguments, ensure_ascii=False, indent=2, default=str)
    hint = element("small", json.dumps(asked.form, ensure_ascii=False, default=str))
    area = element("textarea", text, name="form", rows=min(text.count("\n") + 2, 20))
    return [make_label(f"Arguments of {asked.tool}", area, fold("What it takes", hint))]
