"""The sandbox: what scripts can do, what they cannot, and where they are refused.

These need bubblewrap and a kernel that lets it make namespaces.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path

import anyio
import pytest

from flowengine.skills import sandbox as sandbox_module
from flowengine.skills.files import RefusedError
from flowengine.skills.sandbox import Sandbox, verdict
from flowengine.skills.script import Limits
from tests.bench.escapes import ESCAPES, LIMITS, World, attempt, is_running, world
from tests.support.require import missing

ROOT = Path(__file__).parents[2]
MakeSkill = Callable[..., Path]
pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    with world(tmp_path_factory.mktemp("world")) as made:
        yield made


@pytest.fixture(autouse=True)
def _sandbox() -> None:
    if not verdict().holds:
        missing(f"no sandbox: {verdict().reason}")


def test_the_sandbox_holds_here() -> None:
    assert verdict() == (True, "")


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("name", ESCAPES)
async def test_a_script_that_tries_to_get_out_is_contained(name: str, there: World) -> None:
    problem, outcome = await attempt(name, there)
    assert problem == "", outcome


UNCONFINED = (
    *("connect to a listener of the machine", "reach the host by other address families"),
    *("read files of the machine", "take memory that no limit counts"),
)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("name", UNCONFINED)
async def test_the_same_script_gets_out_where_it_is_not_confined(
    name: str, there: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the scripts above are known to try; those of them that do no harm."""
    monkeypatch.setattr(sandbox_module, "verdict", lambda: sandbox_module.Verdict(False, "not tried"))
    problem, _ = await attempt(name, there, Sandbox(LIMITS, allow_unconfined=True))
    assert "ESCAPED" in problem


async def test_a_script_has_what_it_needs(make: MakeSkill) -> None:
    script = """
import json, os, pathlib, sys, tempfile, threading, subprocess
import helper
pathlib.Path("out.txt").write_text("here")
thread = threading.Thread(target=print)
thread.start(), thread.join()
print(json.dumps({
    "arguments": sys.argv[1:], "stdin": sys.stdin.read(), "folder": os.getcwd(), "helper": helper.VALUE,
    "data": pathlib.Path("/skill/assets/data.txt").read_text(), "temporary": tempfile.mkdtemp()[:8],
    "environment": sorted(os.environ), "shell": subprocess.check_output("echo $HOME", shell=True, text=True),
    "user": os.getuid(), "python": sys.executable,
}))
"""
    folder = make("a", **{"scripts/x.py": script, "scripts/helper.py": "VALUE = 7", "assets/data.txt": "data"})
    outcome = await Sandbox().run(folder, "scripts/x.py", ["a b", "--c"], "in")
    assert (outcome.code, outcome.stderr, outcome.ending) == (0, "", "exit")
    said = json.loads(outcome.stdout)
    assert said["arguments"] == ["a b", "--c"]
    assert (said["stdin"], said["folder"], said["helper"], said["data"]) == ("in", "/scratch", 7, "data")
    assert (said["temporary"], said["shell"]) == ("/scratch", "/scratch\n")
    assert set(said["environment"]) <= {
        *("HOME", "LANG", "LC_CTYPE", "PATH", "PWD", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "TMPDIR", "USER")
    }
    assert said["user"] != 0
    assert said["python"] == sys.executable


async def test_shell_scripts_run_and_exit_codes_come_back(make: MakeSkill) -> None:
    folder = make("a", **{"scripts/x.sh": "echo $1; echo bad >&2; exit 3\n", "scripts/y": "#!/bin/sh\nkill -9 $$\n"})
    outcome = await Sandbox().run(folder, "scripts/x.sh", ["hello"])
    assert outcome[:3] == (3, "hello\n", "bad\n")


async def test_nothing_of_one_execution_is_there_in_the_next(make: MakeSkill) -> None:
    folder = make("a", **{"scripts/x.py": "import os; print(os.listdir('/scratch')); open('/scratch/x', 'w')"})
    assert [(await Sandbox().run(folder, "scripts/x.py")).stdout for _ in range(2)] == ["[]\n", "[]\n"]


