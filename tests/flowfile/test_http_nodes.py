"""`type: http` in flow files: mistakes with their places, what a project allows, and how values enter an address."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowengine import Flow, FlowBuilder
from flowengine.core.context import Context
from flowengine.errors import TemplateError
from flowengine.flowfile.compile.scope import address
from flowengine.flowfile.loader import check_file, load_flow
from flowengine.flowfile.project.project import find_project
from flowengine.testing.cases import run_case
from flowengine.testing.flowtest import FlowTestError, load_flowtest
from tests.support.odd_server import OddServer

HEAD = "flowengine: v1\nname: requests\n"
ALLOWED = ["https://api.example.com/v1/ API_TOKEN", "http://localhost:8000/"]


@pytest.fixture
def server() -> Iterator[OddServer]:
    with OddServer() as running:
        yield running


def write(folder: Path, text: str, allowed: list[str] = ALLOWED) -> Path:
    (folder / "flowengine.toml").write_text(f"allow_http = {json.dumps(allowed)}\n")
    file = folder / "flow.yaml"
    file.write_text(HEAD + text)
    return file


def told(folder: Path, node: str, allowed: list[str] = ALLOWED) -> list[str]:
    outputs = 'outputs: {read: "{{ inputs.a }}"}\n'
    text = f"inputs: {{a: {{type: string}}}}\nnodes:\n  a: {{type: http, {node}}}\n{outputs}"
    return [str(each).replace(f"{folder}/", "") for each in check_file(write(folder, text, allowed))]


URL = 'url: "https://api.example.com/v1/x"'


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("method: GET", "flow.yaml:5:3: FE202 node 'a': the key 'url' is missing"),
        ('url: "https://api.example.org/v1/x"', "FE522 node 'a': the project does not allow this address"),
        ('url: "https://elsewhere.net/{{ inputs.a }}"', '; add "https://elsewhere.net/" to `allow_http` in '),
        ('url: "https://api.example.com/v2/x"', "FE522 node 'a'"),
        ('url: "https://api.example.com/v1/../x"', "FE522 node 'a'"),
        ('url: "https://{{ inputs.a }}/v1/x"', "FE523 node 'a': an address begins with scheme and host"),
        ('url: "https://api.example.com{{ inputs.a }}"', "FE523 node 'a': an address begins with scheme and host"),
        ('url: "/v1/x"', "FE523 node 'a': an address begins with scheme and host"),
        (
            'url: "https://api.example.com/v1/{% if inputs.a %}x{% endif %}"',
            "FE523 node 'a': an address cannot be made of this: only `{{ … }}` may stand here",
        ),
        ('url: "https://api.example.com/v1/{{ inputs.b }}"', "FE303 node 'a': unknown input 'b'"),
        (
            f"{URL}, headers_env: {{Authorization: OPENAI_API_KEY}}",
            "FE522 node 'a': the value of OPENAI_API_KEY may not be sent to 'https://api.example.com/v1/'; add "
            '"https://api.example.com/v1/ API_TOKEN OPENAI_API_KEY" to `allow_http` in ',
        ),
        (
            'url: "https://elsewhere.net/x", headers_env: {A: ONE, B: TWO, C: ONE}',  # All in one pass.
            "FE522 node 'a': the project does not allow this address; add \"https://elsewhere.net/ ONE TWO\" to ",
        ),
        (f"{URL}, json: 1", "FE209 node 'a': a request with 'json' is no GET: give another 'method'"),
        (f"{URL}, method: PUT, json: 1, body: x", "FE209 node 'a': 'json' is the body already; remove 'body'"),
        (f"{URL}, method: POST, retry: {{attempts: 2}}", "FE209 node 'a': what has an external effect is done once"),
        (f"{URL}, method: POST, cache: true", "'cache'; a POST that may be sent twice says `effect: idempotent`"),
        (f"{URL}, method: POST, follow: 2", "FE209 node 'a': redirects of POST are not followed; remove 'follow'"),
        (f"{URL}, headers: {{Host: x}}", "FE401 node 'a': the header 'Host' is made with the message"),
        (f"{URL}, headers: {{'X Y': x}}", "FE401 node 'a': 'X Y' is no name of a header"),
        (
            f"{URL}, headers: {{x: y}}, headers_env: {{X: API_TOKEN}}",
            "FE209 node 'a': the header 'x' stands in 'headers'",
        ),
        (f"{URL}, method: FETCH", "FE402 node 'a'"),
        (f"{URL}, expect: {{status: [700]}}", "FE402 node 'a': expected a status such as 200 or 2xx, found 700"),
        (f"{URL}, qery: {{a: b}}", "FE201 node 'a': unknown key 'qery'; did you mean 'query'?"),
    ],
)
def test_mistakes_are_told_with_their_place(tmp_path: Path, node: str, expected: str):
    found = told(tmp_path, node)
    assert len(found) == 1, found
    assert found[0].startswith("flow.yaml:5:")
    assert expected in found[0]


def test_all_that_the_project_does_not_allow_of_a_request_is_told_in_one_pass(tmp_path: Path):
    """The line to paste is the same for each variable, and holds them all; also beside a slip in the address."""
    pasted = '; add "https://api.example.com/v1/ API_TOKEN ONE TWO" to '
    variables = "headers_env: {A: ONE, B: TWO}"
    assert [pasted in each for each in told(tmp_path, f"{URL}, {variables}")] == [True, True]
    address, *others = told(tmp_path, f'url: "https://api.exampel.com/v1/x", {variables}')
    assert "did you mean 'https://api.example.com/v1/'?" in address
    assert [pasted in each for each in others] == [True, True]


@pytest.mark.parametrize(
    "node",
    [
        URL,
        'url: "https://api.example.com/v1/{{ inputs.a }}?b={{ inputs.a }}", headers_env: {Authorization: API_TOKEN}',
        'url: "{{ inputs.a }}"',
        "url: http://localhost:8000/, method: POST, json: {a: [1, '{{ inputs.a }}']}, query: {'page[size]': 1}",
    ],
)
def test_what_is_right_is_not_told(tmp_path: Path, node: str):
    assert told(tmp_path, node) == []


def test_without_a_project_nothing_is_sent(tmp_path: Path):
    assert "the project allows no address" in told(tmp_path, 'url: "{{ inputs.a }}"', [])[0]


@pytest.mark.parametrize("entry", ["api.example.com", "ftp://a/", "https://a/ 10.0.0.0/99", "https://a:b@c/", ""])
def test_an_entry_of_the_project_that_is_none_is_told(tmp_path: Path, entry: str):
    found = told(tmp_path, URL, [*ALLOWED, entry])
    assert any("in `allow_http` is no beginning of an address" in each for each in found)


@pytest.mark.parametrize(
    ("value", "made"),
    [
        ("a b", "https://h/o/a%20b/x"),
        ("../admin", "https://h/o/..%2Fadmin/x"),
        ("a?b#c", "https://h/o/a%3Fb%23c/x"),
        ("@evil.com", "https://h/o/%40evil.com/x"),
        ("é\r\n", "https://h/o/%C3%A9%0D%0A/x"),
        (7, "https://h/o/7/x"),
    ],
)
def test_values_in_an_address_stay_values(value: object, made: str):
    assert address("https://h/o/{{ inputs.a }}/x")(Context(inputs={"a": value})) == made


@pytest.mark.parametrize("value", ["", ".", ".."])
def test_a_value_that_would_lead_elsewhere_is_refused(value: str):
    with pytest.raises(TemplateError, match="which would lead somewhere else"):
        address("https://h/o/{{ inputs.a }}")(Context(inputs={"a": value}))


def test_a_flow_asks_and_uses_what_came_back(tmp_path: Path, server: OddServer):
    text = f"""
