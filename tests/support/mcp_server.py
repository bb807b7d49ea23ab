"""An MCP server that misbehaves on demand, over stdio: `python mcp_server.py MODE [FILE]`.

It speaks the protocol by hand, with the standard library only, so that it starts at once and can break
every rule. FILE counts: each call of a counted tool appends a line to it, and in some modes each start.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

MODE = sys.argv[1] if len(sys.argv) > 1 else "plain"
FILE = sys.argv[2] if len(sys.argv) > 2 else ""

READ_ONLY = {"readOnlyHint": True}
IDEMPOTENT = {"idempotentHint": True}
TOOLS: dict[str, Any] = {
    "echo": READ_ONLY,
    "count": None,
    "crash": None,
    "crash_reading": READ_ONLY,
    "crash_once": READ_ONLY,
    "crash_once_idempotent": IDEMPOTENT,
    "crash_at_third": None,
    "hang": READ_ONLY,
    "error": READ_ONLY,
    "refuse": READ_ONLY,
    "many_parts": READ_ONLY,
    "mixed": READ_ONLY,
    "slow_ways": READ_ONLY,
    "slow_words": READ_ONLY,
    "structured": READ_ONLY,
    "structured_wrong": READ_ONLY,
    "big": READ_ONLY,
    "environment": READ_ONLY,
    "chatty": READ_ONLY,
    "flood": READ_ONLY,
    "endless_line": READ_ONLY,
    "nothing": READ_ONLY,
    "pid": READ_ONLY,
    "bare": READ_ONLY,
    "deaf": READ_ONLY,
    "grow": READ_ONLY,
    "shrink": READ_ONLY,
}


WAYS = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)} | {"d40": {"type": "integer"}}
OUTPUTS: dict[str, Any] = {
    "slow_words": {"type": "object", "properties": {"a": {"pattern": "^(a|a)*$"}}},
    "slow_ways": {"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": WAYS},
    "structured_wrong": {"type": "object", "properties": {"degrees": {"type": "string"}}},
}
"""Tool → the schema of its structured content."""


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def text(value: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": value}]


def counted() -> int:
    with open(FILE, "a+") as file:
        file.write("called\n")
        file.flush()
        file.seek(0)
        return len(file.readlines())


def change(how: str) -> None:
    """Another list of tools from now on, and the word that there is one."""
    if how == "grow":
        TOOLS["grown"] = READ_ONLY
    else:
        del TOOLS["echo"]
    send({"method": "notifications/tools/list_changed"})


def mixed() -> list[dict[str, Any]]:
    blob = {"uri": "file:///b", "mimeType": "application/pdf", "blob": "AAAA"}
    return [
        *text("first"),
        {"type": "image", "mimeType": "image/png", "data": "AAAAAA=="},
        {"type": "audio", "mimeType": "audio/wav", "data": "AAA="},
        {"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}},
        {"type": "resource", "resource": blob},
        {"type": "resource_link", "uri": "file:///c", "name": "c", "description": "the third"},
    ]


def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    if name == "crash" or name == "crash_reading":
        counted()
        print("about to crash, key is", os.environ.get("SECRET_KEY", "unset"), file=sys.stderr, flush=True)
        os._exit(3)
    if name.startswith("crash_once") and counted() == 1:
        os._exit(3)
    if name == "hang":
        time.sleep(3600)
    if name == "error":
        return {"content": text("no such city"), "isError": True}
    if name == "mixed":
        return {"content": mixed()}
    if name == "structured":
        return {"content": [], "structuredContent": {"degrees": 3}}
    if name in OUTPUTS:
        return {"content": [], "structuredContent": {"a": "a" * 40 + "!", "degrees": 3}}
    if name == "many_parts":
        return {"content": text("") * 100_000}
    if name == "nothing":
        return {"content": []}
    if name == "bare":
        return {"unexpected": True}
    return {"content": text(plain(name, arguments))}


def plain(name: str, arguments: dict[str, Any]) -> str:
    if name == "count":
        return str(counted())
    if name in ("grow", "shrink"):
        change(name)
    if name == "big":
        return "x" * 10_000_000
    if name == "environment":
        return " ".join(sorted(os.environ))
    if name == "pid":
        return str(os.getpid())
    if name == "chatty":
        sys.stdout.write('hello\n{"not": "json-rpc"}\n{broken\n\n[]\n')
        sys.stdout.buffer.write(b"\xff\xfe\n")
    if name == "flood":
        for _ in range(2_000):
            sys.stderr.write("e" * 1_000 + "\n")
    if name == "endless_line":
        for _ in range(40):
            sys.stdout.write("x" * 1_000_000)
    return json.dumps(arguments)


def listed() -> list[dict[str, Any]]:
    names = list(TOOLS) + (["echo"] if MODE == "twice" else ["e.cho", "e/cho", "e" * 80] if MODE == "names" else [])
    return [
        {
            "name": name,
            "description": f"The {name} tool.",
            "inputSchema": {"type": "object", "properties": {"value": {"type": "string"}}},
            **({"outputSchema": OUTPUTS[name]} if name in OUTPUTS else {}),
            **({"annotations": TOOLS[name]} if TOOLS.get(name) else {}),
        }
        for name in names
    ]


def initialized(params: dict[str, Any]) -> dict[str, Any]:
    return {
        "protocolVersion": params["protocolVersion"],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "test", "version": "1"},
        "instructions": "For tests.",
    }


def answer(request: dict[str, Any]) -> None:
    method, params = request["method"], request.get("params", {})
    if method == "initialize":
        send({"id": request["id"], "result": initialized(params)})
    elif method == "tools/list":
        send({"id": request["id"], "result": {"tools": listed()}})
    elif method == "tools/call" and params["name"] == "crash_at_third":
        if counted() == 3:  # The others are not answered either.
            os._exit(3)
    elif method == "tools/call" and params["name"] != "refuse":
        send({"id": request["id"], "result": call(params["name"], params.get("arguments") or {})})
        if params["name"] == "deaf":
            time.sleep(3600)
    elif "id" in request:
        send({"id": request["id"], "error": {"code": -32601, "message": f"no method {method}"}})


def starts_in_vain() -> bool:
    """Whether this start, of those that are counted, is one that fails."""
    starts = counted() if MODE in ("counted", "slow_start", "starts_once", "second_start") else 0
    return starts > 1 if MODE == "starts_once" else starts == 1 and MODE == "second_start"


def main() -> None:
    if MODE == "crash_at_start" or starts_in_vain():
        print("cannot \x1b[31mstart: no database", file=sys.stderr)
        sys.exit(7)
    if MODE == "slow_start":
        time.sleep(0.8)
    if MODE == "hang_at_start":
        print("still warming up", file=sys.stderr, flush=True)
        time.sleep(3600)
    if MODE == "stubborn":
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if MODE == "noise_at_start":
        while True:
            sys.stdout.write("noise\n" * 10_000)
    for line in sys.stdin:
        answer(json.loads(line))
    if MODE == "stubborn":
        time.sleep(3600)


if __name__ == "__main__":
    main()
