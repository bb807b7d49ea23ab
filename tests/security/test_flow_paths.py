"""Attempts by flows to name files that are kept from them: keys, hidden folders, pipes, files of other programs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flowengine.agents.context.factory import ContextProviderFactory
from flowengine.agents.context.provider import OutsideError
from flowengine.agents.skills.skill_files import RefusedError
from flowengine.agents.skills.skill_store import SkillStore
from flowengine.builder import FlowBuilder
from flowengine.core.flow_paths import RefusedPathError, open_regular, resolve_path, resolve_store
from flowengine.errors import DefinitionError, FlowError, ProjectError
from flowengine.flow import Flow
from flowengine.flowfile.loader import check_file
from flowengine.flowfile.project.project import Project

HEAD = "flowengine: v1\nname: a\n"
SECRET = "OPENAI_API_KEY=sk-not-for-flows\n"
SKILL = "---\nname: NAME\ndescription: Does it.\n---\nDo it.\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with a file of every sort that a flow may not name."""
    root = tmp_path / "root"
    for folder in (".git", ".venv/lib", ".flowengine", "docs/.private", "open"):
        (root / folder).mkdir(parents=True)
    for file in (".env", ".git/config", "docs/.private/a.md", "server.key", "cert.PEM", "flowengine.toml", "a.md"):
        (root / file).write_text(SECRET if file != "flowengine.toml" else "")
    for name in (".git", ".venv/lib", "docs/.private", "open"):
        (root / name / "SKILL.md").write_text(SKILL.replace("NAME", Path(name).name.strip(".")))
    (root / "notes.md").symlink_to(".env")
    (root / "texts").symlink_to(".git")
    (root / "code").symlink_to(".git/..")
    os.mkfifo(root / "pipe")
    os.mkfifo(root / "pipe.db")
    (root / "x.db").symlink_to(".flowengine/runs.db")
    (root / "y.db").symlink_to("a.yaml")
    return root


FILES = [".env", ".git/config", "docs/.private/a.md", "server.key", "cert.PEM", "notes.md", "texts/config", "./.env"]
FOLDERS = [".git", "texts", "docs/.private", ".venv/lib", "open/../.git"]
STORES = [
    *(".env", "flowengine.toml", "pyproject.toml", "x.yaml", "open/x.yml", "x.json", "tools.py", "index", "a.md"),
    *(".flowengine/runs.db", ".venv/lib/x.db", "x.db", "y.db", "pipe.db", "pipe", "docs/.hidden.db", "x.db/"[:-1]),
]
READING = {
    "a subflow": ("{type: subflow, flow: 'PATH'}", [*FILES, "pipe"]),
    "a file": ("{prompt: x, context: [fixed_file: {file_path: 'PATH'}]}", [*FILES, "pipe"]),
    "a file of documents": ("{prompt: x, context: [retrieval: {documents: 'PATH'}]}", [*FILES, *FOLDERS, "pipe"]),
    "a folder of code": ("{prompt: x, context: [source_code: {codebase_path: 'PATH'}]}", FOLDERS),
    "skills": ("{prompt: x, skills: ['PATH']}", FOLDERS),
}
WRITING = {
    "an index": "{prompt: x, context: [retrieval: {documents: docs, store: 'PATH'}]}",
    "an index by its settings": "{prompt: x, context: [retrieval: {documents: docs, settings: {path: 'PATH'}}]}",
    "a memory": "{prompt: x, memory: {store: 'PATH'}}",
    "a memory as a source": "{prompt: x, context: [long_term_memory: {store: 'PATH'}]}",
    "the memory of an agent": "{prompt: x, agent: {memory: {store: 'PATH'}}}",
}
NAMED = [
    *((place, text, path) for place, (text, paths) in READING.items() for path in paths),
    *((place, text, path) for place, text in WRITING.items() for path in STORES),
]


def tree(root: Path) -> dict[str, bytes]:
    found = {str(each.relative_to(root)): each for each in root.rglob("*") if each.is_file()}
    return {name: file.read_bytes() for name, file in found.items()}


@pytest.mark.parametrize(("place", "text", "path"), NAMED)
def test_no_flow_names_a_file_that_is_kept_from_flows(place: str, text: str, path: str, root: Path) -> None:
    before = tree(root)
    flow = f"{HEAD}nodes:\n  a: {text.replace('PATH', path)}\n"
    (root / "flow.yaml").write_text(flow)
    found = [each for each in check_file(root / "flow.yaml", project=Project(root)) if each.severity == "error"]
    assert [each.code for each in found] == ["FE503"], found
    assert (found[0].line, found[0].node) == (4, "a")
    with pytest.raises(FlowError, match="FE503"):
        Flow.from_text(flow, root / "carried.yaml")
    (root / "flow.yaml").unlink()
    assert tree(root) == before


@pytest.mark.parametrize(
    ("keys", "path"),
    [
        ({"context": [{"fixed_file": {"file_path": ".env"}}]}, ".env"),
        ({"context": [{"type": "retrieval", "documents": ".git"}]}, ".git"),
        ({"memory": {"store": "x.yaml"}}, "x.yaml"),
        ({"skills": [".git"]}, ".git"),
    ],
)
def test_a_flow_that_is_built_in_python_with_the_files_words_is_judged_as_a_file_is(
    keys: dict[str, object], path: str, root: Path
) -> None:
    builder = FlowBuilder("built")
    builder.agent("a", prompt="x", **keys)
    with pytest.raises(FlowError, match=f"FE503.*'{path}'"):
        builder.build(root=root)


