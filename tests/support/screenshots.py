"""`python -m tests.support.screenshots`: the pictures of pages that the documentation shows, made anew."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import sync_playwright

from flowengine.core.context import NodeResult
from flowengine.engine.events import NodeFinished, RunStarted
from tests.support.browser import ARGUMENTS, CHROMIUM
from tests.support.page_server import page_server
from tests.support.sample_run import research_run
from visualize.viewer.comparison import compare_page
from visualize.viewer.reading import Reading

__all__ = ["make"]

IMAGES: Final = Path(__file__).parents[2] / "flowengine" / "docs" / "images"
RUN: Final = "/runs/2f6c41d09b"
SHOTS: Final[dict[str, tuple[str, int, int, str]]] = {
    "viewer-run.png": (f"{RUN}#node=draft", 1360, 1040, "light"),
    "viewer-moment-dark.png": (f"{RUN}#node=polish&at=44", 1280, 800, "dark"),
    "viewer-approval-phone.png": (f"{RUN}#node=ask", 390, 800, "light"),
    "viewer-compare.png": ("/compare", 1280, 800, "light"),
}
"""File → address, width, height and theme."""
NOW: Final = "2026-01-01T10:13:06.100Z"
"""The moment that pages show: the run waits since then."""


def make(folder: Path) -> None:
    """Write all pictures into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with page_server(research_run()) as server, sync_playwright() as driver:
        server.pages["/compare"] = compare_page(Reading(research_run()), Reading(_other()))
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        for name, (address, width, height, scheme) in SHOTS.items():
            page: Any = chromium.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            page.clock.set_fixed_time(NOW)
            page.goto(f"{server.url}{address}")
            page.wait_for_timeout(500)
            page.screenshot(path=folder / name)
        chromium.close()


def _other() -> list[Any]:
    """The same run with another first draft."""
    start, *events = research_run()
    assert isinstance(start, RunStarted)
    other = [
        event._replace(result=NodeResult("Bees learn landmarks, and fly by them."))
        if isinstance(event, NodeFinished) and event.node == "draft"
        else event
        for event in events
    ]
    return [start._replace(run_id="9a07be3c11", inputs={"question": "How do bees fly home?"}), *other]


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES)
