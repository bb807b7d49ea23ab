"""Vendors that installed packages bring."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import flowengine
from flowengine.errors import ModelConfigError
from flowengine.models.messages import Message
from flowengine.models.model import Request
from flowengine.models.open import get_embedding, get_llm
from flowengine.models.vendor_choice import known_provider
from flowengine.models.vendors import OTHERS, VENDORS, RateLimits, Vendor
from flowengine.models.worst_case import ModelFacts
from flowengine.models.wrappers.rate import RateLimitedModel
from tests.support.packages import installed_package
from tests.support.vendor_names import detect

_PARROT = """
    from flowengine.models.scripted import ScriptedModel

    made = []

    def parrot(name, settings, environ):
        made.append((name, settings.base_url, environ.get("PARROT_KEY")))
        if name == "mute":
            raise ValueError("this one never spoke")
        return ScriptedModel([f"{name} says hello"], name=name, provider="parrot")

    def hollow(name, settings, environ):
        return object()
"""


@pytest.fixture(autouse=True)
def package(tmp_path: Path) -> Iterator[None]:
    points = {"parrot": "a_parrot:parrot", "hollow": "a_parrot:hollow", "gone": "a_parrot:gone", "openai": "a_parrot:x"}
    with installed_package(tmp_path, "a_parrot", _PARROT, {"flowengine.models": points}):
        yield


@pytest.mark.anyio
async def test_the_model_of_a_package_answers_with_what_the_project_says_of_its_vendor() -> None:
    model = get_llm("parrot/grey", environ={"PARROT_KEY": "k"}, api_base="http://cage", limits=RateLimits(60))
    reply = await model.complete(Request(model.name, (Message("user", "Hi"),)))
    assert (model.provider, reply.content) == ("parrot", "grey says hello")
    assert sys.modules["a_parrot"].made == [("grey", "http://cage", "k")]


def test_its_vendor_has_the_limits_that_the_project_gives() -> None:
    model = get_llm("parrot/grey", environ={}, limits=RateLimits(60), max_retries=0)
    assert isinstance(model, RateLimitedModel)


def test_its_vendor_is_known_without_an_import_and_without_a_key() -> None:
    assert detect("parrot/grey", environ={}) == ("parrot", "grey")
    assert detect("grey", "parrot", environ={}) == ("parrot", "grey")
    assert detect("grey", default_provider="parrot") == ("parrot", "grey")
    assert str(ModelFacts({}).of("parrot/grey")) == "parrot/grey"
    assert ModelFacts({}).of("parrot/grey").price(100) is None
    assert "a_parrot" not in sys.modules


def test_a_package_takes_none_of_our_vendors() -> None:
    get_llm("openai/gpt-4o", environ={"OPENAI_API_KEY": "k"})
    assert "a_parrot" not in sys.modules


def test_the_nearest_name_may_be_that_of_a_package() -> None:
    with pytest.raises(ModelConfigError, match="did you mean 'parrot'"):
        detect("parot/grey", environ={})
    with pytest.raises(ModelConfigError, match=r"did you mean 'parrot'\?; known are .*, parrot"):
        known_provider("parot")


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("gone/x", "the model vendor 'gone' of the package 'a_parrot' cannot be loaded: AttributeError"),
        (
            "hollow/x",
            "the package 'a_parrot' gives no model for 'hollow/x': object has no name, provider, complete, str",
        ),
        ("parrot/mute", "model 'mute' of parrot cannot be made by the package 'a_parrot': ValueError: this one never"),
    ],
)
def test_a_package_whose_model_cannot_be_had_is_named(model: str, said: str) -> None:
    with pytest.raises(ModelConfigError) as caught:
        get_llm(model, environ={})
    assert said in str(caught.value)


def test_what_nobody_would_read_is_refused() -> None:
    with pytest.raises(ModelConfigError, match="'api_version' does not go with parrot, a vendor of 'a_parrot'"):
        get_llm("parrot/grey", environ={}, api_version="1")
    with pytest.raises(ModelConfigError, match="no vectors can be made with parrot"):
        get_embedding("parrot/grey", environ={})


def test_only_the_folder_of_the_stand_in_and_its_entry_compare_with_its_name() -> None:
    root = Path(flowengine.__file__).parent
    comparing = re.compile(r"[!=]= \"offline\"")
    found = [path for path in root.rglob("*.py") if comparing.search(path.read_text("utf-8"))]
    assert found == []


@pytest.mark.parametrize("vendor", [*VENDORS.values(), *OTHERS.values()], ids=lambda each: each.name)
def test_the_backend_of_each_vendor_of_ours_makes_a_model(vendor: Vendor) -> None:
    module, _, function = vendor.backend.partition(":")
    made = getattr(import_module(module), function)(vendor, "m", {})
    assert made.provider == vendor.name
