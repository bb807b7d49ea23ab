"""Checks that a project permits what a flow file starts, asks and runs, and lists it.

A flow file names MCP servers; only the project file lets them be started or asked.

A command is matched word by word, with its arguments and the environment that it gets, since these can make any
program run anything; an address by scheme, host and the beginning of its path. Nothing is started or asked.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast
from urllib.parse import unquote, urlsplit

from flowengine.errors import DefinitionError
from flowengine.flowfile.analysis import (
    CodeUse,
    code_of,
    flows_in,
    gaps_of,
    holder_path,
    is_agent,
    is_approval,
    is_code_node,
    is_function,
    is_http,
    is_tool,
    key_path,
    nodes_of,
    servers_of,
    setting_of,
    settings_of,
)
from flowengine.flowfile.checks.report import Report
from flowengine.flowfile.project import (
    CodeDefinition,
    Parameters,
    Project,
    ProjectProblem,
    code_name,
    imports_in,
    names_in,
)
from flowengine.flowfile.recovery import STAND_IN_CODE
from flowengine.flowfile.schema import AgentSettings, FlowSpec, McpServerSpec, is_code
from flowengine.flowfile.yaml import KeyPath
from flowengine.version import install_hint, missing_modules

if TYPE_CHECKING:
    from flowengine.agents.tools.mcp import McpServer
    from flowengine.flowfile.kinds.approval_kind import ApprovalNodeSpec
    from flowengine.flowfile.kinds.function_kind import FunctionNodeSpec
    from flowengine.flowfile.kinds.tool_kind import ToolNodeSpec

# --- The server that a node names
#
# A server of the file stands under `mcp_servers`, its own or an agent's. Two of one name must be the same server: only
# what they offer may differ. The file's go before the project's.


class UnknownServerError(DefinitionError):
    """There is no server of that name; `names`: the servers that there are."""

    def __init__(self, name: str, names: Sequence[str]) -> None:
        super().__init__(f"there is no MCP server '{name}' in the file or its project")
        self.names = names


def server_named(spec: FlowSpec, project: Project, name: str) -> McpServer:
    """The server of a name; `UnknownServerError` where there is none."""
    servers = [each for _, each in servers_of(spec)]
    of_file = [each for each in servers if each.name == name]
    if not of_file:
        if name not in project.mcp_servers:
            names = [*(each.name for each in servers), *project.mcp_servers]
            raise UnknownServerError(name, list(dict.fromkeys(names)))
        from flowengine.agents.tools.mcp import server_of  # The event loop's library comes with it.

        return server_of({"name": name, **project.mcp_servers[name]})
    first, *others = of_file
    if any(_told_apart(first) != _told_apart(each) for each in others):
        raise DefinitionError(f"the file has different MCP servers named '{name}'; rename one of them")
    offers = [each.allow for each in of_file]
    allow: Any = None
    if None not in offers:
        allow = tuple(dict.fromkeys(tool for each in offers for tool in each or ()))
    return first.model_copy(update={"allow": allow}).server() if len(of_file) > 1 else first.server()


def _told_apart(server: McpServerSpec) -> dict[str, Any]:
    return server.model_dump(exclude={"allow", "timeout", "start_timeout"})


# --- Checks of `module:function` references, whose code is read and never run

Define: TypeAlias = Callable[[str], CodeDefinition | None]


def check_code(spec: FlowSpec, project: Project, report: Report) -> None:
    """Each reference to code that the project does not allow, that is not there, or that cannot do what its key asks
    for; each argument that is missing or unknown; and each second tool of one name."""

    @cache
    def problems_of(target: str) -> list[ProjectProblem]:
        return [*_find_problems(target, project, report)]

    @cache
    def define(target: str) -> CodeDefinition | None:
        return None if problems_of(target) else project.definition_of(target)

    for use in code_of(spec):
        if report.is_enough:
            return
        for problem in problems_of(use.target) if use.target != STAND_IN_CODE else ():
            report.at_value(problem.code, problem.message, use.path, problem.hint)
        misuse = _find_misuse(use, define)
        if misuse is not None and _is_used(spec, use):
            report.at_value(misuse.code, misuse.message, use.path, _suggest_fitting(use, define, project, report))
    _check_with(spec, define, report)
    _check_tool_names(spec, define, project, report)


def _find_problems(target: str, project: Project, report: Report) -> Iterator[ProjectProblem]:
    """One reason why code of that name cannot be used, or each module that it imports and that is not there."""
    problem = project.problem_with(target)
    if problem is not None:
        yield problem
        return
    code = code_name(target)
    file = None if code is None else project.module_file(code.module)
    if code is None or file is None:
        return
    for module in imports_in(file, code.name):
        if not project.has_module(module):
            modules = [each.stem for each in file.parent.glob("*.py")]
            text = f"'{target}' imports '{module}', and there is no such module"
            yield ProjectProblem("FE505", text, report.nearest(module, modules))


_GIVES_ONE: Final = ("decide", "guardrails")
_TAKEN: Final = {"output": "a pydantic class or a JSON Schema", "contexts": "typed contexts"}


def _find_misuse(use: CodeUse, define: Define) -> ProjectProblem | None:
    """Why code that is there cannot do what its key asks for."""
    definition = define(use.target)
    if definition is None:
        return None
    if use.key in _TAKEN:
        text = f"'{use.target}' is {definition.kind}, and `{use.key}` takes {_TAKEN[use.key]}"
        return None if use.key == "output" and definition.kind == "dict" else ProjectProblem("FE508", text)
    if not definition.is_callable:
        return ProjectProblem("FE508", f"'{use.target}' is {definition.kind}, which cannot be called")
    parameters = definition.parameters
    if parameters is not None and use.key in ("tool", "tools") and parameters.nameless:
        text = f"a tool is given each argument by its name, and '{use.target}' has `{parameters.nameless[0]}`"
        return ProjectProblem("FE512", text)
    if parameters is not None and use.key in ("tool", "tools") and parameters.context is not None:
        text = f"the parameter '{parameters.context}' of '{use.target}' is a Context, which no tool is given"
        return ProjectProblem("FE512", f"{text}; a node of `type: function` gets one")
    if parameters is not None and use.key in _GIVES_ONE and (len(parameters.required) > 1 or parameters.by_name_only):
        names = ", ".join(f"'{name}'" for name in parameters.required)
        return ProjectProblem("FE512", f"the function is called with one value by its place, and needs {names}")
    return None


def _suggest_fitting(use: CodeUse, define: Define, project: Project, report: Report) -> str:
    """The end of a message: the nearest name of the module that its key may name."""
    code = code_name(use.target)
    file = None if code is None else project.module_file(code.module)
    names = [] if file is None else [each for each in names_in(file) or () if code is not None and each != code.name]
    near = None if code is None else report.nearest.of(code.name, names)
    if code is None or near is None or _find_misuse(use._replace(target=f"{code.module}:{near}"), define):
        return ""
    return f"; did you mean '{near}'?"


def _is_used(spec: FlowSpec, use: CodeUse) -> bool:
    """Tells whether a node has it: of agents that no node has, or not with this key, nothing is made."""
    setting = (*use.holder, use.key)
    return use.key in ("call", "decide", "tool") or setting in spec.remember("settings in use", _find_used)


def _find_used(spec: FlowSpec) -> frozenset[KeyPath]:
    agents = [(key_path(path), node) for path, node in nodes_of(spec) if is_agent(node)]
    return frozenset(
        (*holder_path(spec, path, node, key), key)
        for path, node in agents
        for key in ("output", "tools", "contexts", "guardrails")
    )


def _check_with(spec: FlowSpec, define: Define, report: Report) -> None:
    """Each argument that a function needs and is not given, or is given and does not take."""
    unknown = gaps_of(spec).arguments
    for path, node in nodes_of(spec):
        if report.is_enough:
            return
        target = node.call if is_function(node) else node.tool if is_tool(node) and is_code(node.tool) else None
        definition = None if target is None else define(target)
        if definition is not None and definition.parameters is not None and path not in unknown:
            _check_arguments(
                cast("FunctionNodeSpec | ToolNodeSpec", node), definition.parameters, key_path(path), report
            )


def _check_arguments(
    node: FunctionNodeSpec | ToolNodeSpec, parameters: Parameters, path: KeyPath, report: Report
) -> None:
    if is_tool(node):
        missing = tuple(name for name in parameters.required if name not in node.with_)
    elif not node.with_:  # Such a function is given the context, where it takes anything.
        missing = parameters.required if len(parameters.required) > 1 or parameters.by_name_only else ()
    else:
        missing = tuple(name for name in parameters.required if name not in node.with_ and name != "context")
    misspelt = {report.nearest.of(name, parameters.names) for name in node.with_ if name not in parameters.names}
    missing = [name for name in missing if parameters.takes_any or name not in misspelt]
    if missing:
        names = ", ".join(f"'{name}'" for name in missing)
        report.at_value(
            "FE512", f"the function needs {names}: give it in 'with'", (*path, "tool" if is_tool(node) else "call")
        )
    if parameters.takes_any:
        return
    for name in node.with_:
        if name not in parameters.names:
            text = f"the function takes no argument '{name}'"
            report.at_key("FE512", text, (*path, "with", name), report.nearest(name, parameters.names))


def _check_tool_names(spec: FlowSpec, define: Define, project: Project, report: Report) -> None:
    """Each tool of an agent that has the name of another one of its tools."""
    for path, node in nodes_of(spec):
        if report.is_enough:
            return
        if not is_agent(node):
            continue
        tools: tuple[str, ...] = setting_of(spec, node, "tools") or ()
        folders: tuple[str, ...] = setting_of(spec, node, "skills") or ()
        target_by_name: dict[str, str] = {}
        if folders and tools:
            target_by_name |= dict.fromkeys(
                _list_skill_tools(project, folders, setting_of(spec, node, "locale") or "en"), ""
            )
        for number, target in enumerate(tools if len(tools) > 1 or folders else ()):
            definition = define(target)
            name = None if definition is None or definition.mark is None else definition.mark.name
            if name in target_by_name:
                at = (*holder_path(spec, key_path(path), node, "tools"), "tools", number)
                text = f"'{target_by_name[name]}' is a tool named '{name}' too; list it once, or give one another name"
                if not target_by_name[name]:
                    text = f"`skills` bring a tool named '{name}' too; give this one another name"
                report.at_value("FE526", text, at)
            elif name is not None:
                target_by_name[name] = target


def _list_skill_tools(project: Project, folders: Sequence[str], locale: str) -> Sequence[str]:
    """Returns the tools that skills bring; where they cannot be read, those that any skill brings."""
    # Few agents have skills and tools of their own.
    from flowengine.agents.skills import SkillStore, list_tools, skill_messages

    try:
        skills = SkillStore([project.resolve(each) for each in folders], hidden=False).look().skills
    except (DefinitionError, OSError):  # Told elsewhere.
        skills = ()
    return list_tools(skills, skill_messages(locale))


def check_tools(spec: FlowSpec, project: Project, report: Report) -> None:
    """Each node that calls a tool of an unknown server, or one that its server does not offer."""
    for node_path, node in nodes_of(spec):
        if not is_tool(node) or is_code(node.tool):
            continue
        path = (*key_path(node_path), "tool")
        server, _, tool = node.tool.partition(".")
        try:
            offered = server_named(spec, project, server).allow
        except UnknownServerError as error:
            report.at_value("FE521", str(error), path, report.nearest(server, error.names))
        except DefinitionError as error:
            report.at_value("FE411", str(error), path)
        else:
            if offered is not None and tool not in offered:
                text = f"the MCP server '{server}' does not offer '{tool}': its `allow` has {', '.join(offered)}"
                report.at_value("FE521", text, path, report.nearest(tool, offered))


def check_approvals(spec: FlowSpec, project: Project, report: Report) -> None:
    """Each name in an agent's `approve` that none of its tools has: calls of it would be made without asking."""
    for node_path, node in nodes_of(spec):
        if is_agent(node) and (agent := settings_of(spec, node)).approve:
            own = key_path(node_path)
            where = holder_path(spec, own, node, "approve")
            for number, name in enumerate(agent.approve):
                _check_approval(agent, name, project, report, (*where, "approve", number))


