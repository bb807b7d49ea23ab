"""Makes what can be done with a run: links in its page, the form of each, and the command line that does the same.

A live page has links to forms, which our script opens over the page; a page that is one file has the commands alone.
How it is done is not known here: a server says by name which of these it does (`Acting.does`).
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from flowengine.core import FileValue, ModelCall
from flowengine.engine import Event, NodeRecorded
from visualize.plain import compact, format_value, jsonable
from visualize.viewer.forms import Acting, form, make_label
from visualize.viewer.html import Child, Markup, action_url, element, run_url
from visualize.viewer.page import page
from visualize.viewer.parts import fold, note
from visualize.viewer.reading import Reading

LIMIT_OPTIONS: Final[Mapping[str, str]] = {
    "cost_usd": "--max-cost",
    "model_calls": "--max-calls",
    "tokens": "--max-tokens",
    "timeout": "--timeout",
    "concurrency": "--concurrency",
}
"""Limit of a run → the option of the command line that chooses it."""

_STOPPED: Final = frozenset({"failed", "cancelled", "paused", "partial"})
LONG_VALUE: Final = 2_000
"""Characters of a value from which on a command line names a file in its place."""
_INDEX: Final = re.compile(r"(\.round)?\[\d+\]")
_SHORT: Final = 80
"""Characters that a line holds."""


class RunAction(NamedTuple):
    """Something that can be done with a run, or from one of its nodes on."""

    name: str
    """The name in the address of its form."""
    title: str
    command: str
    """The command line that does the same with nothing changed."""


# --- What can be done
#
# A further action is a further line here; the server's side of it is registered under the same name.


def list_run_actions(run: Reading, acting: Acting | None = None) -> Iterator[RunAction]:
    """Lists the actions on a whole run; `acting`: None for a page in a file."""
    started, finished = run.progress.started, run.progress.finished
    words = () if acting is None else acting.options
    if started is None:
        return
    is_here = acting is not None and acting.is_driven
    status = run.progress.status
    if status in _STOPPED or (status == "running" and acting is not None and not is_here):
        limit = None if finished is None or finished.error is None or finished.error.part else finished.error.limit
        more = [LIMIT_OPTIONS[limit], "N"] if limit in LIMIT_OPTIONS else []
        title = "Raise the limit" if more else "Resume"
        yield RunAction("resume", title, shlex.join(["flowengine", "resume", run.run_id, *more, *words]))
    if status != "running" and any(_has_failed_item(run, each.id) for each in run.rows if each.kind == "map"):
        command = ["flowengine", "resume", "--failed-items", run.run_id, *words]
        yield RunAction("items", "Repeat failed items", shlex.join(command))
    if started.path is not None:
        fields = [
            ActionField(name, name, write_text(each), input_option(name, each)) for name, each in started.inputs.items()
        ]
        command = compose_command(["flowengine", "run", started.path], fields, words)
        yield RunAction("again", "Run again", command)
    if status in ("succeeded", "failed"):
        yield RunAction("test", "Make a test of it", shlex.join(["flowengine", "runs", "to-test", run.run_id, *words]))
    if acting is None:
        yield RunAction("note", "Note, mark, score", shlex.join(["flowengine", "runs", "note", run.run_id, "TEXT"]))
        yield RunAction("compare", "Compare with the run before", shlex.join(["flowengine", "diff", run.run_id]))
    if isinstance(started.settings.get("queue"), str) and status in ("running", "waiting") and not is_here:
        yield RunAction("cancel", "Cancel the run", shlex.join(["flowengine", "cancel", run.run_id, *words]))


def list_node_actions(run: Reading, path: str, acting: Acting | None = None) -> Iterator[RunAction]:
    """Lists the actions that start at a node; inside a container they start at the outermost one."""
    words = () if acting is None else acting.options
    node = top_node(path)
    row = run.row(node)
    if run.progress.started is None or run.progress.started.path is None or row is None or row.status == "pending":
        return
    base = ["flowengine", "resume", run.run_id, "--from", node]
    command = shlex.join([*base, *words])
    other = command if acting is not None else shlex.join([*base, "--set", "KEY=VALUE", "-i", "KEY=VALUE"])
    if acting is None and row.status == "waiting":
        for asked_at, question in row.questions.items():
            answer = ["flowengine", "approve", run.run_id, asked_at, "--choice", *question.choices[:1]]
            yield RunAction("approve", "Answer", shlex.join(answer))
    if acting is None and row.usage.calls:
        trial = [
            "flowengine",
            "whatif",
            "--node",
            _INDEX.sub("", path),
            "--model",
            "NAME",
            "--runs",
            f"run={run.run_id}",
        ]
        yield RunAction("play", "What would have been with another model", shlex.join(trial))
        call = next((seq for seq, each in run.part(path) if _is_call(each)), None)
        if call is not None:
            again = ["flowengine", "ask", run.run_id, "--call", str(call), "--model", "NAME"]
            yield RunAction("ask", "Ask its call of a model again", shlex.join(again))
    yield RunAction("retry", "Retry from here" if node == path else f"Retry from {node}", command)
    yield RunAction("fork", "Fork here with other values" if node == path else f"Fork at {node}", other)


def _is_call(event: Event) -> bool:
    """Tells whether it is a call of a model that answers with text."""
    return isinstance(event, NodeRecorded) and isinstance(event.record, ModelCall) and not event.record.vectors


def top_node(path: str) -> str:
    """The node of the flow itself that a path is in.

    >>> top_node("polish.round[2].judge"), top_node("each[3].sum"), top_node("ask")
    ('polish', 'each', 'ask')
    """
    return path.partition(".")[0].partition("[")[0]


def _has_failed_item(run: Reading, path: str) -> bool:
    row = run.row(path)
    return row is not None and row.status == "succeeded" and row.inside.get("failed", 0) > 0


def action_section(actions: Sequence[RunAction], run_id: str, node: str | None, acting: Acting | None) -> Markup | None:
    """Links to the forms of those that the server does; in a page that is one file, the commands."""
    if acting is None:
        rows = [[element("dt", each.title), element("dd", command_line(each.command))] for each in actions]
        return fold("On the command line", element("dl", rows, class_="commands")) if rows else None
    links = [
        element("a", each.title, href=action_url(run_id, each.name, node), class_="button", data_act=each.name)
        for each in actions
        if each.name in acting.does
    ]
    return element("div", links, class_="actions", role="group", aria_label="Actions") if links else None


# --- The form of an action

FieldKind = Literal["text", "lines", "switch", "list", "verb", "kept"]


class ActionField(NamedTuple):
    """A field, and what it is on the command line."""

    name: str
    label: str
    value: str = ""
    option: str = ""
    """Before the value: `--model`, or `-i text=` where the value belongs to the same word; all words of a switch; empty
    where the command line has none."""
    kind: FieldKind = "text"
    """`lines`: several lines of one text; `list`: one value a line; `switch`: on or off;
    `verb`: which command it is, the word behind `flowengine`; `kept`: too long to be changed here."""
    hint: str = ""
    is_change: bool = False
    """Whether it says something only where it was changed."""
    choices: Sequence[tuple[str, str]] = ()
    """Value → what is shown; one of them is chosen."""
    group: str = ""
    """Title of the fold that it stands in."""


class ActionForm(NamedTuple):
    """The form that is shown before an action."""

    title: str
    button: str
    base: Sequence[str]
    """The words of the command line before those of the fields."""
    fields: Sequence[ActionField] = ()
    tail: Sequence[str] = ()
    """The words behind those of the fields."""
    about: Child = None
    refusal: str = ""
    """Why it cannot be done here; the command is shown all the same."""


def compose_command(words: Sequence[str], fields: Sequence[ActionField], tail: Sequence[str] = ()) -> str:
    """The command line of a form as it is filled in; our script does the same while it is being filled in.

    >>> print(compose_command(["flowengine", "run", "a b.yaml"], [ActionField("t", "T", "a b", "-i text=")]))
    flowengine run 'a b.yaml' -i 'text=a b'
    >>> compose_command(["flowengine", "run", "a.yaml"], [ActionField("p", "P", "submit", kind="verb")])
    'flowengine submit a.yaml'
    """
    command = [*words]
    for each in fields:
        if each.kind == "verb" and each.value:
            command[1] = each.value
        elif each.option and each.value and not each.is_change:
            command += _words_of(each)
    return shlex.join([*command, *tail])


def _words_of(field: ActionField) -> Iterator[str]:
    if field.kind == "switch":
        yield from field.option.split(" ")
        return
    values = [field.value]
    if field.kind == "list":
        values = [each.strip() for each in field.value.splitlines() if each.strip()]
    for value in values:
        option, blank, begin = field.option.partition(" ")
        yield option
        yield write_pair(begin, value) if blank else value


def write_pair(begin: str, text: str) -> str:
    """`name=text`, where an at sign would stand for a file; of a text that is too long for a line, such a file."""
    if not begin.endswith("="):  # `name=@`: it is a file already.
        return f"{begin}{text}"
    if len(text) > LONG_VALUE:
        return f"{begin}@{begin[:-1]}.txt"
    return f"{begin}{'@' if text.startswith('@') else ''}{text}"


def write_text(value: Any) -> str:
    """A value as a command line and a field have it: text as it is, a file by its name, anything else as JSON.

    >>> write_text("a"), write_text([1, None])
    ('a', '[1,null]')
    """
    if isinstance(value, FileValue):
        return value.name
    text = format_value(value)
    if isinstance(value, str):
        return text
    short = compact(jsonable(value))
    return short if len(short) <= _SHORT else text


def input_option(name: str, value: Any) -> str:
    """Returns the option of an input on the command line."""
    return f"-i {name}={'@' if isinstance(value, FileValue) else ''}"


def action_page(
    action_form: ActionForm, run_id: str, name: str, node: str | None, acting: Acting, once: str, problem: str = ""
) -> str:
    """The page of a form, which our script shows over that of the run. `problem`: why it was not done as posted."""
    hidden = element("input", type="hidden", name="once", value=once)
    parts = group_fields(action_form.fields)
    send = element("button", action_form.button, type="submit", class_="primary", disabled=bool(action_form.refusal))
    back = element("a", "Back", href=run_url(run_id, node), class_="button", data_close=True)
    main = element(
        "main",
        element("h1", action_form.title),
        note(problem, kind="bad") if problem else None,
        note(action_form.refusal, kind="bad") if action_form.refusal else None,
        element("div", action_form.about) if action_form.about else None,
        form(
            action_url(run_id, name, node),
            acting,
            hidden,
            parts,
            element("h2", "The same on the command line"),
            command_line(
                compose_command(action_form.base, action_form.fields, action_form.tail),
                [action_form.base, action_form.tail],
            ),
            element("div", send, back, class_="sends"),
            class_="asks act",
        ),
        class_="narrow action",
    )
    return page(action_form.title, main)


def group_fields(fields: Sequence[ActionField]) -> list[Child]:
    """The fields; those of a group in a fold, which is open where one of them says something."""
    groups: dict[str, list[ActionField]] = {}
    for each in fields:
        groups.setdefault(each.group, []).append(each)
    return [
        boxes if not group else fold(group, boxes, is_open=any(each.value for each in members))
        for group, members in groups.items()
        if (boxes := [_make_field(each) for each in members])
    ]


def command_line(command: str, words: Sequence[Sequence[str]] | None = None) -> Markup:
    """A command line with a button that copies it; `words`: what our script makes it of anew."""
    template = None if words is None else json.dumps([[*each] for each in words])
    text = element("pre", command, class_="command", data_words=template, tabindex="0")
    return element("div", text, element("button", "Copy", type="button", data_copy=True), class_="command-line")


def _make_field(field: ActionField) -> Markup:
    attributes: dict[str, Any] = {
        "name": field.name,
        "data_option": field.option or None,
        "data_kind": field.kind,
        "data_change": field.is_change,
    }
    hint = element("small", field.hint) if field.hint else None
    if field.kind == "kept":
        size = element("small", f"{len(field.value):,} characters, which stay as they are.")
        attributes["data_option"] = " ".join(_words_of(field))
        return make_label(field.label, size, element("input", type="hidden", value="true", disabled=True, **attributes))
    if field.kind == "switch":
        box = element("input", type="checkbox", value="true", checked=bool(field.value), **attributes)
        return element("label", box, " ", field.label, " ", hint, class_="check")
    if field.choices:
        options = [element("option", text, value=each, selected=each == field.value) for each, text in field.choices]
        return make_label(field.label, element("select", options, **attributes), hint)
    if field.kind in ("lines", "list") or "\n" in field.value or len(field.value) > _SHORT:
        rows = min(max(field.value.count("\n") + 1, 2, len(field.value) // _SHORT), 16)
        # The first line end behind the tag is none of the text.
        return make_label(field.label, element("textarea", "\n", field.value, rows=rows, **attributes), hint)
    return make_label(field.label, element("input", type="text", value=field.value, **attributes), hint)
