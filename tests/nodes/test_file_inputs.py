"""Files as inputs and as results of nodes: never base64 in the journal, read by later nodes, there after a resume."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flowengine import Context, Flow, FunctionNode, InputField, NodeResult
from flowengine.core.file_values import FileRules, FileValue
from flowengine.engine.ports import JournalStore
from flowengine.errors import InputError
from flowengine.journal.codec import encode
from flowengine.journal.stores import open_store
from tests.support.postgres import empty_database

pytestmark = pytest.mark.anyio
PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


@pytest.fixture(params=["memory:", "sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JournalStore]:
    urls = {"sqlite": lambda: str(tmp_path / "runs.db"), "postgresql": empty_database, "memory:": lambda: "memory:"}
    made = open_store(urls[request.param]())
    yield made
    made.close()


def draw(context: Context) -> dict[str, Any]:
    return {"chart": context.inputs["photo"].read_bytes() + b"!", "parts": [b"one", b"one"]}


async def test_a_file_may_be_given_as_its_content() -> None:
    run = await flow().run({"photo": f"data:image/png;base64,{b64encode(PICTURE).decode()}"})
    assert run.raise_for_status().outputs["measure"] == len(PICTURE) + 1
    assert b64encode(PICTURE).decode() not in "".join(map(encode, run.events))
    with pytest.raises(InputError, match="input 'photo': not of the form data:TYPE;base64,CONTENT"):
        await flow().run({"photo": "data:image/png;base64,!!"})


fails: list[bool] = []


def measure(context: Context) -> NodeResult:
    if fails:
        raise ValueError("not now")
    drawn = context.nodes["draw"].output
    return NodeResult(len(drawn["chart"].read_bytes()), state={"chart": drawn["chart"], "raw": b"raw"})


def flow() -> Flow:
    nodes = {"draw": FunctionNode(draw), "measure": FunctionNode(measure, needs=["draw"])}
    return Flow("charts", nodes, inputs={"photo": "file"}, shared_state={"chart": None, "raw": None})


async def test_files_go_through_a_run_and_no_content_is_in_the_journal(store: JournalStore, tmp_path: Path):
    (tmp_path / "me.png").write_bytes(PICTURE)
    run = await flow().run({"photo": tmp_path / "me.png"}, store=store, run_id="r1")
    assert run.status == "succeeded", run.error
    assert run.outputs == {"measure": len(PICTURE) + 1}
    drawn = run.nodes["draw"].output
    assert (drawn["chart"].media_type, drawn["chart"].name) == ("image/png", "draw.png")
    assert drawn["parts"][0] == drawn["parts"][1]
    assert isinstance(run.shared_state["raw"], FileValue)
    text = "\n".join(map(encode, store.events("r1")))
    for content in (PICTURE, b"one", b"raw"):
        assert b64encode(content).decode()[:40] not in text
    assert "$bytes" not in text


async def test_a_resumed_run_reads_the_files_it_has(store: JournalStore, tmp_path: Path):
    (tmp_path / "me.png").write_bytes(PICTURE)
    fails.append(True)
    try:
        run = await flow().run({"photo": tmp_path / "me.png"}, store=store, run_id="r1")
        assert run.status == "failed"
    finally:
        fails.clear()
    (tmp_path / "me.png").write_bytes(b"another")  # What the run took in is its own.
    run = await flow().resume("r1", store=store)
    assert run.outputs == {"measure": len(PICTURE) + 1}
    forked = await flow().fork("r1", "measure", store=store)
    store.remove("r1")
    assert forked.outputs == run.outputs
    again = await flow().fork(forked.id, "measure", store=store)
    assert again.nodes["draw"].output["chart"].read_bytes() == PICTURE + b"!"


async def test_results_with_files_are_reused(store: JournalStore):
    first = await flow().run({"photo": PICTURE}, store=store)
    second = await flow().run({"photo": PICTURE}, store=store, reuse=first.id)
    assert sorted(second.reused) == ["draw", "measure"]
    store.remove(first.id)
    assert second.nodes["draw"].output["chart"].read_bytes() == PICTURE + b"!"
    other = await flow().run({"photo": PICTURE + b"?"}, store=store, reuse=second.id)
    assert not other.reused


async def test_a_file_of_a_run_in_another_store_is_taken_over(store: JournalStore):
    first = await flow().run({"photo": PICTURE})
    second = await flow().run({"photo": first.nodes["draw"].output["chart"]}, store=store)
    assert second.inputs["photo"].read_bytes() == PICTURE + b"!"
    loose = await Flow("f", {"a": FunctionNode(lambda context: 1)}).run(
        {"one": second.inputs["photo"], "two": {"three": b"bytes"}}, store=store
    )
    assert loose.inputs["two"]["three"].read_bytes() == b"bytes"


async def test_what_is_no_file_is_told(tmp_path: Path):
    for given, said in [
        (1, "input 'photo': expected file, found int 1"),
        ("/etc/passwd", "input 'photo': the path '/etc/passwd' leaves the project's root"),
        ("none.png", "input 'photo': cannot read 'none.png': No such file or directory"),
        (tmp_path, "input 'photo': cannot read"),
        ("https://example.com/a.png", r"input 'photo': the address 'https://example\.com/a\.png' is not allowed"),
    ]:
        with pytest.raises(InputError, match=said):
            await flow().run({"photo": given})
    with pytest.raises(InputError, match=r"missing input 'photo' \(file\)"):
        await flow().run({})
    optional = Flow("f", {"a": FunctionNode(lambda context: 1)}, inputs={"photo": InputField("file", default=None)})
    assert (await optional.run({})).inputs["photo"] is None


async def test_a_result_that_is_too_large_fails_its_node():
    made = flow()
    object.__setattr__(made.plan, "files", FileRules(max_file=len(PICTURE)))
    run = await made.run({"photo": PICTURE})
    assert run.status == "failed"
    assert run.error is not None
    assert "the result cannot be kept: 'draw' has 265 bytes, and `max_file` of [files] is 264" in run.error.message


def test_a_file_is_read_after_its_store_was_closed(tmp_path: Path):
    for url in (str(tmp_path / "runs.db"), empty_database()):
        run = flow().run_sync({"photo": PICTURE}, store=url)
        assert run.nodes["draw"].output["chart"].read_bytes() == PICTURE + b"!"
        assert run.inputs["photo"].read_bytes() == PICTURE
