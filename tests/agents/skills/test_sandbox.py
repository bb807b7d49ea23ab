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
import tempfile
import time
from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import pytest

from flowengine.agents.skills.sandbox import sandbox as sandbox_module
from flowengine.agents.skills.sandbox.sandbox import Sandbox, verdict
from flowengine.agents.skills.sandbox.script import Outcome, ScriptLimits
from flowengine.agents.skills.skill_files import RefusedError
from tests.bench.escapes import ESCAPES, LIMITS, World, attempt, is_running, world
from tests.support.pace import done_within
from tests.support.require import missing

ROOT = Path(__file__).parents[3]
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


@pytest.mark.long
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("name", ESCAPES)
async def test_a_script_that_tries_to_get_out_is_contained(name: str, there: World) -> None:
    problem, outcome = await attempt(name, there)
    assert problem == "", outcome


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("name", ["take memory of the kernel", "leave memory behind in a queue"])
async def test_memory_that_the_kernel_holds_for_a_script_counts(name: str, there: World) -> None:
    limits = replace(LIMITS, seconds=60, memory=150_000_000)
    problem, outcome = await attempt(name, there, Sandbox(limits))
    assert (problem, outcome.ending) == ("", "memory")


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_script_with_a_loop_of_events_runs(there: World) -> None:
    """It has a pair of sockets, and may set their buffers, to no effect."""
    (there.skill / "loop.py").write_text(
        "import asyncio, socket\n"
        "one, other = socket.socketpair()\n"
        "before = one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)\n"
        "one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1_000_000)\n"
        "one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)\n"
        "assert one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == before\n"
        "print(asyncio.run(asyncio.sleep(0, 'done')))\n"
    )
    outcome = await Sandbox().run(there.skill, "loop.py")
    assert (outcome.stdout, outcome.ending) == ("done\n", "exit"), outcome


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
    monkeypatch.setattr(sandbox_module, "verdict", lambda root: sandbox_module.Verdict(False, "not tried"))
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


def test_the_sandbox_holds_for_a_python_that_was_started_by_a_path_with_dots(tmp_path: Path) -> None:
    program = os.path.relpath(sys.executable, tmp_path)
    assert program.startswith("..")
    code = "from flowengine.agents.skills.sandbox.sandbox import verdict; print(verdict())"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    line = [program, "-c", code]
    said = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert said.stdout == "Verdict(holds=True, reason='')\n"


SPY = """
import json, os, sys
root, seen = sys.argv[1], []
for here, folders, files in os.walk(root):
    seen += [os.path.relpath(os.path.join(here, each), root) for each in files]
print(json.dumps(sorted(seen)))
"""
RUN = """
import sys
from pathlib import Path
import anyio
from flowengine.agents.skills.sandbox.sandbox import Sandbox, verdict
folder, root = map(Path, sys.argv[1:])
print(*verdict(root), sep="|")
print(anyio.run(Sandbox(root=root).run, folder, "scripts/x.py", [str(root)]).stdout)
"""


@pytest.mark.parametrize("above", ["/usr/src", "/usr/share", "/usr/local/lib", "/opt"])
async def test_a_script_sees_nothing_of_a_project_wherever_it_lies(above: str, make: MakeSkill) -> None:
    if not os.access(above, os.W_OK):
        pytest.skip(f"{above} cannot be written")
    skill = make("a", **{"scripts/x.py": SPY})
    with tempfile.TemporaryDirectory(prefix="flowengine-app-", dir=above) as place:
        root = Path(place)
        for file in (".env", "flow.yaml", "lib/code.py", "bin/tool"):
            (root / file).parent.mkdir(exist_ok=True)
            (root / file).write_text("secret")
        os.chmod(root, 0o755)
        assert verdict(root) == (True, "")
        outcome = await Sandbox(root=root).run(skill, "scripts/x.py", [place])
        assert (outcome.code, json.loads(outcome.stdout)) == (0, []), outcome


