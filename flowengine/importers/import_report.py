"""Writes IMPORT.md: what is left to do by hand, what a run needs, and each element of the source with its line.

Texts of the source stand in it as text: they can neither end a table's cell nor become markup.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from flowengine.errors import Diagnostic
from flowengine.importers.form import Element, ImportedProject

_WORDS: Final = {
    "mapped": "mapped",
    "changed": "mapped with a change",
    "lost": "**not mapped**",
    "kept": "copied",
}


def format_counts(project: ImportedProject) -> str:
    """Formats how many elements were imported, as a sentence without its full stop."""
    count = project.ledger.count
    mapped, changed, rest = count("mapped"), count("changed"), count("lost")
    return f"{mapped + changed + rest} elements: {mapped} mapped, {changed} mapped with a change, {rest} not mapped"


def format_report(project: ImportedProject, files: Sequence[str], problems: Sequence[Diagnostic]) -> str:
    """The whole file."""
    return "\n".join([*_lines(project, files, problems), ""])


def _lines(project: ImportedProject, files: Sequence[str], problems: Sequence[Diagnostic]) -> Iterator[str]:
    elements = project.ledger.elements
    yield f"# Import from {project.format}"
    yield ""
    yield f"{format_counts(project)}."
    errors = [each for each in problems if each.severity == "error"]
    warnings = len(problems) - len(errors)
    counts = f"{len(errors)} errors" if errors else "no errors" if warnings else "no problems"
    yield f"`flowengine validate` says of the result: {counts}{f', {warnings} warnings' if warnings else ''}."
    yield ""
    yield from _by_hand(elements, errors)
    yield "## Before the first run"
    yield ""
    yield "- What the source asks for stands in `flowengine.toml`, as comments unless you said `--grant`."
    yield "- Code that was carried along is the source's own. Read it: a run imports and calls it."
    for name, why in sorted(project.environment.items()):
        yield f"- Set `{escape_code(name)}`: {escape_cell(why)}."
    hosts = (*project.settings.get("allow_http", ()), *project.settings.get("allow_mcp", ()))
    for address, *variables in (str(each).split(" ") for each in hosts):
        headers = f", with {', '.join(f'`{escape_code(each)}`' for each in variables)}" if variables else ""
        yield f"- Flows may ask `{escape_code(address)}`{headers}: the source says so. See that it is whom you mean."
    if "requirements.txt" in files:
        yield "- Install what the code needs: `pip install -r requirements.txt`."
    tests = [each for each in files if each.endswith(".flowtest.yaml")]
    yield "- `flowengine test` runs the tests that the import made: they ask no model and call no function."
    yield ""
    yield "## What was written"
    yield ""
    yield from (f"- `{escape_code(each)}`" for each in files if each not in tests)
    yield from (f"- `{escape_code(each)}`" for each in tests)
    yield ""
    yield "## Every element of the source"
    by_file: dict[str, list[Element]] = {}
    for each in elements:
        by_file.setdefault(each.origin.file, []).append(each)
    for file, rows in by_file.items():
        yield ""
        yield f"### {escape_cell(file)}"
        yield ""
        yield "| line | element | | |"
        yield "|---|---|---|---|"
        for each in sorted(rows, key=lambda one: one.origin.line):
            note = "; ".join(filter(None, (each.note, each.by_hand and f"by hand: {each.by_hand}")))
            yield f"| {each.origin.line} | {escape_cell(each.what)} | {_WORDS[each.outcome]} | {escape_cell(note)} |"


def _by_hand(elements: Sequence[Element], errors: Sequence[Diagnostic]) -> Iterator[str]:
    todo = [each for each in elements if each.by_hand]
    if not todo and not errors:
        return
    yield "## What is left to do by hand"
    yield ""
    for each in todo:
        description = f"{escape_cell(str(each.origin))}, {escape_cell(each.what)}: {escape_cell(each.note)}"
        yield f"- {description}. {_sentence(each.by_hand)}"
    for problem in errors:
        yield f"- {escape_cell(str(problem))}"
    yield ""


def _sentence(text: str) -> str:
    sentence = escape_cell(text)
    return f"{sentence[:1].upper()}{sentence[1:]}{'' if sentence.endswith('.') else '.'}"


def escape_cell(text: str) -> str:
    r"""A text as it stands in a table's cell.

    >>> escape_cell("a|b\n<script> [x](y)")
    'a\\|b &lt;script&gt; \\[x\\](y)'
    """
    flat = "".join(each if each.isprintable() else " " for each in text[:600])
    for sign, instead in (("\\", "\\\\"), ("<", "&lt;"), (">", "&gt;"), *((each, f"\\{each}") for each in "|[]`*")):
        flat = flat.replace(sign, instead)
    return flat


def escape_code(text: str) -> str:
    """A text between backquotes."""
    return "".join(each if each.isprintable() and each != "`" else " " for each in text[:300])
