"""The documentation's site: every page is in it once, every link leads somewhere, every block is run, and nothing in
a page comes from another machine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from textwrap import dedent
from threading import Thread

import pytest

from flowengine.flowfile.loader import check_text
from tests.docs.test_howtos import PAGES as RUN_AS_THEY_STAND
from tests.docs.test_serving_pages import check_words
from tests.support.browser import Browser, browser
from tests.support.doc_blocks import DOCS
from tests.support.require import require, require_package

__all__ = ["browser"]

ROOT = Path(__file__).parents[2]
PAGES = sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))
FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)

RUN_BY = {
    "client.md": "tests/web/client/test_clients.py",
    "importing.md": "tests/importers/test_import_command.py",
    "deploying.md": "tests/docs/test_serving_pages.py",
    "openai.md": "tests/web/openai/test_chat_clients.py",
    "pull-requests.md": "tests/cli/test_plan_change.py",
    **dict.fromkeys(("serving.md", "viewer.md"), "tests/docs/test_serving_pages.py"),
    "samples.md": "tests/docs/test_docs.py",
    **dict.fromkeys(("mcp.md", "pages.md", "flow-format.md"), "tests/docs/test_site.py"),
    **dict.fromkeys(
        (
            "approvals.md",
            "experiments.md",
            "files.md",
            "models.md",
            "pictures.md",
            "queue.md",
            "risks.md",
            "schedules.md",
        ),
        "tests/docs/test_docs.py",
    ),
    **dict.fromkeys(("steps.md", "tutorial.md"), "tests/docs/test_docs.py"),
}
"""Page → the tests that run its blocks."""


@cache
def text_of(page: str) -> str:
    return (DOCS / page).read_text("utf-8")


def without_blocks(page: str) -> str:
    return FENCED.sub("", text_of(page))


@cache
def anchors_of(page: str) -> frozenset[str]:
    """Of its headings, as the site and the repository's pages make them."""
    headings = re.findall(r"^#+ (.+)$", without_blocks(page), re.MULTILINE)
    slugs = (re.sub(r"[^\w\- ]", "", each.lower()).strip().replace(" ", "-") for each in headings)
    return frozenset(slugs)


def broken_links(page: str) -> Iterator[str]:
    for link in re.findall(r"(?<!\\)\]\(([^)\s]+)\)", without_blocks(page)):
        path, _, anchor = link.partition("#")
        if "://" in link or link.startswith("mailto:"):
            continue
        file = (DOCS / page).parent / path if path else DOCS / page
        target = os.path.relpath(file.resolve(), DOCS.resolve())
        is_page = file.is_file() and not target.startswith("..")
        if not is_page or (anchor and target.endswith(".md") and anchor not in anchors_of(target)):
            yield link


@pytest.mark.parametrize("page", PAGES)
def test_links_of_a_page_lead_to_pages_and_headings(page: str):
    assert list(broken_links(page)) == []


