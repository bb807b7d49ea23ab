"""What an author sees in an editor: the real YAML language server with the schema that the product writes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from flowengine.core.node_traits import TRAITS
from flowengine.flowfile.schema.node_kinds import spec_of
from tests.support.language_server import LanguageServer, Mark, server_command

SAMPLES = sorted((Path(__file__).parents[2] / "flows").glob("*.yaml"))
HEAD = "flowengine: v1\nname: a\nnodes:\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageServer]:
    command = server_command()
    root = tmp_path_factory.mktemp("editor")
    folder, schema = root / "flows", root / ".flowengine" / "flow-v1.schema.json"  # Where samples say it is.
    folder.mkdir()
    schema.parent.mkdir()
    with schema.open("w") as file:
        subprocess.run([sys.executable, "-m", "flowengine", "schema"], stdout=file, check=True)
    server = LanguageServer(command, folder, schema)
    yield server
    server.close()


_numbers = count()


def name() -> str:
    """A file name that was not opened before."""
    return f"flow{next(_numbers)}.yaml"


def offered(server: LanguageServer, text: str, kind: str) -> set[str]:
    """The keys that are offered; what only fills in all required keys at once bears the name of the kind."""
    return set(server.offered(text, name())) - ({kind} - keys_of(kind))


def keys_of(kind: str) -> set[str]:
    return {field.alias or key for key, field in spec_of(kind).model_fields.items()}


@pytest.mark.parametrize("kind", TRAITS)
def test_a_node_is_offered_the_keys_of_its_type_and_no_others(server: LanguageServer, kind: str) -> None:
    text = f"{HEAD}  a:\n    type: {kind}\n    |\n  b:\n    prompt: x\n"
    assert offered(server, text, kind) == keys_of(kind) - {"type"}


@pytest.mark.parametrize("kind", ["loop", "subflow", "routing"])
def test_the_same_holds_inside_of_bodies(server: LanguageServer, kind: str) -> None:
    text = (
        f"{HEAD}  a:\n    type: loop\n    max_iterations: 2\n    nodes:\n      b:\n        type: map\n"
        f"        nodes:\n          c:\n            type: {kind}\n            |\n"
    )
    assert offered(server, text, kind) == keys_of(kind) - {"type"}


def test_keys_that_are_there_are_not_offered_again(server: LanguageServer) -> None:
    text = f"{HEAD}  a:\n    type: loop\n    max_iterations: 3\n    |\n"
    assert offered(server, text, "loop") == keys_of("loop") - {"type", "max_iterations"}


def test_a_node_without_a_type_is_an_agent(server: LanguageServer) -> None:
    assert offered(server, f"{HEAD}  a:\n    |\n", "agent") == keys_of("agent")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  a:\n    type: |\n", set(TRAITS)),
        ("  a:\n    type: map\n    on_item_error: |\n", {"fail", "collect", "skip"}),
        ("  a:\n    limits:\n      on_limit: |\n", {"fail", "pause", "partial"}),
        ("  a:\n    effect: |\n", {"none", "idempotent", "external"}),
        ("  a:\n    retry:\n      |\n", {"attempts", "backoff", "initial", "max", "jitter", "on"}),
        ("  a:\n    type: approval\n    routes:\n      yes:\n        |\n", {"to", "description"}),
    ],
)
def test_words_and_inner_keys_are_offered(server: LanguageServer, text: str, expected: set[str]) -> None:
    assert set(server.offered(HEAD + text, name())) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  a:\n    type: loop\n    max_iterations|: 3\n", "Rounds, at most."),
        ("  a:\n    type: loop\n    until|: x\n", "Looked at after each round"),
        ("  a:\n    type: loop|\n", "The body runs again until it is good enough"),
        (
            "  a:\n    type: map\n    nodes:\n      b:\n        type: subflow\n        flow|: x.yaml\n",
            "Path of the flow file",
        ),
        ("  a:\n    type: approval\n    on_expire|: no\n", "The choice that is made when no answer came in time."),
        ("  a:\n    prompt|: x\n", "The user input. Left out: the predecessor's `result`"),
    ],
)
def test_a_key_is_explained_where_the_mouse_rests(server: LanguageServer, text: str, expected: str) -> None:
    assert expected in server.shown(HEAD + text, name())


@pytest.mark.parametrize(
    ("text", "line", "start", "end", "words"),
    [
        ("  a:\n    type: loop\n    max_iterations: many\n    nodes: {b: {prompt: x}}\n", 6, 21, 25, "integer"),
        ("  a:\n    type: loop\n    max_iterations: 0\n    nodes: {b: {prompt: x}}\n", 6, 21, 22, "minimum"),
        ("  a:\n    type: lop\n", 5, 11, 14, "not accepted"),
        ("  a:\n    promt: x\n", 5, 5, 10, "promt is not allowed"),
        ("  a:\n    timeout: 30 seconds\n", 5, 14, 24, "pattern"),
        ("  a:\n    type: map\n    over: x\n    nodes: {b: {type: loop, max_iterations: 2, until: 3, "
         "nodes: {c: {prompt: x}}}}\n", 7, 55, 56, "string"),
        ("  a:\n    type: approval\n    message: m\n    routes: {yes: {}}\n    expires: 2h\n", 5, 5, 1,
         "missing property on_expire"),
        ("  a:\n    type: map\n    over: x\n    retry: {}\n    nodes: {b: {}}\n", 7, 5, 10, "retry is not allowed"),
        ("  my-node: {prompt: x}\n", 4, 3, 10, "my-node is not allowed"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_marked_at_its_place(
    server: LanguageServer, text: str, line: int, start: int, end: int, words: str
) -> None:
    [mark] = server.marks(HEAD + text, name())
    assert (mark.line, mark.start, mark.end) == (line, start, end)
    assert words in mark.message


def test_each_of_several_mistakes_is_marked(server: LanguageServer) -> None:
    text = (
        HEAD + "  a:\n    type: loop\n    nodes:\n      b: {typ: map}\n      c: {type: map, over: 3, nodes: {d: {}}}\n"
    )
    marks: list[Mark] = server.marks(text, name())
    assert [(mark.line, mark.message) for mark in marks] == [
        (4, 'Missing property "max_iterations".'),
        (7, "Property typ is not allowed."),
        (8, 'Incorrect type. Expected "string".'),
    ]


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_nothing_is_marked_in_the_sample_flows(server: LanguageServer, path: Path) -> None:
    assert server.marks(path.read_text(), name()) == []


def test_notes_and_every_kind_of_node_are_free_of_marks(server: LanguageServer) -> None:
    text = (
        HEAD + "  x-notes: [1, two]\n"
        "  l: {type: loop, max_iterations: 2, initial: {n: 1, x-note: 2}, until: round.last, carry: {n: 2},\n"
        "    nodes: {a: {prompt: x, x-note: y}}}\n"
        "  m: {type: map, over: '[1]', as: one, concurrency: 2, result: {deep: ['{{ one }}']}, nodes: {b: {}}}\n"
        "  s: {type: subflow, flow: x.yaml, with: {n: 1, text: '{{ nodes.l.output.n }}'}, limits: {cost_usd: 1}}\n"
        "  p: {type: approval, message: m, form: {type: object}, expires: 2h, on_expire: no,\n"
        "    routes: {yes: l, no: {}, on: {to: m, description: d}}}\n"
    )
    assert server.marks(text, name()) == []
