"""Tests flows: scripted answers, cassettes, assertions, flowtest files, a pytest plugin.

from flowengine.testing.scripted_answers import scripted
from flowengine.testing.cassette import Cassette
from flowengine.testing.path import assert_path, assert_skipped
"""
