"""A real PostgreSQL server for tests: Debian's package, a data folder of its own, one a test session.

`empty_database()` is the URL of a database without our tables. The server is started when a test first asks
for it, listens on loopback alone, and is stopped when the process ends. It asks for passwords.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
import time
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from flowengine.version import install_hint
from tests.support.quiet_ports import quiet_port
from tests.support.require import missing

__all__ = ["PASSWORD", "USER", "Server", "empty_database", "server", "stop_servers", "why_missing"]

USER, PASSWORD = "flow", "s3cret-word"
_numbers = count()


@cache
def programs() -> Path | None:
    """The folder of the server's programs: on PATH, or where Debian's packages put the newest version of them.

    Debian leaves the server's own programs out of PATH; that its packages are there is known by `pg_lsclusters`.
    """
    on_path = shutil.which("initdb")
    if on_path is not None:
        return Path(on_path).resolve().parent
    if shutil.which("pg_lsclusters") is None:
        return None
    found = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    return max((each.parent for each in found), key=lambda folder: int(folder.parent.name), default=None)


def _program(name: str) -> Path:
    folder = programs()
    assert folder is not None
    return folder / name


class Server:
    """A running server, where none can be the test is skipped; `durable` is one that waits for its disk, as servers do.

    `disk`: so many MB are all that its tables have, on a disk of their own (root may make one, elsewhere `OSError`).
    `times`: it knows when each row was committed.
    """

    def __init__(self, durable: bool = False, disk: int | None = None, times: bool = False) -> None:
        reason = why_missing()
        if reason is not None:
            missing(reason)
        place = None if durable else os.environ.get("PYTEST_DEBUG_TEMPROOT")
        self.folder = Path(tempfile.mkdtemp(prefix="flowengine-postgres-", dir=place))
        self._disk = disk
        self.port = quiet_port()
        self._as: dict[str, Any] = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
        # A checkpoint costs little without a disk, and a server that is crashed has less to do over.
        quick = ["-c", "fsync=off", "-c", "full_page_writes=off", "-c", "checkpoint_timeout=30s"]
        self._settings = [] if durable else quick
        self._settings += ["-c", "track_commit_timestamp=on"] if times else []
        if self._as:
            shutil.chown(self.folder, "postgres", "postgres")
        self._make()
        self._process = self._started()

    def url(self, database: str = "postgres", password: str = PASSWORD) -> str:
        return f"postgresql://{USER}:{password}@127.0.0.1:{self.port}/{database}"

    def database(self, locale: str = "C.UTF-8") -> str:
        """The URL of a new database."""
        import psycopg

        name = f"flow{next(_numbers)}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE template0 LOCALE '{locale}'")
        return self.url(name)

    def restart(self) -> None:
        """At once, as after a crash: every connection is lost."""
        self.crash()
        self.start_again()

    def crash(self) -> None:
        self._end(signal.SIGQUIT)

    def start_again(self) -> None:
        self._process = self._started()

    def stop(self) -> None:
        self._end(signal.SIGINT)
        if self._disk is not None:
            subprocess.run(["umount", "--lazy", self.folder / "data"], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end(self, how: signal.Signals) -> None:
        self._process.send_signal(how)
        self._process.wait(60)

    def _make(self) -> None:
        secret = self.folder / "secret"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        if self._disk is not None:
            self._mount(self._disk)
        data = ["-D", str(self.folder / "data"), "-U", USER, "--auth=scram-sha-256", f"--pwfile={secret}"]
        plain = ["--no-sync", "--encoding=UTF8", "--locale=C.UTF-8", f"--waldir={self.folder / 'log-of-writes'}"]
        made = subprocess.run(
            [_program("initdb"), *data, *plain],
            capture_output=True,
            text=True,
            cwd=self.folder,
            check=False,
            **self._as,
        )
        assert made.returncode == 0, made.stderr

    def _mount(self, size: int) -> None:
        data = self.folder / "data"
        data.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}m", "tmpfs", data]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode != 0:
            shutil.rmtree(self.folder)
            raise OSError(f"no disk can be mounted here ({made.stderr.strip()})")
        shutil.chown(data, "postgres", "postgres")

    def _started(self) -> subprocess.Popen[bytes]:
        listening = ["-p", str(self.port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]
        with open(self.folder / "log", "ab") as log:
            process = subprocess.Popen(
                [_program("postgres"), "-D", str(self.folder / "data"), *listening, *self._settings],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                **self._as,
            )
        self._await_ready(process)
        return process

    def _await_ready(self, process: subprocess.Popen[bytes]) -> None:
        end = time.monotonic() + 120
        while time.monotonic() < end:
            asked = [_program("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
            if subprocess.run(asked, check=False).returncode == 0:
                return
            assert process.poll() is None, (self.folder / "log").read_text()
            time.sleep(0.05)
        raise AssertionError((self.folder / "log").read_text())


def why_missing() -> str | None:
    """Why there is no server to test with; None where there is one."""
    if programs() is None:
        return "PostgreSQL's server is not installed (apt-get install postgresql)"
    try:
        import procrastinate
        import psycopg
    except ImportError as error:
        return f"{error.name} is not installed ({install_hint('queue')})"
    del procrastinate, psycopg
    return None


_started: list[Server] = []


@cache
def server(durable: bool = False) -> Server:
    """The session's server."""
    made = Server(durable)
    _started.append(made)
    atexit.register(stop_servers)
    return made


def stop_servers() -> None:
    """At the end of the session: a worker of xdist is killed where its own end takes long."""
    while _started:
        _started.pop().stop()


def empty_database() -> str:
    """The URL of the session's database, with nothing in it."""
    import psycopg

    url = _shared()
    with psycopg.connect(url, autocommit=True, options="-c client_min_messages=warning") as connection:
        connection.execute("DROP SCHEMA IF EXISTS flowengine, flowengine_queue CASCADE")
    return url


@cache
def _shared() -> str:
    return server().database()
