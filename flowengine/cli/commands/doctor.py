"""`flowengine doctor` reports what a run would find on this machine.

It says that a key is set, never what it is. It imports no package that it reports on, and leaves nothing in the store.
"""

from __future__ import annotations

import os
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

from flowengine.agents.skills.sandbox import verdict
from flowengine.cli.options import choose_store, keeps, open_journal, store_option
from flowengine.cli.terminal import Results, format_table
from flowengine.core import package_of
from flowengine.errors import DefinitionError, FlowEngineError, ModelConfigError, did_you_mean
from flowengine.flowfile import load_flow
from flowengine.flowfile.checks import list_reach, models_of
from flowengine.flowfile.project import Project, project_of
from flowengine.flowfile.schema import FlowSpec
from flowengine.journal import without_password
from flowengine.models import (
    OTHERS,
    VENDORS,
    DefaultModel,
    ProbePlace,
    ProviderSettings,
    default_model,
    default_vendor,
    dotenv_name,
    find_dotenv,
    find_key_source,
    find_meaning,
    is_planted,
    is_stand_in,
    load_environment,
    packaged_vendors,
    probe,
    read_environment,
    served_natively,
)
from flowengine.version import DISTRIBUTION, EXTRAS, __version__, install_hint, missing_modules


class DoctorFinding(NamedTuple):
    """One line of the report."""

    topic: str
    text: str
    is_fine: bool = True
    """False where something that FlowEngine needs is missing."""
    fault: str = "MISSING"
    """The word printed in front when `is_fine` is false."""
    is_there: bool = True
    """False where something is absent that not everybody needs."""

    @property
    def mark(self) -> str:
        if not self.is_fine:
            return self.fault
        return "ok" if self.is_there else "-"


@click.command("doctor")
@click.argument("flows", metavar="[FLOW]...", nargs=-1)
@click.option("--probe", "is_probing", is_flag=True, help="Ask each vendor in use for one token or its list of models.")
@store_option
def command(flows: tuple[str, ...], is_probing: bool, store: str | None) -> int:
    """Say what is installed, which keys are set, whether `dot` is there and the store can be written.

    Of each FLOW file it says what that may start, ask and run: servers, addresses, functions, code. A line begins with
    `ok`, with `-` for what is absent and not needed by everybody, or with MISSING.

    With --probe the default model, the models of the FLOW files, and every vendor whose key or address is set are
    asked; that costs one token each. Exit code 1 where something is missing that FlowEngine needs, or a vendor that
    was asked does not answer.
    """
    project = project_of(None)[0]
    environ = read_environment(project.root, load_environment())
    specs = [load_flow(flow) for flow in flows]
    models = list(dict.fromkeys(each.model for spec in specs for each in models_of(spec)))
    findings = [
        DoctorFinding("flowengine", __version__),
        DoctorFinding("python", f"{platform.python_version()} ({sys.executable})"),
        *_check_packages(),
        *_check_extras(),
        _check_dot(),
        _check_sandbox(),
        _check_dotenv(project.root),
        *_check_models(environ, project),
        *_check_vendors(project.providers),
        *(_probe_models(environ, project, models) if is_probing else ()),
        _check_project(),
        *_check_notify(environ, project),
        *(finding for flow, spec in zip(flows, specs, strict=True) for finding in _list_reach(flow, spec)),
        _check_store(choose_store(store)),
    ]
    results = Results()
    results.lines(format_table([[each.mark, each.topic, each.text] for each in findings]))
    return 0 if all(each.is_fine for each in findings) else 1


_PACKAGE_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_UNDECLARED: Final = ("anyio", "click", "jinja2", "litellm", "networkx", "pydantic", "rich")
"""Looked for where FlowEngine itself is not installed but only on the path."""


def _check_packages() -> Iterator[DoctorFinding]:
    """Checks the packages that FlowEngine requires, with their installed versions, without importing them."""
    try:
        declared = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        declared = list(_UNDECLARED)
    for requirement in declared:
        name = _PACKAGE_NAME.match(requirement)
        if name is None or "extra ==" in requirement:
            continue
        try:
            yield DoctorFinding(name[0], metadata.version(name[0]))
        except metadata.PackageNotFoundError:
            yield DoctorFinding(name[0], "is not installed", is_fine=False)


