"""Measures imports: `python -m tests.importers.measure DIR…` imports every source below the folders and prints shares.

A source counts as imported where it is read, written and validates without an error. Its elements count as mapped where
they came along, changed or not. `-v` lists what was lost, the most frequent reasons first; `--test` also runs the flow
tests that the import makes (these import the code that was carried along, so only for sources that one trusts).
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

from flowengine.cli.commands.validate import check_with_models
from flowengine.errors import DefinitionError
from flowengine.importers.formats import FORMATS, find_sources, read_source
from flowengine.importers.project_writer import write_project
from flowengine.importers.source_tree import SourceTree


class Measured(NamedTuple):
    format: str
    source: str
    problem: str
    elements: int
    lost: int
    notes: list[str]
    tested: bool | None = None

    @property
    def share(self) -> float:
        return 1 - self.lost / self.elements if self.elements else 0.0


def measure(folder: Path, *, test: bool = False) -> list[Measured]:
    """Import all that is below a folder."""
    tree = SourceTree(folder)
    return [_measure_one(folder, each.format, each.file, test) for each in find_sources(tree, ".")]


def _measure_one(folder: Path, name: str, file: str, test: bool) -> Measured:
    from flowengine.importers.formats import Found

    source = f"{folder.name}/{file}"
    try:
        project = read_source(SourceTree(folder), Found(name, file))
        with tempfile.TemporaryDirectory() as target:
            written = write_project(project, Path(target), check=check_with_models, grant=True)
            tested = _run_tests(target) if test and not written.errors else None
    except DefinitionError as error:
        return Measured(name, source, f"not read: {str(error).splitlines()[0]}", 0, 0, [])
    except Exception as error:
        return Measured(name, source, f"CRASH {type(error).__name__}: {error}", 0, 0, [])
    ledger = project.ledger
    counted = [each for each in ledger.elements if each.outcome != "kept"]
    lost = [each for each in counted if each.outcome == "lost"]
    problem = str(written.errors[0]).split(": ", 1)[-1] if written.errors else ""
    notes = [f"{each.what.split(':')[-1].strip() if ':' in each.what else ''} {each.note}" for each in lost]
    return Measured(name, source, problem, len(counted), len(lost), notes, tested)


def _run_tests(target: str) -> bool:
    done = subprocess.run([sys.executable, "-m", "flowengine", "test"], cwd=target, capture_output=True, text=True)
    if done.returncode:
        print("\n".join(done.stdout.splitlines()[:12]), done.stderr[-600:], file=sys.stderr)
    return done.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Share of files and elements that import, by format.")
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("--test", action="store_true")
    parser.add_argument("--without", default="$^", metavar="REGEX", help="Sources to leave out, by their path.")
    given = parser.parse_args()
    found: dict[str, list[Measured]] = defaultdict(list)
    for folder in given.folders:
        for each in measure(folder, test=given.test):
            if not re.search(given.without, each.source):
                found[each.format].append(each)
    for name in FORMATS:
        if found[name]:
            _print(name, found[name], given.verbose)
    return 0


def _print(name: str, measured: list[Measured], verbose: bool) -> None:
    count = len(measured)
    good = [each for each in measured if not each.problem]
    whole = [each for each in good if each.share >= 0.95]
    elements, lost = sum(each.elements for each in good), sum(each.lost for each in good)
    print(f"{name}: {count} files")
    print(f"  import and validate        {len(good):5} = {len(good) / count:.1%}")
    print(f"  with 95 % of elements      {len(whole):5} = {len(whole) / count:.1%}")
    print(
        f"  elements mapped            {elements - lost:5} of {elements} = {(elements - lost) / max(1, elements):.1%}"
    )
    tested = [each for each in good if each.tested is not None]
    if tested:
        print(f"  flow tests pass            {sum(bool(each.tested) for each in tested):5} of {len(tested)}")
    if verbose:
        for each in measured:
            if each.problem or each.share < 0.95 or each.tested is False:
                failing = "tests fail" if each.tested is False else ""
                print(f"  {each.share:6.1%} {each.source}: {each.problem or failing}")
        for note, times in Counter(note for each in good for note in each.notes).most_common(40):
            print(f"  {times:4} × {note[:150]}")


if __name__ == "__main__":
    sys.exit(main())
