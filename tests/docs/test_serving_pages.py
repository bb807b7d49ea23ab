"""What the pages on serving and deploying write can be typed and parsed as it stands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
import yaml

import flowengine
from flowengine.cli.main import cli
from flowengine.flowfile.project.project import project_of

DOCS = Path(flowengine.__file__).parent / "docs"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def check_words(words: list[str]) -> None:
    """Each command and option is there."""
    group: click.Command = cli
    context = click.Context(cli)
    while isinstance(group, click.Group) and words and not words[0].startswith("-"):
        found = group.get_command(context, words[0])
        assert found is not None, words
        group, words = found, words[1:]
    known = {option for each in group.get_params(context) for option in each.opts}
    for word in words:
        if word.startswith("-") and len(word) > 1:
            assert word.partition("=")[0] in known, (group.name, word)


@pytest.mark.parametrize("page", ["serving.md", "deploying.md", "queue.md", "viewer.md"])
def test_every_command_of_the_pages_is_there(page: str):
    text = (DOCS / page).read_text("utf-8")
    lines = re.findall(r"(?:^|[ `/])flowengine ((?:[a-z]+ )?[a-z]+ [^`|\n>]*)", text, re.MULTILINE)
    known = cli.list_commands(click.Context(cli))
    commands = [shlex.split(line, comments=True) for line in lines if line.split()[0] in known]
    assert len(commands) >= 5
    for words in commands:
        check_words(words)


def test_commands_that_texts_name_are_there():
    known, found = cli.list_commands(click.Context(cli)), 0
    for page in sorted(DOCS.rglob("*.md")):
        for line in re.findall(r"`flowengine ([^`]+)`", page.read_text("utf-8")):
            if line.split()[0] in known and page.name != "commands.md":
                check_words(shlex.split(line.replace("|", " ")))
                found += 1
    assert found > 80


def test_the_arguments_of_containers_are_those_of_commands():
    found = 0
    for kind, text in BLOCK.findall((DOCS / "deploying.md").read_text("utf-8")):
        if kind == "dockerfile":
            check_words(yaml.safe_load(re.findall(r"^CMD (\[.*\])$", text, re.MULTILINE)[0]))
            found += 1
        for document in yaml.safe_load_all(text) if kind == "yaml" else ():
            services = document.get("services", {}).values()
            containers = document.get("spec", {}).get("template", {}).get("spec", {}).get("containers", ())
            for words in [each.get("command") or each.get("args") for each in (*services, *containers)]:
                if words is not None:
                    check_words(words)
                    found += 1
    assert found == 5


def test_the_project_file_of_the_page_is_right(tmp_path: Path):
    [text] = [text for kind, text in BLOCK.findall((DOCS / "serving.md").read_text("utf-8")) if kind == "toml"]
    (tmp_path / "flowengine.toml").write_text(text)
    project, problems = project_of(tmp_path)
    assert problems == []
    assert project.webhooks[0].inputs_from({"body": {"issue": {"title": "a", "body": "b"}}}) == {"message": "a\nb"}
