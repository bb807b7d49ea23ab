"""Scripts that try to get out of the sandbox or to use more than they may, and the world that they try it on.

Each prints ESCAPED and what it got where it succeeds. It is told what there is to get at: a listener, a process, a file
with a secret. Whether one was contained is judged from what it said and from the world after it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from flowengine.agents.skills.sandbox.sandbox import Sandbox
from flowengine.agents.skills.sandbox.script import Outcome, ScriptLimits

__all__ = ["ESCAPES", "LIMITS", "World", "attempt", "is_running", "world"]

LIMITS = ScriptLimits(
    seconds=2, memory=300_000_000, processes=32, open_files=128, files=2_000, scratch=20_000_000, output=50_000
)

_HEAD = """
import ctypes, errno, glob, json, mmap, os, resource, signal, socket, subprocess, sys, time
given = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)

def tried(attempt):
    try:
        return attempt()
    except BaseException as error:
        return None

def got(what, attempt):
    if tried(attempt) not in (None, False):
        print("ESCAPED", what, flush=True)
"""

ESCAPES: dict[str, str] = {
    "connect to a listener of the machine": """
for address in ("127.0.0.1", "::1", given["address"]):
    got(address, lambda: socket.create_connection((address, given["port"]), timeout=0.3))
""",
    "look a name up": """
got("a name", lambda: socket.getaddrinfo("example.com", 80))
def ask():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as caller:
        caller.settimeout(0.3)
        caller.sendto(b"x", ("127.0.0.1", given["udp"]))
        return caller.recv(10)
got("an answer", ask)
""",
    "reach the host by other address families": """
def vsock():
    with socket.socket(40, socket.SOCK_STREAM) as caller:
        caller.settimeout(0.3)
        try:
            caller.connect((2, 9))
        except OSError as error:
            return error.errno in (errno.ECONNRESET, errno.ECONNREFUSED, errno.ETIMEDOUT)
        return True
got("a virtual socket", vsock)
def abstract():
    caller = socket.socket(socket.AF_UNIX)
    caller.connect("\\0" + given["abstract"])
    return True
got("an abstract socket", abstract)
got("a raw socket", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
""",
    "fork without end": """
made = 0
while True:
    try:
        if os.fork():
            made += 1
            if made > 200:
                print("ESCAPED", made, flush=True)
        else:
            time.sleep(0.01)
    except OSError:
        pass
""",
    "start threads without end": """
import threading
made = 0
try:
    while made < 500:
        threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
        made += 1
except (RuntimeError, MemoryError):
    pass
if made >= 40:
    print("ESCAPED", made, flush=True)
os._exit(0)
""",
    "take memory in one process": """
held = []
try:
    while True:
        held.append(bytearray(10_000_000))
        if len(held) > 40:
            print("ESCAPED", len(held), flush=True)
except MemoryError:
    pass
""",
    "take memory in many processes": """
reading, writing = os.pipe()
for _ in range(12):
    if os.fork() == 0:
        block = mmap.mmap(-1, 100_000_000)
        for start in range(0, len(block), 4096):
            block[start] = 1
        os.write(writing, b"x")
        time.sleep(30)
os.close(writing)
for _ in range(6):
    os.read(reading, 1)
time.sleep(0.5)
print("ESCAPED 600 MB", flush=True)
""",
    "take memory that no limit counts": """
def anonymous():
    handle = libc.memfd_create(b"x", 0)
    return handle >= 0 and os.truncate(handle, 1 << 30) is None
got("memfd", anonymous)
got("shmget", lambda: libc.shmget(0, 1 << 30, 0o1600) >= 0)
got("mq_open", lambda: libc.mq_open(b"/x", 0o102, 0o600, None) >= 0)
def shared():
    with open("/dev/shm/x", "wb") as file:
        return file.write(bytes(5_000_000)) and file.flush() is None
got("/dev/shm", shared)
""",
    "take memory of the kernel": """
def fill(sockets):
    sent = 0
    for each in sockets:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8_000_000)
        each.setblocking(False)
        try:
            while True:
                sent += each.send(bytes(65_536))
        except OSError:
            pass
    return sent
reading, writing = os.pipe()
for _ in range(24):
    if os.fork() == 0:
        pairs = []
        try:
            while True:
                pairs += socket.socketpair()
        except OSError:
            os.write(writing, b"%d\\n" % fill(pairs))
        time.sleep(30)