def _check_extras() -> Iterator[DoctorFinding]:
    """Lists installed extras. Flows and commands report missing ones themselves."""
    for extra in EXTRAS:
        missing = missing_modules(extra)
        lacks = f"not installed ({', '.join(missing)}): {install_hint(extra)}"
        yield DoctorFinding(f"extra {extra}", lacks if missing else "installed", is_there=not missing)


def _probe_models(environ: Mapping[str, str], project: Project, models: Sequence[str]) -> Iterator[DoctorFinding]:
    """Sends a request to each model in use, except the stand-in."""
    place = ProbePlace(environ, project.providers, project.default_provider, project.models)
    default = default_model(environ).name
    names = [each for each in dict.fromkeys([default, *models]) if not is_stand_in(each)]
    for answer in anyio.run(probe, place, names):
        yield DoctorFinding(f"probe {answer.subject}", answer.text, answer.is_fine, "FAILED")


def _check_dot() -> DoctorFinding:
    """Graphviz's program is optional: our pictures have a layout of their own, and the extra `png` draws PNG."""
    dot = shutil.which("dot")
    if dot is None:
        lacks = "not found; it draws PNG where the extra png is missing, and what `flow.graphviz()` renders"
        return DoctorFinding("dot", lacks, is_there=False)
    try:
        version = subprocess.run([dot, "-V"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return DoctorFinding("dot", f"{dot} does not run: {error}", is_there=False)
    return DoctorFinding(
        "dot", f"{dot} ({(version.stderr or version.stdout).strip()})", is_there=not version.returncode
    )


def _list_reach(flow: str, spec: FlowSpec) -> Iterator[DoctorFinding]:
    """Lists what a flow may start, call and execute."""
    reach = list_reach(spec, project_of(Path(flow))[0])
    for each in reach:
        yield DoctorFinding(flow, f"{each.kind} {each.what}")
    if not reach:
        yield DoctorFinding(flow, "starts nothing, and calls only models")


def _check_sandbox() -> DoctorFinding:
    """Scripts of skills and code of flows run in it."""
    sandbox = verdict(project_of(None)[0].root)
    text = "holds" if sandbox.holds else f"none ({sandbox.reason}); flows with code are refused"
    return DoctorFinding("sandbox", text, is_there=sandbox.holds)


def _check_dotenv(root: Path) -> DoctorFinding:
    """Names the file that holds variables for the project, or the one that may be meant where there is none."""
    name = dotenv_name(os.environ)
    if (file := find_dotenv(root, os.environ)) is not None:
        planted = is_planted(file)
        there = "is not read, since others may write here" if planted else "is read"
        return DoctorFinding("variables' file", f"{name} {there}", is_there=not planted)
    others = [each.name for form in (".env", ".env.*") for each in root.glob(form) if each.is_file()]
    return DoctorFinding("variables' file", f"there is no {name}{did_you_mean(name, others)}", is_there=False)


def _check_models(environ: Mapping[str, str], project: Project) -> Iterator[DoctorFinding]:
    vendors = (*VENDORS.values(), *OTHERS.values())
    variables = [name for vendor in vendors for name in (*vendor.key_variables, *vendor.base_variables)]
    keys = [name for name in dict.fromkeys(variables) if environ.get(name)]
    yield DoctorFinding(
        "keys and addresses", ", ".join(f"{name} is set" for name in keys) or "none is set", is_there=bool(keys)
    )
    if packaged := packaged_vendors():
        packages = ", ".join(f"{name} ({package_of(point)})" for name, point in packaged.items())
        yield DoctorFinding("models of packages", packages)
    default_choice = default_model(environ)
    yield _check_default_model(default_choice, environ, project)
    yield from (_check_named_model(name, environ, project) for name in project.models)
    default = default_vendor(environ, project.default_provider)
    others = (
        "names that no table knows are errors" if default is None else f"{default.provider}, since {default.because}"
    )
    yield DoctorFinding("other models", others)


def _check_named_model(name: str, environ: Mapping[str, str], project: Project) -> DoctorFinding:
    """A name of the project's own: whose model it is, and where its key comes from."""
    try:
        choice, own, _ = find_meaning(name, project.models, environ, project.default_provider)
    except ModelConfigError as error:
        return DoctorFinding(f"model {name}", str(error), is_fine=False)
    key = find_key_source(choice.provider, environ, own, project.providers.get(choice.provider))
    endings = {
        "none": "",
        "elsewhere": "",
        "command": f"; its key comes from the command '{key.name}'",
        "variable": f"; its key is in {key.name}, which is {'set' if key.is_set else 'not set'}",
    }
    return DoctorFinding(f"model {name}", f"{choice.provider}/{choice.name}{endings[key.kind]}")


def _check_vendors(providers: Mapping[str, ProviderSettings]) -> Iterator[DoctorFinding]:
    """Lists which client serves each vendor."""
    adapters = {name: settings.adapter for name, settings in providers.items()}
    names = [vendor.name for vendor in (*VENDORS.values(), *OTHERS.values()) if not vendor.is_stand_in]
    native = [name for name in names if served_natively(name, adapters.get(name))]
    moved = [name for name in names if name not in native and served_natively(name)]
    note = f"; of these {', '.join(moved)} since the project file says so" if moved else ""
    yield DoctorFinding("asked over HTTP", ", ".join(native))
    yield DoctorFinding("asked through litellm", f"{', '.join(name for name in names if name not in native)}{note}")


def _check_default_model(default: DefaultModel, environ: Mapping[str, str], project: Project) -> DoctorFinding:
    try:
        choice = find_meaning(default.name, project.models, environ, project.default_provider).choice
    except ModelConfigError as error:
        return DoctorFinding("default model", str(error), is_fine=False)
    if default.notice:
        return DoctorFinding("default model", f"{default.name} (a stand-in, no language model)", is_there=False)
    return DoctorFinding("default model", f"{default.name} (goes to {choice.provider}, since {choice.because})")


def _check_project() -> DoctorFinding:
    project, problems = project_of(None)
    if problems:
        return DoctorFinding("project", "; ".join(str(each) for each in problems), is_fine=False)
    text = f"no project file; the root is {project.root}" if project.file is None else str(project.file)
    return DoctorFinding("project", text)


def _check_notify(environ: Mapping[str, str], project: Project) -> Iterator[DoctorFinding]:
    """Checks the notification settings of the project."""
    if project.notify is None:
        return
    from flowengine.nodes.notify import find_signer  # Few projects tell anybody.

    channels = ", ".join(f"{name} ({each.type})" for name, each in project.notify.channels.items()) or "no channel"
    try:
        find_signer(environ)
    except DefinitionError as error:
        yield DoctorFinding("notify", str(error), is_fine=False)
    else:
        yield DoctorFinding("notify", f"{channels}; links lead to {project.notify.url}")
    for name in project.notify.variables:
        if not environ.get(name):
            yield DoctorFinding("notify", f"the environment variable {name} is not set", is_fine=False)


def _check_store(store: str) -> DoctorFinding:
    """Read what is there, and see whether it can be written; nothing is left behind."""
    try:
        with open_journal(store) as journal:
            count = len(journal.list())
    except FlowEngineError as error:
        return DoctorFinding("store", str(error), is_fine=False)
    file, address = Path(store.removeprefix("sqlite:///")).expanduser(), without_password(store)
    refusal = _find_write_refusal(file) if keeps(store) and "://" not in store.removeprefix("sqlite://") else None
    if refusal is not None:
        return DoctorFinding("store", f"{address} cannot be written: {refusal}", is_fine=False)
    return DoctorFinding("store", f"{address} ({count} run{'s' * (count != 1)})")


def _find_write_refusal(file: Path) -> str | None:
    """Explains why the file, or a new file in the nearest existing folder, cannot be written; None if it can."""
    folder = next(each for each in file.absolute().parents if each.is_dir())
    try:
        if file.exists():
            file.open("ab").close()
        with TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return f"{folder}: {error.strerror}"