inputs: {{id: {{type: string}}}}
nodes:
  first:
    type: http
    method: PUT
    url: "{server.url}/orders/{{{{ inputs.id }}}}"
    json: {{a: ["{{{{ inputs.id }}}}", 1]}}
    set: {{path: "{{{{ output.body.path }}}}"}}
  next: {{type: http, url: "{{{{ nodes.first.output.headers.link | default('{server.url}/next') }}}}"}}
shared_state: {{path: {{type: string}}}}
outputs:
  path: "{{{{ shared_state.path }}}}"
  body: "{{{{ nodes.first.output.body.body }}}}"
  next: "{{{{ nodes.next.output.body.path }}}}"
"""
    run = Flow.from_yaml(write(tmp_path, text, [f"{server.url}/"])).run_sync({"id": "A/1"}).raise_for_status()
    assert run.outputs == {"path": "/orders/A%2F1", "body": '{"a": ["A/1", 1]}', "next": "/next"}


def test_effects_follow_from_the_method_and_the_flow_has_defaults(tmp_path: Path):
    text = (
        "defaults: {retry: {attempts: 2}}\nnodes:\n"
        "  get: {type: http, url: 'http://localhost:8000/'}\n"
        "  put: {type: http, url: 'http://localhost:8000/', method: PUT}\n"
        "  post: {type: http, url: 'http://localhost:8000/', method: POST}\n"
        "  search: {type: http, url: 'http://localhost:8000/', method: POST, effect: none}\n"
    )
    file = write(tmp_path, text)
    made = Flow.from_yaml(file).plan.definitions
    assert {name: (each.effect, each.retry is not None) for name, each in made.items()} == {
        "get": ("none", True),
        "put": ("idempotent", True),
        "post": ("external", False),
        "search": ("none", True),
    }
    assert find_project(file).allow_http == tuple(ALLOWED)
    assert load_flow(file).name == "requests"


def test_a_flow_is_written_in_python_with_the_same_words(tmp_path: Path, server: OddServer):
    write(tmp_path, "nodes: {a: {prompt: x}}\n", [f"{server.url}/"])
    flow = FlowBuilder("requests")
    flow.http("a", f"{server.url}/x", method="POST", json={"a": 1}, query={"b": 2}, expect={"status": [200]})
    assert flow.build(root=tmp_path).run_sync().outputs["a"]["body"]["path"] == "/x?b=2"


def test_flow_tests_fake_answers_and_send_nothing(tmp_path: Path, server: OddServer):
    write(tmp_path, f"nodes:\n  a: {{type: http, url: '{server.url}/'}}\n", [f"{server.url}/"])

    def case(fakes: str) -> str:
        test = tmp_path / "t.flowtest.yaml"
        expect = "expect: {outputs: {a: {contains: status}}}"
        test.write_text(f"flow: flow.yaml\ncases:\n  - name: c\n    fakes: {fakes}\n    {expect}\n")
        return "\n".join(str(each) for each in run_case(load_flowtest(test), 0))

    assert case("{http: {a: {body: {b: 1}}}}") == ""
    assert "node 'a' sends a request and is not faked; write `fakes: {http: {a: {body: …}}}`" in case("{}")
    assert "is a map with `status`, `headers` and `body`" in case("{http: {a: 7}}")
    with pytest.raises(FlowTestError, match="the flow has no request 'b'"):
        case("{http: {b: {body: 1}}}")
    assert server.seen == []
    assert case("{real: [a]}") == ""
    assert len(server.seen) == 1
