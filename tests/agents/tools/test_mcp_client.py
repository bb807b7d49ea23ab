"""MCP servers that work, and every way in which one does not; against processes of our own."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import process_time

import anyio
import pytest

from flowengine.agents.tools.mcp.server_settings import McpServer
from flowengine.agents.tools.tool import Tool, ToolResult
from flowengine.agents.tools.toolset import Offer, ToolSet
from flowengine.errors import DefinitionError, RunError
from tests.support.pace import done_within
from tests.support.serving import open_mcp

Settings = Callable[..., McpServer]


def tool(sets: tuple[ToolSet, ...], name: str) -> Tool:
    found = Offer(sets).find(f"test_{name}")
    assert found is not None
    return found


async def call(sets: tuple[ToolSet, ...], name: str, **arguments: str) -> ToolResult:
    return await tool(sets, name).call(arguments)


def counted(calls: Path) -> int:
    return len(calls.read_text().splitlines())


def is_running(pid: str) -> bool:
    """Whether a process is there; one that has ended and is not yet reaped is not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


async def test_a_servers_tools_are_a_set_with_its_name_before_theirs(server: Settings) -> None:
    async with open_mcp([server(allow=["echo", "count"])]) as sets:
        (only,) = sets
        assert (only.name, only.description, only.source) == ("test", "For tests.", "MCP server 'test'")
        assert [each.name for each in only.tools] == ["test_echo", "test_count"]
        assert only.tools[0].description == "The echo tool."
        assert only.tools[0].parameters == {"type": "object", "properties": {"value": {"type": "string"}}}
        assert await call(sets, "echo", value="日本") == ToolResult(
            '{"value": "\\u65e5\\u672c"}', '{"value": "\\u65e5\\u672c"}'
        )


async def test_no_servers_are_no_sets() -> None:
    async with open_mcp([]) as sets:
        assert sets == ()


async def test_effects_come_from_the_servers_hints(server: Settings) -> None:
    async with open_mcp([server()]) as sets:
        effects = [tool(sets, name).effect for name in ("echo", "crash_once_idempotent", "count")]
    assert effects == ["none", "idempotent", "external"]


async def test_calls_run_side_by_side(server: Settings) -> None:
    answers: list[str] = []

    async def ask(number: int) -> None:
        answers.append((await call(sets, "echo", value=str(number))).text)

    async with open_mcp([server()]) as sets, anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(ask, number)
    assert sorted(answers) == sorted(f'{{"value": "{number}"}}' for number in range(20))


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("error", ToolResult("no such city", None, True)),
        ("refuse", ToolResult("MCP server 'test' refused: no method tools/call", None, True)),
        ("structured", ToolResult('{"degrees": 3}', {"degrees": 3})),
        ("nothing", ToolResult("[no content]", "[no content]")),
        ("chatty", ToolResult("{}", "{}")),
        ("flood", ToolResult("{}", "{}")),
    ],
)
async def test_answers_as_results(server: Settings, name: str, result: ToolResult) -> None:
    async with open_mcp([server()]) as sets:
        assert await call(sets, name) == result


async def test_content_that_is_no_text_is_said_plainly(server: Settings) -> None:
    async with open_mcp([server()]) as sets:
        result = await call(sets, "mixed")
    text = result.text
    assert [len(each) for each in result.files] == [4, 2, 3]
    assert text.splitlines() == [
        "first",
        "[image: image/png, 4 bytes]",
        "[audio: audio/wav, 2 bytes]",
        "[resource file:///a]",
        "inside",
        "[resource file:///b: binary data, application/pdf, 3 bytes]",
        "[link to resource file:///c 'c': the third]",
    ]


async def test_an_answer_of_ten_megabytes_is_cut(server: Settings) -> None:
    async with open_mcp([server()]) as sets:
        text = (await call(sets, "big")).text
    assert text.endswith("[cut: 9,968,000 of 10,000,000 characters left out]")


