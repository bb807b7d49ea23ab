"""Checks of `with` against the function that `call` names, whose parameters are read from its file and never run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.spec.code_names import code_name
from flowengine.spec.defined import Parameters, parameters_in
from flowengine.spec.gaps import gaps_of
from flowengine.spec.levels import key_path, nodes_of
from flowengine.spec.schema_nodes import FunctionNodeSpec

if TYPE_CHECKING:
    from flowengine.spec.positions import KeyPath
    from flowengine.spec.project import Project
    from flowengine.spec.report import Report
    from flowengine.spec.schema import FlowSpec

__all__ = ["check_calls"]


def check_calls(spec: FlowSpec, project: Project, report: Report) -> None:
    """Each argument that a function needs and is not given, or is given and does not take."""
    unknown = gaps_of(spec).arguments
    for path, node in nodes_of(spec):
        if report.is_enough:
            return
        if isinstance(node, FunctionNodeSpec) and project.problem_with(node.call) is None:
            said = code_name(node.call)
            file = None if said is None else project.module_file(said.module)
            taken = None if said is None or file is None else parameters_in(file, said.name)
            if taken is not None and path not in unknown:
                _check_arguments(node, taken, key_path(path), report)


def _check_arguments(node: FunctionNodeSpec, taken: Parameters, path: KeyPath, report: Report) -> None:
    if not node.with_:  # Such a function is given the context, where it takes anything.
        missing = taken.required if len(taken.required) > 1 or taken.by_name_only else ()
    else:
        missing = tuple(name for name in taken.required if name not in node.with_ and name != "context")
    misspelt = {report.nearest.of(name, taken.known) for name in node.with_ if name not in taken.known}
    missing = [name for name in missing if taken.takes_any or name not in misspelt]
    if missing:
        names = ", ".join(f"'{name}'" for name in missing)
        report.at_value("FE512", f"the function needs {names}: give it in 'with'", (*path, "call"))
    if taken.takes_any:
        return
    for name in node.with_:
        if name not in taken.known:
            text = f"the function takes no argument '{name}'"
            report.at_key("FE512", text, (*path, "with", name), report.nearest(name, taken.known))
