"""`[notify]` of a project file and `notify:` of an approval: what is wrong is told with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowengine.flowfile.loader import check_file, load_flow
from flowengine.flowfile.project.project import find_project, project_of

MAIL = '[notify.mail]\nserver = "mail.example.com"\nfrom = "flows@example.com"\nallow_to = ["@example.com"]\n'
SOUND = f"""allow_http = ["https://hooks.example.com/a/ TOKEN"]
[notify]
url = "https://flows.example.com/engine"
send = ["ops"]
{MAIL}
[notify.channels.ops]
type = "slack"
url_env = "SLACK_URL"
"""


def problems(folder: Path, text: str) -> list[str]:
    (folder / "flowengine.toml").write_text(text)
    return [str(each).replace(f"{folder}/", "") for each in project_of(folder)[1]]


def test_a_sound_table_is_read(tmp_path: Path):
    assert problems(tmp_path, SOUND) == []
    notify = find_project(tmp_path).notify
    assert notify is not None
    assert notify.mail is not None
    assert (notify.host, notify.default, notify.channels["ops"].url_env) == ("flows.example.com", ("ops",), "SLACK_URL")
    assert (notify.mail.host, notify.mail.port, notify.mail.security) == ("mail.example.com", 587, "starttls")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[notify]\n", "1:2: FE502 'url' of `notify` is the address of the server"),
        ('[notify]\nurl = "flows.example.com"\n', "2:1: FE502 'url' of `notify`"),
        ('[notify]\nurl = "https://a.example"\nsned = []\n', "3:1: FE502 unknown key 'sned' of `notify`; did you mean"),
        ('[notify]\nurl = "https://a.example"\nsend = ["ops"]\n', "3:1: FE502 `notify` has no channel 'ops'"),
        ('[notify]\nurl = "https://a.example"\nsend = "ops"\n', "3:1: FE502 'send' of `notify` is a list"),
        ('notify = "x"', "FE502 'notify' is a table"),
        (SOUND.replace('type = "slack"', 'type = "slak"'), "11:1: FE502 channel 'ops': 'type' is one of"),
        (SOUND.replace("url_env", "urlenv"), "FE502 channel 'ops': unknown key 'urlenv'"),
        (SOUND.replace('url_env = "SLACK_URL"', ""), "FE502 channel 'ops': a channel that posts has one of"),
        (SOUND + 'to = ["a@example.com"]\n', "FE502 channel 'ops': a channel of the type 'slack' takes no 'to'"),
        (SOUND + 'url = "https://hooks.example.com/a/x"\n', "FE502 channel 'ops': a channel that posts has one of"),
        (SOUND.replace("url_env =", "url ="), "FE502 channel 'ops': expected an address such as https://host/path"),
        (
            SOUND.replace('url_env = "SLACK_URL"', 'url = "https://hooks.example.com/b"'),
            "FE502 channel 'ops': `allow_http` does not list its address",
        ),
        (
            SOUND.replace('"slack"', '"http"').replace(
                'url_env = "SLACK_URL"', 'url = "https://hooks.example.com/a/"\nheaders_env = {A = "OTHER"}'
            ),
            "FE502 channel 'ops': the entry 'https://hooks.example.com/a/' of `allow_http` does not name OTHER",
        ),
        (SOUND.replace('"slack"', '"http"') + 'body = "{{ quetsion }}"\n', "there is no 'quetsion' here"),
        (SOUND.replace('"slack"', '"http"') + 'body = "{{ run.name }}"\n', "there is no 'run.name'"),
        (SOUND.replace('"slack"', '"http"') + 'body = "{{ run. }}"\n', "FE502 channel 'ops': "),
        (SOUND + '[notify.channels.cfo]\ntype = "mail"\n', "FE502 channel 'cfo': a mail goes 'to' at least one"),
        (
            SOUND + '[notify.channels.cfo]\ntype = "mail"\nto = ["cfo@example.com, eve@x.org"]\n',
            "FE502 channel 'cfo': 'cfo@example.com, eve@x.org' is no mail address",
        ),
        (SOUND + '[notify.channels."a b"]\ntype = "mail"\n', "FE502 'a b' is no name of a channel"),
        (SOUND.replace(MAIL, "") + '[notify.channels.c]\ntype = "mail"\nto = ["a@b.org"]\n', "no server for them"),
        (SOUND.replace('server = "mail.example.com"', 'server = "smtp://x"'), "6:1: FE502 `notify.mail`: 'server' is"),
        (SOUND.replace('server = "mail.example.com"', 'server = "x:99999"'), "'server' is the host"),
        (SOUND.replace("flows@example.com", "flows@example.com\\nBcc: x@y.z"), "'from' is the address"),
        (SOUND.replace("allow_to =", "allow ="), "FE502 `notify.mail`: unknown key 'allow'"),
        (SOUND.replace('["@example.com"]', '["*"]'), "'allow_to' is a list of addresses"),
        (SOUND.replace("allow_to =", 'security = "ssl"\nallow_to ='), "'security' is one of starttls, tls, none"),
        (SOUND.replace("allow_to =", 'user_env = "A"\nallow_to ='), "'user_env' and 'password_env' go together"),
        (
            SOUND.replace("allow_to =", 'security = "none"\nuser_env = "A"\npassword_env = "B"\nallow_to ='),
            "a password goes to no other machine without encryption",
        ),
        (
            SOUND.replace("allow_to =", 'user_env = "A B"\npassword_env = "B"\nallow_to ='),
            "name of an environment variable",
        ),
    ],
)
def test_what_is_wrong_with_the_table_is_told_with_its_place(tmp_path: Path, text: str, expected: str):
    found = problems(tmp_path, text)
    assert any(expected in each for each in found), found


def told(folder: Path, said: str, project: str = SOUND) -> list[str]:
    (folder / "flowengine.toml").write_text(project)
    (folder / "f.yaml").write_text(
        "flowengine: v1\nname: pay\ninputs: {who: {type: string, default: x}}\n"
        f"nodes:\n  ask: {{type: approval, message: 'Pay? {{{{ inputs.who }}}}', routes: {{ok: {{}}}}, {said}}}\n"
    )
    return [str(each).replace(f"{folder}/", "") for each in check_file(folder / "f.yaml")]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("notify: [osp]", "f.yaml:5:86: FE531 node 'ask': the project has no channel 'osp'; did you mean 'ops'?"),
        ("notify: opsy", "FE531 node 'ask': the project has no channel 'opsy'"),
        ("notify: [{type: mail}]", "FE202 node 'ask': a mail goes 'to' at least one address"),
        ("notify: [{type: male, to: [a@example.com]}]", "FE402 node 'ask'"),
        ("notify: [{type: mail, to: [a@example.org]}]", "FE531 node 'ask': no mail may be sent to 'a@example.org'"),
        ("notify: [{type: mail, too: [a@example.org]}]", "FE201 node 'ask': unknown key 'too'; did you mean 'to'?"),
        ("notify: [{type: mail, to: '{{ inputs.whom }}'}]", "f.yaml:5:107: FE303 node 'ask': unknown input 'whom'"),
        ("notify: [{type: http, url: 'https://hooks.example.com/b/'}]", "FE522 node 'ask': the project does not allow"),
        (
            "notify: [{type: http, url: 'https://hooks.example.com/a/', headers_env: {X-A: KEY}}]",
            "FE522 node 'ask': the value of KEY may not be sent",
        ),
        (
            "notify: [{type: http, url: 'https://hooks.example.com/a/', body: '{{ nodes.a }}'}]",
            "there is no 'nodes' here",
        ),
        ("approvers: ['']", "FE403 node 'ask': the value is empty"),
    ],
)
def test_what_is_wrong_in_a_flow_is_told_with_its_place(tmp_path: Path, said: str, expected: str):
    found = told(tmp_path, said)
    assert any(expected in each for each in found), found


def test_a_flow_that_tells_people_needs_a_project_that_says_how(tmp_path: Path):
    (found,) = told(tmp_path, "notify: [ops]", "")
    assert "FE531 node 'ask': the project file does not say how people are told; add [notify] with its `url`" in found


def test_a_sound_flow_has_no_problems_and_whom_it_tells_is_no_part_of_its_definition(tmp_path: Path):
    assert told(tmp_path, "notify: [ops, {type: mail, to: ['{{ inputs.who }}', a@example.com]}]") == []
    from flowengine.flowfile.compile.compiler import load_plan

    one = load_plan(tmp_path / "f.yaml").fingerprints
    told(tmp_path, "notify: [ops]")
    assert load_plan(tmp_path / "f.yaml").fingerprints == one
    assert load_flow(tmp_path / "f.yaml").nodes["ask"].type == "approval"
