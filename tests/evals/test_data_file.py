"""Files of rows: read, looked through before anything runs, and given to a flow's inputs by name."""

from __future__ import annotations

import os
from errno import ENOSPC
from pathlib import Path
from typing import Any

import pytest

from flowengine.core.budget import Spending
from flowengine.errors import InputError
from flowengine.evals.data_file import DataError, open_data, parse_mapping, read_rows
from flowengine.evals.results_file import ResultsFile
from flowengine.nodes.run_inputs import InputField
from flowengine.runtime.local.row_runs import DataRow, RowResult

FIELDS = {"text": InputField("string"), "n": InputField("integer", default=1), "items": InputField("array", default=[])}


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return path


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("rows.jsonl", '{"text": "a"}\n{"text": "b"\n', "rows.jsonl:2:13: FE117 expected one JSON object"),
        ("rows.jsonl", '{"text": NaN}\n', "rows.jsonl:1: FE117 expected one JSON object on the line: NaN is not JSON"),
        (
            "rows.jsonl",
            f'{{"n": {"1" * 6000}}}\n',
            "rows.jsonl:1: FE117 expected one JSON object on the line: 1111111111",
        ),
        ("rows.jsonl", f'{{"n": -{"1" * 6000}}}\n', "… is an integer of 6,000 digits, more than any may have"),
        ("rows.jsonl", "[1]\n", "found [1]"),
        ("rows.jsonl", "[" * 100_000, "expected one JSON object on the line: it is nested more than 120 levels deep"),
        (
            "rows.jsonl",
            f'{{"text": {"[" * 600}{"]" * 600}}}',
            "rows.jsonl:1: FE117 expected one JSON object on the line: it is nested more than 120 levels deep",
        ),
        ("rows.jsonl", '{"text": "\udc80"}\n', "it is not UTF-8"),
        ("rows.jsonl", "\n\n", "it has no rows"),
        ("rows.csv", "", "it has no rows"),
        ("rows.csv", "text,text\na,b\n", "two columns are called 'text'"),
        ("rows.csv", "text,\na,b\n", "column 2 has no name"),
        ("rows.csv", "text,n\na\n", "rows.csv:2: FE117 expected 2 cells as in the head, found 1"),
        ("rows.csv", 'text,n\na,1\n"b,1\nc,2\n', "rows.csv:3: FE117 expected comma-separated values: a quoted cell of"),
        ("rows.csv", "text,n\ra,1\r", "rows.csv:1: FE117 expected comma-separated values: a line ends in a carriage"),
        ("rows.csv", '\n\ntext,n\n"a\nb",1,2\n', "rows.csv:4: FE117 expected 2 cells as in the head, found 3"),
        ("rows.csv", "\ntext,text\n", "rows.csv:2: FE117 two columns are called 'text'"),
        ("rows.csv", "text;n\na;1\n", "rows.csv:1: FE117 expected comma-separated values (.tsv: with tabs), found one"),
        ("rows.tsv", "text,n\na,1\n", "found one column 'text,n': is ',' between them?"),
        ("rows.parquet", "PAR1....PAR1", "rows.parquet: FE117 it is no text: expected .csv, .tsv, or one JSON object"),
        ("rows.jsonl", '{"text": "a", "text": "b"}\n', "'text' stands twice in an object"),
        ("none.csv", None, "cannot read the file: No such file"),
    ],
)
def test_what_is_no_row_is_told_with_its_line(name: str, text: str | None, says: str, tmp_path: Path) -> None:
    path = tmp_path / name if text is None else written(tmp_path, name, text)
    with pytest.raises(DataError) as caught:
        open_data(path, FIELDS)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "inputs"),
    [
        ("a.jsonl", '\ufeff{"text": "a\u2028b", "n": 2, "other": 0}\r\n\n', {"text": "a\u2028b", "n": 2}),
        ("a.csv", '\ufefftext,n,items\n"a,\nb",,"[1, 2]"\n', {"text": "a,\nb", "items": [1, 2]}),
        ("a.csv", "\r\n\r\ntext,n\r\na,2\r\n", {"text": "a", "n": 2}),
        ("a.tsv", "n\ttext\n3\t\n", {"text": "", "n": 3}),
    ],
)
def test_columns_are_inputs_by_name(name: str, text: str, inputs: Any, tmp_path: Path) -> None:
    [row] = open_data(written(tmp_path, name, text), FIELDS).rows()
    assert row.inputs == inputs
    assert row.problem is None


