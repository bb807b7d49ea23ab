"""OpenAI's and Anthropic's batch interfaces on loopback: slow, out of order, forgetful, and losing connections as told.

It keeps what was posted, so that a test can tell what was paid for twice. It knows nothing of FlowEngine.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

__all__ = ["BatchServer"]

Answer = Callable[[dict[str, Any]], str]


class BatchServer:
    """`with BatchServer(answer) as server`; `server.url` is OpenAI's base address, `server.anthropic` Anthropic's."""

    def __init__(self, answer: Answer, *, looks: int = 2) -> None:
        """`looks`: how often a batch is looked at before it has ended."""
        self.answer = answer
        self.looks = looks
        self.live = 0
        """Requests that were asked alone."""
        self.posted: Counter[str] = Counter()
        """Requests in batches, by vendor and what is asked."""
        self.batches: dict[str, dict[str, Any]] = {}
        self.files: dict[str, str] = {}
        self.lost_posts = 0
        """So many batches are taken, and the connection is closed without an answer."""
        self.lost_looks = 0
        """So many looks are answered by an error."""
        self.denied = False
        """Looks are refused, as with a key that was revoked."""
        self.removed = False
        """Looks find nothing, as after a batch was removed, or with a key of another project."""
        self.lost_cancels = 0
        """So many wishes to cancel are answered by an error, and not heard."""
        self.left_out: Callable[[str], bool] = lambda asked: False
        """Requests that come back expired, the first time."""
        self.refused = False
        """Batches fail as a whole."""
        self.failing: Callable[[str], bool] = lambda asked: False
        """Requests that come back with an error of theirs."""
        self.never_ends = False
        self.heard: Callable[[str], object] = lambda event: None

    def __enter__(self) -> Self:
        server = self

        class Handler(_Handler):
            owner = server

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.handle_error = lambda request, address: None  # Whoever asked was killed meanwhile.
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        self.anthropic = f"http://127.0.0.1:{self._http.server_port}"
        self.url = f"{self.anthropic}/v1"
        return self

    def __exit__(self, *exc: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def take(self, kind: str, requests: list[tuple[str, dict[str, Any]]], metadata: Any) -> dict[str, Any]:
        """A new batch."""
        name = f"batch_{len(self.batches) + 1}"
        for _, body in requests:
            self.posted[asked_of(body)] += 1
        self.batches[name] = made = {
            "id": name, "kind": kind, "requests": requests, "looks": 0, "metadata": metadata, "cancelled": False,
        }  # fmt: skip
        return made

    def shown(self, batch: dict[str, Any]) -> dict[str, Any]:
        """A batch as its vendor shows it."""
        ended = batch["cancelled"] or (batch["looks"] > self.looks and not self.never_ends)
        name = batch["id"]
        if batch["kind"] == "anthropic":
            open_, done = (0, len(batch["requests"])) if ended else (len(batch["requests"]), 0)
            counts = {"processing": open_, "succeeded": done}
            return {"id": name, "processing_status": "ended" if ended else "in_progress", "request_counts": counts}
        if self.refused:
            return {"id": name, "status": "failed", "errors": {"data": [{"message": "the file is too odd"}]}}
        status = "in_progress" if not ended else "cancelled" if batch["cancelled"] else "completed"
        files = {"output_file_id": f"out-{name}", "error_file_id": f"err-{name}"} if ended else {}
        return {"id": name, "status": status, "metadata": batch["metadata"], **files}

    def lines(self, batch: dict[str, Any], *, errors: bool | None = None) -> str:
        """The answers, the last one first."""
        found: list[dict[str, Any]] = []
        for name, body in reversed(batch["requests"]):
            asked = asked_of(body)
            expired = batch["cancelled"] or (self.left_out(asked) and self.posted[asked] == 1)
            failed = self.failing(asked)
            if batch["kind"] == "anthropic":
                result: dict[str, Any] = {"type": "succeeded", "message": message_of(self.answer(body))}
                if failed:
                    error = {"type": "invalid_request_error", "message": "no"}
                    result = {"type": "errored", "error": {"type": "error", "error": error}}
                if expired:
                    result = {"type": "expired"}
                found.append({"custom_id": name, "result": result})
            elif errors and expired:
                found.append({"custom_id": name, "response": None, "error": {"code": "batch_expired", "message": ""}})
            elif errors and failed:
                said = {"status_code": 400, "body": {"error": {"message": "no", "type": "invalid_request_error"}}}
                found.append({"custom_id": name, "response": said, "error": None})
            elif not errors and not expired and not failed:
                make = response_of if "input" in body else completion_of
                said = {"status_code": 200, "body": make(self.answer(body))}
                found.append({"custom_id": name, "response": said, "error": None})
        return "".join(f"{json.dumps(each)}\n" for each in found)


def asked_of(body: dict[str, Any]) -> str:
    """What the last message asks, without the product's words for it."""
    content = body.get("messages", body.get("input"))[-1]["content"]
    text = content if isinstance(content, str) else "".join(str(each.get("text", "")) for each in content)
    return text.removeprefix("User input: ").strip()