def _check_approval(agent: AgentSettings, name: str, project: Project, report: Report, path: KeyPath) -> None:
    servers = {each.name: each for each in agent.mcp_servers or ()}
    server, dot, tool = name.partition(".")
    names = [_name_of_tool(each, project) for each in agent.tools or ()]
    functions = [each for each in names if each is not None]
    if dot and "*" not in server:
        if server not in servers:
            text = f"`approve` names the MCP server '{server}', which the agent does not have"
            report.at_value("FE525", text, path, report.nearest(server, list(servers)))
        elif (offered := servers[server].allow) is not None and "*" not in tool and tool not in offered:
            text = f"the MCP server '{server}' does not offer '{tool}': its `allow` has {', '.join(offered)}"
            report.at_value("FE525", text, path, report.nearest(tool, offered))
    elif "*" not in name and name not in functions:
        is_open = (
            None in names or agent.contexts or agent.skills or any(name.startswith(f"{each}_") for each in servers)
        )
        if not is_open:
            text = f"`approve` names '{name}', and the agent has no such tool"
            report.at_value("FE525", text, path, report.nearest(name, functions))


def _name_of_tool(target: str, project: Project) -> str | None:
    """The name of the tool that `module:function` makes; None where that is not to be told without its code."""
    definition = project.definition_of(target)
    return None if definition is None or definition.mark is None else definition.mark.name


