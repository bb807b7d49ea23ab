"""Files in an exported page: small images as data, everything else by its name."""

from __future__ import annotations

from flowengine.core.context import Context
from flowengine.core.file_values import FileValue
from flowengine.errors import StoreUnavailableError
from flowengine.flow import Flow
from flowengine.journal.memory import MemoryStore
from flowengine.nodes.function import FunctionNode
from tests.support.small_png import small_png
from visualize.viewer.parts import Embedded
from visualize.viewer.reading import Reading
from visualize.viewer.run import export_page, run_page

PICTURE = small_png()


def make(context: Context) -> object:
    return {"picture": PICTURE, "drawing": b"<svg><script>1</script></svg>", "big": PICTURE + bytes(1_000_000)}


def test_an_exported_page_holds_small_images_and_names_the_rest():
    store = MemoryStore()
    run = Flow("files", {"make": FunctionNode(make)}).run_sync({}, store=store)
    page = export_page(Reading(run.events), store.read_blob)
    assert page.count("data:image/png;base64,") == 2  # In the panel, and among the outputs.
    assert page.count("(left out of this page)") == 2
    assert page.count('href="data:application/octet-stream;base64,PHN2Zz48c2NyaXB0PjE8L3NjcmlwdD48L3N2Zz4="') == 2
    assert "data:image/svg+xml;base64" not in page  # As files are written; the icon of the page is another.
    assert "<script>1" not in page
    assert "img-src data:" in page
    assert len(page) < 1_000_000
    without = export_page(Reading(run.events))
    assert "data:image/png" not in without
    assert without.count("(left out of this page)") == 6
    live = run_page(Reading(run.events))
    assert "data:image/png" not in live
    assert f"/runs/{run.id}/files/" in live


def test_a_page_holds_so_many_bytes_of_images_and_no_more():
    contents = {str(number) * 64: PICTURE + bytes([number]) + bytes(999_000) for number in range(10)}
    embeds = Embedded(contents.__getitem__)
    files = [FileValue(blob, "image/png", f"{blob[0]}.png", len(found)) for blob, found in contents.items()]
    assert [embeds.address(each) is not None for each in files] == [True] * 8 + [False] * 2
    assert embeds.address(files[0]) is not None


def test_an_image_that_is_gone_or_is_larger_than_it_says_is_left_out():
    def gone(blob: str) -> bytes:
        raise StoreUnavailableError("gone")

    file = FileValue("0" * 64, "image/png", "x.png", 3)
    assert Embedded(gone).address(file) is None
    assert Embedded(lambda blob: bytes(2_000_000)).address(file) is None
