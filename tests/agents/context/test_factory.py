from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from flowengine.agents.context import factory
from flowengine.agents.context.conversation import ConversationHistoryProvider
from flowengine.agents.context.custom_data import CustomDataProvider
from flowengine.agents.context.factory import GROUP, OURS, ContextProviderFactory
from flowengine.agents.context.provider import ContextProvider, MissingFileError, OutsideError, ParameterError
from flowengine.errors import DefinitionError
from tests.support.packages import installed_package

create = ContextProviderFactory.create_from_config


class Weather(ContextProvider):
    """Tells the weather."""

    def __init__(self, city: str, days: int = 1) -> None:
        if days > 9:
            raise ValueError("nobody knows")
        self.city = city
        self.days = days

    def get_context(self, query: str, previous_context: str | None = None, **kwargs: Any) -> str:
        return f"Rain in {self.city}"


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factory, "_registered", {})


def test_both_notations_make_the_same():
    made = ContextProviderFactory.create_from_yaml(
        """
        - conversation: {max_items: 5, include_system: true}
        - type: conversation_history
          max_items: 5
          include_system: true
        - conversation
        - conversation:
        """
    )
    found = [each for each in made if isinstance(each, ConversationHistoryProvider)]
    assert len(found) == len(made)
    assert [(each.max_items, each.include_system) for each in found] == [
        (5, True),
        (5, True),
        (10, False),
        (10, False),
    ]


def test_a_single_entry_needs_no_list():
    assert len(create({"conversation": {}})) == 1
    assert len(create("conversation")) == 1


@pytest.mark.parametrize(
    ("config", "problem"),
    cast(
        "list[tuple[Any, str]]",
        [
            ([{"conversaton": {}}], "there is no context provider 'conversaton'; did you mean 'conversation'?"),
            ([{"type": "zebra"}], "there is no context provider 'zebra'; there are conversation, "),
            (
                [{"conversation": {"max_itms": 5}}],
                "context provider 'conversation' has no parameter 'max_itms'; did you mean 'max_items'?",
            ),
            (
                [{"conversation": {"max_items": "many"}}],
                "context provider 'conversation': 'max_items' must be integer, found str 'many'",
            ),
            ([{"conversation": {"max_items": True}}], "must be integer, found bool True"),
            (
                [{"conversation": {"max_items": -1}}],
                "context provider 'conversation': max_items must be 0 or more, not -1",
            ),
            (
                [{"custom_data": {"data_source": "shop"}}],
                "'data_source' must be object or module:name, found str 'shop'",
            ),
            ([{"fixed_file": {}}], "context provider 'fixed_file' needs 'file_path': The file, UTF-8"),
            (
                [{"conversation": [1]}],
                "the parameters of context provider 'conversation' must be a mapping, not list [1]",
            ),
            ([{"conversation": None, "max_items": 5}], "here are the keys 'conversation', 'max_items'"),
            ([{"type": 3}], "the type of a context provider is its name, not int 3"),
            ([{}], "a context provider is configured by {name: {parameter: value}}"),
            ([7], "not by int 7"),
            (7, "context providers are configured by a list of entries, not int 7"),
        ],
    ),
)
def test_bad_configuration_is_an_error_that_names_it(config: Any, problem: str):
    with pytest.raises(DefinitionError) as raised:
        create(config)
    assert problem in str(raised.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("- conversation: {max_items: 5", "is not YAML, line 1, column 30"),
        ("- conversation: {max_items: 5, max_items: 6}", "the key 'max_items' is there twice"),
        ("- conversation: !!python/object:os.system {}", "could not determine a constructor for the tag"),
        ("", "a list of entries, not None"),
        ("- a\n\t- b", "is not YAML, line 2"),
        ("[" * 1500, "is not YAML"),
        ("x" * 200_000, "has more than 100,000 characters"),
    ],
)
def test_bad_yaml_is_an_error_that_says_where(text: str, problem: str):
    with pytest.raises(DefinitionError) as raised:
        ContextProviderFactory.create_from_yaml(text)
    assert problem in str(raised.value)


@pytest.mark.parametrize(("text", "found"), [(None, "None"), (Path("providers.yaml"), "PosixPath")])
def test_a_configuration_that_is_no_text_and_a_root_that_is_no_path_are_refused(text: Any, found: str):
    with pytest.raises(DefinitionError, match=f"text must be a text, not {found}"):
        ContextProviderFactory.create_from_yaml(text)
    root: Any = "."
    with pytest.raises(DefinitionError, match=r"root must be a Path or None, not str '\.'"):
        create("conversation", root=root)


def test_code_that_cannot_be_loaded_is_told_with_its_provider_and_parameter():
    with pytest.raises(DefinitionError, match=r"^context provider 'custom_data': 'data_source': 'nowhere:f' cannot be"):
        create({"custom_data": {"data_source": "nowhere:f"}})


def test_a_name_to_register_is_text():
    name: Any = None
    with pytest.raises(DefinitionError, match="a context provider's name is text, not NoneType"):
        ContextProviderFactory.register_provider(name, Weather)