def check_servers(spec: FlowSpec, project: Project, report: Report) -> None:
    """Each server that the project does not allow, and whether the library that asks servers is here."""
    servers = list(servers_of(spec))
    if servers and missing_modules("mcp"):
        text = "the extra that asks MCP servers is not installed here"
        report.at_value("FE908", text, servers[0][0], f"; {install_hint('mcp')}")
    for path, server in servers:
        if not is_allowed(server, project.allow_mcp):
            file = project.file or project.root / "flowengine.toml"
            entry = json.dumps(_entry(server), ensure_ascii=False)  # A string of TOML as well.
            hint = f"; add {entry} to `allow_mcp` in {file}"
            report.at_value("FE509", f"the MCP server '{server.name}' is not allowed", path, hint)


def is_allowed(server: McpServerSpec, rules: Sequence[str]) -> bool:
    """Tells whether an entry of `allow_mcp` lets a server be used.

    An entry is the beginning of a server's command line, with all of its environment in front as in a shell
    (`TZ=UTC uvx mcp-server-time`; `TZ=*` for any value), or the beginning of its URL.

    >>> time = McpServerSpec(name="time", command="uvx", args=("mcp-server-time", "--local-timezone", "UTC"))
    >>> is_allowed(time, ["uvx mcp-server-time"]), is_allowed(time, ["uvx mcp-server"])
    (True, False)
    """
    if server.url is not None:
        address = _address(server.url)
        return address is not None and any(_begins(address, _address(each)) for each in rules)
    return any(_runs(server, each) for each in rules)


