from .process import end_below as end_below
from .sandbox import Sandbox as Sandbox
from .sandbox import Verdict as Verdict
from .sandbox import verdict as verdict
from .script import Outcome as Outcome
from .script import ScriptLimits as ScriptLimits
from .script import interpreter_of as interpreter_of
