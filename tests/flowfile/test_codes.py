"""Every code, earned by a file: the code, the place and the words."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowengine.flowfile.checks.codes import CODES
from flowengine.flowfile.loader import check_file, check_text
from flowengine.flowfile.project.project import find_project

HEAD = "flowengine: v1\nname: sample\n"
"""Two lines, so that a case's own first line is the third."""

CASES: dict[str, list[tuple[str, str]]] = {
    # --- the file and its YAML
    "FE104": [
        ("nodes: {a: [1, 2}", "3:17: FE104 not YAML: while parsing a flow sequence: did not find expected ',' or ']'"),
        ("nodes: a: b", "3:9: FE104 not YAML"),
        (
            "nodes:\n  a:\n    prompt: Answer: now",
            "5:19: FE104 not YAML: mapping values are not allowed in this context; "
            "write a text that holds ': ' in quotes",
        ),
        ("x-n: " + "9" * 400 + "\nnodes: {a: {prompt: x}}", "3:6: FE104 a number may have 300 digits"),
        ("x-n: [.inf, -1e400]\nnodes: {a: {prompt: x}}", "3:13: FE104 -1e400 is beyond all numbers"),
        ("x-n: 0x" + "f" * 400 + "\nnodes: {a: {prompt: x}}", "3:6: FE104 a number may have 300 digits"),
    ],
    "FE106": [("nodes: {a: {prompt: x}}\n---\nb: 1", "4:1: FE106 a second document begins here")],
    "FE107": [
        (
            "nodes:\n  a: {prompt: one}\n  a: {prompt: two}",
            "5:3: FE107 the key 'a' was given before, in line 4",
        )
    ],
    "FE108": [
        ("nodes: {a: {prompt: !!str 12}}", "3:21: FE108 the tag '!!str' is not part of the format"),
        ("nodes: {a: !agent {prompt: x}}", "3:12: FE108 the tag '!agent' is not part of the format"),
    ],
    "FE109": [("nodes:\n\ta: {prompt: x}", "4:1: FE109 a tab stands here; indent with spaces")],
    "FE110": [
        ("nodes: {1: {prompt: x}}", '3:9: FE110 a key must be a string, found the number 1; write "1" in quotes'),
        ("nodes: {true: {prompt: x}}", "3:9: FE110 a key must be a string, found the boolean true"),
        ("nodes: {a: {prompt: x}}\n? [a]\n: 1", "4:3: FE110 a key must be a string, found a list"),
        (
            "nodes: {a: {prompt: {{ inputs.q }}}}",
            '3:22: FE110 a key must be a string, found a map; write a template in quotes: "{{ … }}"',
        ),
    ],
    "FE111": [("x-a: &a [1, *a]", "3:13: FE111 the alias '*a' stands inside its own anchor")],
    "FE112": [
        (
            "x-0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
            + "".join(f"x-{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)),
            "8:11: FE112 with its aliases written out the file holds more than 200,000 values",
        )
    ],
    "FE113": [("x-a: " + "[" * 100, "3:70: FE113 nested deeper than 64")],
    "FE114": [
        ("nodes: {a: {prompt: \0}}", "3:21: FE114 the character U+0000 may not stand here"),
        ("nodes: {a: {prompt: a\u2028b}}", "3:22: FE114 the character U+2028 may not stand here"),
    ],
    "FE116": [("nodes: {a: *nowhere}", "3:12: FE116 no anchor '&nowhere' stands before this alias")],
    # --- structure and references
    "FE201": [
        ("nodes: {a: {promt: x}}", "3:13: FE201 node 'a': unknown key 'promt'; did you mean 'prompt'?"),
        (
            "nodes: {a: {type: condition, if: 'true', then: b, otherwise: b}, b: {prompt: x}}",
            "3:51: FE201 node 'a': unknown key 'otherwise'; did you mean 'else'?",
        ),
        (
            "defaults: {model: offline}\nnodes: {a: {prompt: x}}",
            "3:12: FE201 unknown key 'model'; it goes to `agent`: {agent: {model: …}}",
        ),
        (
            "model: offline\nnodes: {a: {prompt: x}}",
            "3:1: FE201 unknown key 'model'; it goes to `defaults`: {defaults: {agent: {model: …}}}",
        ),
        (
            "edges: [[a, b]]\nnodes: {a: {prompt: x}}",
            "3:1: FE201 unknown key 'edges'; a node names what it follows: {needs: […]}",
        ),
        (
            "nodes: {a: {role: Writer, goal: Write, prompt: x}}",
            "3:13: FE201 node 'a': unknown key 'role'; did you mean 'instructions'?",
        ),
        (
            "nodes: {a: {type: map, over: '[1]', prompt: x, nodes: {b: {prompt: x}}}}",
            "FE201 node 'a': 'map' takes no 'prompt'; put it on a node inside: {nodes: {answer: {prompt: …}}}",
        ),
        (
            "nodes: {a: {type: approval, prompt: Now?, routes: {go: {}}}}",
            "FE201 node 'a': unknown key 'prompt'; did you mean 'message'?",
        ),
        ("nodes: {a: {prompt: x, if: 'true'}}", "FE201 node 'a': unknown key 'if'; did you mean 'when'?"),
        ("node: {a: {prompt: x}}", "3:1: FE201 unknown key 'node'; did you mean 'nodes'?"),
        (
            "nodes: {a: {improve: {threshhold: 1}}}",
            "3:23: FE201 node 'a': unknown key 'threshhold'; did you mean 'threshold'?",
        ),
        (
            "nodes: {a: {type: routing, instruction: i, routes: {x: {too: b}}}, b: {prompt: x}}",
            "3:57: FE201 node 'a': unknown key 'too'; did you mean 'to'?",
        ),
        ("nodes: {a: {type: condition, cases: [{if: x, than: a, label: l}]}}", "3:46: FE201 node 'a': unknown key"),
        ("x-base: &b {prompt: x}\nnodes: {a: {<<: *b}}", "4:13: FE201 unknown key '<<'; merge keys are not"),
        (
            "nodes: {a: {call: 'm:f', with: {v: {<<: {a: 1}, b: 2}}}}",
            "3:37: FE201 unknown key '<<'; merge keys are not YAML 1.2: write the keys themselves",
        ),
        (
            "nodes: {a: {prompt: x}, e: {type: evaluation, routes: {pas: a}}}",
            "3:56: FE201 node 'e': an evaluation's routes are 'pass' and 'fail', found 'pas'",
        ),
    ],
    "FE231": [
        (
            "nodes: {a: {prompt: x}, b: {prompt: y}, c: {needs: [a, b], join: first, prompt: z}}",
            "3:66: FE231 node 'c': no node goes on with whichever branch ends first, for what a node sees never "
            "depends on timing; let a map try the alternatives with `until: results | length >= 1`, which cancels "
            "the rest",
        ),
        ("nodes: {a: {type: race, nodes: {b: {prompt: x}}}}", "3:19: FE231 node 'a': no node goes on with whichever"),
    ],
    "FE202": [
        ("nodes: {a: {type: routing, routes: {x: {}}}}", "3:9: FE202 node 'a': the key 'instruction' is missing"),
        ("nodes: {a: {type: condition}}", "3:9: FE202 node 'a': a condition needs 'if', 'cases', 'switch' or 'call'"),
        ("inputs: {n: {}}\nnodes: {a: {prompt: x}}", "3:10: FE202 an input needs 'type' or 'schema'"),
        ("nodes: {a: {type: condition, cases: [{if: 'true'}]}}", "3:38: FE202 node 'a': a case needs 'then'"),
    ],
    "FE203": [
        (
            "nodes:\n  pick: {type: condition, if: 'true', then: publsh}\n  publish: {prompt: x}",
            "4:45: FE203 node 'pick': unknown target 'publsh'; did you mean 'publish'?",
        ),
        ("nodes: {a: {needs: [b], prompt: x}}", "3:21: FE203 node 'a': unknown target 'b'"),
        ("nodes: {a: {on_error: {then: b}, prompt: x}}", "3:30: FE203 node 'a': unknown target 'b'"),
        (
            "nodes: {a: {type: routing, target: t, instruction: i, routes: {x: {to: c}}, fallback: d}}",
            "3:72: FE203 node 'a': unknown target 'c'",
        ),
        (
            "nodes: {a: {type: routing, target: t, instruction: i, routes: {x: {}}, fallback: d}}",
            "3:82: FE203 node 'a': unknown target 'd'",
        ),
        (
            "agents: {w: {routing: {instruction: i, routes: {x: c}}}}\nnodes: {a: {agent: w, prompt: x}}",
            "3:52: FE203 unknown target 'c'",
        ),
        ("nodes: {a: {type: condition, cases: [{if: 'true', then: c}]}}", "3:57: FE203 node 'a': unknown target 'c'"),
    ],
    "FE204": [
        ("nodes: {a: {type: agnet}}", "3:19: FE204 node 'a': unknown node type 'agnet'; did you mean 'agent'?"),
        ("nodes: {a: {type: transform}}", "unknown node type 'transform'; there are agent, approval, code, condition,"),
        ("nodes: {a: {type: [agent]}}", "3:19: FE204 node 'a': unknown node type a list"),
    ],
    "FE206": [
        (
            "nodes: {my-node: {prompt: x}}",
            "3:9: FE206 node 'my-node': 'my-node' is not a valid name: small letters, digits and _, a letter first; "
            "did you mean 'my_node'?",
        ),
        ("shared_state: {_last_prompt: {}}\nnodes: {a: {prompt: x}}", "3:16: FE206 '_last_prompt' is not a valid name"),
        ('shared_state: {"key\\n": {}}\nnodes: {a: {prompt: x}}', "3:16: FE206 'key\\n' is not a valid name"),
    ],
    "FE208": [("nodes: {}", "3:1: FE208 a flow needs at least one node")],
    "FE209": [
        (
            "nodes: {a: {type: condition, if: 'true', call: 'm:f', then: b}, b: {prompt: x}}",
            "3:42: FE209 node 'a': 'if' and 'call' exclude each other",
        ),
        (
            "nodes: {a: {type: condition, if: 'true', routes: {x: {}}}}",
            "3:42: FE209 node 'a': 'routes' does not go with 'if'",
        ),
        ("nodes: {a: {prompt: x, improve: {}, evaluate: {}}}", "3:37: FE209 node 'a': 'improve' evaluates already"),
        ("inputs: {n: {schema: {}, type: string}}\nnodes: {a: {prompt: x}}", "3:26: FE209 'schema' says it all"),
        (
            "nodes: {a: {type: evaluation, call: 'm:f', model: x}}",
            "3:44: FE209 node 'a': 'call' scores in code, so nothing would read 'model'",
        ),
    ],
    "FE210": [
        (
            "nodes:\n  a: {needs: [c], prompt: x}\n  b: {prompt: '{{ nodes.a.output }}'}\n  c: {needs: [b], prompt: x}",
            "4:15: FE210 node 'a': the nodes form a cycle: a → b → c → a",
        ),
        (
            "nodes:\n  a: {prompt: '{{ nodes.b.output }}'}\n  b: {type: condition, if: 'true', then: a}\n"
            "  c: {type: condition, if: nodes.b.output == 'x', needs: [a], else: b}",
            "FE210",
        ),
    ],
    "FE211": [
        (
            "nodes: {a: {needs: [a], prompt: x}}",
            "3:21: FE211 node 'a': a node cannot wait for itself or lead to itself",
        ),
        (
            "nodes: {a: {prompt: 'x {{ nodes.a.output }}'}}",
            "3:27: FE211 node 'a': the template of 'a' reads the node's own output",
        ),
        ("nodes: {a: {type: condition, if: 'true', then: a}}", "3:48: FE211 node 'a'"),
    ],
    "FE212": [
        (
            "nodes: {a: {type: routing, target: t, instruction: i, routes: {fallback: b}, fallback: c}, "
            "b: {prompt: x}, c: {prompt: x}}",
            "3:64: FE212 node 'a': the label 'fallback' is the engine's",
        ),
        (
            "nodes: {a: {type: routing, target: t, instruction: i, routes: {on_error: b}, on_error: {then: b}}, "
            "b: {prompt: x}}",
            "3:64: FE212 node 'a': the label 'on_error' is the engine's",
        ),
        (
            "nodes: {a: {type: condition, cases: [{if: 'true', then: b, label: x}, {if: 'true', then: c, label: x}]}, "
            "b: {prompt: x}, c: {prompt: x}}",
            "3:90: FE212 node 'a': the label 'x' leads to two places",
        ),
        (
            "nodes: {a: {type: routing, target: t, instruction: i, routes: {tea: {}, Tea: {}}}}",
            "FE212 node 'a': the labels 'tea' and 'Tea' differ in upper and lower case only, or in composed letters",
        ),
        (
            "nodes: {a: {prompt: x, routing: {instruction: i, routes: {tea: {}, Tea: {}}}}}",
            "FE212 node 'a': the labels 'tea' and 'Tea' differ in upper and lower case only, or in composed letters",
        ),
    ],
    "FE213": [
        (
            "agents: {writer: {}}\nnodes: {a: {agent: writter, prompt: x}}",
            "4:20: FE213 node 'a': unknown agent 'writter'; did you mean 'writer'?",
        ),
        ("defaults: {agent: w}\nnodes: {a: {prompt: x}}", "3:19: FE213 unknown agent 'w'"),
    ],
    "FE214": [
        ("nodes: {a: {type: routing, instruction: i, routes: {}}}", "3:44: FE214 node 'a': there is nothing to choose"),
        ("nodes: {a: {type: condition, call: 'm:f'}}", "3:30: FE214 node 'a': 'call' needs 'routes'"),
        ("nodes: {a: {type: condition, cases: []}}", "3:30: FE214 node 'a': there is nothing to choose from"),
        ("nodes: {a: {prompt: x, routing: {instruction: i, routes: {}}}}", "3:50: FE214 node 'a'"),
    ],
    "FE215": [
        (
            "nodes: {a: {prompt: x}, b: {prompt: x}, c: {needs: [a, b], instructions: i}}",
            "3:41: FE215 node 'c': without 'prompt' it takes `result`, and 'a' and 'b' can both come before this node",
        ),
        (
            "nodes: {a: {prompt: x}, b: {prompt: x}, c: {needs: [a, b], prompt: 'say {{ result }}'}}",
            "3:76: FE215 node 'c': `result` is ambiguous: 'a' and 'b' can both come before this node; "
            "name one of them: nodes.a.output",
        ),
        (
            "nodes: {a: {prompt: x}, b: {prompt: x}, c: {type: condition, needs: [a, b], if: 'true', then: d}, "
            "d: {instructions: i}}",
            "3:99: FE215 node 'd'",
        ),
    ],
    "FE216": [
        (
            "nodes: {a: {prompt: x}, b: {prompt: x}, "
            "c: {type: routing, needs: [a, b], instruction: i, routes: {x: {}}}}",
            "3:41: FE216 node 'c': without 'target' it reads the last generation, and both 'a' and 'b' could have set",
        ),
        (
            "nodes: {a: {type: evaluation, target: t}, b: {type: evaluation, target: t}, "
            "c: {needs: [a, b], prompt: '{{ evaluation_result.score }}'}}",
            "3:108: FE216 node 'c': `evaluation_result` is ambiguous: both 'a' and 'b' could have set it; "
            "name the node: nodes.b.output",
        ),
        (
            "nodes: {a: {prompt: x}, b: {prompt: x}}\noutputs: {o: '{{ shared_state._last_generation }}'}",
            "4:18: FE216 the last generation is ambiguous",
        ),
    ],
    "FE217": [
        (
            "shared_state: {n: {}}\nnodes: {a: {prompt: x, set: {n: 1}}, b: {prompt: x, set: {n: 2}}}",
            "4:59: FE217 node 'b': 'a' writes 'n' too, and neither node comes before the other; order them",
        )
    ],
    "FE218": [
        (
            "shared_state: {total: {}}\nnodes: {a: {prompt: x, set: {totl: 1}}}",
            "4:30: FE218 node 'a': shared state has no key 'totl'; did you mean 'total'?",
        )
    ],
    "FE219": [
        (
            "nodes: {l: {type: loop, max_iterations: 2, nodes: {a: {instructions: i}}}}",
            "3:52: FE219 node 'l.a': the first node of a loop receives no result: give 'prompt'",
        ),
        ("nodes: {a: {}}", "3:9: FE219 node 'a': there is nothing to ask: give 'prompt' or 'instructions'"),
        (
            "nodes: {a: {type: routing, instruction: i, routes: {x: {}}}}",
            "3:9: FE219 node 'a': there is nothing to route",
        ),
        ("nodes: {a: {type: evaluation}}", "3:9: FE219 node 'a': there is nothing to judge"),
    ],
    "FE220": [
        (
            "nodes:\n  draft: {prompt: x}\n  polish: {type: loop, max_iterations: 2, nodes: {draft: {prompt: x}}}",
            "5:51: FE220 node 'polish.draft': a node outside is called 'draft' too, and the body could not read it; "
            "rename one of them",
        ),
        (
            "nodes: {all: {type: map, over: '[1]', as: loop, nodes: {a: {}}}}",
            "3:43: FE220 node 'all': 'loop' means something else in templates; call the item otherwise",
        ),
        (
            "nodes: {all: {type: map, over: '[1]', nodes: {each_of: {type: map, over: item, nodes: {a: {}}}}}}",
            "3:47: FE220 node 'all.each_of': 'item' is the item of 'all', round this map; give this one another name "
            "with `as`",
        ),
        (
            "nodes: {l: {type: loop, max_iterations: 2, initial: {last: 1}, nodes: {a: {prompt: x}}}}",
            "3:54: FE220 node 'l': 'last' is the loop's own; call the variable otherwise",
        ),
        (
            "nodes:\n  l:\n    type: loop\n    max_iterations: 2\n    initial: {n: 1}\n    nodes:\n"
            "      m: {type: loop, max_iterations: 2, initial: {n: 1}, nodes: {a: {prompt: x}}}",
            "9:52: FE220 node 'l.m': 'l', round this loop, has a variable 'n' too; rename one of them",
        ),
    ],
    "FE221": [
        (
            "nodes:\n  l:\n    type: loop\n    max_iterations: 2\n    initial: {text: a}\n"
            "    carry: {txt: b}\n    nodes: {a: {prompt: x}}",
            "8:13: FE221 node 'l': the first round has no variable 'txt'; did you mean 'text'?",
        ),
        (
            "nodes: {l: {type: loop, max_iterations: 2, carry: {n: b}, nodes: {a: {prompt: x}}}}",
            "3:52: FE221 node 'l': the first round has no variable 'n'; give it a first value in `initial`",
        ),
    ],
    "FE222": [
        (
            "nodes: {m: {type: map, over: '[1]', nodes: {a: {prompt: x}, b: {prompt: x}}}}",
            "3:9: FE222 node 'm': the body ends with several nodes ('a', 'b'); say with `result` what an item gives: "
            "{{ nodes.b.output }}",
        )
    ],
    "FE223": [
        (
            "nodes:\n  l: {type: loop, max_iterations: 2, nodes: {j: {type: evaluation, target: t, "
            "routes: {pass: out}}}}\n  out: {prompt: x}",
            "4:94: FE223 node 'l.j': 'out' is outside of 'l', and routes and `needs` stay on their level; let 'l' lead "
            "to it, or need it",
        ),
        (
            "nodes:\n  l: {type: loop, max_iterations: 2, nodes: {a: {prompt: x}}}\n  b: {needs: [a], prompt: x}",
            "5:15: FE223 node 'b': 'a' is inside 'l', and routes and `needs` stay on their level",
        ),
    ],
    "FE224": [
        (
            "nodes: {a: {type: approval, message: m, routes: {yes: {}}, expires: 2h, on_expire: no}}",
            "3:73: FE224 node 'a': there is no choice 'no' (there are yes)",
        ),
        (
            "nodes: {a: {type: approval, message: m, form: {}, form_for: [no], routes: {yes: {}}}}",
            "FE224 node 'a': there is no choice 'no' (there are yes)",
        ),
    ],
    # --- templates and expressions
    "FE301": [
        ("nodes:\n  a:\n    prompt: |\n      Hello\n      dear {{ inputs.x", "FE301"),
        ("nodes: {a: {prompt: x, when: '1 >'}}", "FE301 node 'a'"),
        (
            "nodes: {a: {prompt: x, when: '{{ 1 > 2 }}'}}",
            "FE301 node 'a': an expression stands without braces; did you mean '1 > 2'?",
        ),
        ("nodes: {a: {prompt: '{% include \"x\" %}'}}", "3:25: FE301 node 'a'"),
    ],
    "FE302": [
        (
            "nodes: {a: {prompt: '{% for order in [1] %}{{ ordre }}{% endfor %}'}}",
            "3:47: FE302 node 'a': unknown name 'ordre'; did you mean 'order'?",
        ),
        ("nodes: {a: {prompt: '{{ flase }}'}}", "FE302 node 'a': unknown name 'flase'; did you mean 'false'?"),
        (
            "inputs: {n: {type: string}}\nnodes: {a: {prompt: 'Hi {{ input.n }}'}}",
            "4:28: FE302 node 'a': unknown name 'input'",
        ),
    ],
    "FE303": [
        (
            "inputs: {topic: {type: string}}\nnodes: {a: {prompt: '{{ inputs.topc }}'}}",
            "4:25: FE303 node 'a': unknown input 'topc'; did you mean 'topic'?",
        )
    ],
    "FE304": [
        (
            "shared_state: {total: {}}\nnodes: {a: {prompt: x, when: shared_state.totl > 1}}",
            "4:30: FE304 node 'a': shared state has no key 'totl'; did you mean 'total'?",
        )
    ],
    "FE305": [
        (
            "nodes:\n  draft: {prompt: x}\n  b:\n    prompt: |\n      One\n\n        two {{ nodes.drft.output }}\n",
            "9:16: FE305 node 'b': unknown node 'drft'; did you mean 'draft'?",
        ),
        ("nodes: {a: {prompt: '{{ prev_outputs.b }}'}}", "3:25: FE305 node 'a': unknown node 'b'"),
        ("nodes: {a: {prompt: x}}\noutputs: {o: {k: ['{{ nodes.b.output }}']}}", "4:23: FE305 unknown node 'b'"),
    ],
    "FE306": [
        (
            "nodes: {a: {prompt: x}, b: {prompt: '{{ nodes.a.outptu }}'}}",
            "3:41: FE306 node 'b': a node has no field 'outptu' (there are output, result, status, error); "
            "did you mean 'output'?",
        ),
        (
            "nodes: {a: {prompt: x, output: {properties: {questions: {type: array}}}}, "
            "b: {prompt: '{{ nodes.a.output.question }}'}}",
            "FE306 node 'b': the output of 'a' has no field 'question'; did you mean 'questions'?",
        ),
        (
            "nodes: {a: {prompt: x, output: {properties: {questions: {type: array}}}}, "
            "b: {prompt: '{{ nodes.a.questions }}'}}",
            "did you mean 'output.questions'?",
        ),
        (
            "nodes: {a: {prompt: x}, b: {prompt: '{{ nodes.a.output.text }}'}}",
            "FE306 node 'b': the output of 'a' is a text, it has no field 'text'",
        ),
        (
            "shared_state: {s: {merge: replace}}\n"
            "nodes: {a: {type: evaluation, target: x, criteria: {c: d}, set: {s: '{{ output.pasesd }}'}}}\n"
            "outputs: {o: '{{ shared_state.s }}'}",
            "4:73: FE306 node 'a': `output` has no field 'pasesd'; did you mean 'passed'?",
        ),
        ("nodes: {a: {prompt: '{{ run.name }}'}}", "FE306 node 'a': `run` has no field 'name'; did you mean 'run.id'?"),
        ("nodes: {a: {prompt: '{{ routing_result.rute }}'}}", "FE306 node 'a': `routing_result` has no field 'rute'"),
        ("nodes: {a: {prompt: x}, b: {prompt: '{{ nodes.a }}'}}", "FE306 node 'b': name a field of the node"),
        (
            "inputs: {p: {schema: {properties: {age: {type: integer}}}}}\nnodes: {a: {prompt: '{{ inputs.p.agee }}'}}",
            "4:25: FE306 node 'a': the input 'p' has no field 'agee'; did you mean 'age'?",
        ),
    ],
    "FE307": [
        (
            "nodes: {a: {prompt: '{{ env.HOME }}'}}",
            "3:25: FE307 node 'a': the environment variable 'HOME' is not allowed; list it in `allow_env`",
        )
    ],
    "FE308": [
        (
            "inputs: {n: {type: string}}\nnodes: {a: {prompt: '{{ nodes[inputs.n].output }}'}}",
            "4:25: FE308 node 'a': `nodes` needs a literal id",
        )
    ],
    "FE309": [
        (
            "nodes: {a: {prompt: '{{ output }}'}}",
            "3:25: FE309 node 'a': 'output' is not visible here: only `set` sees it",
        ),
        ("nodes: {a: {prompt: '{{ item }}'}}", "3:25: FE309 node 'a': 'item' is not visible here"),
        ("nodes: {a: {prompt: x}}\noutputs: {o: '{{ result }}'}", "4:18: FE309 'result' is not visible here"),
    ],
    "FE310": [
        (
            "nodes: {a: {prompt: x, model: 'm-{{ inputs.model }}'}}",
            "3:34: FE310 node 'a': 'model' is not rendered, so it takes no template",
        ),
        ("nodes: {a: {prompt: x, fallbacks: ['{{ m }}']}}", "FE310 node 'a': 'fallbacks' is not rendered"),
    ],
    "FE311": [
        (
            "nodes:\n  a: {prompt: x}\n  m: {type: map, over: nodes.a.output, nodes: {b: {}}}",
            "5:24: FE311 node 'm': a map goes over a list, and 'nodes.a.output' is of type string",
        ),
        (
            "nodes: {m: {type: map, over: '[[1]]', as: row, nodes:\n"
            "  {n: {type: map, over: each.index, nodes: {b: {}}}}}}",
            "4:25: FE311 node 'm.n': a map goes over a list, and 'each.index' is of type number",
        ),
    ],
    "FE313": [
        (
            "inputs: {q: {type: string}}\nnodes: {a: {prompt: x, when: inputs.q}}",
            "4:30: FE313 node 'a': `when` is true or false, and 'inputs.q' is of type string; compare it",
        ),
        (
            "inputs: {l: {type: array}}\n"
            "nodes: {c: {type: condition, cases: [{if: inputs.l | length, then: a}], else: a}, a: {prompt: x}}",
            "FE313 node 'c': `if` is true or false, and 'inputs.l | length' is of type integer",
        ),
    ],
    "FE312": [
        (
            "inputs: {n: {}}\nagents: {w: {instructions: '"
            + "{{ inputs.n }}" * 100
            + "'}}\nnodes:\n"
            + "".join(f"  a{number}: {{agent: w, prompt: x}}\n" for number in range(201)),
            "206:3: FE312 node 'a200': with this node the texts of shared agents are looked up too often",
        )
    ],
    # --- types and values
    "FE401": [
        ("nodes: {a: {prompt: x, temperature: warm}}", "3:37: FE401 node 'a': expected a number, found 'warm'"),
        ("nodes: {a: {prompt: 12}}", "3:21: FE401 node 'a': expected text, found 12; put it in quotes: \"12\""),
        (
            "inputs: {q: str}\nnodes: {a: {prompt: x}}",
            "3:13: FE401 expected a map, found 'str'; such as {type: string}",
        ),
        ("nodes: [{id: a, prompt: x}]", "3:8: FE401 expected a map, found a list; such as {draft: {prompt: Hello}}"),
        (
            "nodes: {a: {prompt: x, retry: 3}}",
            "3:31: FE401 node 'a': expected a map, found 3; such as {attempts: 3}",
        ),
        (
            "nodes: {a: {type: map, over: [1], nodes: {b: {prompt: x}}}}",
            "3:30: FE401 node 'a': expected text, found a list; it is an expression, in which a list may stand: ",
        ),
        ("nodes: {a: {prompt: x, max_tokens: 1.5}}", "3:36: FE401 node 'a': expected a whole number, found 1.5"),
        (
            "nodes: {a: {type: approval, message: M, routes: {x: b, y: null}}, b: {prompt: x}}",
            "3:59: FE401 node 'a': expected a node's id, or a map such as {to: id}, found nothing; a label that leads "
            "nowhere is written {}",
        ),
        (
            "nodes: {a: {prompt: x, needs: b}}",
            "3:31: FE401 node 'a': expected a list, found 'b'; a list is written [b]",
        ),
        ("nodes: {a: {prompt: x, needs: '5'}}", "3:31: FE401 node 'a': expected a list, found '5'"),
        ("nodes: {a: {prompt: x, retry: often}}", "3:31: FE401 node 'a': expected a map, found 'often'"),
        ("nodes: [a]", "3:8: FE401 expected a map, found a list"),
        (
            "inputs: {i: string}\nnodes: {a: {prompt: '{{ inputs.i }}'}}",
            "3:13: FE401 expected a map, found 'string'; did you mean {type: string}?",
        ),
        (
            "nodes: {a: {type: routing, target: t, instruction: i, routes: {' tea': {}}}}",
            "FE401 node 'a': a label is text without spaces around it, found ' tea'",
        ),
        (
            "nodes: {a: {type: evaluation, target: t, criteria: {'': clear}}}",
            "FE401 node 'a': a criterion's name is text without spaces around it, found ''",
        ),
        ("nodes: {a: just text}", "3:12: FE401 node 'a': expected a map, found 'just text'"),
        ("nodes: {a: {prompt: x, temperature: true}}", "expected a number, found true"),
        ("nodes: {a: {prompt: x, temperature: .nan}}", "expected a finite number, found nan"),
        ("nodes: {a: {type: routing, instruction: i, routes: {x: 3}}}", "3:56: FE401 node 'a': expected a node's id"),
    ],
    "FE402": [
        ("nodes: {a: {prompt: x, join: al}}", "3:30: FE402 node 'a': expected 'some', 'all' or 'always', found 'al'"),
        ("nodes: {a: {prompt: x, on_error: ignore}}", "3:34: FE402 node 'a': expected 'fail', 'skip' or {then"),
    ],
    "FE403": [
        ("nodes: {a: {prompt: x, temperature: 9}}", "3:37: FE403 node 'a': expected at most 2, found 9"),
        ("limits: {concurrency: 0}\nnodes: {a: {prompt: x}}", "3:23: FE403 expected at least 1, found 0"),
        ("nodes: {a: {prompt: x, timeout: 0s}}", "FE403 node 'a': expected more than 0"),
    ],
    "FE404": [
        (
            "nodes: {a: {prompt: x, improve: {threshold: 80}}}",
            "3:45: FE404 node 'a': scores go from 0.0 to 1.0, found 80; did you mean 0.8?",
        )
    ],
    "FE405": [
        (
            "nodes: {a: {prompt: x, timeout: 30}}",
            "3:33: FE405 node 'a': expected a duration such as 30s, found 30; did you mean '30s'?",
        ),
        (
            "nodes: {a: {prompt: x, timeout: 1 day}}",
            "FE405 node 'a': expected a duration such as 500ms, 30s, 10m or 2h",
        ),
        ("nodes: {a: {prompt: x, timeout: ٣s}}", "FE405 node 'a': expected a duration such as 500ms"),
        ("nodes: {a: {prompt: x, timeout: 999999999999h}}", "FE405 node 'a': a duration has at most 9 digits"),
        ("nodes: {a: {prompt: x, timeout: 1.5}}", "FE405 node 'a': expected a duration such as 30s, found 1.5"),
    ],
    "FE406": [
        (
            "nodes: {a: {prompt: x, output: {type: object, properties: {n: {type: strng}}}}}",
            "3:70: FE406 node 'a': unknown JSON type 'strng'; did you mean 'string'?",
        ),
        (
            "nodes: {a: {prompt: x, output: {properties: []}}}",
            "3:45: FE406 node 'a': 'properties' is a map of JSON Schemas",
        ),
        ("nodes: {a: {prompt: x, output: {required: a}}}", "FE406 node 'a': 'required' is a list of names"),
        (
            "nodes: {a: {prompt: x, output: {type: object, properties: {n: {type: integer, minimum: a}}}}}",
            "3:88: FE406 node 'a': 'minimum' is a number",
        ),
        (
            "inputs: {n: {schema: {type: string, pattern: '[a'}}}\nnodes: {a: {prompt: '{{ inputs.n }}'}}",
            "3:46: FE406 'pattern' is a regular expression",
        ),
        ("nodes: {a: {prompt: x, output: {anyOf: []}}}", "FE406 node 'a': 'anyOf' is empty"),
        (
            "nodes: {a: {prompt: x, output: {items: {$ref: '#/$defs/oder'}, $defs: {order: {}}}}}",
            "3:47: FE406 node 'a': the schema has no '#/$defs/oder'; did you mean '#/$defs/order'?",
        ),
        (
            "inputs: {n: {schema: {$ref: '#order'}}}\nnodes: {a: {prompt: '{{ inputs.n }}'}}",
            "3:29: FE406 the schema has no '#order'",
        ),
        (
            "nodes: {a: {prompt: x, output: {type: null}}}",
            "FE406 node 'a': a JSON type is a text; the",
        ),
        ("nodes: {a: {prompt: x, output: {items: 3}}}", "FE406 node 'a': a JSON Schema is a map"),
        ("nodes: {a: {prompt: x, output: {name: string}}}", "none of its keys (name) is a keyword"),
    ],
    "FE407": [
        (
            "inputs: {n: {type: integer, default: many}}\nnodes: {a: {prompt: x}}",
            "3:29: FE407 the default 'many' is not of",
        ),
        (
            "inputs: {n: {type: string, enum: [a], default: b}}\nnodes: {a: {prompt: x}}",
            "FE407 the default 'b' is not one of",
        ),
        (
            "inputs: {n: {type: integer, enum: ['1', '2']}}\nnodes: {a: {prompt: '{{ inputs.n }}'}}",
            "3:29: FE407 'enum' has no value of type integer, so none can be given",
        ),
        ("shared_state: {n: {merge: sum, default: []}}\nnodes: {a: {prompt: x}}", "FE407 'sum' starts at number"),
        (
            "shared_state: {n: {type: array, default: 1}}\nnodes: {a: {prompt: x}}",
            "FE407 the default 1 is not of type array",
        ),
    ],
    "FE408": [
        ("nodes:\n  a:\n    prompt:\n", "5:5: FE408 node 'a': the key has no value"),
        ("nodes:\n  a:\n", "4:3: FE408 node 'a': the key has no value"),
        ("nodes:\n", "3:1: FE408 the key has no value"),
    ],
    "FE409": [
        (
            "nodes: {a: {type: function, call: tools.search}}",
            "3:35: FE409 node 'a': expected 'module:function', found 'tools.search'; did you mean 'tools:search'?",
        )
    ],
    "FE410": [
        (
            "shared_state: {n: {type: string, merge: sum}}\nnodes: {a: {prompt: x}}",
            "3:34: FE410 'sum' goes with number or integer, not with string",
        )
    ],
    "FE411": [
        ("nodes: {a: {mcp_servers: [{name: t}]}}", "3:27: FE411 node 'a': MCP server 't': give either `command`"),
        ("nodes: {a: {mcp_servers: [{name: t, command: c, url: 'http://x'}]}}", "FE411 node 'a': MCP server 't': give"),
        ("nodes: {a: {mcp_servers: [{name: t, url: 'http://x', args: [a]}]}}", "`args` and `env` belong to"),
        ("nodes: {a: {mcp_servers: [{name: t, command: c, headers_env: {A: B}}]}}", "`headers_env` belongs to a `url`"),
        ("nodes: {a: {mcp_servers: [{name: t, url: 'ftp://x'}]}}", "`url` starts with http:// or https://"),
        (
            "nodes: {a: {mcp_servers: [{name: t, url: 'http://x', headers_env: {Key: 'Bearer s3cret'}}]}}",
            "`headers_env` takes the name of an environment variable for Key, not the value",
        ),
        (
            "agents: {w: {mcp_servers: [{name: t, command: c}, {name: t, command: d}]}}\nnodes: {a: {agent: w}}",
            "3:52: FE411 two MCP servers are named 't'; rename one of them",
        ),
    ],
    "FE509": [
        (
            "nodes: {a: {prompt: x, mcp_servers: [{name: t, command: uvx, args: [a b, --c]}]}}",
            "3:57: FE509 node 'a': the MCP server 't' is not allowed; add \"uvx 'a b' --c\" to `allow_mcp` in /",
        ),
        (
            "defaults: {agent: {mcp_servers: [{name: t, url: 'http://h/m?key=s3cret'}]}}\nnodes: {a: {prompt: x}}",
            "3:49: FE509 the MCP server 't' is not allowed; add \"http://h/m\" to `allow_mcp` in /",
        ),
    ],
    "FE413": [
        (
            "nodes: {a: {prompt: x, model_options: {top_kk: 5}}}",
            "3:40: FE413 node 'a': unknown model option 'top_kk'; did you mean 'top_k'?",
        )
    ],
    # --- warnings
    "FE412": [
        (
            "nodes: {a: {prompt: x, context: [conversaton: {max_items: 5}]}}",
            "3:34: FE412 node 'a': there is no context provider 'conversaton'; did you mean 'conversation'?",
        ),
        (
            "nodes:\n  a:\n    prompt: x\n    context:\n      - conversation: {max_itms: 5}",
            "7:24: FE412 node 'a': context provider 'conversation' has no parameter 'max_itms'; did you mean",
        ),
        (
            "nodes: {a: {prompt: x, context: [{type: conversation, max_items: many}]}}",
            "3:66: FE412 node 'a': context provider 'conversation': 'max_items' must be integer, found str 'many'",
        ),
        (
            "agents: {w: {context: [fixed_file]}}\nnodes: {a: {agent: w, prompt: x}}",
            "3:24: FE412 context provider 'fixed_file' needs 'file_path'",
        ),
    ],
    "FE510": [
        (
            "nodes: {a: {prompt: x, context: [fixed_file: {file_path: polices.md}]}}",
            "3:58: FE510 node 'a': context provider 'fixed_file': the file 'polices.md' cannot be read: No such file",
        )
    ],
    "FE901": [
        (
            "nodes:\n  p: {type: condition, if: 'true', then: long, else: publish}\n  long: {prompt: x}\n"
            "  publish: {needs: [long], prompt: x}",
            "6:3: warning FE901 node 'publish': 'publish' is a route of 'p' and also comes after its sibling 'long'",
        )
    ],
    "FE902": [
        (
            "nodes:\n  p: {type: condition, if: 'true', then: x, else: y}\n  x: {prompt: x}\n  y: {prompt: x}\n"
            "  z: {needs: [x, y], join: all, prompt: x}",
            "7:3: warning FE902 node 'z': no run can reach this node",
        )
    ],
    "FE903": [
        (
            "nodes:\n  a: {prompt: x, when: run.id == 'x'}\n  b: {prompt: x}\n"
            "  c: {needs: [b], prompt: 'x {{ nodes.a.output }}'}",
            "6:33: warning FE903 node 'c': 'a' may be skipped, and then it has no output to print; add `| default(…)`",
        ),
        (
            "nodes:\n  p: {type: condition, if: 'true', then: x}\n  x: {prompt: x}\n"
            "outputs: {o: '{{ nodes.x.output }}'}",
            "6:18: warning FE903 'x' may be skipped",
        ),
    ],
    "FE904": [
        (
            "shared_state: {n: {}}\nnodes: {a: {prompt: x, set: {n: 1}}}",
            "3:16: warning FE904 nothing reads the state key 'n'",
        )
    ],
    "FE905": [
        ("inputs: {n: {type: string}}\nnodes: {a: {prompt: x}}", "3:10: warning FE905 nothing reads the input 'n'")
    ],
    "FE907": [
        (
            "inputs: {n: {type: integer}}\n"
            "nodes: {l: {type: loop, max_iterations: 2, until: inputs.n > 1, nodes: {a: {prompt: x}}}}",
            "4:51: warning FE907 node 'l': nothing that `until` reads changes from round to round",
        )
    ],
    "FE906": [("agents: {spare: {}}\nnodes: {a: {prompt: x}}", "3:10: warning FE906 no node names the agent 'spare'")],
    "FE909": [
        (
            "inputs: {ok: {type: boolean}}\n"
            "nodes: {a: {type: condition, switch: inputs.ok, routes: {'true': {}, 'no': {}}}}",
            "4:70: warning FE909 node 'a': 'inputs.ok' never gives 'no': it is one of false, true",
        ),
        (
            "inputs: {n: {type: integer, enum: [1, '2']}}\nnodes: {a: {prompt: '{{ inputs.n }}'}}",
            "3:39: warning FE909 the input 'n' is of type integer, and never '2'",
        ),
    ],
    "FE910": [
        (
            "inputs: {f: {type: file, default: none.txt}}\nnodes: {a: {prompt: x, attach: ['{{ inputs.f }}']}}",
            "3:35: warning FE910 there is no file 'none.txt'",
        ),
        (
            "inputs: {f: {type: file, default: ../none.txt}}\nnodes: {a: {prompt: x, attach: ['{{ inputs.f }}']}}",
            "3:35: warning FE910 ",
        ),
    ],
    "FE911": [
        (
            "nodes: {a: {prompt: x}}\noutputs: {y: nodes.a.output}",
            "4:14: warning FE911 'nodes.a.output' is a text here, and not the value of that name; "
            "did you mean '{{ nodes.a.output }}'?",
        ),
        (
            "inputs: {n: {type: string}}\nnodes: {a: {prompt: 'x {{ inputs.n }}'}, b: {prompt: inputs.n}}",
            "warning FE911 node 'b': 'inputs.n' is a text here",
        ),
    ],
    "FE912": [
        (
            "nodes: {l: {type: loop, max_iterations: 3, on_exhausted: continue, nodes: {a: {prompt: x}}}}",
            "3:9: warning FE912 node 'l': up to 3 rounds ask models, and nothing bounds what they cost; "
            "add `limits: {model_calls: 6}`",
        ),
        (
            "nodes:\n  a: {prompt: x, output: {type: array, items: {type: string}}}\n"
            "  m: {type: map, over: nodes.a.output, nodes: {b: {prompt: '{{ item }}'}}}",
            "5:24: warning FE912 node 'm': a model decides how long the list 'nodes.a.output' is, and each item is "
            "worked on; add `maxItems: 20` to its schema, or `limits: {model_calls: 40}` to the map",
        ),
    ],
    "FE921": [
        (
            "inputs: {n: {type: string, untrusted: true}}\n"
            "nodes: {a: {type: http, url: 'https://shop.example.com/{{ inputs.n }}'}}",
            "4:59: warning FE921 node 'a': untrusted text reaches the address of a request: the input 'n'",
        )
    ],
    "FE922": [
        (
            "nodes: {a: {prompt: x, trust: It is ours.}}",
            "3:24: warning FE922 node 'a': no untrusted text reaches an effect through this",
        )
    ],
}

ELSEWHERE = {
    "FE101": "test_a_file_that_is_not_there",
    "FE102": "test_a_file_of_two_megabytes",
    "FE103": "test_a_file_that_is_not_utf_8",
    "FE105": "test_an_empty_file",
    "FE115": "test_a_file_that_is_no_map",
    "FE117": "test_data_file: what is no row is told with its line",
    "FE207": "test_another_format_version",
    "FE225": "test_subflows: a file that is not there",
    "FE226": "test_subflows: flows that run each other",
    "FE227": "test_subflows: seventeen files in one another",
    "FE228": "test_subflows: inputs that do not fit",
    "FE229": "test_text_files: every text of an agent may stand in a file",
    "FE908": "test_check_servers: a library that is not there is a warning",
    "FE230": "test_attachments_checked: what cannot be attached is told with its place",
    "FE514": "test_attachments_checked: a model that takes no images is refused where the table knows it",
    "FE513": "test_model_options: an option that the model refuses is told where it stands",
    "FE511": "test_check_models: every unknown name is told with its place",
    "FE501": "test_a_project_file_that_is_no_toml",
    "FE502": "test_a_project_file_with_an_unknown_key",
    "FE503": "test_project: a pythonpath outside of the root",
    "FE504": "test_project: a module that is not allowed",
    "FE521": "test_tool_nodes: mistakes",
    "FE525": "test_approved_calls: mistakes",
    "FE524": "test_code_nodes: mistakes",
    "FE522": "test_http_nodes: mistakes",
    "FE523": "test_http_nodes: mistakes",
    "FE526": "test_calls: code that cannot do what its key asks for",
    "FE531": "test_notify: what is wrong in a flow is told with its place",
    "FE512": "test_calls: arguments that are missing or not known",
    "FE505": "test_project: a module that is not there",
    "FE506": "test_project: a function that is not there",
    "FE507": "test_project: a module that raises",
    "FE508": "test_project: a name that is no function",
}
"""Codes that a text alone cannot earn, and where they are shown."""


@pytest.mark.parametrize(
    ("code", "text", "expected"), [(code, *case) for code, cases in CASES.items() for case in cases]
)
def test_a_code_is_told_with_its_place_and_its_words(code: str, text: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "flowengine.toml").write_text('allow_http = ["https://shop.example.com/"]')
    found = [str(each) for each in check_text(HEAD + text, project=find_project(tmp_path))]
    assert code in expected or any(code in each for each in found)
    assert any(expected in each for each in found), "\n".join(found)


def test_every_code_is_shown_by_a_test() -> None:
    assert set(CASES) | set(ELSEWHERE) == set(CODES)


def test_every_code_is_explained() -> None:
    for code, (title, explanation, example) in CODES.items():
        assert code[:2] == "FE"
        assert title
        assert len(explanation) > 15
        assert example


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    [found] = check_file(tmp_path / "none.yaml")
    assert (found.code, found.message) == ("FE101", "cannot read the file: No such file or directory")
    assert check_file(tmp_path)[0].code == "FE101"


def test_of_a_file_that_is_not_there_the_nearest_one_beside_it_is_named(tmp_path: Path) -> None:
    for name in ("hello.yaml", ".env.yaml", "hello.txt"):
        (tmp_path / name).touch()
    assert check_file(tmp_path / "helo.yaml")[0].hint == "; did you mean 'hello.yaml'?"
    assert check_file(tmp_path / "zebra.yaml")[0].hint == ""
    assert check_file(tmp_path / "none" / "hello.yaml")[0].hint == ""


def test_a_file_of_two_megabytes(tmp_path: Path) -> None:
    file = tmp_path / "large.yaml"
    file.write_bytes(b"x-a: " + b"a" * 2_000_000)
    [found] = check_file(file)
    assert found.code == "FE102"


def test_a_file_that_is_not_utf_8(tmp_path: Path) -> None:
    file = tmp_path / "latin.yaml"
    file.write_bytes("flowengine: v1\nname: caf\xe9\n".encode("latin-1"))
    [found] = check_file(file)
    assert str(found) == f"{file}:2:10: FE103 not UTF-8: byte 0xe9"


@pytest.mark.parametrize("text", ["", "\n\n", "# a note\n", "---\n", "~", "null"])
def test_an_empty_file(text: str) -> None:
    [found] = check_text(text)
    assert found.code == "FE105"


@pytest.mark.parametrize("text", ["- one", "text", "3", "[]"])
def test_a_file_that_is_no_map(text: str) -> None:
    [found] = check_text(text)
    assert found.code == "FE115"


def test_another_format_version() -> None:
    [found] = check_text("flowengine: v2\nname: a\nnodes: {a: {prompt: x}}")
    assert str(found) == "1:13: FE207 this version reads format v1, found 'v2'"


def test_a_project_file_that_is_no_toml(tmp_path: Path) -> None:
    (tmp_path / "flowengine.toml").write_text("allow_calls = [")
    flow = tmp_path / "flow.yaml"
    flow.write_text(HEAD + "nodes: {a: {prompt: '{{ env.X }}'}}")
    assert [each.code for each in check_file(flow)] == ["FE501", "FE307"]


def test_a_project_file_with_an_unknown_key(tmp_path: Path) -> None:
    (tmp_path / "flowengine.toml").write_text("allow_cals = ['tools']")
    (tmp_path / "tools.py").write_text("def search(): ...")
    flow = tmp_path / "flow.yaml"
    flow.write_text(HEAD + "nodes: {a: {type: function, call: 'tools:search'}}")
    found = [str(each) for each in check_file(flow)]
    assert any("FE502 unknown key 'allow_cals'; did you mean 'allow_calls'?" in each for each in found)