def test_every_page_is_in_the_navigation_once():
    listed = re.findall(r"^ +- (?:[\w ]+: )?([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    assert Counter(listed) == Counter(PAGES)


def test_every_block_is_run():
    with_blocks = {page for page in PAGES if FENCED.search(text_of(page))}
    assert with_blocks == {*RUN_BY, *RUN_AS_THEY_STAND}
    assert [page for page, test in RUN_BY.items() if page not in (ROOT / test).read_text("utf-8")] == []


def test_blocks_that_no_test_can_run_set_up_a_machine_or_name_what_is_there():
    """Blocks without a language: lines that an administrator types, and calls inside of a program."""
    plain = [text for page in PAGES for _, kind, text in FENCED.findall(text_of(page)) if not kind]
    calls = [text for text in plain if "await " in text]
    setting_up = r"(?:export \w+=|createuser |createdb |pip install |[*\d/]+ [*\d]+ \* \* [*\d] )"
    assert [text for text in plain if text not in calls and not re.match(setting_up, text)] == []
    named = [
        each for text in calls for each in re.findall(r"await (\w+)\(.*# (flowengine(?:\.\w+)*)$", text, re.MULTILINE)
    ]
    assert len(named) == 2
    assert [name for name, module in named if not hasattr(import_module(module), name)] == []


def test_the_flows_of_the_rules_have_no_errors():
    found = [dedent(text) for _, kind, text in FENCED.findall(text_of("flow-format.md")) if kind == "yaml"]
    assert found
    for text in found:
        assert [str(each) for each in check_text(text, "rules.yaml")] == []


def test_the_settings_of_mcp_clients_start_a_command_that_is_there():
    [text] = [text for _, kind, text in FENCED.findall(text_of("mcp.md")) if kind == "json"]
    server = json.loads(text)["mcpServers"]["flows"]
    assert server["command"] == "flowengine"
    check_words(server["args"])


def test_the_javascript_of_pages_parses(tmp_path: Path):
    node = require("node")
    blocks = [text for _, kind, text in FENCED.findall(text_of("pages.md")) if kind == "js"]
    assert len(blocks) == 2
    (tmp_path / "page.mjs").write_text("\n".join(blocks))
    done = subprocess.run([node, "--check", str(tmp_path / "page.mjs")], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


# --- The site itself


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by its one command, where no other machine can be reached."""
    require_package("mkdocs", "docs")
    folder = tmp_path_factory.mktemp("site")
    nowhere = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **nowhere}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Generator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.mark.long
def test_every_page_is_there_as_html_and_as_markdown_and_llms_txt_lists_it(site: Path):
    index = (site / "llms.txt").read_text("utf-8")
    assert index.startswith("# FlowEngine\n\n> ")
    listed = re.findall(r"^- \[[^\]]+\]\(([^)]+)\): \S.*\.$", index, re.MULTILINE)
    assert sorted(listed) == PAGES
    for page in PAGES:
        assert (site / page).read_text("utf-8") == text_of(page)
        html = site / (page if page == "index.md" else page.removesuffix(".md") + "/index.md")
        html = html.with_suffix(".html")
        [link] = re.findall(r'<link rel="alternate" type="text/markdown" href="([^"]+)">', html.read_text("utf-8"))
        assert (html.parent / link).resolve() == (site / page).resolve()
    assert list(site.rglob("*.py")) == []


@pytest.mark.long
def test_nothing_of_a_page_comes_from_another_machine(site: Path):
    loaded = re.compile(
        r"""(?:<(?:script|img|iframe|source|link(?![^>]*rel="?canonical))\b[^>]*(?:src|href)=|url\()["']?"""
        r"""((?:https?:)?//[^"'> )]+)"""
    )
    files = [each for suffix in ("html", "css") for each in site.rglob(f"*.{suffix}")]
    assert len(files) > len(PAGES)
    assert {url for file in files for url in loaded.findall(file.read_text("utf-8"))} == set()


@pytest.mark.long
def test_the_site_is_searched_in_a_browser(address: str, browser: Browser):
    with browser.tab() as tab:
        tab.goto(address)
        tab.wait("document.querySelector('.md-search-result__meta')?.textContent.includes('Type to start')", 60)
        tab.fill("input[name=query]", "until")
        tab.press("input[name=query]", "End")  # The page hears keys that are let go.
        found = "document.querySelector('ol.md-search-result__list').textContent"
        tab.wait(f"{found}.includes('Map and reduce')", 30)
        tab.goto(f"{address}flow-format/")
        counts = "each => document.querySelectorAll('article ol > li ' + each).length"
        inner = re.findall(r"^ {3,4}- ", text_of("flow-format.md"), re.MULTILINE)
        assert tab.evaluate(counts, "> ul > li") == len(inner) > 5  # Lists and tables inside of rules are such.
        assert tab.evaluate(counts, "table") == 1
        assert [each for each in tab.requests if not each.startswith((address, "data:"))] == []
        assert tab.trouble == []
