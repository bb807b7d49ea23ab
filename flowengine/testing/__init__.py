"""Tests flows: scripted answers, cassettes, assertions, flowtest files, a pytest plugin.

    from flowengine.testing.scripted_answers import scripted
    from flowengine.testing.path import assert_path, assert_skipped

Begin with `flowtest` for the files, with `cassette` for recorded answers.
"""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