def test_a_users_class_is_found_under_the_name_it_was_registered_with():
    ContextProviderFactory.register_provider("weather", Weather)
    (made,) = create([{"weather": {"city": "Kyoto"}}])
    assert isinstance(made, Weather)
    assert (made.provider_name, made.city, made.days) == ("weather", "Kyoto", 1)
    assert ContextProviderFactory.get_available_providers()["weather"]["description"] == "Tells the weather."


def test_what_a_users_class_refuses_is_told_with_its_name():
    ContextProviderFactory.register_provider("weather", Weather)
    with pytest.raises(ParameterError, match="context provider 'weather' cannot be made: ValueError: nobody knows"):
        create([{"weather": {"city": "Kyoto", "days": 10}}])


def test_only_providers_are_registered_and_none_in_the_place_of_ours():
    with pytest.raises(DefinitionError, match="'x' must be a subclass of ContextProvider"):
        ContextProviderFactory.register_provider("x", cast(Any, dict))
    with pytest.raises(DefinitionError, match="'filter' is a context provider of FlowEngine's own"):
        ContextProviderFactory.register_provider("filter", Weather)


_PACKAGE = """
    from flowengine import ContextProvider

    class Tides(ContextProvider):
        def __init__(self, port: str) -> None:
            self.port = port

        def get_context(self, query, previous_context=None, **kwargs):
            return f"High water in {self.port}"
"""


def test_providers_of_installed_packages_are_found_by_their_entry_points(tmp_path: Path):
    points = {"tides": "a_harbour:Tides"}
    with installed_package(tmp_path, "a_harbour", _PACKAGE, {GROUP: points}):
        assert "tides" in ContextProviderFactory.get_available_providers()
        assert create([{"tides": {"port": "Brest"}}])[0].get_context("") == "High water in Brest"
        with pytest.raises(ParameterError, match="did you mean 'tides'"):
            create([{"tide": {"port": "Brest"}}])


def test_a_package_whose_provider_cannot_be_loaded_is_named(tmp_path: Path):
    points = {"gone": "a_harbour:Gone"}
    with (
        installed_package(tmp_path, "a_harbour", _PACKAGE, {GROUP: points}),
        pytest.raises(DefinitionError, match="provider 'gone' of the package 'a_harbour' cannot be loaded: Attr"),
    ):
        create([{"gone": {}}])


def test_every_provider_that_is_ours_describes_itself():
    schemas = ContextProviderFactory.get_available_providers()
    assert set(OURS) <= set(schemas)
    for name in OURS:
        schema = schemas[name]
        assert schema["description"]
        for parameter in schema["parameters"].values():
            assert set(parameter) == {"type", "default", "required", "description"}
            assert parameter["description"]
        assert f"- {name}:" in schema["example"]


def test_paths_are_below_the_root_that_is_given(tmp_path: Path):
    (tmp_path / "a.md").write_text("Text")
    create([{"fixed_file": {"file_path": "a.md"}}], root=tmp_path)
    with pytest.raises(OutsideError) as outside:
        create([{"fixed_file": {"file_path": "../b.md"}}], root=tmp_path)
    assert outside.value.parameter == "file_path"
    with pytest.raises(MissingFileError, match=r"context provider 'fixed_file': the file .*b\.md' cannot be read"):
        create([{"fixed_file": {"file_path": "b.md"}}], root=tmp_path)


def test_code_is_loaded_by_whoever_may_say_what_is_allowed():
    def load(target: str) -> Any:
        assert target == "shop:stock"
        return {"tea": 12}

    (made,) = create([{"custom_data": {"data_source": "shop:stock"}}], load=load)
    assert isinstance(made, CustomDataProvider)
    assert made.data_source == {"tea": 12}
    with pytest.raises(DefinitionError, match="'no_such_module:stock' cannot be loaded: ModuleNotFoundError"):
        create([{"custom_data": {"data_source": "no_such_module:stock"}}])


def test_one_provider_does_not_load_the_others():
    code = (
        "import sys; from flowengine.agents.context.factory import ContextProviderFactory as f;"
        "f.create_from_yaml('- conversation'); "
        "print([m for m in sys.modules if m.startswith('flowengine.agents.')])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "context.conversation" in shown
    assert "fixed_file" not in shown
    assert "retrieval" not in shown


def test_a_schema_that_cannot_be_had_hides_no_other():
    class Broken(ContextProvider):
        provider_name = "broken"

        @classmethod
        def get_config_schema(cls) -> dict[str, Any]:
            raise KeyError("title")

    ContextProviderFactory.register_provider("broken", Broken)
    schemas = ContextProviderFactory.get_available_providers()
    assert schemas["broken"]["description"] == "'title'"
    assert "max_items" in schemas["conversation"]["parameters"]
    with pytest.raises(ParameterError, match="context provider 'broken' cannot be made: KeyError: 'title'"):
        create("broken")


def test_a_heir_of_ours_with_a_constructor_of_its_own_is_described_like_ours():
    class Quiet(ConversationHistoryProvider):
        def __init__(self, **config: Any) -> None:
            super().__init__(**config)

    ContextProviderFactory.register_provider("quiet", Quiet)
    (made,) = create([{"quiet": {"max_items": 3}}])
    assert isinstance(made, Quiet)
    assert made.max_items == 3
