"""What the tests of templates share: times are those of the template, not of a collector at work for other tests."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def nothing_old_to_collect() -> Iterator[None]:
    """What other tests of this process have left is not gone through while a time is taken."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