def completion_of(text: str) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    usage = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}
    return {"id": "c", "object": "chat.completion", "model": "gpt-4o-mini", "choices": [choice], "usage": usage}


def response_of(text: str) -> dict[str, Any]:
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    usage = {"input_tokens": 1000, "output_tokens": 100, "total_tokens": 1100}
    return {
        "id": "r",
        "object": "response",
        "status": "completed",
        "model": "o3-pro",
        "output": [message],
        "usage": usage,
    }


def message_of(text: str) -> dict[str, Any]:
    return {
        "id": "m", "type": "message", "role": "assistant", "model": "claude-haiku-4-5",
        "stop_reason": "end_turn",
        "content": [{"type": "text", "text": text}], "usage": {"input_tokens": 1000, "output_tokens": 100},
    }  # fmt: skip


class _Handler(BaseHTTPRequestHandler):
    owner: BatchServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def _say(self, value: Any, status: int = 200) -> None:
        body = value.encode() if isinstance(value, str) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["content-length"]))
        path, owner = self.path, self.owner
        if path.endswith("/cancel") and owner.lost_cancels > 0:
            owner.lost_cancels -= 1
            self._say({"error": {"message": "busy"}}, 503)
        elif path.endswith("/cancel"):
            batch = owner.batches[path.split("/")[-2]]
            batch["cancelled"] = True
            self._say(owner.shown(batch))
        elif path.endswith("/files"):
            text = data.decode().split("application/jsonl\r\n\r\n")[1].rsplit("\r\n--", 1)[0]
            name = f"file-{len(owner.files) + 1}"
            owner.files[name] = text
            owner.heard("file")
            self._say({"id": name})
        elif path.endswith("/batches"):
            self._take(json.loads(data))
        else:
            owner.live += 1
            said = owner.answer(json.loads(data))
            forms = {"messages": message_of, "responses": response_of}
            self._say(forms.get(path.rpartition("/")[2], completion_of)(said))

    def _check_place(self, endpoint: str, lines: list[dict[str, Any]]) -> None:
        """A batch has one endpoint, and all its requests are of the form that this one takes."""
        for each in lines:
            assert each["url"] == endpoint == ("/v1/responses" if "input" in each["body"] else "/v1/chat/completions")

    def _take(self, body: dict[str, Any]) -> None:
        owner = self.owner
        if "requests" in body:
            requests = [(each["custom_id"], each["params"]) for each in body["requests"]]
            made = owner.take("anthropic", requests, None)
        else:
            lines = [json.loads(line) for line in owner.files[body["input_file_id"]].splitlines()]
            requests = [(each["custom_id"], each["body"]) for each in lines]
            self._check_place(body["endpoint"], lines)
            made = owner.take("openai", requests, body["metadata"])
        owner.heard("taken")
        if owner.lost_posts > 0:
            owner.lost_posts -= 1
            self.close_connection = True
            return
        self._say(owner.shown(made))

    def do_GET(self) -> None:
        owner, path = self.owner, self.path.partition("?")[0]
        if path.endswith("/batches"):
            for each in owner.batches.values():
                each["looks"] += 1
            self._say({"data": [owner.shown(each) for each in owner.batches.values()]})
        elif path.endswith("/results"):
            owner.heard("answers")
            self._say(owner.lines(owner.batches[path.split("/")[-2]]))
        elif path.endswith("/content"):
            owner.heard("answers")
            kind, _, name = path.split("/")[-2].partition("-")
            self._say(owner.lines(owner.batches[name], errors=kind == "err"))
        else:
            batch = owner.batches[path.split("/")[-1]]
            batch["looks"] += 1
            owner.heard("look")
            if owner.denied:
                self._say({"error": {"message": "the key was revoked"}}, 401)
            elif owner.removed:
                self._say({"error": {"message": "no such batch"}}, 404)
            elif owner.lost_looks > 0:
                owner.lost_looks -= 1
                self._say({"error": {"message": "busy"}}, 503)
            else:
                self._say(owner.shown(batch))