total, counted = 0, 0
with open(reading) as said:
    for line in said:
        total, counted = total + int(line), counted + 1
        if counted == 20:
            break
time.sleep(0.5)
print("ESCAPED", total, "bytes", flush=True)
""",
    "leave memory behind in a queue": """
listener = socket.socket(socket.AF_UNIX)
listener.bind("\\0queue")
listener.listen(4_096)
for _ in range(3_000):
    with socket.socket(socket.AF_UNIX) as caller:
        caller.setblocking(False)
        caller.connect("\\0queue")
        try:
            while True:
                caller.send(bytes(65_536))
        except OSError:
            pass
time.sleep(0.5)
print("ESCAPED", flush=True)
""",
    "fill the disk": """
written = 0
for folder in ("/scratch", "/tmp", "/dev/shm", "/", "/dev", "/skill", "/usr", "/var/tmp", "/proc", "/run"):
    for number in range(20):
        try:
            with open(f"{folder}/{folder.replace('/', '-')}{number}", "xb", buffering=0) as file:
                while True:
                    written += file.write(bytes(1_000_000))
                    if written > 25_000_000:
                        print("ESCAPED", folder, flush=True)
                        sys.exit()
        except OSError:
            pass
""",
    "make files without end": """
for number in range(10_000_000):
    open(f"/scratch/{number}", "w").close()
    if number == 200_000:
        print("ESCAPED", number, flush=True)
""",
    "open files without end": """
held = []
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
        if len(held) > 200:
            print("ESCAPED", len(held), flush=True)
            break
except OSError:
    pass
""",
    "write without end": """
while True:
    sys.stdout.write("x" * 100_000)
""",
    "compute without end": """
for number in range(1, 65):
    tried(lambda: signal.signal(number, signal.SIG_IGN))
while True:
    pass
""",
    "wait without end, in the background": """
for number in range(1, 65):
    tried(lambda: signal.signal(number, signal.SIG_IGN))
if os.fork() == 0:
    os.setsid()
    time.sleep(3600)
time.sleep(3600)
""",
    "leave a process behind": """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(3600)", given["marker"]])
    os._exit(0)
os.close(0), os.close(1), os.close(2)
time.sleep(0.2)
os._exit(0)
""",
    "read files of the machine": """
for path in ("/etc/shadow", "/etc/passwd", "/etc/hostname", given["secret"],
             given["home"] + "/.ssh", given["home"] + "/.bashrc",
             "/var/log", "/home", "/sys/kernel", "/boot", "/run", "/proc/kcore", "/proc/kallsyms_x", "/mnt"):
    got(path, lambda: os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(10))
""",
    "read the environment of others": """
seen = " ".join(f"{key}={value}" for key, value in os.environ.items())
for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline"):
    seen += tried(lambda: open(path, errors="replace").read()) or ""
if "ESCAPE_CANARY" in seen:
    print("ESCAPED the secret", flush=True)
""",
    "write into the skill": """
for path in ("/skill/SKILL.md", "/skill/new", "/skill/scripts/escape.py"):
    got(path, lambda: open(path, "a").write("x"))
got("mode", lambda: os.chmod("/skill/SKILL.md", 0o777) is None)
got("name", lambda: os.rename("/skill/SKILL.md", "/skill/x") is None)
got("gone", lambda: os.unlink("/skill/SKILL.md") is None)
got("link", lambda: os.link("/skill/SKILL.md", "/scratch/x") is None)
""",
    "write outside the scratch folder": """
for folder in ("/", "/usr", "/usr/local/bin", "/etc", "/var", "/dev", "/proc", "/home", sys.prefix, sys.base_prefix,
               os.path.dirname(os.__file__), os.path.dirname(given["secret"])):
    got(folder, lambda: open(os.path.join(folder, "escaped"), "w"))
""",
    "follow links out": """
for number, target in enumerate((given["secret"], "/proc/1/root" + given["secret"], "/proc/1/cwd/../../etc/shadow",
        "../../../.." + given["secret"], "/proc/self/root" + "/../../etc/shadow", "/skill/../../../etc/shadow")):
    got(target, lambda: open(target).read(5))
    got(f"link to {target}", lambda: os.symlink(target, f"/scratch/{number}") or open(f"/scratch/{number}").read(5))
