"""Recognizers by name, and Presidio as one of them."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flowengine.core.masking import masker as registry
from flowengine.core.masking.masker import Masker, PresidioRecognizer
from flowengine.core.masking.patterns import Pattern
from flowengine.errors import DefinitionError
from tests.support.packages import installed_package


def test_the_default_is_everything_that_is_built_in() -> None:
    assert registry.recognizers(list(registry.BUILT_IN)) == registry.DEFAULT


def test_a_registered_recognizer_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_made", {})
    registry.register("employee", lambda: Pattern("EMPLOYEE", re.compile("E-[0-9]{5}")))
    assert Masker(registry.recognizers(["employee"])).mask("社員E-00123です").startswith("社員<EMPLOYEE:")
    assert Masker().mask("社員E-00123です").startswith("社員<EMPLOYEE:")
    assert "employee" in registry.list_recognizers()
    with pytest.raises(DefinitionError, match="named 'employee' already"):
        registry.register("employee", lambda: Pattern("X", re.compile("x")))


def test_an_unknown_recognizer_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(DefinitionError, match="no recognizer 'phones'; did you mean 'phone'"):
        registry.recognizers(["phones"])


class Analyzer:
    """What a Presidio engine is asked, and one answer of its shape."""

    def analyze(self, **asked: Any) -> list[Any]:
        self.asked = asked
        at = asked["text"].find("Ada")
        return [SimpleNamespace(start=at, end=at + 3, entity_type="PERSON", score=0.9)]


def test_presidio_is_asked_for_texts_of_its_language() -> None:
    analyzer = Analyzer()
    masker = Masker([PresidioRecognizer("en", ["PERSON"], 0.6, analyzer)], key=b"tests")
    assert re.fullmatch("Hello <PERSON:[a-p]{8}>!", masker.mask("Hello Ada!"))
    assert analyzer.asked == {"text": "Hello Ada!", "language": "en", "entities": ["PERSON"], "score_threshold": 0.6}


def test_presidio_that_is_not_installed_is_told_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "presidio_analyzer", None)
    (presidio,) = registry.recognizers(["presidio"])
    with pytest.raises(DefinitionError, match="pip install presidio-analyzer"):
        list(presidio.find("Ada"))


def test_a_threshold_is_between_0_and_1() -> None:
    with pytest.raises(DefinitionError, match=r"between 0\.0 and 1\.0"):
        PresidioRecognizer(threshold=60)
    with pytest.raises(DefinitionError, match=r"between 0\.0 and 1\.0"):
        PresidioRecognizer(threshold=1.01)
    PresidioRecognizer(threshold=0.0)
    PresidioRecognizer(threshold=1.0)


def test_a_package_brings_a_recognizer_and_one_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    code = """
        class Nothing:
            def find(self, text):
                return ()
    """
    points = {"nothing": "a_mask:Nothing", "gone": "a_mask:Gone"}
    with installed_package(tmp_path, "a_mask", code, {"flowengine.masking": points}):
        assert "nothing" in registry.list_recognizers()
        assert type(registry.recognizers(["nothing"])[0]).__name__ == "Nothing"
        with pytest.raises(DefinitionError, match="recognizer 'gone' of the package 'a_mask' cannot be loaded: Attr"):
            registry.recognizers(["gone"])
