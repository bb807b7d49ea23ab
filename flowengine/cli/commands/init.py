"""`flowengine init` writes a project to begin with: a flow, its test, the project file, and the schema for editors.

With `--agents` it writes what coding agents read instead. It overwrites no file, unless told to.
"""

from __future__ import annotations

import os
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

import flowengine
from flowengine.cli.terminal import complain
from flowengine.core import dumps, tells_refusals, write_output
from flowengine.errors import InputError, did_you_mean
from flowengine.flowfile.schema import json_schema

SCHEMA: Final = ".flowengine/flow-v1.schema.json"
_COMPANION_FILES: Final = {
    "parallel_research": ("wider_search.yaml", "research_tools.py"),
    "support_triage": ("knowledge/policies.md",),
    "answer_with_citations": ("knowledge/policies.md",),
    "graceful_failure": ("tool_agent_tools.py",),
    "report_with_failures": ("tool_agent_tools.py",),
    "tool_agent": ("tool_agent_tools.py",),
    "call_tools": ("tool_agent_tools.py",),
    "handoff": ("tool_agent_tools.py",),
    "refund_desk": ("tool_agent_tools.py",),
    "channel_reply": ("channel_reply_tools.py",),
    "team_memory": ("team_memory_tools.py",),
    "repair_desk": ("repair_desk_contexts.py",),
    "check_invoice": (
        "skills/check-invoice/SKILL.md",
        "skills/check-invoice/scripts/add_up.py",
        "skills/check-invoice/references/rates.md",
        "skills/polite-letter/SKILL.md",
    ),
}
"""Files an example needs beside its own."""
_PROJECT_FILE: Final = """\
# What the flows of this folder may do. `flowengine explain FE502` lists all keys.
# allow_calls: modules that `call:` and `tools:` may import. With this file only those in the list; without it, every
# module in a flow's folder. So add each new one: allow_calls = ["my_tools"].
# allow_env: variables that templates may read.
allow_calls = {calls}
allow_env = []
"""
_REACHES: Final = (
    ("allow_mcp", "mcp_servers:", "commands and addresses of MCP servers that agents and nodes may use."),
    ("allow_http", "type: http", "where requests may go, each followed by the variables that may be sent there."),
)
"""Key of the project file, what a flow says that needs it, and what it is."""
_GITIGNORE: Final = ".flowengine/runs.db*\n.flowengine/*.locks\n.env\n"


@click.command("init")
@click.argument("folder", metavar="[FOLDER]", default=".")
@click.option("--example", "name", metavar="NAME", help="The example to copy.  [default: hello]")
@click.option("--list", "listing", is_flag=True, help="List the examples.")
@click.option(
    "--agents", is_flag=True, help="Write AGENTS.md and a skill for coding agents; a flow only with --example."
)
@click.option(
    "--skills-folder",
    default=".agents/skills",
    show_default=True,
    metavar="FOLDER",
    help="With --agents: folder of the skill, below FOLDER; `.claude/skills` for Claude Code.",
)
@click.option("--force", is_flag=True, help="With --agents: overwrite existing files.")
def command(folder: str, name: str | None, listing: bool, agents: bool, skills_folder: str, force: bool) -> int:
    """Write a project into FOLDER: a flow with a test, the project file, and a schema that editors complete from.

    Files that are there already are left as they are. With --agents, an AGENTS.md and a skill are written that say to a
    coding agent how flows are written, checked and tested here; where one of these files is there, none is written.
    """
    if force and not agents:
        raise click.UsageError("--force goes with --agents: examples overwrite nothing")
    examples = {path.stem: path for path in sorted(examples_folder().glob("*.yaml"))}
    if listing:
        for each in examples:
            click.echo(each)
        return 0
    example = "hello" if name is None else name
    if example not in examples:
        hint = did_you_mean(example, examples) or f"; there are: {', '.join(examples)}"
        raise InputError(f"there is no example '{example}'{hint}")
    if not folder.strip():
        raise InputError("FOLDER is empty; '.' is the folder that you are in")
    root = Path(folder)
    if root.exists() and not root.is_dir():
        raise InputError(f"{root} is no folder")
    if agents:
        _write_agent_files(root, skills_folder, force)
        if name is None:
            return 0
    files = [path for path, text in _list_files(example, examples[example], root) if _write(root, path, text)]
    for path in files:
        complain(f"wrote {root / path}")
    if not files:
        complain("everything is there already")
    enter = "" if root == Path() else f"cd {shlex.quote(folder)}; "
    complain(f"next: {enter}flowengine validate {example}.yaml; flowengine test")
    return 0