got("a hard link", lambda: os.link(given["secret"], "/scratch/hard") is None)
got("an old root", lambda: os.listdir("/oldroot") or os.listdir("/newroot"))
""",
    "end other processes": """
got("a process of the machine", lambda: os.kill(given["pid"], signal.SIGKILL) is None)
tried(lambda: os.kill(1, signal.SIGKILL))
tried(lambda: os.killpg(os.getppid(), signal.SIGKILL))
tried(lambda: os.kill(os.getppid(), signal.SIGKILL))
tried(lambda: os.kill(-1, signal.SIGKILL))
""",
    "look into other processes": """
got("ptrace", lambda: libc.ptrace(16, 1, 0, 0) == 0)
got("traceme", lambda: libc.ptrace(0, 0, 0, 0) == 0)
for path in glob.glob("/proc/[0-9]*/mem"):
    if path != f"/proc/{os.getpid()}/mem":
        got(path, lambda: open(path, "r+b"))
got("a process of the machine", lambda: os.listdir(f"/proc/{given['pid']}/fd") if given["pid"] > 40 else False)
got("pidfd", lambda: os.pidfd_open(given["pid"]) if given["pid"] > 40 else False)
""",
    "mount": """
for source, target, kind, flags in ((b"none", b"/scratch", b"tmpfs", 0), (b"proc", b"/proc", b"proc", 0),
        (b"/skill", b"/scratch", b"none", 4096), (b"none", b"/", b"none", 32), (b"/dev/vda", b"/scratch", b"ext4", 0)):
    got(kind, lambda: libc.mount(source, target, kind, flags, None) == 0)
got("umount", lambda: libc.umount2(b"/scratch", 2) == 0)
got("open_tree", lambda: libc.syscall(428, -100, b"/", 1) >= 0)
got("fsopen", lambda: libc.syscall(430, b"tmpfs", 0) >= 0)
""",
    "make namespaces": """
for flag in (0x10000000, 0x20000, 0x40000000, 0x20000000, 0x4000000, 0x8000000, 0x2000000):
    got(hex(flag), lambda: libc.unshare(flag) == 0)
got("clone", lambda: libc.syscall(56, 0x10000000 | 17, 0, 0, 0, 0) >= 0)
got("clone3", lambda: libc.syscall(435, 0, 0) >= 0)
for kind in ("user", "mnt", "net", "pid"):
    got(kind, lambda: libc.setns(os.open(f"/proc/1/ns/{kind}", os.O_RDONLY), 0) == 0)
got("bwrap", lambda: subprocess.run(["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"],
                                    stderr=subprocess.DEVNULL).returncode == 0)
""",
    "change the root": """
os.mkdir("/scratch/root")
got("chroot", lambda: os.chroot("/scratch/root") is None)
got("pivot_root", lambda: libc.pivot_root(b"/scratch", b"/scratch/root") == 0)
got("sysroot", lambda: os.chroot("/proc/1/root") is None)
""",
    "become somebody else": """
for attempt in (lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setgroups([0]), lambda: os.seteuid(1000)):
    got("an identity", lambda: attempt() is None)
if os.getuid() == 0 or os.geteuid() == 0:
    print("ESCAPED root", flush=True)
for program in ("/usr/bin/su", "/usr/bin/sudo", "/usr/bin/mount", "/usr/bin/newgrp", "/usr/bin/pkexec"):
    said = tried(lambda: subprocess.run([program, "-c", "id -u"], input=b"", capture_output=True, timeout=0.5).stdout)
    if said and said.strip() == b"0":
        print("ESCAPED", program, flush=True)
status = open("/proc/self/status").read()
if any(line.startswith(("CapEff", "CapPrm", "CapBnd")) and int(line.split()[1], 16) for line in status.splitlines()):
    print("ESCAPED with capabilities", flush=True)
if "NoNewPrivs:\\t1" not in status:
    print("ESCAPED: new privileges are possible", flush=True)
""",
    "use devices": """
for path in ("/dev/mem", "/dev/kmsg", "/dev/vda", "/dev/sda", "/dev/fuse", "/dev/kvm", "/dev/net/tun", "/dev/vsock"):
    got(path, lambda: os.open(path, os.O_RDWR))