def test_a_default_of_all_agents_is_judged_too(root: Path) -> None:
    text = f"{HEAD}defaults: {{agent: {{memory: {{store: .env}}}}}}\nnodes: {{a: {{prompt: x}}}}\n"
    with pytest.raises(FlowError, match="FE503"):
        Flow.from_text(text, root / "flow.yaml")


@pytest.mark.parametrize(
    "entry",
    [
        {"fixed_file": {"file_path": ".env"}},
        {"source_code": {"codebase_path": ".git"}},
        {"retrieval": {"documents": "docs", "store": "a.yaml"}},
    ],
)
def test_a_configuration_with_a_root_is_judged_as_a_flow_is(entry: dict[str, dict[str, str]], root: Path) -> None:
    with pytest.raises(OutsideError):
        ContextProviderFactory.create_from_config([entry], root=root)


def test_what_a_flow_may_name_is_named(root: Path) -> None:
    (root / "a.yaml").write_text(f"{HEAD}nodes: {{a: {{prompt: x}}}}\n")
    (root / "again").symlink_to("open")
    for path in ("a.md", "docs", "open", "docs/../a.md", ".git/../a.md", "again", "a.yaml"):
        assert resolve_path(path, root) == (root / path).resolve()
    for path in ("index.db", "new/folder/memory.sqlite", "memory.SQLite3"):
        assert resolve_store(path, root) == root / path
    text = (
        f"{HEAD}nodes: {{a: {{prompt: x, memory: {{}}, skills: [open], context: [fixed_file: {{file_path: a.md}}]}}}}\n"
    )
    assert Flow.from_text(text, root / "flow.yaml").name == "a"


def test_a_projects_root_may_itself_be_hidden(tmp_path: Path) -> None:
    root = tmp_path / ".config" / "flows"
    root.mkdir(parents=True)
    (root / "a.md").touch()
    assert resolve_path("a.md", root) == root / "a.md"


def test_the_projects_own_choice_of_a_memory_is_not_a_flows(root: Path) -> None:
    project = Project(root, memory={"store": ".flowengine/shared.db"})
    (root / "flow.yaml").write_text(f"{HEAD}nodes: {{a: {{prompt: x, memory: {{scope: channel, scope_id: C1}}}}}}\n")
    assert check_file(root / "flow.yaml", project=project) == []


@pytest.mark.parametrize("path", ["a\0b", "loop/x", "x" * 5_000])
def test_what_is_no_path_is_refused(path: str, root: Path) -> None:
    (root / "loop").symlink_to("loop")
    with pytest.raises(RefusedPathError, match="cannot be a path"):
        resolve_path(path, root)
    with pytest.raises(ProjectError, match="cannot be a path"):
        Project(root).resolve(path)


def test_a_pipe_is_opened_by_nobody(root: Path) -> None:
    with pytest.raises(OSError, match="no regular file"):
        open_regular(root / "pipe")
    with pytest.raises(DefinitionError, match="no regular file"):
        ContextProviderFactory.create_from_config([{"fixed_file": {"file_path": str(root / "pipe")}}])


def test_a_folder_of_code_with_a_pipe_for_its_ignored_files_is_read(root: Path) -> None:
    os.mkfifo(root / "docs" / ".gitignore")
    (root / "docs" / "a.py").write_text("def teapot(): ...\n")
    (provider,) = ContextProviderFactory.create_from_config([{"source_code": {"codebase_path": "docs"}}], root=root)
    assert "teapot" in str(provider.get_context("teapot"))


# --- subflows


def test_dots_behind_a_link_lead_to_no_file_outside(root: Path) -> None:
    deep = root / "open" / "deep"
    deep.mkdir()
    (root / "short").symlink_to(deep)
    (root / "open" / "inner.yaml").write_text(f"{HEAD}nodes: {{inside: {{prompt: x}}}}\n")
    (root.parent / "inner.yaml").write_text(f"{HEAD}nodes: {{outside: {{prompt: x}}}}\n")
    (root / "flow.yaml").write_text(f"{HEAD}nodes: {{a: {{type: subflow, flow: short/../inner.yaml}}}}\n")
    plan = Flow.from_yaml(root / "flow.yaml").plan
    assert list(plan.definitions["a"].inside) == ["inside"]


# --- skills


def names(store: SkillStore) -> set[str]:
    return {each.name for each in store.skills()}


def test_a_flows_folder_of_skills_gives_nothing_that_is_hidden(root: Path) -> None:
    (root / "linked").mkdir()
    (root / "linked" / "SKILL.md").symlink_to("../.env")
    assert names(SkillStore([root], hidden=False)) == {"open"}
    assert {"open", "git", "private"} <= names(SkillStore([root, root / ".git"]))


@pytest.mark.parametrize("path", [".env", "references/.env", "keys/a.pem", "note.md", "pipe"])
def test_a_skill_gives_no_file_that_is_kept_from_flows(path: str, root: Path) -> None:
    skill = root / "open"
    for file in (".env", "references/.env", "keys/a.pem"):
        (skill / file).parent.mkdir(exist_ok=True)
        (skill / file).write_text(SECRET)
    (skill / "note.md").symlink_to(".env")
    os.mkfifo(skill / "pipe")
    store = SkillStore(skill)
    with pytest.raises(RefusedError):
        store.file(store.skills()[0], path)
