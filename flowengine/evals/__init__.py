"""Says what a flow is worth: rows of data, evals and their scores, what-if, blame, what was spent.

Rows are runs like all others, so none is paid twice. Begin with `eval_run`, then `counterfactual`.
"""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
