"""The YAML language server that editors run, driven over its standard input and output as they drive it."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.support.require import missing, require

__all__ = ["LanguageServer", "Mark", "server_command"]

_PATIENCE: Final = 60.0
"""Seconds that an answer may take; a cold start of node on a busy machine takes some."""


def server_command() -> list[str]:
    """The command of yaml-language-server, under the prefix in FLOWENGINE_TEST_NODE; skips where it is missing."""
    node = require("node", "nodejs")
    script = Path(os.environ.get("FLOWENGINE_TEST_NODE", ""), "node_modules", ".bin", "yaml-language-server")
    if not os.environ.get("FLOWENGINE_TEST_NODE") or not script.exists():
        missing("yaml-language-server is not installed under FLOWENGINE_TEST_NODE")
    return [node, str(script.resolve()), "--stdio"]


class Mark(NamedTuple):
    """One problem in an editor; line and columns count from 1, as the product's do."""

    line: int
    start: int
    end: int
    message: str


class LanguageServer:
    """One server process with one schema for all files. Positions count from 0, as the protocol has them."""

    def __init__(self, command: list[str], folder: Path, schema: Path) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder)
        self._folder = folder
        self._schema = schema
        self._received: queue.Queue[dict[str, Any]] = queue.Queue()
        self._asked = 0
        threading.Thread(target=self._read, daemon=True).start()
        self.ask("initialize", processId=None, rootUri=folder.as_uri(), capabilities=_CAPABILITIES)
        self._tell("initialized")
        self._tell("workspace/didChangeConfiguration", settings=self._settings())
        self._warm_up()

    def close(self) -> None:
        self.ask("shutdown")
        self._tell("exit")
        self._process.wait(_PATIENCE)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _warm_up(self) -> None:
        """Until a file that fits no schema is marked, the server is still reading its settings."""
        uri = self.opened("- no flow", "warm-up.yaml")
        self._wait(lambda each: _marks_of(each, uri) or None)

    # --- what an editor asks

    def opened(self, text: str, name: str) -> str:
        """Opens a text as a file of the folder; its address."""
        uri = (self._folder / name).as_uri()
        document = {"uri": uri, "languageId": "yaml", "version": 1, "text": text}
        self._tell("textDocument/didOpen", textDocument=document)
        return uri

    def marks(self, text: str, name: str) -> list[Mark]:
        """What is marked as wrong in a text, in the order of the text."""
        uri = self.opened(text, name)
        return sorted(_mark(each) for each in self._wait(lambda each: _marks_of(each, uri)))

    def offered(self, text: str, name: str) -> list[str]:
        """What is offered where the text has a `|`."""
        uri, at = self._at_cursor(text, name)
        found = self.ask("textDocument/completion", textDocument={"uri": uri}, position=at)
        return [each["label"] for each in found["items"]]

    def shown(self, text: str, name: str) -> str:
        """What is shown of that which stands before the `|`."""
        uri, at = self._at_cursor(text, name)
        at["character"] -= 1
        found = self.ask("textDocument/hover", textDocument={"uri": uri}, position=at)
        return "" if found is None else str(found["contents"]["value"])

    def _at_cursor(self, text: str, name: str) -> tuple[str, dict[str, int]]:
        before, _, after = text.partition("|")
        column = len(before) - before.rfind("\n") - 1
        return self.opened(before + after, name), {"line": before.count("\n"), "character": column}

    def ask(self, method: str, **params: Any) -> Any:
        """A request's result."""
        self._asked += 1
        number = self._asked
        self._send({"id": number, "method": method, "params": params})
        answer = self._wait(lambda each: each if each.get("id") == number and "method" not in each else None)
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def _wait(self, pick: Callable[[dict[str, Any]], Any]) -> Any:
        """What is picked of the first message that has it."""
        while True:
            found = pick(self._received.get(timeout=_PATIENCE))
            if found is not None:
                return found

    # --- the wire

    def _settings(self) -> dict[str, Any]:
        wanted = {"schemas": {self._schema.as_uri(): "*.yaml"}, "completion": True, "hover": True, "validate": True}
        return {"yaml": wanted}

    def _tell(self, method: str, **params: Any) -> None:
        self._send({"method": method, "params": params})

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self._process.stdin is not None
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self._process.stdin.flush()

    def _read(self) -> None:
        stream = self._process.stdout
        assert stream is not None
        while line := stream.readline():
            if line.lower().startswith(b"content-length:"):
                size = int(line.partition(b":")[2])
                while stream.readline().strip():
                    pass
                message = json.loads(stream.read(size))
                if "method" in message and "id" in message:
                    self._answer(message)
                else:
                    self._received.put(message)

    def _answer(self, message: dict[str, Any]) -> None:
        """The server asks for its settings; all else it asks is granted."""
        asks = message["method"] == "workspace/configuration"
        result = [self._settings().get(each["section"]) for each in message["params"]["items"]] if asks else None
        self._send({"id": message["id"], "result": result})


def _marks_of(message: dict[str, Any], uri: str) -> list[Any] | None:
    """The marks that a message publishes for a file; None where it is about something else."""
    if message.get("method") != "textDocument/publishDiagnostics" or message["params"]["uri"] != uri:
        return None
    return message["params"]["diagnostics"]


def _mark(found: dict[str, Any]) -> Mark:
    start, end = found["range"]["start"], found["range"]["end"]
    return Mark(start["line"] + 1, start["character"] + 1, end["character"] + 1, found["message"])


_CAPABILITIES: Final[dict[str, Any]] = {
    "textDocument": {
        "completion": {"completionItem": {"documentationFormat": ["markdown"], "snippetSupport": True}},
        "hover": {"contentFormat": ["markdown"]},
        "publishDiagnostics": {},
    },
    "workspace": {"configuration": True},
}
