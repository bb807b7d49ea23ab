"""The project file, and the code that it lets flows call."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from flowengine.errors import ProjectError
from flowengine.flowfile.loader import check_file
from flowengine.flowfile.project.project import Project, find_project, project_of
from flowengine.models.vendors import ProviderSettings, RateLimits


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        file = folder / name.replace("__", "/").replace("INIT", "__init__").replace("_dot_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


# --- the file


def test_the_table_of_the_nearest_pyproject_is_the_project_file(tmp_path: Path) -> None:
    write(
        tmp_path,
        pyproject_dot_toml="[project]\nname = 'x'\n[tool.flowengine]\nallow_calls = ['tools']\nallow_env = ['USER']\n"
        "pythonpath = ['src']\nstore = 'runs.db'\n[tool.flowengine.providers.openai]\nmax_parallel = 60\n",
        flows__deep__a_dot_yaml="",
        src__tools_dot_py="",
    )
    found = find_project(tmp_path / "flows" / "deep" / "a.yaml")
    assert (found.root, found.file) == (tmp_path, tmp_path / "pyproject.toml")
    assert (found.allow_calls, found.allow_env, found.store) == (("tools",), ("USER",), "runs.db")
    assert found.pythonpath == (tmp_path / "src",)
    assert found.providers == {"openai": ProviderSettings(limits=RateLimits(max_parallel=60))}


def test_a_pyproject_without_the_table_is_passed_over(tmp_path: Path) -> None:
    write(
        tmp_path,
        flowengine_dot_toml="allow_env = ['A']",
        inner__pyproject_dot_toml="[tool.other]\nx = 1\n",
    )
    assert find_project(tmp_path / "inner").allow_env == ("A",)


def test_without_a_project_file_the_flows_folder_is_the_root(tmp_path: Path) -> None:
    found = find_project(tmp_path / "flow.yaml")
    assert found == Project(tmp_path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("allow_cals = []", ":1:1: FE502 unknown key 'allow_cals'; did you mean 'allow_calls'?"),
        ("allow_calls = 'tools'", "FE502 'allow_calls' is a list of strings"),
        ("allow_env = [1]", "FE502 'allow_env' is a list of strings"),
        ("store = 3", "FE502 'store' is a string"),
        ("allow_unconfined_scripts = 'yes'", "FE502 'allow_unconfined_scripts' is true or false"),
        ("providers = []", "FE502 'providers' is a table"),
        ("pythonpath = ['../outside']", "FE503 '../outside' in `pythonpath` leaves the project's root"),
        ("pythonpath = ['\\u0000']".replace("'", '"'), "in `pythonpath` leaves the project's root"),
        ("mcp_servers.a.url = [[]]", "FE502 `mcp_servers.a`: MCP server 'a': `url` is a text"),
        ("mcp_servers.a = {command = 'x', args = 'y'}", "`args` is a list of texts"),
        ("mcp_servers.a = {url = 'https://a', headers_env = []}", "`headers_env` is a table of texts"),
        ("mcp_servers.a = {command = 'x', env = {a = 1}}", "`env` is a table of texts"),
        ("mcp_servers.a = {command = 'x', timeout = '3 weeks'}", "expected a duration such as 500ms, 30s, 10m or 2h"),
        ("mcp_servers.a = {command = 'x', timeout = true}", "`timeout` is a number of seconds"),
        ("notify.mail = {server = 'h', from = 'a@b.example', security = []}", "'security' is one of starttls"),
        ("= 3", "FE501 cannot read the project file"),
        ("x = " + "[" * 5000, "FE501 cannot read the project file"),
        (
            "store = 'runs.db'\nproviders.openai = {adapter = 0x" + "F" * 5000 + "}",
            ":2:1: FE502 'providers' holds a whole number of more than 4,096 bits",
        ),
        ("\nschedules = [{name = 0x" + "F" * 5000 + "}]", ":2:1: FE502 'schedules' holds a whole number of more"),
        ("store = 'a'\nallow_http = ['x']", ":2:1: FE502 'x' in `allow_http` is no beginning of an address"),
        (
            "[memory]\nstore = 'a.db'\nscopes = 'user'",
            ":3:1: FE502 `memory`: memory has no setting 'scopes'; did you mean",
        ),
        ("[memory]\nthreshold = 70", ":2:1: FE502 `memory`: 'threshold': Input should be"),
        ("allow_http = ['https://*.a.com/']", ":1:1: FE502 'https://*.a.com/' in `allow_http` is no beginning"),
        ("store = 'a'\npythonpath = ['..']", ":2:1: FE503 '..' in `pythonpath` leaves the project's root"),
        ("[files]\nmax_run = 1\nmax_file = 'x'", ":3:1: FE502 'max_file' of `files` is a size"),
        ("[files]\nmax_run = 1\nallow_urls = ['x']", ":3:1: FE502 'x' in 'allow_urls' of `files`"),
        ("[mcp_servers.b]\nurl = 'https://a'\n[mcp_servers.a]\ncommand = 3", ":3:2: FE502 `mcp_servers.a`: "),
        ("pythonpath = ['not_there']", "FE503 'not_there' in `pythonpath` is no folder"),
        ("allow_calls = ['lib.*']", "FE502 'lib.*' in `allow_calls` is no name of a module like shop.tools"),
        ("allow_calls = ['.lib']", "FE502 '.lib' in `allow_calls` is no name of a module"),
        ("allow_env = ['FOO_*']", "FE502 'FOO_*' in `allow_env` is no name of a variable; there are no patterns"),
        ("prices = {'' = {input = 1, output = 1}}", "FE502 '' in `prices` is no model as flows write it"),
        ("prices = {'OpenAI/gpt-4o' = {input = 1, output = 1}}", "did you mean 'openai/gpt-4o'?"),
        ("providers.openai.base_url = 'http://'", "'base_url' of provider 'openai' is an address like https://host"),
        ("approve_external = true\n[tool.flowengine]\nstore = 'a'", "FE502 outside of [tool.flowengine], 'approve_ext"),
        ("[[webhooks]]\npath = 'a'\nflow = 1", ":3:1: FE502 [[webhooks]] number 1: 'flow' is a string"),
    ],
)
def test_what_is_wrong_with_a_project_file_is_told(text: str, expected: str, tmp_path: Path) -> None:
    write(tmp_path, flowengine_dot_toml=text)
    with pytest.raises(ProjectError, match=r"flowengine\.toml") as caught:
        find_project(tmp_path)
    assert expected in str(caught.value)


def test_a_second_project_file_of_a_folder_is_told(tmp_path: Path) -> None:
    write(tmp_path, pyproject_dot_toml="[tool.flowengine]\n", flowengine_dot_toml="approve_external = true\n")
    with pytest.raises(ProjectError, match=r"flowengine.toml: FE502 flowengine.toml is not read, since pyproject.toml"):
        find_project(tmp_path)


def test_a_project_file_that_goes_away_while_it_is_read_is_told_of_by_what_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, flowengine_dot_toml="store = 'a'\nallow_cals = []")
    read = Path.read_text

    def read_and_remove(self: Path, encoding: str | None = None) -> str:
        text = read(self, encoding)
        self.unlink()
        return text

    monkeypatch.setattr(Path, "read_text", read_and_remove)
    _, [problem] = project_of(tmp_path)
    assert (problem.code, problem.line, problem.column) == ("FE502", 2, 1)


def test_a_folder_of_links_that_lead_to_each_other_is_no_place_for_modules(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    write(tmp_path, flowengine_dot_toml="pythonpath = ['one']")
    _, problems = project_of(tmp_path)
    assert [each.code for each in problems] == ["FE503"]


def test_a_server_of_the_project_takes_times_as_a_flow_writes_them(tmp_path: Path) -> None:
    write(tmp_path, flowengine_dot_toml="mcp_servers.a = {command = 'x', timeout = '2m', start_timeout = 5}")
    assert find_project(tmp_path).mcp_servers["a"] == {"command": "x", "timeout": 120.0, "start_timeout": 5}


def test_a_table_that_is_no_table(tmp_path: Path) -> None:
    write(tmp_path, pyproject_dot_toml="[tool]\nflowengine = 3\n")
    _, [problem] = project_of(tmp_path)
    assert problem.code == "FE502"


def test_all_problems_of_a_project_file_come_at_once(tmp_path: Path) -> None:
    write(tmp_path, flowengine_dot_toml="a = 1\nb = 2\nallow_env = ['X']")
    project, problems = project_of(tmp_path)
    assert len(problems) == 2
    assert project.allow_env == ("X",)


# --- paths


def test_a_path_stays_under_the_root(tmp_path: Path) -> None:
    project = Project(tmp_path / "root")
    (tmp_path / "root" / "flows").mkdir(parents=True)
    assert project.resolve("flows/a.yaml") == tmp_path / "root" / "flows" / "a.yaml"
    assert project.resolve("../a.yaml", tmp_path / "root" / "flows") == tmp_path / "root" / "a.yaml"
    for outside in ("../a.yaml", "/etc/passwd", "flows/../../a.yaml"):
        with pytest.raises(ProjectError, match="leaves the project's root"):
            project.resolve(outside)


def test_a_link_that_leads_out_leaves_the_root(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "link").symlink_to(tmp_path)
    with pytest.raises(ProjectError, match="leaves"):
        Project(tmp_path / "root").resolve("link/a.yaml")


# --- code, seen without running it


def problem(project: Project, target: str) -> str | None:
    found = project.problem_with(target)
    return None if found is None else f"{found.code} {found.message}{found.hint}"


def test_code_is_looked_at_and_not_run(tmp_path: Path) -> None:
    write(
        tmp_path,
        flowengine_dot_toml="allow_calls = ['tools', 'broken', 'open', 'pack', 'json', 'absent']",
        tools_dot_py="raise SystemExit\ndef search(): ...\nasync def find(): ...\nclass Answer: ...\n"
        "if True:\n    def inner(): ...\ntry:\n    import os.path\nexcept ImportError:\n    os = None\n"
        "alias, other = search, 1\n",
        broken_dot_py="def (",
        open_dot_py="from tools import *",
        pack__INIT_dot_py="",
        pack__mod_dot_py="def go(): ...",
    )
    project = find_project(tmp_path)
    for name in ("search", "find", "Answer", "inner", "alias", "other"):
        assert problem(project, f"tools:{name}") is None
    assert str(problem(project, "tools:os")).startswith("FE504 the module 'tools' only imports 'os', from 'os.path'")
    assert problem(project, "tools:serch") == "FE506 the module 'tools' defines no 'serch'; did you mean 'search'?"
    broken = "FE507 the module 'broken' cannot be imported: SyntaxError"
    assert str(problem(project, "broken:any")).startswith(broken)
    assert problem(project, "open:any") is None
    assert problem(project, "pack.mod:go") is None
    assert problem(project, "json:loads") is None
    assert str(problem(project, "toolz:x")).startswith("FE504 the module 'toolz' is not allowed; did you mean 'tools'?")
    assert str(problem(project, "toolsmith:x")).startswith("FE504")
    assert str(problem(project, "os:system")).startswith("FE504 the module 'os' is not allowed; list it in")
    assert str(problem(project, "absent:x")).startswith("FE505 there is no module 'absent' in")


def test_names_are_seen_wherever_a_module_binds_them(tmp_path: Path) -> None:
    write(
        tmp_path,
        tools_dot_py="""import sys
