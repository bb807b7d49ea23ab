"""Runs a few lines of Python as a node: in the sandbox of skills' scripts, without a network, and never elsewhere.

Values go in and come out as JSON. What stands in `code` is not rendered: no value of a run becomes a part of it.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import Any, ClassVar, Final, Unpack

import anyio.to_thread
from pydantic_core import to_jsonable_python

from flowengine.agents.skills import RefusedError
from flowengine.agents.skills.sandbox import Outcome, Sandbox, ScriptLimits, verdict
from flowengine.agents.tools import cut
from flowengine.core import Context, NodeResult, Notice, check_text, has_keys_alike, is_map, load_json, refusing_no_json
from flowengine.errors import DefinitionError, OutputError, RunError
from flowengine.nodes.code_digest import digest_handed
from flowengine.nodes.function import explain_received
from flowengine.nodes.node import FlowNode, NodeSettings, Value, work_out

_SECONDS: Final = 30.0
"""Where the node has no timeout."""
_MAX_VALUES: Final = 10_000_000
"""Characters of what goes in."""
_MAX_OUTPUT: Final = 1_000_000
"""Bytes of what comes out, with what is printed."""
_PRINTED: Final = 2_000

_RUNNER: Final = """
import ast, json, os, sys, traceback

here = os.path.dirname(os.path.abspath(__file__))
given = json.load(sys.stdin)
answer = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # Else whatever writes to it, a process that the code starts too, would stand in the answer.
sys.stdout = sys.stderr


def refuse_doubled(pairs):
    if len({key for key, _ in pairs}) < len(pairs):
        raise TypeError("two keys of an object are the same text")


def fail(error):
    lines = [each.lineno for each in traceback.extract_tb(error.__traceback__) if each.filename == "code"]
    line = error.lineno if isinstance(error, SyntaxError) and error.filename == "code" else lines and lines[-1]
    where = f"line {line}: " if line else ""
    json.dump({"error": f"{where}{type(error).__name__}: {error}"[:2000]}, answer)
    answer.flush()
    os._exit(1)


try:
    tree = ast.parse(f"def code({'*, ' if given else ''}{', '.join(given)}): pass", "code")
    with open(os.path.join(here, "code.txt"), encoding="utf-8") as file:
        tree.body[0].body = ast.parse(file.read(), "code").body
    names = {"__name__": "code"}
    exec(compile(tree, "code", "exec"), names)
    value = names["code"](**given)
    try:
        text = json.dumps({"value": value}, allow_nan=False)
        json.loads(text, object_pairs_hook=refuse_doubled)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"what it returns cannot be written as JSON: {error}") from None
except BaseException as error:
    fail(error)
answer.write(text)
answer.flush()
"""
"""Makes the lines the body of a function, calls it, and writes what it returns; what is printed are messages."""


class CodeNode(FlowNode):
    """Runs `code`, whose names are the arguments; the output is what it returns.

    `sandbox`: where it runs. Where there is none, the node is refused before the run begins.
    """

    kind: ClassVar[str] = "code"
    in_thread = True
    sees_all = False

    def __init__(
        self,
        code: str,
        *,
        arguments: Mapping[str, Value] | None = None,
        root: Path | None = None,
        **settings: Unpack[NodeSettings],
    ) -> None:
        """`root`: of the project, whose files the code does not see; None: the working folder."""
        super().__init__(**settings)
        self.source = code
        self.arguments = arguments or {}
        limits = ScriptLimits(seconds=self.timeout or _SECONDS, output=_MAX_OUTPUT)
        self._sandbox: Sandbox | None = Sandbox(limits, root=root)
        self._call: Callable[[Context, Mapping[str, Any]], Awaitable[Any]] = self._run_confined

    def with_function(self, function: Callable[..., Any]) -> CodeNode:
        """This node with a function in the place of its code."""

        async def call(context: Context, handed: Mapping[str, Any]) -> Any:
            result = function(**handed)
            return await result if hasattr(result, "__await__") else result

        changed = copy(self)
        changed._sandbox, changed._call = None, call
        return changed

    def prepare(self) -> None:
        sandbox_verdict = None if self._sandbox is None else verdict(self._sandbox.root)
        if sandbox_verdict is not None and not sandbox_verdict.holds:
            raise DefinitionError(f"code of a flow runs in a sandbox only, and here is none: {sandbox_verdict.reason}")

    async def run(self, context: Context, /) -> NodeResult:
        handed = self.handed(context)
        explain_received(context, handed)
        digest = digest_handed(context, handed)
        return NodeResult(await self._call(context, handed), given=digest)

    async def _run_confined(self, context: Context, handed: Mapping[str, Any]) -> Any:
        assert self._sandbox is not None  # It is what this calls.
        with refusing_no_json("a value of `with`"):
            text = check_text(json.dumps(handed, ensure_ascii=False), "a value of `with`")
        if len(text) > _MAX_VALUES:
            raise RunError(f"the values of `with` have {len(text):,} characters, and {_MAX_VALUES:,} are the most")
        with tempfile.TemporaryDirectory(prefix="flowengine-code-", ignore_cleanup_errors=True) as folder:
            await anyio.to_thread.run_sync(_write, Path(folder), self.source)
            try:
                outcome = await self._sandbox.run(Path(folder), "run.py", stdin=text)
            except RefusedError as error:
                raise RunError(f"the code was refused: {error.values.get('reason', error.key)}") from error
        if outcome.stderr.strip():
            await context.runtime.note(Notice(f"the code printed: {cut(outcome.stderr.strip(), _PRINTED)}"))
        return _value_of(outcome, self._sandbox.limits)

    def handed(self, context: Context) -> Mapping[str, Any]:
        values = work_out(self.arguments, context)
        if has_keys_alike(values):
            raise RunError("a value of `with` has keys that are the same in JSON, such as 1 and '1'; make them texts")
        with refusing_no_json("a value of `with`"):
            return to_jsonable_python(values)

    def identity(self) -> Sequence[Any]:
        return (self.source, sorted(self.arguments))


def _write(folder: Path, source: str) -> None:
    """The files of one execution, readable by the user that it runs as."""
    folder.chmod(0o755)
    for name, text in (("run.py", _RUNNER), ("code.txt", source)):
        path = folder / name
        path.write_text(text, "utf-8")
        path.chmod(0o644)


_ENDINGS: Final = {
    "time": "the code took longer than {0.seconds:g} s",
    "output": "the code gave more than {0.output:,} bytes, with what it printed",
    "memory": "the code took more than {0.memory:,} bytes of memory",
    "files": "the code made more than {0.files:,} files",
}


def _value_of(outcome: Outcome, limits: ScriptLimits) -> Any:
    if outcome.ending in _ENDINGS:
        raise RunError(_ENDINGS[outcome.ending].format(limits))
    answer: Any = None
    with suppress(ValueError, RecursionError):
        answer = load_json(outcome.stdout)  # The code may have written it past its own `print`.
    if is_map(answer) and "error" in answer:
        raise RunError(f"the code failed: {cut(str(answer['error']), _PRINTED)}")
    if not is_map(answer) or "value" not in answer or outcome.code != 0:
        last_line = outcome.stderr.strip().splitlines()[-1:]
        raise OutputError(
            f"the code ended with {outcome.code} and gave no value{f': {last_line[0]:.300}' if last_line else ''}"
        )
    return answer["value"]
