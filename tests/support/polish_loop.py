"""A loop that is rewritten until a judge is content, as a node of flow files."""

from __future__ import annotations

from typing import Final

__all__ = ["POLISH_LOOP"]

POLISH_LOOP: Final = """\
  polish:
    type: loop
    max_iterations: 4
    initial: {text: "{{ nodes.draft.output }}"}
    until: nodes.judge.output.passed
    carry: {text: "{{ nodes.improve.output }}"}
    on_exhausted: continue
    best_by: nodes.judge.output.score
    nodes:
      judge:
        type: evaluation
        target: "{{ round.text }}"
        criteria: {clear: Easy for a newcomer, exact: Every claim can be checked}
        threshold: 0.8
        routes: {fail: improve}
      improve:
        when: not round.last
        prompt: |
          Remarks: {{ nodes.judge.output.feedback }}
          Rewrite: {{ round.text }}
"""