async def test_an_answer_that_breaks_the_protocol_is_an_error_result(server: Settings) -> None:
    async with open_mcp([server()]) as sets:
        result = await call(sets, "bare")
        assert result.is_error
        assert result.text.startswith("MCP server 'test' answered wrongly: ValidationError")
        assert not (await call(sets, "echo")).is_error


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("slow_words", "the pattern '^(a|a)*$' takes too long on it"),
        ("slow_ways", "its schema has too many ways to look at it"),
        ("structured_wrong", "its structured content does not fit its schema: 3 is not of type 'string' at $.degrees"),
    ],
)
async def test_a_servers_own_schema_of_its_answers_stops_nobody(server: Settings, name: str, said: str) -> None:
    async with open_mcp([server()]) as sets:
        began = process_time()
        result = await call(sets, name)
        assert result.is_error
        assert said in result.text
        assert process_time() - began < 3
        assert not (await call(sets, "echo")).is_error


async def test_an_answer_of_very_many_parts_is_read_by_nobody(server: Settings) -> None:
    async with open_mcp([server()]) as sets:
        result = await call(sets, "many_parts")
        assert "it wrote a message of more than 50,000 values to stdout" in result.text


async def test_a_server_inherits_nothing_but_path_home_and_lang(
    server: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    async with open_mcp([server(env={"MODE": "fast"})]) as sets:
        seen = set((await call(sets, "environment")).text.split())
    assert seen - {"LC_CTYPE"} == {"HOME", "LANG", "MODE", "PATH"} & {*os.environ, "MODE"}  # Python sets LC_CTYPE


# --- a server that does not start -----------------------------------------------------------------


async def refusal(settings: McpServer) -> str:
    with pytest.raises(RunError) as caught:
        async with open_mcp([settings]):
            pass
    return str(caught.value)


async def test_a_server_that_crashes_at_the_start_is_named_with_its_last_words(server: Settings) -> None:
    assert await refusal(server("crash_at_start")) == (
        "MCP server 'test' did not start: its process ended with exit code 7; "
        "last on stderr: cannot [31mstart: no database"
    )


@pytest.mark.usefixtures("impatient")
async def test_a_server_that_hangs_at_the_start_is_given_up_and_killed(server: Settings) -> None:
    says = ["-c", "echo still warming up >&2; exec sleep 600"]  # At once: a shell has begun long before Python has.
    with done_within(8):
        message = await refusal(McpServer(name="test", command="sh", args=says, start_timeout=1.0))
    assert message == "MCP server 'test' did not start: it did not answer within 1 s; last on stderr: still warming up"


@pytest.mark.long
async def test_a_server_that_writes_nothing_but_noise_is_given_up(server: Settings) -> None:
    with done_within(10):
        message = await refusal(server("noise_at_start", start_timeout=1.5))
    assert "did not answer within 1.5 s" in message or "floods its stdout" in message


async def test_a_command_that_does_not_exist_is_told() -> None:
    message = await refusal(McpServer(name="test", command="no-such-command-anywhere"))
    assert message.startswith("MCP server 'test' did not start: FileNotFoundError: ")
    assert "no-such-command-anywhere" in message


async def test_one_server_that_does_not_start_ends_the_others(server: Settings, calls: Path) -> None:
    with pytest.raises(RunError, match="MCP server 'bad'"):
        async with open_mcp([server(), server("crash_at_start", name="bad")]):
            pytest.fail("it opened")


async def test_an_allowed_tool_that_the_server_lacks_is_an_error(server: Settings) -> None:
    with pytest.raises(DefinitionError, match=r"has no tool 'ecko'; did you mean 'echo'\?"):
        async with open_mcp([server(allow=["ecko"])]):
            pytest.fail("it opened")


async def test_two_tools_of_one_name_are_refused_unless_they_are_left_out(server: Settings) -> None:
    message = await refusal(server("twice"))
    assert message.startswith("MCP server 'test' lists two tools named 'echo'")
    async with open_mcp([server("twice", allow=["count"])]) as sets:
        assert [each.name for each in sets[0].tools] == ["test_count"]


async def test_names_are_made_safe_for_vendors_and_stay_apart(server: Settings) -> None:
    async with open_mcp([server("names", allow=["e.cho", "e/cho", "e" * 80])]) as sets:
        names = [each.name for each in sets[0].tools]
        assert not (await sets[0].tools[1].call({})).is_error
    assert [name[:11] for name in names] == ["test_e_cho_", "test_e_cho_", "test_eeeeee"]
    assert len(set(names)) == 3
    assert max(map(len, names)) == 64


async def test_a_missing_extra_says_what_to_install(server: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ModuleNotFoundError("No module named 'mcp'", name="mcp")

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(DefinitionError, match=r"'mcp' is not installed: pip install 'flowengine-dag\[mcp\]'"):
        async with open_mcp([server()]):
            pytest.fail("it opened")


# --- a server that dies, or hangs ---------------------------------------------------------------------


async def test_an_external_call_that_was_under_way_is_not_repeated(server: Settings, calls: Path) -> None:
    async with open_mcp([server()]) as sets:
        result = await call(sets, "crash")
    assert result.is_error
    assert result.text == (
        "MCP server 'test' was lost during the call: its process ended with exit code 3; last on stderr: "
        "about to crash, key is unset. Whether the call took effect is unknown; it was not repeated"
    )
    assert counted(calls) == 1


@pytest.mark.long
@pytest.mark.parametrize("name", ["crash_once", "crash_once_idempotent"])
async def test_a_harmless_call_is_repeated_over_a_new_connection(server: Settings, calls: Path, name: str) -> None:
    async with open_mcp([server()]) as sets:
        assert await call(sets, name) == ToolResult("{}", "{}")
    assert counted(calls) == 2


async def test_a_harmless_call_is_repeated_once_only(server: Settings, calls: Path) -> None:
    async with open_mcp([server()]) as sets:
        result = await call(sets, "crash_reading")
    assert result.is_error
    assert counted(calls) == 2


@pytest.mark.usefixtures("impatient")
async def test_a_server_that_died_between_calls_is_started_again(server: Settings) -> None:
    async with open_mcp([server()]) as sets:
        first = (await call(sets, "pid")).text
        os.kill(int(first), 9)
        second = await call(sets, "pid")
    assert not second.is_error
    assert second.text != first


@pytest.mark.usefixtures("impatient")
async def test_a_server_that_cannot_be_started_again_is_given_up(server: Settings, calls: Path) -> None:
    async with open_mcp([server("starts_once")]) as sets:
        os.kill(int((await call(sets, "pid")).text), 9)
        result = await call(sets, "echo")
        assert result.text == (
            "MCP server 'test' is not available: it was restarted 3 times to no avail; the last time its process "
            "ended with exit code 7; last on stderr: cannot [31mstart: no database"
        )
        assert (await call(sets, "echo")) == result
    assert counted(calls) == 4


@pytest.mark.usefixtures("impatient")
async def test_a_call_that_hangs_ends_at_its_timeout_and_the_server_is_killed(server: Settings) -> None:
    with done_within(8):
        async with open_mcp([server(), server(timeout=0.3)]) as (patient, hasty):
            pid = (await call((patient,), "pid")).text
            result = await call((hasty,), "hang")
    assert result == ToolResult("tool 'test_hang' did not answer within 0.3 s and was given up", None, True)
    assert not is_running(pid)


@pytest.mark.long
async def test_a_line_without_end_ends_the_connection_and_not_the_run(server: Settings) -> None:
    async with open_mcp([server()]) as sets:
        result = await call(sets, "endless_line")
        assert "it wrote a line of more than 33,554,432 bytes to stdout" in result.text
        assert not (await call(sets, "echo")).is_error


@pytest.mark.usefixtures("impatient")
async def test_a_server_that_ignores_every_request_to_end_is_killed(server: Settings) -> None:
    with done_within(8):
        async with open_mcp([server("stubborn")]) as sets:
            pid = (await call(sets, "pid")).text
            assert is_running(pid)
    assert not is_running(pid)


@pytest.mark.long
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("anyio_backend", ["trio"])  # it takes 6 s, which the library waits for
async def test_a_server_that_reads_no_more_holds_nobody_up(server: Settings) -> None:
    with done_within(15):
        async with open_mcp([server(), server(timeout=0.5)]) as (patient, hasty):
            pid = (await call((patient,), "pid")).text
            await call((patient,), "deaf")
            result = await call((hasty,), "echo", value="x" * 5_000_000)
    assert result.text == "tool 'test_echo' did not answer within 0.5 s and was given up"
    assert not is_running(pid)


async def test_a_tool_used_after_the_block_is_an_error_result(server: Settings) -> None:
    async with open_mcp([server()]) as sets:
        pass
    assert await call(sets, "echo") == ToolResult("MCP server 'test' is not available: it was closed", None, True)


async def test_what_the_block_raises_comes_out_as_it_is_and_ends_the_server(server: Settings) -> None:
    seen: list[str] = []

    async def fail() -> None:
        async with open_mcp([server()]) as sets:
            seen.append((await call(sets, "pid")).text)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await fail()
    assert not is_running(seen[0])


async def test_cancelling_the_block_ends_the_server(server: Settings) -> None:
    pid = ""
    with anyio.move_on_after(60) as scope:
        async with open_mcp([server()]) as sets:
            pid = (await call(sets, "pid")).text
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert not is_running(pid)


@pytest.mark.usefixtures("impatient")
async def test_cancelling_the_start_ends_the_server(server: Settings) -> None:
    with done_within(8), anyio.move_on_after(0.5) as scope:
        async with open_mcp([server("hang_at_start")]):
            pytest.fail("it opened")
    assert scope.cancelled_caught


async def test_calls_under_way_together_are_all_told_when_the_server_dies(server: Settings) -> None:
    told: list[str] = []

    async def crash() -> None:
        told.append((await call(sets, "crash_at_third")).text)

    async with open_mcp([server()]) as sets, anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(crash)
    assert ["Whether the call took effect is unknown" in text for text in told] == [True] * 3


async def test_a_call_that_is_cancelled_leaves_the_connection_usable(server: Settings) -> None:
    async with open_mcp([server()]) as sets:
        with anyio.move_on_after(0.01):
            for _ in range(100_000):
                await call(sets, "echo", value="x" * 10_000)
        assert not (await call(sets, "echo")).is_error


async def test_a_secret_given_to_a_server_does_not_come_back(server: Settings) -> None:
    async with open_mcp([server(env={"SECRET_KEY": "topsecret-123"})]) as sets:
        result = await call(sets, "crash")
        echoed = await call(sets, "echo", value="topsecret-123")
    assert "about to crash, key is [hidden]." in result.text
    assert echoed == ToolResult('{"value": "[hidden]"}', '{"value": "[hidden]"}')


async def test_a_secret_is_not_in_what_a_server_says_of_itself(server: Settings) -> None:
    async with open_mcp([server(env={"SECRET_KEY": "echo tool.", "SECRET_TOKEN": "tests."})]) as [only]:
        assert (only.description, only.tools[0].description) == ("For [hidden]", "The [hidden]")


async def test_what_a_server_is_given_that_is_no_secret_may_come_back(server: Settings) -> None:
    async with open_mcp([server(env={"TZ": "Asia/Tokyo"})]) as sets:
        assert (await call(sets, "echo", value="Asia/Tokyo")).text == '{"value": "Asia/Tokyo"}'


async def test_opening_and_closing_leaves_no_process_and_no_file_open(server: Settings) -> None:
    def held() -> int:
        return len(os.listdir("/proc/self/fd"))

    async with open_mcp([server()]):
        pass
    before = held()
    for _ in range(3):
        async with open_mcp([server()]) as sets:
            await call(sets, "crash")
    assert held() <= before


def test_a_flow_with_a_server_says_what_to_install_where_the_library_is_missing(tmp_path: Path) -> None:
    ask = "{type: tool, tool: clock.now, effect: none, retry: {attempts: 2}}"
    flow = f"flowengine: v1\nname: time\nmcp_servers: [{{name: clock, command: x}}]\nnodes: {{ask: {ask}}}\n"
    (tmp_path / "time.yaml").write_text(flow, "utf-8")
    (tmp_path / "flowengine.toml").write_text('allow_mcp = ["x"]\n', "utf-8")
    lacking = "import sys; sys.modules |= dict.fromkeys(['mcp', 'mcp_types'])\n"
    code = f"{lacking}from flowengine.cli.main import main; main(['run', 'time.yaml'])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "MCP servers need the 'mcp' extra, and 'mcp' is not installed: pip install" in told.stderr
    assert "a bug in FlowEngine" not in told.stderr


def test_the_library_is_not_loaded_before_it_is_needed() -> None:
    code = "import sys, flowengine.agents.tools.mcp.server_clients; sys.exit(bool({'mcp', 'httpx2'} & {*sys.modules}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
