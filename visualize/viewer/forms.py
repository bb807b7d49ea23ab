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

from flowengine.core import ACCEPT, REFUSE, ApprovalRequested
from visualize.viewer.html import Child, Markup, approve_url, element
from visualize.viewer.parts import clock, fold, note, section

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
    """The address where programs reach the server, as `http://127.0.0.1:8700/`."""
    options: Sequence[str] = ()
    """Options with which a command finds the same store."""


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
    schemas = cast("Mapping[str, Any]", properties)
    for each in schemas.values():
        if not isinstance(each, Mapping):
            return None
        kind = cast("Mapping[str, Any]", each).get("type", "string")
        if kind not in ("string", "number", "integer", "boolean"):
            return None
    return schemas


def _make_field(name: str, schema: Mapping[str, Any], option: str, *, is_required: bool) -> Markup:
    hint = element("small", schema["description"]) if schema.get("description") else None
    kind, default = schema.get("type", "string"), schema.get("default")
    attributes: dict[str, Any] = {"name": _PREFIX + name, "required": is_required}
    if option:
        attributes |= {"data_option": option, "data_kind": "text"}
    if schema.get("enum"):
        options: list[Child] = [
            element("option", _to_text(each), value=_to_text(each), selected=each == default) for each in schema["enum"]
        ]
        return make_label(
            name,
            element("select", None if is_required else element("option", "", value=""), options, **attributes),
            hint,
        )
    if kind == "boolean":
        words = {"data_option": f"{option}true", "data_kind": "switch"} if option else {}
        box = element("input", type="checkbox", name=_PREFIX + name, value="true", checked=default is True, **words)
        return element("label", box, " ", name, hint, class_="check")
    text = "" if default is None else _to_text(default)
    if kind == "string" and schema.get("maxLength", 0) <= _LONG_TEXT:
        return make_label(
            name, element("input", type="text", value=text, maxlength=schema.get("maxLength"), **attributes), hint
        )
    if kind == "string":
        return make_label(
            name, element("textarea", text, rows=4, maxlength=schema.get("maxLength"), **attributes), hint
        )
    bounds = {"min": schema.get("minimum"), "max": schema.get("maximum"), "step": "1" if kind == "integer" else "any"}
    return make_label(name, element("input", type="number", value=text, **bounds, **attributes), hint)


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _read_properties(properties: Mapping[str, Mapping[str, Any]], fields: Mapping[str, str]) -> list[tuple[str, Any]]:
    """Property → value; what was left empty is left out, also where it has to be there: it was not said."""
    pairs: list[tuple[str, Any]] = []
    for name, schema in properties.items():
        kind, text = schema.get("type", "string"), fields.get(_PREFIX + name, "")
        if schema.get("enum"):
            pairs += [(name, next((each for each in schema["enum"] if _to_text(each) == text), text))] if text else []
        elif kind == "boolean":
            pairs.append((name, text == "true"))
        elif text:
            pairs.append((name, text if kind == "string" else _parse_number(name, text, kind)))
    return pairs


def _parse_number(name: str, text: str, kind: str) -> float | int:
    try:
        number = int(text) if kind == "integer" else float(text)
    except ValueError:
        number = inf
    if isinstance(number, int) or isfinite(number):
        return number
    raise ValueError(f"'{name}' takes {'a whole number' if kind == 'integer' else 'a number'}, found '{text:.40}'")


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
    question: ApprovalRequested,
    acting: Acting,
    *,
    about: Child = None,
    ways: Mapping[str, str] | None = None,
) -> Markup:
    """The form, which posts to the run's approve address: a button for each choice, the first of them the primary one.

    That of a tool's call begins with the model's arguments; what is changed in it is accepted as it then is. `about`:
    what the question is about; `ways`: choice → the node that it leads to.
    """
    command = shlex.join(["flowengine", "approve", run_id, node, "--choice", *question.choices[:1]])
    return section(
        "Your answer is waited for",
        element("div", question.message, class_="message", data_markdown=True),
        element("div", about, class_="about-it") if about else None,
        _make_countdown(question),
        form(
            approve_url(run_id, node),
            acting,
            answer_fields(question),
            element("ul", [_make_choice(question, each, ways or {}) for each in question.choices], class_="choices"),
            class_="asks",
        ),
        fold("On the command line", element("pre", command)),
        class_="approval",
    )


