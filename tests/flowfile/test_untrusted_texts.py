"""On which paths untrusted text gets to an effect, what closes them, and what `trust` means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from flowengine.errors import FlowError
from flowengine.flowfile.checks.report import Report
from flowengine.flowfile.checks.untrusted_texts import check_untrusted_texts
from flowengine.flowfile.loader import check_file, load_flow
from flowengine.flowfile.project.project import Project, find_project
from flowengine.flowfile.risks.risk_paths import RiskPaths, find_risk_paths

HEAD = """flowengine: v1
name: sample
inputs:
  word: {type: string, untrusted: true}
  kind: {type: string, enum: [a, b], untrusted: true}
  code: {schema: {type: string, pattern: '^[A-Z]-[0-9]{1,4}$'}, untrusted: true}
  count: {type: integer, untrusted: true}
  own: {type: string, default: mine}
shared_state: {notes: {type: array, default: [], merge: append}, last: {default: x, merge: replace}}
nodes:
"""
CODE = '''"""Steps of the flows."""
from typing import Any, Literal
from flowengine import NodeResult, tool

def send(text: Any) -> str: ...
def clean(text: str) -> bool: ...
def score(target: str) -> float: ...
def echo(text: Any) -> Any: ...
def count(text: Any) -> int: ...
def choose(text: Any) -> Literal["a", "b"]: ...
def sees(context): ...
@tool(effect="external")
def mail(text: str) -> str: ...
@tool(effect="external", approve=True)
def ask(text: str) -> str: ...
@tool(effect="external", approve=False)
def loud(text: str) -> str: ...
@tool
def look(word: str) -> str: ...
@tool
def total(word: str) -> float: ...
made = tool(send)
'''
STATES = """from flowengine import NodeResult
def note(text): return NodeResult(output=1, state={"notes": [text]})
"""
SEND = "  send: {type: function, call: steps:send, effect: external, "


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("strange")
    (folder / "steps.py").write_text(CODE)
    (folder / "states.py").write_text(STATES)
    (folder / "shelf.py").write_text("notes = object()\n")
    (folder / "flowengine.toml").write_text(
        'allow_calls = ["steps", "states", "shelf"]\nallow_mcp = ["serve"]\nallow_http = ["https://shop.example.com/"]\n'
        '[notify]\nurl = "https://us.example.com"\n[notify.mail]\nserver = "localhost:25"\nsecurity = "none"\n'
        'from = "us@example.com"\nallow_to = ["@example.com"]\n'
    )
    (folder / "notes.md").write_text("notes")
    for name, script in (("plain", None), ("acting", "scripts/run.py")):
        (folder / "skills" / name / "scripts").mkdir(parents=True)
        (folder / "skills" / name / "SKILL.md").write_text(f"---\nname: {name}\ndescription: x\n---\nx")
        if script is not None:
            (folder / "skills" / name / script).write_text("print(1)")
    inner = HEAD.partition("shared_state")[0]
    (folder / "inner.yaml").write_text(
        f"{inner}nodes:\n  say: {{prompt: 'Say {{{{ inputs.own }}}}'}}\n"
        "  judge: {prompt: 'Say {{ inputs.own }}', output: {type: object, properties: {ok: {type: boolean}}}}\n"
        "outputs: {said: '{{ nodes.say.output }}', ok: '{{ nodes.judge.output.ok }}', fixed: word}\n"
    )
    (folder / "acting.yaml").write_text(
        "flowengine: v1\nname: acting\ninputs: {text: {type: string}, other: {type: string, default: x}}\nnodes:\n"
        f"{SEND}with: {{text: '{{{{ inputs.text }}}}'}}}}\n"
    )
    return folder


def ways_in(folder: Path, nodes: str, head: str = HEAD) -> RiskPaths:
    path = folder / "flow.yaml"
    path.write_text(f"{head}{nodes}")
    project = find_project(path)
    return find_risk_paths(load_flow(path, project=project), project)


def ends(risks: RiskPaths) -> set[tuple[str, str]]:
    """The sources and the effects that are linked, each by its node, or an input by its name."""
    return {(".".join(risk.source_node) or risk.source.key, ".".join(risk.effect_node)) for risk in risks.open}


OPEN: dict[str, tuple[str, Sequence[tuple[str, str]]]] = {
    "an input": (f"{SEND}with: {{text: '{{{{ inputs.word }}}}'}}}}", [("word", "send")]),
    "an input that is not marked": (f"{SEND}with: {{text: '{{{{ inputs.own }}}}'}}}}", []),
    "a value out of a choice": (f"{SEND}with: {{text: '{{{{ inputs.kind }}}}'}}}}", []),
    "a value of a narrow pattern": (f"{SEND}with: {{text: '{{{{ inputs.code }}}}'}}}}", []),
    "a number": (f"{SEND}with: {{text: '{{{{ inputs.count }}}}'}}}}", []),
    "a comparison": (f"{SEND}with: {{text: '{{{{ inputs.word == \"x\" }}}} {{{{ inputs.word | length }}}}'}}}}", []),
    "what an if prints": (
        f"{SEND}with: {{text: '{{% if inputs.word %}}{{{{ inputs.own }}}}{{% endif %}}'}}}}",
        [],
    ),
    "what a loop goes over": (
        f"{SEND}with: {{text: '{{% for each in [inputs.word] %}}{{{{ each }}}}{{% endfor %}}'}}}}",
        [("word", "send")],
    ),
    "all inputs": (f"{SEND}with: {{text: '{{{{ inputs }}}}'}}}}", [("word", "send")]),
    "a route by untrusted text": (
        "  pick: {type: routing, instruction: x, target: '{{ inputs.word }}', routes: {a: send, b: {}}}\n"
        f"{SEND}with: {{text: 'It is {{{{ routing_result.next_route }}}}'}}}}",
        [],
    ),
    "why a route was chosen": (
        "  pick: {type: routing, instruction: x, target: '{{ inputs.word }}', routes: {a: send, b: {}}}\n"
        f"{SEND}with: {{text: 'It is {{{{ routing_result.reasoning }}}}'}}}}",
        [("word", "send")],
    ),
    "a score": (
        "  judge: {type: evaluation, target: '{{ inputs.word }}', routes: {pass: send}}\n"
        f"{SEND}with: {{text: 'It is {{{{ nodes.judge.output.score }}}}'}}}}",
        [],
    ),
    "a judge's remarks": (
        "  judge: {type: evaluation, target: '{{ inputs.word }}', routes: {pass: send}}\n"
        f"{SEND}with: {{text: 'It is {{{{ nodes.judge.output.feedback }}}}'}}}}",
        [("word", "send")],
    ),
    "a model's answer": (
        "  a: {prompt: 'Answer {{ inputs.word }}'}\n  b: {}\n" + f"{SEND}with: {{text: '{{{{ nodes.b.output }}}}'}}}}",
        [("word", "send")],
    ),
    "a model's answer out of a choice": (
        "  a: {prompt: '{{ inputs.word }}', output: {type: object, properties: {k: {enum: [x]}, t: {type: string}}}}\n"
        f"{SEND}with: {{text: '{{{{ nodes.a.output.k }}}}'}}}}",
        [],
    ),
    "another field of that answer": (
        "  a: {prompt: '{{ inputs.word }}', output: {type: object, properties: {k: {enum: [x]}, t: {type: string}}}}\n"
        f"{SEND}with: {{text: '{{{{ nodes.a.output.t }}}}'}}}}",
        [("word", "send")],
    ),
    "the whole of that answer": (
        "  a: {prompt: '{{ inputs.word }}', output: {type: object, properties: {k: {enum: [x, y]}}}}\n"
        f"{SEND}with: {{text: '{{{{ nodes.a.output }}}}'}}}}",
        [("word", "send")],
    ),
    "an answer that has no room": (
        "  a: {prompt: '{{ inputs.word }}', output: {type: object, properties: {k: {enum: [x, y]}}, "
        f"additionalProperties: false}}}}\n{SEND}with: {{text: '{{{{ nodes.a.output }}}}'}}}}",
        [],
    ),
    "an answer to nobody strange": (
        "  a: {prompt: '{{ inputs.own }}'}\n" + f"{SEND}with: {{text: '{{{{ nodes.a.output }}}}'}}}}",
        [],
    ),
    "what a function makes of it": (
        "  a: {type: function, call: steps:echo, with: {text: '{{ inputs.word }}'}}\n"
        f"{SEND}needs: [a], with: {{text: '{{{{ result }}}}'}}}}",
        [("word", "send")],
    ),
    "a number that a function makes of it": (
        "  a: {type: function, call: steps:count, with: {text: '{{ inputs.word }}'}}\n"
        f"{SEND}needs: [a], with: {{text: '{{{{ result }}}}'}}}}",
        [],
    ),
    "a function that reads the context": (
        "  a: {type: function, call: steps:sees}\n" + f"{SEND}with: {{text: '{{{{ nodes.a.output }}}}'}}}}",
        [("word", "send")],
    ),
    "an effect without `with`": (
        "  send: {type: function, call: steps:sees, effect: external}",
        [("word", "send")],
    ),
    "a function that brings it": (
        "  a: {type: function, call: steps:echo, with: {text: x}, untrusted: true}\n"
        f"{SEND}with: {{text: '{{{{ nodes.a.output }}}}'}}}}",
        [("a", "send")],
    ),
    "an earlier output": (
        "  a: {prompt: '{{ inputs.word }}'}\n" + f"{SEND}needs: [a], with: {{text: '{{{{ prev_outputs }}}}'}}}}",
        [("word", "send")],
    ),
    "state": (
        "  a: {prompt: '{{ inputs.word }}', set: {notes: ['{{ output }}']}}\n"
        f"{SEND}needs: [a], with: {{text: '{{{{ shared_state.notes }}}}'}}}}",
        [("word", "send")],
    ),
    "state that is written later": (
        f"{SEND}with: {{text: '{{{{ shared_state.notes }}}}'}}}}\n"
        "  a: {needs: [send], prompt: '{{ inputs.word }}', set: {notes: ['{{ output }}']}}",
        [],
    ),
    "state that code writes": (
        "  a: {type: function, call: states:note, with: {text: '{{ inputs.word }}'}}\n"
        f"{SEND}needs: [a], with: {{text: '{{{{ shared_state.last }}}}'}}}}",
        [("word", "send")],
    ),
    "the last generation": (
        "  a: {prompt: '{{ inputs.word }}'}\n"
        f"{SEND}needs: [a], with: {{text: '{{{{ shared_state._last_generation }}}}'}}}}",
        [("word", "send")],
    ),
    "the last prompt": (
        "  a: {prompt: '{{ inputs.word }}', output: {type: boolean}}\n"
        f"{SEND}needs: [a], with: {{text: '{{{{ shared_state._last_prompt }}}}'}}}}",
        [("word", "send")],
    ),
    "the words of a failure": (
        "  a: {prompt: '{{ inputs.word }}', on_error: {then: send}}\n"
        f"{SEND}with: {{text: '{{{{ nodes.a.error }}}} {{{{ nodes.a.status }}}}'}}}}",
        [("word", "send")],
    ),
    "the items of a map": (
        "  all:\n    type: map\n    over: '[inputs.word]'\n    nodes:\n"
        f"    {SEND}with: {{text: '{{{{ item }}}} {{{{ each.index }}}}'}}}}",
        [("word", "all.send")],
    ),
    "what a map gives": (
        "  all: {type: map, over: '[1]', nodes: {a: {prompt: '{{ inputs.word }}'}}}\n"
        f"{SEND}with: {{text: '{{{{ nodes.all.output }}}}'}}}}",
        [("word", "send")],
    ),
    "numbers that a map gives": (
        "  all: {type: map, over: '[1]', nodes: {a: {prompt: '{{ inputs.word }}', output: {type: number}}}}\n"
        f"{SEND}with: {{text: '{{{{ nodes.all.output }}}}'}}}}",
        [],
    ),
    "a variable of a loop": (
        "  again:\n    type: loop\n    max_iterations: 2\n    initial: {t: x, n: '{{ inputs.word }}'}\n"
        "    carry: {t: '{{ round.n }}', n: done}\n    nodes:\n"
        f"    {SEND}with: {{text: '{{{{ round.t }}}} {{{{ round.index }}}}'}}}}",
        [("word", "again.send")],
    ),
    "one of two variables of a loop": (
        "  again: {type: loop, max_iterations: 2, initial: {t: x, n: '{{ inputs.word }}'}, carry: {t: y}, nodes: {a: {"
        f"prompt: '{{{{ round.t }}}}'}}}}}}\n{SEND}with: {{text: '{{{{ nodes.again.output.t }}}}'}}}}",
        [],
    ),
    "state of a later node of the round before": (
        "  again:\n    type: loop\n    max_iterations: 2\n    nodes:\n"
        f"    {SEND}with: {{text: '{{{{ shared_state.notes }}}}'}}}}\n"
        "      a: {needs: [send], prompt: '{{ inputs.word }}', set: {notes: ['{{ output }}']}}",
        [("word", "again.send")],
    ),
    "the last generation of the round before": (
        "  again:\n    type: loop\n    max_iterations: 2\n    nodes:\n"
        f"    {SEND}with: {{text: '{{{{ shared_state._last_generation | default(1) }}}}'}}}}\n"
        "      a: {needs: [send], prompt: '{{ inputs.word }}'}",
        [("word", "again.send")],
    ),
    "into another file": (
        "  sub: {type: subflow, flow: ./acting.yaml, with: {text: '{{ inputs.word }}'}}",
        [("word", "sub.send")],
    ),
    "another input of that file": (
        "  sub: {type: subflow, flow: ./acting.yaml, with: {text: x, other: '{{ inputs.word }}'}}",
        [],
    ),
    "out of another file": (
        "  sub: {type: subflow, flow: ./inner.yaml, with: {word: x, kind: a, code: A-1, count: 1, own: "
        f"'{{{{ inputs.word }}}}'}}}}\n{SEND}with: {{text: '{{{{ nodes.sub.output.said }}}}'}}}}",
        [("word", "send")],
    ),
    "other outputs of that file": (
        "  sub: {type: subflow, flow: ./inner.yaml, with: {word: x, kind: a, code: A-1, count: 1, own: "
        f"'{{{{ inputs.word }}}}'}}}}\n"
        f"{SEND}with: {{text: '{{{{ nodes.sub.output.ok }}}}{{{{ nodes.sub.output.fixed }}}}'}}}}",
        [],
    ),
    "a request's answer": (
        "  ask: {type: http, url: 'https://shop.example.com/'}\n"
        f"{SEND}with: {{text: '{{{{ nodes.ask.output.body }}}} {{{{ nodes.ask.output.status }}}}'}}}}",
        [("ask", "send")],
    ),
    "a request's status": (
        "  ask: {type: http, url: 'https://shop.example.com/'}\n"
        f"{SEND}with: {{text: '{{{{ nodes.ask.output.status }}}}'}}}}",
        [],
    ),
    "a number in a request's answer": (
        "  ask: {type: http, url: 'https://shop.example.com/', expect: {schema: {properties: {n: {type: integer}}}}}\n"
        f"{SEND}with: {{text: '{{{{ nodes.ask.output.body.n }}}}'}}}}",
        [],
    ),
    "a tool's answer": (
        "  ask: {type: tool, tool: 'steps:look', with: {word: x}}\n"
        f"{SEND}with: {{text: '{{{{ nodes.ask.output }}}}'}}}}",
        [("ask", "send")],
    ),
    "a tool's number": (
        "  ask: {type: tool, tool: 'steps:total', with: {word: x}}\n"
        f"{SEND}with: {{text: '{{{{ nodes.ask.output }}}}'}}}}",
        [],
    ),
    "an address": ("  get: {type: http, url: 'https://shop.example.com/{{ inputs.word }}'}", [("word", "get")]),
    "what stands behind an address": (
        "  get: {type: http, url: 'https://shop.example.com/', query: {q: '{{ inputs.word }}'}}",
        [("word", "get")],
    ),
    "a header": (
        "  get: {type: http, url: 'https://shop.example.com/', headers: {X-A: '{{ inputs.word }}'}}",
        [("word", "get")],
    ),
    "a body that is sent": (
        "  put: {type: http, method: PUT, url: 'https://shop.example.com/', json: {a: '{{ inputs.word }}'}}",
        [("word", "put")],
    ),
    "a body of a request that changes nothing": (
        "  find: {type: http, method: POST, effect: none, url: 'https://shop.example.com/', json: '{{ inputs.word }}'}",
        [],
    ),
    "the address of a mail to a person": (
        "  ok: {type: approval, message: x, routes: {yes: {}}, notify: [{type: mail, to: '{{ inputs.word }}'}]}",
        [("word", "ok")],
    ),
    "code": ("  run: {type: code, code: return a, with: {a: '{{ inputs.word }}'}}", [("word", "run")]),
    "a tool that is external": (
        "  mail: {type: tool, tool: 'steps:mail', with: {text: '{{ inputs.word }}'}}",
        [("word", "mail")],
    ),
    "a tool without an effect": ("  a: {type: tool, tool: 'steps:look', with: {word: '{{ inputs.word }}'}}", []),
    "a tool that is not seen": (
        "  a: {type: tool, tool: 'steps:made', with: {text: '{{ inputs.word }}'}}",
        [("word", "a")],
    ),
    "an agent with such a tool": (
        "  a: {prompt: '{{ inputs.word }}', tools: ['steps:mail']}",
        [("word", "a"), ("a", "a")],
    ),
    "an agent whose tools do nothing": ("  a: {prompt: '{{ inputs.word }}', tools: ['steps:look']}", []),
    "an agent's tool that answers another one": ("  a: {prompt: x, tools: ['steps:look', 'steps:mail']}", [("a", "a")]),
    "an agent with a server": (
        "  a: {prompt: '{{ inputs.word }}', mcp_servers: [{name: t, command: serve}]}",
        [("word", "a"), ("a", "a")],
    ),
    "an agent whose skills have scripts": (
        "  a: {prompt: '{{ inputs.word }}', skills: [skills/acting]}",
        [("word", "a")],
    ),
    "an agent whose skills have none": ("  a: {prompt: '{{ inputs.word }}', skills: [skills/plain]}", []),
    "an agent that reads a file": (
        "  a: {prompt: x, context: [fixed_file: {file_path: notes.md}], tools: ['steps:mail']}",
        [("a", "a")],
    ),
    "a typed context": (
        "  a: {prompt: '{{ inputs.word }}', contexts: ['shelf:notes']}\n"
        "  b: {needs: [a], prompt: x, contexts: ['shelf:notes']}\n"
        f"{SEND}with: {{text: '{{{{ nodes.b.output }}}}'}}}}",
        [("word", "send"), ("a", "send"), ("b", "send")],
    ),
    "the conversation": (
        "  a: {prompt: '{{ inputs.word }}', context: [conversation]}\n"
        "  b: {needs: [a], prompt: x, context: [conversation]}\n"
        f"{SEND}with: {{text: '{{{{ nodes.b.output }}}}'}}}}",
        [("word", "send")],
    ),
    "a container that acts": (
        "  all: {type: map, over: '[1]', effect: external, nodes: {a: {prompt: '{{ inputs.word }}'}}}",
        [("word", "all")],
    ),
}


@pytest.mark.parametrize("case", OPEN)
def test_a_way_is_found_where_there_is_one(folder: Path, case: str) -> None:
    nodes, wanted = OPEN[case]
    assert ends(ways_in(folder, nodes)) == set(wanted)


SHOWS = (
    "  a: {prompt: '{{ inputs.word }}', output: {type: object, properties: {t: {type: string}, u: {type: string}}}}\n"
)
CLOSED: dict[str, tuple[str, bool]] = {
    "an approval that shows it": (
        "  ok: {type: approval, message: '{{ nodes.a.output.t }}', routes: {yes: send, no: {}}}\n"
        f"{SEND}with: {{text: '{{{{ nodes.a.output.t }}}}'}}}}",
        True,
    ),
    "an approval that shows all of it": (
        "  ok: {type: approval, message: 'So? {{ nodes.a.output | tojson }}', routes: {yes: send, no: {}}}\n"
        f"{SEND}with: {{text: '{{{{ nodes.a.output.t }}}}'}}}}",
        True,
    ),
    "what an approved text was made to": (
        "  ok: {type: approval, message: '{{ nodes.a.output.t }}', routes: {yes: b, no: {}}}\n"
        "  b: {prompt: '{{ nodes.a.output.t }}'}\n" + f"{SEND}with: {{text: '{{{{ nodes.b.output }}}}'}}}}",
        True,
    ),
    "a node behind the one that was approved": (
        "  ok: {type: approval, message: '{{ nodes.a.output.t }}', routes: {yes: b, no: {}}}\n"
        "  b: {prompt: x}\n" + f"{SEND}join: all, needs: [b], with: {{text: '{{{{ nodes.a.output.t }}}}'}}}}",
        True,
    ),
    "what the person wrote": (
        "  ok: {type: approval, message: '{{ nodes.a.output.t }}', routes: {yes: send, no: {}}}\n"
        f"{SEND}with: {{text: '{{{{ nodes.ok.output.comment }}}}'}}}}",
        True,
    ),
    "`when` it was approved": (
        "  ok: {type: approval, message: '{{ nodes.a.output.t }}', routes: {yes: {}, no: {}}}\n"
        f"{SEND}when: nodes.ok.output.choice == 'yes', with: {{text: '{{{{ nodes.a.output.t }}}}'}}}}",
        True,
    ),
    "an approval whose choices all lead to it": (
        "  ok: {type: approval, message: '{{ nodes.a.output.t }}', routes: {yes: send, no: send}}\n"
        f"{SEND}with: {{text: '{{{{ nodes.a.output.t }}}}'}}}}",
        False,
    ),
    "an approval that shows another field": (
        "  ok: {type: approval, message: '{{ nodes.a.output.u }}', routes: {yes: send, no: {}}}\n"
        f"{SEND}with: {{text: '{{{{ nodes.a.output.t }}}}'}}}}",
        False,
    ),
    "an approval that shows the name of a file": (
        "  ok: {type: approval, message: '{{ inputs.scan }}', routes: {yes: b, no: {}}}\n"
        "  b: {prompt: x, attach: ['{{ inputs.scan }}']}\n" + f"{SEND}with: {{text: '{{{{ nodes.b.output }}}}'}}}}",
        False,
    ),
    "an approval that shows a part": (
        "  ok: {type: approval, message: '{{ nodes.a.output.t | truncate(20) }}', routes: {yes: send, no: {}}}\n"
        f"{SEND}with: {{text: '{{{{ nodes.a.output.t }}}}'}}}}",
        False,
    ),
    "an approval that shows it at times": (
        "  ok: {type: approval, message: '{% if inputs.own %}{{ nodes.a.output.t }}{% endif %}', "
        f"routes: {{yes: send, no: {{}}}}}}\n{SEND}with: {{text: '{{{{ nodes.a.output.t }}}}'}}}}",
        False,
    ),
    "an approval that leads there in any case": (
        "  ok: {type: approval, message: '{{ nodes.a.output.t }}', routes: {yes: {}, no: {}}}\n"
        f"{SEND}needs: [ok], with: {{text: '{{{{ nodes.a.output.t }}}}'}}}}",
        False,
    ),
    "an approval beside": (
        "  ok: {type: approval, message: '{{ nodes.a.output.t }}', routes: {yes: b, no: {}}}\n  b: {prompt: x}\n"
        f"{SEND}with: {{text: '{{{{ nodes.a.output.t }}}}'}}}}",
        False,
    ),
    "an approval that nobody answered": (
        "  ok: {type: approval, message: '{{ nodes.a.output.t }}', routes: {yes: send, no: {}}, expires: 1h, "
        f"on_expire: yes}}\n{SEND}with: {{text: '{{{{ nodes.a.output.t }}}}'}}}}",
        False,
    ),
    "state that is written again after it was shown": (
        "  w: {type: function, call: steps:echo, with: {text: x}, set: {last: '{{ inputs.word }}'}}\n"
        "  ok: {type: approval, needs: [w], message: '{{ shared_state.last }}', routes: {yes: b, no: {}}}\n"
        "  b: {prompt: x, set: {last: '{{ inputs.word }}'}}\n"
        f"{SEND}join: all, needs: [b], with: {{text: '{{{{ shared_state.last }}}}'}}}}",
        False,
    ),
    "state that was shown": (
        "  w: {type: function, call: steps:echo, with: {text: x}, set: {last: '{{ inputs.word }}'}}\n"
        "  ok: {type: approval, needs: [w], message: '{{ shared_state.last }}', routes: {yes: send, no: {}}}\n"
        f"{SEND}with: {{text: '{{{{ shared_state.last }}}}'}}}}",
        True,
    ),
    "a condition that compares it with words": (
        "  ok: {type: condition, if: \"inputs.word in ['x', 'y']\", then: send}\n"
        f"{SEND}with: {{text: '{{{{ inputs.word }}}}'}}}}",
        True,
    ),
    "the other side of that condition": (
        "  ok: {type: condition, if: \"inputs.word in ['x', 'y']\", else: send}\n"
        f"{SEND}with: {{text: '{{{{ inputs.word }}}}'}}}}",
        False,
    ),
    "a condition that asks for something else": (
        "  ok: {type: condition, if: inputs.word != 'x', then: send}\n"
        f"{SEND}with: {{text: '{{{{ inputs.word }}}}'}}}}",
        False,
    ),
    "a condition by code that nobody knows to check it": (
        "  ok: {type: condition, call: steps:sees, routes: {yes: send, no: {}}}\n"
        f"{SEND}with: {{text: '{{{{ inputs.word }}}}'}}}}",
        False,
    ),
    "a switch over it": (
        "  ok: {type: condition, switch: inputs.word, routes: {x: send, y: {}}, else: {}}\n"
        f"{SEND}with: {{text: '{{{{ inputs.word }}}}'}}}}",
        True,
    ),
    "what no route of a switch is": (
        "  ok: {type: condition, switch: inputs.word, routes: {x: {}, y: {}}, else: send}\n"
        f"{SEND}with: {{text: '{{{{ inputs.word }}}}'}}}}",
        False,
    ),
    "its own `when`": (f"{SEND}when: inputs.word == 'x', with: {{text: '{{{{ inputs.word }}}}'}}}}", True),
    "a score by code": (
        "  ok: {type: evaluation, call: steps:score, target: '{{ nodes.a.output.t }}', routes: {pass: send}}\n"
        f"{SEND}with: {{text: '{{{{ nodes.a.output.t }}}}'}}}}",
        True,
    ),
    "a score by a model": (
        "  ok: {type: evaluation, target: '{{ nodes.a.output.t }}', routes: {pass: send}}\n"
        f"{SEND}with: {{text: '{{{{ nodes.a.output.t }}}}'}}}}",
        False,
    ),
    "a guardrail of the answer": (
        "  b: {prompt: '{{ inputs.word }}', guardrails: {output: ['steps:clean']}}\n"
        f"{SEND}with: {{text: '{{{{ nodes.b.output }}}}'}}}}",
        True,
    ),
    "a guardrail of the prompt": (
        "  b: {prompt: '{{ inputs.word }}', guardrails: {input: ['steps:clean']}}\n"
        f"{SEND}with: {{text: '{{{{ nodes.b.output }}}}'}}}}",
        True,
    ),
    "a guardrail of the prompt, and instructions": (
        "  b: {prompt: x, instructions: '{{ inputs.word }}', guardrails: {input: ['steps:clean']}}\n"
        f"{SEND}with: {{text: '{{{{ nodes.b.output }}}}'}}}}",
        False,
    ),
}


@pytest.mark.parametrize("case", CLOSED)
def test_a_way_is_closed_by_what_stands_between(folder: Path, case: str) -> None:
    nodes, closed = CLOSED[case]
    head = HEAD.replace("shared_state:", "  scan: {type: file, default: notes.md}\nshared_state:")
    assert (ends(ways_in(folder, SHOWS + nodes, head)) == set()) is closed


@pytest.mark.parametrize(
    ("settings", "by_project", "acts"),
    [
        ("tools: ['steps:mail'], approve: [mail]", False, False),
        ("tools: ['steps:mail'], approve: ['m*']", False, False),
        ("tools: ['steps:mail', 'steps:loud'], approve: [mail]", False, True),
        ("tools: ['steps:mail']", True, False),
        ("tools: ['steps:loud']", True, True),
        ("tools: ['steps:ask']", False, False),
        ("tools: ['steps:made'], approve: [send]", False, True),
        ("tools: ['steps:made'], approve: ['*']", False, False),
        ("mcp_servers: [{name: t, command: serve}], approve: ['t.*']", False, False),
        ("mcp_servers: [{name: t, command: serve}], approve: [t.send]", False, True),
        ("mcp_servers: [{name: t, command: serve, allow: [send]}], approve: [t.send]", False, False),
        ("mcp_servers: [{name: t, command: serve}]", True, False),
        ("type: tool, tool: 'steps:ask', with: {text: '{{ inputs.word }}'}", False, False),
        ("type: tool, tool: 'steps:mail', with: {text: '{{ inputs.word }}'}", True, False),
    ],
)
def test_calls_that_a_person_is_asked_about_are_no_effect(
    folder: Path, settings: str, by_project: bool, acts: bool
) -> None:
    path = folder / "asked.yaml"
    prompt = "" if settings.startswith("type") else "prompt: '{{ inputs.word }}', "
    path.write_text(f"{HEAD}  a: {{{prompt}{settings}}}\n")
    project = replace(find_project(path), approve_external=by_project)
    assert bool(find_risk_paths(load_flow(path, project=project), project).open) is acts


# --- trust

A = "  a: {prompt: '{{ inputs.word }}'%s}\n"
MAIL = f"{SEND}with: {{text: '{{{{ nodes.a.output }}}}'}}%s}}"


@pytest.mark.parametrize(
    ("of_agent", "of_effect", "opened", "meant", "unneeded"),
    [
        ("", "", 1, 0, 0),
        ("", ", trust: It is a draft.", 0, 1, 0),
        (", trust: It is clean.", "", 0, 1, 0),
        (", trust: {prompt: It is clean.}", "", 0, 1, 0),
        (", trust: {output: It is clean.}", "", 0, 1, 0),
        ("", ", trust: {with: It is clean.}", 0, 1, 0),
        (", trust: {instructions: They are ours.}", "", 1, 0, 1),
        ("", ", trust: {output: It is ours.}", 1, 0, 1),
        (", trust: It is clean.", ", trust: It is a draft.", 0, 1, 0),
    ],
)
def test_trust_says_what_is_meant(
    folder: Path, of_agent: str, of_effect: str, opened: int, meant: int, unneeded: int
) -> None:
    risks = ways_in(folder, A % of_agent + MAIL % of_effect)
    assert (len(risks.open), len(risks.meant), len(risks.unneeded)) == (opened, meant, unneeded)


def test_what_a_webhook_hands_on_is_a_source(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(CODE)
    hook = '[[webhooks]]\npath = "{path}"\nflow = "{flow}"\nsignature = "github"\nsecret_env = "S"\ninputs = {inputs}\n'
    (tmp_path / "flowengine.toml").write_text(
        'allow_calls = ["steps"]\n'
        + hook.format(
            path="in",
            flow="hooked",
            inputs='{a = "{{ body.x }}", b = "ours", c = ["", {d = "{{ headers.e }}"}], '
            'kind = "{{ body.kind }}", meant = "{{ body.x }}"}',
        )
        + hook.format(path="other", flow="another", inputs='{b = "{{ body.x }}"}')
    )
    inputs = {
        "a": "string",
        "b": "string",
        "c": "array",
        "kind": "string, enum: [x, y]",
        "meant": "string, untrusted: false",
    }
    head = "flowengine: v1\nname: hooked\ninputs:\n" + "".join(f"  {k}: {{type: {v}}}\n" for k, v in inputs.items())
    sends = "".join(
        f"{SEND.replace('send:', f'send_{k}:', 1)}with: {{text: '{{{{ inputs.{k} }}}}'}}}}\n" for k in inputs
    )
    risks = ways_in(tmp_path, sends, f"{head}nodes:\n")
    assert ends(risks) == {("a", "send_a"), ("c", "send_c")}
    told = [str(each) for each in check_file(tmp_path / "flow.yaml")]
    assert "the input 'a', which the webhook 'in' fills" in told[0]


def test_what_an_acting_node_gives_is_not_trusted_with_what_it_does(folder: Path) -> None:
    nodes = "  a: {type: http, url: 'https://shop.example.com/{{ inputs.word }}', trust: The shop knows.}\n"
    risks = ways_in(folder, nodes + MAIL.replace("output", "output.body") % "")
    assert ends(risks) == {("a", "send"), ("word", "send")}
    assert [risk.meant for risk in risks.meant] == ["The shop knows."]


def test_state_is_trusted_by_its_key(folder: Path) -> None:
    head = HEAD.replace("last: {default: x,", "last: {default: x, trust: It is cut to one word.,")
    nodes = A % ", set: {last: '{{ output }}'}" + f"{SEND}needs: [a], with: {{text: '{{{{ shared_state.last }}}}'}}}}"
    risks = ways_in(folder, nodes, head)
    assert (risks.open, [risk.meant for risk in risks.meant]) == ([], ["It is cut to one word."])
    assert [each.key for each in ways_in(folder, A % "", head).unneeded] == ["last"]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("trust: true", "FE401 node 'a': say why it is meant, as in `trust: <reason>`; found true"),
        ("trust: ' '", "FE401 node 'a': say why it is meant, as in `trust: <reason>`; found ' '"),
        ("trust:", "FE408 node 'a': the key has no value"),
        ("trust: {prompt: ''}", "FE401 node 'a': say why 'prompt' is meant, found ''"),
        ("trust: {promt: x}", "FE201 node 'a': a node of this type has no key 'promt' that could be trusted; did you"),
    ],
)
def test_trust_needs_a_reason_and_a_key(said: str, told: str) -> None:
    with pytest.raises(FlowError, match=r"FE\d") as error:
        load_flow(text=f"flowengine: v1\nname: t\nnodes:\n  a:\n    prompt: x\n    {said}\n")
    assert told in str(error.value)


# --- what is told


def test_a_warning_has_both_places(folder: Path) -> None:
    head = "flowengine: v1\nname: t\ninputs:\n  word: {type: string, untrusted: true}\nnodes:\n"
    (folder / "told.yaml").write_text(head + A % "" + MAIL % "" + "\n  b: {prompt: x, trust: It is ours.}\n")
    first, second = check_file(folder / "told.yaml")
    place = f"{folder / 'told.yaml'}"
    assert str(first) == (
        f"{place}:7:79: warning FE921 node 'send': untrusted text reaches an effect outside: the input 'word' "
        f"({place}:4:24), by way of 'a'; add an approval, restrict the value to a closed choice, or give a reason "
        "with `trust`"
    )
    assert str(second).startswith(f"{place}:8:18: warning FE922 node 'b': no untrusted text reaches an effect")


def test_a_way_within_another_file_is_told_once(folder: Path) -> None:
    inner = (
        (folder / "acting.yaml").read_text().replace("text: {type: string}", "text: {type: string, untrusted: true}")
    )
    (folder / "own.yaml").write_text(inner)
    flow = HEAD + "  sub: {type: subflow, flow: ./own.yaml, with: {text: '{{ inputs.own }}'}}\n"
    (folder / "outer.yaml").write_text(flow)
    found = [each.file for each in check_file(folder / "outer.yaml") if each.code == "FE921"]
    assert found == [str(folder / "own.yaml")]


def test_a_flow_with_errors_is_not_looked_at(folder: Path) -> None:
    (folder / "wrong.yaml").write_text(HEAD + A % "" + MAIL % "" + "\n  b: {promt: x}\n")
    assert [each.code for each in check_file(folder / "wrong.yaml")] == ["FE201"]


def test_many_nodes_are_no_many_warnings(folder: Path) -> None:
    """Of one effect the nearest sources are told, and a thousand nodes are looked through at once."""
    nodes = "".join(f"  n{number}: {{prompt: '{{{{ inputs.word }}}}'}}\n" for number in range(1_000))
    reads = " ".join(f"{{{{ nodes.n{number}.output }}}}" for number in range(1_000))
    risks = ways_in(folder, f"{nodes}{SEND}with: {{text: '{reads}'}}}}")
    assert ends(risks) == {("word", "send")}


def test_nothing_is_loaded_for_a_flow_without_effects(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = load_flow(text=HEAD + A % "")
    monkeypatch.setitem(__import__("sys").modules, "flowengine.flowfile.risks.risk_paths", None)
    report = Report(spec)
    check_untrusted_texts(spec, Project(folder), report)
    assert report.diagnostics == []
