"""What tests of pages share: a real browser."""

from tests.support.browser import browser

__all__ = ["browser"]