def _write_agent_files(root: Path, skills_folder: str, is_forced: bool) -> None:
    from flowengine.cli.agent_files import make_agent_files  # It needs every kind of node and every command.

    if Path(skills_folder).is_absolute() or ".." in Path(skills_folder).parts:
        raise InputError(f"'{skills_folder}' is no folder below {root}: the skill belongs to the project")
    files = make_agent_files(skills_folder)
    there = [] if is_forced else [root / path for path in files if os.path.lexists(root / path)]
    if there:
        raise InputError(f"{there[0]} is there already; --force writes over it, and nothing was written now")
    for path in files:
        _check_place(root, root / path)
    for path, text in files.items():
        if _write(root, path, text, is_forced=is_forced):
            complain(f"wrote {root / path}")


def examples_folder() -> Path:
    """In an installation beside the code, in a checkout beside the package."""
    package = Path(flowengine.__file__).parent
    installed = package / "examples"
    return installed if installed.is_dir() else package.parent / "flows"


def _list_files(name: str, example: Path, root: Path) -> Iterator[tuple[Path, str]]:
    """Lists the files to write below `root`, with their contents."""
    there = _modules_of(root)
    folder = example.parent
    flow = example.read_text("utf-8").removeprefix(
        "# yaml-language-server: $schema=../.flowengine/flow-v1.schema.json\n"
    )
    yield Path(f"{name}.yaml"), f"# yaml-language-server: $schema={SCHEMA}\n{flow}"
    beside = [each for each in _COMPANION_FILES.get(name, ()) if (folder / each).is_file()]
    for each in beside:
        text = (folder / each).read_text("utf-8")
        yield Path(each), text.replace("$schema=../.flowengine", "$schema=.flowengine")
    test = folder / "tests" / f"{name}.flowtest.yaml"
    if test.is_file():
        yield Path("tests", test.name), test.read_text("utf-8")
    calls = sorted({*there, *(Path(each).stem for each in beside if each.endswith(".py"))})
    yield Path("flowengine.toml"), _PROJECT_FILE.format(calls=dumps(calls)) + _allowed_reaches(folder, flow)
    yield Path(SCHEMA), dumps(json_schema(), indent=2) + "\n"
    yield Path(".gitignore"), _GITIGNORE


def _modules_of(root: Path) -> set[str]:
    """The modules of a folder: what its flows may call as long as it has no project file."""
    packages = (each.parent for each in root.glob("*/__init__.py"))
    return {each.stem for each in (*root.glob("*.py"), *packages) if each.stem.isidentifier()}


def _allowed_reaches(folder: Path, flow: str) -> str:
    """Returns what the examples' own project file allows, for a flow that calls servers."""
    project = tomllib.loads((folder / "flowengine.toml").read_text("utf-8"))
    return "".join(
        f"# {key}: {what}\n{key} = {dumps(project.get(key, []))}\n" for key, sign, what in _REACHES if sign in flow
    )


def _check_place(root: Path, path: Path) -> None:
    if not path.parent.resolve().is_relative_to(root.resolve()):
        raise InputError(f"{path} would be written outside of {root}: a link leads there")


def _has_table(file: Path) -> bool:
    """Tells whether the file is a project file already."""
    try:
        tool = tomllib.loads(file.read_text("utf-8-sig")).get("tool")
    except (OSError, ValueError):
        return False
    return isinstance(tool, dict) and "flowengine" in tool


def _write(root: Path, name: str | Path, text: str, *, is_forced: bool = False) -> bool:
    """Tells whether the file is written; one that is there stays, unless it is forced."""
    path = root / name
    _check_place(root, path)
    with tells_refusals(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(path) and not is_forced:
        is_dead = path.is_symlink() and not path.exists()
        complain(f"left {path} as it is{', a link that leads to nothing' if is_dead else ''}")
        return False
    if path.name == "flowengine.toml" and _has_table(root / "pyproject.toml"):
        complain(f"wrote no {path}: the project file is [tool.flowengine] of {root / 'pyproject.toml'}")
        return False
    write_output(path, [text], follows_link=False)
    return True
