"""Writes the commands and the codes of problems as Markdown, for the pages of the documentation and for coding agents.

Everything is read from the code that answers a command line: nothing is said here of a single command or code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from inspect import cleandoc
from textwrap import indent
from typing import Final

import click
from pydantic import BaseModel

from flowengine import errors
from flowengine.cli import main as command_line
from flowengine.flowfile.checks import CODES
from flowengine.flowfile.schema import field_docs

_FAMILIES: Final = {
    "FE1": "The file and its YAML",
    "FE2": "Structure and references",
    "FE3": "Templates and expressions",
    "FE4": "Types and values",
    "FE5": "The project and its code",
    "FE9": "Warnings",
}
"""How a code begins, and what these codes are about."""


def format_rows(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown; a bar inside a cell is escaped, and a line break becomes a blank.

    >>> print(format_rows(["name", ""], [["a|b", "one\\ntwo"]]))
    | name | |
    |---|---|
    | a\\|b | one two |
    """
    lines = [f"|{'|'.join(f' {each} ' if each else ' ' for each in head)}|", "|---" * len(head) + "|"]
    for row in rows:
        cells = (" ".join(each.split()).replace("\\|", "|").replace("|", "\\|") for each in row)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


# --- Commands


def list_commands() -> Iterator[tuple[str, click.Command]]:
    """Each command that does something, by its whole name, in the order of the help."""
    yield from _commands_of(command_line.cli, ())


def _commands_of(group: click.Group, path: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        if isinstance(command, click.Group):
            if command.invoke_without_command:
                yield " ".join((*path, name)), command
            yield from _commands_of(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


def exit_codes() -> Sequence[tuple[str, str]]:
    """Each exit code with what it means, as the command line's own module lists them."""
    table = (command_line.__doc__ or "").partition("\n\n")[2]
    rows = (line.split(maxsplit=1) for line in table.splitlines() if line.startswith("    "))
    return [(code, meaning) for code, meaning in rows if code.isdigit()]


def commands_page() -> str:
    """Every command with its arguments and options."""
    parts = [
        "# Commands",
        "Made from the commands themselves. Results go to stdout, everything else to stderr. `flowengine COMMAND "
        "--help` prints the same.",
        format_rows(["exit code", ""], exit_codes()),
    ]
    for name, command in list_commands():
        context = click.Context(command, info_name=f"flowengine {name}")
        usage = " ".join(command.collect_usage_pieces(context))
        parts.append(f"## `flowengine {name}`\n\n    flowengine {name} {usage}".rstrip())
        parts.append(_help_of(command))
        rows = [_option_row(each) for each in command.params if isinstance(each, click.Option) and not each.hidden]
        if rows:
            parts.append(format_rows(["option", ""], rows))
    return "\n\n".join(parts) + "\n"


def _help_of(command: click.Command) -> str:
    """Returns a command's help text; a verbatim paragraph (`\\b`) becomes a block."""
    paragraphs = cleandoc(command.help or "").split("\n\n")
    return "\n\n".join(indent(each[2:], "    ") if each.startswith("\b\n") else each for each in paragraphs)


def _option_row(option: click.Option) -> tuple[str, str]:
    names = ", ".join(f"`{each}`" for each in (*option.opts, *option.secondary_opts))
    value = "" if option.is_flag or option.count else f" `{option.make_metavar(click.Context(click.Command('')))}`"
    default = option.default
    has_default = option.show_default and isinstance(default, int | float | str) and not isinstance(default, bool)
    return f"{names}{value}", f"{option.help or ''}{f' Default: `{default}`.' if has_default else ''}"


# --- Files of tests and evals


def tests_page() -> str:
    """Every key of flow tests and of evals."""
    tests, evals = ("flowengine.testing.flowtest", "flowengine.evals.eval_file")
    parts = [
        "# Flow tests and evals",
        "Made from the models that load them. Unknown keys are errors. How they are used: [testing](howto/testing.md) "
        "and [experiments](experiments.md).",
        _keys_section("## A file of tests: `*.flowtest.yaml`", tests, "FlowTestSpec"),
        _keys_section("### A case", tests, "FlowCaseSpec"),
        _keys_section("### `expect` of a case", tests, "ExpectSpec"),
        _keys_section("### `fakes` of a case", tests, "FakesSpec"),
        _keys_section("### An answer under `approvals`", tests, "ApprovalAnswer"),
        _keys_section("## An eval: `*.floweval.yaml`", evals, "EvalSpec"),
        _keys_section("### A scorer", evals, "ScorerSpec"),
        "A scorer takes the keys of [`expect`](#expect-of-a-case) as well: its claims.",
        _keys_section("### `judge` of a scorer", evals, "JudgeSpec"),
        "A judge takes `model` and its [options](models.md#options) as well.",
        _keys_section("### `limits` of an eval", evals, "SpendingLimits"),
        _keys_section("### `data` from recorded runs", evals, "RecordedSpec"),
    ]
    return "\n\n".join(parts) + "\n"


def _keys_section(title: str, module: str, name: str) -> str:
    """A heading with what stands under the fields of a class of the model."""
    spec: type[BaseModel] = getattr(import_module(module), name)
    docs = field_docs(module)[name]
    required = {key for key, field in spec.model_fields.items() if field.is_required()}
    rows = ((f"`{key}`", "**required**" if key in required else "–", text) for key, text in docs.items())
    return f"{title}\n\n{cleandoc(spec.__doc__ or '')}\n\n{format_rows(['key', '', ''], rows)}"


# --- Codes of problems


def codes_page() -> str:
    """Every code with its meaning, what to write instead, and text that earns it."""
    parts = [
        "# Errors of flow files",
        "Made from the table that the checks read. All problems of a file are told in one pass, each with its place: "
        "`flows/review.yaml:22:10: FE203 …`. Codes stay: one that is retired is never given again. "
        "`flowengine explain FE203` prints what stands here.",
    ]
    family = ""
    for code, each in CODES.items():
        if code[:3] != family:
            family = code[:3]
            parts.append(f"## {_FAMILIES[family]}")
        example = "\n".join(f"    {line}" for line in each.example.splitlines())
        parts.append(f"### {code}: {each.title}\n\n{each.explanation}\n\n{example}")
    tree = (errors.__doc__ or "").partition("\n\n")[2].partition("\n\nMessages")[0]
    parts.append(
        f"## Errors in Python\n\nAll are in `flowengine.errors`, which says [what each means](api.md).\n\n{tree}"
    )
    return "\n\n".join(parts) + "\n"
