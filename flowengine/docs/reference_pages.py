"""Writes the pages that are made from the code, and from the sample flows with their pictures.

`python -m flowengine.docs.reference_pages` writes them into `flowengine/docs`; tests compare them. The format's
own page is `flowfile.schema.reference`'s, that of the Python names `public_names`'.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from starlette.routing import Route

import flowengine
from flowengine.cli import codes_page, commands_page, format_rows, tests_page
from flowengine.cli.commands import examples_folder
from flowengine.core import RECORDS, FileRules, Schedule
from flowengine.core.templating import FILTERS, TESTS
from flowengine.docs.public_names import api_page
from flowengine.engine import EVENTS, TokenStreamed
from flowengine.flow import Flow
from flowengine.flowfile import load_flow
from flowengine.flowfile.analysis import nodes_of
from flowengine.flowfile.project import MaskingRules, Project, WebhookRule
from flowengine.flowfile.schema import field_docs, providers_section
from flowengine.flowfile.schema.reference import reference
from flowengine.journal import MemoryStore
from flowengine.models import (
    ALIASES,
    OTHERS,
    VENDORS,
    ModelDefinition,
    Price,
    ProviderSettings,
    RateLimits,
    SaidCapabilities,
    Vendor,
)
from flowengine.models.http import is_native
from flowengine.nodes import FunctionNode
from flowengine.nodes.notify import MailServer, NotifySettings
from flowengine.web import make_serving_app
from flowengine.web.api import EVERY_PROBLEM, OPERATIONS, describe_flows
from visualize.draw import to_svg

# --- The project file


class ProjectTable(NamedTuple):
    """A table of the project file."""

    title: str
    about: str
    classes: Sequence[type[Any]] = ()
    """What its keys are read into."""
    hidden: Sequence[str] = ()
    """Fields that no key gives."""
    renamed: Mapping[str, str] = {}
    """Field → its key."""
    derived: Sequence[str] = ()
    """Fields that always have a value, and whose keys may be left out."""


TABLES: Final[Mapping[str, ProjectTable]] = {
    "providers": ProjectTable(
        "`[providers.VENDOR]`",
        "Where and how fast a vendor may be asked.",
        (ProviderSettings, RateLimits),
        ("limits", "is_foreign"),
    ),
    "models": ProjectTable(
        "`[models.NAME]`",
        "A name of the project's own for a model ([Models](models.md)).",
        (ModelDefinition, SaidCapabilities),
        ("name", "place", "capabilities"),
    ),
    "prices": ProjectTable(
        '`[prices."MODEL"]`', "What a model costs that no public list knows, in dollars for a million tokens.", (Price,)
    ),
    "files": ProjectTable(
        "`[files]`", "What files runs may take in ([Files and images](files.md)).", (FileRules,), ("root",)
    ),
    "masking": ProjectTable(
        "`[masking]`",
        "What is masked in exports, logs and spans, beside what is built in.",
        (MaskingRules,),
    ),
    "notify": ProjectTable(
        "`[notify]`",
        "How people are told of questions ([Approvals by mail and chat](approvals.md)).",
        (NotifySettings,),
        (),
        {"default": "send"},
    ),
    "notify.mail": ProjectTable(
        "`[notify.mail]`",
        "The server that mails are given to.",
        (MailServer,),
        ("port",),
        {"host": "server", "sender": "from"},
        ("security",),
    ),
    "schedules": ProjectTable(
        "`[[schedules]]`", "A flow that runs by the clock ([Schedules](schedules.md)).", (Schedule,), derived=("name",)
    ),
    "webhooks": ProjectTable(
        "`[[webhooks]]`",
        "Another service that starts a flow of `flowengine serve` ([Serving](serving.md)).",
        (WebhookRule,),
        ("templates",),
    ),
}
"""Name → what its page says of it. `mcp_servers` and `notify.channels` are as in a flow file."""


def project_page() -> str:
    """Every key of the project file."""
    parts = [
        "# The project file",
        "`[tool.flowengine]` in the nearest `pyproject.toml` that has it, else `flowengine.toml`, where tables stand "
        "without `tool.flowengine` before them. Its folder is the root: paths in flows stay below it. Unknown keys are "
        "errors. Made from the code that reads it.",
        format_rows(["key", "default", ""], _field_rows(ProjectTable("", "", (Project,), ("root", "file")))),
        "`[mcp_servers.NAME]` takes what [an MCP server](reference.md#an-mcp-server) of a flow takes, "
        "`[notify.channels.NAME]` what [a channel](reference.md#a-channel-of-notify) takes.",
    ]
    for table in TABLES.values():
        parts.append(f"## {table.title}\n\n{table.about}")
        parts.append(format_rows(["key", "default", ""], _field_rows(table)))
    return "\n\n".join(parts) + "\n"


def _field_rows(table: ProjectTable) -> Iterator[tuple[str, str, str]]:
    for kind in table.classes:
        docs = field_docs(kind.__module__).get(kind.__name__, {})
        for name, default in _defaults(kind):
            if name not in table.hidden:
                shown = "–" if name in table.derived else _format_default(default)
                yield f"`{table.renamed.get(name, name)}`", shown, docs.get(name, "")


def _defaults(kind: type[Any]) -> Iterator[tuple[str, Any]]:
    """Each field with its default; `MISSING`: it has to be given."""
    if hasattr(kind, "_fields"):
        for name in cast("Sequence[str]", kind._fields):
            yield name, cast("Mapping[str, Any]", kind._field_defaults).get(name, MISSING)
        return
    for each in fields(kind):
        yield each.name, None if each.default_factory is not MISSING else each.default


def _format_default(default: Any) -> str:
    if default is MISSING:
        return "**required**"
    if default is None or default in ((), "", {}):
        return "–"
    if isinstance(default, tuple):
        return f"`[{', '.join(map(repr, cast('tuple[Any, ...]', default)))}]`"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


# --- Filters


def filters_page() -> str:
    """Every filter and every test of expressions."""
    parts = [
        "# Filters and tests",
        "Those of Jinja2 that work on data, with its meaning, and `split`, `from_json` and `regex_replace`. All are "
        "bounded in size and time. What a filter takes beside its value stands in brackets. Made from the functions.",
        "## Filters",
        format_rows(["filter", ""], (_function_row(name, FILTERS[name]) for name in sorted(FILTERS))),
        "## Tests",
        "Behind `is` and `is not`, as in `x is defined`.",
        format_rows(["test", ""], (_function_row(name, TESTS[name]) for name in sorted(TESTS))),
        "## What differs from Jinja",
        "All of it on purpose. What is not in this list and not refused means what it means in Jinja.",
        format_rows(["written", "Jinja", "here"], _DIFFERENCES),
    ]
    return "\n\n".join(parts) + "\n"


_DIFFERENCES: Final = (
    ("`{{ none }}`, `{{ true }}`, `{{ ['a'] }}`, also under `~`, `join`, `string`, `replace` and `format`",
     "Python's `None`, `True`, `['a']`", "JSON: `null`, `true`, `[\"a\"]`"),
    ("`{{ x }}` alone in its text", "text", "the value itself, with its type"),
    ("what is absent, where it is printed, gone through or calculated with", "empty", "an error; give `default(…)`"),
    ("what is absent under `==` and `in`", "equals what is absent", "equals nothing"),
    ("`{{ x if y }}`", "prints nothing where `y` does not hold", "an error there (`validate` says so: FE903)"),
    ("a bare expression (`if`, `when`, `until`, …)", "any value is true or false", "only true and false (FE313)"),
    ("a `set` behind a block (`for`, `with`, `set`) that reads an outer name", "hides the outer name in the block",
     "the block reads the outer value"),
    ("`tojson`", "sorted keys, escapes for HTML", "the order as it is, `é` as it is"),
    ("`slice(3, '-')` of a list that divides evenly", "each part is filled up", "nothing is filled up"),
    ("`select`, `reject`, `map`, `unique`, … in a test", "always true", "true where something is left"),
    ("`(1, 2) == [1, 2]`, `d.items() is sequence`", "false", "true: lists and tuples are alike"),
    ("`1e-7 is lower`, `['a'] is lower`", "of the printed value", "only texts are"),
    ("`groupby`, printed", "a list of pairs", "objects with `grouper` and `list`"),
    ("`indent` of `\\r`, `\\r\\n` and other line ends", "they become `\\n`", "they stay"),
    ("`d.items` where the map has a key `items`", "the method", "the value"),
    ("`truncate`, `indent`, … of a number or a list", "an error, or as it is", "printed first"),
    ("`x is filter`, `x is test` of what is no text", "an error", "false"),
    ("`loop` itself, `loop.cycle()`, `loop.changed()`, loops that call themselves", "known", "refused"),
    ("`block`, `call`, `extends`, `filter`, `import`, `include`, `macro`, `namespace`, methods but `get`, `items`, "
     "`keys` and `values`", "known", "refused when the flow is loaded"),
)  # fmt: skip


def _function_row(name: str, function: Callable[..., Any]) -> tuple[str, str]:
    taken = list(inspect.signature(function).parameters.values())[2:]
    shown = ", ".join(str(each.replace(annotation=inspect.Parameter.empty)) for each in taken)
    return f"`{name}{f'({shown})' if shown else ''}`", (inspect.getdoc(function) or "").partition("\n\n")[0]


# --- Providers


def providers_page() -> str:
    """Every vendor of models, and every context provider."""
    rows = (_vendor_row(each) for each in (*VENDORS.values(), *OTHERS.values()))
    spelled = ", ".join(f"`{alias}` is `{name}`" for alias, name in sorted(ALIASES.items()))
    parts = [
        "# Providers",
        "Made from the tables that the code reads.",
        "## Vendors of models",
        "A model is named `vendor/model`. Where no model is named, the first vendor of the table with a default model "
        "whose key is set is asked; where none is, the offline stand-in answers, which is no language model. `native`: "
        "over HTTP by FlowEngine itself; others are asked through litellm, which knows more vendors than these. How "
        "models are named, and their options: [Models](models.md).",
        format_rows(["vendor", "key", "address", "default model", "asked"], rows),
        f"Other spellings: {spelled}.",
        providers_section().rstrip(),
    ]
    return "\n\n".join(parts) + "\n"


def _vendor_row(vendor: Vendor) -> Sequence[str]:
    address = " or ".join(f"`{each}`" for each in vendor.base_variables)
    base = f"`{vendor.default_base}`" if vendor.default_base else ""
    needed = " (required)" if vendor.needs_address else ""
    return (
        f"`{vendor.name}`",
        " or ".join(f"`{each}`" for each in vendor.key_variables) or "–",
        ", ".join(filter(None, (f"{address}{needed}" if address else "", base))) or "–",
        f"`{vendor.default_model}`" if vendor.default_model else "–",
        "–" if vendor.is_stand_in else "native" if is_native(vendor.name) else "litellm",
    )


# --- Events


def events_page() -> str:
    """Every event of a journal, and every record of a node."""
    parts = [
        "# Events",
        "A run is its events, in their order: the journal stores them, `flowengine run --events` prints them, one JSON "
        "object a line with the event's name as `type`, `flow.stream()` yields them. Times (`at`) are Unix seconds. "
        "Made from their classes.",
        *(_class_section(each, "##") for each in EVENTS.values()),
        "## For those who follow live",
        _class_section(TokenStreamed, "###"),
        "## What a `NodeRecorded` holds",
        *(_class_section(each, "###") for each in RECORDS.values()),
    ]
    return "\n\n".join(parts) + "\n"


def _class_section(kind: type[Any], mark: str) -> str:
    docs = field_docs(kind.__module__).get(kind.__name__, {})
    told = " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())
    rows = ((f"`{name}`", f"`{_type_of(kind, name)}`", docs.get(name, "")) for name, _ in _defaults(kind))
    return f"{mark} `{kind.__name__}`\n\n{told}\n\n{format_rows(['field', 'type', ''], rows)}"


def _type_of(kind: type[Any], name: str) -> str:
    """The annotation as it is written."""
    written = kind.__annotations__[name]
    return getattr(written, "__forward_arg__", str(written))


# --- HTTP


def http_page() -> str:
    """Returns the page for `flowengine serve` and `flowengine ui`."""
    document = describe_flows([Flow("NAME", {"answer": FunctionNode(_answer)})])
    described = document["paths"]
    app = make_serving_app(MemoryStore(), (), needs_key=False)
    rows = [
        (f"`{method} {route.path}`", told)
        for route in app.routes
        if isinstance(route, Route) and route.path != "/flows/{flow}" and not route.path.endswith(".css")
        if route.path not in described and (told := (inspect.getdoc(route.endpoint) or "").partition("\n")[0])
        for method in sorted((route.methods or set()) - {"HEAD"})
    ]
    parts = [
        "# HTTP",
        "Made from the servers' own descriptions. Errors are problem objects (`application/problem+json`: `title`, "
        "`status`, `detail`), those below `/v1/` are in OpenAI's form.",
        "## `flowengine serve`",
        "Each request carries a key: `Authorization: Bearer …` ([Serving](serving.md)). `GET /openapi.json` describes "
        "the flows of the key with their inputs and outputs. Any operation may answer:",
        _answers((str(status), told) for status, told in EVERY_PROBLEM.items()),
        *(_operation(path, method, each) for path, methods in described.items() for method, each in methods.items()),
        "### Other routes",
        "Flows for clients of [OpenAI's API](openai.md), of [MCP](mcp.md), for [pages](pages.md), links to "
        "[answer by](approvals.md), and what operators ask. `POST /hooks/PATH` is there for each of "
        "the project's [webhooks](serving.md).",
        format_rows(["route", ""], rows),
        "## `flowengine ui`",
        "The API beside the pages of the viewer; it asks for the viewer's token. `GET /api/openapi.json` has "
        "the schemas.",
    ]
    for each in OPERATIONS:
        named = [(f"`{one.name}`", one.place, one.description) for one in each.parameters]
        parts.append(f"### `{each.method} {each.path.replace(':path', '')}`\n\n{each.summary}")
        if named:
            parts.append(format_rows(["parameter", "in", ""], named))
        parts.append(_answers((str(status), told) for status, (told, _) in sorted(each.answers.items())))
    return "\n\n".join(parts) + "\n"


def _answer() -> str:
    return ""


def _operation(path: str, method: str, operation: Mapping[str, Any]) -> str:
    taken: Sequence[Mapping[str, Any]] = operation.get("parameters", ())
    parts = [f"### `{method.upper()} {path}`"]
    if (path, method) != ("/flows/NAME", "post"):
        parts.append(operation["summary"])
    else:
        parts.append("Run the flow: its inputs as a JSON object in, its outputs out.")
    if taken:
        rows = ((f"`{each['name']}`", each["in"], each.get("description", "")) for each in taken)
        parts.append(format_rows(["parameter", "in", ""], rows))
    answers = ((status, each["description"]) for status, each in sorted(operation["responses"].items()))
    parts.append(_answers((status, told) for status, told in answers if EVERY_PROBLEM.get(int(status)) != told))
    return "\n\n".join(parts)


def _answers(rows: Iterable[tuple[str, str]]) -> str:
    return format_rows(["status", ""], rows)


# --- Samples

PATTERNS: Final[Mapping[str, Sequence[str]]] = {
    "To begin with": ("hello",),
    "Choosing a way": (
        *("support_triage", "content_route", "rules_before_models", "multilingual_triage", "handoff"),
        "screened_reply",
    ),
    "Judging and improving": (
        *("quality_gate", "draft_evaluate_improve", "draft_until_good", "judge_panel", "best_of_three"),
        *("back_translation", "debate"),
    ),
    "Many at once": (
        *("parallel_review", "parallel_research", "wider_search", "map_reduce", "first_answer"),
        "report_with_failures",
    ),
    "Step by step": ("plan_and_execute", "rolling_summary"),
    "Documents, data and memory": (
        *("answer_with_citations", "extract_fields", "repair_desk", "channel_reply", "team_memory"),
    ),
    "Tools, requests and code": (
        *("tool_agent", "call_tools", "check_invoice", "order_status", "compute_totals", "graceful_failure"),
    ),
    "People": ("release_approval", "refund_desk", "expenses/expense_report"),
}
"""Heading → sample flows."""


def samples_page() -> str:
    """Every sample flow with what it shows and its picture."""
    parts = [
        "# Sample flows",
        f"{sum(map(len, PATTERNS.values()))} flows, one a pattern, each with a test of scripted answers. `flowengine "
        "init FOLDER --example NAME` writes one into a folder with its test and what it needs (`expense_report` is a "
        "project of its own, in the repository). The pictures are those of `flowengine graph`.",
    ]
    for heading, names in PATTERNS.items():
        parts.append(f"## {heading}")
        parts += [_sample_section(name) for name in names]
    return "\n\n".join(parts) + "\n"


def _sample_section(name: str) -> str:
    file = examples_folder() / f"{name}.yaml"
    spec, text = load_flow(file), file.read_text("utf-8")
    kinds = dict.fromkeys(f"`{node.type}`" for _, node in nodes_of(spec))
    picture = f"![The graph of {spec.name}](images/flows/{spec.name}.svg)"
    plain = "\n".join(line for line in text.splitlines() if not line.startswith("# yaml-language-server"))
    told = f"{spec.description} Nodes: {', '.join(kinds)}."
    return f"### {spec.name}\n\n{told}\n\n{picture}\n\n```yaml\n{plain}\n```"


def sample_pictures() -> Mapping[Path, str]:
    """Path → the picture of every sample flow, drawn without `dot`, so that it is the same on every machine."""
    names = [name for each in PATTERNS.values() for name in each]
    flows = [Flow.from_yaml(examples_folder() / f"{name}.yaml") for name in names]
    folder = _docs_folder() / "images" / "flows"
    return {folder / f"{each.name}.svg": to_svg(each) for each in flows}


# --- All of them

PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "reference.md": reference,
    "project.md": project_page,
    "commands.md": commands_page,
    "api.md": api_page,
    "test-files.md": tests_page,
    "filters.md": filters_page,
    "providers.md": providers_page,
    "events.md": events_page,
    "http.md": http_page,
    "errors.md": codes_page,
    "samples.md": samples_page,
}
"""File → what writes it."""


def reference_pages() -> Mapping[Path, str]:
    """Path → text of every page that is made from the code."""
    return {_docs_folder() / name: make() for name, make in PAGES.items()}


def _docs_folder() -> Path:
    return Path(flowengine.__file__).parent / "docs"


if __name__ == "__main__":
    for path, text in {**reference_pages(), **sample_pictures()}.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