async def test_a_skill_that_only_its_owner_can_read_runs_too(make: MakeSkill) -> None:
    folder = make("a", **{"scripts/x.py": "print(open('/skill/data.txt').read())", "data.txt": "mine"})
    for path in (folder / "scripts", folder):
        path.chmod(0o700)
    for path in (folder / "scripts" / "x.py", folder / "data.txt"):
        path.chmod(0o600)
    (folder / "gone").symlink_to("/nowhere")
    outcome = await Sandbox().run(folder, "scripts/x.py")
    assert outcome[:3] == (0, "mine\n", "")
    assert folder.stat().st_mode & 0o777 == 0o700


async def test_a_cancelled_script_is_ended_at_once(make: MakeSkill) -> None:
    folder = make("a", **{"scripts/x.py": "import time; time.sleep(600)"})
    marker = f"cancelled-{os.getpid()}"
    begun = time.monotonic()
    with anyio.move_on_after(0.5) as scope:
        await Sandbox(Limits(seconds=60)).run(folder, "scripts/x.py", [marker])
    assert scope.cancelled_caught
    assert time.monotonic() - begun < 5
    assert not is_running(marker)


def test_a_script_does_not_outlive_the_process_that_started_it(make: MakeSkill) -> None:
    folder = make("a", **{"scripts/x.py": "import time; time.sleep(600)"})
    marker = f"orphan-{os.getpid()}"
    code = (
        "import anyio, pathlib, sys\nfrom flowengine.skills.sandbox import Sandbox\n"
        "from flowengine.skills.script import Limits\n"
        f"anyio.run(Sandbox(Limits(seconds=1)).run, pathlib.Path({str(folder)!r}), 'scripts/x.py', [{marker!r}])"
    )
    script = f"/skill/scripts/x.py\0{marker}"
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) as starter:
        until(lambda: is_running(script))
        starter.send_signal(signal.SIGKILL)
    until(lambda: not is_running(script))


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# --- refused ----------------------------------------------------------------------------------------


async def test_without_bubblewrap_scripts_are_refused(make: MakeSkill, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox_module.shutil, "which", lambda name, **_: None if name == "bwrap" else f"/bin/{name}")
    monkeypatch.setattr(sandbox_module, "verdict", verdict.__wrapped__)
    folder = make("a", **{"scripts/x.py": "print(1)"})
    with pytest.raises(RefusedError) as refused:
        await Sandbox().run(folder, "scripts/x.py")
    assert refused.value.values == {"reason": "bwrap is not installed"}


async def test_where_it_is_allowed_scripts_run_unconfined_within_limits(
    make: MakeSkill, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox_module, "verdict", lambda: sandbox_module.Verdict(False, "not tried"))
    monkeypatch.setenv("ESCAPE_CANARY", "secret")
    folder = make(
        "a", **{"x.py": "import os; print(os.environ.get('ESCAPE_CANARY'), os.getcwd())", "y.py": "while 1: 1"}
    )
    sandbox = Sandbox(Limits(seconds=0.5), allow_unconfined=True)
    outcome = await sandbox.run(folder, "x.py")
    assert outcome.stdout.startswith("None /")
    assert not await anyio.Path(outcome.stdout.split()[1]).exists()
    assert (await sandbox.run(folder, "y.py")).ending == "time"


@pytest.mark.parametrize("machine", ["riscv64"])
def test_an_unknown_processor_has_no_sandbox(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert verdict.__wrapped__() == (False, f"there is no sandbox for linux on {machine}")


def test_where_namespaces_are_denied_the_trial_says_so() -> None:
    """Inside a sandbox that allows no more of them."""
    outer = ["bwrap", "--unshare-user", "--disable-userns", "--dev-bind", "/", "/", "--die-with-parent", "--"]
    code = "from flowengine.skills.sandbox import verdict; print(*verdict(), sep='|')"
    said = subprocess.run([*outer, sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert said.stdout.startswith("False|bubblewrap cannot make one here: ")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else; others are somebody else already")
def test_the_sandbox_holds_without_privileges_too() -> None:
    code = (
        "import os, sys\nimport flowengine.skills.sandbox as s\n"
        "os.setgroups([]); os.setgid(12345); os.setuid(12345); os.chdir('/')\n"
        "sys.prefix = sys.base_prefix = '/usr'; sys.executable = '/usr/bin/python3'\n"
        "print(*s.verdict(), sep='|')"
    )
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (said.stdout, said.stderr) == ("True|\n", "")