async def test_a_script_sees_nothing_of_the_working_folder(
    make: MakeSkill, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its `.env` is the server's, also where a flow without a project file lies in a folder below."""
    skill = make("a", **{"scripts/x.py": SPY})
    with tempfile.TemporaryDirectory(prefix="flowengine-app-", dir="/usr/share") as place:
        os.chmod(place, 0o755)
        (Path(place) / ".env").write_text("secret")
        (Path(place) / "flows").mkdir()
        (Path(place) / "flows/flow.yaml").write_text("secret")
        monkeypatch.chdir(place)
        for root in (tmp_path, Path(place), Path(place) / "flows", None):
            outcome = await Sandbox(root=root).run(skill, "scripts/x.py", [place])
            assert (outcome.code, json.loads(outcome.stdout)) == (0, []), root


@pytest.mark.parametrize("inside", ["", "usr/lib"])
def test_a_script_sees_nothing_of_a_project_that_is_its_own_virtual_environment(
    inside: str, make: MakeSkill, tmp_path: Path
) -> None:
    skill = make("a", **{"scripts/x.py": SPY})
    root = tmp_path / "app" / inside
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", root], check=True)
    (root / ".env").write_text("secret")
    (root / "flow.yaml").write_text("secret")
    packages = os.pathsep.join(each for each in [str(ROOT), *sys.path] if each)
    line = [root / "bin" / "python", "-c", RUN, skill, root]
    said = subprocess.run(line, env={**os.environ, "PYTHONPATH": packages}, capture_output=True, text=True, check=True)
    held, seen = said.stdout.splitlines()[:2]
    assert held == "True|"
    assert {each.partition("/")[0] for each in json.loads(seen)} <= {"bin", "lib", "share", "pyvenv.cfg"}


@pytest.mark.skipif(not os.access("/usr/share", os.W_OK), reason="/usr/share cannot be written")
def test_the_trial_finds_a_project_that_can_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    hiding = sandbox_module.confine_command
    monkeypatch.setattr(sandbox_module, "confine_command", lambda *given, root, **named: hiding(*given, **named))
    with tempfile.TemporaryDirectory(dir="/usr/share") as place:
        Path(place, ".env").write_text("secret")
        Path(place).chmod(0o755)
        assert verdict.__wrapped__(Path(place)) == (False, "it does not hold: the project's files can be seen")


async def test_a_script_sees_nothing_in_its_skill_that_is_kept_from_flows(make: MakeSkill) -> None:
    look = "import os\nfor each in ('.env', 'keys/a.pem', '.git/config', 'link'):\n" + (
        "    try: print(repr(open('/skill/' + each).read()))\n    except OSError as e: print(e.errno)\n"
    )
    hidden = {".env": "secret", "keys/a.pem": "secret", ".git/config": "secret", "keys/b.txt": "open"}
    folder = make("a", **{"scripts/x.py": look, **hidden})
    (folder / "link").symlink_to(".env")
    outcome = await Sandbox().run(folder, "scripts/x.py")
    assert "secret" not in outcome.stdout
    assert (outcome.code, len(outcome.stdout.splitlines())) == (0, 4), outcome


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
    with done_within(5), anyio.move_on_after(0.5) as scope:
        await Sandbox(ScriptLimits(seconds=60)).run(folder, "scripts/x.py", [marker])
    assert scope.cancelled_caught
    assert not is_running(marker)


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_script_that_is_cancelled_before_it_begins_never_does(
    make: MakeSkill, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    """No thread was started for it, or one that comes to it when it is cancelled already."""
    works: list[Callable[[], Outcome]] = []

    async def run_later(work: Callable[..., Outcome], *arguments: object, **options: object) -> Outcome:
        works.append(partial(work, *arguments))
        await anyio.sleep_forever()
        raise AssertionError

    if is_late:
        monkeypatch.setattr(sandbox_module.to_thread, "run_sync", run_later)
    folder = make("a", **{"scripts/x.py": "import time; time.sleep(600)"})
    marker = f"never-{os.getpid()}"
    with anyio.CancelScope() as scope:
        scope.cancel()
        await Sandbox().run(folder, "scripts/x.py", [marker])
    assert scope.cancelled_caught
    for work in works:
        with pytest.raises(RefusedError):
            work()
    assert not is_running(marker)


@pytest.mark.long
def test_a_script_does_not_outlive_the_process_that_started_it(make: MakeSkill) -> None:
    folder = make("a", **{"scripts/x.py": "import time; time.sleep(600)"})
    marker = f"orphan-{os.getpid()}"
    code = (
        "import anyio, pathlib, sys\nfrom flowengine.agents.skills.sandbox.sandbox import Sandbox\n"
        "from flowengine.agents.skills.sandbox.script import Outcome, ScriptLimits\n"
        f"anyio.run(Sandbox(ScriptLimits(seconds=1)).run, pathlib.Path({str(folder)!r}), 'scripts/x.py', [{marker!r}])"
    )
    script = f"/skill/scripts/x.py\0{marker}"
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) as starter:
        until(lambda: is_running(script))
        starter.send_signal(signal.SIGKILL)
    until(lambda: not is_running(script))


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
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
    monkeypatch.setattr(sandbox_module, "verdict", lambda root: sandbox_module.Verdict(False, "not tried"))
    monkeypatch.setenv("ESCAPE_CANARY", "secret")
    folder = make(
        "a", **{"x.py": "import os; print(os.environ.get('ESCAPE_CANARY'), os.getcwd())", "y.py": "while 1: 1"}
    )
    sandbox = Sandbox(ScriptLimits(seconds=0.5), allow_unconfined=True)
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
    code = "from flowengine.agents.skills.sandbox.sandbox import verdict; print(*verdict(), sep='|')"
    said = subprocess.run([*outer, sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert said.stdout.startswith("False|bubblewrap cannot make one here: ")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else; others are somebody else already")
def test_the_sandbox_holds_without_privileges_too() -> None:
    code = (
        "import os, sys\nimport flowengine.agents.skills.sandbox.sandbox as s\n"
        "os.setgroups([]); os.setgid(12345); os.setuid(12345); os.chdir('/')\n"
        "sys.prefix = sys.base_prefix = '/usr'; sys.executable = '/usr/bin/python3'\n"
        "print(*s.verdict(), sep='|')"
    )
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (said.stdout, said.stderr) == ("True|\n", "")
