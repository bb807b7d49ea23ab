"""The flow that a run belongs to, loaded again for whoever goes on with it."""

from __future__ import annotations

import os
from typing import Any

from flowengine.cli.environment import environment
from flowengine.cli.terminal import complain
from flowengine.engine.events import RunStarted
from flowengine.errors import DefinitionError
from flowengine.flow import Flow
from flowengine.spec.carried import place_of

__all__ = ["flow_of"]


def flow_of(started: RunStarted, file: str | None, model: Any) -> Flow:
    """From the file that is named, else from the run's own file, else from the text that the run keeps."""
    if file is not None:
        return Flow.from_yaml(file, model=model, environ=environment())
    if started.path is None:
        raise DefinitionError(
            f"run {started.run_id} was started from a flow built in Python: resume it with Flow.resume(), "
            f"or name a flow file with --flow"
        )
    path = _where(started.path, str(started.settings.get("folder", "")))
    if os.path.isfile(path):
        return Flow.from_yaml(path, model=model, environ=environment())
    if started.source is None:
        raise DefinitionError(f"the flow file '{path}' of run {started.run_id} is gone: name it with --flow FILE")
    complain(f"notice: '{path}' is gone; the run goes on with the text that it was started with")
    place = place_of(started.path, str(started.settings.get("folder", "")))
    return Flow.from_text(started.source, place, model=model, environ=environment())


def _where(path: str, folder: str) -> str:
    """The flow's path as seen from here: it was given in the folder where the run was started."""
    return path if not folder or folder == os.getcwd() else os.path.join(folder, path)
