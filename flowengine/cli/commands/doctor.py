"""`flowengine doctor`: what a run would find here. It says that a key is set and never what it is."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final, NamedTuple

import anyio
import click

from flowengine.cli.environment import environment
from flowengine.cli.store import chosen_store, journals, keeps, store_option
from flowengine.cli.table import table
from flowengine.cli.terminal import Results
from flowengine.errors import FlowEngineError, ModelConfigError
from flowengine.extras import DISTRIBUTION, EXTRAS, install_hint, missing_modules
from flowengine.journal.address import without_password
from flowengine.llm.choosing import default_vendor
from flowengine.llm.detect import DefaultModel, choice_of, default_model
from flowengine.llm.dotenv import read_environment
from flowengine.llm.probing import Place, probe
from flowengine.llm.vendors import OTHERS, VENDORS, Vendor
from flowengine.spec.check_models import models_of
from flowengine.spec.loader import load_flow
from flowengine.spec.project import project_of
from flowengine.version import __version__

__all__ = ["command"]


class Finding(NamedTuple):
    """One line of the report."""

    topic: str
    text: str
    is_fine: bool = True
    """False where something that FlowEngine needs is missing."""
    fault: str = "MISSING"
    """What it is called where it is not fine."""


@click.command("doctor")
@click.argument("flows", metavar="[FLOW]...", nargs=-1)
@click.option("--probe", "is_probing", is_flag=True, help="Ask each vendor in use for one token or its list of models.")
@store_option
def command(flows: tuple[str, ...], is_probing: bool, store: str | None) -> int:
    """Say what is installed, which keys are set, whether `dot` is there and the store can be written.

    With --probe the default model, the models of the FLOW files, and every vendor whose key or address is set are
    asked; that costs one token each. Exit code 1 where something is missing that FlowEngine needs, or a vendor that
    was asked does not answer.
    """
    environ, project = _environment(), project_of(None)[0]
    models = list(dict.fromkeys(each.model for flow in flows for each in models_of(load_flow(flow))))
    findings = [
        Finding("flowengine", __version__),
        Finding("python", f"{platform.python_version()} ({sys.executable})"),
        *_packages(),
        *_extras(),
        _dot(),
        *_models(environ, project.default_provider),
        *(_probed(Place(environ, project.providers, project.default_provider), models) if is_probing else ()),
        _project(),
        _store(chosen_store(store)),
    ]
    results = Results()
    for line in table([["ok" if each.is_fine else each.fault, each.topic, each.text] for each in findings]):
        results.line(line)
    return 0 if all(each.is_fine for each in findings) else 1


def _environment() -> Mapping[str, str]:
    """As runs of the working folder's project see it."""
    project, _ = project_of(None)
    return read_environment(project.root, environment())


_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_UNDECLARED: Final = ("anyio", "click", "jinja2", "litellm", "networkx", "pydantic", "rich")
"""Looked for where FlowEngine itself is not installed but only on the path."""


def _packages() -> Iterator[Finding]:
    """What FlowEngine declares that it needs, with the versions that are here. Nothing is imported."""
    try:
        declared = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        declared = list(_UNDECLARED)
    for requirement in declared:
        name = _NAME.match(requirement)
        if name is None or "extra ==" in requirement:
            continue
        try:
            yield Finding(name[0], metadata.version(name[0]))
        except metadata.PackageNotFoundError:
            yield Finding(name[0], "is not installed", is_fine=False)


def _extras() -> Iterator[Finding]:
    """What was installed beside that; a flow or a command says if it needs more."""
    for extra in EXTRAS:
        missing = missing_modules(extra)
        lacks = f"not installed ({', '.join(missing)}): {install_hint(extra)}"
        yield Finding(f"extra {extra}", lacks if missing else "installed")


def _probed(place: Place, models: Sequence[str]) -> Iterator[Finding]:
    """What those in use answer; the stand-in is not asked."""
    chosen = default_model(place.environ).name
    asked = [each for each in dict.fromkeys([chosen, *models]) if each != "offline"]
    for answer in anyio.run(probe, place, asked):
        yield Finding(f"probe {answer.subject}", answer.text, answer.is_fine, "FAILED")


def _dot() -> Finding:
    """Graphviz is optional: pictures have a layout of their own without it."""
    found = shutil.which("dot")
    if found is None:
        return Finding("dot", "not found; pictures are laid out without Graphviz")
    try:
        asked = subprocess.run([found, "-V"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return Finding("dot", f"{found} does not run: {error}")
    return Finding("dot", f"{found} ({(asked.stderr or asked.stdout).strip()})")


def _models(environ: Mapping[str, str], default_provider: str | None) -> Iterator[Finding]:
    variables = [name for vendor in (*VENDORS.values(), *OTHERS.values()) for name in _variables(vendor)]
    known = [name for name in dict.fromkeys(variables) if environ.get(name)]
    yield Finding("keys and addresses", ", ".join(f"{name} is set" for name in known) or "none is set")
    chosen = default_model(environ)
    yield _default_model(chosen, environ, default_provider)
    default = default_vendor(environ, default_provider)
    others = (
        "names that no table knows are errors" if default is None else f"{default.provider}, since {default.because}"
    )
    yield Finding("other models", others)


def _default_model(chosen: DefaultModel, environ: Mapping[str, str], default_provider: str | None) -> Finding:
    try:
        choice = choice_of(chosen.name, environ=environ, default_provider=default_provider)
    except ModelConfigError as error:
        return Finding("default model", str(error), is_fine=False)
    if chosen.notice:
        return Finding("default model", f"{chosen.name} (a stand-in, no language model)")
    return Finding("default model", f"{chosen.name} (goes to {choice.provider}, since {choice.because})")


def _variables(vendor: Vendor) -> tuple[str, ...]:
    return (*vendor.key_variables, *vendor.base_variables)


def _project() -> Finding:
    project, problems = project_of(None)
    if problems:
        return Finding("project", "; ".join(str(each) for each in problems), is_fine=False)
    found = f"no project file; the root is {project.root}" if project.file is None else str(project.file)
    return Finding("project", found)


def _store(store: str) -> Finding:
    """Read what is there, and see whether it can be written; nothing is left behind."""
    try:
        with journals(store) as kept:
            count = len(kept.list())
    except FlowEngineError as error:
        return Finding("store", str(error), is_fine=False)
    file, shown = Path(store.removeprefix("sqlite:///")).expanduser(), without_password(store)
    refusal = _write_refusal(file) if keeps(store) and "://" not in store.removeprefix("sqlite://") else None
    if refusal is not None:
        return Finding("store", f"{shown} cannot be written: {refusal}", is_fine=False)
    return Finding("store", f"{shown} ({count} run{'s' * (count != 1)})")


def _write_refusal(file: Path) -> str | None:
    """Why the file, or a new one in the nearest folder that there is, cannot be written; None: it can."""
    folder = next(each for each in file.absolute().parents if each.is_dir())
    try:
        if file.exists():
            file.open("ab").close()
        with TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return f"{folder}: {error.strerror}"
