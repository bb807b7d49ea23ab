"""`flowengine ui` as a process: its address, its end, and what it refuses."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.plain_http import NO_TLS

Command = Callable[..., Any]


@contextmanager
def ui(*arguments: str) -> Generator[tuple[subprocess.Popen[str], str, str]]:
    """The process, its address and the token, once it listens."""
    command = [sys.executable, "-m", "flowengine", "ui", "--port", "0", *arguments]
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **streams) as process:  # type: ignore[call-overload]  # streams are ints
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            line = process.stdout.readline()
            found = re.fullmatch(r"(http://\S+)/\?token=(\S+)\n", line)
            assert found, line + process.stderr.read()
            yield process, found[1], found[2]
        finally:
            process.kill()


def api(address: str, token: str) -> httpx.Client:
    return httpx.Client(
        base_url=address, headers={"Authorization": f"Bearer {token}"}, timeout=30, trust_env=False, verify=NO_TLS
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_shows_the_flows_of_the_folder_and_its_end_cancels_what_runs(
    folder: Path, flowengine: Command, number: signal.Signals
):
    with ui("--store", "mine.db") as (process, address, token), api(address, token) as client:
        names = {each["name"] for each in client.get("/api/flows").json()["flows"]}
        assert {"shout", "sleep", "bad"} <= names
        started = client.post("/api/runs", json={"flow": "sleep"})
        assert started.status_code == 201, started.text
        deadline = time.monotonic() + 30
        while not (folder / "asleep").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
        assert out == ""
        assert "Traceback" not in err
        assert err.splitlines()[0] == "runs of mine.db; Ctrl-C ends it"
        assert process.returncode == 0
    assert (folder / "cleaned").exists()
    assert re.search(r"sleep +cancelled", flowengine("runs", "list", "--store", "mine.db").out)


@pytest.mark.long
def test_a_second_signal_ends_what_blocks_everything(folder: Path):
    node = 'hog: {type: function, call: "steps:hog", with: {seconds: "{{ 60 }}"}}'
    (folder / "blocked.yaml").write_text(f"flowengine: v1\nname: blocked\nnodes:\n  {node}\n")
    served = ui("blocked.yaml")
    with served as (process, address, token), api(address, token) as client, ThreadPoolExecutor(1) as thread:
        asking = thread.submit(client.post, "/api/runs", json={"flow": "blocked"}, timeout=120)
        while not (folder / "asleep").exists():
            assert not asking.done()
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:  # Two signals at once would be one.
            process.send_signal(signal.SIGINT)
            time.sleep(0.2)
        assert process.wait(10) == 130
        assert isinstance(asking.exception(), httpx.TransportError)


def test_what_flows_print_is_no_result(folder: Path):
    with ui("shout.yaml") as (process, address, token), api(address, token) as client:
        run_id = client.post("/api/runs", json={"flow": "shout"}).json()["run_id"]
        while client.get(f"/api/runs/{run_id}").json()["status"] == "running":
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        assert (out, "a print of the flow's code" in err) == ("", True)


def test_flows_are_those_that_are_named(folder: Path):
    with ui("shout.yaml", "--token", "x" * 20) as (_, address, token), api(address, token) as client:
        assert token == "x" * 20
        assert [each["name"] for each in client.get("/api/flows").json()["flows"]] == ["shout"]


def test_where_others_reach_it_it_is_known_by_addresses_and_by_names_that_are_given(folder: Path):
    options = ("--host", "0.0.0.0", "--token", "x" * 20, "--allow-host", "Box.Example")
    with ui("shout.yaml", *options) as (process, address, token), api(address, token) as client:
        assert address.startswith("http://127.0.0.1:")
        for host, status in (("192.0.2.7:1", 200), ("box.example", 200), ("evil.example", 421)):
            assert client.get("/api/runs", headers={"Host": host}).status_code == status, host
        assert httpx.get(f"{address}/api/runs", trust_env=False, verify=NO_TLS).status_code == 401
        process.terminate()
        assert "travel as plain text" in process.communicate(timeout=30)[1]


def test_a_port_that_is_taken_is_told_with_the_next_free_one(flowengine: Command):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = flowengine("ui", "--no-open", "--port", str(port))
    assert said.code == 2
    assert re.search(rf"port {port} of 127.0.0.1 is taken.*; port (\d+) is free: --port \1\n", said.err)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--host", "0.0.0.0"), "to listen on 0.0.0.0, where others can reach it, it needs --token"),
        (("--host", "0.0.0.0", "--token", "short"), "--token must have 16 characters or more"),
        (("--host", "192.0.2.1", "--token", "x" * 16), "cannot listen on port"),
        (("nowhere.yaml",), "nowhere.yaml"),
    ],
)
def test_what_cannot_be_served_is_told_before_anything_is(
    flowengine: Command, arguments: tuple[str, ...], message: str
):
    said = flowengine("ui", "--no-open", "--port", "0", *arguments)
    assert said.code == 2
    assert message in said.err


def test_without_the_extra_it_says_what_to_install(tmp_path: Path):
    code = "import sys; sys.modules.update(starlette=None, uvicorn=None)\n"
    code += "from flowengine.cli.main import main\nsys.exit(main(['ui', '--no-open']))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ended.returncode == 2
    assert "pip install 'flowengine-dag[ui]'" in ended.stderr


def test_its_help_loads_no_server():
    code = "import sys; from flowengine.cli.main import main; main(['ui', '--help']); print('starlette' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.endswith("False\n")