def _make_choice(question: ApprovalRequested, choice: str, ways: Mapping[str, str]) -> Markup:
    """A button with what the choice means, and where it leads."""
    takes_form = _takes_form(question, choice)
    remarks = [question.describe.get(choice, ""), f"→ {ways[choice]}" if choice in ways else ""]
    button = element(
        "button",
        choice,
        type="submit",
        name="choice",
        value=choice,
        class_="primary" if choice == question.choices[0] else None,
        formnovalidate=bool(question.form or question.tool) and not takes_form and choice != ACCEPT,
        data_form=True if takes_form and question.form_for else None,
    )
    return element("li", button, element("small", " ".join(filter(None, remarks))) if any(remarks) else None)


def _takes_form(question: ApprovalRequested, choice: str) -> bool:
    """Tells whether the question's form is filled in with a choice; the arguments of a call are none."""
    return bool(question.form) and not question.tool and (choice in question.form_for or not question.form_for)


def _make_countdown(question: ApprovalRequested) -> Markup | None:
    """Makes the countdown to the question's expiry, which the script updates, and the default choice."""
    if question.expires is None:
        return None
    then = [" Then ", element("strong", question.on_expire), " counts."] if question.on_expire else []
    countdown = element("span", class_="left", data_until=question.expires)
    return note("The question expires at ", clock(question.expires), countdown, ".", *then)


def answer_fields(
    question: ApprovalRequested, *, has_arguments: bool = True, choice: str | None = None
) -> list[Markup]:
    """Makes the fields beside the choice; `has_arguments`: also a call's arguments.

    `choice`: the only one that can be made.
    """
    fields = fields_for(question.form, "Answer, as JSON") if question.form and not question.tool else []
    if question.tool and has_arguments:
        fields = _argument_fields(question)
    if question.form_for and not question.tool:
        goes_with = " or ".join(question.form_for)
        legend = element("legend", f"To be filled in for {goes_with}")
        fields = [] if choice is not None and choice not in question.form_for else [
            element("fieldset", legend, fields, data_form_for=True)
        ]  # fmt: skip
    return [*fields, make_label("Comment", element("textarea", name="comment", rows=2))]


def answer_of(question: ApprovalRequested, fields: Mapping[str, str]) -> FormAnswer:
    """The answer in the form's fields as they were posted; `ValueError` says what is wrong with them.

    >>> form = {"type": "object", "properties": {"amount": {"type": "number"}}}
    >>> asked = ApprovalRequested("Pay?", ["yes", "no"], form)
    >>> answer_of(asked, {"choice": "yes", "form.amount": "12.5"})
    FormAnswer(choice='yes', comment='', form={'amount': 12.5})
    """
    choice = fields.get("choice", "")
    if choice not in question.choices:
        raise ValueError(f"choose one of {', '.join(question.choices)}")
    comment = fields.get("comment", "").strip()
    if question.tool:
        text = "" if choice == REFUSE else fields.get("form", "").strip()
        return FormAnswer(choice, comment, _parse_json(text) if text else None)
    return FormAnswer(choice, comment, said_in(question.form or {}, fields) if _takes_form(question, choice) else None)


def _argument_fields(question: ApprovalRequested) -> list[Markup]:
    text = json.dumps(question.arguments, ensure_ascii=False, indent=2, default=str)
    hint = element("small", json.dumps(question.form, ensure_ascii=False, default=str))
    area = element("textarea", text, name="form", rows=min(text.count("\n") + 2, 20))
    return [make_label(f"Arguments of {question.tool}", area, fold("What it takes", hint))]
