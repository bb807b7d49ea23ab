"""Files as values: small, frozen, journaled by their hashes, read where they come from."""

from __future__ import annotations

import copy
import json
import pickle
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowengine.core.file_values import FileValue, binding_files, clean_name, find_files, hash_of
from flowengine.core.json_values import to_json_value
from flowengine.core.values import copy_mutable, freeze
from flowengine.errors import JournalError, StoreCorruptError
from flowengine.journal.codec import decode_value, encode_value

names = st.text(max_size=300).map(clean_name)
files = st.builds(
    FileValue,
    st.binary(max_size=20).map(hash_of),
    st.sampled_from(["image/png", "text/plain", "application/x-7z-compressed"]),
    names,
    st.integers(0, 10**12),
)


@given(st.recursive(files, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner)))
def test_files_come_back_from_the_journal_as_they_were(value: object):
    assert decode_value(encode_value(value)) == value
    assert len(list(find_files(value))) == encode_value(value).count('{"$file":[')


@given(st.text(max_size=400))
def test_a_name_is_one_line_without_folders_and_stays_what_it_is(text: str):
    name = clean_name(text)
    assert clean_name(name) == name
    assert 1 <= len(name) <= 200
    assert not {"/", "\\", "\0", "\n", "\r", "\u2028", "\u202e"} & set(name)
    assert not any(unicodedata.category(each) in ("Cc", "Cf", "Cs", "Zl", "Zp") for each in name)
    FileValue(hash_of(b""), "text/plain", name, 0)


def test_a_file_is_shared_and_never_copied():
    file = FileValue(hash_of(b"x"), "text/plain", "x.txt", 1)
    assert copy.deepcopy([file])[0] is copy.copy(file) is copy_mutable(file) is freeze({"a": [file]})["a"][0] is file
    assert pickle.loads(pickle.dumps(file)) == file
    assert hash(file) == hash(FileValue(hash_of(b"x"), "text/plain", "x.txt", 1))
    assert to_json_value(file) == {"blob": hash_of(b"x"), "media_type": "text/plain", "name": "x.txt", "size": 1}
    with pytest.raises(AttributeError):
        file.name = "y"  # type: ignore[misc]


def test_the_content_is_read_where_the_file_comes_from():
    file = FileValue(hash_of("größe".encode("latin-1")), "text/plain", "x.txt", 5)
    with pytest.raises(JournalError, match=r"the file 'x\.txt' is of no store that is open here"):
        file.read_bytes()
    bound = file.bound({file.blob: "größe".encode("latin-1")}.__getitem__)
    assert (bound.read_text("latin-1"), bytes(bound), bound) == ("größe", "größe".encode("latin-1"), file)
    with binding_files(lambda blob: b"there"):
        assert file.read_bytes() == b"there"


@pytest.mark.parametrize(
    "broken",
    [
        ["0" * 63, "text/plain", "x", 1],
        ["G" * 64, "text/plain", "x", 1],
        ["0" * 64, "text/plain\r\nX-A: b", "x", 1],
        ["0" * 64, "text", "x", 1],
        ["0" * 64, "text/plain", "a/b", 1],
        ["0" * 64, "text/plain", "a\u202eb", 1],
        ["0" * 64, "text/plain", "", 1],
        ["0" * 64, "text/plain", "x", -1],
        ["0" * 64, "text/plain", "x", True],
        ["0" * 64, "text/plain", "x"],
        {"blob": "0" * 64},
        None,
    ],
)
def test_a_hostile_journal_brings_no_file_that_is_none(broken: object):
    with pytest.raises(StoreCorruptError):
        decode_value(json.dumps([1, {"$file": broken}]))


class Person:
    def __init__(self) -> None:
        self.knows: list[Any] = []


def test_files_are_found_in_objects_that_refer_to_each_other():
    people, file = [Person() for _ in range(9)], FileValue("0" * 64, "text/plain", "x", 1)
    for each in people:
        each.knows = people
    people[-1].knows = [*people, file]
    assert list(find_files(people)) == [file]
