"""Lists every code that a flow file's problems carry: its title, what it means, and text that shows it.

One table, read by the checks' messages, by `flowengine explain` and by the reference in the docs. It
knows no file and decides nothing. Codes are stable: a code that is retired is never given again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Code(NamedTuple):
    """The explanation of one code."""

    title: str
    explanation: str
    """The mistake, why it is refused, and what to write instead."""
    example: str
    """YAML (or a situation) that earns the code."""


CODES: Final[Mapping[str, Code]] = {
    # --- FE1xx: the file and its YAML
    "FE101": Code(
        "the file cannot be read",
        "The path does not exist, is a folder, or may not be read.",
        "flowengine validate flows/no_such_file.yaml",
    ),
    "FE102": Code(
        "the file is too large",
        "A flow file may have 1 MB. Put long texts into files of their own and read them with a context provider.",
        "a file of 2 MB",
    ),
    "FE103": Code(
        "the file is not UTF-8",
        "Flow files are UTF-8 text. Save the file as UTF-8.",
        "a file saved as UTF-16 or Latin-1",
    ),
    "FE104": Code(
        "the YAML does not parse",
        "The text is not YAML 1.2. The message shows what the parser found and where.",
        "nodes: {a: [1, 2}",
    ),
    "FE105": Code("the file is empty", "There is no value in the file, only blanks or comments.", "# to do"),
    "FE106": Code(
        "several documents",
        "A file holds one flow. Remove the second `---`, or split the file.",
        "flowengine: v1\n---\nflowengine: v1",
    ),
    "FE107": Code(
        "duplicate key",
        "A map has a key twice, so its value is ambiguous.",
        "nodes:\n  a: {prompt: one}\n  a: {prompt: two}",
    ),
    "FE108": Code(
        "tag",
        "YAML tags (`!name`, `!!type`) are not part of the format. Write the plain value.",
        "prompt: !!str 12",
    ),
    "FE109": Code(
        "tab", "YAML is indented with spaces; a tab stands where a value or a key begins.", "nodes:\n\ta: {}"
    ),
    "FE110": Code(
        "a key that is no string",
        "Keys are strings. Put a number, a boolean or null in quotes; lists and maps cannot be keys.",
        "routes: {1: low, 2: high}",
    ),
    "FE111": Code(
        "recursive alias",
        "An alias stands inside the value of its own anchor, so the value would never end.",
        "x-a: &a [*a]",
    ),
    "FE112": Code(
        "exploding aliases",
        "Aliases of aliases make the file far larger than it looks. Write out what is needed.",
        "x-a: &a [1, 1, 1]\nx-b: &b [*a, *a, *a]\n# and so on, twenty times",
    ),
    "FE113": Code(
        "nested too deeply",
        "Maps and lists may be nested 64 deep.",
        "x-a: [[[[[[[[ … ]]]]]]]]",
    ),
    "FE114": Code(
        "forbidden character",
        "Control characters, NUL and Unicode line separators are refused; in double quotes they may be "
        r"written as escapes (`\0`, `\u2028`).",
        "prompt: <NUL>",
    ),
    "FE115": Code(
        "the file is not a map",
        "The top of a flow file is a map with the keys `flowengine`, `name` and `nodes`.",
        "- one\n- two",
    ),
    "FE116": Code("unknown anchor", "An alias names an anchor that no line before it declares.", "a: *nowhere"),
    "FE117": Code(
        "no rows of data",
        "A data file holds one JSON object on each line, or is a table (`.csv`, `.tsv`) with one name for each column "
        "in its first line, as many cells in each other line, and at least one row.",
        '{"message": "Hello"',
    ),
    # --- FE2xx: structure and references
    "FE201": Code(
        "unknown key",
        "No such key exists here. Keys that begin with `x-` are free for notes.",
        "a: {promt: Hello}",
    ),
    "FE202": Code("missing key", "A key that this part needs is absent.", "a: {type: routing}"),
    "FE203": Code(
        "unknown target",
        "A route, `then`, `else`, `needs`, `fallback` or `on_error` names a node that does not exist.",
        "routes: {ok: publsh}",
    ),
    "FE204": Code(
        "unknown node type", "`type` is the name of no kind of node. Left out, a node is an agent.", "a: {type: agnet}"
    ),
    "FE206": Code(
        "not a valid name",
        "Names are small letters, digits and underscores, and begin with a letter; a hyphen would be read as "
        "minus in a template.",
        "nodes:\n  my-node: {}",
    ),
    "FE207": Code("unknown format version", "`flowengine` must be `v1`.", "flowengine: v2"),
    "FE208": Code("no nodes", "A flow needs at least one node.", "nodes: {}"),
    "FE209": Code(
        "keys that exclude each other",
        "Two keys of one part ask for different things; keep one of them.",
        "a: {type: condition, if: x, then: b, call: 'm:f'}",
    ),
    "FE210": Code(
        "cycle",
        "The nodes wait for each other. A flow is a DAG; repetition belongs inside one node.",
        "a: {needs: [b]}\nb: {needs: [a]}",
    ),
    "FE211": Code(
        "a node that refers to itself", "A node cannot wait for itself or route to itself.", "a: {needs: [a]}"
    ),
    "FE212": Code(
        "label used twice or reserved",
        "The labels of one node must differ, those that a model chooses from in more than upper and lower case; "
        "`fallback`, `on_error` and `else` are the engine's where they are in use.",
        "routes: {fallback: a}\nfallback: b",
    ),
    "FE213": Code("unknown agent", "`agent` names no entry of `agents`.", "a: {agent: writter}"),
    "FE214": Code("no routes", "A node that chooses needs something to choose from.", "a: {type: routing, routes: {}}"),
    "FE215": Code(
        "`result` is ambiguous",
        "Several predecessors can be live at once, so `result`, or a prompt that is left out, could mean any of "
        "them. Name the node: `nodes.<id>.output`.",
        "join: {needs: [a, b], prompt: '{{ result }}'}",
    ),
    "FE216": Code(
        "an engine's value is ambiguous",
        "`routing_result`, `evaluation_result`, `_last_prompt` and `_last_generation` hold the last ancestor's "
        "value, and reading is an error where that one failed; here two ancestors without an order could have set it. "
        "Name the node, or give `target`.",
        "pick: {type: routing, needs: [a, b]}",
    ),
    "FE217": Code(
        "unordered writers",
        "Two nodes write one state key and neither comes before the other. Order them with `needs`, or give the "
        "key a `merge` rule.",
        "a: {set: {n: 1}}\nb: {set: {n: 2}}",
    ),
    "FE218": Code("undeclared state key", "`set` writes a key that `shared_state` does not declare.", "set: {totl: 1}"),
    "FE219": Code(
        "nothing to ask or to judge",
        "An agent without a prompt needs a predecessor or an input of the flow; routing and evaluation without "
        "`target` need an agent before them.",
        "a: {type: routing, instruction: Choose., routes: {x: b}}",
    ),
    "FE220": Code(
        "a name that is taken",
        "What a body brings along would hide a name of the level outside, or one that means something else in "
        "templates: the id of a node in a body, the item of a map (`as`), a variable of a loop. Rename one of them.",
        "draft: {}\npolish: {type: loop, max_iterations: 3, nodes: {draft: {prompt: x}}}",
    ),
    "FE221": Code(
        "a variable without a first value",
        "A loop's variables are the keys of `initial`. `carry` gives some or all of them another value in the next "
        "round, and no others.",
        "initial: {text: a}\ncarry: {txt: '{{ nodes.improve.output }}'}",
    ),
    "FE222": Code(
        "several last nodes",
        "Without `result`, an item of a map gives the output of its body's last node. Here several nodes lead "
        "nowhere, so say with `result` which one is meant, or put them together.",
        "all: {type: map, over: inputs.list, nodes: {a: {prompt: x}, b: {prompt: y}}}",
    ),
    "FE223": Code(
        "a route that leaves its level",
        "Routes, `then`, `needs`, `fallback` and `on_error` name nodes of the same level: those beside the node in "
        "its body, or those of the flow. To leave a body, let its container lead on.",
        "polish: {type: loop, max_iterations: 3, nodes: {judge: {type: evaluation, routes: {pass: publish}}}}\n"
        "publish: {}",
    ),
    "FE224": Code(
        "unknown choice",
        "`on_expire` names none of the approval's choices, which are the labels of its `routes`.",
        "ask: {type: approval, message: Sure?, routes: {yes: go, no: {}}, expires: 2h, on_expire: nope}",
    ),
    "FE225": Code(
        "the subflow's file cannot be read",
        "`flow` is a path from the folder of the file that it stands in. There is no file, or it may not be read.",
        "deeper: {type: subflow, flow: ./no_such_file.yaml}",
    ),
    "FE226": Code(
        "flows that run each other",
        "A flow cannot run itself, be it directly or by way of others: it would never end. Repetition is a `loop`.",
        "deeper: {type: subflow, flow: ./this_very_file.yaml}",
    ),
    "FE227": Code(
        "too many flows in one another",
        "Subflows may be nested 16 deep, and a flow may bring along 200 files and have 20,000 nodes and 8,000,000 "
        "characters with those of its subflows.",
        "a chain of 17 files, each with a subflow",
    ),
    "FE228": Code(
        "inputs that do not fit the subflow",
        "`with` gives a subflow its inputs: those that it requires, none that it does not declare, and plain values "
        "only where they are of the declared type.",
        "deeper: {type: subflow, flow: ./deeper.yaml, with: {topc: x}}",
    ),
    "FE229": Code(
        "the file of a text cannot be read",
        "A text of an agent may stand in a file, `{file: path}`, whose path starts in the folder of the flow's own "
        "file. There is no such file, or it may not be read.",
        "triage: {prompt: {file: prompts/no_such_file.md}}",
    ),
    "FE230": Code(
        "nothing that can be attached",
        "`attach`, and a subflow's input of type `file`, take templates whose values are files: inputs of type `file`, "
        "and what nodes gave as bytes. A path or another value is none; only a subflow's input may be a path that "
        "stands in the flow's file as it is.",
        "triage: {attach: [scan.png]}",
    ),
    "FE231": Code(
        "a race between branches",
        "No node continues with the branch that ends first and cancels the others: what a node sees would "
        "depend on timing, and another node may wait for a branch. A map does it inside: "
        "`over` names the alternatives, its body tries one, and `until: results | length >= 1` ends it with the first "
        "success, which is recorded; with `on_item_error: skip` a failure is no result.",
        "answer: {needs: [quick, thorough], join: first}",
    ),
    # --- FE3xx: templates and expressions
    "FE301": Code(
        "a template or an expression does not parse",
        "The text is not Jinja2, or uses something that flows may not use. Bare expressions (`if`, `when`) carry "
        "no braces.",
        "when: inputs.n >",
    ),
    "FE302": Code(
        "unknown name",
        "Expressions see `inputs`, `shared_state`, `nodes`, `result`, `routing_result`, `evaluation_result`, "
        "`prev_outputs`, `run` and `env`; `set` also sees `output`, the body of a map its item and `each`, that of a "
        "loop `round`.",
        "prompt: '{{ input.topic }}'",
    ),
    "FE303": Code("unknown input", "The flow declares no such input.", "prompt: '{{ inputs.topc }}'"),
    "FE304": Code("unknown state key", "The flow declares no such key of shared state.", "when: shared_state.totl > 1"),
    "FE305": Code(
        "unknown node in a reference",
        "No node that is seen from here has this id. A body sees its own nodes and those outside; from outside "
        "a body is not visible, only the output of its container.",
        "prompt: '{{ nodes.drft.output }}'",
    ),
    "FE306": Code(
        "unknown field",
        "A node offers `output`, `result`, `status` and `error`; `run` offers `id`; results have the fields of their "
        "model; an output or an input with a schema has the properties that it lists.",
        "prompt: '{{ nodes.draft.outptu }}'",
    ),
    "FE307": Code(
        "environment name that is not allowed",
        "Flows read only the variables that the project file lists in `allow_env`.",
        "prompt: '{{ env.HOME }}'",
    ),
    "FE308": Code(
        "`nodes` without a literal id",
        "Write `nodes.<id>`: what a node waits for must be known before the run.",
        "prompt: '{{ nodes[inputs.which].output }}'",
    ),
    "FE309": Code(
        "name that is not visible here",
        "`output` exists in `set`, `item` (or what `as` calls it) and `each` inside a map, `round` inside a loop; what "
        "is read once all nodes are done (`outputs`, `until`, `carry`, `best_by`, a map's `result`) sees no `result`.",
        "prompt: '{{ output }}'",
    ),
    "FE310": Code(
        "braces where nothing is rendered",
        "This key takes plain text; a template in it would reach the model or the engine as it stands.",
        "model: '{{ inputs.model }}'",
    ),
    "FE311": Code(
        "a map over something that is no list",
        "`over` is an expression that gives a list. This one names a value that is known to be something else.",
        "all: {type: map, over: nodes.draft.output, nodes: {a: {}}}\n# and draft is an agent without `output`",
    ),
    "FE312": Code(
        "too many references through shared agents",
        "Each node that names a shared agent reads all that the agent's texts read, and its ancestors are known by "
        "that. Over a whole flow these may be 20,000 references.",
        "1,000 nodes that name one agent, whose instructions read 21 values",
    ),
    "FE313": Code(
        "a decision by something that is neither true nor false",
        "`if`, `when` and `until` take true and false alone: no text, number or list counts as one, as it would in "
        "Jinja. Compare it: `inputs.q != ''`, `inputs.items | length > 0`.",
        "when: inputs.items | length",
    ),
    # --- FE4xx: types and values
    "FE401": Code("wrong type", "The value is of another type than the key takes.", "temperature: warm"),
    "FE402": Code(
        "not one of the allowed values",
        "The key takes one of a few words. The labels of a `switch` are values that it can have: `'true'` and "
        "`'false'` (in quotes) of a boolean, the values of an `enum`.",
        "join: any",
    ),
    "FE403": Code("out of range", "The number or the list is smaller or larger than allowed.", "temperature: 9"),
    "FE404": Code("threshold above 1", "Scores and thresholds go from 0.0 to 1.0.", "threshold: 80"),
    "FE405": Code(
        "not a duration",
        "Durations are a number and a unit: `500ms`, `30s`, `10m`, `2h`.",
        "timeout: 30",
    ),
    "FE406": Code(
        "not a JSON Schema",
        "The map is no JSON Schema: an unknown `type`, `properties` that is no map, and the like.",
        "output: {type: strng}",
    ),
    "FE407": Code(
        "value that does not fit",
        "A default, or a plain value that `set` writes, is not of the declared type, or not one of `enum`.",
        "inputs: {n: {type: integer, default: many}}",
    ),
    "FE408": Code("key without a value", "The key is there and its value is not.", "prompt:"),
    "FE409": Code(
        "not a reference to code",
        "Code is named as `module:function` (or `module:Class`), with dots between packages.",
        "call: tools.search",
    ),
    "FE410": Code(
        "merge rule that does not fit",
        "`append` and `union` take lists, `sum` numbers, `max` and `min` numbers or strings, `update` objects.",
        "shared_state: {n: {type: string, merge: sum}}",
    ),
    "FE411": Code(
        "an MCP server that cannot be asked",
        "A server has a `name` of its own and either `command` (with `args` and `env`) or `url` (with `headers_env`, "
        "which names environment variables and never holds their values).",
        "mcp_servers: [{name: time}]",
    ),
    "FE412": Code(
        "a context provider that is unknown or wrongly set",
        "An entry of `context` is `{name: {parameter: value}}`, or `{type: name, parameter: value}`. The message says "
        "which name or parameter is wrong, and the nearest known one.",
        "context: [conversation: {max_itms: 5}]",
    ),
    "FE413": Code(
        "a model option that is not allowed",
        "`model_options` takes parameters of the model's vendor that have no key of their own here. Which ones is a "
        "fixed list: nothing in it is an address, a header or a key, or replaces what the engine says of a call "
        "(messages, model, tools, stream).",
        "model_options: {top_kk: 5}",
    ),
    # --- FE5xx: the project and its code
    "FE501": Code("the project file cannot be read", "The file is not TOML, or may not be read.", "allow_calls = ["),
    "FE502": Code(
        "the project file is wrong",
        "A key of `[tool.flowengine]`, or of flowengine.toml, is unknown, or its value has the wrong type. The "
        "keys: `allow_calls` (modules that `call:` and `tools:` may import), `allow_env` (variables that templates "
        "may read), `allow_mcp` (beginnings of command lines and addresses of MCP servers), `allow_http` "
        "(beginnings of addresses that http nodes may ask, each with the variables that may be sent there), "
        "`allow_unconfined_scripts` (scripts of skills where there is no sandbox), `approve_external` (a person is "
        "asked before each call of a tool whose effect is external), `http_proxy` (requests go through the "
        "environment's proxy), `pythonpath` (folders of modules), `store` (where runs are kept), "
        "`allow_callbacks` (beginnings of addresses that are told of served runs), `webhooks` (tables: "
        "path, flow, signature, secret_env, inputs, when, replay_window, header), `default_provider` (where models go "
        "whose names no table knows), "
        "and the tables `providers` (vendor → base_url, requests_per_minute, tokens_per_minute, max_parallel, "
        "adapter, structured_output, key_env, key_command), `models` (a name of the project's own → model, "
        "base_url, key_env, key_command, options, price, window, longest_answer, structured_output, images, "
        "adapter), `mcp_servers` (name → a server, as in a flow file), `files` (max_file, max_run, media_types, "
        "allow_urls), `masking` (recognizers, patterns), `notify` (url, send, the table `mail` with server, security, "
        "from, user_env, password_env and allow_to, and `channels`: name → type, to, url, url_env, headers, "
        "headers_env, json, body), `prices` (model → input, output, per_call), `memory`, and the list `schedules` "
        "(flow, cron, and where they are said name, "
        "timezone, inputs, overlap, catch_up, queue).",
        "[tool.flowengine]\nallow_cals = []",
    ),
    "FE503": Code(
        "a path that a flow may not name",
        "Paths in flows stay under the project's root. After links are followed, no part of them below it begins with "
        "a dot (`.env`, `.git`), they are no keys (`*.pem`, `*.key`), and they lead to files and folders, not to pipes "
        "or devices. The store of a memory or an index ends in `.db`, `.sqlite` or `.sqlite3`.",
        "flow: ../../other.yaml",
    ),
    "FE504": Code(
        "code that is not allowed",
        "`call` and its kin import only modules that the project file lists in `allow_calls`; without a project file, "
        "only modules in the flow's folder. Of these they reach what the module defines, or lists in `__all__`: not "
        "what it only imports from elsewhere, and no name that begins with an underscore.",
        "call: os:system",
    ),
    "FE505": Code("module not found", "The module is allowed, but no file of that name exists.", "call: toolz:search"),
    "FE506": Code("not defined in the module", "The module's file defines no such name.", "call: tools:serch"),
    "FE507": Code(
        "the module cannot be imported", "The module raised while it was imported.", "a module that divides by 0"
    ),
    "FE508": Code(
        "code of another kind",
        "The name exists in the module, but its key takes something else: `call`, `tools` and `guardrails` what can be "
        "called, `output` a pydantic class or a JSON Schema, `contexts` typed contexts.",
        "call: tools:VERSION",
    ),
    "FE509": Code(
        "MCP server that is not allowed",
        "A server's command is run as it stands, and the variables of `headers_env` are sent to its URL. So the "
        "project file has to allow it: `allow_mcp` lists beginnings of command lines (`uvx mcp-server-time`; the "
        "server's `env` in front, as in a shell: `TZ=UTC uvx mcp-server-time`, or `TZ=*` for any value) and of URLs.",
        "mcp_servers: [{name: time, command: uvx, args: [mcp-server-time]}]",
    ),
    "FE510": Code(
        "file not found",
        "A context provider or `skills` names a file or a folder that is not there, or is not what it should be. Paths "
        "are relative to the project's root.",
        "context: [fixed_file: {file_path: polices.md}]",
    ),
    "FE511": Code(
        "a model that goes to no vendor",
        "The name's prefix is no vendor's, or it has none and no table knows the name, so the "
        "vendor is unknown. Write `vendor/model`, or a name of the project's own (`[models.NAME]` in its file). "
        "Names that no table knows go to a default vendor where one is set: by "
        "OLLAMA_HOST, OLLAMA_BASE_URL, OLLAMA_API_BASE or OPENAI_BASE_URL in the environment, or by "
        "`default_provider` in the project file.",
        "model: gtp-4o-mini",
    ),
    "FE512": Code(
        "arguments that do not fit the function",
        "The function needs an argument that `with` does not give, or takes none of that name. Without `with` a "
        "function is given the context, as its only argument. A parameter named `context` is given it beside `with`. "
        "A tool is given each argument by its name, so it takes no `*rest`, no `**named`, and nothing before a `/`; "
        "the model gives them, so none is a `Context`.",
        "call: tools:search, with: {qeury: tea}",
    ),
    "FE513": Code(
        "an option that the model refuses",
        "The model that the node asks, or one of its fallbacks, is known to refuse the option: a call would fail. "
        "Leave it out, or choose another model. Unknown models are not checked.",
        "model: openai/gpt-4o, reasoning_effort: low",
    ),
    "FE521": Code(
        "unknown tool",
        "`tool` names a tool as `server.tool`. The server stands in `mcp_servers` of the file, at an agent, or in "
        "`mcp_servers` of the project file, and its `allow`, where it has one, lists the tool.",
        "tool: crm.lookup",
    ),
    "FE522": Code(
        "address that is not allowed",
        "Requests go where the project file allows it: `allow_http` lists beginnings of addresses, and behind each the "
        "variables of `headers_env` that may be sent there (`https://api.example.com/v1/ API_TOKEN`).",
        "url: https://elsewhere.example.com/",
    ),
    "FE523": Code(
        "an address that is not literal",
        "Scheme and host stand in the file, and `{{ … }}` only behind them; or the whole is a lone `{{ … }}`.",
        "url: https://{{ inputs.host }}/orders",
    ),
    "FE514": Code(
        "a model that takes no images",
        "The input may be an image, and the model that gets it, or one of its fallbacks, is known to take none. Choose "
        "another model, or say with `media_types` of the input what it may be.",
        "triage: {model: openai/gpt-3.5-turbo, attach: ['{{ inputs.photo }}']}",
    ),
    "FE524": Code(
        "invalid code",
        "`code` is the body of a Python function: it parses, it returns a value, and it reads only names of `with`, "
        "its own, and those that Python knows.",
        "code: return totl",
    ),
    "FE525": Code(
        "a tool to approve that the agent does not have",
        "`approve` names tools whose calls wait for a person: a function by the name that the model calls it by, a "
        "server's tool as `server.tool`, several with `*`. A name that no tool has would let calls through unasked.",
        "tools: [shop:refund], approve: [refnd]",
    ),
    "FE526": Code(
        "two tools of one name",
        "A model calls an agent's tools by their names, so these differ. Give one of the functions another name, with "
        "`@tool(name=…)` or by itself, or list it once. `skills` bring tools such as `load_skill`.",
        "tools: [shop:find, crm:find]",
    ),
    "FE531": Code(
        "a notification that cannot be sent",
        "`notify` names channels of the project file (`[notify.channels.NAME]`), or channels of its own. The project "
        "file says where links lead (`url` of `[notify]`), which server mails are given to (`[notify.mail]`), and to "
        "whom questions may have mails sent (`allow_to` in it).",
        "notify: [finanse]",
    ),
    # --- FE9xx: warnings
    "FE901": Code(
        "a route that its siblings reach too",
        "A target of a route is also downstream of another target of the same node, so it is a branch and a "
        "continuation at once. Route both to where they meet, or leave the label without a target.",
        "routes: {long: shorten, short: publish}\n# and publish needs shorten",
    ),
    "FE902": Code(
        "a node that cannot be reached",
        "What the node waits for can never be true together, so it is skipped in every run.",
        "x and y are branches of one condition; z has needs: [x, y] and join: all",
    ),
    "FE903": Code(
        "a value that may be absent",
        "The node can be skipped, or have failed, while this one runs, and printing its output would then fail. Use "
        "`| default(…)` or `or`. Likewise an inline `if` without `else`: give it one.",
        "a has `when`; b prints {{ nodes.a.output }}",
    ),
    "FE904": Code(
        "an unused state key",
        "The key is declared, and nothing in the file reads it.",
        "shared_state: {n: {}}",
    ),
    "FE905": Code(
        "an unused input",
        "The input is declared, and nothing in the file reads it.",
        "inputs: {unused: {type: string}}",
    ),
    "FE906": Code("an unused agent", "The agent is declared, and no node names it.", "agents: {spare: {}}"),
    "FE907": Code(
        "a loop that only ends exhausted",
        "Nothing that `until` reads changes from round to round: neither a node of the body, nor a variable that "
        "`carry` gives another value, nor state that the body writes. So the loop ends after its first round, or "
        "goes on to the last.",
        "polish: {type: loop, max_iterations: 3, until: inputs.n > 1, nodes: {improve: {prompt: x}}}",
    ),
    "FE908": Code(
        "an extra that is not installed",
        "The flow needs a part of FlowEngine whose libraries are not installed here, so it would fail when it runs. "
        "Install the extra; on another machine it may be there.",
        "mcp_servers: [{name: time, command: uvx}], without the extra `mcp`",
    ),
    "FE909": Code(
        "a choice that never comes",
        "A label of `routes` is no value that the `switch` can have, a value of `enum` is not of the input's type, or "
        "a text is compared with a value that it never is: a status, a label, one of an `enum`.",
        "inputs: {ready: {type: boolean}}\n"
        "nodes: {a: {type: condition, switch: inputs.ready, routes: {'true': b, 'no': c}}}",
    ),
    "FE910": Code(
        "a file that is not there",
        "The default of an input names a file that is not there, so a run that is given no other fails. Paths are "
        "relative to the project's root.",
        "inputs: {scan: {type: file, default: scans/no_such_file.png}}",
    ),
    "FE911": Code(
        "an expression without braces",
        "A text in the place of a template spells out the name of a value. Without braces it is that text. Write "
        "`{{ … }}` for the value.",
        "outputs: {answer: nodes.a.output}",
    ),
    "FE912": Code(
        "a repetition without a bound",
        "A map goes over a list that a model answers and whose schema has no `maxItems`, or the rounds of a loop ask "
        "models and neither the loop, what it stands in, nor the flow has `limits` of `model_calls`, `tokens` or "
        "`cost_usd`. Give it the bound that you mean; the warning shows a line to paste. `flowengine plan` says what "
        "a run may cost.",
        "polish: {type: loop, max_iterations: 3, until: nodes.judge.output.passed, nodes: {…}}",
    ),
    "FE921": Code(
        "untrusted text that reaches an effect",
        "An attacker can write the text of an input marked `untrusted`, a tool, a request, a file, a retrieved document"
        " or a memory (prompt injection), and a model that reads it may repeat it. Here such a text reaches, without a "
        "check, an external effect: a node with `effect: external`, the tools of an agent, an address, a header, or "
        "code. These stop it: an approval that shows the text, a closed choice (a route, a number, a boolean, an "
        "`enum`, a narrow `pattern`), and a check by code (`guardrails`, an evaluation with `call`). If the path is "
        "intended, give a reason with `trust: <reason>` at the node, at one of its keys (`trust: {url: <reason>}`) or "
        "at a key of `shared_state`. `flowengine plan --risks` lists all paths.",
        "inputs: {note: {type: string, untrusted: true}}\n"
        "nodes: {send: {type: function, call: tools:send, effect: external, with: {text: '{{ inputs.note }}'}}}",
    ),
    "FE922": Code(
        "an unneeded `trust`",
        "No untrusted text reaches an effect through this node or key. Remove `trust`, or mark the input that holds "
        "untrusted text with `untrusted: true`.",
        "nodes: {a: {prompt: Hello, trust: it is ours}}",
    ),
}