got("mknod", lambda: os.mknod("/scratch/disk", 0o60600, os.makedev(254, 0)) is None)
def push():
    import fcntl, termios
    return fcntl.ioctl(os.open("/dev/tty", os.O_RDWR), termios.TIOCSTI, b"x") is not None
got("a terminal", push)
""",
    "raise its limits": """
for name in ("NPROC", "AS", "NOFILE", "FSIZE", "CPU"):
    kind = getattr(resource, "RLIMIT_" + name)
    hard = resource.getrlimit(kind)[1]
    got(kind, lambda: resource.setrlimit(kind, (hard + 1, hard + 1)) is None)
    if hard == resource.RLIM_INFINITY:
        print("ESCAPED: no limit", kind, flush=True)
got("priority", lambda: os.setpriority(os.PRIO_PROCESS, 0, -5) is None)
""",
    "talk to the kernel": """
for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/user/max_user_namespaces", "/proc/sysrq-trigger",
             "/sys/kernel/uevent_helper", "/sys/fs/cgroup/release_agent", "/proc/self/oom_score_adj_x"):
    got(path, lambda: open(path, "w"))
calls = {"bpf": 321, "userfaultfd": 323, "io_uring": 425, "perf": 298, "keyctl": 250, "kexec": 246}
for name, number in calls.items():
    got(name, lambda: libc.syscall(number, 0, 0, 0, 0, 0) >= 0 or ctypes.get_errno() != errno.EPERM)
""",
}
"""What it tries → the script."""


class World(NamedTuple):
    """What there is to get at, and a skill to do it from."""

    skill: Path
    given: dict[str, Any]
    victim: subprocess.Popen[bytes]


@contextmanager
def world(folder: Path) -> Generator[World]:
    """A machine with something to lose: closed with the block."""
    secret = folder / "secret.txt"
    secret.write_text("the secret")
    os.chmod(secret, 0o644)
    os.environ["ESCAPE_CANARY"] = "a secret"
    name = f"escape-{os.getpid()}"
    with (
        socket.create_server(("0.0.0.0", 0)) as listener,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
        socket.socket(socket.AF_UNIX) as abstract,
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as victim,
    ):
        datagrams.bind(("127.0.0.1", 0))
        abstract.bind("\0" + name)
        abstract.listen()
        given = {
            "address": _own_address(),
            "port": listener.getsockname()[1],
            "udp": datagrams.getsockname()[1],
            "abstract": name,
            "pid": victim.pid,
            "secret": str(secret),
            "home": str(Path.home()),
            "marker": f"left-behind-{os.getpid()}",
        }
        try:
            yield World(_skill(folder), given, victim)
        finally:
            del os.environ["ESCAPE_CANARY"]
            victim.kill()


def _own_address() -> str:
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"


def _skill(folder: Path) -> Path:
    skill = folder / "escape"
    (skill / "scripts").mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: escape\ndescription: Tries to get out.\n---\nNothing.\n")
    for number, text in enumerate(ESCAPES.values()):
        (skill / "scripts" / f"{number}.py").write_text(_HEAD + text)
    return skill


async def attempt(name: str, there: World, sandbox: Sandbox | None = None) -> tuple[str, Outcome]:
    """Run one; why it was not contained (empty: it was), and what it said."""
    before = _contents(there.skill)
    path = f"scripts/{list(ESCAPES).index(name)}.py"
    outcome = await (sandbox or Sandbox(LIMITS)).run(there.skill, path, [json.dumps(there.given)])
    problems = [line for line in outcome.stdout.splitlines() if "ESCAPED" in line]
    if outcome.seconds > LIMITS.seconds + 1:
        problems.append(f"it took {outcome.seconds:.1f} s")
    if len(outcome.stdout) + len(outcome.stderr) > LIMITS.output:
        problems.append("it said more than it may")
    if there.victim.poll() is not None:
        problems.append("it ended a process of the machine")
    if _contents(there.skill) != before:
        problems.append("it changed the skill")
    if is_running(there.given["marker"]):
        problems.append("it left a process behind")
    return "; ".join(problems), outcome


def _contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = (each for each in sorted(folder.rglob("*")) if each.is_file())
    return {str(each): (each.read_bytes(), each.stat().st_mode) for each in files}


def is_running(marker: str) -> bool:
    """Whether a process has this in its command line."""
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if marker.encode() in each.read_bytes():
                return True
    return False