# --- commands


def _runs(server: McpServerSpec, entry: str) -> bool:
    try:
        words = shlex.split(entry)
    except ValueError:
        return False
    environment = dict(server.env)
    while words and "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        if value in ("*", environment.get(name)):
            environment.pop(name, None)
    line = [server.command, *server.args]
    return bool(words) and not environment and line[: len(words)] == words


def _entry(server: McpServerSpec) -> str:
    """Formats the entry that would allow this server, without the values of its environment, which may be secrets."""
    if server.url is not None:
        return _address(server.url) or server.url.partition("?")[0]
    environment = [f"{name}=*" for name in server.env]
    return " ".join([*environment, shlex.join([server.command or "", *server.args])])


# --- addresses


def _address(url: str) -> str | None:
    """Scheme, host and path, without user and query, which may be secrets; None for what is no plain address."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return None
    path = parts.path or "/"
    if parts.scheme not in ("http", "https") or not host or {".", ".."} & {*unquote(path).split("/")}:
        return None
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{path}"


def _begins(address: str, rule: str | None) -> bool:
    """Tells whether an address is the allowed one or lies below it."""
    return rule is not None and (address == rule or address.startswith(rule.rstrip("/") + "/"))


# --- What a flow file may start, ask and run, with the flows that it runs as nodes

_SHOWN: Final = 200


class Reach(NamedTuple):
    """One thing that lies outside of the file."""

    kind: str
    """`starts`, `asks`, `sends to`, `calls` or `runs`."""
    what: str


def list_reach(spec: FlowSpec, project: Project) -> list[Reach]:
    """Each once, in the order of their kinds."""
    order = {"starts": 0, "asks": 1, "sends to": 2, "calls": 3, "runs": 4}
    reaches = dict.fromkeys(reach for each in flows_in(spec) for reach in _find(each, project))
    return sorted(reaches, key=lambda each: order[each.kind])


def _find(spec: FlowSpec, project: Project) -> Iterator[Reach]:
    for _, server in servers_of(spec):
        yield _of_server(server.name, server.command, tuple(server.args), server.url)
    for use in code_of(spec):
        yield Reach("calls", use.target)
    for path, node in nodes_of(spec):
        if is_tool(node) and not is_code(node.tool):
            try:
                mcp_server = server_named(spec, project, node.tool.partition(".")[0])
            except DefinitionError:
                continue
            yield _of_server(mcp_server.name, mcp_server.command, tuple(mcp_server.args), mcp_server.url)
        elif is_http(node):
            secrets = ", ".join(node.headers_env.values())
            yield Reach("sends to", f"{node.method} {node.url[:_SHOWN]}{secrets and f' with {secrets}'}")
        elif is_approval(node):
            yield from (Reach("sends to", each) for each in _told_by(node))
        elif is_code_node(node):
            yield Reach("runs", f"the code of '{'.'.join(path)}' in the sandbox")


def _told_by(node: ApprovalNodeSpec) -> Iterator[str]:
    """Whom an approval tells by itself; channels are the project's."""
    for each in node.notify or ():
        if isinstance(each, str):
            yield f"channel '{each}' of the project"
        elif each.to:
            yield f"mail to {', '.join(each.to)[:_SHOWN]}"
        else:
            yield f"POST {(each.url or f'the address in {each.url_env}').partition('?')[0][:_SHOWN]}"


def _of_server(name: str, command: str | None, args: tuple[str, ...], url: str | None) -> Reach:
    if url is not None:  # A query may hold a key.
        return Reach("asks", f"{url.partition('?')[0][:_SHOWN]} (server '{name}')")
    return Reach("starts", f"{shlex.join([command or '', *args])[:_SHOWN]} (server '{name}')")
