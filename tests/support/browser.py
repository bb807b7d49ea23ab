"""A real browser for tests: headless Chromium, driven by Playwright on a thread of its own.

    def test_it_opens(browser):
        with browser.tab() as tab:
            tab.goto("file:///tmp/run.html")
            assert tab.inner_text("h1") == "research"
            assert tab.trouble == []

Playwright's synchronous interface leaves an event loop running on its thread, where no test of asynchronous code
could run any more; hence the thread. A test imports the fixture in its `conftest.py`:
`from tests.support.browser import browser` (and names it in `__all__`).
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import pytest

from tests.support.require import missing, require_package

__all__ = ["LOOKS", "Browser", "Tab", "browser", "open_browser"]

CHROMIUM: Final = shutil.which("chromium")
"""Where the browser is; None where it is not installed."""
ARGUMENTS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
STARTS: Final = 180
"""Seconds that its start may take, on a machine that does much else: the tests of a session share one."""

LOOKS: Final = ((1280, "light"), (390, "dark"))
"""Width and colour scheme of a desk and of a hand."""


class Tab:
    """One page with an empty profile. Every method of Playwright's `Page` is here, called on the browser's thread."""

    def __init__(self, call: Callable[..., Any], page: Any) -> None:
        self._call = call
        self._page = page
        self.trouble: list[str] = []
        """Errors of scripts, and whatever the console holds that is worse than information."""
        self.requests: list[str] = []
        """Every address that was asked for."""
        self._is_changed = False
        self._listeners = {"pageerror": self._fail, "console": self._hear, "request": self._ask}
        for event, listener in self._listeners.items():
            page.on(event, listener)

    def add_init_script(self, script: str) -> None:
        """Run a script in each page before its own; where it stays, this tab is nobody else's any more."""
        self._is_changed = True
        self._call(self._page.add_init_script, script)

    def empty(self) -> bool:
        """Leave nothing of what was opened; whether that can be said. On the browser's thread."""
        for event, listener in self._listeners.items():
            self._page.remove_listener(event, listener)
        origins = {"/".join(url.split("/")[:3]) for url in self.requests if not url.startswith("data:")}
        if self._is_changed or len(origins) != 1 or len(self._page.context.pages) != 1:
            return False
        self._page.evaluate("sessionStorage.clear(); localStorage.clear()")
        self._page.goto("about:blank")
        self._page.mouse.move(0, 0)
        self._page.emulate_media(media="null", reduced_motion="null", forced_colors="null")
        self._page.context.clear_cookies()
        session = self._page.context.new_cdp_session(self._page)
        for command in ("Page.resetNavigationHistory", "Network.clearBrowserCache"):
            session.send(command)
        session.detach()
        return True

    def _fail(self, error: Any) -> None:
        self.trouble.append(f"error: {error}")

    def _ask(self, request: Any) -> None:
        self.requests.append(request.url)

    def _hear(self, message: Any) -> None:
        if message.type in ("error", "warning", "assert"):
            self.trouble.append(f"{message.type}: {message.text}")

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(self._call, getattr(self._page, name))

    def key(self, name: str) -> None:
        """Press a key, wherever the focus is."""
        self._call(self._page.keyboard.press, name)

    def type_text(self, text: str) -> None:
        """Type where the focus is."""
        self._call(self._page.keyboard.type, text)

    def drag(self, begin: tuple[int, int], end: tuple[int, int]) -> None:
        """Press at one point, move in steps, let go at another."""
        mouse = self._page.mouse
        for act, arguments, options in (
            (mouse.move, begin, {}),
            (mouse.down, (), {}),
            (mouse.move, end, {"steps": 5}),
            (mouse.up, (), {}),
        ):
            self._call(act, *arguments, **options)

    def look(self, width: int, scheme: str, height: int = 800) -> None:
        """Give it a size and a colour scheme; a page that is opened from now on finds these."""
        self._call(self._page.set_viewport_size, {"width": width, "height": height})
        self._call(self._page.emulate_media, color_scheme=scheme)

    def wheel(self, at: tuple[int, int], by: int) -> None:
        self._call(self._page.mouse.move, *at)
        self._call(self._page.mouse.wheel, 0, by)

    def texts(self, selector: str) -> list[str]:
        """The texts of all elements like that, with blanks made single."""
        found: list[str] = self.eval_on_selector_all(selector, "all => all.map(each => each.textContent)")
        return [" ".join(text.split()) for text in found]

    def wait(self, expression: str, timeout: float = 60.0) -> None:
        """Until an expression of the page's script is true. (Playwright's own way needs `eval` inside the page.)"""
        deadline = time.monotonic() + timeout
        while not self._is_true(expression):
            assert time.monotonic() < deadline, f"not true within {timeout:g} s: {expression}; trouble: {self.trouble}"
            time.sleep(0.02)

    def _is_true(self, expression: str) -> bool:
        try:
            return bool(self.evaluate(expression))
        except Exception as error:
            if "context was destroyed" in str(error):  # The page is giving way to another one.
                return False
            raise


class Browser:
    """Headless Chromium."""

    def __init__(self, call: Callable[..., Any], chromium: Any) -> None:
        self._call = call
        self._chromium = chromium
        self._left: Any = None
        """A page that a test has left, empty."""

    @contextmanager
    def tab(self, width: int = 1280, height: int = 800, scheme: str = "light", **options: Any) -> Generator[Tab]:
        """A page in an empty profile; `options` are those of Playwright's `new_context`.

        A page that another test has left is emptied and taken again: a new one has a process of its own, which takes
        longer than most tests. A test that fails, or asks for options, leaves none.
        """
        page, self._left = (None, self._left) if options else (self._left, None)
        if page is None:
            page = self._call(lambda: self._chromium.new_context(**options).new_page())
        context = page.context
        try:
            tab = self._call(Tab, self._call, page)
            tab.look(width, scheme, height)
            yield tab
            if not options and self._left is None and self._call(tab.empty):
                self._left, context = page, None
        finally:
            if context is not None:
                self._call(context.close)


@pytest.fixture(scope="session")
def browser() -> Generator[Browser]:
    """One browser for all tests of a session."""
    if CHROMIUM is None:
        missing("`chromium` is not installed (apt-get install chromium)")
    require_package("playwright", "browser")
    with open_browser() as found:
        yield found


@contextmanager
def open_browser() -> Generator[Browser]:
    """A browser for as long as the block lasts."""
    from playwright.sync_api import sync_playwright

    with ThreadPoolExecutor(1, "browser") as thread:

        def call(function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Any:
            return thread.submit(function, *arguments, **options).result()

        driver = call(sync_playwright().start)
        try:
            chromium = call(
                driver.chromium.launch, executable_path=CHROMIUM, args=list(ARGUMENTS), timeout=STARTS * 1000
            )
            yield Browser(call, chromium)
            call(chromium.close)
        finally:
            call(driver.stop)
