"""Settings of MCP servers, and what is given and hidden of the environment."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.agents.tools.mcp.server_settings import McpServer, header_values, process_environment, server_of
from flowengine.core.secret_values import Secrets
from flowengine.errors import DefinitionError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "a.b", "command": "x"}, "MCP server name 'a.b': use 1 to 32 of"),
        ({"name": "a" * 33, "command": "x"}, "use 1 to 32 of"),
        ({"name": "a"}, "MCP server 'a': give either `command`"),
        ({"name": "a", "command": "x", "url": "http://x"}, "give either `command`"),
        ({"name": "a", "url": "http://x", "args": ["y"]}, "`args` and `env` belong to a `command`"),
        ({"name": "a", "url": "http://x", "env": {"A": "b"}}, "`args` and `env` belong to a `command`"),
        ({"name": "a", "command": "x", "headers_env": {"A": "B"}}, "`headers_env` belongs to a `url`"),
        ({"name": "a", "url": "ftp://x"}, "`url` starts with http:// or https://"),
        ({"name": "a", "url": "http://x", "headers_env": {"A b": "B"}}, "'A b' in `headers_env` is no name"),
        ({"name": "a", "command": "x", "timeout": 0}, "`timeout` is 0; seconds above 0"),
        ({"name": "a", "command": "x", "start_timeout": -1}, "`start_timeout` is -1; seconds above 0"),
        ({"command": "x"}, "an MCP server needs a `name`"),
        ({"name": "a", "comand": "x"}, "no setting 'comand'; did you mean 'command'?"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        server_of(settings)
    assert message in str(caught.value)


def test_settings_do_not_show_their_secrets() -> None:
    local = McpServer(name="a", command="x", env={"KEY": "topsecret"})
    remote = McpServer(name="a", url="http://user:topsecret@host/?key=topsecret")
    assert "topsecret" not in repr(local) + repr(remote)


def test_a_process_gets_path_home_and_lang_and_what_it_is_given() -> None:
    environ = {"PATH": "/bin", "HOME": "/root", "LANG": "C", "OPENAI_API_KEY": "sk-1", "LD_PRELOAD": "x"}
    server = McpServer(name="a", command="x", env={"PATH": "/opt", "MODE": "fast"})
    assert process_environment(server, environ) == {"PATH": "/opt", "HOME": "/root", "LANG": "C", "MODE": "fast"}


def test_a_header_takes_its_value_from_the_environment() -> None:
    server = McpServer(name="a", url="http://x", headers_env={"Authorization": "TOKEN"})
    assert header_values(server, {"TOKEN": " Bearer abcdef\n"}) == {"Authorization": "Bearer abcdef"}


@pytest.mark.parametrize("value", ["", "  ", "Bearer topsecret\r\nHost: evil", "Bearer topsecret\u00e9"])
def test_an_unusable_header_value_is_an_error_that_names_the_variable_only(value: str) -> None:
    server = McpServer(name="a", url="http://x", headers_env={"Authorization": "TOKEN"})
    with pytest.raises(DefinitionError, match="TOKEN") as caught:
        header_values(server, {"TOKEN": value})
    assert "topsecret" not in str(caught.value)


def test_secrets_are_hidden_in_text_and_in_every_part_of_a_value() -> None:
    secrets = Secrets(["Bearer abc-def-123", "yes"])
    assert secrets.hide("got Bearer abc-def-123, or abc-def-123; yes") == "got [hidden], or [hidden]; yes"
    assert secrets.hide_in({"abc-def-123": ["abc-def-123", 1, None]}) == {"[hidden]": ["[hidden]", 1, None]}


def test_a_value_nested_without_end_is_hidden_at_some_depth() -> None:
    nested: Any = "abc-def-123"
    for _ in range(5_000):
        nested = [nested]
    assert "abc-def-123" not in str(Secrets(["abc-def-123"]).hide_in(nested))


def test_without_secrets_a_value_is_passed_on_as_it_is() -> None:
    value = {"a": [1]}
    assert Secrets([]).hide_in(value) is value