def test_a_mapped_column_goes_before_the_one_that_is_called_like_the_input(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", "text,body,n\nold,new,5\n")
    data = open_data(path, FIELDS, parse_mapping(["body=text"]), {"n": 7})
    [row] = data.rows()
    assert row.inputs == {"text": "new", "n": 7}
    assert row.data == {"text": "old", "body": "new", "n": "5"}


def test_a_row_that_does_not_fit_says_why_and_the_others_do_not_mind(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", "text,n\na,1\nb,two\nc,\n")
    one, two, three = open_data(path, FIELDS).rows()
    assert (one.problem, three.problem) == (None, None)
    assert two.problem == f"{path}:3: input 'n': expected integer as JSON, found 'two'"


@pytest.mark.parametrize(
    ("text", "mapping", "says"),
    [
        ("txt\na\n", [], "has no column for input 'text' (it has: txt); did you mean 'txt'?: --map COLUMN=text"),
        ("txt\na\n", ["tx=text"], "has no column 'tx'; did you mean 'txt'?"),
        ("txt\na\n", ["txt=texd"], "the flow has no input 'texd'; did you mean 'text'?"),
    ],
)
def test_a_file_that_cannot_feed_the_flow_is_refused_before_anything_runs(
    text: str, mapping: list[str], says: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        open_data(written(tmp_path, "a.csv", text), FIELDS, parse_mapping(mapping))
    assert says in str(caught.value)


@pytest.mark.parametrize("pairs", [["a"], ["=b"], ["a="], ["a=b", "a=c"], ["a=c", "b=c"]])
def test_a_mapping_that_is_none_is_refused(pairs: list[str]) -> None:
    with pytest.raises(InputError):
        parse_mapping(pairs)


def test_a_long_cell_is_read(tmp_path: Path) -> None:
    [row] = read_rows(written(tmp_path, "a.csv", "text\n" + "x" * 500_000 + "\n"))
    assert len(row.values["text"]) == 500_000


def test_a_table_of_results_has_no_two_columns_of_one_name(tmp_path: Path) -> None:
    """Whatever the columns of the data and the outputs of the flow are called: it can be the data of another run."""
    path = tmp_path / "results.csv"
    row = DataRow(1, {}, data={"status": "new", "text": "a"})
    outputs = {"text": "A", "run": "ran", "error": "no error"}
    with ResultsFile(str(path), columns=["status", "text"], outputs=list(outputs)) as file:
        file.write(RowResult(row, "r1", "succeeded", outputs, None, None, Spending(), 0.0))
    [read] = read_rows(path)
    assert read.values == {
        "row": "1", "status": "new", "text": "a", "output.text": "A", "output.run": "ran", "output.error": "no error",
        "run.status": "succeeded", "error": "", "cost_usd": "0", "run": "r1", "stand_in": "",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["", ".", "none/results.jsonl"])
def test_results_go_to_no_folder(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no folder for such a file"):
        ResultsFile(name and str(tmp_path / name), columns=[], outputs=[])


def test_results_are_not_written_under_the_name_of_another_format(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"as a table \(\.csv, \.tsv\) or as lines of JSON"):
        ResultsFile(str(tmp_path / "results.xlsx"), columns=[], outputs=[])


def test_a_disk_that_is_full_at_the_end_is_told_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*paths: object) -> None:
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    path = tmp_path / "results.jsonl"
    with (
        pytest.raises(InputError, match=r"results\.jsonl cannot be written: No space left"),
        ResultsFile(str(path), columns=[], outputs=[]),
    ):
        pass
