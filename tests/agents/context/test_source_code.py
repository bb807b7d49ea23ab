"""Source code in prompts: what is quoted, of how many files, and what happens to files meanwhile."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowengine.agents.context.factory import ContextProviderFactory
from flowengine.agents.context.provider import MissingFileError, OutsideError, ParameterError
from flowengine.agents.context.source_code import source_code
from flowengine.agents.context.source_code.source_code import SourceCodeProvider
from flowengine.core.context import Fragment


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    for number in range(7):
        put(
            tmp_path, f"src/pay_{number}.py", f"import os\n\n\ndef pay_invoice_{number}(invoice):\n    return invoice\n"
        )
    put(tmp_path, "src/other.py", "def nothing_of_interest():\n    pass\n")
    yield tmp_path
    gc.collect()  # Indexes are shared for as long as providers live.


def put(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def of(root: Path, **options: int) -> SourceCodeProvider:
    return SourceCodeProvider.from_config({"codebase_path": "./src", **options}, root=root)


def files_of(fragments: object) -> list[str]:
    return list(dict.fromkeys(each.label.partition(":")[0] for each in fragments if ":" in each.label))  # type: ignore[attr-defined]  # fragments


def test_a_definition_is_quoted_with_its_path_and_lines(root: Path) -> None:
    text = of(root, max_files=1).get_context("pay_invoice_3")
    assert "src/pay_3.py:4-5 pay_invoice_3\n```py\ndef pay_invoice_3(invoice):\n    return invoice\n```" in text


def test_the_file_that_a_question_names_comes_first_and_then_what_it_imports(root: Path) -> None:
    lines = "    ready_node = scheduler.find_ready_node()\n" * 20
    put(root, "src/notes.py", f"def find_ready_node(scheduler):\n{lines}    return ready_node\n")
    walk = "from engine import state\nfrom .order import sort\n\n\ndef apply(event):\n    return 1\n"
    put(root, "src/engine/walk.py", walk)
    put(root, "src/engine/state.py", "def fold(writes):\n    return writes\n")
    put(root, "src/engine/order.py", "def sort(ids):\n    return ids\n")
    for asked in ("src/engine/walk.py", "engine/walk.py", "walk.py", "engine.walk", "./src/engine/walk.py:5"):
        found = files_of(of(root).fragments(f"How does the scheduler in {asked} find a ready node?", ()))
        assert found[0] == "src/engine/walk.py", asked
        assert set(found[1:3]) == {"src/engine/state.py", "src/engine/order.py"}, asked
    assert files_of(of(root).fragments("Which scheduler finds a ready node?", ()))[0] == "src/notes.py"


def test_a_name_of_many_files_names_none_of_them(root: Path) -> None:
    for number in range(5):
        put(root, f"src/part_{number}/__init__.py", "def nothing():\n    pass\n")
    assert files_of(of(root).fragments("pay invoice 3 in __init__.py", ()))[0] == "src/pay_3.py"


def test_no_more_files_than_asked_for_are_quoted(root: Path) -> None:
    assert len(files_of(of(root).fragments("pay an invoice", ()))) == 5
    assert len(files_of(of(root, max_files=2).fragments("pay an invoice", ()))) == 2


def test_the_best_has_the_highest_priority_and_quotations_are_never_cut_in_two(root: Path) -> None:
    fragments = of(root).fragments("pay invoice 3", ())
    best = max(fragments, key=lambda each: each.priority)
    assert best.label == "src/pay_3.py:4-5"
    assert len({each.priority for each in fragments}) == len(fragments)
    assert all(each.group and each.source == "source_code" for each in fragments)


def test_a_query_about_something_else_brings_nothing(root: Path) -> None:
    assert of(root).fragments("zebra", ()) == []
    assert of(root).get_context("") == ""


def test_long_definitions_wide_lines_and_gaps_are_marked(root: Path) -> None:
    body = "".join(f"    step_{number} = {number}\n" for number in range(300))
    put(root, "src/long.py", f"def enormous_routine():\n{body}")
    put(root, "src/wide.py", f"WIDE_CONSTANT = '{'x' * 900}'\nSHORT = 1\nSMALL = 2\n")
    put(root, "src/gap.py", "class Gappy:\n    def one(self):\n        x = 1\n\n    attribute = 2\n")
    long = of(root, max_files=1).fragments("enormous_routine", ())
    assert next(each for each in long if "enormous" in each.text).text.endswith("step_58 = 58\n…\n```")
    wide = of(root, max_files=1).get_context("WIDE_CONSTANT")
    assert "x…\nSHORT" in wide
    gap = of(root, max_files=1).get_context("Gappy attribute")
    assert "    def one(self):\n… (4)\n\n    attribute = 2" in gap


def test_of_one_file_no_more_lines_are_quoted_than_are_useful_and_shorter_definitions_fill_the_room(root: Path) -> None:
    bodies = {"first": 50, "second": 50, "third": 50, "small": 8}
    text = "\n".join(f"def total_{name}():\n" + "    total = 1\n" * size for name, size in bodies.items())
    put(root, "src/totals.py", text)
    fragments = of(root, max_files=1).fragments("total first", ())
    assert sum(each.text.count("\n") - 2 for each in fragments) <= 120
    names = {each.text.partition("\n")[0].rpartition(" ")[2] for each in fragments if "total_" in each.text}
    assert {"total_first", "total_small"} <= names
    assert len(names) < 4


def test_code_that_holds_fences_is_fenced_by_longer_ones(root: Path) -> None:
    put(root, "src/guide.md", "# Fencing\n\n```sh\nfence --all\n```\n")
    assert "````md\n# Fencing" in of(root, max_files=1).get_context("fencing guide")


def test_a_changed_file_is_quoted_as_it_is_now(root: Path) -> None:
    provider = of(root)
    provider.get_context("pay")
    put(root, "src/pay_3.py", "def refund_everything():\n    pass\n")
    assert "refund_everything" in provider.get_context("refund everything")


def test_a_file_that_vanishes_makes_room_for_the_next(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = of(root, max_files=2)
    searched = provider._index.search("pay invoice 3")
    monkeypatch.setattr(provider._index, "search", lambda query: searched)
    (root / "src/pay_3.py").unlink()
    files = files_of(provider.fragments("pay invoice 3", ()))
    assert len(files) == 2
    assert "src/pay_3.py" not in files


def test_a_folder_that_vanishes_is_a_failure_that_says_so(root: Path) -> None:
    provider = of(root)
    for path in (root / "src").iterdir():
        path.unlink()
    (root / "src").rmdir()
    with pytest.raises(MissingFileError, match=r"'\./src' is not there"):
        provider.get_context("pay")


@pytest.mark.parametrize(
    ("config", "kind", "problem"),
    [
        ({"codebase_path": "nowhere"}, MissingFileError, "'nowhere' is not there"),
        ({"codebase_path": "../elsewhere"}, OutsideError, "leaves the project's root"),
        ({"max_files": 0}, ParameterError, "at least 1"),
        ({"max_fils": 3}, ParameterError, "did you mean 'max_files'"),
        ({"max_files": "3"}, ParameterError, "integer"),
    ],
)
def test_wrong_parameters_are_refused(
    root: Path, config: dict[str, object], kind: type[Exception], problem: str
) -> None:
    with pytest.raises(kind, match=problem):
        ContextProviderFactory.create_from_config([{"source_code": config}], root=root)


def test_where_not_all_files_were_searched_the_prompt_and_the_receipt_say_so(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = of(root)
    searched = provider._index.search("pay")
    monkeypatch.setattr(provider._index, "search", lambda query: searched._replace(is_whole=False, files=50_000))
    *_, last = provider.fragments("pay", ())
    assert last == Fragment(
        "(Searched so far: 8 of 50000 files of source code.)", "source_code", label="not all files were searched"
    )
    *_, last = provider.fragments("pay", (), locale="ja")
    assert "50000 ファイル中 8 ファイル" in last.text
    monkeypatch.setattr(provider._index, "search", lambda query: searched._replace(is_whole=False))
    assert "8 of 8+ files" in provider.fragments("pay", ())[-1].text


def test_providers_of_one_folder_share_an_index(root: Path) -> None:
    one, other = of(root), of(root)
    assert one._index is other._index
    assert one.fresh() is one
    del one, other
    gc.collect()
    assert not [key for key in source_code._indexes if key[0] == str(root / "src")]


@pytest.mark.parametrize(("quoted", "fence"), [("``", "```"), ("```", "````"), ("`````", "``````")])
def test_quoted_code_cannot_close_its_fence(root: Path, quoted: str, fence: str) -> None:
    put(root, "src/evil.py", f'def pay_evil():\n    """\n    {quoted}\n    """\n')
    text = of(root, max_files=1).get_context("pay_evil")
    assert text.endswith(f'    """\n{fence}')
    assert f"\n{fence}py\n" in text
