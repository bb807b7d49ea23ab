"""The index of source code: near to the query, and true to the files."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from flowengine.agents.context.source_code import index as code_index
from flowengine.agents.context.source_code.index import CodeIndex
from flowengine.agents.context.source_code.source_files import CodeTree

CART = """\
class Cart:
    def add_item(self, item):
        self.items.append(item)

    def total_price(self):
        return sum(item.price for item in self.items)
"""


def put(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def found(index: CodeIndex, query: str) -> list[str]:
    return [f"{each.path} {each.definition.name}".strip() for each in index.search(query).definitions]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    put(
        tmp_path,
        {
            "shop/cart.py": CART,
            "shop/mail.py": "def send_receipt(customer):\n    smtp.deliver(customer.address)\n",
            "web/views.ts": "export function renderCheckoutPage(cart) {\n  return html(cart);\n}\n",
            "docs/返品.md": "# 返品の期限\n\n商品到着から七日以内に連絡する。\n",
        },
    )
    return tmp_path


@pytest.fixture
def index(root: Path) -> CodeIndex:
    return CodeIndex(CodeTree(root))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("What is the total price of a cart?", "shop/cart.py Cart.total_price"),
        ("totalPrice", "shop/cart.py Cart.total_price"),
        ("sending receipts to customers", "shop/mail.py send_receipt"),
        ("checkout page", "web/views.ts renderCheckoutPage"),
        ("返品はいつまでですか", "docs/返品.md 返品の期限"),
        ("mail.py", "shop/mail.py send_receipt"),
    ],
)
def test_the_definition_that_a_query_is_about_comes_first(index: CodeIndex, query: str, expected: str) -> None:
    assert found(index, query)[0] == expected


@pytest.mark.parametrize("query", ["", "?!", '" OR *', "zebra"])
def test_a_query_without_an_answer_finds_nothing(index: CodeIndex, query: str) -> None:
    assert found(index, query) == []


def test_scores_fall_and_stay_between_zero_and_one(index: CodeIndex) -> None:
    scores = [each.score for each in index.search("cart item price").definitions]
    assert scores == sorted(scores, reverse=True)
    assert all(0 < score <= 1 for score in scores)


def test_new_changed_and_gone_files_are_noticed(root: Path, index: CodeIndex) -> None:
    assert found(index, "receipt")
    put(root, {"shop/mail.py": "def deliver_newsletter(): ...\n", "shop/stock.py": "def count_receipts(): ...\n"})
    os.utime(root / "shop/mail.py", ns=(1, 1))
    assert found(index, "receipt") == ["shop/stock.py count_receipts"]
    assert found(index, "newsletter") == ["shop/mail.py deliver_newsletter"]
    (root / "shop/stock.py").unlink()
    assert found(index, "receipt") == []


def test_a_file_that_has_not_changed_is_not_read_again(
    root: Path, index: CodeIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.search("cart")
    read: list[str] = []
    monkeypatch.setattr(code_index, "lines_of", lambda path: read.append(path.name))
    put(root, {"new.py": "x = 1\n"})
    index.search("cart")
    assert read == ["new.py"]


def test_a_file_that_vanishes_while_it_is_indexed_does_not_matter(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listing = CodeTree(root).listing()
    tree = CodeTree(root)
    monkeypatch.setattr(tree, "listing", lambda: listing)
    (root / "shop/mail.py").unlink()
    index = CodeIndex(tree)
    assert found(index, "receipt") == []
    assert found(index, "cart")[0].startswith("shop/cart.py")


def test_an_index_that_failed_half_way_goes_on_from_before(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: str, lines: object) -> None:
        raise MemoryError

    index = CodeIndex(CodeTree(root))
    with monkeypatch.context() as patched:
        patched.setattr(code_index, "outline", fail)
        with pytest.raises(MemoryError):
            index.search("cart")
    assert index.search("cart").is_whole
    assert found(index, "receipt")


def test_binaries_and_broken_encodings_spoil_nothing(root: Path, index: CodeIndex) -> None:
    (root / "image.py").write_bytes(b"\0receipt" * 100)
    (root / "small.js").write_text("function receipt(){}" * 1000)
    (root / "latin.py").write_bytes("def prüfen(receipt): pass\n".encode("latin-1"))
    assert not {"image.py", "small.js"} & {each.split()[0] for each in found(index, "receipt")}
    assert any(each.startswith("latin.py") for each in found(index, "receipt"))


def test_what_there_was_no_time_for_is_indexed_by_the_next_search(root: Path) -> None:
    index = CodeIndex(CodeTree(root), seconds=-1)
    searched = index.search("cart")
    assert (searched.indexed, searched.files, searched.is_whole, searched.definitions) == (0, 4, False, [])
    index._seconds = 60
    assert index.search("cart").is_whole


def test_an_index_of_gone_definitions_is_made_anew(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_index, "_DEAD", 3)
    index = CodeIndex(CodeTree(root))
    for number in range(40):
        put(root, {"shop/cart.py": CART + f"\ndef function_{number}(): ...\n" + "#" * number})
        assert found(index, f"function_{number}")[0] == f"shop/cart.py function_{number}"
        assert index._dead <= 3 + index._count("units")
    assert index._all("SELECT max(row) FROM units")[0][0] < 100
    assert found(index, "receipt") == ["shop/mail.py send_receipt"]


def test_several_threads_may_search_at_once(index: CodeIndex) -> None:
    results: list[list[str]] = []
    threads = [threading.Thread(target=lambda: results.append(found(index, "total price"))) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [each[0] for each in results] == ["shop/cart.py Cart.total_price"] * 8
