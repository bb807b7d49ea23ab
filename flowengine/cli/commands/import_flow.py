"""`flowengine import` writes a flow of another product as a project of ours. It runs nothing of what it reads."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from flowengine.cli.terminal import Results, complain
from flowengine.errors import InputError

_SHOWN: Final = 20


@click.command("import")
@click.argument("source", metavar="FILE|DIR")
@click.option("-o", "--output", "target", required=True, metavar="DIR", help="The folder to write.")
@click.option("--root", metavar="DIR", help="Folder that files may be read from; default: that of FILE, or DIR.")
@click.option("--from", "name", metavar="FORMAT", help="Format of the source; default: detected by content.")
@click.option("--force", is_flag=True, help="Write into a non-empty folder and overwrite files.")
@click.option("--grant", is_flag=True, help="Allow at once what the source asks for; default: it stands as comments.")
@click.option("--json", "as_json", is_flag=True, help="Print every element as JSON.")
def command(
    source: str, target: str, root: str | None, name: str | None, force: bool, grant: bool, as_json: bool
) -> int:
    """Write a flow of another product, that of FILE or the one in DIR, into a folder, as a project.

    IMPORT.md there says what became of each element. The result is validated. What the source asks for (code,
    variables, addresses, servers of tools) is listed, and allowed with --grant only. Exit code 1 where anything was
    lost.
    """
    from flowengine.cli.commands.validate import check_with_models
    from flowengine.importers import (
        FORMATS,
        SourceTree,
        find_asks,
        find_sources,
        format_counts,
        read_source,
        write_project,
    )

    where = Path(source)
    if not where.exists():
        raise InputError(f"there is no file or folder '{source}'")
    base = Path(root) if root is not None else where if where.is_dir() else where.parent
    tree = SourceTree(base)
    try:
        below = where.resolve().relative_to(tree.root).as_posix()
    except ValueError:
        raise InputError(f"'{source}' is not below the folder '{base}' of --root") from None
    flows = find_sources(tree, below, name)
    if not flows:
        if where.is_file():
            tree.read_text(below)  # It says so where the file cannot be read at all.
        formats = "; ".join(what for _, what in FORMATS.values())
        raise InputError(f"nothing in '{source}' can be imported; what can be is: {formats}")
    if len(flows) > 1 and len(Path(flows[0].file).parts) == len(Path(flows[1].file).parts):
        several = ", ".join(each.file for each in flows[:_SHOWN])
        raise InputError(f"'{source}' holds {len(flows)} flows; name one of them: {several}")
    project = read_source(tree, flows[0])
    output = write_project(project, Path(target), force=force, check=check_with_models, grant=grant)
    losses, asks = project.ledger.count("lost"), find_asks(project)
    if as_json:
        elements = [{**each._asdict(), "origin": each.origin._asdict()} for each in project.ledger.elements]
        about = {"format": flows[0].format, "source": flows[0].file, "target": target, "files": output.files}
        Results().value({**about, "elements": elements, "asks": asks, "problems": output.problems})
    else:
        results = Results()
        results.line(f"{project.format}: {flows[0].file} → {target} ({len(output.files)} files)")
        results.line(format_counts(project))
        for each in [one for one in project.ledger.elements if one.outcome == "lost"][:_SHOWN]:
            results.line(" ".join(f"{each.origin}: not mapped: {each.what}: {each.note}".split()))
        for key, entry in ((key, each) for key, entries in asks.items() for each in entries):
            results.line(f"{'allowed' if grant else 'asks for'}: {key} {' '.join(entry.split())}")
        if asks and not grant:
            file = Path(target, "flowengine.toml")
            results.line(f"nothing of it is allowed yet: it stands in {file}; take the `# ` from what it may have")
    if len(flows) > 1:
        others = ", ".join(each.file for each in flows[1 : 1 + _SHOWN]) + (", …" if len(flows) > 1 + _SHOWN else "")
        complain(f"notice: '{source}' holds {len(flows) - 1} more, which come along where this one uses them: {others}")
    for problem in output.problems:
        complain(str(problem))
    complain(f"validate: {len(output.errors)} errors" if output.errors else "validate: no errors")
    complain(f"next: read {Path(target, 'IMPORT.md')}")
    return 1 if losses or output.errors else 0