match sys.argv:
    case [one, *two]:
        def three(): ...
    case {"a": four, **five} | (str() as four, five):
        from json import loads
    case _:
        six = lambda own: own
for seven in [other for other in range(3) if (eight := other)]:
    with open("x") as nine:
        pass
""",
    )
    project = Project(tmp_path)
    for name in ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine"):
        assert problem(project, f"tools:{name}") is None
    assert str(problem(project, "tools:loads")).startswith("FE504 the module 'tools' only imports 'loads'")
    for name in ("own", "other"):
        assert str(problem(project, f"tools:{name}")).startswith("FE506")


def test_without_a_project_file_only_modules_in_the_flows_folder_may_be_called(tmp_path: Path) -> None:
    write(tmp_path, tools_dot_py="def f(): ...")
    project = Project(tmp_path)
    assert problem(project, "tools:f") is None
    assert str(problem(project, "tool:f")).endswith("did you mean 'tools'?")
    assert "without a project file only modules there may be called" in str(problem(project, "os:system"))


def test_a_flows_calls_guardrails_and_models_are_checked_where_they_stand(tmp_path: Path) -> None:
    write(
        tmp_path,
        tools_dot_py="def f(): ...",
        flow_dot_yaml="flowengine: v1\nname: a\nagents: {w: {guardrails: {input: ['tools:g']}}}\n"
        "defaults: {agent: {output: 'tools:Out'}}\nnodes:\n  a: {type: function, call: 'tools:h'}\n"
        "  b: {agent: w, prompt: x}\n  c: {agent: {output: 'tols:f'}, prompt: x}\n"
        "  d: {type: evaluation, target: t, call: 'tools:k'}\n",
    )
    lines = (tmp_path / "flow.yaml").read_text().splitlines()
    wrong = {
        "FE506 'tools:g'": 3,
        "FE506 'tools:Out'": 4,
        "FE506 'tools:h'": 6,
        "FE505 'tols:f'": 8,
        "FE506 'tools:k'": 9,
    }
    expected = [(each[:5], line, lines[line - 1].index(each[6:]) + 1) for each, line in wrong.items()]
    assert [(each.code, each.line, each.column) for each in check_file(tmp_path / "flow.yaml")] == expected


# --- code, imported


def test_a_function_is_imported_with_what_its_module_needs(tmp_path: Path) -> None:
    write(tmp_path, main_dot_py="import side\ndef go():\n    return side.VALUE", side_dot_py="VALUE = 42")
    assert Project(tmp_path).import_callable("main:go")() == 42
    assert "side" not in sys.modules
    assert str(tmp_path) not in sys.path


def test_equal_module_names_of_two_folders_stay_apart(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write(
            tmp_path / name,
            tools_dot_py=f"import side\ndef go(): return ({name!r}, side.NAME)",
            side_dot_py=f"NAME = {name!r}",
        )
    one, two = Project(tmp_path / "one"), Project(tmp_path / "two")
    assert one.import_callable("tools:go")() == ("one", "one")
    assert two.import_callable("tools:go")() == ("two", "two")
    assert one.import_callable("tools:go")() == ("one", "one")


def test_a_module_is_loaded_once(tmp_path: Path) -> None:
    write(tmp_path, tools_dot_py="class Answer: ...\ndef go(): return Answer")
    project = Project(tmp_path)
    assert project.import_callable("tools:go")() is project.import_object("tools:Answer")


def test_a_module_that_changed_is_loaded_again(tmp_path: Path) -> None:
    import os

    write(tmp_path, tools_dot_py="N = 1")
    project = Project(tmp_path)
    assert project.import_object("tools:N") == 1
    write(tmp_path, tools_dot_py="N = 2")
    os.utime(tmp_path / "tools.py", ns=(10**18, 10**18))
    assert project.import_object("tools:N") == 2


def test_packages_and_relative_imports_work(tmp_path: Path) -> None:
    write(
        tmp_path,
        pack__INIT_dot_py="BASE = 1",
        pack__deep__mod_dot_py="from ..near import X\nfrom pack import BASE\ndef go(): return X + BASE",
        pack__near_dot_py="X = 2",
    )
    assert Project(tmp_path).import_callable("pack.deep.mod:go")() == 3


def test_an_installed_module_is_imported_where_the_project_allows_it(tmp_path: Path) -> None:
    write(tmp_path, flowengine_dot_toml="allow_calls = ['json']")
    assert find_project(tmp_path).import_callable("json:loads")("1") == 1


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("tools:serch", "FE506 the module 'tools' defines no 'serch'; did you mean 'search'?"),
        ("tools:VERSION", "FE508 'tools:VERSION' is int, which cannot be called"),
        ("raises:x", "FE507 the module 'raises' cannot be imported: ZeroDivisionError: division by zero"),
        ("needs:x", "FE507 the module 'needs' cannot be imported: ModuleNotFoundError: No module named 'not_there'"),
        ("syntax:x", "FE507 the module 'syntax' cannot be imported: SyntaxError"),
        ("leaves:x", "FE507 the module 'leaves' cannot be imported: SystemExit: bye"),
        ("nothing:x", "FE505 there is no module 'nothing' in"),
    ],
)
def test_what_is_in_the_way_of_an_import_is_told(target: str, expected: str, tmp_path: Path) -> None:
    write(
        tmp_path,
        tools_dot_py="VERSION = 1\ndef search(): ...",
        raises_dot_py="1 / 0",
        leaves_dot_py="import goes",
        goes_dot_py="raise SystemExit('bye')",
        needs_dot_py="import not_there",
        syntax_dot_py="def (",
    )
    with pytest.raises(ProjectError) as caught:
        Project(tmp_path).import_callable(target)
    assert expected in str(caught.value)


def test_a_module_that_failed_is_tried_again(tmp_path: Path) -> None:
    write(tmp_path, tools_dot_py="1 / 0")
    project = Project(tmp_path)
    for _ in range(2):
        with pytest.raises(ProjectError, match="ZeroDivisionError"):
            project.import_object("tools:N")
    write(tmp_path, tools_dot_py="N = 5")
    assert project.import_object("tools:N") == 5
